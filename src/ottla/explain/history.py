"""History: what happened to one partition, each with its cause.

A decider. Invariants: an entry says only what lines of the journal say; what a new controller found
and no line explains is named as found, not explained; causes are those of the same controller
epoch, joined by the `cause` id; a topic that is deleted and created again is two topics with one
name, distinguished by their ids.
"""

from dataclasses import dataclass, field

from ottla.explain.causes import Causes
from ottla.explain.cluster_state import ClusterState
from ottla.explain.lines import Entry
from ottla.explain.rules import in_words, rejected_in_words
from ottla.model.cluster import LeaderAndIsr
from ottla.model.ids import TopicPartition
from ottla.model.journal_schema import (
    ClusterFacts,
    DecisionLine,
    DeletionHalted,
    EventLine,
    IsrChangesNotified,
    PartitionsModified,
    ReassignmentRefused,
    ReassignmentStep,
    StateChangeLine,
    TopicDeleted,
    TopicDeletionsRequested,
    TopicFacts,
    TopicsChanged,
    partition_of,
)
from ottla.model.rules import words_of


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One thing that happened. `before` and `after` are equal where nothing was written."""

    ts: int
    controller: int
    epoch: int
    cause: int
    where: str
    what: str
    """A short name: `leader`, `isr`, `epoch`, `no leader`, `refused`, `found`, `created`, …"""
    before: LeaderAndIsr | None
    after: LeaderAndIsr | None
    because: str
    how: str = ""
    rejected: tuple[tuple[int, str], ...] = ()
    election: str = ""
    rule: str = ""
    outcome: str = ""

    @property
    def changes_leader(self) -> bool:
        return _leader(self.before) != _leader(self.after)

    def same_cause(self, other: "HistoryEntry") -> bool:
        return (self.epoch, self.cause) == (other.epoch, other.cause)

    @property
    def reason(self) -> str:
        """Return the whole of why, as a person reads it."""
        parts = [f"{self.because} (cause {self.cause})" if self.because else ""]
        parts += [self.how, rejected_in_words(self.rejected)]
        return "; ".join(part for part in parts if part)


def _leader(state: LeaderAndIsr | None) -> int | None:
    return None if state is None else state.leader


@dataclass(slots=True)
class PartitionHistory:
    """Takes all of a journal's lines, keeps what is about one partition."""

    tp: TopicPartition
    entries: list[HistoryEntry] = field(default_factory=list)
    cluster: ClusterState = field(default_factory=ClusterState)
    seen: bool = False
    """Whether any line knows the partition."""
    _causes: Causes = field(default_factory=Causes)
    _last: LeaderAndIsr | None = None
    _last_id: str = ""

    def take(self, entry: Entry) -> None:
        """Take one line."""
        line, facts = entry.line, entry.facts
        self._causes.take(entry)
        before, topic_id = self._leadership(), self._topic_id()
        self.cluster.take(entry)
        if isinstance(facts, ClusterFacts):
            self._last, self._last_id = before, topic_id
        elif isinstance(facts, TopicFacts):
            self._found(entry, facts)
        elif isinstance(line, DecisionLine):
            if partition_of(line.partition) == self.tp:
                self._decided(entry, line, before)
        elif isinstance(line, EventLine):
            self._event_line(entry, facts, before)
        elif isinstance(line, StateChangeLine):
            self._no_more(entry, line, before)

    def _leadership(self) -> LeaderAndIsr | None:
        part = self.cluster.part(self.tp)
        return None if part is None else part.leadership

    def _topic_id(self) -> str:
        topic = self.cluster.topics.get(self.tp.topic)
        return "" if topic is None else topic.id

    # --- what is added -----------------------------------------------------------------------

    def _found(self, entry: Entry, facts: TopicFacts) -> None:
        if facts.topic != self.tp.topic or self.tp.partition not in facts.partitions:
            return
        known, after = self.seen, self._leadership()
        self.seen = True
        if known and facts.id != self._last_id and self._last_id:
            self._add(entry, "recreated", None, after, f"the topic has another id, {facts.id}")
        elif not known or after != self._last:
            line = entry.line
            how = f"controller {line.controller} of epoch {line.epoch} found it so"
            if known:
                how += "; what led to it is in no journal here"
            self._add(entry, "found", self._last, after, how)

    def _decided(self, entry: Entry, line: DecisionLine, before: LeaderAndIsr | None) -> None:
        self.seen = True
        after = self._leadership() if line.written else before
        self._add(
            entry,
            _what(line, before, after),
            before,
            after,
            in_words(line),
            because=self._causes.of(line, self.cluster),
            decided=line,
        )

    def _event_line(self, entry: Entry, facts: object, before: LeaderAndIsr | None) -> None:
        tp, topic = self.tp, self.tp.topic
        name = str(tp)
        match facts:
            case TopicsChanged() if tp.partition in facts.new.get(topic, {}):
                self.seen = True
                replicas = list(facts.new[topic][tp.partition])
                topic_id = f" with id {facts.ids[topic]}" if topic in facts.ids else ""
                how = f"topic {topic} was created{topic_id}; replicas {replicas}"
                self._add(entry, "created", None, None, how)
            case PartitionsModified() if facts.topic == topic and tp.partition in facts.added:
                self.seen = True
                how = f"topic {topic} grew; replicas {list(facts.added[tp.partition])}"
                self._add(entry, "created", None, None, how)
            case TopicsChanged() if topic in facts.gone and self.seen:
                self._add(entry, "deleted", before, None, f"the znode of topic {topic} is gone")
            case TopicDeletionsRequested() if topic in facts.topics and self.seen:
                how = f"the deletion of topic {topic} was asked for"
                self._add(entry, "deletion", before, before, how)
            case DeletionHalted() if topic in facts.topics and self.seen:
                how = f"the deletion of topic {topic} is halted: {facts.reason}"
                self._add(entry, "deletion", before, before, how)
            case TopicDeleted() if facts.topic == topic and _event(entry) == "TopicDeleted":
                self._add(entry, "deleted", before, None, f"topic {topic} is deleted")
            case ReassignmentStep() if facts.partition == name:
                self._step(entry, facts, before)
            case ReassignmentRefused() if facts.partition == name:
                target = "its cancellation" if facts.target is None else list(facts.target)
                how = f"reassignment refused, {target}: {facts.reason}"
                self._add(entry, "refused", before, before, how)
            case IsrChangesNotified() if name in facts.states:
                how = "its leader wrote the state itself and said so by a notification"
                self._add(entry, "isr", before, facts.states[name], how)

    def _step(self, entry: Entry, facts: ReassignmentStep, before: LeaderAndIsr | None) -> None:
        target = list(facts.assignment.target)
        how = {
            "begin": f"reassignment to {target} begins: adding {list(facts.adding)}, "
            f"removing {list(facts.removing)}"
            if facts.assignment.being_reassigned
            else f"reassignment is taken back, to {target}",
            "wait": f"reassignment to {target} waits: in sync are {list(facts.isr or ())}",
            "complete": f"reassignment to {target} can be completed: in sync are "
            f"{list(facts.isr or ())}",
            "done": f"reassignment is done: replicas {list(facts.replicas)}",
        }.get(facts.step, f"reassignment: {facts.step}")
        because = self._causes.of(entry.line, self.cluster) if facts.step == "begin" else ""
        self._add(entry, "reassignment", before, before, how, because=because)

    def _no_more(self, entry: Entry, line: StateChangeLine, before: LeaderAndIsr | None) -> None:
        """Note when the partition is without a leader, or online with it again."""
        if str(self.tp) not in line.subjects or line.after != "OfflinePartition":
            return
        if line.before == "OfflinePartition":
            return
        because = self._causes.of(entry.line, self.cluster)
        how = f"{line.before} -> {line.after}"
        self._add(entry, "offline", before, before, how, because=because)

    def _add(
        self,
        entry: Entry,
        what: str,
        before: LeaderAndIsr | None,
        after: LeaderAndIsr | None,
        how: str,
        *,
        because: str = "",
        decided: DecisionLine | None = None,
    ) -> None:
        line = entry.line
        added = HistoryEntry(
            line.ts,
            line.controller,
            line.epoch,
            line.cause,
            entry.where,
            what,
            before,
            after,
            because,
            how,
            () if decided is None else decided.rejected,
            "" if decided is None else decided.election,
            "" if decided is None else words_of(decided.rule),
            "" if decided is None else decided.outcome,
        )
        self.entries.append(added)


def _event(entry: Entry) -> str:
    return entry.line.event if isinstance(entry.line, EventLine) else ""


def _what(line: DecisionLine, before: LeaderAndIsr | None, after: LeaderAndIsr | None) -> str:
    if not line.written:
        if line.outcome.startswith("refused"):
            return "refused"
        return "again" if line.outcome == "decided again" else "no leader"
    if _leader(before) != _leader(after):
        return "leader"
    if before is None or after is None or before.isr != after.isr:
        return "isr"
    return "epoch"
