"""Commands: `ottla whatif …`, as a person types them.

Invariants: nothing in the cluster changes: it is asked once, or not at all with --snapshot; exit
code 1 if the event would take away a leader, put a partition below min.insync.replicas, or lose
records. What is computed: `whatif`.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ottla.admin.arguments import Argument, Exit, Option, UsageError
from ottla.admin.arguments.declaring import parameters
from ottla.admin.options import Bootstrap, Dir, Output, ask, read_input, usage
from ottla.cli.output import Format, ids, print_json, print_table, say_prose
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.admin.operations.partitions import Partition
    from ottla.admin.operations.snapshot_file import Broker
    from ottla.explain.whatif import Report, State, WhatIf

    Event = Callable[[WhatIf], None]

EXIT_HARM = 1
SHOWN = 20
TIMEOUT_S = 60.0

Brokers = Annotated[list[int], Argument(metavar="BROKER...")]


def _on_snapshot(
    snapshot: Annotated[
        str | None,
        Option(
            "--snapshot",
            metavar="FILE",
            help="Use this file instead of asking; - is standard input",
        ),
    ] = None,
    save: Annotated[
        Path | None, Option("--save", metavar="FILE", help="Keep the snapshot that was taken")
    ] = None,
    every: Annotated[
        bool, Option("--all", help=f"Show every change, not the first {SHOWN}")
    ] = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> "Callable[[Event], None]":
    """Return what tries an event on a snapshot; these are the options of all scenarios."""

    def run(event: "Event") -> None:
        from ottla.admin.operations import cluster_snapshot, snapshot_file
        from ottla.explain.whatif import WhatIf, with_verdict

        if snapshot is not None:
            if save is not None or bootstrap_server is not None:
                raise UsageError("--snapshot: no cluster is asked; leave --save and -b out")
            found = snapshot_file.parse(*read_input(snapshot, snapshot_file.MAX_BYTES))
        else:
            found = ask(directory, bootstrap_server, cluster_snapshot.take, timeout_s=TIMEOUT_S)
            if save is not None:
                save.write_bytes(msgspec.json.encode(found))
        what = WhatIf(found)
        event(what)
        report = what.report()
        if output is Format.json:
            print_json(with_verdict(report))
        else:
            _print(report, every=every)
        if report.harm:
            raise Exit(EXIT_HARM)

    return run


def _scenario(function: "Callable[..., Event]") -> Callable[..., None]:
    """Make a command of a function that returns an event: it takes the options of all scenarios."""
    shared = [parameter.name for parameter in parameters(_on_snapshot)]

    @wraps(function)
    def command(**values: Any) -> None:
        options = {name: values.pop(name) for name in shared}
        event = function(**values)
        _on_snapshot(**options)(event)

    command.declared_by = (function, _on_snapshot)  # type: ignore[attr-defined]
    return command


@_scenario
def kill(
    brokers: Brokers,
    in_turn: Annotated[
        bool, Option("--in-turn", help="One after the other, not at one moment")
    ] = False,
) -> "Event":
    """Say what happens if brokers die. Exit code 1 if it would do harm.

    Example: ottla whatif kill 1 2
    """
    return lambda what: what.kill(brokers, in_turn=in_turn)


@_scenario
def shutdown(
    brokers: Brokers,
) -> "Event":
    """Say what happens if brokers are shut down. Exit code 1 if it would do harm.

    They stop one after the other, by a controlled shutdown each.
    Example: ottla whatif shutdown 1
    """
    return lambda what: what.shut_down(brokers)


@_scenario
def rolling_restart(
    brokers: Annotated[
        list[int] | None, Argument(metavar="[BROKER]...", help="In this order [default: all]")
    ] = None,
) -> "Event":
    """Say what happens if brokers restart one after the other. Exit code 1 if it would do harm.

    Example: ottla whatif rolling-restart
    """
    return lambda what: what.rolling_restart(brokers or [])


@_scenario
def drain(
    broker: Annotated[int, Argument(metavar="BROKER")],
) -> "Event":
    """Say where the replicas of a broker would go, and who leads then.

    Example: ottla whatif drain 3
    """
    return lambda what: what.drain(broker)


@_scenario
def add_brokers(
    brokers: Annotated[
        list[str], Argument(metavar="BROKER[:RACK]...", help="New ids, with their racks")
    ],
) -> "Event":
    """Say how all topics would be spread with more brokers.

    As `ottla reassign plan --all` would spread them. A whole rack: name its brokers.
    Example: ottla whatif add-brokers 4:r1 5:r2
    """
    from ottla.admin.operations.snapshot_file import Broker

    def parse(text: str) -> "Broker":
        number, _, rack = text.partition(":")
        if not number.isdigit() or int(number) >= 2**31:
            raise ValueError(f"{text!r} is no broker; write ID or ID:RACK")
        return Broker(int(number), rack or None)

    new = usage(parse, brokers, "")
    return lambda what: what.add_brokers(new)


@_scenario
def reassign(
    plan: Annotated[str, Argument(metavar="FILE", help="As of `reassign plan`; - is stdin")],
) -> "Event":
    """Say what comes of a reassignment plan. Exit code 1 if it would do harm.

    Example: ottla whatif reassign plan.json
    """
    from ottla.admin.operations.plans import MAX_PLAN_BYTES, parse_plan

    data, where = read_input(plan, MAX_PLAN_BYTES)
    parsed = parse_plan(data, where)
    return lambda what: what.reassign(parsed, where)


@_scenario
def unclean(
    partitions: Annotated[list[str], Argument(metavar="TOPIC-PARTITION...")],
) -> "Event":
    """Say who would lead after unclean elections, and what is lost.

    Example: ottla whatif unclean orders-0
    """
    from ottla.admin.operations.plans import parse_partition

    chosen = usage(parse_partition, partitions, "")
    return lambda what: what.elect_unclean(chosen)


@_scenario
def config(
    setting: Annotated[str, Argument(metavar="KEY=VALUE")],
    topics: Annotated[
        list[str] | None, Argument(metavar="[TOPIC]...", help="[default: all]")
    ] = None,
) -> "Event":
    """Say what a setting of topics would change.

    min.insync.replicas or unclean.leader.election.enable.
    Example: ottla whatif config min.insync.replicas=2
    """
    key, equals, value = setting.partition("=")
    if not equals:
        raise UsageError(f"{setting!r}: write KEY=VALUE")
    return lambda what: what.configure(key, value, topics or [])


# --- printing ---------------------------------------------------------------------------------


def _print(report: "Report", *, every: bool) -> None:
    before, after = report.before, report.after
    print_table(
        ("partitions", "before", "after"),
        [
            ("all", before.partitions, after.partitions),
            ("without leader", before.without_leader, after.without_leader),
            ("under-replicated", before.under_replicated, after.under_replicated),
            ("under min ISR", before.under_min_isr, after.under_min_isr),
        ],
        title=f"whatif {report.scenario}",
    )
    print_table(
        ("broker", "rack", "state", "leaders", "replicas", "bytes"),
        _loads(before, after),
        title="brokers, before → after",
    )
    limit = len(report.changes) if every else SHOWN
    if report.changes:
        print_table(
            ("partition", "leader", "in sync", "replicas"),
            [
                (
                    c,
                    _arrow(_leader(c.leader_before), _leader(c.leader_after)),
                    _arrow(ids(c.isr_before), ids(c.isr_after)),
                    _arrow(ids(c.replicas_before), ids(c.replicas_after)),
                )
                for c in report.changes[:limit]
            ],
            title=f"{plural(len(report.changes), 'partition')} would change",
        )
    if len(report.changes) > limit:
        say_prose(f"and {plural(len(report.changes) - limit, 'partition')} more; --all shows them")
    for step in report.steps:
        _say_harm(step.what, step.without_leader, "would have no leader", limit)
        _say_harm(
            step.what, step.under_min_isr, "would be below min.insync.replicas: no acks=all", limit
        )
    for lost in report.lost[:limit]:
        say_prose(f"{lost}: broker {lost.leader} would lead; lost: {lost.text}")
    if len(report.lost) > limit:
        say_prose(
            f"and {plural(len(report.lost) - limit, 'loss', 'losses')} more; --all shows them"
        )
    for note in report.notes:
        say_prose(note)
    if not report.harm:
        say_prose(
            "no partition would lose its leader, get below min.insync.replicas or lose records"
        )


def _loads(before: "State", after: "State") -> list[tuple[object, ...]]:
    was = {load.broker: load for load in before.brokers}
    rows: list[tuple[object, ...]] = []
    for now in after.brokers:
        then = was.get(now.broker)
        alive = "" if then is None else "alive" if then.alive else "dead"
        state = _arrow(alive or "new", "alive" if now.alive else "dead")
        counts = (now.leaders, now.replicas, now.bytes)
        earlier = ("-",) * 3 if then is None else (then.leaders, then.replicas, then.bytes)
        cells = [_arrow(str(old), str(new)) for old, new in zip(earlier, counts, strict=True)]
        rows.append((now.broker, now.rack or "-", state, *cells))
    return rows


def _say_harm(what: str, partitions: "Sequence[Partition]", harm: str, limit: int) -> None:
    if partitions:
        more = len(partitions) - limit
        named = ", ".join(map(str, partitions[:limit])) + (
            f" and {more:,} more" if more > 0 else ""
        )
        say_prose(f"{what}: {plural(len(partitions), 'partition')} {harm}: {named}")


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _leader(broker: int | None) -> str:
    return "none" if broker is None else str(broker)
