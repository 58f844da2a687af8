"""Rendering: histories, states of the cluster and differences as tables.

Invariant: nothing is cut.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.output import print_table, say
from ottla.explain.cluster_state import ClusterState
from ottla.explain.history import HistoryEntry, PartitionHistory
from ottla.explain.timestamps import time_text
from ottla.model.cluster import LeaderAndIsr
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural

if TYPE_CHECKING:  # they bring the controller's rules, which only a replay needs
    from ottla.explain.replay import Replay

NAMES_SHOWN = 10


class UnknownPartitionError(OttlaError):
    """No journal has a line about it."""


def unknown_partition(tp: TopicPartition, cluster: ClusterState) -> UnknownPartitionError:
    """Return an error that says what the journals do know."""
    topic = cluster.topics.get(tp.topic)
    if topic is not None and topic.partitions:
        there = ", ".join(f"{tp.topic}-{n}" for n in sorted(topic.partitions)[:NAMES_SHOWN])
        return UnknownPartitionError(f"no journal knows {tp}; it knows {there} of this topic")
    names = sorted(cluster.topics)
    there = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
    return UnknownPartitionError(f"no journal knows {tp}; the topics are: {there or 'none'}")


# --- why --------------------------------------------------------------------------------------


def print_history(history: PartitionHistory) -> None:
    """Print the history as a table, the present last.

    A lost leader has a row of its own only where no decision of the same event follows.
    """
    entries = history.entries
    following = [*entries[1:], None]
    _print_entries(
        history,
        [
            this
            for this, after in zip(entries, following, strict=True)
            if this.what != "offline" or after is None or not this.same_cause(after)
        ],
    )


def print_at(history: PartitionHistory) -> None:
    """Print how it was, and the entries that had made it so: leader and ISR."""
    entries = [c for c in history.entries if c.before != c.after]
    last_leader = next((c for c in reversed(entries) if c.changes_leader), None)
    last = entries[-1] if entries else None
    made = [c for c in (last_leader, last) if c is not None]
    _print_entries(history, list(dict.fromkeys(made)) or history.entries[-1:])


def _print_entries(history: PartitionHistory, entries: Sequence[HistoryEntry]) -> None:
    rows = [
        (
            time_text(c.ts),
            f"{c.controller}, epoch {c.epoch}",
            _change(_leader(c.before), _leader(c.after)),
            _change(_epoch(c.before), _epoch(c.after)),
            _change(_isr(c.before), _isr(c.after)),
            c.reason,
        )
        for c in entries
    ]
    title = _title(history)
    print_table(("time", "controller", "leader", "epoch", "in sync", "why"), rows, title=title)


def _title(history: PartitionHistory) -> str:
    cluster, tp = history.cluster, history.tp
    part = cluster.part(tp)
    if part is None:
        return f"{tp}  does not exist any more"
    topic_id = cluster.topics[tp.topic].id or "-"
    state = part.leadership
    replicas = ",".join(map(str, part.assignment.replicas))
    return (
        f"{tp}  topic id {topic_id}  replicas {replicas}  leader {_leader(state)}  "
        f"epoch {_epoch(state)}  in sync {_isr(state)}  {part.state}"
    )


def _change(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}" if before != "-" else after


def _leader(state: LeaderAndIsr | None) -> str:
    if state is None:
        return "-"
    return str(state.leader) if state.leader >= 0 else "none"


def _epoch(state: LeaderAndIsr | None) -> str:
    return "-" if state is None else str(state.leader_epoch)


def _isr(state: LeaderAndIsr | None) -> str:
    return "-" if state is None else ",".join(map(str, state.isr)) or "none"


# --- replay -----------------------------------------------------------------------------------


def print_cluster_state(cluster: ClusterState) -> None:
    """Print the state of the cluster as a table."""
    rows = []
    for name in sorted(cluster.topics):
        for number, part in sorted(cluster.topics[name].partitions.items()):
            state = part.leadership
            rows.append(
                (
                    f"{name}-{number}",
                    _leader(state),
                    _epoch(state),
                    _isr(state),
                    ",".join(map(str, part.assignment.replicas)),
                    part.state + (" (being deleted)" if name in cluster.deleting else ""),
                )
            )
    ended = "" if cluster.active else ", not the controller any more"
    brokers = ", ".join(
        f"{b} (shutting down)" if b in cluster.shutting_down else str(b)
        for b in sorted(cluster.brokers)
    )
    title = (
        f"{time_text(cluster.ts)}  controller {cluster.controller} of epoch {cluster.epoch}{ended}"
        f"  brokers {brokers or 'none'}"
    )
    print_table(("partition", "leader", "epoch", "in sync", "replicas", "state"), rows, title=title)


def print_differences(replayed: "Replay") -> None:
    """Print what came out differently; how much was decided again goes to stderr."""
    for found in replayed.differences:
        when = f"{time_text(found.ts)} epoch {found.epoch} cause {found.cause}"
        print_lines(
            f"{found.subject}  {found.decider}  {when}  ({found.where})",
            f"  - {found.journal}",
            f"  + {found.now}",
        )
    total = sum(replayed.checked.values())
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(replayed.checked.items()))
    outcome = (
        plural(len(replayed.differences), "difference") if replayed.differences else "no difference"
    )
    say(f"{plural(total, 'decision')} decided again ({kinds or 'nothing'}): {outcome}")
    from ottla.explain.replayed_term import FAILS

    failed = [found.where for found in replayed.differences if found.now.startswith(FAILS)]
    if failed:
        say(
            f"ottla: the installed rules fail {plural(len(failed), 'time')}, first at {failed[0]}: "
            "a line is damaged, or this version has a defect; keep the journal and report it"
        )
    for kind, count in sorted(replayed.unknown.items()):
        say(f"ottla: {plural(count, 'decision')} of kind {kind} not decided again: unknown here")


def print_lines(*lines: str) -> None:
    sys.stdout.write("".join(line + "\n" for line in lines))
