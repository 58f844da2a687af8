"""Coordination: this broker's coordinators, and the events of the broker that they need.

Invariants: the number of an internal topic's partitions is read from its znode when this broker
first learns of the topic; before it exists it is the configured one: every broker must map a group
to the same partition. Kafka: `RequestHandlerHelper.onLeadershipChange`, and `KafkaServer.startup`.
"""

import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ottla.broker.current_session import CurrentSession
from ottla.broker.metadata.metadata_cache import Change, MetadataCache
from ottla.broker.quotas.controller_mutation_quota import Charge
from ottla.broker.tasks import Tasks
from ottla.broker.topic_creation import TopicCreation
from ottla.coordinators.coordinator_log import CoordinatorLog
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.transaction_coordinator import (
    ProducerIdSource,
    TransactionCoordinator,
)
from ottla.coordinators.transaction_verifier import TransactionVerifier
from ottla.model.config import BrokerConfig
from ottla.model.errors import OttlaError
from ottla.model.ids import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.model.ports import World
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager
from ottla.security.client import ClientSecurity

if TYPE_CHECKING:
    from ottla.zookeeper.store import Store

logger = logging.getLogger(__name__)

GROUP_KEY, TRANSACTION_KEY = 0, 1
"""FindCoordinator's key types of a group id and of a transactional id."""


class Coordination:
    """The coordinators. `logs` maps FindCoordinator's key types to the logs that are served."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        creation: TopicCreation,
        tasks: Tasks,
        session: CurrentSession,
        producer_ids: ProducerIdSource,
        security: ClientSecurity | None = None,
    ) -> None:
        self._metadata = metadata
        self._creation = creation
        self._tasks = tasks
        self._session = session
        self._deletes_topics = config.flag("delete.topic.enable")
        self._default_counts = {
            GROUP_METADATA_TOPIC: config.integer("offsets.topic.num.partitions"),
            TRANSACTION_STATE_TOPIC: config.integer("transaction.state.log.num.partitions"),
        }
        self._counts: dict[str, int] = {}
        self._asking: dict[str, None] = {}
        self._creating: dict[str, None] = {}
        self.groups = GroupCoordinator(
            world, config, replicas, lambda: self.partition_count(GROUP_METADATA_TOPIC)
        )
        self.transactions = TransactionCoordinator(
            world,
            config,
            replicas,
            lambda: self.partition_count(TRANSACTION_STATE_TOPIC),
            metadata,
            producer_ids,
            self._deleted_of,
            security,
        )
        self.verifier = TransactionVerifier(world, config, metadata, self.transactions, security)
        self.logs: dict[int, CoordinatorLog] = {
            GROUP_KEY: self.groups.log,
            TRANSACTION_KEY: self.transactions.log,
        }
        self._by_topic = {log.topic: log for log in self.logs.values()}
        replicas.on_leadership = self._leadership_changed
        metadata.on_change(self._metadata_changed)

    async def start(self, store: "Store") -> None:
        """Learn how many partitions the internal topics have; before any request is served."""
        for topic, info in (await store.topics.get_many(list(self._by_topic))).items():
            if info is not None:
                self._counts[topic] = len(info.assignment)
        self.groups.start()
        self.transactions.start()

    async def close(self) -> None:
        await self.verifier.close()
        await self.transactions.close()
        await self.groups.close()

    # --- leadership and metadata ------------------------------------------------------------------

    def _leadership_changed(self, elected: list[Partition], resigned: list[Partition]) -> None:
        for partition in resigned:
            log = self._by_topic.get(partition.tp.topic)
            if log is not None:
                log.on_resigned(partition)
        for partition in elected:
            log = self._by_topic.get(partition.tp.topic)
            if log is not None:
                log.on_elected(partition)

    def _metadata_changed(self, change: Change) -> None:
        if change.deleted:
            self.groups.partitions_deleted(change.deleted)
        for topic in change.topics:
            if topic not in self._by_topic:
                continue
            if not self._metadata.contains(topic):
                self._counts.pop(topic, None)
            elif not (topic in self._counts or topic in self._asking or self._tasks.closed):
                self._asking[topic] = None
                self._tasks.start(self._ask_count(topic), f"count-{topic}")

    # --- internal topics --------------------------------------------------------------------------

    def partition_count(self, topic: str) -> int:
        return self._counts.get(topic) or self._default_counts[topic]

    async def _ask_count(self, topic: str) -> None:
        """Read an internal topic's partitions: metadata may name them in several updates."""
        try:
            info = await self._session.store.topics.get(topic)
            if info is not None:
                self._counts[topic] = len(info.assignment)
        except OttlaError as error:
            logger.warning("partitions not counted topic=%s error=%s", topic, error)
        finally:
            del self._asking[topic]

    # --- deleted topics ---------------------------------------------------------------------------

    async def _deleted_of(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return which partitions do not exist or belong to topics being deleted, by ZooKeeper.

        A deletion may wait long for a dead broker; no transaction is to wait for it.
        """
        store = self._session.store
        going = set(await store.topics.get_deletions() if self._deletes_topics else ())
        names = sorted({tp.topic for tp in partitions} - going)
        infos = await store.topics.get_many(names)
        # Malformed ones are not known either, but they exist.
        going |= {n for n in names if infos[n] is None and not await store.topics.exists(n)}
        return {
            tp
            for tp in partitions
            if tp.topic in going
            or ((info := infos[tp.topic]) is not None and tp.partition not in info.assignment)
        }

    def create(self, topics: Iterable[str], charge: Charge | None = None) -> None:
        """Create internal topics that are requested; returns before they are there."""
        for topic in topics:
            if topic in self._creating or self._tasks.closed or not self._metadata.ready:
                continue
            self._creating[topic] = None
            self._tasks.start(self._create(topic, charge), f"create-{topic}")

    async def _create(self, topic: str, charge: Charge | None) -> None:
        try:
            await self._creation.auto_create([topic], charge)
        finally:
            del self._creating[topic]
