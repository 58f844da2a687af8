"""A partition's history as `ottla top` shows it: what `ottla why --output json` prints, as text.

Invariants: values in, lines out, none wider than it must be (the screen wraps them); the
newest comes first, since a screen may be short.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.admin.operations.record_format import moment
from ottla.admin.top.changes import Partition
from ottla.model.ids import NO_LEADER, TopicPartition

Fields = Mapping[str, Any]
"""An object of the JSON of `ottla why`."""


def history(document: Fields) -> str:
    """Return the text of a history, as the schema of `why` has it."""
    now = document["now"]
    name = f"{document['topic']}-{document['partition']}"
    if now is None:
        lines = [f"{name} does not exist any more"]
    else:
        state = now["leadership"]
        lines = [f"{name}: {_state(state)}, replicas {_ids(now['replicas'])}"]
    lines.append("the newest first:")
    for entry in reversed(document["entries"]):
        if entry["what"] == "offline":
            continue  # the decision of the same event follows, and says why
        lines += ["", f"{moment(entry['time_ms'])}  {_change(entry)}", f"  {_why(entry)}"]
    return "\n".join(lines)


def seen(tp: TopicPartition, partition: Partition | None, events: Sequence[str]) -> str:
    """Return what is known of a partition without journals: how it is, and what was seen here."""
    if partition is None:
        lines = [f"{tp} does not exist any more"]
    else:
        leader = "none" if partition.leader == NO_LEADER else str(partition.leader)
        state = f"leader {leader}, epoch {partition.leader_epoch}, in sync {_ids(partition.isr)}"
        lines = [f"{tp}: {state}, replicas {_ids(partition.replicas)}"]
    lines.append(
        "Why is in the journals of Ottla's controllers, which are with the brokers: `ottla why` "
        "and `ottla top --dir` read them there."
    )
    lines += [
        "",
        "seen here, the newest first:",
        *(reversed(events) if events else ["nothing yet"]),
    ]
    return "\n".join(lines)


def _change(entry: Fields) -> str:
    before, after = entry["before"] or {}, entry["after"] or {}
    parts = []
    for field, words in (("leader", "leader"), ("isr", "in sync"), ("leader_epoch", "epoch")):
        old, new = _field(before, field), _field(after, field)
        if old != new:
            parts.append(f"{words} {old} → {new}")
    who = f"controller {entry['controller']}, epoch {entry['controller_epoch']}"
    return f"{', '.join(parts) or entry['what']}  ({who})"


def _why(entry: Fields) -> str:
    rejected = ", ".join(f"{r['replica']} ({r['reason']})" for r in entry["rejected"])
    parts = [entry["because"], entry["how"], f"rejected: {rejected}" if rejected else ""]
    return "; ".join(part for part in parts if part)


def _state(state: Fields | None) -> str:
    if state is None:
        return "no leader yet"
    return (
        f"leader {_field(state, 'leader')}, epoch {state['leader_epoch']}, in sync "
        f"{_ids(state['isr'])}"
    )


def _field(state: Fields, field: str) -> str:
    if field not in state:
        return "-"
    value = state[field]
    if isinstance(value, list):
        return _ids(value)
    return "none" if value is None else str(value)


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "none"
