"""Client quotas: which bound applies, how it is stored and described, and how clients wait."""

import asyncio

import pytest

from ottla.broker.quotas.client_quotas import (
    ANY,
    CONSUMER_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
)
from ottla.model.errors import ErrorCode
from ottla.net.peer import PeerConnection
from ottla.replication.throttle import UNBOUNDED
from ottla.security.principals import ANONYMOUS, Principal
from ottla.wire.codec import encode_request
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.configs import AlterClientQuotasRequest, DescribeClientQuotasRequest
from ottla.wire.messages.records import FetchRequest, ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.records import Record, build_batch

pytestmark = pytest.mark.timeout(60)

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
USER, CLIENT, IP = "user", "client-id", "ip"


# Which bound -----------------------------------------------------------------------------

ORDER = [
    ("u", "c"),
    ("u", ANY),
    ("u", None),
    (ANY, "c"),
    (ANY, ANY),
    (ANY, None),
    (None, "c"),
    (None, ANY),
]


def test_the_most_specific_bound_counts():
    quotas = ClientQuotas(11, 1000)
    for number, entity in reversed(list(enumerate(ORDER, 1))):
        quotas.set(entity, {PRODUCER_RATE: number})
        assert quotas.bound(PRODUCER_RATE, "u", "c")[0] == number, entity
    assert quotas.bound(CONSUMER_RATE, "u", "c")[0] == UNBOUNDED
    for number, entity in enumerate(ORDER, 1):
        assert quotas.bound(PRODUCER_RATE, "u", "c")[0] == number, entity
        quotas.set(entity, {})
    assert not quotas.active


@pytest.mark.parametrize(
    ("entity", "shared"),
    [(("u", ANY), ("u", "c")), ((ANY, None), ("u", None)), ((None, ANY), (None, "c"))],
)
def test_clients_that_share_a_bound(entity, shared):
    quotas = ClientQuotas(11, 1000)
    quotas.set(entity, {PRODUCER_RATE: 1})
    assert quotas.bound(PRODUCER_RATE, "u", "c") == (1, shared)


def test_a_burst_may_fill_all_windows_and_what_is_over_is_waited_for():
    quotas = ClientQuotas(11, 1000)
    quotas.set((None, "c"), {PRODUCER_RATE: 100})
    assert quotas.at_once(PRODUCER_RATE, "u", "c") == 1000
    assert quotas.record(PRODUCER_RATE, "u", "c", 1000, 0) == 0
    assert quotas.record(PRODUCER_RATE, "u", "other", 10**9, 0) == 0
    assert quotas.record(PRODUCER_RATE, "u", "c", 500, 10) == 5000
    assert quotas.record(PRODUCER_RATE, "u", "c", 0, 15_000) == 0
    assert quotas.throttled_total == 1


def test_time_is_held_back_for_a_window_at_most():
    quotas = ClientQuotas(11, 1000)
    quotas.set((None, ANY), {REQUEST_PERCENTAGE: 1})
    assert quotas.record(REQUEST_PERCENTAGE, "u", "c", 500, 0) == 1000


# The requests ----------------------------------------------------------------------------


@pytest.fixture
def cluster(scene):
    scene.up(1)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
    scene.wait(scene.brokers["b1"].logs.logs)
    return scene


def alter(scene, entity, **bounds):
    r = AlterClientQuotasRequest
    entry = r.EntryData(
        entity=[r.EntityData(entity_type=k, entity_name=n) for k, n in entity.items()],
        ops=[r.OpData(key=k, value=v or 0.0, remove=v is None) for k, v in bounds.items()],
    )
    answer = scene.ask(1, r(entries=[entry]), 1).entries[0]
    return answer.error_code, answer.error_message


def described(scene, *components, strict=False):
    r = DescribeClientQuotasRequest
    wanted = [r.ComponentData(entity_type=k, match_type=t, match=m) for k, t, m in components]
    answer = scene.ask(1, r(components=wanted, strict=strict), 1)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return [
        ({e.entity_type: e.entity_name for e in x.entity}, {v.key: v.value for v in x.values})
        for x in answer.entries
    ]


def test_bounds_are_stored_described_and_removed(cluster):
    both = {USER: "a b", CLIENT: "c"}
    assert alter(cluster, both, producer_byte_rate=100_000.0, consumer_byte_rate=2e5) == (0, None)
    assert alter(cluster, {USER: None}, request_percentage=12.5) == (0, None)
    assert alter(cluster, {CLIENT: "c"}, producer_byte_rate=7.0) == (0, None)
    assert alter(cluster, {IP: "10.1.2.3"}, connection_creation_rate=50.0) == (0, None)
    assert cluster.znode("/config/users/a%20b/clients/c") is not None
    quotas = cluster.brokers["b1"].services.quotas
    cluster.wait(lambda: quotas.connection_rate("10.1.2.3") == 50)
    assert quotas.connection_rate("10.1.2.4") == UNBOUNDED
    assert quotas.bound(CONSUMER_RATE, "a b", "c")[0] == 200_000
    assert quotas.bound(REQUEST_PERCENTAGE, "x", "y")[0] == 12.5

    of_both = (both, {"producer_byte_rate": 1e5, "consumer_byte_rate": 2e5})
    of_users = ({USER: None}, {"request_percentage": 12.5})
    of_client = ({CLIENT: "c"}, {"producer_byte_rate": 7.0})
    of_address = ({IP: "10.1.2.3"}, {"connection_creation_rate": 50.0})
    assert described(cluster) == [of_users, of_both, of_client, of_address]
    assert described(cluster, strict=True) == []
    assert described(cluster, (USER, SPECIFIED, None)) == [of_users, of_both]
    assert described(cluster, (USER, SPECIFIED, None), strict=True) == [of_users]
    assert described(cluster, (USER, DEFAULT, None)) == [of_users]
    assert described(cluster, (CLIENT, EXACT, "c")) == [of_both, of_client]
    assert described(cluster, (IP, EXACT, "10.1.2.3")) == [of_address]

    gone = {"producer_byte_rate": None, "consumer_byte_rate": None}
    assert alter(cluster, both, **gone) == (0, None)
    assert cluster.znode("/config/users/a%20b") is None
    assert alter(cluster, {IP: "10.1.2.3"}, connection_creation_rate=None) == (0, None)
    cluster.wait(lambda: quotas.connection_rate("10.1.2.3") == UNBOUNDED)
    assert quotas.bound(CONSUMER_RATE, "a b", "c")[0] == UNBOUNDED
    assert described(cluster) == [of_users, of_client]


@pytest.mark.parametrize(
    ("entity", "bounds", "message"),
    [
        ({}, {}, "Invalid empty client quota entity"),
        ({"planet": "x"}, {}, "Unhandled client quota entity type: planet"),
        ({USER: ""}, {}, "Empty user not supported"),
        ({USER: "u", IP: "10.0.0.1"}, {}, "Invalid quota entity combination"),
        ({IP: "no address"}, {}, "is not a valid IP"),
        ({USER: "u"}, {"connection_creation_rate": 1.0}, "Invalid configuration key"),
        ({USER: "u"}, {"producer_byte_rate": 1.5}, "must be a LONG value"),
    ],
)
def test_what_is_refused(cluster, entity, bounds, message):
    code, text = alter(cluster, entity, **bounds)
    assert code == ErrorCode.INVALID_REQUEST
    assert message in text


# Held back -------------------------------------------------------------------------------


def test_a_producer_over_its_bound_gets_a_response_with_throttle_time_and_is_muted(cluster):
    assert alter(cluster, {CLIENT: "slow"}, producer_byte_rate=100.0) == (0, None)
    quotas = cluster.brokers["b1"].services.quotas
    cluster.wait(lambda: quotas.active)
    records = build_batch([Record(value=b"x" * 2000)])
    r = ProduceRequest
    data = r.PartitionProduceData(index=0, records=records)
    produce = r(
        acks=1, timeout_ms=1000, topic_data=[r.TopicProduceData(name="t", partition_data=[data])]
    )
    node = cluster.simulation.node("client")

    async def twice(client):
        clock = node.world.clock
        peer = await PeerConnection.open(node.world, "b1", 9092, client, timeout_s=5)
        try:
            started_s = clock.monotonic()
            first = await peer.send(produce, 9, 60)
            middle_s = clock.monotonic()
            await peer.send(produce, 9, 60)
            return first, middle_s - started_s, clock.monotonic() - middle_s
        finally:
            peer.close()

    answer, at_once_s, held_s = node.call(twice("slow"))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert at_once_s < 1
    assert 10_000 < answer.throttle_time_ms < 13_000
    # The throttle time begins when the broker answers, a moment before the response arrives.
    assert answer.throttle_time_ms / 1000 - 0.001 <= held_s < answer.throttle_time_ms / 1000 + 1
    answer, _, free_s = node.call(twice("free"))
    assert answer.throttle_time_ms == 0
    assert free_s < 1


def fetch_of(offset, session=(0, -1)):
    f = FetchRequest
    wanted = f.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10**6)
    return f(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=10**6, session_id=session[0],
        session_epoch=session[1], topics=[f.FetchTopic(topic="t", partitions=[wanted])],
    )  # fmt: skip


def fetch_again(session):
    return FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=10**6, session_id=session[0],
        session_epoch=session[1], topics=[],
    )  # fmt: skip


@pytest.fixture
def filled(cluster):
    r = ProduceRequest
    for _ in range(5):
        data = r.PartitionProduceData(index=0, records=build_batch([Record(value=b"x" * 1000)]))
        topic = r.TopicProduceData(name="t", partition_data=[data])
        cluster.ask(1, r(acks=1, timeout_ms=1000, topic_data=[topic]), 9)
    assert alter(cluster, {CLIENT: "t"}, consumer_byte_rate=200.0) == (0, None)
    cluster.wait(lambda: cluster.brokers["b1"].services.quotas.active)
    return cluster


def test_a_consumer_over_its_bound_gets_nothing_and_waits(filled):
    first = filled.ask(1, fetch_of(0), 12)
    assert 1000 < len(first.responses[0].partitions[0].records) <= 2200
    assert first.throttle_time_ms == 0
    second = filled.ask(1, fetch_of(1), 12)
    assert second.responses == []
    # 2,256 bytes, and ten windows of a second may hold 2,000.
    assert second.throttle_time_ms == 1280
    # Bytes that were not sent do not count: another request makes no client wait longer.
    assert filled.ask(1, fetch_of(1), 12).throttle_time_ms == second.throttle_time_ms


def test_a_response_that_is_kept_back_changes_nothing_in_a_session(filled):
    opened = filled.ask(1, fetch_of(0, session=(0, 0)), 12)
    assert opened.session_id > 0
    session = opened.session_id
    waiting = filled.ask(1, fetch_of(1, session=(session, 1)), 12)
    assert (waiting.throttle_time_ms > 0, waiting.session_id) == (True, session)
    assert waiting.responses == []
    filled.simulation.run_for(15)
    read = filled.ask(1, fetch_again((session, 2)), 12)
    assert read.throttle_time_ms == 0
    assert len(read.responses[0].partitions[0].records) > 1000
    refused = filled.ask(1, fetch_again((session, 2)), 12)
    assert refused.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_full_request_that_is_kept_back_opens_no_session(filled):
    filled.ask(1, fetch_of(0), 12)
    sessions = filled.brokers["b1"].services.replicas.sessions
    before = len(sessions)
    kept_back = filled.ask(1, fetch_of(1, session=(0, 0)), 12)
    assert (kept_back.throttle_time_ms > 0, kept_back.session_id) == (True, 0)
    assert len(sessions) == before


def test_a_parked_fetch_counts_when_it_would_complete(filled):
    """A fetch that waits for records is over the bound only once there are some."""
    filled.ask(1, fetch_of(0), 12)
    node = filled.simulation.node("client")
    late = fetch_of(5)
    late.max_wait_ms = 30_000
    records = build_batch([Record(value=b"x" * 1000)])
    r = ProduceRequest
    data = r.PartitionProduceData(index=0, records=records)
    produce = r(acks=1, timeout_ms=1000,
                topic_data=[r.TopicProduceData(name="t", partition_data=[data])])  # fmt: skip

    async def both():
        reader = await PeerConnection.open(node.world, "b1", 9092, "t", timeout_s=5)
        writer = await PeerConnection.open(node.world, "b1", 9092, "w", timeout_s=5)
        try:
            waiting = asyncio.ensure_future(reader.send(late, 12, 60))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await writer.send(produce, 9, 60)
            return await waiting
        finally:
            reader.close()
            writer.close()

    answer = node.call(both())
    assert answer.throttle_time_ms > 0
    assert answer.responses == []


def test_metadata_has_the_throttle_time_too(cluster):
    """It is made of encoded parts, and not like other responses."""
    assert alter(cluster, {CLIENT: "t"}, request_percentage=1.0) == (0, None)
    quotas = cluster.brokers["b1"].services.quotas
    cluster.wait(lambda: quotas.active)
    now_ms = cluster.simulation.node("b1").world.clock.monotonic() * 1000
    quotas.record(REQUEST_PERCENTAGE, ANONYMOUS.name, "t", 500, now_ms)
    assert cluster.ask(1, MetadataRequest(topics=[]), 9).throttle_time_ms > 0


# By user ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entity", "held_back"),
    [
        ({USER: "alice"}, {("alice", "c"), ("alice", "d")}),
        ({USER: "alice", CLIENT: "c"}, {("alice", "c")}),
        ({USER: "alice", CLIENT: None}, {("alice", "c"), ("alice", "d")}),
        ({USER: None}, {("alice", "c"), ("alice", "d"), ("b@x/y z", "c"), ("b@x/y z", "d")}),
        ({USER: "b@x/y z"}, {("b@x/y z", "c"), ("b@x/y z", "d")}),
        ({CLIENT: "d"}, {("alice", "d"), ("b@x/y z", "d")}),
    ],
)
def test_a_quota_of_a_user_holds_back_the_connections_of_that_user(cluster, entity, held_back):
    """Who it is, its connection says. Names with other characters are sanitized in ZooKeeper."""
    broker = cluster.brokers["b1"]
    assert alter(cluster, entity, request_percentage=1.0) == (0, None)
    cluster.wait(lambda: broker.services.quotas.active)
    now_ms = cluster.simulation.node("b1").world.clock.monotonic() * 1000
    found = set()
    for user in ("alice", "b@x/y z"):
        for client in ("c", "d"):
            quotas = broker.services.quotas
            quotas.record(REQUEST_PERCENTAGE, user, client, 500, now_ms)
            conn = QuotaConnection(Principal("User", user))
            raw = encode_request_header(3, 9, 1, client)
            raw += b"".join(encode_request(MetadataRequest(topics=[]), 9))
            broker.router.dispatch(conn, memoryview(raw))
            if conn.held_back_ms:
                found.add((user, client))
            quotas._rates.clear()
    assert found == held_back


class QuotaConnection:
    """A connection, as far as a request with a quota needs one."""

    listener = "PLAINTEXT"
    peer = ("127.0.0.1", 1)

    def __init__(self, principal):
        self.principal = principal
        self.held_back_ms = 0

    def throttle(self, delay_ms):
        self.held_back_ms = delay_ms
