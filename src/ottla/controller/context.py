"""Context: what the controller knows of the cluster, and nothing else.

A decider's input. Invariants: changed only by the event being handled; ZooKeeper is written first
and the context after (settle), so that it never claims what does not stand; iteration follows
insertion, and topics are inserted sorted, so that no set's order decides anything. Dropped whole at
resignation. Kafka: `ControllerContext`.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from ottla.controller.states import (
    PartitionReplica,
    PartitionState,
    ReplicaState,
    partition_machine,
    replica_machine,
)
from ottla.model.cluster import (
    BrokerInfo,
    Eligible,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicIdNote,
    TopicInfo,
)
from ottla.model.ids import NO_EPOCH, ZERO_UUID, TopicPartition
from ottla.model.protocol import EPOCH_DURING_DELETE

NO_ASSIGNMENT = ReplicaAssignment(())


class Settings(msgspec.Struct, frozen=True):
    """What a controller's procedures need to know of its broker's configuration."""

    controller_id: int
    listener: str
    """The listener brokers use among themselves."""
    delete_topics: bool = True
    eligible_replicas: bool = False
    """Whether replicas outside the ISR may be eligible to lead (adr/0007)."""


class Context:
    """One controller's knowledge during one term."""

    def __init__(self, epoch: int = 0, epoch_zk_version: int = 0) -> None:
        self.epoch = epoch
        self.epoch_zk_version = epoch_zk_version
        self.brokers: dict[int, BrokerInfo] = {}
        """Live brokers, those shutting down included, by id."""
        self.shutting_down: set[int] = set()
        self.topic_ids: dict[str, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.topic_id_notes: dict[str, TopicIdNote] = {}
        """What /ottla/topic_ids says of the topics read so far, or is to say."""
        self.unwritten_topic_id_notes: dict[str, None] = {}
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.leadership: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        self.reassigning: dict[TopicPartition, None] = {}
        self.partition_states = partition_machine()
        self.replica_states = replica_machine()
        self.offline_dirs: dict[int, set[TopicPartition]] = {}
        self.former_lives: dict[int, dict[TopicPartition, int]] = {}
        """Per broker the partitions of which it was a replica outside the ISR when its registration
        ended, each with its partition epoch then: what is asked for in that partition epoch may
        rest on what it had in an earlier registration (KIP-903)."""
        self.clean_brokers: set[int] = set()
        self.voiding_brokers: set[int] = set()
        """Live brokers whose current registration states that all their logs are complete."""
        self.unstated: set[int] = set()
        """Brokers that lived when this controller was elected and whose registrations state
        nothing (adr/0007): JVM brokers, for the most part."""
        self.broker_epochs: dict[int, int] = {}
        """The broker epoch each broker was last seen alive with."""
        self.joined: dict[TopicPartition, set[int]] = {}
        """Who joined a partition's ISR under this controller and has not registered since."""
        self.eligible: dict[TopicPartition, Eligible] = {}
        """Who may lead besides the ISR, as it stands in ZooKeeper (adr/0007)."""
        self.deleting: dict[str, None] = {}
        """Topics queued for deletion."""
        self.deletion_started: set[str] = set()
        self.deletion_ineligible: set[str] = set()

    # --- brokers ----------------------------------------------------------------------------

    def set_brokers(self, brokers: Iterable[BrokerInfo]) -> None:
        self.brokers = {b.id: b for b in sorted(brokers, key=lambda b: b.id)}
        self.broker_epochs.update((b.id, b.epoch) for b in self.brokers.values())

    def add_broker(self, broker: BrokerInfo) -> None:
        self.set_brokers([*(b for b in self.brokers.values() if b.id != broker.id), broker])

    def remove_broker(self, broker_id: int) -> None:
        """Note that a registration of a broker has ended."""
        self.brokers.pop(broker_id, None)
        self.clean_brokers.discard(broker_id)
        self.voiding_brokers.discard(broker_id)
        for joined in self.joined.values():
            joined.discard(broker_id)
        self.former_lives[broker_id] = {
            tp: known.leader_and_isr.partition_epoch
            for tp in self.partitions_on(broker_id)
            if (known := self.leadership.get(tp)) is not None
            and broker_id not in known.leader_and_isr.isr
        }

    def had_former_life(self, broker_id: int, tp: TopicPartition, partition_epoch: int) -> bool:
        """Return whether a broker's registration ended outside the ISR in this partition epoch."""
        return self.former_lives.get(broker_id, {}).get(tp, -1) == partition_epoch

    @property
    def live_or_shutting_down(self) -> list[int]:
        return list(self.brokers)

    @property
    def live(self) -> list[int]:
        return [b for b in self.brokers if b not in self.shutting_down]

    def is_live(self, broker_id: int) -> bool:
        return broker_id in self.brokers and broker_id not in self.shutting_down

    def is_online(
        self, broker_id: int, tp: TopicPartition, *, or_shutting_down: bool = False
    ) -> bool:
        """Return whether a replica's broker is alive and its log directory online."""
        if broker_id not in self.brokers:
            return False
        if broker_id in self.shutting_down and not or_shutting_down:
            return False
        return tp not in self.offline_dirs.get(broker_id, ())

    # --- topics and assignments -------------------------------------------------------------

    @property
    def topics(self) -> list[str]:
        return list(self.assignments)

    def add_topic(self, info: TopicInfo) -> None:
        """Take a topic's id and assignment as they stand in ZooKeeper."""
        if info.topic_id is not None:
            self.topic_ids[info.name] = info.topic_id
            self.topic_names[info.topic_id] = info.name
        self.assignments.setdefault(info.name, {})
        for partition, assignment in info.assignment.items():
            self.set_assignment(TopicPartition(info.name, partition), assignment)

    def remove_topic(self, topic: str) -> None:
        """Forget all about a topic; its replica states go where deletion has led them."""
        for partition, assignment in self.assignments.pop(topic, {}).items():
            tp = TopicPartition(topic, partition)
            self.leadership.pop(tp, None)
            self.eligible.pop(tp, None)
            self.joined.pop(tp, None)
            self.reassigning.pop(tp, None)
            self.partition_states.forget(tp)
            for replicas in self.offline_dirs.values():
                replicas.discard(tp)
            for partitions in self.former_lives.values():
                partitions.pop(tp, None)
            for broker in assignment.replicas:
                self.replica_states.forget(PartitionReplica(tp, broker))
        topic_id = self.topic_ids.pop(topic, None)
        if topic_id is not None:
            self.topic_names.pop(topic_id, None)
        self.deleting.pop(topic, None)
        self.deletion_started.discard(topic)
        self.deletion_ineligible.discard(topic)

    def topic_id(self, topic: str) -> bytes:
        return self.topic_ids.get(topic, ZERO_UUID)

    def topic_info(self, topic: str) -> TopicInfo:
        """Return a topic as its znode is to hold it."""
        return TopicInfo(topic, self.topic_ids.get(topic), dict(self.assignments[topic]))

    def assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        try:
            return self.assignments[tp.topic][tp.partition]
        except KeyError:
            return NO_ASSIGNMENT

    def set_assignment(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        self.assignments.setdefault(tp.topic, {})[tp.partition] = assignment

    def partitions(self) -> Iterator[TopicPartition]:
        for topic, assignments in self.assignments.items():
            for partition in assignments:
                yield TopicPartition(topic, partition)

    def partitions_in_slices(self, size: int) -> Iterator[list[TopicPartition]]:
        """Return the same in lists of at most `size`; nothing is added or taken meanwhile."""
        partitions = self.partitions()
        while some := list(islice(partitions, size)):
            yield some

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, p) for p in self.assignments.get(topic, ())]

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        return [
            TopicPartition(topic, partition)
            for topic, assignments in self.assignments.items()
            for partition, assignment in assignments.items()
            if broker_id in assignment.replicas
        ]

    def replicas_on(self, broker_ids: Iterable[int]) -> list[PartitionReplica]:
        return [PartitionReplica(tp, b) for b in broker_ids for tp in self.partitions_on(b)]

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[PartitionReplica]:
        return [PartitionReplica(tp, b) for tp in partitions for b in self.assignment(tp).replicas]

    def replicas_of_topic(self, topic: str) -> list[PartitionReplica]:
        return self.replicas_of(self.partitions_of(topic))

    def reorder(self, tp: TopicPartition) -> None:
        """Put a partition last in the order of iteration."""
        if tp in self.leadership:
            self.leadership[tp] = self.leadership.pop(tp)
        self.partition_states.reorder(tp)

    # --- leadership -------------------------------------------------------------------------

    def leader(self, tp: TopicPartition) -> int | None:
        """Return who leads by what is known, NO_LEADER included; None without any knowledge."""
        known = self.leadership.get(tp)
        return None if known is None else known.leader_and_isr.leader

    def stop_epoch(self, tp: TopicPartition) -> int:
        """Return the leader epoch a StopReplica carries: -2 when the topic goes for good."""
        if tp.topic in self.deleting:
            return EPOCH_DURING_DELETE
        known = self.leadership.get(tp)
        return NO_EPOCH if known is None else known.leader_and_isr.leader_epoch

    def partitions_with_leadership(self) -> list[TopicPartition]:
        """Return the partitions for UpdateMetadata to a new broker, also those being deleted.

        Kafka leaves these out: a broker without replicas of them that registers again while they
        are being deleted lists their topic for as long as it runs.
        """
        return [
            tp
            for tp in self.leadership
            if tp.topic not in self.deleting or tp.topic in self.deletion_started
        ]

    def partitions_with_offline_leader(self) -> list[TopicPartition]:
        return [
            tp
            for tp, known in self.leadership.items()
            if self._stays(tp) and not self.is_online(known.leader_and_isr.leader, tp)
        ]

    def led_by(self, broker_id: int) -> list[TopicPartition]:
        """Return the partitions a broker leads that have other replicas."""
        return [
            tp
            for tp, known in self.leadership.items()
            if known.leader_and_isr.leader == broker_id
            and tp.topic not in self.deleting
            and len(self.assignment(tp).replicas) > 1
        ]

    # --- replicas of topics being deleted ---------------------------------------------------

    def replicas_in(self, topic: str, *states: ReplicaState) -> list[PartitionReplica]:
        return self.replica_states.among(self.replicas_of_topic(topic), *states)

    def waiting_for_leader(self, topic: str | None = None) -> list[TopicPartition]:
        """Return partitions that are new or offline and not on their way out."""
        states = (PartitionState.OFFLINE, PartitionState.NEW)
        if topic is None:
            found = self.partition_states.all_in(*states)
        else:
            found = self.partition_states.among(self.partitions_of(topic), *states)
        return [tp for tp in found if self._stays(tp)]

    def _stays(self, tp: TopicPartition) -> bool:
        """Return whether a partition needs a leader: its topic is not deleted, or waits for it.

        A deletion waits for a reassignment, and that for a leader (R15).
        """
        return tp.topic not in self.deleting or tp in self.reassigning

    # --- figures ----------------------------------------------------------------------------

    def statistics(self) -> dict[str, int]:
        return {
            "epoch": self.epoch,
            "brokers": len(self.brokers),
            "topics": len(self.assignments),
            "partitions": sum(map(len, self.assignments.values())),
            "offline_partitions": len(
                [
                    tp
                    for tp in self.partition_states.all_in(PartitionState.OFFLINE)
                    if tp.topic not in self.deletion_started
                ]
            ),
            "preferred_replica_imbalance": sum(
                1
                for tp, known in self.leadership.items()
                if tp.topic not in self.deleting
                and self.assignment(tp).replicas[:1] != (known.leader_and_isr.leader,)
            ),
            "topics_to_delete": len(self.deleting),
        }
