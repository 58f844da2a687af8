"""Journals: what a line of a controller's journal says, as events.

Invariants: pure; a line that does not fit `model.journal_schema` is counted as unread, as a whole;
unknown events and keys are ignored. The format is documented in docs/WHY.md; read here are
decisions, state changes of partitions, snapshots of topics, elections of controllers, and the
events that brokers came and went.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.model.journal_schema import (
    AnyLine,
    BrokersChanged,
    DamagedLineError,
    DecisionLine,
    DroppedLine,
    Elected,
    StateChangeLine,
    TopicFacts,
    partition_of,
    read_line,
)
from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.events import Event


def parse(raw: str) -> list[Event] | None:
    """Return the events of one line, none if it says nothing of leaderships; None if damaged."""
    try:
        line, facts = read_line(raw)
        return [event._replace(text=raw[: e.LONGEST_TEXT]) for event in _events(line, facts)]
    except (DamagedLineError, ValueError):
        return None


def _events(line: AnyLine, facts: Any) -> Iterator[Event]:
    match line:
        case DroppedLine():
            dropped = e.DROPPED
            yield Event(
                line.ts, line.controller, e.CONTROLLER, "JOURNAL", dropped, offset=line.lines
            )
        case DecisionLine():
            if line.written and line.after is not None:
                after = line.after
                yield _about(line, e.DECIDED, line.partition)._replace(
                    leader=after.leader, leader_epoch=after.leader_epoch, isr=_isr(after.isr)
                )
        case StateChangeLine():
            if line.after.endswith("Partition"):
                for subject in line.subjects:
                    yield _about(line, e.MOVED, subject)._replace(
                        before=line.before, after=line.after
                    )
        case _:
            yield from _of_facts(line, facts)


def _of_facts(line: AnyLine, facts: Any) -> Iterator[Event]:
    match facts:
        case TopicFacts():
            yield from _known(line, facts)
        case Elected():
            yield _event(line, e.CONTROLLER_ELECTED)
        case BrokersChanged():
            for broker in [*facts.dead, *facts.bounced]:
                yield _event(line, e.GONE)._replace(about=broker)
            for broker in [*facts.new, *facts.bounced]:
                yield _event(line, e.CAME)._replace(about=broker)


def _event(line: AnyLine, kind: str) -> Event:
    return Event(line.ts, line.controller, e.CONTROLLER, "JOURNAL", kind, line.epoch)


def _about(line: AnyLine, kind: str, subject: str) -> Event:
    topic, partition = partition_of(subject)
    return _event(line, kind)._replace(topic=topic, partition=partition)


def _known(line: AnyLine, topic: TopicFacts) -> Iterator[Event]:
    for partition, found in topic.partitions.items():
        if found.leader is not None:
            yield _event(line, e.KNOWN)._replace(
                topic=topic.topic, partition=partition, leader=found.leader,
                leader_epoch=found.leader_epoch, isr=_isr(found.isr), version=found.partition_epoch,
            )  # fmt: skip


def _isr(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
