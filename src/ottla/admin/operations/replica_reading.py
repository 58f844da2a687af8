"""One replica read over the wire: its batches, its offsets, and where two replicas part.

Read by Fetch and ListOffsets with the replica id of the debugging consumer, to which followers
respond, those of Apache Kafka too.
"""

from ottla.admin.operations.replica_comparison import batches_of
from ottla.client.client import Client
from ottla.client.error_texts import failure
from ottla.client.fetching import fetch
from ottla.client.offsets import offsets_at
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import DEBUGGING_CONSUMER, EARLIEST

ONE_BATCH = 1
"""A fetch of so many bytes is answered with one batch."""


async def read_bytes(
    client: Client,
    tp: TopicPartition,
    broker: int,
    offset: int,
    fetch_size: int,
) -> bytes:
    """Return batches that a replica has, from the one that holds an offset on.

    The last one may be cut off, the first is whole.
    """
    answered = await fetch(
        client, broker, {tp: offset}, partition_bytes=fetch_size, replica_id=DEBUGGING_CONSUMER
    )
    _, found = answered[0]
    if found.error_code:
        raise failure(f"offset {offset} was not read", found.error_code)
    return bytes(found.records or b"")


async def first_difference(
    client: Client, tp: TopicPartition, one: int, other: int, end: int
) -> int:
    """Return the first offset below `end` at which two replicas have not the same, or `end`.

    Two logs with the same batch of the same leader epoch are the same before it, so halving finds
    it. OttlaError if a replica cannot be read.
    """
    low = 0
    for broker in (one, other):
        told, refused = await offsets_at(client, broker, {tp: EARLIEST})
        if tp in refused:
            raise refused[tp]
        low = max(low, told[tp].offset)
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
