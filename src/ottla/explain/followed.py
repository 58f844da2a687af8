"""Followed: a controller's context, as a snapshot in its journal has it and procedures change it.

A decider. Invariants: it is the controller's own context, in its own
order, so that a procedure that is run again iterates as it did the first time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.controller.context import Context
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.explain.cluster_state import state_after
from ottla.explain.lines import Entry
from ottla.explain.replayed_term import eligible_of
from ottla.model import journal_schema as journaled
from ottla.model.cluster import BrokerInfo, LeaderIsrAndControllerEpoch, TopicInfo
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_from_text

_PARTITION_STATES = {state.value: state for state in PartitionState}
_REPLICA_STATES = {state.value: state for state in ReplicaState}


@dataclass(slots=True)
class Followed:
    """The context of a term."""

    context: Context
    loaded: bool = False
    """Whether the snapshot is complete; later ones only put the context into their order."""

    @staticmethod
    def begin(epoch: int, facts: journaled.ClusterFacts) -> "Followed":
        """Take a snapshot's part about brokers."""
        context = Context(epoch)
        context.set_brokers(facts.registered or ())
        context.shutting_down = set(facts.shutting_down)
        context.offline_dirs = {
            broker: {journaled.partition_of(tp) for tp in tps}
            for broker, tps in facts.offline_dirs.items()
        }
        context.deleting = dict.fromkeys(facts.deleting)
        context.deletion_started = set(facts.deletion_started)
        context.deletion_ineligible = set(facts.deletion_ineligible)
        context.reassigning = dict.fromkeys(map(journaled.partition_of, facts.reassigning))
        context.clean_brokers = set(facts.whole)
        context.voiding_brokers = set(facts.voiding)
        context.unstated = set(facts.unstated)
        context.broker_epochs.update(facts.broker_epochs)
        return Followed(context)

    def take_topic(self, facts: journaled.TopicFacts) -> None:
        """Take a snapshot's part about a topic, or a slice of its partitions."""
        context = self.context
        if self.loaded:
            for number in facts.partitions:
                context.reorder(TopicPartition(facts.topic, number))
            return
        topic_id = uuid_from_text(facts.id)
        assignment = {number: found.assignment for number, found in facts.partitions.items()}
        known_id = None if topic_id == ZERO_UUID else topic_id
        context.add_topic(TopicInfo(facts.topic, known_id, assignment))
        if facts.note is not None:
            context.topic_id_notes[facts.topic] = facts.note
        for number, found in facts.partitions.items():
            self._take_partition(TopicPartition(facts.topic, number), found, topic_id)

    def _take_partition(
        self, tp: TopicPartition, found: journaled.PartitionFacts, topic_id: bytes
    ) -> None:
        context = self.context
        state = found.leadership
        if state is not None:
            context.leadership[tp] = LeaderIsrAndControllerEpoch(state, found.controller_epoch)
        eligible = eligible_of(found, topic_id)
        if eligible is not None:
            context.eligible[tp] = eligible
        if found.joined:
            context.joined[tp] = set(found.joined)
        for broker, epoch in found.former_lives.items():
            context.former_lives.setdefault(broker, {})[tp] = epoch
        if found.state is None:
            return
        context.partition_states.begin(tp, _PARTITION_STATES[found.state])
        for broker in found.replicas:
            name = found.replica_states.get(broker, ReplicaState.ONLINE.value)
            self._set_replica_state(PartitionReplica(tp, broker), name)

    def _set_replica_state(self, replica: PartitionReplica, name: str) -> None:
        if name == ReplicaState.NON_EXISTENT.value:
            self.context.replica_states.forget(replica)
        else:
            self.context.replica_states.begin(replica, _REPLICA_STATES[name])

    # --- what lines say, where a procedure would do something else --------------------------

    def follow(self, lines: Sequence[Entry]) -> None:
        """Take what the lines of an event say into the context."""
        for entry in lines:
            line, facts = entry.line, entry.facts
            if isinstance(line, journaled.StateChangeLine):
                for subject in line.subjects:
                    self._follow_change(subject, line.after)
            elif isinstance(line, journaled.DecisionLine):
                self._follow_decision(line)
            elif isinstance(facts, journaled.BrokersChanged):
                self._follow_brokers(facts)
            elif isinstance(facts, journaled.ReassignmentStep):
                self._follow_step(facts)
            elif isinstance(facts, journaled.TopicDeleted):
                self.context.remove_topic(facts.topic)

    def _follow_brokers(self, facts: journaled.BrokersChanged) -> None:
        known = self.context.brokers
        self.context.set_brokers(
            known[b] if b in known and known[b].epoch == epoch else BrokerInfo(b, (), rack, epoch)
            for b, epoch, rack in facts.present
        )

    def _follow_change(self, subject: str, after: str) -> None:
        partition, on, broker = subject.rpartition(" on ")
        if on:
            replica = PartitionReplica(journaled.partition_of(partition), int(broker))
            if after in _REPLICA_STATES:
                self._set_replica_state(replica, after)
        elif after in _PARTITION_STATES:
            tp = journaled.partition_of(subject)
            self.context.partition_states.begin(tp, _PARTITION_STATES[after])

    def _follow_decision(self, line: journaled.DecisionLine) -> None:
        after = state_after(line)
        if line.written and after is not None:
            tp = journaled.partition_of(line.partition)
            self.context.leadership[tp] = LeaderIsrAndControllerEpoch(after, self.context.epoch)

    def _follow_step(self, facts: journaled.ReassignmentStep) -> None:
        tp = journaled.partition_of(facts.partition)
        self.context.set_assignment(tp, facts.assignment)
        if facts.step == "done":
            self.context.reassigning.pop(tp, None)
        else:
            self.context.reassigning[tp] = None
