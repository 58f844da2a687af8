"""Reading from leaders, beside a cluster of plain values."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.client.consumer import Consumer
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.net import runtime
from ottla.wire.records import Record, build_batch
from support.fake_client import FakeClient

TOPIC_ID = bytes(range(16))


class _Cluster(FakeClient):
    """Partition 0 has no leader, partition 1 is led by broker 1 and has records."""

    def __init__(self, values):
        batch = build_batch([Record(timestamp=1, value=v) for v in values], base_offset=0)
        self._data = memoryview(bytes(batch))

    async def metadata(self, _topics):
        return None

    async def leader(self, topic, partition, *, refresh=False):
        if partition == 0:
            raise OttlaError(f"{topic}-0 has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return 1

    async def call(self, request, broker, **_how):
        assert broker == 1
        asked = [p.partition for t in request.topics for p in t.partitions]
        assert asked == [1]
        answer = SimpleNamespace(
            partition_index=1, error_code=0, records=self._data, aborted_transactions=None
        )
        topic = SimpleNamespace(topic="t", topic_id=TOPIC_ID, partitions=[answer])
        return SimpleNamespace(error_code=0, responses=[topic])


def test_a_partition_without_a_leader_holds_no_other_back():
    found = []
    cluster = _Cluster([b"a", b"b"])

    def sink(tp, record):
        found.append((tp, bytes(record.value)))
        return len(found) < 2

    async def read():
        reader = Consumer(cluster, {"t": TOPIC_ID})
        for partition in (0, 1):
            reader.start_at_offset(TopicPartition("t", partition), 0)
        async with asyncio.timeout(5):
            await reader.read(sink, None)

    runtime.run(read)
    assert found == [(TopicPartition("t", 1), b"a"), (TopicPartition("t", 1), b"b")]
    assert cluster.said == ["waiting: t-0 has no leader"]


class _Leaders(FakeClient):
    """Each partition is led by a broker of its own number; all respond at the same moment."""

    def __init__(self, partitions):
        batch = build_batch([Record(timestamp=1, value=v) for v in (b"a", b"b")], base_offset=0)
        self._data = memoryview(bytes(batch))
        self._all = asyncio.Barrier(partitions)

    async def leader(self, _topic, partition, *, refresh=False):
        return partition

    async def call(self, _request, broker, **_how):
        await self._all.wait()
        answer = SimpleNamespace(
            partition_index=broker, error_code=0, records=self._data, aborted_transactions=None
        )
        topic = SimpleNamespace(topic="t", topic_id=TOPIC_ID, partitions=[answer])
        return SimpleNamespace(error_code=0, responses=[topic])


@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_no_record_comes_after_the_last_one_that_was_wanted(wanted):
    found = []

    def sink(tp, record):
        found.append((tp, bytes(record.value)))
        return len(found) < wanted

    async def read():
        reader = Consumer(_Leaders(3), {"t": TOPIC_ID})
        for partition in range(3):
            reader.start_at_offset(TopicPartition("t", partition), 0)
        async with asyncio.timeout(5):
            await reader.read(sink, None)
        return reader.positions

    positions = runtime.run(read)
    assert len(found) == wanted
    for tp, position in positions.items():
        assert position == sum(given == tp for given, _ in found)
