"""Reasons: why someone led from then on, in words, by the controllers' journals.

Invariants: pure; a decision is explained by its own line and by the events of the same controller
epoch and cause; a rule or event that this version does not know is named; a line that cannot be
read is left out. The format is that of docs/WHY.md.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ottla.model.journal_schema import IN_WORDS, STEPS
from ottla.model.rules import words_of

MOST_EVENTS = 16
"""Events of one cause that are looked at."""
LONGEST_LIST = 20


class _Leadership(msgspec.Struct):
    leader: int
    leader_epoch: int
    isr: list[int] = []


class _Line(msgspec.Struct):
    kind: str
    ts: int = -1
    controller: int = -1
    epoch: int = -1
    cause: int = 0
    event: str = ""
    inputs: dict[str, Any] = {}
    partition: str = ""
    election: str = ""
    rule: str = ""
    before: Any = None
    after: Any = None
    outcome: str = ""
    replicas: list[int] = []
    rejected: list[tuple[int, str]] = []


class Event(msgspec.Struct, frozen=True):
    """Something that a controller handled, as far as reasons need it."""

    name: str
    controller: int
    epoch: int
    dead: list[int] = []
    bounced: list[int] = []
    new: list[int] = []
    shutting_down: list[int] = []
    broker: int | None = None
    kind: str = ""


class Decision(msgspec.Struct, frozen=True):
    """A leadership that a controller wrote, or could not give to anybody (leader -1).

    `ts` in milliseconds since 1970 by the controller's clock.
    """

    ts: int
    controller: int
    epoch: int
    cause: int
    election: str
    rule: str
    leader: int
    leader_epoch: int
    isr: list[int]
    before: int | None
    replicas: list[int] = []
    rejected: list[tuple[int, str]] = []
    events: list[Event] = []


_decoder = msgspec.json.Decoder(_Line)


def parse(raw: str) -> tuple[str, int, Decision] | Event | None:
    """Return a line as (topic, partition, decision) or as an event; None where it is neither.

    Decisions that change no leader and no leader epoch are left out.
    """
    if '"decision"' not in raw[:40] and '"event"' not in raw[:40]:
        return None
    try:
        line = _decoder.decode(raw)
        if line.kind == "event":
            return None if line.event in STEPS else _event(line)
        return _decision(line) if line.kind == "decision" else None
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError, RecursionError):
        return None


def cause_of(raw: str) -> tuple[int, int]:
    """Return the controller epoch and the cause of a line that `parse` has read."""
    line = _decoder.decode(raw)
    return line.epoch, line.cause


def _event(line: _Line) -> Event:
    def ids(name: str) -> list[int]:
        value = line.inputs.get(name)
        if not isinstance(value, list):  # other events have other things of that name
            return []
        return [x for x in value if isinstance(x, int)][:LONGEST_LIST]

    broker = line.inputs.get("broker")
    kind = line.inputs.get("kind")
    return Event(
        line.event, line.controller, line.epoch, ids("dead"), ids("bounced"), ids("new"),
        ids("shutting_down"), broker if isinstance(broker, int) else None, str(kind or ""),
    )  # fmt: skip


def _decision(line: _Line) -> tuple[str, int, Decision] | None:
    topic, dash, number = line.partition.rpartition("-")
    if not (dash and topic and number.isascii() and number.isdigit()):
        raise ValueError(line.partition)
    before = None if line.before is None else msgspec.convert(line.before, _Leadership)
    after = None if line.after is None else msgspec.convert(line.after, _Leadership)
    if after is None:
        if line.election == "alter-partition":
            return None
        after = _Leadership(-1, -1 if before is None else before.leader_epoch)
    elif line.outcome != "written" or (
        before is not None and before.leader_epoch == after.leader_epoch
    ):
        return None
    return (
        topic,
        int(number),
        Decision(
            line.ts, line.controller, line.epoch, line.cause, line.election, words_of(line.rule),
            after.leader, after.leader_epoch, after.isr,
            None if before is None else before.leader, line.replicas, line.rejected,
        ),
    )  # fmt: skip


# -- words -----------------------------------------------------------------------------------------


def why(decision: Decision) -> str:
    """Say what led to a decision, and by which rule it came out so."""
    reported = [_report(event, decision) for event in decision.events[:MOST_EVENTS]]
    because = ", ".join(dict.fromkeys(text for text in reported if text))
    kind = _KINDS.get(decision.election, decision.election)
    parts = [because, f"{kind} ({decision.rule})" if decision.rule else kind]
    if decision.election in _BY_NEED:
        gone = [f"broker {b}: {x}" for b, x in decision.rejected if b == decision.before]
        parts += gone
    return "; ".join(part for part in parts if part)


_BY_NEED = {"offline", "unclean", "isr-removal"}
"""Elections that no one asked for: why the leader before could not stay is worth telling."""
_KINDS = {
    "new": "first leader of a new partition",
    "offline": "election because there was no leader",
    "unclean": "unclean election: records may be lost",
    "reassignment": "election for a reassignment",
    "preferred": "preferred election",
    "controlled-shutdown": "election because the leader shuts down",
    "isr-removal": "a replica was taken out of the ISR",
    "epoch": "new leader epoch, same leader",
}


def _report(event: Event, decision: Decision) -> str:
    if event.name == "BrokersChanged":
        return _brokers(event, decision)
    if event.name == "ShutdownAsked" and event.broker is not None:
        return f"broker {event.broker} asked for its controlled shutdown"
    if event.name in {"ElectionsAsked", "PreferredElectionRequested"}:
        return f"a client requested {event.kind or 'preferred'} elections"
    if event.name == "Elected":
        return f"broker {event.controller} became controller (epoch {event.epoch})"
    return IN_WORDS.get(event.name, event.name)


def _brokers(event: Event, decision: Decision) -> str:
    def concerned(brokers: Sequence[int]) -> list[int]:
        return [b for b in brokers if b in decision.replicas] or list(brokers)

    parts = []
    for broker in concerned(event.dead):
        left = broker in event.shutting_down
        parts.append(
            f"broker {broker} "
            + ("left after a controlled shutdown" if left else "died: its session ended")
        )
    parts += [f"broker {b} restarted before it was seen gone" for b in concerned(event.bounced)]
    parts += [f"broker {b} registered" for b in concerned(event.new)]
    return ", ".join(parts)
