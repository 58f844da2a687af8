"""`ottla reassign`: execute, verify, cancel and list moves of replicas.

Who may call: the command line. Invariants: stdout carries a plan or a table, so that
`reassign execute --file plan.json > rollback.json` works; everything else is said on stderr (with
--kafka-output Kafka's lines on stdout); exit code 1 while something is not as planned; the way back
is in a file before anything is changed; what waits removes throttles however it ends.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from ottla.admin.arguments import Exit, Option, UsageError
from ottla.admin.commands.reassign_plan import KafkaOutput, PlanOutput, print_plan
from ottla.admin.options import Bootstrap, Dir, DryRun, Output, ask, read_input, usage
from ottla.admin.output import (
    Format,
    plural,
    print_results,
    print_structured,
    print_table,
    say,
    structured,
)
from ottla.model.errors import OttlaError

File = Annotated[
    str | None,
    Option(
        "--file",
        "--reassignment-json-file",
        metavar="FILE",
        help="A plan in Kafka's JSON format; - is standard input",
    ),
]
Moves = Annotated[
    list[str] | None,
    Option(
        "--partition", metavar="TOPIC-PARTITION=BROKERS", help="As flights-0=1,2,3; may be repeated"
    ),
]
Wait = Annotated[
    float | None, Option(metavar="SECONDS", help="Wait so long at most for the end", min=0)
]
Preserve = Annotated[bool, Option("--preserve-throttles", help="Leave throttles as they are")]


def _plan(file: str | None, moves: Sequence[str] | None) -> tuple[Any, str, Any]:
    """Return the plan asked for, how to call it in messages, and the log dirs that it names."""
    from ottla.admin.operations import plans  # noqa: PLC0415 - lazy

    if (file is None) == (not moves):
        raise UsageError(
            "give the plan as --file plan.json (- is standard input) or as "
            "--partition flights-0=1,2,3: one of both"
        )
    if file is not None:
        data, where = read_input(file, plans.MAX_PLAN_BYTES)
        return plans.parse_plan(data, where), where, plans.parse_places(data)
    entries = usage(plans.parse_move, moves or [], "--partition")
    try:
        return plans.checked(entries, "--partition"), "--partition", {}
    except plans.PlanError as error:
        raise UsageError(str(error)) from None


def _tell(left: int, of: int) -> None:
    say(f"{of - left} of {plural(of, 'partition')} done")


def execute(
    file: File = None,
    partition: Moves = None,
    throttle: Annotated[
        int | None,
        Option(metavar="BYTES/S", help="Limit the copying, per broker each way", min=1),
    ] = None,
    log_dirs_throttle: Annotated[
        int | None,
        Option(
            "--log-dirs-throttle",
            "--replica-alter-log-dirs-throttle",
            metavar="BYTES/S",
            help="Limit moves between a broker's log dirs",
            min=1,
        ),
    ] = None,
    additional: Annotated[
        bool, Option("--additional", help="Although others are in progress")
    ] = False,
    wait: Wait = None,
    rollback_file: Annotated[
        str | None,
        Option(metavar="FILE", help="Also write the way back here [default: a new file, named]"),
    ] = None,
    dry_run: DryRun = False,
    kafka_output: KafkaOutput = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: PlanOutput = Format.json,
) -> None:
    """Begin a plan; print the present assignment, which is the plan to go back.

    It is in a file before anything is changed. The plan that is in progress can be executed again,
    with another --throttle. With --wait, throttles are removed at the end and by Ctrl-C.

    Example: ottla reassign execute --file plan.json --wait 60 > back.json
    """
    from ottla.admin.operations import (  # noqa: PLC0415 - lazy
        kafka_text,
        log_dirs,
        plans,
        reassign,
        way_back,
    )

    plan, where, places = _plan(file, partition)
    if log_dirs_throttle is not None and not places:
        raise UsageError("--log-dirs-throttle: the plan names no log_dirs")
    throttled = throttle is not None or log_dirs_throttle is not None

    async def run(client: Any) -> int:
        prepared = await reassign.prepare(
            client, plan, where, additional=additional, throttle=throttle
        )
        if not dry_run and not prepared.running:
            path = way_back.write(plans.format_plan(prepared.rollback), rollback_file)
            say(f"the way back is in {path}")
        if kafka_output:
            sys.stdout.write(kafka_text.current_assignment(prepared.rollback))
            sys.stdout.flush()
        else:
            print_plan(output, prepared.rollback)
        if dry_run:
            say(f"{plural(len(plan), 'partition')} can be reassigned; nothing was changed")
            return 0
        try:
            return await begin(client, prepared)
        except asyncio.CancelledError:  # Ctrl-C
            if throttled:
                await _clear(client, prepared.throttled.leaders)
            _tell_what_goes_on(len(await reassign.in_progress(client)), throttled=throttled)
            raise

    async def begin(client: Any, prepared: Any) -> int:
        await reassign.execute(client, prepared, throttle)
        if kafka_output:
            sys.stdout.write(kafka_text.started(plan, throttle, log_dirs_throttle))
            sys.stdout.flush()
        if prepared.running:
            say(f"it is in progress already; its throttle is {throttle:,} bytes/s now")
        else:
            say(f"reassignment of {plural(len(plan), 'partition')} began")
        if places:
            await log_dirs.place(client, places, log_dirs_throttle)
            say(f"{plural(len(places), 'replica')} sent to log dirs")
        if throttle is not None:
            dead = [b for b in prepared.throttled.brokers if b not in prepared.live]
            for broker in dead:
                say(f"broker {broker} is down: no throttle is set on it")
        if wait is None:
            if throttled:
                say("run `ottla reassign verify` until it is done: it removes the throttle")
            return 0
        left = await reassign.wait(client, plan, wait, _tell)
        if left == 0 and places:
            left = await log_dirs.wait(client, places, wait)
        if left == 0 and throttled:
            if await reassign.in_progress(client):
                say("other reassignments are in progress: the throttles stay until they end")
            else:
                await _clear(client, prepared.throttled.leaders)
        return left

    left = ask(directory, bootstrap_server, run)
    if left:
        raise OttlaError(
            f"after {wait:g} s {plural(left, 'partition')} still moving; "
            "`ottla reassign verify` tells how far they are"
        )


def _tell_what_goes_on(moving: int, *, throttled: bool) -> None:
    if not moving:
        say("interrupted; nothing is being reassigned")
        return
    say(
        f"interrupted; the reassignment of {plural(moving, 'partition')} goes on"
        f"{', without a throttle' if throttled else ''}: `ottla reassign list` shows it, "
        "`ottla reassign cancel --all` stops it"
    )


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

    plan, _, places = _plan(file, partition)

    async def run(client: Any) -> tuple[list[reassign.Progress], list[log_dirs.Placed]]:
        if wait is not None:
            await reassign.wait(client, plan, wait, _tell)
            await log_dirs.wait(client, places, wait)
        found = await reassign.progress(client, plan)
        placed = await log_dirs.progress(client, places)
        moving = await reassign.in_progress(client) or not all(p.done for p in placed)
        if kafka_output:
            sys.stdout.write(kafka_text.status(found))
        if not preserve_throttles and not moving:
            await _clear(client, {tp.topic for tp in plan}, of=plan, kafka_output=kafka_output)
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
            await _clear(client, {tp.topic for tp in of}, of=of, kafka_output=kafka_output)
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


async def _clear(client: Any, topics: Any, *, of: Any = (), kafka_output: bool = False) -> None:
    """Remove throttles from all brokers and these topics; `of`: replicas by partition."""
    from ottla.admin.operations import kafka_text, reassign  # noqa: PLC0415 - lazy

    cleared = await reassign.clear_throttles(client, topics)
    replicas = {b for ids in of.values() for b in ids} if of else set()
    if kafka_output:
        live = await reassign.racks(client)
        sys.stdout.write(kafka_text.cleared({*live, *replicas}, topics))
        return
    named = [f"broker {b}" for b in cleared.brokers] + [f"topic {t}" for t in cleared.topics]
    if named:
        say(f"throttles removed: {', '.join(named)}")
    for broker in sorted({*cleared.silent, *(replicas - set(await reassign.racks(client)))}):
        say(f"broker {broker} does not answer: if it has a throttle, verify again once it does")
