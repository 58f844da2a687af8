"""The partitions of a Metadata response, each by its name."""

from collections.abc import Iterable, Iterator
from typing import Self

from msgspec import Struct

from ottla.model.ids import TopicPartition
from ottla.wire.messages.metadata import MetadataResponse


class Partition(Struct, frozen=True, order=True):
    """A partition as JSON names it."""

    topic: str
    partition: int

    @classmethod
    def all(cls, partitions: Iterable[TopicPartition]) -> list[Self]:
        return [cls(*tp) for tp in partitions]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def partitions_of(
    response: MetadataResponse,
) -> Iterator[tuple[TopicPartition, MetadataResponse.MetadataResponsePartition]]:
    """Yield every partition with what the response says of it, in the response's order."""
    for topic in response.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name or "", partition.partition_index), partition
