"""Transactions that hang: open in a partition, and ended for their coordinator."""

import asyncio
import time

from confluent_kafka import Producer

from ottla.admin.session import connected, world
from ottla.client import transactions
from ottla.client.client import Client
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.records import Record, build_batch
from support.waiting import until


def hanging(bootstrap, topic, transactional_id):
    """Have a transaction hang in the first partition of a topic; return where it began."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"in time", partition=0)
    assert producer.flush(20) == 0
    producer.abort_transaction(30)

    def known():
        return connected(bootstrap, lambda client: transactions.producers(client, topic, 0))

    def ended():
        one = connected(bootstrap, lambda c: transactions.describe(c, transactional_id))
        (found,) = known()
        return one.state == "CompleteAbort" and found.transaction_start_offset is None

    until(ended, 30, "the marker is written")
    (found,) = known()
    sequence = found.last_sequence + 1
    hang(bootstrap, topic, transactional_id, found.producer_id, found.producer_epoch, sequence)
    (found,) = known()
    return found.transaction_start_offset


def hang(bootstrap, topic, transactional_id, producer_id, producer_epoch, sequence):
    """Append a record to a transaction that its coordinator has ended, as a late producer may."""
    batch = build_batch(
        [Record(0, int(time.time() * 1000), None, b"late")], producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=sequence, is_transactional=True,
    )  # fmt: skip
    r = ProduceRequest
    data = r.PartitionProduceData(index=0, records=batch)
    request = r(
        transactional_id=transactional_id, acks=-1, timeout_ms=10_000,
        topic_data=[r.TopicProduceData(name=topic, partition_data=[data])],
    )  # fmt: skip

    async def send():
        client = Client(world(), bootstrap)
        try:
            response = await client.call(request, await client.leader(topic, 0))
        finally:
            await client.close()
        assert response.responses[0].partition_responses[0].error_code == 0

    asyncio.run(send())
