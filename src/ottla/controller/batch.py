"""Batch: what brokers are sent about one step, as one request of each kind per broker.

A decider. Invariants: the versions are those of Kafka 3.9 in ZooKeeper mode and are not negotiated
(JVM brokers of that version share the cluster); per broker LeaderAndIsr comes before UpdateMetadata
before StopReplica; only brokers that live or are shutting down are sent any; one UpdateMetadata
body serves all of them, with 8 bytes of broker epoch patched per target. Kafka:
`AbstractControllerBrokerRequestBatch`.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from ottla.controller.context import Context
from ottla.model.cluster import (
    INITIAL_LEADER_EPOCH,
    BrokerInfo,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
)
from ottla.model.ids import TopicPartition
from ottla.model.ports import Buffer
from ottla.model.protocol import LEADER_DURING_DELETE
from ottla.wire.codec import APIS, encode_in_slices, encode_request, encode_struct
from ottla.wire.messages.control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from ottla.wire.primitives import uvarint

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
LEADER_AND_ISR_VERSION = 7
STOP_REPLICA_VERSION = 4
UPDATE_METADATA_VERSION = 8


PAUSE_EVERY = 500
"""Partitions a build takes at a time."""
TOPICS_FREED = 50

_BROKER_EPOCH_AT = 9
"""Where an UpdateMetadata v8 keeps the broker epoch: after controller id, its kind and epoch."""

_TOPICS_AT = 18
"""Where a LeaderAndIsr v7 keeps its topics: after controller, its kind and epoch, epoch, type."""

_LEADER_AND_ISR_FLEXIBLE = APIS[LEADER_AND_ISR].flexible_version

_SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class SharedBody:
    """A request's body, encoded once for all its receivers."""

    def __init__(self, body: bytes) -> None:
        self._head = body[:_BROKER_EPOCH_AT]
        self._tail = memoryview(body)[_BROKER_EPOCH_AT + 8 :]

    def for_broker(self, epoch: int) -> list[Buffer]:
        """Return the body with this broker epoch."""
        return [self._head + struct.pack(">q", epoch), self._tail]


class Outgoing(msgspec.Struct):
    """One request to one broker. `encode` gives its body.

    `deletes` are the partitions a StopReplica deletes, or of which an UpdateMetadata says that
    they are being deleted: that is sent once.
    """

    broker: int
    api_key: int
    version: int
    encode: Callable[[], list[Buffer]]
    partitions: int
    summary: str
    deletes: frozenset[TopicPartition] = frozenset()


class _PartitionState:
    """A LeaderAndIsr's content for one partition, encoded once for all its receivers."""

    __slots__ = ("_encoded", "assignment", "is_new", "state")

    def __init__(
        self, state: LeaderIsrAndControllerEpoch, assignment: ReplicaAssignment, *, is_new: bool
    ) -> None:
        self.state = state
        self.assignment = assignment
        self.is_new = is_new
        self._encoded = b""

    def encoded(self, partition: int) -> bytes:
        if not self._encoded:
            state = self.state.leader_and_isr
            wire = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                partition_index=partition,
                controller_epoch=self.state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=state.partition_epoch,
                replicas=list(self.assignment.replicas),
                adding_replicas=list(self.assignment.adding),
                removing_replicas=list(self.assignment.removing),
                is_new=self.is_new,
                leader_recovery_state=state.recovery_state,
            )
            self._encoded = encode_struct(wire, LEADER_AND_ISR_VERSION, _LEADER_AND_ISR_FLEXIBLE)
        return self._encoded


class RequestBatch:
    """Collects; `requests` turns it into requests and leaves it empty."""

    def __init__(self, context: Context, controller_id: int, listener: str) -> None:
        self._context = context
        self._controller_id = controller_id
        self._listener = listener
        self._leader_and_isr: dict[int, dict[TopicPartition, _PartitionState]] = {}
        self._stop: dict[int, dict[TopicPartition, tuple[int, bool]]] = {}
        self._plain: dict[TopicPartition, _PartitionState] = {}
        self._metadata_brokers: dict[int, None] = {}
        self._metadata: dict[TopicPartition, None] = {}
        self._to_everybody = False

    # --- collecting -------------------------------------------------------------------------

    def lead_or_follow(
        self,
        brokers: Iterable[int],
        tp: TopicPartition,
        state: LeaderIsrAndControllerEpoch,
        assignment: ReplicaAssignment,
        *,
        is_new: bool,
    ) -> None:
        """Send LeaderAndIsr to these brokers, and UpdateMetadata to everybody."""
        plain = _PartitionState(state, assignment, is_new=is_new)
        for broker in brokers:
            if broker < 0:
                continue
            states = self._leader_and_isr.setdefault(broker, {})
            before = states.get(tp)
            if before is not None and before.is_new and not is_new:
                states[tp] = _PartitionState(state, assignment, is_new=True)
            else:
                states[tp] = plain
        self._to_everybody = True
        self._metadata[tp] = None

    def follow(
        self,
        broker: int,
        states: Iterable[tuple[TopicPartition, LeaderIsrAndControllerEpoch, ReplicaAssignment]],
    ) -> None:
        """Send one broker LeaderAndIsr of many partitions, not new, and everybody UpdateMetadata.

        What several brokers are sent of a partition is encoded once.
        """
        mine = self._leader_and_isr.setdefault(broker, {})
        plain, metadata = self._plain, self._metadata
        for tp, state, assignment in states:
            shared = plain.get(tp)
            if shared is None or shared.state is not state or shared.assignment is not assignment:
                shared = plain[tp] = _PartitionState(state, assignment, is_new=False)
            before = mine.get(tp)
            if before is not None and before.is_new:
                mine[tp] = _PartitionState(state, assignment, is_new=True)
            else:
                mine[tp] = shared
            metadata[tp] = None
        self._to_everybody = True

    def stop(self, brokers: Iterable[int], tp: TopicPartition, *, delete: bool) -> None:
        """Send StopReplica to these brokers; `delete`: they are to delete their replica, too."""
        epoch = self._context.stop_epoch(tp)
        for broker in brokers:
            if broker < 0:
                continue
            stops = self._stop.setdefault(broker, {})
            already = stops.get(tp, (0, False))[1]
            stops[tp] = (epoch, already or delete)

    def metadata(self, brokers: Iterable[int], partitions: Iterable[TopicPartition]) -> None:
        """Send UpdateMetadata to these brokers: all live brokers, and these partitions' state."""
        for broker in brokers:
            if broker >= 0:
                self._metadata_brokers[broker] = None
        for tp in partitions:
            self._metadata[tp] = None

    def leave_out_metadata(self) -> None:
        """Send no UpdateMetadata: the brokers have been sent all that it would say."""
        self._metadata_brokers, self._metadata, self._to_everybody = {}, {}, False

    # --- building ---------------------------------------------------------------------------

    def build(self) -> list[Outgoing]:
        """Return the requests in the order they are to be queued."""
        return [request for request in self.requests() if request is not None]

    def requests(self) -> Iterator[Outgoing | None]:
        """Yield the requests in order, and None where a long build may pause."""
        self._plain.clear()
        for broker in sorted(self._leader_and_isr):
            states = self._leader_and_isr.pop(broker)
            if broker in self._context.brokers:
                yield from self._build_leader_and_isr(broker, states)
        if self._to_everybody:
            self.metadata(self._context.brokers, ())
        yield from self._build_metadata()
        for broker, stops in sorted(self._stop.items()):
            if broker in self._context.brokers:
                yield self._build_stop(broker, stops)
        self._stop, self._to_everybody = {}, False
        self._metadata_brokers, self._metadata = {}, {}

    def _build_leader_and_isr(
        self, broker: int, states: dict[TopicPartition, _PartitionState]
    ) -> Iterator[Outgoing | None]:
        context = self._context
        message = LeaderAndIsrRequest(
            controller_id=self._controller_id,
            is_kraft_controller=False,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker].epoch,
            type=0,
        )
        topics: dict[str, list[bytes]] = {}
        leaders: set[int] = set()
        become_leader = 0
        for count, (tp, what) in enumerate(states.items(), 1):
            partitions = topics.get(tp.topic)
            if partitions is None:
                partitions = topics[tp.topic] = []
            leader = what.state.leader_and_isr.leader
            leaders.add(leader)
            become_leader += leader == broker
            partitions.append(what.encoded(tp.partition))
            if count % PAUSE_EVERY == 0:
                yield None
        message.live_leaders = [
            live for leader in sorted(leaders) if (live := self._live_leader(leader)) is not None
        ]
        body: list[Buffer] = [self._with_topics(message, topics)]
        yield Outgoing(
            broker,
            LEADER_AND_ISR,
            LEADER_AND_ISR_VERSION,
            lambda: body,
            len(states),
            f"{become_leader} become-leader and {len(states) - become_leader} become-follower",
        )

    def _with_topics(
        self, message: LeaderAndIsrRequest, topics: Mapping[str, Sequence[bytes]]
    ) -> bytes:
        """Encode a request that names no topics, and put encoded partitions in by topic."""
        empty = b"".join(encode_request(message, LEADER_AND_ISR_VERSION))
        parts = [empty[:_TOPICS_AT], uvarint(len(topics) + 1)]
        for topic, partitions in topics.items():
            head = LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=topic, topic_id=self._context.topic_id(topic)
            )
            encoded = encode_struct(head, LEADER_AND_ISR_VERSION, _LEADER_AND_ISR_FLEXIBLE)
            # It ends in an array of no partitions and no tagged fields, a byte each.
            parts += [encoded[:-2], uvarint(len(partitions) + 1), *partitions, encoded[-1:]]
        parts.append(empty[_TOPICS_AT + 1 :])
        return b"".join(parts)

    def _live_leader(self, broker_id: int) -> LeaderAndIsrRequest.LeaderAndIsrLiveLeader | None:
        broker = self._context.brokers.get(broker_id)
        if broker is None:
            return None
        for endpoint in broker.endpoints:
            if endpoint.listener == self._listener:
                return LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
                    broker_id=broker_id, host_name=endpoint.host, port=endpoint.port
                )
        return None

    def _build_metadata(self) -> Iterator[Outgoing | None]:
        context = self._context
        targets = sorted(b for b in self._metadata_brokers if b in context.brokers)
        if not targets:
            return
        message = UpdateMetadataRequest(
            controller_id=self._controller_id,
            is_kraft_controller=False,
            type=0,
            controller_epoch=context.epoch,
            live_brokers=[_live_broker(b) for b in context.brokers.values()],
        )
        topics: dict[str, UpdateMetadataRequest.UpdateMetadataTopicState] = {}
        count = 0
        for tp in self._metadata:
            known = context.leadership.get(tp)
            if known is None:
                continue  # no leader was ever elected: brokers learn of it when there is one
            topic = topics.get(tp.topic)
            if topic is None:
                topic = UpdateMetadataRequest.UpdateMetadataTopicState(
                    topic_name=tp.topic, topic_id=context.topic_id(tp.topic)
                )
                topics[tp.topic] = topic
                message.topic_states.append(topic)
            topic.partition_states.append(self._metadata_partition(tp, known))
            count += 1
            if count % PAUSE_EVERY == 0:
                yield None

        brokers = len(message.live_brokers)
        deletes = frozenset(
            tp
            for tp in (self._metadata if context.deleting else ())
            if tp.topic in context.deleting
        )
        shared = SharedBody(
            b"".join((yield from encode_in_slices(message, UPDATE_METADATA_VERSION)))
        )
        while message.topic_states:  # thousands of objects take their time to go, too
            message.topic_states.pop()
            if len(message.topic_states) % TOPICS_FREED == 0:
                yield None
        for broker in targets:
            epoch = context.brokers[broker].epoch
            yield Outgoing(
                broker,
                UPDATE_METADATA,
                UPDATE_METADATA_VERSION,
                lambda epoch=epoch: shared.for_broker(epoch),  # type: ignore[misc]
                count,
                f"{brokers} live brokers and {count} partitions",
                deletes,
            )

    def _metadata_partition(
        self, tp: TopicPartition, known: LeaderIsrAndControllerEpoch
    ) -> UpdateMetadataRequest.UpdateMetadataPartitionState:
        context = self._context
        state = known.leader_and_isr
        replicas = context.assignment(tp).replicas
        deleting = tp.topic in context.deleting
        return UpdateMetadataRequest.UpdateMetadataPartitionState(
            topic_name=tp.topic,
            partition_index=tp.partition,
            controller_epoch=known.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else state.leader,
            leader_epoch=INITIAL_LEADER_EPOCH if deleting else state.leader_epoch,
            isr=list(state.isr),
            zk_version=0 if deleting else state.partition_epoch,
            replicas=list(replicas),
            offline_replicas=[r for r in replicas if not context.is_online(r, tp)],
        )

    def _build_stop(self, broker: int, stops: dict[TopicPartition, tuple[int, bool]]) -> Outgoing:
        context = self._context
        message = StopReplicaRequest(
            controller_id=self._controller_id,
            is_kraft_controller=False,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker].epoch,
        )
        topics: dict[str, StopReplicaRequest.StopReplicaTopicState] = {}
        for tp, (epoch, delete) in stops.items():
            topic = topics.get(tp.topic)
            if topic is None:
                topic = StopReplicaRequest.StopReplicaTopicState(topic_name=tp.topic)
                topics[tp.topic] = topic
                message.topic_states.append(topic)
            topic.partition_states.append(
                StopReplicaRequest.StopReplicaPartitionState(
                    partition_index=tp.partition, leader_epoch=epoch, delete_partition=delete
                )
            )
        deletes = frozenset(tp for tp, (_, delete) in stops.items() if delete)
        return Outgoing(
            broker,
            STOP_REPLICA,
            STOP_REPLICA_VERSION,
            lambda: encode_request(message, STOP_REPLICA_VERSION),
            len(stops),
            f"{len(stops)} replicas, {len(deletes)} of them to delete",
            deletes,
        )


def _live_broker(broker: BrokerInfo) -> UpdateMetadataRequest.UpdateMetadataBroker:
    return UpdateMetadataRequest.UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataRequest.UpdateMetadataEndpoint(
                host=e.host,
                port=e.port,
                listener=e.listener,
                security_protocol=_SECURITY_PROTOCOLS.get(e.protocol, 0),
            )
            for e in broker.endpoints
        ],
        rack=broker.rack,
    )
