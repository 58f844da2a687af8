"""Verification of produce requests with several partitions, elsewhere led, or switched off amid it.

Whole brokers in the simulated world; what was appended is read from their logs. Kafka's own tests
of these: `ReplicaManagerTest.testTransactionVerification*`.
"""

import pytest

from ottla.coordinators.transaction_verifier import TransactionVerifier
from ottla.model.errors import ErrorCode as E
from ottla.model.ids import TopicPartition
from ottla.net.peer import PeerConnection
from ottla.wire.messages.configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from ottla.wire.records import Record, build_batch

pytestmark = pytest.mark.timeout(60)

ID = "id"
SETTING = "transaction.partition.verification.enable"
SETTINGS = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
}
BROKER = 4


def tp(index):
    return TopicPartition("t", index)


class Producer:
    """One transactional id and its batches, each sent by hand."""

    def __init__(self, scene, at=0):
        self.scene, self.at = scene, at
        found = []

        def coordinated():
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
            (one,) = scene.ask(at, request, 4).coordinators
            self.coordinator = one.node_id
            return one.error_code == E.NONE

        def initialized():
            request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
            found.append(scene.ask(self.coordinator, request, 4))
            return found[-1].error_code == E.NONE

        scene.wait(coordinated)
        scene.wait(initialized)
        self.who = {
            "producer_id": found[-1].producer_id,
            "producer_epoch": found[-1].producer_epoch,
        }

    def add(self, *indexes):
        a = AddPartitionsToTxnRequest
        request = a(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.who["producer_id"],
            v3_and_below_producer_epoch=self.who["producer_epoch"],
            v3_and_below_topics=[a.AddPartitionsToTxnTopic(name="t", partitions=list(indexes))],
        )
        answer = self.scene.ask(self.coordinator, request, 3)
        (topic,) = answer.results_by_topic_v3_and_below
        assert {p.partition_error_code for p in topic.results_by_partition} == {E.NONE}

    def request(self, *indexes, sequence=0):
        p = ProduceRequest
        batch = build_batch(
            [Record(value=b"v")], is_transactional=True, base_sequence=sequence, **self.who
        )
        data = [p.PartitionProduceData(index=i, records=batch) for i in indexes]
        topic = p.TopicProduceData(name="t", partition_data=data)
        return p(transactional_id=ID, acks=-1, timeout_ms=9000, topic_data=[topic])

    def send(self, *indexes, sequence=0):
        """Send one batch for each partition in one request; return the error of each."""
        answer = self.scene.ask(self.at, self.request(*indexes, sequence=sequence), 9)
        return codes(answer)

    def commit(self):
        request = EndTxnRequest(transactional_id=ID, committed=True, **self.who)
        assert self.scene.ask(self.coordinator, request, 3).error_code == E.NONE


def codes(answer):
    return {p.index: E(p.error_code) for t in answer.responses for p in t.partition_responses}


def up(scene, *assignments):
    """Start broker 0, and others that the partitions of `t` are assigned to."""
    scene.up(0, **SETTINGS)
    for broker in sorted({b for replicas in assignments for b in replicas} - {0}):
        scene.up(broker, **SETTINGS)
    r = CreateTopicsRequest
    placed = [
        r.CreatableReplicaAssignment(partition_index=i, broker_ids=list(replicas))
        for i, replicas in enumerate(assignments)
    ]
    topic = r.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1,
                             assignments=placed)  # fmt: skip
    assert scene.ask(0, r(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == E.NONE
    scene.wait(
        lambda: all(
            scene.brokers[f"b{replicas[0]}"].logs.get(tp(i)) is not None
            for i, replicas in enumerate(assignments)
        )
    )


def ends(scene, *indexes, broker=0):
    """Return log end and last stable offset of each partition."""
    logs = [scene.brokers[f"b{broker}"].logs.get(tp(i)) for i in indexes]
    return [(log.log_end_offset, log.last_stable_offset) for log in logs]


def asked(monkeypatch):
    """Return a list that gets what the coordinator is asked about, from now on."""
    questions = []
    verify = TransactionVerifier.verify

    def noted(self, transactional_id, producer, partitions, request, **more):
        questions.append(sorted(p.partition for p in partitions))
        return verify(self, transactional_id, producer, partitions, request, **more)

    monkeypatch.setattr(TransactionVerifier, "verify", noted)
    return questions


def test_each_partition_of_a_request_is_verified_by_itself(scene, monkeypatch):
    up(scene, (0,), (0,), (0,))
    producer, questions = Producer(scene), asked(monkeypatch)
    assert producer.send(0, 1, 2) == dict.fromkeys((0, 1, 2), E.INVALID_TXN_STATE)
    assert ends(scene, 0, 1, 2) == [(0, 0), (0, 0), (0, 0)]
    producer.add(0, 2)
    assert producer.send(0, 1, 2) == {0: E.NONE, 1: E.INVALID_TXN_STATE, 2: E.NONE}
    assert ends(scene, 0, 1, 2) == [(1, 0), (0, 0), (1, 0)]
    producer.add(1)
    # Where the transaction has data already, no one is asked again.
    assert producer.send(0, sequence=1) == {0: E.NONE}
    assert producer.send(1) == {1: E.NONE}
    assert questions == [[0, 1, 2], [0, 1, 2], [1]]
    producer.commit()
    scene.wait(lambda: ends(scene, 0, 1, 2) == [(3, 3), (2, 2), (2, 2)])
    # The next transaction is another one: its guards are, too.
    assert producer.send(0, sequence=2) == {0: E.INVALID_TXN_STATE}
    assert questions[-1] == [0]


def test_what_is_led_elsewhere_is_not_verified(scene, monkeypatch):
    """It gets the error of any produce to a broker that does not lead; the rest is appended."""
    up(scene, (0, 1), (1, 0), (1, 0))
    producer, questions = Producer(scene), asked(monkeypatch)
    producer.add(0, 1, 2)
    scene.wait(lambda: scene.brokers["b0"].logs.get(tp(2)) is not None)
    assert producer.send(1) == {1: E.NOT_LEADER_OR_FOLLOWER}
    assert producer.send(2) == {2: E.NOT_LEADER_OR_FOLLOWER}
    assert questions == []
    assert producer.send(0, 1, 2) == {
        0: E.NONE, 1: E.NOT_LEADER_OR_FOLLOWER, 2: E.NOT_LEADER_OR_FOLLOWER,
    }  # fmt: skip
    assert questions == [[0]]
    assert ends(scene, 0) == [(1, 0)]
    assert ends(scene, 1, 2, broker=1) == [(0, 0), (0, 0)]
    log = scene.brokers["b0"].logs.get(tp(2))
    assert log.log_end_offset == 0
    # At its leader, it is.
    producer.at = 1
    assert producer.send(1, 2) == {1: E.NONE, 2: E.NONE}
    assert questions[-1] == [1, 2]


def switch(scene, value):
    """Change the setting of all brokers while they run."""
    r = IncrementalAlterConfigsRequest
    change = r.AlterableConfig(name=SETTING, config_operation=0, value=value)
    of_all = r.AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
    assert scene.ask(0, r(resources=[of_all]), 1).responses[0].error_code == E.NONE
    config = scene.brokers["b0"].config
    scene.wait(lambda: config.flag(SETTING) == (value == "true"))


def test_it_is_switched_off_and_on_while_the_broker_runs(scene, monkeypatch):
    up(scene, (0,), (0,))
    producer, questions = Producer(scene), asked(monkeypatch)
    assert producer.send(0) == {0: E.INVALID_TXN_STATE}
    switch(scene, "false")
    assert producer.send(0) == {0: E.NONE}
    assert ends(scene, 0) == [(1, 0)]
    assert questions == [[0]]
    switch(scene, "true")
    assert producer.send(1) == {1: E.INVALID_TXN_STATE}
    assert questions == [[0], [1]]
    assert ends(scene, 1) == [(0, 0)]


def test_an_answer_counts_that_comes_when_it_was_switched_off_meanwhile(scene, monkeypatch):
    """As in Kafka: who was asked about before is refused if the answer says so."""
    up(scene, (0,), (0,))
    producer, waiting = Producer(scene), []
    answered = {}
    with monkeypatch.context() as patch:
        patch.setattr(
            TransactionVerifier,
            "verify",
            lambda _self, _id, _producer, partitions, request, **_: waiting.append(
                (request, list(partitions))
            ),
        )
        node = scene.simulation.node("client")

        async def send():
            peer = await PeerConnection.open(node.world, "b0", 9092, "t", timeout_s=5)
            answered.update(codes(await peer.send(producer.request(0, 1), 9, 30.0)))
            peer.close()

        node.loop.call_soon(lambda: node.loop.create_task(send()))
        scene.wait(lambda: waiting)
    switch(scene, "false")
    ((request, partitions),) = waiting
    assert [p.partition for p in partitions] == [0, 1]
    scene.simulation.node("b0").loop.call_soon(request.on_verified, {tp(0): E.INVALID_TXN_STATE})
    scene.wait(lambda: answered)
    assert answered == {0: E.INVALID_TXN_STATE, 1: E.NONE}
    assert ends(scene, 0, 1) == [(0, 0), (1, 0)]
    assert producer.send(0) == {0: E.NONE}, "no one is asked any more"
