"""Produce requests that take long to check: by a worker, in order, within a budget (R19, F35)."""

import asyncio
import functools

import pytest

from ottla.log import validate
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.net.connection import Connection
from ottla.net.peer import PeerConnection
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.records import Record, build_batch, iter_records

pytestmark = pytest.mark.timeout(110)

MIB = 1 << 20
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
PARTITIONS = 12


def produce_request(batches, acks=-1):
    p = ProduceRequest
    data = [p.PartitionProduceData(index=index, records=raw) for index, raw in batches]
    topic = p.TopicProduceData(name="t", partition_data=data)
    return p(acks=acks, timeout_ms=9000, topic_data=[topic])


@functools.cache
def bomb(codec, size=16 * MIB):
    return bytes(build_batch([Record(timestamp=1, value=bytes(size))], codec=CODECS[codec]))


def topic(scene, **settings):
    scene.up(1, **settings)
    r = CreateTopicsRequest
    wanted = r.CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
    assert scene.ask(1, r(topics=[wanted], timeout_ms=10_000), 7).topics[0].error_code == 0
    logs = scene.brokers["b1"].logs
    scene.wait(lambda: all(logs.get(TopicPartition("t", p)) for p in range(PARTITIONS)))
    return [logs.get(TopicPartition("t", p)) for p in range(PARTITIONS)]


def codes(answer):
    return [p.error_code for t in answer.responses for p in t.partition_responses]


@pytest.fixture
def decompressed_at_once(monkeypatch):
    """What one dispatched request decompresses before the loop goes on; a list of sums."""
    sums = [0]
    real, dispatch = validate.decompress, Connection._dispatch

    def counted(codec, data, most):
        try:
            found = real(codec, data, most)
        except Exception:
            sums[-1] += most
            raise
        sums[-1] += len(found)
        return found

    def dispatched(self, frame, *waited):
        sums.append(0)
        dispatch(self, frame, *waited)
        sums.append(0)

    monkeypatch.setattr(validate, "decompress", counted)
    monkeypatch.setattr(Connection, "_dispatch", dispatched)
    return sums


@pytest.mark.parametrize("codec", list(CODECS))
def test_many_bombs_in_one_request(scene, decompressed_at_once, codec):
    """F46: the loop decompresses a mebibyte of them, a worker the rest, up to the budget."""
    budget = {"ottla.produce.max.decompressed.bytes": str(100 * MIB)}
    logs = topic(scene, message_max_bytes=str(2 * MIB), **budget)
    decompressed_at_once[:] = [0]
    answer = scene.ask(1, produce_request([(p, bomb(codec)) for p in range(PARTITIONS)]), 9)
    during_dispatch = decompressed_at_once[1::2]
    assert max(during_dispatch) <= 2 * MIB
    taken = codes(answer).index(ErrorCode.MESSAGE_TOO_LARGE)
    # 100 MiB hold six batches of 16 MiB and a bit.
    assert taken == 6
    assert codes(answer) == [ErrorCode.NONE] * 6 + [ErrorCode.MESSAGE_TOO_LARGE] * (PARTITIONS - 6)
    assert [log.log_end_offset for log in logs] == [1] * 6 + [0] * (PARTITIONS - 6)
    # The broker serves on, and the next request has a budget of its own.
    assert codes(scene.ask(1, produce_request([(7, bomb(codec))]), 9)) == [ErrorCode.NONE]


def test_a_bomb_does_not_grow_on_disk(scene):
    """As Kafka: a batch that is too large in the topic's own codec is refused."""
    logs = topic(scene, compression_type="uncompressed")
    assert codes(scene.ask(1, produce_request([(0, bomb("zstd"))]), 9)) == [
        ErrorCode.MESSAGE_TOO_LARGE
    ]
    assert logs[0].log_end_offset == 0


def pipelined(scene, requests, version=9):
    """Send requests on one connection without waiting; return the responses in order."""
    node = scene.simulation.node("client")

    async def go():
        peer = await PeerConnection.open(node.world, "b1", 9092, "t", timeout_s=5)
        try:
            sent = [peer.send(message, version, 30.0) for message in requests]
            return await asyncio.gather(*sent)
        finally:
            peer.close()

    return node.call(go())


@pytest.mark.parametrize("acks", [1, -1])
def test_what_was_sent_later_is_appended_later(scene, acks):
    """A small batch, a bomb, small ones, a large one without compression: offsets in that order."""
    logs = topic(scene, message_max_bytes=str(8 * MIB))
    small = build_batch([Record(timestamp=1, value=b"small")])
    large = build_batch([Record(timestamp=1, value=bytes(5 * MIB))])
    mixed = [(0, small), (1, bomb("gzip")), (2, small), (2, large)]
    sent = [
        [(0, small)],
        [(0, bomb("zstd"))],
        [(0, small)],
        [(0, large)],
        [*mixed[1:3], (0, small)],
        [(0, small)],
    ]
    answers = pipelined(scene, [produce_request(batches, acks) for batches in sent])
    offsets = [
        [p.base_offset for t in a.responses for p in t.partition_responses if p.index == 0]
        for a in answers
    ]
    assert offsets == [[0], [1], [2], [3], [4], [5]]
    assert logs[0].log_end_offset == 6
    parts = [logs[0].read(offset, 1, 6).parts[0] for offset in range(6)]
    sizes = [len(next(iter_records(part)).value) for part in parts]
    assert sizes == [5, 16 * MIB, 5, 5 * MIB, 5, 5]


def test_without_acks_all_is_appended_though_the_client_is_gone(scene):
    logs = topic(scene)
    node = scene.simulation.node("client")

    async def go():
        peer = await PeerConnection.open(node.world, "b1", 9092, "t", timeout_s=5)
        task = asyncio.ensure_future(peer.send(produce_request([(0, bomb("zstd"))], 0), 9, 1.0))
        await asyncio.sleep(0.05)
        peer.close()
        await asyncio.gather(task, return_exceptions=True)

    node.call(go())
    scene.wait(lambda: logs[0].log_end_offset == 1)


def test_time_is_bounded_as_well_as_bytes(scene):
    """A million records that are all shaped differently take a second: too long for this broker."""
    logs = topic(scene, **{"ottla.produce.max.check.ms": "100"})
    records = [Record(timestamp=1, value=bytes(i % 3)) for i in range(300_000)]
    raw = build_batch(records, codec=CODECS["zstd"])
    assert len(raw) < MIB
    assert codes(scene.ask(1, produce_request([(0, raw)]), 9)) == [ErrorCode.MESSAGE_TOO_LARGE]
    assert logs[0].log_end_offset == 0


def test_many_small_batches_are_appended_in_slices(scene):
    """More partitions than the loop appends to in one go: all are appended, and answered once."""
    logs = topic(scene)
    r = CreateTopicsRequest
    wanted = r.CreatableTopic(name="many", num_partitions=1500, replication_factor=1)
    assert scene.ask(1, r(topics=[wanted], timeout_ms=10_000), 7).topics[0].error_code == 0
    manager = scene.brokers["b1"].logs
    scene.wait(lambda: all(manager.get(TopicPartition("many", p)) for p in range(1500)))
    raw = build_batch([Record(timestamp=1, value=b"v")])
    request = produce_request([(p, raw) for p in range(1500)])
    request.topic_data[0].name = "many"
    assert codes(scene.ask(1, request, 9)) == [ErrorCode.NONE] * 1500
    assert {manager.get(TopicPartition("many", p)).log_end_offset for p in range(1500)} == {1}
    assert logs[0].log_end_offset == 0
