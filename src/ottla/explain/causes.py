"""Causes: what set the controller in motion, in words.

A decider. Invariants: a cause id is one event of one controller's term; of an event that names many
replicas only those of the partition are named; an event this version does not know is named as it
is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.explain.cluster_state import ClusterState
from ottla.explain.lines import Entry
from ottla.model.journal_schema import (
    IN_WORDS,
    STEPS,
    AnyLine,
    BrokersChanged,
    DecisionLine,
    Elected,
    ElectionsAsked,
    EventLine,
    LeaderAndIsrAnswered,
    LeaderBalanceDue,
    PartitionsModified,
    PreferredElectionRequested,
    ProcessGone,
    RestartedUnseen,
    ShutdownAsked,
)
from ottla.model.printable import plural
from ottla.model.rules import Rule

MAX_EVENTS = 16
"""Events of one cause that are remembered: an event handler records few."""


@dataclass(slots=True)
class Causes:
    """The events of the causes being read; a cause's lines stand together."""

    _cause: tuple[int, int] = (-1, -1)
    _events: list[Entry] = field(default_factory=list)

    def take(self, entry: Entry) -> None:
        line = entry.line
        if not isinstance(line, EventLine) or line.event in STEPS:
            return
        cause = (line.epoch, line.cause)
        if cause != self._cause:
            self._cause, self._events = cause, []
        if len(self._events) < MAX_EVENTS:
            self._events.append(entry)

    def of(self, line: AnyLine, state: ClusterState) -> str:
        """Say what led to a line."""
        if isinstance(line, DecisionLine) and line.election == "alter-partition":
            leads = line.before is not None and line.before.leader == line.broker
            return f"broker {line.broker}{', its leader,' if leads else ''} asked (AlterPartition)"
        if isinstance(line, DecisionLine) and line.decided_by is Rule.EPOCH_FOR_RETURNED_REPLICA:
            return (
                f"broker {line.before.leader if line.before else -1}, its leader, asked for an ISR"
            )
        if (line.epoch, line.cause) != self._cause:
            return ""
        gone = {e.facts.broker: e.facts.evidence for e in self._events if _is_gone(e)}
        parts = (_described(entry, line, state, gone) for entry in self._events)
        return ", ".join(part for part in parts if part)


def _is_gone(entry: Entry) -> bool:
    return isinstance(entry.facts, ProcessGone)


def _described(entry: Entry, about: AnyLine, state: ClusterState, gone: Mapping[int, str]) -> str:
    line: Any = entry.line
    concerned = set(about.replicas) if isinstance(about, DecisionLine) else None
    match entry.facts:
        case BrokersChanged() as change:
            return _brokers(change, concerned, gone)
        case ShutdownAsked(broker=broker):
            return f"broker {broker} asked for its controlled shutdown"
        case PartitionsModified(topic=topic):
            return f"topic {topic} grew"
        case LeaderAndIsrAnswered(broker=broker, offline=offline):
            count = len(offline)
            return f"a log directory of broker {broker} failed ({plural(count, 'replica')} offline)"
        case LeaderBalanceDue() as share:
            return (
                f"balance: {share.elsewhere} of the {share.of} leaderships of broker "
                f"{share.broker} were elsewhere, the limit is {share.limit:.0%}"
            )
        case PreferredElectionRequested():
            return "a client requested preferred leader elections"
        case ElectionsAsked(kind=kind):
            return f"a client requested {kind} leader elections"
        case RestartedUnseen(replicas=replicas):
            brokers = sorted({b for _, b in replicas})
            return f"{_named(brokers)} had restarted while there was no controller"
    if isinstance(entry.facts, Elected):
        return _elected(line, about, state, entry.facts.removed)
    return IN_WORDS.get(str(line.event), str(line.event))


def _brokers(change: BrokersChanged, concerned: set[int] | None, gone: Mapping[int, str]) -> str:
    def relevant(brokers: Iterable[int]) -> list[int]:
        chosen = [b for b in brokers if concerned is None or b in concerned]
        return chosen or list(brokers)

    parts = []
    if change.dead:
        dead = relevant(change.dead)
        left = [b for b in dead if b in change.shutting_down]
        lost = [b for b in dead if b not in change.shutting_down and b not in gone]
        parts += [f"the process of {_named([b])} was gone: {gone[b]}" for b in dead if b in gone]
        if lost:
            parts.append(f"the session of {_named(lost)} ended")
        if left:
            parts.append(f"{_named(left)} left after a controlled shutdown")
    if change.bounced:
        parts.append(f"{_named(relevant(change.bounced))} restarted before it was seen gone")
    if change.new:
        parts.append(f"{_named(relevant(change.new))} registered")
    return ", ".join(parts) or "the registrations of brokers changed"


def _elected(line: Any, about: AnyLine, state: ClusterState, removed: Mapping[int, str]) -> str:
    text = f"broker {line.controller} became controller (epoch {line.epoch})"
    if isinstance(about, DecisionLine):
        gone = [b for b in about.replicas if b not in state.brokers]
        if gone:
            text += f" and found {_named(gone)} not registered"
            reasons = [f"process of broker {b}: {removed[b]}" for b in gone if b in removed]
            if reasons:
                text += f" ({', '.join(reasons)})"
    return text


def _named(brokers: list[int]) -> str:
    if len(brokers) == 1:
        return f"broker {brokers[0]}"
    return "brokers " + ", ".join(map(str, brokers))
