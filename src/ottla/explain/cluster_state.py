"""ClusterState: the cluster as the journal has it, line after line.

A decider. Invariants: the state changes only by what a line says was written or found; each
snapshot replaces it, so that it has what another controller did unseen from then on; after the
last line it equals the context of the controller that wrote it (`tests/unit/explain` compares them
for every history).
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from ottla.controller.states import PartitionState
from ottla.explain.lines import Entry
from ottla.model.cluster import LeaderAndIsr, ReplicaAssignment
from ottla.model.ids import TopicPartition
from ottla.model.journal_schema import (
    BrokersChanged,
    ClusterFacts,
    DecisionLine,
    EventLine,
    IsrChangesNotified,
    PartitionFacts,
    PartitionsModified,
    ReassignmentStep,
    Registration,
    RestartedUnseen,
    ShutdownAsked,
    SnapshotLine,
    StateChangeLine,
    TopicDeleted,
    TopicDeletionsRequested,
    TopicFacts,
    TopicsChanged,
    partition_of,
)

_STATES = {state.value for state in PartitionState}


@dataclass(slots=True)
class Part:
    """A partition: its assignment, its leadership if one was ever written, its state."""

    assignment: ReplicaAssignment
    leadership: LeaderAndIsr | None = None
    state: str = PartitionState.NON_EXISTENT.value
    written_at: int | None = None
    """The zxid of its state znode, as a failover read it."""


@dataclass(slots=True)
class Topic:
    """A topic's id (text; empty where unknown) and partitions."""

    id: str = ""
    partitions: dict[int, Part] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterState:
    """All that the journal says of the cluster, up to the last line taken."""

    controller: int = -1
    epoch: int = -1
    active: bool = False
    ts: int = -1
    brokers: dict[int, Registration] = field(default_factory=dict)
    shutting_down: set[int] = field(default_factory=set)
    offline: set[tuple[TopicPartition, int]] = field(default_factory=set)
    topics: dict[str, Topic] = field(default_factory=dict)
    deleting: dict[str, None] = field(default_factory=dict)
    lines: int = 0

    def part(self, tp: TopicPartition) -> Part | None:
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def online(self, broker: int, tp: TopicPartition) -> bool:
        return (
            broker in self.brokers
            and broker not in self.shutting_down
            and (tp, broker) not in self.offline
        )

    def take(self, entry: Entry) -> None:
        """Take one line."""
        line, facts = entry.line, entry.facts
        self.lines += 1
        self.ts = line.ts if line.ts >= 0 else self.ts
        if line.epoch >= 0:
            self.controller, self.epoch = line.controller, line.epoch
        if isinstance(line, EventLine):
            self._event_line(line, facts)
        elif isinstance(line, SnapshotLine):
            if isinstance(facts, ClusterFacts):
                self._start_over(facts)
            elif isinstance(facts, TopicFacts):
                self._found(facts)
        elif isinstance(line, StateChangeLine):
            self._state_changes(line)
        elif isinstance(line, DecisionLine) and line.written:
            part = self._part(partition_of(line.partition), line.assignment)
            part.leadership = state_after(line)

    # --- what a snapshot says ---------------------------------------------------------------

    def _start_over(self, facts: ClusterFacts) -> None:
        self.brokers = {b[0]: b for b in facts.brokers}
        self.shutting_down = set(facts.shutting_down)
        self.offline = {
            (partition_of(tp), broker) for broker, tps in facts.offline_dirs.items() for tp in tps
        }
        self.topics.clear()
        self.deleting = dict.fromkeys(facts.deleting)

    def _found(self, facts: TopicFacts) -> None:
        topic = self.topics.setdefault(facts.topic, Topic())
        topic.id = facts.id
        for number, found in facts.partitions.items():
            tp = TopicPartition(facts.topic, number)
            state = found.state or self._found_state(tp, found)
            topic.partitions[number] = Part(found.assignment, found.leadership, state, found.zxid)

    def _found_state(self, tp: TopicPartition, found: PartitionFacts) -> str:
        if found.leader is None:
            return PartitionState.NEW.value
        if self.online(found.leader, tp):
            return PartitionState.ONLINE.value
        return PartitionState.OFFLINE.value

    # --- what an event says -----------------------------------------------------------------

    def _event_line(self, line: EventLine, facts: object) -> None:
        match facts:
            case BrokersChanged():
                self._brokers_changed(facts)
            case TopicsChanged():
                for name in facts.gone:
                    self._forget(name)
                for name, partitions in facts.new.items():
                    self.topics[name] = Topic(facts.ids.get(name, ""))
                    for number, replicas in partitions.items():
                        self._part(TopicPartition(name, number), ReplicaAssignment(replicas))
            case PartitionsModified():
                if facts.topic not in self.deleting:
                    for number, replicas in facts.added.items():
                        tp = TopicPartition(facts.topic, number)
                        self._part(tp, ReplicaAssignment(replicas))
            case TopicDeletionsRequested():
                known = [topic for topic in facts.topics if topic in self.topics]
                self.deleting.update(dict.fromkeys(known))
            case TopicDeleted():
                self._forget(facts.topic)
            case ShutdownAsked():
                self.shutting_down.add(facts.broker)
            case ReassignmentStep():
                assignment = facts.assignment
                if facts.step in {"complete", "done"}:
                    assignment = ReplicaAssignment(assignment.target)
                self._part(partition_of(facts.partition), assignment)
            case RestartedUnseen():
                for text, broker in facts.replicas:
                    part = self.part(partition_of(text))
                    led = part is not None and part.leadership is not None
                    if part and led and part.leadership and part.leadership.leader == broker:
                        part.state = PartitionState.OFFLINE.value
            case IsrChangesNotified():
                for text, state in facts.states.items():
                    found = self.part(partition_of(text))
                    if found is not None:
                        found.leadership = state
            case _:
                if line.event in {"Elected", "Resigned"}:
                    self.active = line.event == "Elected"

    def _brokers_changed(self, facts: BrokersChanged) -> None:
        registered = {b[0]: b for b in facts.present}
        for broker in facts.dead:
            self.brokers.pop(broker, None)
            self.shutting_down.discard(broker)
        for broker in facts.bounced:
            self.shutting_down.discard(broker)
        for broker in (*facts.new, *facts.bounced):
            if broker in registered:
                self.brokers[broker] = registered[broker]
        gone = {*facts.dead, *facts.new, *facts.bounced}
        self.offline = {(tp, broker) for tp, broker in self.offline if broker not in gone}

    def _forget(self, topic: str) -> None:
        self.topics.pop(topic, None)
        self.deleting.pop(topic, None)
        self.offline = {(tp, broker) for tp, broker in self.offline if tp.topic != topic}

    # --- what state changes and decisions say -----------------------------------------------

    def _state_changes(self, line: StateChangeLine) -> None:
        if line.after not in _STATES:
            return
        for subject in line.subjects:
            try:
                part = self.part(partition_of(subject))
            except ValueError:
                continue  # a replica's, or a name of no partition
            if part is not None:
                part.state = line.after

    def _part(self, tp: TopicPartition, assignment: ReplicaAssignment) -> Part:
        parts = self.topics.setdefault(tp.topic, Topic()).partitions
        part = parts.get(tp.partition)
        if part is None:
            part = parts[tp.partition] = Part(assignment)
        part.assignment = assignment
        return part


def state_after(line: DecisionLine) -> LeaderAndIsr | None:
    """Return the state that stands after a decision: one version on, where the plan was written.

    A plan holds the version it was decided from; what AlterPartition wrote holds its own.
    """
    if line.after is None or line.before is None or line.asked is not None:
        return line.after
    return replace(line.after, partition_epoch=line.before.partition_epoch + 1)
