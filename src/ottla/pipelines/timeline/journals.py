"""Journals: what a line of a controller's journal says, as events.

Who may call: `read`. Invariants: pure; a line is believed as a whole or counted as unread; unknown
kinds, events and keys are let through. The format is documented in docs/WHY.md: JSON lines with
`kind`, `ts` (milliseconds), `controller`, `epoch`; read here are `decision`, `states`, `snapshot`
of topics, and the events that brokers came and went.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.events import Event


class _State(msgspec.Struct):
    leader: int
    leader_epoch: int
    isr: list[int]


class _Partition(msgspec.Struct):
    leader: int | None = None
    leader_epoch: int = 0
    isr: list[int] = []
    partition_epoch: int = 0


class _Line(msgspec.Struct):
    kind: str
    ts: int = -1
    controller: int = -1
    epoch: int = -1
    event: str = ""
    inputs: dict[str, Any] = {}
    partition: str = ""
    after: Any = None
    before: Any = None
    outcome: str = ""
    subjects: list[str] = []
    part: str = ""
    facts: dict[str, Any] = {}
    lines: int = 0


_decoder = msgspec.json.Decoder(_Line)


def parse(raw: str) -> list[Event] | None:
    """Return the events of one line, none if it says nothing of leaderships; None if damaged."""
    try:
        line = _decoder.decode(raw)
        return [event._replace(text=raw[: e.LONGEST_TEXT]) for event in _events(line)]
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError, RecursionError):
        return None


def _events(line: _Line) -> Iterator[Event]:
    if line.kind == "dropped":
        yield Event(line.ts, line.controller, e.CONTROLLER, "JOURNAL", e.DROPPED, offset=line.lines)
    elif line.kind == "decision" and line.outcome == "written" and line.after is not None:
        topic, partition = _name(line.partition)
        after = msgspec.convert(line.after, _State)
        yield _event(line, e.DECIDED)._replace(
            topic=topic, partition=partition, leader=after.leader,
            leader_epoch=after.leader_epoch, isr=_isr(after.isr),
        )  # fmt: skip
    elif line.kind == "states" and str(line.after).endswith("Partition"):
        for subject in line.subjects:
            topic, partition = _name(subject)
            yield _event(line, e.MOVED)._replace(
                topic=topic, partition=partition, before=str(line.before), after=str(line.after)
            )
    elif line.kind == "snapshot" and line.part == "topic":
        yield from _found(line)
    elif line.kind == "event" and line.event == "Elected":
        yield _event(line, e.CONTROLLER_ELECTED)
    elif line.kind == "event" and line.event == "BrokersChanged":
        bounced = _ids(line.inputs.get("bounced"))
        for broker in [*_ids(line.inputs.get("dead")), *bounced]:
            yield _event(line, e.GONE)._replace(about=broker)
        for broker in [*_ids(line.inputs.get("new")), *bounced]:
            yield _event(line, e.CAME)._replace(about=broker)


def _event(line: _Line, kind: str) -> Event:
    return Event(line.ts, line.controller, e.CONTROLLER, "JOURNAL", kind, line.epoch)


def _found(line: _Line) -> Iterator[Event]:
    topic = str(line.facts["topic"]) if "topic" in line.facts else ""
    partitions = msgspec.convert(
        line.facts.get("partitions", {}), dict[int, _Partition], str_keys=True
    )
    for partition, found in partitions.items():
        if found.leader is not None:
            yield _event(line, e.KNOWN)._replace(
                topic=topic, partition=partition, leader=found.leader,
                leader_epoch=found.leader_epoch, isr=_isr(found.isr), version=found.partition_epoch,
            )  # fmt: skip


def _isr(brokers: list[int]) -> str:
    return ",".join(map(str, brokers))


def _ids(value: Any) -> list[int]:
    return msgspec.convert(value or [], list[int])


def _name(text: str) -> tuple[str, int]:
    topic, dash, number = text.rpartition("-")
    if not (dash and topic and number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is no TOPIC-PARTITION")
    return topic, int(number)
