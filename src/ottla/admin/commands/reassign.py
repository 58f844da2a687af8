"""`ottla reassign`: verify, cancel and list moves of replicas; throttles that are left over.

Invariants: stdout carries data (with --kafka-output what Kafka's tool prints), everything else is
said on stderr; exit code 1 while something is not as planned.
"""

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

from ottla.admin.commands.reassign_plan import (
    File,
    KafkaOutput,
    Moves,
    Wait,
    clear,
    plan_of,
    tell_what_goes_on,
)
from ottla.admin.connection import Target
from ottla.admin.options import DryRun, read_input, usage
from ottla.cli import Exit, Option, UsageError
from ottla.cli.output import Format, ids, print_changes, print_result, say
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.client.left_over_throttles import Forgotten
    from ottla.client.reassignments import Listed
    from ottla.model.ids import TopicPartition
    from ottla.placement.copy_estimate import Estimate
    from ottla.placement.plans import Move

Preserve = Annotated[bool, Option("--preserve-throttles", help="Keep throttles")]
LONGEST_FAREWELL_S = 5.0
"""After Ctrl-C, `verify` asks what goes on for no longer."""


def verify(
    target: Target,
    file: File = None,
    partition: Moves = None,
    preserve_throttles: Preserve = False,
    wait: Wait = None,
    kafka_output: KafkaOutput = False,
) -> None:
    from ottla.admin.operations import kafka_text
    from ottla.admin.results import Moving
    from ottla.client import log_dirs, reassignments

    plan, _, places = plan_of(file, partition)
    topics = {tp.topic for tp in plan}

    async def run(client: "Client") -> tuple[list[reassignments.Progress], list[log_dirs.Placed]]:
        try:
            return await look(client)
        except asyncio.CancelledError:  # Ctrl-C: what was only watched goes on as it was
            with contextlib.suppress(TimeoutError):  # of a cluster that is silent
                async with asyncio.timeout(LONGEST_FAREWELL_S):
                    moving = await tell_what_goes_on(client, topics, unthrottled=False)
                    placed = await log_dirs.progress(client, places)
                    if not moving and not preserve_throttles and all(p.done for p in placed):
                        await clear(client, topics, of=plan)
            raise

    async def look(client: "Client") -> tuple[list[reassignments.Progress], list[log_dirs.Placed]]:
        if wait is not None:
            from ottla.cli.progress import MoveProgress

            with MoveProgress() as shown:
                await reassignments.wait(client, plan, wait, shown.tell)
            await log_dirs.wait(client, places, wait)
        found = await reassignments.progress(client, plan)
        placed = await log_dirs.progress(client, places)
        moving = await reassignments.in_progress(client) or not all(p.done for p in placed)
        if kafka_output:
            sys.stdout.write(kafka_text.status(found))
        if not preserve_throttles and not moving:
            await clear(client, topics, of=plan, kafka_output=kafka_output)
        return found, placed

    found, placed = target.ask(run)
    for one in placed:
        if not one.done:
            say(f"{one.partition} on broker {one.broker} to {one.path}: {one.state}")
    if kafka_output:
        pass
    else:
        print_result(
            target.output,
            [Moving(*p.partition, str(p.state), list(p.replicas), list(p.target)) for p in found],
            ("partition", "state", "replicas", "planned"),
            [(p.partition, str(p.state), ids(p.replicas), ids(p.target)) for p in found],
        )
    if any(p.state is not reassignments.State.DONE for p in found) or not all(
        p.done for p in placed
    ):
        raise Exit(1)


def cancel(
    target: Target,
    file: File = None,
    partition: Annotated[
        list[str] | None,
        Option(
            metavar="TOPIC-PARTITION[=BROKERS]",
            help="Cancel the move of a partition, such as flights-0; repeatable",
        ),
    ] = None,
    every: Annotated[bool, Option("--all", help="Cancel all moves in progress")] = False,
    preserve_throttles: Preserve = False,
    dry_run: DryRun = False,
    kafka_output: KafkaOutput = False,
) -> None:
    from ottla.admin.operations import kafka_text
    from ottla.admin.results import Cancelled
    from ottla.client import reassignments
    from ottla.placement import plans

    if [file is not None, bool(partition), every].count(True) != 1:
        raise UsageError("name what to cancel: --file, --partition or --all, one of them")
    chosen: list[TopicPartition] | None = None
    if file is not None:
        chosen = list(plans.parse_plan(*read_input(file, plans.MAX_PLAN_BYTES)))
    elif partition:
        texts = [text.partition("=")[0] for text in partition]
        chosen = usage(plans.parse_partition, texts, "--partition")

    async def run(client: "Client") -> "dict[TopicPartition, Move]":
        if dry_run:
            moving = await reassignments.in_progress(client)
            return {tp: m for tp, m in moving.items() if chosen is None or tp in chosen}
        cancelled = await reassignments.cancel(client, chosen)
        if kafka_output:
            sys.stdout.write(kafka_text.cancelled(cancelled))
        of = {**dict.fromkeys(chosen or (), ()), **{tp: m.replicas for tp, m in cancelled.items()}}
        if of and not preserve_throttles:
            if await reassignments.in_progress(client):
                say("others are in progress: the throttles stay until they end")
            else:
                await clear(client, {tp.topic for tp in of}, of=of, kafka_output=kafka_output)
                await _tell_what_is_left_over(client)
        return cancelled

    cancelled = target.ask(run)
    for tp, move in cancelled.items():
        say(f"{tp} {'would go' if dry_run else 'goes'} back to {ids(move.original)}")
    print_changes(
        Format.table if kafka_output else target.output,
        [
            Cancelled(*tp, list(move.original), cancelled=not dry_run)
            for tp, move in cancelled.items()
        ],
    )
    if not cancelled:
        say("none of them is in progress")


async def _tell_what_is_left_over(client: "Client") -> None:
    """Say where throttles are that the plan had set on topics which were not named now."""
    from ottla.client import left_over_throttles

    left = await left_over_throttles.forgotten(client)
    if left:
        named = ", ".join(f"{one.kind} {one.name}" for one in left)
        say(f"throttles are left over on {named}: `ottla reassign throttles --remove` removes them")


def list_command(
    target: Target,
    interval: Annotated[
        float, Option(metavar="SECONDS", help="How long to measure rates; 0 shows none", min=0)
    ] = 1.0,
    kafka_output: KafkaOutput = False,
) -> None:
    from ottla.client import reassignments

    async def run(
        client: "Client",
    ) -> "tuple[dict[TopicPartition, Move], list[Listed], Estimate | None]":
        moves = await reassignments.in_progress(client)
        if kafka_output or not moves:
            return moves, [], None
        return moves, *await reassignments.listed(client, moves, interval)

    moves, found, total = target.ask(run)
    if kafka_output:
        from ottla.admin.operations import kafka_text

        sys.stdout.write(kafka_text.listed(moves))
        return
    if found or target.output is Format.json:
        print_result(
            target.output,
            found,
            ("partition", "replicas", "adding", "removing", "copied", "left", "per second"),
            [
                (
                    one,
                    ids(one.replicas),
                    ids(one.adding),
                    ids(one.removing),
                    f"{one.copied:,}",
                    f"{one.left:,}",
                    "-" if one.copied_per_s is None else f"{one.copied_per_s:,}",
                )
                for one in found
            ],
        )
    if found:
        from ottla.cli.progress import described  # if anything moves

        said = "" if total is None else f": {described(total)}"
        say(f"{plural(len(found), 'partition')} in progress{said}")
    else:
        say("no reassignment is in progress")


def throttles(
    target: Target,
    remove: Annotated[bool, Option("--remove", help="Remove the throttles")] = False,
) -> None:
    from ottla.client import left_over_throttles as operation

    async def run(client: "Client") -> "list[Forgotten]":
        found = await operation.forgotten(client)
        if remove:
            await operation.remove(client, found)
        return found

    found = target.ask(run)
    if found or target.output is Format.json:
        print_result(
            target.output,
            found,
            ("of", "setting", "value"),
            [
                (f"{f.kind} {f.name}", key, value)
                for f in found
                for key, value in f.settings.items()
            ],
        )
    if not found:
        say("no throttle is left over")
    elif remove:
        say(f"throttles removed from {plural(len(found), 'broker or topic', 'brokers and topics')}")
    else:
        say("`ottla reassign throttles --remove` removes them")
        raise Exit(1)
