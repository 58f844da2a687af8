"""A worker in the manner of Faust, made with aiokafka: it counts clicks exactly once.

The worker reads clicks, adds them up, and writes the counts and its own position in one
transaction. Brokers fail meanwhile; the counts are right.
"""

import asyncio
import contextlib
from collections import Counter

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

import ottla
from ottla.testing.chaos import Chaos

PAGES = 4


async def count_clicks(bootstrap: str) -> None:
    """Stand for your application: from topic `clicks` to topic `counts`, until cancelled."""
    consumer = AIOKafkaConsumer(
        "clicks",
        bootstrap_servers=bootstrap,
        group_id="counter",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="counter")
    async with consumer, producer:
        while True:
            batches = await consumer.getmany(timeout_ms=200, max_records=20)
            if not batches:
                continue
            async with producer.transaction():
                offsets: dict[TopicPartition, int] = {}
                for partition, messages in batches.items():
                    for message in messages:
                        await producer.send("counts", b"1", key=message.key)
                    offsets[partition] = messages[-1].offset + 1
                await producer.send_offsets_to_transaction(offsets, "counter")


async def supervise(bootstrap: str) -> None:
    """Start the worker again when an error ends it, as an operating system does."""
    while True:
        with contextlib.suppress(KafkaError):
            await count_clicks(bootstrap)
        await asyncio.sleep(0.2)


async def send_clicks(bootstrap: str, chaos: Chaos) -> int:
    """Click each page equally often until each fault has happened; return how many clicks."""
    clicks = 0
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        while chaos.pending or clicks % PAGES:
            await producer.send_and_wait("clicks", b"click", key=b"page-%d" % (clicks % PAGES))
            clicks += 1
            await asyncio.sleep(0.005)
    return clicks


async def read_counts(bootstrap: str, clicks: int) -> Counter[bytes]:
    """Read committed counts until as many as clicks are there, and for a moment longer."""
    counts: Counter[bytes] = Counter()
    consumer = AIOKafkaConsumer(
        "counts",
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with consumer:
        loop = asyncio.get_running_loop()
        until = loop.time() + 60
        while loop.time() < until:
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                counts.update(message.key for message in messages)
            if counts.total() >= clicks:
                until = min(until, loop.time() + 1)
    return counts


def test_clicks_are_counted_exactly_once() -> None:
    async def main() -> None:
        async with ottla.Cluster(brokers=3, in_process=True) as cluster:
            await cluster.create_topic("clicks", partitions=2)
            await cluster.create_topic("counts", partitions=2)
            worker = asyncio.create_task(supervise(cluster.bootstrap))
            chaos = Chaos(cluster)
            async with chaos.during("kill_leader", "pause_leader", longest_s=0.5):
                clicks = await send_clicks(cluster.bootstrap, chaos)
            counts = await read_counts(cluster.bootstrap, clicks)
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker
        assert counts == {b"page-%d" % page: clicks // PAGES for page in range(PAGES)}

    asyncio.run(main())
