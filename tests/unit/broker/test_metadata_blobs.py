"""Encoded topics: put together they are byte for byte what the codec writes."""

import pytest

from ottla.broker.metadata.metadata_blobs import MetadataBlobs, assemble, describe_topic
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.model.errors import ErrorCode
from ottla.wire.codec import encode_response
from ottla.wire.messages.cluster import MetadataResponse
from ottla.wire.messages.control import UpdateMetadataRequest as Update


def cache_of(topics=3, leader=1, brokers=(1, 2)):
    cache = MetadataCache()
    cache.apply(request(topics, leader, brokers))
    return cache


def request(topics=3, leader=1, brokers=(1, 2)):
    states = [
        Update.UpdateMetadataTopicState(
            topic_name=f"topic-{n}",
            topic_id=bytes([n + 1]) * 16,
            partition_states=[
                Update.UpdateMetadataPartitionState(
                    partition_index=p,
                    leader=leader,
                    leader_epoch=p,
                    isr=[1],
                    replicas=[1, 2, 3],
                    offline_replicas=[3],
                )
                for p in range(2)
            ],
        )
        for n in range(topics)
    ]
    live = [
        Update.UpdateMetadataBroker(
            id=b,
            endpoints=[Update.UpdateMetadataEndpoint(host="h", port=b, listener="PLAINTEXT")],
        )
        for b in brokers
    ]
    return Update(controller_id=1, topic_states=states, live_brokers=live)


@pytest.mark.parametrize("version", range(13))
@pytest.mark.parametrize("topics", [0, 1, 130])
def test_assembled_equals_encoded(version, topics):
    cache = cache_of(topics)
    blobs = MetadataBlobs(cache)
    head = MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1)],
        controller_id=1,
    )
    if version >= 2:
        head.cluster_id = "cluster"
    parts = assemble(
        head, version, [blobs.topic(n, "PLAINTEXT", version) for n in cache.snapshot.topics]
    )
    whole = head
    whole.topics = [
        describe_topic(cache.snapshot, t, "PLAINTEXT", version)
        for t in cache.snapshot.topics.values()
    ]
    assert b"".join(parts) == b"".join(encode_response(whole, version))


def test_a_leader_that_is_away_is_no_leader():
    cache = cache_of(leader=7)
    state = cache.snapshot.topics["topic-0"]
    topic = describe_topic(cache.snapshot, state, "PLAINTEXT", 12)
    assert topic.partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert topic.partitions[0].leader_id == -1
    assert topic.partitions[0].offline_replicas == [3]


@pytest.mark.parametrize(
    ("version", "code"),
    [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
def test_a_leader_without_the_listener(version, code):
    cache = cache_of()
    topic = describe_topic(cache.snapshot, cache.snapshot.topics["topic-0"], "OTHER", version)
    assert topic.partitions[0].error_code == code


def test_version_0_leaves_out_replicas_that_are_away():
    cache = cache_of()
    topic = describe_topic(cache.snapshot, cache.snapshot.topics["topic-0"], "PLAINTEXT", 0)
    assert topic.partitions[0].replica_nodes == [1, 2]
    assert topic.partitions[0].error_code == ErrorCode.REPLICA_NOT_AVAILABLE


def test_a_blob_is_dropped_when_its_topic_or_the_brokers_change():
    cache = cache_of()
    blobs = MetadataBlobs(cache)
    first = blobs.topic("topic-0", "PLAINTEXT", 12)
    assert blobs.topic("topic-0", "PLAINTEXT", 12) is first
    cache.apply(request(leader=2))
    second = blobs.topic("topic-0", "PLAINTEXT", 12)
    assert second != first
    cache.apply(request(topics=0, brokers=(1,)))
    assert blobs.topic("topic-0", "PLAINTEXT", 12) != second
    assert blobs.topic("absent", "PLAINTEXT", 12) is None
