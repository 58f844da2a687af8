"""Transactional produce: which batches are verified, and which are not."""

import pytest

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.records import Record, build_batch

pytestmark = pytest.mark.timeout(60)


def produced(scene, **header):
    """Send a transactional batch; return the error of its partition."""
    p = ProduceRequest
    batch = build_batch([Record(value=b"v")], is_transactional=True, **header)
    data = p.PartitionProduceData(index=0, records=batch)
    topic = p.TopicProduceData(name="t", partition_data=[data])
    request = p(transactional_id="x", acks=-1, timeout_ms=9000, topic_data=[topic])
    return scene.ask(1, request, 9).responses[0].partition_responses[0].error_code


def test_only_batches_of_a_producer_are_verified(scene):
    scene.up(1)
    r = CreateTopicsRequest
    topic = r.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert scene.ask(1, r(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == 0
    scene.wait(lambda: scene.brokers["b1"].logs.get(TopicPartition("t", 0)))
    log = scene.brokers["b1"].logs.get(TopicPartition("t", 0))
    assert produced(scene, producer_id=7, producer_epoch=0, base_sequence=0) != ErrorCode.NONE
    assert log.log_end_offset == 0
    # Marked as transactional, but without a producer: as in Kafka nothing is verified.
    assert produced(scene) == ErrorCode.NONE
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (1, 1, 1)
