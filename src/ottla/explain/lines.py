"""Lines: reads a journal's lines; a line that does not fit is damaged, and says how.

A decider: text in, values out. Who may call: this room. Invariants: a line is believed only as a
whole: the facts of the events that the room works with are checked together with the line; unknown
events and unknown keys are let through, so that a later version's journal can still be read. What
lines hold is in `controller.journal_schema`.
"""

from typing import Any, NamedTuple

import msgspec

from ottla.controller.journal_schema import (
    EVENTS,
    PARTS,
    AnyLine,
    DecisionLine,
    EventLine,
    IsrChangesNotified,
    LeaderAndIsrAnswered,
    ReassignmentRefused,
    ReassignmentStep,
    RestartedUnseen,
    SnapshotLine,
)
from ottla.model.ids import TopicPartition

_decoder = msgspec.json.Decoder(AnyLine)


class Entry(NamedTuple):
    """A line, its typed facts if it is an event or snapshot part we know, and where it stands."""

    line: AnyLine
    facts: Any
    file: str
    number: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.number}"


class DamagedError(Exception):
    """A line cannot be believed; the text says why."""


def parse(raw: bytes, file: str, number: int) -> Entry:
    """Return one line as an entry; DamagedError if it does not fit."""
    try:
        line = _decoder.decode(raw)
        facts: Any = None
        if isinstance(line, EventLine):
            if not isinstance(line.inputs, dict | None):
                raise DamagedError(f"the inputs of {line.event} are no object")
            if line.event in EVENTS:
                facts = EVENTS[line.event].read(line.inputs or {})
        elif isinstance(line, SnapshotLine) and line.part in PARTS:
            facts = msgspec.convert(line.facts, PARTS[line.part], str_keys=True)
        for text in _partitions_named(line, facts):
            partition_of(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamagedError(str(error) or type(error).__name__) from error
    return Entry(line, facts, file, number)


def _partitions_named(line: AnyLine, facts: Any) -> list[str]:
    if isinstance(line, DecisionLine):
        return [line.partition]
    if isinstance(facts, ReassignmentStep | ReassignmentRefused):
        return [facts.partition]
    if isinstance(facts, RestartedUnseen):
        return [text for text, _ in facts.replicas]
    if isinstance(facts, IsrChangesNotified):
        return [*facts.partitions, *facts.states]
    if isinstance(facts, LeaderAndIsrAnswered):
        return [*facts.offline, *facts.online]
    return []


def partition_of(text: str) -> TopicPartition:
    """Read `flights-0`; the topic may hold dashes. ValueError if it is no such name."""
    topic, dash, number = text.rpartition("-")
    if not (dash and topic and number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is no TOPIC-PARTITION such as flights-0")
    return TopicPartition(topic, int(number))
