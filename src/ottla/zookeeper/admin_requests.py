"""Requests to the controller that tools write into /admin: reassignments, preferred elections.

Invariant: a malformed znode is reported and read as absent, never a crash (F41). Kafka: these parts
of `KafkaZkClient`.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.model.ids import TopicPartition
from ottla.zookeeper import znodes
from ottla.zookeeper.access import Part
from ottla.zookeeper.errors import NoNodeError
from ottla.zookeeper.operations import Create, Set
from ottla.zookeeper.watches import WatchCallback


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
