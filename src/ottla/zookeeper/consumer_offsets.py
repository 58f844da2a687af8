"""Consumers' offsets in ZooKeeper, from the time before group coordinators.

OffsetCommit and OffsetFetch 0 keep them under /consumers. Kafka: the consumer-offset part of
`KafkaZkClient`.
"""

from ottla.model.ids import TopicPartition
from ottla.zookeeper import znodes
from ottla.zookeeper.access import Part
from ottla.zookeeper.errors import MalformedZnodeError


class ConsumerOffsets(Part):
    """/consumers, by group and partition."""

    async def get(self, group: str, tp: TopicPartition) -> int | None:
        """Return what OffsetCommit 0 wrote; None if there is nothing, or nothing readable."""
        path = znodes.consumer_offset_path(group, tp)
        found = await self._zk.get_data_and_stat(path)
        if found is None:
            return None
        try:
            return int(found[0])
        except ValueError:
            self._zk.ignore(MalformedZnodeError(path, "not a number"))
            return None

    async def set(self, group: str, tp: TopicPartition, offset: int) -> None:
        """Write an offset as OffsetCommit 0 wants it; the last writer wins."""
        await self._zk.set_or_create(znodes.consumer_offset_path(group, tp), str(offset).encode())
