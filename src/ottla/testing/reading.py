"""Reading: all records of some topics, by a reader that is not the application's.

Invariants: what is read is what was there at the beginning; bounded.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from ottla.client.client import Client
from ottla.client.consumer import Consumer
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.ports import Files
from ottla.model.protocol import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from ottla.net.runtime import real_world
from ottla.testing.checking import Found
from ottla.wire.records import Record

__tracebackhide__ = True


def read_back(
    bootstrap: str, topics: Sequence[str], *, committed: bool, timeout_s: float
) -> list[Found]:
    """Return all records of these topics, by partition in the order of their offsets.

    `committed`: without those of transactions that were aborted or are open. A loop may run in the
    caller's thread.
    """

    async def bounded() -> list[Found]:
        try:
            async with asyncio.timeout(timeout_s):
                return await _read(bootstrap, topics, committed=committed)
        except TimeoutError:
            names = ", ".join(topics)
            raise OttlaError(f"{names} could not be read within {timeout_s:g} s") from None

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(bounded())).result()


async def _read(bootstrap: str, topics: Sequence[str], *, committed: bool) -> list[Found]:
    world = real_world(cast("Files", None))
    client = Client(world, bootstrap, "ottla-checker")
    found: list[Found] = []

    def take(tp: TopicPartition, record: Record) -> bool:
        value = None if record.value is None else bytes(record.value)
        key = None if record.key is None else bytes(record.key)
        found.append(Found(tp.topic, tp.partition, record.offset, key, value))
        return True

    try:
        metadata = await client.metadata(topics)
        ids = {str(topic.name): topic.topic_id for topic in metadata.topics}
        partitions = [
            TopicPartition(str(topic.name), part.partition_index)
            for topic in metadata.topics
            for part in topic.partitions
        ]
        missing = sorted(set(topics) - {tp.topic for tp in partitions})
        if missing:
            raise OttlaError(f"no such topic: {', '.join(missing)}")
        reader = Consumer(client, ids, isolation=READ_COMMITTED if committed else READ_UNCOMMITTED)
        ends = await reader.offsets(partitions, LATEST)
        await reader.start_at(partitions, EARLIEST)
        for tp, end in ends.items():
            reader.stop_at_offset(tp, end)
        await reader.read(take, None)
    finally:
        await client.close()
    return sorted(found, key=lambda one: (one.topic, one.partition, one.offset))
