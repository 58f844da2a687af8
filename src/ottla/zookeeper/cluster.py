"""The cluster: its id and top-level znodes, the features, and the numbers it hands out.

Invariants: features and blocks of producer ids are written by compare-and-swap. Kafka: these parts
of `KafkaZkClient` and `ZkProducerIdManager`.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.model.ids import TopicPartition
from ottla.zookeeper import znodes
from ottla.zookeeper.access import ANY_VERSION, Part
from ottla.zookeeper.errors import NoNodeError
from ottla.zookeeper.operations import Create, Set
from ottla.zookeeper.watches import WatchCallback
from ottla.zookeeper.znodes import Features, ProducerIdBlock


class AdminRequests(Part):
    """/admin/reassign_partitions and /admin/preferred_replica_election."""

    async def get_reassignment(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Return what /admin/reassign_partitions asks for; nothing if absent or malformed."""
        found = await self._zk.get_data_and_stat(znodes.REASSIGN_PARTITIONS)
        return (found and self._zk.decoded(znodes.decode_reassignment, found[0])) or {}

    async def create_reassignment(
        self, reassignment: Mapping[TopicPartition, Sequence[int]]
    ) -> None:
        data = znodes.encode_reassignment(reassignment)
        await self._zk.create_recursive(znodes.REASSIGN_PARTITIONS, data)

    async def set_reassignment(self, reassignment: Mapping[TopicPartition, Sequence[int]]) -> None:
        data = znodes.encode_reassignment(reassignment)
        path = znodes.REASSIGN_PARTITIONS
        try:
            await self._zk.write(Set(path, data))
        except NoNodeError:
            await self._zk.write(Create(path, data))

    async def delete_reassignment(self) -> None:
        paths = [znodes.REASSIGN_PARTITIONS]
        await self._zk.delete_paths(paths)

    async def is_reassigning(self, watch: WatchCallback | None = None) -> bool:
        return await self._zk.path_exists(znodes.REASSIGN_PARTITIONS, watch)

    async def get_preferred_election(self) -> list[TopicPartition]:
        """Return what the legacy znode asks for; nothing if absent or malformed."""
        found = await self._zk.get_data_and_stat(znodes.PREFERRED_REPLICA_ELECTION)
        return (found and self._zk.decoded(znodes.decode_preferred_election, found[0])) or []

    async def create_preferred_election(self, partitions: Iterable[TopicPartition]) -> None:
        data = znodes.encode_preferred_election(partitions)
        await self._zk.create_recursive(znodes.PREFERRED_REPLICA_ELECTION, data)

    async def delete_preferred_election(self) -> None:
        paths = [znodes.PREFERRED_REPLICA_ELECTION]
        await self._zk.delete_paths(paths)


class Cluster(Part):
    """What there is once in a cluster."""

    async def create_top_level_paths(self) -> None:
        """Create what every broker creates at its start, in one round trip."""
        await self._zk.create_missing(znodes.with_parents(znodes.PERSISTENT_PATHS))

    async def get_id(self) -> str | None:
        found = await self._zk.get_data_and_stat(znodes.CLUSTER_ID)
        return None if found is None else znodes.decode_cluster_id(found[0])

    async def create_or_get_id(self, proposed: str) -> str:
        """Return the cluster's id: the proposed one if there was none."""
        data = znodes.encode_cluster_id(proposed)
        await self._zk.create_recursive(znodes.CLUSTER_ID, data, fail_if_exists=False)
        cluster_id = await self.get_id()
        if cluster_id is None:
            raise NoNodeError(path=znodes.CLUSTER_ID)
        return cluster_id

    async def generate_broker_sequence_id(self) -> int:
        """Return a number no other broker was given; add reserved.broker.max.id to it."""
        session, path = self._zk.session, znodes.BROKER_SEQUENCE
        while True:
            try:
                return (await self._zk.read(lambda: session.set(path, b""))).version
            except NoNodeError:
                await self._zk.create_recursive(path, b"", fail_if_exists=False)

    # --- features ---------------------------------------------------------------------------

    async def get_features(self, watch: WatchCallback | None = None) -> tuple[Features, int] | None:
        """Return (features, version of the znode). `watch`: on creation, data and deletion."""
        if watch is not None:
            await self._zk.path_exists(znodes.FEATURE, watch)
        found = await self._zk.get_data_and_stat(znodes.FEATURE)
        return None if found is None else (znodes.decode_features(found[0]), found[1].version)

    async def get_or_create_features(self, initial: Features) -> tuple[Features, int]:
        """Return what /feature holds, creating it with `initial` if there is none."""
        while (found := await self.get_features()) is None:
            data = znodes.encode_features(initial)
            await self._zk.create_recursive(znodes.FEATURE, data, fail_if_exists=False)
        return found

    async def update_features(self, features: Features, expected_version: int = ANY_VERSION) -> int:
        """Replace /feature and return its new version; BadVersionError."""
        op = Set(znodes.FEATURE, znodes.encode_features(features), expected_version)
        stat = await self._zk.write(op)
        version: int = stat.version
        return version

    # --- producer ids -----------------------------------------------------------------------

    async def allocate_producer_ids(self, broker_id: int, size: int = 1000) -> ProducerIdBlock:
        """Take the next block of producer ids for a broker; safe against a lost reply."""
        path = znodes.PRODUCER_ID_BLOCK
        while True:
            data, version = await self._zk.get_data_and_version(path)
            first = znodes.decode_producer_id_block(data).last + 1 if data else 0
            block = ProducerIdBlock(broker_id, first, first + size - 1)
            new = znodes.encode_producer_id_block(block)
            if data is None:
                await self._zk.create_recursive(path, None, fail_if_exists=False)
            elif (await self._zk.conditional_update(path, new, version))[0]:
                return block
