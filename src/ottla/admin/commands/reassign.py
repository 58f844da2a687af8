"""`ottla reassign`: verify, cancel and list moves of replicas.

Who may call: the command line. Invariants: stdout carries data (with --kafka-output what Kafka's
tool prints), everything else is said on stderr; exit code 1 while something is not as planned.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

from ottla.admin.arguments import Exit, Option, UsageError
from ottla.admin.commands.reassign_options import File, Moves, Wait, clear, plan_of
from ottla.admin.commands.reassign_plan import KafkaOutput
from ottla.admin.move_progress import MoveProgress
from ottla.admin.options import Bootstrap, Dir, DryRun, Output, ask, read_input, usage
from ottla.admin.output import (
    Format,
    print_results,
    print_structured,
    print_table,
    say,
    structured,
)

Preserve = Annotated[bool, Option("--preserve-throttles", help="Leave throttles as they are")]


def verify(
    file: File = None,
    partition: Moves = None,
    preserve_throttles: Preserve = False,
    wait: Wait = None,
    kafka_output: KafkaOutput = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Show how far a plan is; when nothing moves any more, remove throttles. Exit 1 until done.

    Example: ottla reassign verify --file plan.json --wait 600
    """
    from ottla.admin.operations import kafka_text, log_dirs, reassign  # noqa: PLC0415 - lazy

    plan, _, places = plan_of(file, partition)

    async def run(client: Any) -> tuple[list[reassign.Progress], list[log_dirs.Placed]]:
        if wait is not None:
            with MoveProgress() as shown:
                await reassign.wait(client, plan, wait, shown.tell)
            await log_dirs.wait(client, places, wait)
        found = await reassign.progress(client, plan)
        placed = await log_dirs.progress(client, places)
        moving = await reassign.in_progress(client) or not all(p.done for p in placed)
        if kafka_output:
            sys.stdout.write(kafka_text.status(found))
        if not preserve_throttles and not moving:
            await clear(client, {tp.topic for tp in plan}, of=plan, kafka_output=kafka_output)
        return found, placed

    found, placed = ask(directory, bootstrap_server, run)
    for one in placed:
        if not one.done:
            say(f"{one.partition} on broker {one.broker} to {one.path}: {one.state}")
    if kafka_output:
        pass
    elif structured(output):
        print_structured(
            output,
            [
                {
                    "partition": str(p.partition),
                    "state": str(p.state),
                    "replicas": list(p.replicas),
                    "target": list(p.target),
                }
                for p in found
            ],
        )
    else:
        print_table(
            ("partition", "state", "replicas", "planned"),
            [(p.partition, str(p.state), _ids(p.replicas), _ids(p.target)) for p in found],
        )
    if any(p.state is not reassign.State.DONE for p in found) or not all(p.done for p in placed):
        raise Exit(1)


def cancel(
    file: File = None,
    partition: Annotated[
        list[str] | None,
        Option(metavar="TOPIC-PARTITION[=BROKERS]", help="As flights-0; may be repeated"),
    ] = None,
    every: Annotated[bool, Option("--all", help="All that are in progress")] = False,
    preserve_throttles: Preserve = False,
    dry_run: DryRun = False,
    kafka_output: KafkaOutput = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Stop moves and go back to the replicas there were.

    Example: ottla reassign cancel --all
    """
    from ottla.admin.operations import kafka_text, plans, reassign  # noqa: PLC0415 - lazy

    if [file is not None, bool(partition), every].count(True) != 1:
        raise UsageError("name what to cancel: --file, --partition or --all, one of them")
    chosen: list[Any] | None = None
    if file is not None:
        chosen = list(plans.parse_plan(*read_input(file, plans.MAX_PLAN_BYTES)))
    elif partition:
        texts = [text.partition("=")[0] for text in partition]
        chosen = usage(plans.parse_partition, texts, "--partition")

    async def run(client: Any) -> dict[Any, Any]:
        if dry_run:
            moving = await reassign.in_progress(client)
            return {tp: m for tp, m in moving.items() if chosen is None or tp in chosen}
        cancelled = await reassign.cancel(client, chosen)
        if kafka_output:
            sys.stdout.write(kafka_text.cancelled(cancelled))
        of = {**dict.fromkeys(chosen or (), ()), **{tp: m.replicas for tp, m in cancelled.items()}}
        if of and not preserve_throttles and not await reassign.in_progress(client):
            await clear(client, {tp.topic for tp in of}, of=of, kafka_output=kafka_output)
        return cancelled

    cancelled = ask(directory, bootstrap_server, run)
    for tp, move in cancelled.items():
        say(f"{tp} {'would go' if dry_run else 'goes'} back to {_ids(move.original)}")
    print_results(
        Format.table if kafka_output else output,
        [
            {"partition": str(tp), "replicas": list(move.original), "cancelled": not dry_run}
            for tp, move in cancelled.items()
        ],
    )
    if not cancelled:
        say("none of them is in progress")


def list_command(
    kafka_output: KafkaOutput = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """List the moves in progress.

    Example: ottla reassign list
    """
    from ottla.admin.operations import reassign  # noqa: PLC0415 - lazy

    found = ask(directory, bootstrap_server, reassign.in_progress)
    if kafka_output:
        from ottla.admin.operations import kafka_text  # noqa: PLC0415 - lazy

        sys.stdout.write(kafka_text.listed(found))
        return
    if structured(output):
        print_structured(
            output,
            [
                {
                    "partition": str(tp),
                    "replicas": list(move.replicas),
                    "adding": list(move.adding),
                    "removing": list(move.removing),
                }
                for tp, move in found.items()
            ],
        )
    elif found:
        print_table(
            ("partition", "replicas", "adding", "removing"),
            [
                (tp, _ids(move.replicas), _ids(move.adding), _ids(move.removing))
                for tp, move in found.items()
            ],
        )
    else:
        say("no reassignment is in progress")


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "-"
