"""A coordinator that starts amid a commit, before it gets any metadata (seed 9100046)."""

import pytest

from ottla.coordinators.transaction import TransactionState
from ottla.coordinators.transaction_markers import TransactionMarkers
from ottla.model.errors import ErrorCode as E
from ottla.model.ids import TopicPartition
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from ottla.wire.records import Record, build_batch

pytestmark = pytest.mark.timeout(60)

ID = "id"
T, GONE = TopicPartition("t", 0), TopicPartition("gone", 0)
SETTINGS = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
}


def committed_without_markers(scene, monkeypatch):
    """Commit a record in `t` and one in `gone`; the commit is in the log, no marker is sent."""
    scene.up(0, **SETTINGS)
    r = CreateTopicsRequest
    topics = [
        r.CreatableTopic(name=tp.topic, num_partitions=1, replication_factor=1) for tp in (T, GONE)
    ]
    answer = scene.ask(0, r(topics=topics, timeout_ms=10_000), 7)
    assert [t.error_code for t in answer.topics] == [E.NONE, E.NONE]

    def coordinated():
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
        (found,) = scene.ask(0, request, 4).coordinators
        return found.error_code == E.NONE

    scene.wait(coordinated)
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
    found = []

    def initialized():
        found.append(scene.ask(0, request, 4))
        return found[-1].error_code == E.NONE

    scene.wait(initialized)
    who = {"producer_id": found[-1].producer_id, "producer_epoch": found[-1].producer_epoch}
    a = AddPartitionsToTxnRequest
    request = a(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=who["producer_id"],
        v3_and_below_producer_epoch=who["producer_epoch"],
        v3_and_below_topics=[
            a.AddPartitionsToTxnTopic(name=tp.topic, partitions=[0]) for tp in (T, GONE)
        ],
    )
    assert not any(
        p.partition_error_code
        for topic in scene.ask(0, request, 3).results_by_topic_v3_and_below
        for p in topic.results_by_partition
    )
    p = ProduceRequest
    batch = build_batch([Record(value=b"v")], is_transactional=True, base_sequence=0, **who)
    data = p.PartitionProduceData(index=0, records=batch)
    topics = [p.TopicProduceData(name=tp.topic, partition_data=[data]) for tp in (T, GONE)]
    request = p(transactional_id=ID, acks=-1, timeout_ms=9000, topic_data=topics)
    assert not any(
        p.error_code for t in scene.ask(0, request, 9).responses for p in t.partition_responses
    )
    with monkeypatch.context() as patch:
        patch.setattr(TransactionMarkers, "send", lambda *_: None)
        request = EndTxnRequest(transactional_id=ID, committed=True, **who)
        assert scene.ask(0, request, 3).error_code == E.NONE
        scene.simulation.node("b0").crash()


def transaction(scene):
    broker = scene.brokers.get("b0")
    if broker is None:
        return None
    shard = broker.services.coordination.transactions.transactions.shards.get(0)
    return None if shard is None else shard.transactions.get(ID)


def test_a_commit_gets_its_markers_from_a_coordinator_that_has_just_started(scene, monkeypatch):
    """R3: LeaderAndIsr comes before the first metadata; nothing is taken for deleted by that."""
    committed_without_markers(scene, monkeypatch)
    scene.boot(0, **SETTINGS)
    scene.wait(
        lambda: (found := transaction(scene)) and found.state is TransactionState.COMPLETE_COMMIT
    )
    for tp in (T, GONE):
        log = scene.brokers["b0"].logs.get(tp)
        assert (log.log_end_offset, log.last_stable_offset) == (2, 2), "no marker"


def test_a_commit_ends_without_the_marker_of_a_topic_that_was_deleted(scene, monkeypatch):
    committed_without_markers(scene, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(TransactionMarkers, "send", lambda *_: None)
        scene.up(0, **SETTINGS)
        scene.wait(lambda: scene.brokers["b0"].services.metadata.contains(GONE.topic))
        request = DeleteTopicsRequest(topic_names=[GONE.topic], timeout_ms=10_000)
        assert scene.ask(0, request, 5).responses[0].error_code == E.NONE
        scene.wait(lambda: scene.znode(f"/brokers/topics/{GONE.topic}") is None)
        scene.wait(lambda: transaction(scene))
        assert transaction(scene).state is TransactionState.PREPARE_COMMIT
        scene.simulation.node("b0").crash()
    scene.boot(0, **SETTINGS)
    scene.wait(
        lambda: (found := transaction(scene)) and found.state is TransactionState.COMPLETE_COMMIT
    )
    log = scene.brokers["b0"].logs.get(T)
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2), "no marker"
