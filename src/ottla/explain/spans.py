"""Spans: who led each partition and who was in sync, which brokers lived, who was controller, when.

A decider: a journal's lines in, spans of time out. Invariants: a span says only what lines of the
journal say; times never go back, also where controllers' clocks do; at most MOST_CHANGES changes
are kept, and what is left out is counted.

A broker whose endpoints did not refuse connections (adr/0018) is known to be gone by its session's
end alone. ZooKeeper expires a session one timeout after its last request, and a client sends a ping
after a third of it: the process died between one timeout and two thirds of one before. `dying`
gives that span for leaders.
"""

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

from ottla.explain.causes import Causes
from ottla.explain.cluster_state import ClusterState
from ottla.explain.lines import Entry
from ottla.explain.rules import in_words
from ottla.model.cluster import LeaderAndIsr
from ottla.model.ids import TopicPartition
from ottla.model.journal_schema import (
    BrokersChanged,
    ClusterFacts,
    DecisionLine,
    Elected,
    EventLine,
    IsrChangesNotified,
    LogDirsFailed,
    ProcessGone,
    ReassignmentStep,
    ShutdownAsked,
    StateChangeLine,
    TopicDeleted,
    TopicFacts,
    TopicsChanged,
    partition_of,
)

MOST_CHANGES = 200_000
MOST_EVENTS = 2_000
OFFLINE = "OfflinePartition"
UP, SHUTTING_DOWN, DOWN = "up", "shutting down", "down"


@dataclass(frozen=True, slots=True)
class Leadership:
    """A partition's leader and ISR; `leader` -1: it has none."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What came at a time (ms since 1970): a Leadership, None (there is no such partition)."""

    ts: int
    now: Leadership | None
    why: str
    session_ended: int | None = None
    """The leader before whose session's end led to the change."""


@dataclass(frozen=True, slots=True)
class BrokerChange:
    ts: int
    state: str


C = TypeVar("C", Change, BrokerChange)


@dataclass(frozen=True, slots=True)
class Term:
    """A controller's term; it ends when it resigned, or when the next one begins."""

    controller: int
    epoch: int
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; `topic` is None where it is about brokers."""

    ts: int
    what: str
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without a leader. `dying`: the journal names a leader whose process may be dead."""

    tp: TopicPartition
    start: int
    end: int | None
    dying: bool
    why: str


@dataclass(slots=True)
class Timeline:
    """Takes a journal's lines."""

    changes: dict[TopicPartition, list[Change]] = field(default_factory=dict)
    brokers: dict[int, list[BrokerChange]] = field(default_factory=dict)
    terms: list[Term] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    start: int = -1
    end: int = -1
    left_out: int = 0
    """Changes and events beyond the bounds."""
    cluster: ClusterState = field(default_factory=ClusterState)
    _causes: Causes = field(default_factory=Causes)
    _count: int = 0
    _refused: dict[int, str] = field(default_factory=dict)
    """Brokers whose processes are known to be gone, with the evidence (R17)."""

    def take(self, entry: Entry) -> None:
        """Take one line."""
        line, facts = entry.line, entry.facts
        if line.ts >= 0:
            self.end = max(self.end, line.ts)
            self.start = self.end if self.start < 0 else self.start
        self._causes.take(entry)
        self.cluster.take(entry)
        self._term(entry)
        self._note_refused(facts)
        if isinstance(line, EventLine):
            self._event(entry, line)
        if isinstance(facts, ClusterFacts | BrokersChanged | ShutdownAsked):
            self._brokers(found=isinstance(facts, ClusterFacts))
        for tp in self._touched(entry):
            self._look(tp, entry)
        if (
            isinstance(line, DecisionLine)
            and line.written
            and line.decided_by is not None
            and line.decided_by.unclean
        ):
            leader = "-" if line.after is None else line.after.leader
            self._say(
                f"unclean election of {line.partition}: broker {leader} leads",
                partition_of(line.partition).topic,
            )

    def _note_refused(self, facts: Any) -> None:
        if isinstance(facts, ProcessGone):
            self._refused[facts.broker] = facts.evidence
        elif isinstance(facts, Elected):
            self._refused.update(facts.removed)
        elif isinstance(facts, BrokersChanged):
            for broker in (*facts.new, *facts.bounced):
                self._refused.pop(broker, None)

    # --- partitions ---------------------------------------------------------------------------

    def _touched(self, entry: Entry) -> Iterable[TopicPartition]:
        line, facts = entry.line, entry.facts
        names: Iterable[str] = ()
        if isinstance(line, DecisionLine):
            names = (line.partition,) if line.written else ()
        elif isinstance(line, StateChangeLine):
            names = line.subjects if OFFLINE in (line.before, line.after) else ()
        elif isinstance(facts, IsrChangesNotified):
            names = facts.states
        elif isinstance(facts, ReassignmentStep):
            names = (facts.partition,)
        elif isinstance(facts, TopicFacts):
            return [TopicPartition(facts.topic, number) for number in facts.partitions]
        elif isinstance(facts, TopicsChanged | TopicDeleted):
            gone = set(facts.gone) if isinstance(facts, TopicsChanged) else {facts.topic}
            return [tp for tp in self.changes if tp.topic in gone] if gone else ()
        return map(partition_of, names)

    def _look(self, tp: TopicPartition, entry: Entry) -> None:
        part = self.cluster.part(tp)
        state: LeaderAndIsr | None = None if part is None else part.leadership
        now = None
        if part is not None and state is not None:
            leader = -1 if part.state == OFFLINE else max(state.leader, -1)
            now = Leadership(leader, state.leader_epoch, state.isr, part.assignment.replicas)
        changes = self.changes.get(tp)
        last = changes[-1].now if changes else None
        if now == last:
            return
        if self._count >= MOST_CHANGES:
            self.left_out += 1
            return
        self._count += 1
        self.changes.setdefault(tp, []).append(
            Change(self.end, now, self._why(entry), self._died(last, now))
        )

    def _died(self, last: Leadership | None, now: Leadership | None) -> int | None:
        """Return the leader before if only its session's end shows that it is gone."""
        if last is None or last.leader < 0 or (now is not None and now.leader == last.leader):
            return None
        if last.leader in self._refused:
            return None
        states = [change.state for change in self.brokers.get(last.leader, ())]
        in_order = states[-2:] == [SHUTTING_DOWN, DOWN]
        return None if in_order or states[-1:] != [DOWN] else last.leader

    def _why(self, entry: Entry) -> str:
        line, facts = entry.line, entry.facts
        if isinstance(facts, TopicFacts):
            return f"controller {line.controller} of epoch {line.epoch} found it so"
        because = self._causes.of(line, self.cluster)
        if isinstance(line, DecisionLine):
            return "; ".join(part for part in (because, in_words(line)) if part)
        if isinstance(facts, TopicsChanged | TopicDeleted):
            return "the topic is deleted"
        if isinstance(facts, ReassignmentStep):
            return f"reassignment: {facts.step}"
        if isinstance(facts, IsrChangesNotified):
            return "its leader wrote the state itself"
        return because

    # --- brokers, controllers, events ---------------------------------------------------------

    def _brokers(self, *, found: bool) -> None:
        known = self.cluster.brokers
        for broker in {*known, *self.brokers}:
            state = DOWN if broker not in known else UP
            if broker in self.cluster.shutting_down and state == UP:
                state = SHUTTING_DOWN
            changes = self.brokers.setdefault(broker, [])
            if (changes[-1].state if changes else DOWN) != state:
                changes.append(BrokerChange(self.end, state))
                if found and state == DOWN:
                    evidence = self._refused.get(broker)
                    why = "" if evidence is None else f" (its process was gone: {evidence})"
                    self._say(f"the new controller found broker {broker} not registered{why}")

    def _term(self, entry: Entry) -> None:
        line = entry.line
        last = self.terms[-1] if self.terms else None
        if line.epoch >= 0 and (last is None or line.epoch > last.epoch):
            if last is not None and last.end is None:
                self.terms[-1] = Term(last.controller, last.epoch, last.start, self.end)
            self.terms.append(Term(line.controller, line.epoch, self.end, None))
        elif isinstance(line, EventLine) and line.event == "Resigned" and last is not None:
            self.terms[-1] = Term(last.controller, last.epoch, last.start, self.end)

    def _event(self, entry: Entry, line: EventLine) -> None:
        facts = entry.facts
        worth = isinstance(facts, ShutdownAsked | LogDirsFailed | Elected) or (
            isinstance(facts, BrokersChanged) and bool(facts.new or facts.bounced or facts.dead)
        )
        if worth and (what := self._causes.of(line, self.cluster)):
            self._say(what)
        elif isinstance(facts, TopicsChanged):
            for topic in facts.new:
                self._say(f"topic {topic} was created", topic)
            for topic in facts.gone:
                self._say(f"topic {topic} is gone", topic)
        elif isinstance(facts, ReassignmentStep) and facts.step in ("begin", "done"):
            topic = partition_of(facts.partition).topic
            self._say(f"reassignment of {facts.partition}: {facts.step}", topic)

    def _say(self, what: str, topic: str | None = None) -> None:
        if len(self.events) < MOST_EVENTS:
            self.events.append(Event(self.end, what, topic))
        else:
            self.left_out += 1

    # --- parts --------------------------------------------------------------------------------

    def about(self, topic: str | None, partition: int | None) -> "Timeline":
        """Return what is about a topic or a partition; brokers and controllers stay."""

        def kept(tp: TopicPartition) -> bool:
            return topic in (None, tp.topic) and partition in (None, tp.partition)

        return replace(
            self,
            changes={tp: changes for tp, changes in self.changes.items() if kept(tp)},
            events=[e for e in self.events if topic is None or e.topic in (None, topic)],
        )

    def since(self, ts: int) -> "Timeline":
        """Return what was from a time on; what was in force then starts there."""
        start = max(self.start, min(ts, self.end))
        return replace(
            self,
            start=start,
            changes={
                tp: [replace(c, ts=max(c.ts, start)) for c in in_force(changes, start)]
                for tp, changes in self.changes.items()
            },
            brokers={
                broker: [replace(c, ts=max(c.ts, start)) for c in in_force(changes, start)]
                for broker, changes in self.brokers.items()
            },
            terms=[
                replace(term, start=max(term.start, start))
                for term in self.terms
                if term.end is None or term.end > start
            ],
            events=[event for event in self.events if event.ts >= start],
        )


def in_force(changes: Sequence[C], ts: int) -> Sequence[C]:
    """Return the last of the changes that came until a time, and all later ones."""
    first = bisect.bisect_right(changes, ts, key=lambda change: change.ts)
    return changes[max(first - 1, 0) :]


def gaps(timeline: Timeline, session_timeouts_ms: Mapping[int, int]) -> list[Gap]:
    """Return when partitions had no leader, and when their leader's process may have been dead.

    `session_timeouts_ms`: zookeeper.session.timeout.ms by broker, where it is known.
    """
    found = []
    for tp, changes in timeline.changes.items():
        without: Gap | None = None
        for before, change in pairwise((None, *changes)):
            assert change is not None
            if before is not None and change.session_ended is not None:
                timeout = session_timeouts_ms.get(change.session_ended, 0)
                start = max(before.ts, change.ts - timeout)
                if start < change.ts:
                    found.append(Gap(tp, start, change.ts, dying=True, why=change.why))
            led = change.now is None or change.now.leader >= 0
            if without is not None and led:
                found.append(replace(without, end=change.ts))
                without = None
            elif without is None and not led:
                without = Gap(tp, change.ts, None, dying=False, why=change.why)
        if without is not None:
            found.append(without)
    return sorted(found, key=lambda gap: (gap.start, gap.tp))
