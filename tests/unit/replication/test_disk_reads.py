"""Records that only the disk has: workers bring them, and no other request waits for them."""

import asyncio
import errno
import gc
import random

import pytest

from ottla.log.segment import MOST_AT_ONCE
from ottla.replication.fetching import DelayedFetch
from ottla.wire.records import iter_batches

ONE = {"brokers": 1}


async def two_partitions(c):
    """Partition 0 with records that only the file has, partition 1 with some in the tail cache."""
    for index in (0, 1):
        await c.controller.lead(1, replicas=[1], new=True, index=index)
        await c.produce(1, "a", index=index)
    c[1].log(0).local.tail.clear()
    c[1].evict()


def values(response):
    """Return how many batches each partition's response holds."""
    return {
        p.partition_index: len(list(iter_batches(memoryview(p.records)))) if p.records else 0
        for topic in response.responses
        for p in topic.partitions
    }


def both(wired, **fields):
    request = wired.fetch_request(0, **fields)
    request.topics.append(wired.fetch_request(0, index=1).topics[0])
    return request


@pytest.mark.parametrize("max_wait_ms", [0, 300_000])
@pytest.mark.parametrize("min_bytes", [0, 1, 100_000])
def test_a_fetch_waits_for_a_worker_and_then_no_longer(wired, max_wait_ms, min_bytes):
    async def scenario(c):
        await two_partitions(c)
        began = c.now
        request = wired.fetch_request(0, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        assert values(await c[1].send(request, 17)) == {0: 1}
        assert c[1].files.prefetches == 1
        assert c.now - began < 1

    wired(scenario, **ONE)


def test_what_is_in_memory_does_not_wait_for_what_is_not(wired):
    async def scenario(c):
        await two_partitions(c)
        assert values(await c[1].send(both(wired), 17)) == {0: 0, 1: 1}
        assert values(await c[1].send(both(wired), 17)) == {0: 1, 1: 1}
        assert c[1].files.prefetches == 1

    wired(scenario, **ONE)


def test_an_incremental_session_gets_the_records_later(wired):
    async def scenario(c):
        await two_partitions(c)
        response = await c[1].send(both(wired, session_epoch=0), 17)
        assert values(response) == {0: 0, 1: 1}
        next_one = wired.fetch_request(0, session_id=response.session_id, session_epoch=1)
        next_one.topics = []
        assert values(await c[1].send(next_one, 17))[0] == 1

    wired(scenario, **ONE)


def test_what_left_memory_again_is_read_all_the_same(wired):
    async def scenario(c):
        await two_partitions(c)
        c[1].disk.chance, c[1].disk.evicted_share = random.Random(0), 1.0
        assert values(await c[1].send(wired.fetch_request(0), 17)) == {0: 1}

    wired(scenario, **ONE)


def test_what_several_wait_for_is_read_once(wired):
    async def scenario(c):
        await two_partitions(c)
        sent = [c[1].send(wired.fetch_request(0), 17) for _ in range(5)]
        assert [values(r) for r in await asyncio.gather(*sent)] == [{0: 1}] * 5
        assert c[1].files.prefetches < 5

    wired(scenario, **ONE)


def test_a_disk_that_fails_is_an_error_for_each_reader(wired, monkeypatch):
    async def scenario(c):
        await two_partitions(c)
        file = c[1].log(0).segments[0].file

        def broken(*_arguments):
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(file, "prefetch", broken)
        monkeypatch.setattr(file, "pread", broken)
        response = await c[1].send(wired.fetch_request(0), 17)
        assert response.responses[0].partitions[0].error_code == 56
        assert c[1].log(0).failed

    wired(scenario, **ONE)


def test_such_fetches_leave_no_work_for_the_cycle_collector(wired):
    async def scenario(c):
        await two_partitions(c)
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                c[1].evict()
                await c[1].send(both(wired), 12)
            c[1].replicas.purgatory._sweep()
            assert sum(isinstance(o, DelayedFetch) for o in gc.get_objects()) < 5
        finally:
            gc.enable()

    wired(scenario, **ONE)


def test_one_turn_reads_so_much_and_no_more(wired):
    """Even if it is all in memory and the client wants it: others want their turn."""

    async def scenario(c):
        await two_partitions(c)
        c[1].warm()
        for index in (0, 1):
            for _ in range(8):
                await c.produce(1, "x" * 900_000, index=index)
            c[1].log(index).local.tail.clear()
        everything = 1 << 30
        request = both(wired, max_bytes=everything, partition_max_bytes=everything)
        found = await c[1].send(request, 17)
        sizes = [len(p.records) for t in found.responses for p in t.partitions]
        assert MOST_AT_ONCE // 2 < sizes[0] <= MOST_AT_ONCE
        assert sum(sizes) <= 2 * MOST_AT_ONCE

    wired(scenario, **ONE)
