"""Requests of transactions that an older connection delivers late: refused, and harmless (F54)."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from ottla.broker.connections import ProducerConnections
from ottla.coordinators.transaction import TransactionState
from ottla.model.errors import ConnectionLostError, OttlaError
from ottla.model.errors import ErrorCode as E
from ottla.wire.messages.topics import CreateTopicsRequest
from support.transactional_producer import ID, TransactionalProducer

pytestmark = pytest.mark.timeout(60)

SETTINGS = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
}


def run(scene, main):
    broker = scene.up(1, **SETTINGS)
    r = CreateTopicsRequest
    topic = r.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    scene.ask(1, r(topics=[topic], timeout_ms=10_000), 7)
    node = scene.simulation.node("client")
    return node.call(main(broker, TransactionalProducer(node.world, "b1", 9092)))


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
    monkeypatch.setattr("ottla.broker.connections.MOST_PRODUCERS", 3)
    connections = ProducerConnections()
    newer, refused = SimpleNamespace(listener="L", id=2), []
    older = SimpleNamespace(listener="L", id=1, refuse_soon=refused.append)
    for producer_id in range(5):
        connections.check(newer, "end", ID, producer_id, 0)
    assert len(connections._last) == 3

    with pytest.raises(OttlaError, match="late request"):
        connections.check(older, "end", ID, 4, 0)
    assert len(refused) == 1
    connections.check(older, "end", ID, 0, 0)
    connections.check(older, "end", ID, 4, 1)


def test_a_late_commit_that_is_handled_in_portions_closes_its_connection_too(scene):
    async def main(_broker, producer):
        a, b = await second_transaction(producer)
        with contextlib.suppress(ConnectionLostError):
            assert await producer.commit(a, metadata="m" * 3000, count=100) != E.NONE
        with pytest.raises(ConnectionLostError):
            await producer.commit(a)
        assert await producer.served(producer.commit, b) == E.NONE

    run(scene, main)
