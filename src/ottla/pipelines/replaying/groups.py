"""Committed offsets of a consumer group: read on the source, written on the target.

Invariants: offsets are written as a consumer without a group would, so that the coordinator refuses
them while the group has members there.
"""

from collections.abc import Mapping

from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.protocol import NO_GENERATION
from ottla.pipelines.replaying.coordinator import GROUP, Coordinator
from ottla.pipelines.source.cluster import Cluster
from ottla.wire.messages.groups import OffsetCommitRequest, OffsetFetchRequest

VERSION_OF_ONE_GROUP = 5
"""OffsetFetch of one group."""
VERSION_WITH_GENERATION = 6


def committed(cluster: Cluster, group: str, topic: str, partitions: list[int]) -> dict[int, int]:
    """Return what a group has committed of a topic's partitions; those without are left out."""
    request = OffsetFetchRequest(
        group_id=group,
        topics=[
            OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)
        ],
    )
    response = cluster.run(
        Coordinator(cluster, group, GROUP).ask(
            request, lambda found: int(found.error_code), version=VERSION_OF_ONE_GROUP
        )
    )
    return {
        one.partition_index: one.committed_offset
        for found in response.topics
        for one in found.partitions
        if one.committed_offset >= 0 and not one.error_code
    }


def commit(cluster: Cluster, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit offsets for a group; OttlaError if it has members."""
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        for partition, offset in sorted(offsets.items())
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=NO_GENERATION,
        member_id="",
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )

    def code_of(response: object) -> int:
        codes = [
            int(one.error_code)
            for found in getattr(response, "topics", ())
            for one in found.partitions
        ]
        return next((code for code in codes if code), 0)

    try:
        cluster.run(
            Coordinator(cluster, group, GROUP).ask(
                request, code_of, version=VERSION_WITH_GENERATION
            )
        )
    except OttlaError as error:
        if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            raise OttlaError(
                f"group {group} has members on the target: stop them, then commit its offsets"
            ) from None
        raise
