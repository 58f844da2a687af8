"""Requests of transactions that an older connection delivers late: refused, and harmless (F54)."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.broker.requests.transactions import producer_connections
from ottla.broker.requests.transactions.producer_connections import ProducerConnections
from ottla.coordinators.transaction_states import TransactionState
from ottla.model.errors import ConnectionLostError, OttlaError
from ottla.model.errors import ErrorCode as E
from ottla.net.client import PeerConnection
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

pytestmark = pytest.mark.timeout(60)

ID, GROUP = "id", "group"
SETTINGS = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
}


class Producer:
    """A transactional producer; each call names its connection."""

    def __init__(self, world):
        self.world = world
        self.who = {}

    async def connect(self):
        return await PeerConnection.open(self.world, "b1", 9092, "t", timeout_s=5)

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

    async def commit(self, connection, offset=5):
        r = TxnOffsetCommitRequest
        partition = r.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [r.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])]
        request = r(transactional_id=ID, group_id=GROUP, topics=topics, **self.who)
        return (await connection.send(request, 3, 10)).topics[0].partitions[0].error_code

    async def served(self, call, *arguments):
        async def ask():
            return (await call(*arguments),)

        return (await self.until_served(ask, 0))[0]


def run(scene, main):
    broker = scene.up(1, **SETTINGS)
    r = CreateTopicsRequest
    topic = r.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    scene.ask(1, r(topics=[topic], timeout_ms=10_000), 7)
    node = scene.simulation.node("client")
    return node.call(main(broker, Producer(node.world)))


async def second_transaction(producer):
    """Return the connection A of the first transaction, and B, on which the second one is open."""
    a, b = await producer.connect(), await producer.connect()
    await producer.init(a)
    assert await producer.served(producer.add, a) == E.NONE
    assert await producer.served(producer.add_offsets, a) == E.NONE
    assert await producer.served(producer.commit, a) == E.NONE
    assert await producer.served(producer.end, b) == E.NONE  # on A there was no response in time
    assert await producer.served(producer.add, b) == E.NONE
    assert await producer.served(producer.add_offsets, b) == E.NONE
    assert await producer.served(producer.commit, b, 9) == E.NONE
    return a, b


@pytest.mark.parametrize("late", ["end", "add", "add_offsets", "commit"])
def test_a_late_request_does_not_touch_the_next_transaction(scene, late):
    async def main(broker, producer):
        a, b = await second_transaction(producer)
        assert await getattr(producer, late)(a) == E.COORDINATOR_NOT_AVAILABLE
        (transaction,) = broker.services.transactions.transactions
        assert transaction.state is TransactionState.ONGOING
        with pytest.raises(ConnectionLostError):
            await producer.end(a)
        # A client that does use several connections sends it again on a new one.
        c = await producer.connect()
        assert await getattr(producer, late)(c) == E.NONE
        if late != "end":
            assert await producer.served(producer.end, c if late != "commit" else b) == E.NONE

    run(scene, main)


def test_the_aborted_half_of_a_transaction_stays_aborted(scene):
    async def main(broker, producer):
        a, b = await second_transaction(producer)
        assert await producer.end(a, committed=True) == E.COORDINATOR_NOT_AVAILABLE
        assert await producer.served(producer.commit, b, 10) == E.NONE
        assert await producer.end(b, committed=False) == E.NONE
        await asyncio.sleep(1)
        (transaction,) = broker.services.transactions.transactions
        assert transaction.state is TransactionState.COMPLETE_ABORT

    run(scene, main)


def test_another_producer_of_the_id_may_be_on_an_older_connection(scene):
    async def main(_broker, producer):
        a, b = await second_transaction(producer)
        await producer.init(a)  # aborts the open one: it has a new epoch
        assert await producer.served(producer.add, a) == E.NONE
        assert await producer.served(producer.end, a) == E.NONE
        b.close()

    run(scene, main)


def test_so_many_producers_are_known(monkeypatch):
    monkeypatch.setattr(producer_connections, "MOST_PRODUCERS", 3)
    connections = ProducerConnections()
    newer, refused = SimpleNamespace(listener="L", id=2), []
    older = SimpleNamespace(listener="L", id=1, refuse=refused.append)
    for producer_id in range(5):
        connections.check(newer, "end", ID, producer_id, 0)
    assert len(connections._last) == 3

    async def late():
        with pytest.raises(OttlaError, match="late request"):
            connections.check(older, "end", ID, 4, 0)
        await asyncio.sleep(0)

    asyncio.run(late())
    assert len(refused) == 1
    connections.check(older, "end", ID, 0, 0)
    connections.check(older, "end", ID, 4, 1)
