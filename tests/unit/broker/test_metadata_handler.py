"""Metadata requests: all topics, by name, by id, unknown, created by asking."""

from types import SimpleNamespace

import pytest

from ottla.broker.authorization.request_authorizer import bits
from ottla.broker.metadata.metadata_blobs import MetadataBlobs
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.requests.cluster import metadata
from ottla.broker.requests.router import Router
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.security.acls import CLUSTER, SUPPORTED, TOPIC
from ottla.security.principals import ANONYMOUS
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import decode_response_header, encode_request_header
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.control import UpdateMetadataRequest as Update

ID_A, ID_B, ID_UNKNOWN = b"a" * 16, b"b" * 16, b"u" * 16
CONN = SimpleNamespace(peer=("127.0.0.1", 1), listener="PLAINTEXT", state=None, principal=ANONYMOUS)
NO_OPERATIONS = -(2**31)
TOPIC_OPERATIONS, CLUSTER_OPERATIONS = bits(SUPPORTED[TOPIC]), bits(SUPPORTED[CLUSTER])


def server():
    cache = MetadataCache()
    blobs = MetadataBlobs(cache)
    state = Update.UpdateMetadataPartitionState(
        partition_index=0, leader=1, leader_epoch=3, isr=[1], replicas=[1]
    )
    names = {"a": ID_A, "__consumer_offsets": ID_B}
    cache.apply(
        Update(
            controller_id=1,
            topic_states=[
                Update.UpdateMetadataTopicState(topic_name=n, topic_id=i, partition_states=[state])
                for n, i in names.items()
            ],
            live_brokers=[
                Update.UpdateMetadataBroker(
                    id=b,
                    rack=f"rack-{b}",
                    endpoints=[Update.UpdateMetadataEndpoint(host="h", port=b, listener=listener)],
                )
                for b, listener in ((1, "PLAINTEXT"), (2, "OTHER"))
            ],
        )
    )
    config = BrokerConfig({"zookeeper.connect": "z:1", "broker.id": "1"})
    return SimpleNamespace(
        served=(),
        authorizer=None,
        metadata=cache,
        blobs=blobs,
        cluster_id="cluster",
        config=config,
        quotas=SimpleNamespace(active=False),
        world=SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: 0.0, slice_s=0.008)),
    )


def ask(version=12, names=(), ids=(), **fields):
    topics = [MetadataRequest.MetadataRequestTopic(name=n) for n in names]
    topics += [MetadataRequest.MetadataRequestTopic(topic_id=i, name=None) for i in ids]
    fields.setdefault("topics", topics)
    if version >= 4:
        fields.setdefault("allow_auto_topic_creation", False)
    request = MetadataRequest(**fields)
    raw = encode_request_header(3, version, 1, "t") + b"".join(encode_request(request, version))
    parts = Router(server(), [metadata.METADATA]).dispatch(CONN, memoryview(raw))
    whole = memoryview(b"".join(parts))
    _, pos = decode_response_header(3, version, whole)
    return decode_response(3, version, whole, pos)


def seen(response):
    return [(t.name, t.error_code) for t in response.topics]


@pytest.mark.parametrize("version", range(13))
def test_all_topics(version):
    response = ask(version, topics=[] if version == 0 else None)
    assert seen(response) == [("a", 0), ("__consumer_offsets", 0)]
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(1, "h", 1)]
    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.isr_nodes) == (1, [1])
    if version >= 1:
        assert response.controller_id == 1
        assert response.brokers[0].rack == "rack-1"
        assert [t.is_internal for t in response.topics] == [False, True]
    if version >= 2:
        assert response.cluster_id == "cluster"
    if version >= 7:
        assert partition.leader_epoch == 3
    if version >= 10:
        assert response.topics[0].topic_id == ID_A


@pytest.mark.parametrize("version", range(1, 13))
def test_no_topics(version):
    assert ask(version, topics=[]).topics == []


@pytest.mark.parametrize("version", range(4, 13))
def test_names_known_unknown_and_illegal(version):
    response = ask(version, ["missing", "a", "a b", "a"])
    assert seen(response) == [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", ErrorCode.NONE),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


def test_by_id():
    response = ask(12, ids=[ID_UNKNOWN, ID_A])
    assert seen(response) == [(None, ErrorCode.UNKNOWN_TOPIC_ID), ("a", ErrorCode.NONE)]
    assert [t.topic_id for t in response.topics] == [ID_UNKNOWN, ID_A]


def test_an_id_before_its_version_is_an_invalid_request():
    response = ask(11, topics=[MetadataRequest.MetadataRequestTopic(name="a", topic_id=ID_A)])
    assert seen(response) == [("a", ErrorCode.INVALID_REQUEST)]


@pytest.mark.parametrize("version", [8, 10, 12])
def test_authorized_operations_only_when_requested(version):
    plain = ask(version, ["a"])
    assert plain.topics[0].topic_authorized_operations == NO_OPERATIONS
    fields = {"include_topic_authorized_operations": True}
    if version <= 10:
        fields["include_cluster_authorized_operations"] = True
    response = ask(version, ["a"], **fields)
    assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS == 3576
    if version <= 10:
        assert response.cluster_authorized_operations == CLUSTER_OPERATIONS
