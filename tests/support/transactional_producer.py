"""A transactional producer that sends each request on the connection that the test names."""

import asyncio

from ottla.model.errors import ErrorCode as E
from ottla.net.peer import PeerConnection
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from ottla.wire.records import Record, build_batch

ID, GROUP = "id", "group"


class TransactionalProducer:
    """A transactional producer of raw requests; each call names its connection."""

    def __init__(self, world, host, port):
        self.world, self.host, self.port = world, host, port
        self.sequence = 0
        self.who = {}

    async def connect(self):
        return await PeerConnection.open(self.world, self.host, self.port, "t", timeout_s=10)

    async def until_served(self, ask, code):
        while (found := await ask())[code] in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR,
                                               E.COORDINATOR_LOAD_IN_PROGRESS,
                                               E.CONCURRENT_TRANSACTIONS):  # fmt: skip
            await asyncio.sleep(0.1)
        return found

    async def init(self, connection):
        for key, kind in ((ID, 1), (GROUP, 0)):
            await connection.send(FindCoordinatorRequest(key=key, key_type=kind), 2, 10)
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)

        async def ask():
            found = await connection.send(request, 4, 10)
            return found.error_code, found.producer_id, found.producer_epoch

        _, producer_id, epoch = await self.until_served(ask, 0)
        self.who = {"producer_id": producer_id, "producer_epoch": epoch}

    async def add(self, connection):
        r = AddPartitionsToTxnRequest
        request = r(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.who["producer_id"],
            v3_and_below_producer_epoch=self.who["producer_epoch"],
            v3_and_below_topics=[r.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        found = await connection.send(request, 3, 10)
        return found.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    async def end(self, connection, *, committed=True):
        request = EndTxnRequest(transactional_id=ID, committed=committed, **self.who)
        return (await connection.send(request, 3, 10)).error_code

    async def add_offsets(self, connection):
        request = AddOffsetsToTxnRequest(transactional_id=ID, group_id=GROUP, **self.who)
        return (await connection.send(request, 3, 10)).error_code

    async def commit(self, connection, offset=5, *, metadata="", count=1):
        """Commit an offset so many times; the metadata makes a request as large as is wanted."""
        r = TxnOffsetCommitRequest
        partition = r.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        topics = [r.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])] * count
        request = r(transactional_id=ID, group_id=GROUP, topics=topics, **self.who)
        return (await connection.send(request, 3, 10)).topics[0].partitions[0].error_code

    async def served(self, call, *arguments):
        async def ask():
            return (await call(*arguments),)

        return (await self.until_served(ask, 0))[0]

    async def produce(self, connection, value):
        """Write one record of the open transaction; return the error of its partition."""
        p = ProduceRequest
        batch = build_batch(
            [Record(value=value)], base_sequence=self.sequence, is_transactional=True, **self.who
        )
        self.sequence += 1
        data = p.PartitionProduceData(index=0, records=batch)
        topics = [p.TopicProduceData(name="t", partition_data=[data])]
        request = p(transactional_id=ID, acks=-1, timeout_ms=5000, topic_data=topics)
        return (
            (await connection.send(request, 9, 10)).responses[0].partition_responses[0].error_code
        )
