"""A transaction whose record waits for a follower that does not come: no client gets a success."""

import pytest

from ottla.coordinators.transaction import TransactionState
from ottla.model.errors import ErrorCode as E
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

pytestmark = pytest.mark.timeout(60)

ID = "id"
LOG = "__transaction_state"
TIMEOUT_MS = 1_000
SETTINGS = {
    "transaction_state_log_replication_factor": "2",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "600000",
}


class Client:
    def __init__(self, scene, number):
        self.scene, self.number = scene, number
        self.who = {}

    def init(self):
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS)
        found = self.scene.ask(self.number, request, 4)
        self.who = {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
        return found.error_code

    def add(self):
        r = AddPartitionsToTxnRequest
        topics = [r.AddPartitionsToTxnTopic(name="t", partitions=[0])]
        request = r(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.who["producer_id"],
            v3_and_below_producer_epoch=self.who["producer_epoch"],
            v3_and_below_topics=topics,
        )
        answer = self.scene.ask(self.number, request, 3)
        (topic,) = answer.results_by_topic_v3_and_below
        return topic.results_by_partition[0].partition_error_code

    def end(self, *, committed):
        request = EndTxnRequest(transactional_id=ID, committed=committed, **self.who)
        return self.scene.ask(self.number, request, 3).error_code


def ready(scene):
    """Return who coordinates, who follows, a client at the former, and what it knows of the id."""
    for number in (0, 1):
        scene.up(number, **SETTINGS)
    r = CreateTopicsRequest
    topic = r.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert scene.ask(0, r(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == E.NONE

    def coordinator():
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
        (found,) = scene.ask(0, request, 4).coordinators
        return -1 if found.error_code else found.node_id

    scene.wait(lambda: coordinator() >= 0)
    number = coordinator()
    client = Client(scene, number)
    scene.wait(lambda: client.init() == E.NONE)
    shard = scene.brokers[f"b{number}"].services.coordination.transactions.transactions.shards[0]
    partition = scene.brokers[f"b{number}"].services.replicas.hosted(LOG, 0)
    scene.wait(lambda: len(partition.state.isr.committed) == 2)
    return scene.simulation.node(f"b{1 - number}"), client, shard.transactions[ID]


def test_a_transaction_in_doubt_completes_when_the_log_is_known(scene):
    follower, client, transaction = ready(scene)
    assert client.add() == E.NONE
    assert client.end(committed=False) == E.NONE
    scene.wait(lambda: transaction.state is TransactionState.COMPLETE_ABORT)
    follower.pause()
    # The record is written; that the follower has it is not known within the transaction's time.
    assert client.add() == E.COORDINATOR_NOT_AVAILABLE
    assert transaction.pending is TransactionState.ONGOING
    # Kafka's coordinator says NONE here: memory says CompleteAbort, the log Ongoing.
    assert client.end(committed=False) == E.CONCURRENT_TRANSACTIONS
    follower.resume()
    scene.wait(lambda: transaction.pending is None)
    assert transaction.state is TransactionState.ONGOING
    assert client.end(committed=False) == E.NONE
    scene.wait(lambda: transaction.state is TransactionState.COMPLETE_ABORT)
    assert transaction.epoch == client.who["producer_epoch"], "its producer was fenced"
