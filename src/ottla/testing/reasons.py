"""Reasons: what the controllers' journals say of a partition, as text.

Invariants: files are only read; every decision about the partition is there, oldest first.
"""

from pathlib import Path

from ottla.explain.history import HistoryEntry, PartitionHistory
from ottla.explain.journals import Damage, find, read
from ottla.explain.rendering import unknown_partition
from ottla.explain.timestamps import time_text
from ottla.model.cluster import LeaderAndIsr
from ottla.model.ids import TopicPartition


def why(folder: Path, tp: TopicPartition) -> tuple[str, LeaderAndIsr | None]:
    """Return a partition's history as text, and its state at the end of it.

    OttlaError if no journal knows it.
    """
    history = PartitionHistory(tp)
    for entry in read(find([folder]), Damage()):
        history.take(entry)
    if not history.seen:
        raise unknown_partition(tp, history.cluster)
    part = history.cluster.part(tp)
    now = "is deleted" if part is None else f"now: {_state(part.leadership)}"
    lines = [f"{tp}  {now}"]
    lines += [_line(entry) for entry in history.entries]
    return "\n".join(lines), None if part is None else part.leadership


def _line(entry: HistoryEntry) -> str:
    change = _state(entry.after)
    if entry.before is not None and entry.before != entry.after:
        change = f"{_state(entry.before)} -> {change}"
    return f"  {time_text(entry.ts)}  controller {entry.controller}  {change}  {entry.reason}"


def _state(state: LeaderAndIsr | None) -> str:
    if state is None:
        return "nothing"
    leader = str(state.leader) if state.leader >= 0 else "none"
    in_sync = ",".join(map(str, state.isr)) or "none"
    return f"leader {leader} epoch {state.leader_epoch} in sync {in_sync}"
