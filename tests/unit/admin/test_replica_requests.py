"""Many readers of replicas share requests; every one gets its result or its error."""

import asyncio

import pytest

from ottla.client import replica_requests
from ottla.client.replica_requests import ReplicaRequests, all_of
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import DEBUGGING_CONSUMER, EARLIEST, LATEST
from ottla.wire.messages.records import FetchRequest, FetchResponse, ListOffsetsResponse

TPS = [TopicPartition(topic, n) for topic in ("a", "b") for n in range(4)]


class Broker:
    """What a client asks: sends of each partition what stands at the offset, as far as it fits."""

    def __init__(self, room=10**9):
        self.room = room
        self.refused = {}
        self.requests = []
        self.broken = None

    async def call(self, request, broker, **_):
        self.requests.append((broker, request))
        await asyncio.sleep(0.01)
        if self.broken is not None:
            raise self.broken
        if isinstance(request, FetchRequest):
            return self.fetched(request)
        r = ListOffsetsResponse
        return r(
            topics=[
                r.ListOffsetsTopicResponse(
                    name=t.name,
                    partitions=[
                        r.ListOffsetsPartitionResponse(
                            partition_index=p.partition_index, error_code=self.code(t.name, p),
                            offset=100 * broker + p.partition_index + (p.timestamp == LATEST) * 10,
                        )
                        for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )  # fmt: skip

    def code(self, topic, p):
        index = p.partition if hasattr(p, "partition") else p.partition_index
        return self.refused.get(TopicPartition(topic, index), 0)

    def fetched(self, request):
        left, r = self.room, FetchResponse
        topics = []
        for t in request.topics:
            found = []
            for p in t.partitions:
                records = b"%s-%d@%d" % (t.topic.encode(), p.partition, p.fetch_offset)
                if len(records) > left or self.code(t.topic, p):
                    records = b""
                left -= len(records)
                found.append(
                    r.PartitionData(
                        partition_index=p.partition, error_code=self.code(t.topic, p),
                        high_watermark=0, records=records,
                    )
                )  # fmt: skip
            topics.append(r.FetchableTopicResponse(topic=t.topic, partitions=found))
        return r(error_code=0, session_id=0, responses=topics)


def told(reading, broker):
    async def story():
        async with ReplicaRequests(broker, 1000, 0) as requests:
            return await asyncio.wait_for(reading(requests), 10)

    return asyncio.run(story())


def test_all_partitions_of_a_broker_go_in_one_request():
    broker = Broker()

    async def reading(requests):
        return await asyncio.gather(*(requests.batches(tp, 1, 7) for tp in TPS))

    assert told(reading, broker) == [b"%s-%d@7" % (t.encode(), n) for t, n in TPS]
    ((number, request),) = broker.requests
    assert (number, request.replica_id) == (1, DEBUGGING_CONSUMER)


@pytest.mark.parametrize("room", [5, 11, 23])
def test_who_got_nothing_of_a_full_response_comes_first_in_the_next(room):
    broker = Broker(room)

    async def reading(requests):
        return await asyncio.gather(*(requests.batches(tp, 1, 7) for tp in TPS))

    assert told(reading, broker) == [b"%s-%d@7" % (t.encode(), n) for t, n in TPS]
    assert len(broker.requests) == -(-len(TPS) // (room // 5))


def test_an_empty_response_is_one(monkeypatch):
    broker = Broker(room=0)

    async def reading(requests):
        return await asyncio.gather(*(requests.batches(tp, 1, 7) for tp in TPS[:2]))

    assert told(reading, broker) == [b"", b""]
    assert len(broker.requests) == 1


def test_a_refused_partition_is_an_error_of_its_reader_alone():
    broker = Broker()
    broker.refused[TPS[1]] = ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def reading(requests):
        offsets = [requests.offset(tp, 2, LATEST) for tp in TPS[:3]]
        batches = [requests.batches(tp, 2, 0) for tp in TPS[:3]]
        return await all_of([*offsets, *batches])

    found = told(reading, broker)
    assert [found[0], found[2], found[3], found[5]] == [210, 212, b"a-0@0", b"a-2@0"]
    for error in (found[1], found[4]):
        assert isinstance(error, OttlaError)
        assert "NOT_LEADER_OR_FOLLOWER" in str(error)


def test_a_broker_that_is_gone_is_an_error_of_all_its_readers():
    broker = Broker()
    broker.broken = OttlaError("broker 1 is not alive")

    async def reading(requests):
        return await all_of([requests.offset(tp, 1, EARLIEST) for tp in TPS])

    assert {str(error) for error in told(reading, broker)} == {"broker 1 is not alive"}


def test_many_partitions_are_asked_for_in_portions(monkeypatch):
    monkeypatch.setattr(replica_requests, "MOST_PARTITIONS", 3)
    broker = Broker()

    async def reading(requests):
        return await asyncio.gather(*(requests.offset(tp, 1, EARLIEST) for tp in TPS))

    assert told(reading, broker) == [100 + tp.partition for tp in TPS]
    sizes = [sum(len(t.partitions) for t in request.topics) for _, request in broker.requests]
    assert sizes == [3, 3, 2]


def test_readers_that_are_cancelled_leave_nothing_behind():
    broker = Broker()

    async def reading(requests):
        task = asyncio.ensure_future(requests.batches(TPS[0], 1, 0))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await requests.batches(TPS[1], 1, 0)

    assert told(reading, broker) == b"a-1@0"
