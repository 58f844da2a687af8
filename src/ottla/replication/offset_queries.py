"""ListOffsets between brokers: where another replica's log begins or ends.

Replicas get log ends, consumers high watermarks: the replica id in the request decides. Kafka: the
offset queries of `RemoteLeaderEndPoint`.
"""

from collections.abc import Iterable

from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.net.peer import PeerConnection
from ottla.wire.messages.records import ListOffsetsRequest

MOST_AT_ONCE = 500
"""Partitions in one request, so that neither side works on it for long."""

OffsetResults = dict[TopicPartition, tuple[ErrorCode, int]]
"""What was answered: an error, or NONE and an offset."""


async def query_offsets(
    peer: PeerConnection,
    version: int,
    timeout_s: float,
    replica_id: int,
    wanted: Iterable[tuple[TopicPartition, int]],
    timestamp: int,
) -> OffsetResults:
    """Ask for LATEST or EARLIEST of (partition, current leader epoch or -1) pairs.

    `replica_id`: a broker's own id asks a leader, -2 (debugging replica) asks any replica.
    A partition without a response is missing in the result; ConnectionLostError if none came.
    """
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for tp, leader_epoch in wanted:
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = ListOffsetsRequest.ListOffsetsTopic(name=tp.topic)
        topic.partitions.append(
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=leader_epoch,
                timestamp=timestamp,
            )
        )
    request = ListOffsetsRequest(replica_id=replica_id, topics=list(topics.values()))
    response = await peer.send(request, version, timeout_s)
    return {
        TopicPartition(topic.name, item.partition_index): (
            ErrorCode(item.error_code),
            int(item.offset),
        )
        for topic in response.topics
        for item in topic.partitions
    }


def offset_or_raise(results: OffsetResults, tp: TopicPartition) -> int:
    """Return the offset of a partition; OttlaError with the code that came instead."""
    if tp not in results:
        raise OttlaError(f"{tp}: no offset in the response")
    code, offset = results[tp]
    if code:
        raise OttlaError(f"{tp}: {code.name}", code)
    if offset < 0:
        raise OttlaError(f"{tp}: {offset} is no offset")
    return offset
