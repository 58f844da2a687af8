"""A whole broker with ACLs: fetch sessions, a revoked permission, names that are not leaked.

Brokers here come as User:ANONYMOUS, which is a super user; clients have other principals.
"""

import asyncio

import pytest

from ottla.broker.authorization.request_authorizer import ACL_AUTHORIZER
from ottla.model.errors import ConnectionLostError, ErrorCode
from ottla.net.peer import PeerConnection
from ottla.security.acls import ALLOW, DENY, DESCRIBE, LITERAL, READ, TOPIC, WRITE, Entry, Pattern
from ottla.security.principals import Principal
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import decode_response_header, encode_request_header
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.records import FetchRequest, ProduceRequest
from ottla.wire.messages.security import CreateAclsRequest, DeleteAclsRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.records import Record, build_batch

pytestmark = pytest.mark.timeout(60)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NAMES = ("mine", "theirs")


class Client:
    """Sends requests straight to a broker's router, as whoever it says."""

    listener = "PLAINTEXT"
    closed = False
    is_from_broker = False

    def __init__(self, broker, name="app", address="10.0.0.7"):
        self.broker = broker
        self.principal = Principal("User", name)
        self.peer = (address, 1)
        self.served_as_broker = False

    def max_response_bytes(self):
        return None

    def serves_broker(self):
        self.served_as_broker = True

    def ask(self, message, version):
        raw = encode_request_header(message.API_KEY, version, 1, "c")
        raw += b"".join(encode_request(message, version))
        parts = self.broker.router.dispatch(self, memoryview(raw))
        whole = memoryview(b"".join(parts))
        _, position = decode_response_header(message.API_KEY, version, whole)
        return decode_response(message.API_KEY, version, whole, position)

    def fetch(self, *names, session=0, epoch=0, replica=-1, offset=0):
        r = FetchRequest
        part = r.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100_000)
        request = r(
            replica_id=replica,
            max_wait_ms=0,
            session_id=session,
            session_epoch=epoch,
            topics=[r.FetchTopic(topic=name, partitions=[part]) for name in names],
        )
        found = self.ask(request, 11)
        return found.session_id, {
            t.topic: (t.partitions[0].error_code, bool(t.partitions[0].records))
            for t in found.responses
        }


@pytest.fixture
def broker(scene):
    broker = scene.up(
        1,
        authorizer_class_name=ACL_AUTHORIZER,
        super_users="User:ANONYMOUS",
        offsets_topic_replication_factor="1",
    )
    topics = [
        CreateTopicsRequest.CreatableTopic(name=n, num_partitions=1, replication_factor=1)
        for n in NAMES
    ]
    made = scene.ask(1, CreateTopicsRequest(topics=topics, timeout_ms=9000), 5)
    assert not any(t.error_code for t in made.topics)
    for name in NAMES:
        scene.produce(name, 2)
    return broker


def allow(scene, name, operation=READ, permission=ALLOW, host="*"):
    one = CreateAclsRequest.AclCreation(
        resource_type=TOPIC, resource_name=name, resource_pattern_type=LITERAL,
        principal="User:app", host=host, operation=operation, permission_type=permission,
    )  # fmt: skip
    response = scene.ask(1, CreateAclsRequest(creations=[one]), 3)
    assert response.results[0].error_code == 0


def revoke(scene, name):
    one = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=TOPIC, resource_name_filter=name, pattern_type_filter=LITERAL,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    response = scene.ask(1, DeleteAclsRequest(filters=[one]), 3)
    assert response.filter_results[0].matching_acls


def test_a_session_gets_what_is_allowed_at_each_of_its_requests(scene, broker):
    allow(scene, "mine")
    client = Client(broker)
    session, found = client.fetch(*NAMES)
    assert found == {"mine": (0, True), "theirs": (DENIED, False)}
    _, found = client.fetch("mine", session=session, epoch=1, offset=2)
    assert found == {"theirs": (DENIED, False)}, "an error is said each time"
    # What was idle in the session, and is named in no request any more, is denied at once.
    revoke(scene, "mine")
    _, found = client.fetch(session=session, epoch=2)
    assert found == {"mine": (DENIED, False), "theirs": (DENIED, False)}
    allow(scene, "theirs")
    _, found = client.fetch(session=session, epoch=3)
    assert found == {"mine": (DENIED, False), "theirs": (0, True)}
    # The same session continued by somebody else.
    _, found = Client(broker, "other").fetch(session=session, epoch=4)
    assert found == {"mine": (DENIED, False), "theirs": (DENIED, False)}
    allow(scene, "theirs", permission=DENY, host="10.0.0.8")
    _, found = Client(broker, address="10.0.0.8").fetch(session=session, epoch=5)
    assert found["theirs"] == (DENIED, False)


def test_who_only_says_it_is_a_replica_gets_nothing_and_is_no_broker(scene, broker):
    allow(scene, "mine")
    client = Client(broker)
    for replica in (0, 1, 7, -3):
        assert client.fetch(*NAMES, replica=replica)[1] == dict.fromkeys(NAMES, (DENIED, False))
    assert not client.served_as_broker
    own = Client(broker, "ANONYMOUS")
    own.fetch(*NAMES, replica=0)
    assert own.served_as_broker


def test_names_are_not_leaked(scene, broker):
    client = Client(broker)

    def codes(*names, version=9):
        wanted = [MetadataRequest.MetadataRequestTopic(name=n) for n in names]
        found = client.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), version)
        return [(t.name, t.error_code, len(t.partitions), t.is_internal) for t in found.topics]

    hidden = [(n, DENIED, 0, False) for n in ("mine", "nowhere", "__consumer_offsets")]
    assert codes("mine", "nowhere", "__consumer_offsets") == hidden
    assert client.ask(MetadataRequest(topics=None), 9).topics == []
    allow(scene, "mine", DESCRIBE)
    assert [t.name for t in client.ask(MetadataRequest(topics=None), 9).topics] == ["mine"]
    assert sorted(codes("mine", "theirs")) == [("mine", 0, 1, False), ("theirs", DENIED, 0, False)]


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("size", [10, 300_000])
def test_of_a_produce_request_what_is_allowed_is_stored(scene, broker, monkeypatch, acks, size):
    """Over a connection, in order, small batches and those that are checked in tasks."""
    allow(scene, "mine", WRITE)
    monkeypatch.setattr("ottla.net.connection.ANONYMOUS", Principal("User", "app"))
    r = ProduceRequest

    def request(number):
        part = r.PartitionProduceData(
            index=0, records=build_batch([Record(value=b"%d" % number + b"x" * size)])
        )
        data = [r.TopicProduceData(name=name, partition_data=[part]) for name in NAMES]
        return r(acks=acks, timeout_ms=5000, topic_data=data)

    async def all_at_once():
        node = scene.simulation.node("client")
        peer = await PeerConnection.open(node.world, "b1", 9092, "t", timeout_s=5)
        try:
            return await asyncio.gather(*(peer.send(request(n), 9, 30) for n in range(5)))
        finally:
            peer.close()

    found = scene.simulation.node("client").call(all_at_once())
    for number, response in enumerate(found):
        parts = {t.name: t.partition_responses[0] for t in response.responses}
        assert (parts["mine"].error_code, parts["mine"].base_offset) == (0, 2 + number)
        assert parts["theirs"].error_code == DENIED
    logs = {log.tp.topic: log.log_end_offset for log in broker.logs.all_logs()}
    assert (logs["mine"], logs["theirs"]) == (7, 2)


def test_acks_0_of_which_a_part_is_denied_ends_the_connection(scene, broker, monkeypatch):
    allow(scene, "mine", WRITE)
    monkeypatch.setattr("ottla.net.connection.ANONYMOUS", Principal("User", "app"))
    r = ProduceRequest
    part = r.PartitionProduceData(index=0, records=build_batch([Record(value=b"v")]))
    data = [r.TopicProduceData(name=name, partition_data=[part]) for name in NAMES]
    with pytest.raises(ConnectionLostError):
        scene.ask(1, r(acks=0, timeout_ms=5000, topic_data=data), 9)
    logs = {log.tp.topic: log.log_end_offset for log in broker.logs.all_logs()}
    assert (logs["mine"], logs["theirs"]) == (3, 2)


def test_acls_that_cannot_be_read_end_the_start(scene):
    broker = scene.up(1, authorizer_class_name=ACL_AUTHORIZER, super_users="User:ANONYMOUS")
    pattern = Pattern(TOPIC, "mine")
    entry = Entry("User:app", "*", READ, ALLOW)
    assert scene.simulation.node("b1").call(
        broker.services.session.store.acls.set(pattern, [entry], -2)
    )
    scene.stop(1)
    scene.znode("/kafka-acl/Topic/mine").data = b"{"
    name = scene.boot(1)
    scene.settings[name] = (1, {"authorizer_class_name": ACL_AUTHORIZER})
    scene.wait(lambda: name in scene.errors)
    assert "/kafka-acl/Topic/mine" in str(scene.errors[name])


def test_half_a_setting_does_not_start(scene):
    name = scene.boot(1, super_users="User:admin")
    scene.wait(lambda: name in scene.errors)
    assert "authorizer.class.name" in str(scene.errors[name])
