"""F46: a Fetch of very many partitions is read in slices, and names no more than there may be."""

import asyncio

import pytest

from ottla.broker.requests.records.fetch import MOST_UNKNOWN
from ottla.broker.requests.router import LARGE_FRAME_BYTES
from ottla.model.errors import ConnectionLostError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.net.peer import PeerConnection
from ottla.wire.codec import encode_request
from ottla.wire.messages.records import FetchRequest, ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.records import Record, build_batch

pytestmark = pytest.mark.timeout(60)

TP = TopicPartition("t", 0)
VERSION = 11
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def fetch(count, *, session=(0, -1), first=0, wait_ms=0, names=("t",)):
    f = FetchRequest
    topics = [
        f.FetchTopic(
            topic=name,
            partitions=[
                f.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)
                for index in range(first, first + count)
            ],
        )
        for name in names
    ]
    return f(
        replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=10**6, session_id=session[0],
        session_epoch=session[1], topics=topics,
    )  # fmt: skip


def batch(number):
    p = ProduceRequest
    data = p.PartitionProduceData(index=0, records=build_batch([Record(value=b"%d" % number)]))
    topic = p.TopicProduceData(name="t", partition_data=[data])
    return p(acks=1, timeout_ms=9000, topic_data=[topic])


@pytest.fixture
def led(scene):
    """Return a broker that leads t-0."""
    scene.up(1)
    r = CreateTopicsRequest
    topic = r.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert scene.ask(1, r(topics=[topic], timeout_ms=10_000), 5).topics[0].error_code == 0
    scene.wait(lambda: scene.brokers["b1"].logs.get(TP))
    return scene


def test_a_large_fetch_gets_the_response_of_a_small_one(led):
    large = fetch(3000)
    assert len(b"".join(encode_request(large, VERSION))) > LARGE_FRAME_BYTES
    led.ask(1, batch(1), 9)
    (topic,) = led.ask(1, large, VERSION).responses
    codes = {p.partition_index: p.error_code for p in topic.partitions}
    assert codes == {0: 0} | dict.fromkeys(range(1, 3000), UNKNOWN)
    assert next(p for p in topic.partitions if p.partition_index == 0).records


def test_a_session_may_not_name_many_more_partitions_than_there_are(led):
    answer = led.ask(1, fetch(MOST_UNKNOWN - 1, session=(0, 0)), VERSION)
    assert answer.error_code == 0
    with pytest.raises(ConnectionLostError):
        led.ask(1, fetch(MOST_UNKNOWN + 3), VERSION)
    with pytest.raises(ConnectionLostError):
        led.ask(1, fetch(4000, session=(answer.session_id, 1), first=MOST_UNKNOWN), VERSION)
    assert led.ask(1, fetch(1), VERSION).responses, "the broker goes on"


def test_what_waits_for_records_ends_when_the_client_goes(led, monkeypatch):
    monkeypatch.setattr("ottla.broker.requests.router.LARGE_FRAME_BYTES", 0)
    monkeypatch.setattr("ottla.broker.requests.router.NOTICEABLE_BYTES", 0)
    node = led.simulation.node("client")
    waiting = led.brokers["b1"].services.replicas.purgatory

    async def begin():
        peer = await PeerConnection.open(node.world, "b1", 9092, "t", timeout_s=5)
        return peer, peer.send(fetch(1, wait_ms=600_000), VERSION, 700)

    async def end():
        peer.close()
        await asyncio.gather(answer, return_exceptions=True)

    peer, answer = node.call(begin())
    led.wait(lambda: waiting.live == 1)
    node.call(end())
    led.wait(lambda: waiting.live == 0)
