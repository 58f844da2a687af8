"""Topic creation: from a request to the two znodes, checked as the JVM checks it.

Invariants: the config node is written before the topic node, whose appearance is what the
controller acts on; a topic is created by one coroutine at a time on this broker, and by the first
of them in the cluster (the znode decides). Kafka: `ZkAdminManager.createTopics`, `AdminZkClient`
and `AutoTopicCreationManager`.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

import msgspec

from ottla.broker.current_session import CurrentSession
from ottla.broker.metadata.metadata_cache import Change, MetadataCache
from ottla.broker.quotas.controller_mutation_quota import Charge
from ottla.model.cluster import ReplicaAssignment, TopicInfo
from ottla.model.config import BrokerConfig
from ottla.model.errors import (
    ErrorCode,
    InvalidReplicaAssignmentError,
    InvalidTopicError,
    OttlaError,
    PolicyViolationError,
    TopicExistsError,
)
from ottla.model.ids import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    is_usable_uuid,
    topic_name_problem,
    topics_collide,
)
from ottla.model.ports import World
from ottla.placement.assignment import BrokerRack, assign_replicas
from ottla.zookeeper.errors import NodeExistsError

logger = logging.getLogger(__name__)

METADATA_TOPIC = "__cluster_metadata"
MAX_NEW_PARTITIONS = 10_000
"""In one go, as in KRaft mode; a JVM broker in ZooKeeper mode runs out of memory instead."""


def check_number(partitions: int) -> None:
    """Raise PolicyViolationError for a number that would take this broker's memory."""
    if partitions > MAX_NEW_PARTITIONS:
        raise PolicyViolationError(
            f"Unable to perform excessively large batch operation: {partitions} partitions; "
            f"at most {MAX_NEW_PARTITIONS} at a time."
        )


class NewTopic(msgspec.Struct, frozen=True):
    """A requested topic. `assignments`: manual ones; empty where brokers are to be chosen."""

    name: str
    partitions: int
    replication_factor: int
    assignments: Mapping[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)


class CreatedTopic(msgspec.Struct, frozen=True):
    """A topic that is now in ZooKeeper, or would be (`topic_id` None: only validated)."""

    name: str
    topic_id: bytes | None
    assignment: Mapping[int, tuple[int, ...]]


def check_assignment(assignment: Mapping[int, tuple[int, ...]]) -> None:
    """Raise unless partitions are 0..n-1 and have equally many, distinct replicas."""
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        raise InvalidReplicaAssignmentError(
            "All partitions should have the same number of replicas"
        )
    for partition, replicas in assignment.items():
        if not replicas:
            raise InvalidReplicaAssignmentError(f"partition {partition} has no replicas")
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignmentError(
                f"Duplicate replica assignment found: partition {partition} on {list(replicas)}"
            )
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidReplicaAssignmentError(
            "partitions should be a consecutive 0-based integer sequence"
        )


class TopicCreation:
    """Creates topics and waits for their leaders."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        metadata: MetadataCache,
        session: CurrentSession,
    ) -> None:
        self._world = world
        self._config = config
        self._metadata = metadata
        self._session = session
        self._in_flight: dict[str, None] = {}
        self._waiting: dict[str, list[asyncio.Event]] = {}
        metadata.on_change(self._changed)

    async def create(
        self, topic: NewTopic, *, validate_only: bool = False, charge: Charge | None = None
    ) -> CreatedTopic:
        """Check a topic and write it; OttlaError with the code clients know otherwise.

        `charge` is called with the partitions, once they are valid, before anything is written.
        """
        if self._metadata.contains(topic.name):
            raise TopicExistsError(f"Topic '{topic.name}' already exists.")
        check_number(len(topic.assignments) or topic.partitions)
        assignment = dict(topic.assignments) or self._place(topic)
        await self._check_name(topic.name)
        check_assignment(assignment)
        self._config.checked_topic_config(topic.configs)
        if validate_only:
            return CreatedTopic(topic.name, None, assignment)
        if charge is not None:
            charge(len(assignment))
        topic_id = self._new_id()
        store = self._session.store
        await store.configs.set("topics", topic.name, dict(topic.configs))
        try:
            await store.topics.create(
                TopicInfo(
                    topic.name,
                    topic_id,
                    {p: ReplicaAssignment(replicas) for p, replicas in assignment.items()},
                )
            )
        except NodeExistsError:
            raise TopicExistsError(f"Topic '{topic.name}' already exists.") from None
        logger.info(
            "topic created topic=%s partitions=%d configs=%s",
            topic.name,
            len(assignment),
            dict(topic.configs),
        )
        return CreatedTopic(topic.name, topic_id, assignment)

    def _new_id(self) -> bytes:
        while True:
            raw = self._world.random.randbytes(16)
            if is_usable_uuid(raw):
                return raw

    def _place(self, topic: NewTopic) -> dict[int, tuple[int, ...]]:
        brokers = [BrokerRack(b.id, b.rack) for b in self._metadata.snapshot.brokers.values()]
        return assign_replicas(
            brokers, topic.partitions, topic.replication_factor, random=self._world.random
        )

    async def _check_name(self, name: str) -> None:
        problem = topic_name_problem(name)
        if problem is not None:
            raise InvalidTopicError(f"Topic name is invalid: {problem}")
        store = self._session.store
        if await store.topics.is_deletion_requested(name):
            raise TopicExistsError(f"Topic '{name}' is marked for deletion.")
        topics = await store.topics.get_names()
        if name in topics:
            raise TopicExistsError(f"Topic '{name}' already exists.")
        if "." in name or "_" in name:
            alike = sorted(t for t in topics if topics_collide(name, t))
            if alike:
                raise InvalidTopicError(
                    f"Topic '{name}' collides with existing topics: {', '.join(alike)}"
                )

    async def wait_for_leaders(self, wanted: Mapping[str, int], timeout_ms: int) -> set[str]:
        """Wait until topics have a leader for each of their partitions; return those that lack one.

        `wanted` maps a topic to its number of partitions.
        """
        event = asyncio.Event()
        for name in wanted:
            self._waiting.setdefault(name, []).append(event)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while missing := self._leaderless(wanted):
                    event.clear()
                    await event.wait()
        except TimeoutError:
            missing = self._leaderless(wanted)
        finally:
            for name in wanted:
                self._waiting[name].remove(event)
                if not self._waiting[name]:
                    del self._waiting[name]
        return missing

    def _leaderless(self, wanted: Mapping[str, int]) -> set[str]:
        return {n for n, count in wanted.items() if not self._metadata.has_leaders(n, count)}

    def _changed(self, change: Change) -> None:
        if self._waiting:
            for topic in change.topics:
                for event in self._waiting.get(topic, ()):
                    event.set()

    def defaults_for(self, name: str) -> NewTopic:
        """Return what a topic is like that comes into being by being asked for."""
        number = self._config.integer
        if name == GROUP_METADATA_TOPIC:
            return NewTopic(
                name,
                number("offsets.topic.num.partitions"),
                number("offsets.topic.replication.factor"),
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(number("offsets.topic.segment.bytes")),
                },
            )
        if name == TRANSACTION_STATE_TOPIC:
            return NewTopic(
                name,
                number("transaction.state.log.num.partitions"),
                number("transaction.state.log.replication.factor"),
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(number("transaction.state.log.min.isr")),
                    "segment.bytes": str(number("transaction.state.log.segment.bytes")),
                    "unclean.leader.election.enable": "false",
                },
            )
        return NewTopic(name, number("num.partitions"), number("default.replication.factor"))

    async def auto_create(
        self, names: Iterable[str], charge: Charge | None = None
    ) -> dict[str, ErrorCode]:
        """Create topics by asking for them; return what Metadata says of each this time.

        LEADER_NOT_AVAILABLE means that the topic is there and the client is to ask again.
        """
        responses: dict[str, ErrorCode] = {}
        for name in names:
            if topic_name_problem(name) is not None:
                responses[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif name in self._in_flight:
                responses[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                self._in_flight[name] = None
                try:
                    await self.create(self.defaults_for(name), charge=charge)
                    responses[name] = ErrorCode.LEADER_NOT_AVAILABLE
                except TopicExistsError:
                    responses[name] = ErrorCode.LEADER_NOT_AVAILABLE
                except OttlaError as error:
                    logger.info("topic not created topic=%s error=%s", name, error)
                    responses[name] = error.code
                finally:
                    del self._in_flight[name]
        return responses
