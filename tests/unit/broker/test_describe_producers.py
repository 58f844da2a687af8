"""DescribeProducers: every replica tells whom it knows, not only the leader."""

import pytest

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.messages.transactions import DescribeProducersRequest
from ottla.wire.records import Record, build_batch

pytestmark = pytest.mark.timeout(60)


def described(scene, broker, topic, index):
    r = DescribeProducersRequest
    wanted = r.TopicRequest(name=topic, partition_indexes=[index])
    (answer,) = scene.ask(broker, r(topics=[wanted]), 0).topics[0].partitions
    return answer.error_code, [(p.producer_id, p.last_sequence) for p in answer.active_producers]


def test_leader_and_follower_tell_their_producers(scene):
    scene.up(1)
    scene.up(2)
    r = CreateTopicsRequest
    assignment = r.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
    topic = r.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    assert scene.ask(1, r(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == 0
    tp = TopicPartition("t", 0)
    scene.wait(lambda: all(b.logs.get(tp) for b in scene.brokers.values()))
    p = ProduceRequest
    batch = build_batch([Record(value=b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
    data = p.PartitionProduceData(index=0, records=batch)
    produce = p(
        acks=-1, timeout_ms=9000, topic_data=[p.TopicProduceData(name="t", partition_data=[data])]
    )
    answer = scene.ask(1, produce, 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NONE
    assert described(scene, 1, "t", 0) == (ErrorCode.NONE, [(7, 0)])
    assert described(scene, 2, "t", 0) == (ErrorCode.NONE, [(7, 0)])
    assert described(scene, 1, "t", 1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
