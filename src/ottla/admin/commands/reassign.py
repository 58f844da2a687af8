"""`ottla reassign`: plan, execute, verify, cancel and list moves of replicas.

Who may call: the command line. Invariants: stdout carries a plan or a table, so that
`reassign plan > plan.json` and `reassign execute --file plan.json > rollback.json` work;
everything else is said on stderr; exit code 1 while something is not as planned.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

from ottla.admin.arguments import Exit, Option, UsageError
from ottla.admin.options import Bootstrap, Dir, DryRun, Output, ask, read_input, usage
from ottla.admin.output import (
    Format,
    megabytes,
    plural,
    print_results,
    print_structured,
    print_table,
    say,
    structured,
)
from ottla.model.errors import OttlaError

File = Annotated[
    str | None, Option("--file", help="A plan in Kafka's JSON format; - is standard input")
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


PlanOutput = Annotated[
    Format, Option("--output", help="The plan: json is what Kafka's tool and --file read")
]


def _print_plan(output: Format, plan: Any) -> None:
    from ottla.admin.operations import plans  # noqa: PLC0415 - lazy

    if output is Format.yaml:
        print_structured(output, plans.as_dict(plan))
    elif output is Format.json:
        sys.stdout.write(plans.format_plan(plan) + "\n")
    else:
        structured(output)
        rows = [(tp.topic, tp.partition, _ids(replicas)) for tp, replicas in sorted(plan.items())]
        print_table(("topic", "partition", "replicas"), rows)
    sys.stdout.flush()


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


def plan_command(
    topics: Annotated[list[str], Option("--topics", metavar="T[,T…]", help="The topics to spread")],
    brokers: Annotated[
        str | None, Option(metavar="ID[,ID…]", help="Where to [default: all that live]")
    ] = None,
    replication_factor: Annotated[
        int | None, Option(help="Another number of replicas [default: as now]", min=1)
    ] = None,
    ignore_racks: Annotated[bool, Option("--ignore-racks", help="Place as if there were none")] = (
        False
    ),
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: PlanOutput = Format.json,
) -> None:
    """Print a plan that spreads topics evenly and moves as few replicas as that takes.

    Even are, in this order: racks, each topic's replicas and leaders, those of all topics (topics
    not named count), bytes. Kafka's --generate places all replicas anew, from a random start.

    Example: ottla reassign plan --topics orders --replication-factor 3 > plan.json
    """
    from ottla.admin.operations import plans, proposing  # noqa: PLC0415 - lazy

    names = list(dict.fromkeys(n.strip() for some in topics for n in some.split(",") if n.strip()))
    if not names:
        raise UsageError("--topics names no topic")
    ids = usage(plans.parse_brokers, [brokers] if brokers is not None else [], "--brokers")
    current, proposed = ask(
        directory,
        bootstrap_server,
        lambda client: proposing.propose(
            client, names, ids[0] if ids else (), replication_factor, rack_aware=not ignore_racks
        ),
    )
    assignment = proposed.assignment
    _print_plan(output, assignment)
    changed = sum(replicas != current[tp] for tp, replicas in assignment.items())
    if not changed:
        say("nothing to move")
        return
    of = plural(len(assignment), "partition")
    size = f" ({megabytes(proposed.copied_bytes)})" if proposed.copied_bytes else ""
    say(
        f"{plural(proposed.copies, 'replica')} to copy{size}, {changed} of {of} changed; "
        f"no spread as even copies fewer than {proposed.least}"
    )


def execute(
    file: File = None,
    partition: Moves = None,
    throttle: Annotated[
        int | None,
        Option(metavar="BYTES/S", help="Limit the copying, per broker each way", min=1),
    ] = None,
    log_dirs_throttle: Annotated[
        int | None,
        Option(metavar="BYTES/S", help="Limit moves between a broker's log dirs", min=1),
    ] = None,
    additional: Annotated[
        bool, Option("--additional", help="Although others are in progress")
    ] = False,
    wait: Wait = None,
    dry_run: DryRun = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: PlanOutput = Format.json,
) -> None:
    """Begin a plan; print the present assignment, which is the plan to go back.

    Example: ottla reassign execute --file plan.json --wait 60 > back.json
    """
    from ottla.admin.operations import log_dirs, reassign  # noqa: PLC0415 - lazy

    plan, where, places = _plan(file, partition)
    if log_dirs_throttle is not None and not places:
        raise UsageError("--log-dirs-throttle: the plan names no log_dirs")

    async def run(client: Any) -> int:
        prepared = await reassign.prepare(client, plan, where, additional=additional)
        _print_plan(output, prepared.rollback)
        if dry_run:
            say(f"{plural(len(plan), 'partition')} can be reassigned; nothing was changed")
            return 0
        await reassign.execute(client, prepared, throttle)
        say(f"reassignment of {plural(len(plan), 'partition')} began")
        if places:
            await log_dirs.place(client, places, log_dirs_throttle)
            say(f"{plural(len(places), 'replica')} sent to log dirs")
        if throttle is not None:
            dead = [b for b in prepared.throttled.brokers if b not in prepared.live]
            for broker in dead:
                say(f"broker {broker} is down: no throttle is set on it")
        if wait is None:
            if throttle is not None or log_dirs_throttle is not None:
                say("run `ottla reassign verify` until it is done: it removes the throttle")
            return 0
        left = await reassign.wait(client, plan, wait, _tell)
        if left == 0 and places:
            left = await log_dirs.wait(client, places, wait)
        if left == 0 and (throttle is not None or log_dirs_throttle is not None):
            await _clear(client, plan)
        return left

    left = ask(directory, bootstrap_server, run)
    if left:
        raise OttlaError(
            f"after {wait:g} s {plural(left, 'partition')} still moving; "
            "`ottla reassign verify` tells how far they are"
        )


def verify(
    file: File = None,
    partition: Moves = None,
    preserve_throttles: Preserve = False,
    wait: Wait = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Show how far a plan is; when nothing moves any more, remove throttles. Exit 1 until done.

    Example: ottla reassign verify --file plan.json --wait 600
    """
    from ottla.admin.operations import log_dirs, reassign  # noqa: PLC0415 - lazy

    plan, _, places = _plan(file, partition)

    async def run(client: Any) -> tuple[list[reassign.Progress], list[log_dirs.Placed]]:
        if wait is not None:
            await reassign.wait(client, plan, wait, _tell)
            await log_dirs.wait(client, places, wait)
        found = await reassign.progress(client, plan)
        placed = await log_dirs.progress(client, places)
        moving = await reassign.in_progress(client) or not all(p.done for p in placed)
        if not preserve_throttles and not moving:
            await _clear(client, plan)
        return found, placed

    found, placed = ask(directory, bootstrap_server, run)
    for one in placed:
        if not one.done:
            say(f"{one.partition} on broker {one.broker} to {one.path}: {one.state}")
    if structured(output):
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
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Stop moves and go back to the replicas there were.

    Example: ottla reassign cancel --all
    """
    from ottla.admin.operations import plans, reassign  # noqa: PLC0415 - lazy

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
        concerned = cancelled or chosen
        if concerned and not preserve_throttles and not await reassign.in_progress(client):
            of = dict.fromkeys([*(chosen or ()), *cancelled], ())
            await _clear(client, of)
        return cancelled

    cancelled = ask(directory, bootstrap_server, run)
    for tp, move in cancelled.items():
        say(f"{tp} {'would go' if dry_run else 'goes'} back to {_ids(move.original)}")
    print_results(
        output,
        [
            {"partition": str(tp), "replicas": list(move.original), "cancelled": not dry_run}
            for tp, move in cancelled.items()
        ],
    )
    if not cancelled:
        say("none of them is in progress")


def list_command(
    directory: Dir = None, bootstrap_server: Bootstrap = None, output: Output = Format.table
) -> None:
    """List the moves in progress.

    Example: ottla reassign list
    """
    from ottla.admin.operations import reassign  # noqa: PLC0415 - lazy

    found = ask(directory, bootstrap_server, reassign.in_progress)
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


async def _clear(client: Any, plan: Any) -> None:
    from ottla.admin.operations import reassign  # noqa: PLC0415 - lazy

    cleared, silent = await reassign.clear_throttles(client, plan)
    if cleared:
        say(f"throttles removed: {', '.join(cleared)}")
    for broker in silent:
        say(f"broker {broker} does not answer: if it has a throttle, verify again once it does")
