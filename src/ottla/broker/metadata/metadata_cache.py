"""Metadata cache: what the controller last sent this broker about the cluster.

Invariants: only `apply` changes it and only UpdateMetadata reaches `apply`; a snapshot is
immutable, so a reader that keeps one sees one cluster. Topics that an update does not name are
shared between snapshots, not copied. Kafka: `ZkMetadataCache`.
"""

import asyncio
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any

import msgspec

from ottla.model.cluster import BrokerInfo, Endpoint
from ottla.model.errors import WireError
from ottla.model.ids import NO_LEADER, ZERO_UUID, TopicPartition
from ottla.model.protocol import LEADER_DURING_DELETE
from ottla.model.steps import drain

NO_CONTROLLER = -1
SLICE = 512
"""Partitions taken in, or forgotten, before others may run."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Security protocols by their number on the wire."""


class PartitionState(msgspec.Struct, frozen=True, gc=False):
    """One partition as UpdateMetadata describes it.

    No dataclass: thousands are made in one step of the event loop, at a tenth of the cost.
    """

    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int


class TopicState(msgspec.Struct, frozen=True):
    """One topic: its id (`ZERO_UUID` where unknown) and its partitions by number, ascending."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionState]


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """The cluster at one moment. `brokers` are the live ones, by id, ascending."""

    controller_id: int = NO_CONTROLLER
    brokers: Mapping[int, BrokerInfo] = msgspec.field(default_factory=dict)
    topics: Mapping[str, TopicState] = msgspec.field(default_factory=dict)
    names_by_id: Mapping[bytes, str] = msgspec.field(default_factory=dict)
    _reachable: dict[str, frozenset[int]] = msgspec.field(default_factory=dict)
    """what `reachable` found before"""

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Return a live broker's address on a listener; None if it is dead or has no such one."""
        broker = self.brokers.get(broker_id)
        if broker is not None:
            for endpoint in broker.endpoints:
                if endpoint.listener == listener:
                    return endpoint
        return None

    def addresses(self, listener: str) -> Iterator[tuple[BrokerInfo, Endpoint]]:
        """Yield the live brokers that have this listener, each with its address on it."""
        for broker in self.brokers.values():
            endpoint = self.endpoint(broker.id, listener)
            if endpoint is not None:
                yield broker, endpoint

    def reachable(self, listener: str) -> frozenset[int]:
        """Return the live brokers that have this listener."""
        known = self._reachable.get(listener)
        if known is None:
            known = self._reachable[listener] = frozenset(
                broker.id for broker, _ in self.addresses(listener)
            )
        return known

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        state = self.topics.get(topic)
        return None if state is None else state.partitions.get(partition)


class Change(msgspec.Struct, frozen=True):
    """What one UpdateMetadata changed. `topics` are the names it touched, deleted ones included.

    `new_epochs`: it is the first one of its controller epoch for its broker epoch.
    """

    topics: tuple[str, ...]
    deleted: tuple[TopicPartition, ...]
    brokers_changed: bool
    new_epochs: bool = False


def _by_topic(request: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield (topic, partition states) in request order; a topic may come more than once."""
    for state in request.ungrouped_partition_states:
        yield state.topic_name, (state,)
    for topic in request.topic_states:
        if topic.partition_states:
            yield topic.topic_name, topic.partition_states
            topic.partition_states = ()


def _state(state: Any) -> PartitionState:
    return PartitionState(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        tuple(state.offline_replicas),
        state.zk_version,
        state.controller_epoch,
    )


def _live_broker(broker: Any) -> BrokerInfo:
    endpoints = []
    for e in broker.endpoints:
        if not 0 <= e.security_protocol < len(PROTOCOLS):
            raise WireError(f"broker {broker.id}: no security protocol {e.security_protocol}")
        protocol = PROTOCOLS[e.security_protocol]
        # Before version 3 there were no listener names; each protocol was one listener.
        endpoints.append(Endpoint(e.host, e.port, e.listener or protocol, protocol))
    if not endpoints and broker.v0_host:
        endpoints.append(Endpoint(broker.v0_host, broker.v0_port))
    return BrokerInfo(broker.id, tuple(endpoints), broker.rack)


def _by_id(live: Iterable[Any]) -> dict[int, BrokerInfo]:
    return {b.id: b for b in sorted(map(_live_broker, live), key=lambda b: b.id)}


class MetadataCache:
    """The current snapshot, and who wants to hear of changes."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.epochs = (0, -1)
        """The highest (controller epoch, broker epoch) of the updates that were applied."""
        self.taking_in = asyncio.Lock()
        """Held while an update is applied in slices: no other may be applied meanwhile."""
        self.expects_topics = False
        """Whether the cluster has topics that no controller has sent us yet."""
        self._live: Sequence[Any] = []
        """The live brokers of the last update, as it had them: most have the same."""
        self._listeners: list[Callable[[Change], None]] = []

    def on_change(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` after each update, in the order of registration; it must not raise."""
        self._listeners.append(listener)

    @property
    def ready(self) -> bool:
        """Whether a controller has sent us the live brokers: responses would be wrong before.

        A new controller tells all brokers first who is alive, and of topics only once it has
        elected leaders. A broker that knows no topic meanwhile would call each of them unknown.
        """
        return bool(self.snapshot.brokers) and not self.expects_topics

    def alone(self, broker_id: int) -> bool:
        """Return whether no other broker is alive."""
        return set(self.snapshot.brokers) <= {broker_id}

    async def wait_ready(self, timeout_s: float) -> bool:
        """Wait for the first word of a controller; tell whether it came in time."""
        return await self.wait_until(lambda: self.ready, timeout_s)

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until an update makes `condition` true; tell whether it became so in time."""
        true = asyncio.Event()

        def listener(_change: Change) -> None:
            if condition():
                true.set()

        if condition():
            return True
        self._listeners.append(listener)
        try:
            async with asyncio.timeout(timeout_s):
                await true.wait()
        except TimeoutError:
            return False
        finally:
            self._listeners.remove(listener)
        return True

    @property
    def controller_id(self) -> int:
        return self.snapshot.controller_id

    def contains(self, topic: str) -> bool:
        return topic in self.snapshot.topics

    def topic_id(self, topic: str) -> bytes:
        """Return a topic's id, `ZERO_UUID` where unknown."""
        state = self.snapshot.topics.get(topic)
        return ZERO_UUID if state is None else state.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.snapshot.names_by_id.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        return self.snapshot.partition(topic, partition)

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        return self.snapshot.endpoint(broker_id, listener)

    def rack(self, broker_id: int, listener: str) -> str | None:
        """Return the rack of a live broker that has this listener; None without either."""
        known = self.snapshot
        return (
            None if known.endpoint(broker_id, listener) is None else known.brokers[broker_id].rack
        )

    def has_leaders(self, topic: str, partitions: int) -> bool:
        """Return whether partitions 0..n-1 of a topic all have a leader that we know of."""
        state = self.snapshot.topics.get(topic)
        return state is not None and all(
            p in state.partitions and state.partitions[p].leader != NO_LEADER
            for p in range(partitions)
        )

    def unchanged(self, known: Iterable[TopicState]) -> list[str]:
        """Return the names of those of `known` of which no controller said anything since."""
        topics = self.snapshot.topics
        return [topic.name for topic in known if topics.get(topic.name) is topic]

    def forget(self, gone: Collection[str]) -> None:
        """Drop topics that were deleted while no controller could tell us."""
        old = self.snapshot
        gone = [topic for topic in gone if topic in old.topics]
        if not gone:
            return
        topics = {name: state for name, state in old.topics.items() if name not in gone}
        names = {i: name for i, name in old.names_by_id.items() if name not in gone}
        deleted = [TopicPartition(t, p) for t in gone for p in old.topics[t].partitions]
        self.snapshot = Snapshot(old.controller_id, old.brokers, topics, names)
        change = Change(tuple(gone), tuple(deleted), brokers_changed=False)
        for listener in self._listeners:
            listener(change)

    def apply(self, request: Any) -> Change:
        """Take in an UpdateMetadata request whose epochs were found good."""
        return drain(self.apply_in_slices(request))

    def apply_in_slices(self, request: Any) -> Generator[None, None, Change]:
        """Do the same, but yield now and then; the snapshot changes once.

        The request is emptied on the way, as thousands of objects take their time to go, too.
        """
        old = self.snapshot
        live = request.live_brokers
        brokers = old.brokers if live == self._live else _by_id(live)
        topics = dict(old.topics)
        names = dict(old.names_by_id)
        touched: dict[str, dict[int, PartitionState]] = {}
        ids: dict[str, bytes] = {t.topic_name: bytes(t.topic_id) for t in request.topic_states}
        deleted: dict[TopicPartition, None] = {}
        count = 0
        for topic, states in _by_topic(request):
            partitions = touched.get(topic)
            if partitions is None:
                known = topics.get(topic)
                if known is not None and known.topic_id != ids.get(topic, known.topic_id):
                    known = None  # another topic of that name: nothing of the old one is true of it
                partitions = touched[topic] = {} if known is None else dict(known.partitions)
            for state in states:
                index = state.partition_index
                if state.leader == LEADER_DURING_DELETE:
                    partitions.pop(index, None)
                    deleted[TopicPartition(topic, index)] = None
                else:
                    partitions[index] = _state(state)
                    if deleted:
                        deleted.pop(TopicPartition(topic, index), None)
                count += 1
                if count >= SLICE:
                    count = 0
                    yield
        replaced: list[TopicState] = []
        for topic, partitions in touched.items():
            known = topics.pop(topic, None)
            if known is not None:
                replaced.append(known)
                if names.get(known.topic_id) == topic:
                    del names[known.topic_id]
            if partitions:
                topic_id = ids.get(topic, known.topic_id if known else ZERO_UUID)
                topics[topic] = TopicState(topic, topic_id, _sorted(partitions))
                if topic_id != ZERO_UUID:
                    names[topic_id] = topic
            count += len(partitions)
            if count >= SLICE:
                count = 0
                yield
        if self.snapshot is not old:  # topics were forgotten meanwhile, and stay so
            for topic in old.topics.keys() - self.snapshot.topics.keys() - touched.keys():
                names.pop(topics.pop(topic).topic_id, None)
        self.snapshot = Snapshot(request.controller_id, brokers, topics, names)
        self._live = live
        epochs = (request.controller_epoch, request.broker_epoch)
        new_epochs = epochs > self.epochs
        self.epochs = max(self.epochs, epochs)
        if touched:
            self.expects_topics = False
        change = Change(
            tuple(touched), tuple(deleted), brokers != old.brokers, new_epochs=new_epochs
        )
        del old
        for listener in self._listeners:
            listener(change)
        while replaced:
            count += len(replaced.pop().partitions)
            if count >= SLICE:
                count = 0
                yield
        return change


def _sorted(partitions: dict[int, PartitionState]) -> dict[int, PartitionState]:
    """Return them by number, ascending; a controller names them so, as a rule."""
    numbers = list(partitions)
    return partitions if numbers == sorted(numbers) else dict(sorted(partitions.items()))
