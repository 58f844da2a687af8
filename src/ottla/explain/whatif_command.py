"""Commands: `ottla whatif …`, as a person types them.

Invariants: nothing in the cluster changes: it is asked once, or not at all with --snapshot; exit
code 1 if the event would take away a leader, put a partition below min.insync.replicas, or lose
records. What is computed: `whatif`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from ottla.admin.connection import Target
from ottla.admin.options import read_input, usage
from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import Format, ids, print_json, print_table, say_prose
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.explain.whatif import Report, State, WhatIf
    from ottla.model.ids import Partition
    from ottla.placement.snapshot_file import Broker, Snapshot

EXIT_HARM = 1
SHOWN = 20
TIMEOUT_S = 60.0

Brokers = Annotated[list[int], Argument(metavar="BROKER...")]


@dataclass(kw_only=True)
class OnSnapshot(Target):
    """The options of all events, which are tried on a snapshot of a cluster."""

    snapshot: Annotated[
        str | None,
        Option("--snapshot", metavar="FILE", help="Read a snapshot, - from standard input"),
    ] = None
    save: Annotated[
        Path | None, Option("--save", metavar="FILE", help="Write the snapshot to a file")
    ] = None
    every: Annotated[
        bool, Option("--all", help=f"Print every change, not only the first {SHOWN}")
    ] = False

    def after(self, event: "Callable[[WhatIf], None]") -> None:
        """Print what an event would do; Exit(1) if it would do harm."""
        from ottla.explain.whatif import WhatIf, with_verdict

        what = WhatIf(self._taken())
        event(what)
        report = what.report()
        if self.output is Format.json:
            print_json(with_verdict(report))
        else:
            _print(report, every=self.every)
        if report.harm:
            raise Exit(EXIT_HARM)

    def _taken(self) -> "Snapshot":
        from ottla.client import cluster_snapshot
        from ottla.placement import snapshot_file

        if self.snapshot is not None:
            if self.save is not None or self.bootstrap_server is not None:
                raise UsageError("--snapshot: no cluster is asked; leave --save and -b out")
            return snapshot_file.parse(*read_input(self.snapshot, snapshot_file.MAX_BYTES))
        found = self.ask(cluster_snapshot.take, timeout_s=TIMEOUT_S)
        if self.save is not None:
            self.save.write_bytes(msgspec.json.encode(found))
        return found


def kill(
    brokers: Brokers,
    on: OnSnapshot,
    in_turn: Annotated[
        bool, Option("--in-turn", help="Kill them one after the other, not at once")
    ] = False,
) -> None:
    on.after(lambda what: what.kill(brokers, in_turn=in_turn))


def shutdown(
    brokers: Brokers,
    on: OnSnapshot,
) -> None:
    on.after(lambda what: what.shut_down(brokers))


def rolling_restart(
    on: OnSnapshot,
    brokers: Annotated[
        list[int] | None, Argument(metavar="[BROKER]...", help="In this order [all]")
    ] = None,
) -> None:
    on.after(lambda what: what.rolling_restart(brokers or []))


def drain(
    broker: Annotated[int, Argument(metavar="BROKER")],
    on: OnSnapshot,
) -> None:
    on.after(lambda what: what.drain(broker))


def add_brokers(
    on: OnSnapshot,
    brokers: Annotated[
        list[str], Argument(metavar="BROKER[:RACK]...", help="New ids, with their racks")
    ],
) -> None:
    from ottla.placement.snapshot_file import Broker

    def parse(text: str) -> "Broker":
        number, _, rack = text.partition(":")
        if not number.isdigit() or int(number) >= 2**31:
            raise ValueError(f"{text!r} is not a broker; write ID or ID:RACK")
        return Broker(int(number), rack or None)

    new = usage(parse, brokers, "")
    on.after(lambda what: what.add_brokers(new))


def reassign(
    plan: Annotated[
        str, Argument(metavar="FILE", help="A plan of `reassign plan`; - is standard input")
    ],
    on: OnSnapshot,
) -> None:
    from ottla.placement.plans import MAX_PLAN_BYTES, parse_plan

    data, where = read_input(plan, MAX_PLAN_BYTES)
    parsed = parse_plan(data, where)
    on.after(lambda what: what.reassign(parsed, where))


def unclean(
    partitions: Annotated[list[str], Argument(metavar="TOPIC-PARTITION...")],
    on: OnSnapshot,
) -> None:
    from ottla.placement.plans import parse_partition

    chosen = usage(parse_partition, partitions, "")
    on.after(lambda what: what.elect_unclean(chosen))


def config(
    setting: Annotated[str, Argument(metavar="KEY=VALUE")],
    on: OnSnapshot,
    topics: Annotated[list[str] | None, Argument(metavar="[TOPIC]...", help="Topics [all]")] = None,
) -> None:
    key, equals, value = setting.partition("=")
    if not equals:
        raise UsageError(f"{setting!r}: write KEY=VALUE")
    on.after(lambda what: what.configure(key, value, topics or []))


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
