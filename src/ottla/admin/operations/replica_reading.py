"""One replica read over the wire: its batches, its offsets, and where two replicas part.

Read by Fetch and ListOffsets with the replica id of the debugging consumer, to which followers
respond, those of Apache Kafka too.
"""

from ottla.admin.operations.replica_comparison import batches_of
from ottla.client.client import Client
from ottla.client.error_texts import failure
from ottla.client.offsets import list_offsets_request
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import DEBUGGING_CONSUMER, EARLIEST
from ottla.wire.messages.records import FetchRequest

VERSION = 12
"""The last one with topic names; known to every broker of 2.7 and later."""
ONE_BATCH = 1
"""A fetch of so many bytes is answered with one batch."""


async def read_bytes(
    client: Client,
    tp: TopicPartition,
    broker: int,
    offset: int,
    fetch_size: int,
    max_wait_ms: int = 0,
) -> bytes:
    """Return batches that a replica has, from the one that holds an offset on.

    The last one may be cut off, the first is whole.
    """
    r = FetchRequest
    request = r(
        replica_id=DEBUGGING_CONSUMER,
        max_wait_ms=max_wait_ms,
        min_bytes=1 if max_wait_ms else 0,
        max_bytes=fetch_size,
        topics=[
            r.FetchTopic(
                topic=tp.topic,
                partitions=[
                    r.FetchPartition(
                        partition=tp.partition, fetch_offset=offset, partition_max_bytes=fetch_size
                    )
                ],
            )
        ],
    )
    response = await client.call(request, broker, version=VERSION)
    found = response.responses[0].partitions[0]
    if found.error_code:
        raise failure(f"offset {offset} was not read", found.error_code)
    return bytes(found.records or b"")


async def read_offset(
    client: Client, tp: TopicPartition, broker: int, timestamp: int, *, of_consumer: bool = False
) -> int:
    """Return a replica's offset for a time, EARLIEST or LATEST.

    LATEST is the end of its log; `of_consumer`: of a leader, and LATEST the high watermark.
    """
    request = list_offsets_request([tp], timestamp)
    if not of_consumer:
        request.replica_id = DEBUGGING_CONSUMER
    found = (await client.call(request, broker)).topics[0].partitions[0]
    if found.error_code:
        raise failure("its offsets were not read", found.error_code)
    return int(found.offset)


async def first_difference(
    client: Client, tp: TopicPartition, one: int, other: int, end: int
) -> int:
    """Return the first offset below `end` at which two replicas have not the same, or `end`.

    Two logs with the same batch of the same leader epoch are the same before it, so halving finds
    it. OttlaError if a replica cannot be read.
    """
    low = max([await read_offset(client, tp, broker, EARLIEST) for broker in (one, other)])
    high = end
    while low < high:
        middle = (low + high) // 2
        first, second = [
            batches_of(await read_bytes(client, tp, broker, middle, ONE_BATCH))[:1]
            for broker in (one, other)
        ]
        if not first or not second:
            raise OttlaError(f"{tp}: offset {middle} was not sent")
        a, b = first[0], second[0]
        if (a.base, a.last, a.crc, a.epoch) == (b.base, b.last, b.crc, b.epoch):
            low = a.last + 1
        else:
            high = min(a.base, b.base)
    return min(low, end)
