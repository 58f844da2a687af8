"""The partitions of a Metadata response, each by its name."""

from collections.abc import Iterator

from ottla.model.ids import TopicPartition
from ottla.wire.messages.cluster import MetadataResponse


def partitions_of(
    response: MetadataResponse,
) -> Iterator[tuple[TopicPartition, MetadataResponse.MetadataResponsePartition]]:
    """Yield every partition with what the response says of it, in the response's order."""
    for topic in response.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name or "", partition.partition_index), partition
