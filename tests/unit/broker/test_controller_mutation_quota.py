"""How many partitions a client may change per second (KIP-599): the bucket, and the requests."""

import pytest

from ottla.broker.quotas.client_quotas import ANY, MUTATION_RATE, ClientQuotas
from ottla.broker.quotas.controller_mutation_quota import (
    ControllerMutationQuotas,
    ThrottlingQuotaExceededError,
    TokenBucket,
)
from ottla.model.errors import ErrorCode
from ottla.net.peer import PeerConnection
from ottla.security.principals import ANONYMOUS
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.configs import AlterClientQuotasRequest, DescribeClientQuotasRequest
from ottla.wire.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

pytestmark = pytest.mark.timeout(60)

RATE = 0.5
MOST = 5.5
"""Tokens of a full bucket: eleven windows of a second."""


# The bucket ------------------------------------------------------------------------------


def test_tokens_come_back_up_to_what_all_windows_hold():
    bucket = TokenBucket(11_000)
    assert bucket.tokens(RATE, 77) == MOST
    assert bucket.take(6.5, RATE, 77) == -1
    assert bucket.tokens(RATE, 2_077) == 0
    assert bucket.tokens(RATE, 60_077) == MOST


class Time:
    ms = 0.0

    def __call__(self):
        return self.ms


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def mutations(time):
    quotas = ClientQuotas(11, 1000)
    quotas.set((None, ANY), {MUTATION_RATE: RATE})
    return ControllerMutationQuotas(quotas, 11, 1000, time)


def quota_of(mutations, client="c", *, strict=True):
    return mutations.quota(
        ANONYMOUS.name, RequestHeader(19, 6 if strict else 5, 1, client), strict_since=6
    )


def test_a_strict_quota_lets_one_large_request_pass_and_then_nothing(mutations, time):
    quota = quota_of(mutations)
    quota.charge(10)
    assert quota.wait_ms() == 0
    with pytest.raises(ThrottlingQuotaExceededError):
        quota.charge(1)
    assert quota.wait_ms() == 9000
    time.ms += 4000
    assert quota.wait_ms() == 5000
    time.ms += 5000
    quota_of(mutations).charge(1)
    quota_of(mutations, "other").charge(1)


def test_a_permissive_quota_lets_everything_pass_and_the_client_wait(mutations):
    quota = quota_of(mutations, strict=False)
    quota.charge(5)
    assert quota.wait_ms() == 0
    quota.charge(5)
    quota.charge(1)
    assert quota.wait_ms() == 11_000


def test_a_rate_of_nothing_lets_one_request_pass(time):
    quotas = ClientQuotas(11, 1000)
    quotas.set((None, "c"), {MUTATION_RATE: 0})
    mutations = ControllerMutationQuotas(quotas, 11, 1000, time)
    quota_of(mutations).charge(1)
    quota = quota_of(mutations)
    with pytest.raises(ThrottlingQuotaExceededError):
        quota.charge(1)
    assert quota.wait_ms() == 2**31 - 1


def test_without_a_bound_nothing_is_counted(time):
    mutations = ControllerMutationQuotas(ClientQuotas(11, 1000), 11, 1000, time)
    quota = quota_of(mutations)
    for _ in range(3):
        quota.charge(10**6)
    assert quota.wait_ms() == 0


# The requests ----------------------------------------------------------------------------


@pytest.fixture
def cluster(scene):
    scene.up(1, auto_create_topics_enable="true")
    made = create(scene, "kept", 1)
    assert made == (ErrorCode.NONE, 0)
    r = AlterClientQuotasRequest
    entry = r.EntryData(
        entity=[r.EntityData(entity_type="client-id", entity_name="t")],
        ops=[r.OpData(key=MUTATION_RATE, value=RATE)],
    )
    assert scene.ask(1, r(entries=[entry]), 1).entries[0].error_code == ErrorCode.NONE
    scene.wait(lambda: scene.brokers["b1"].services.quotas.active)
    return scene


def create(scene, name, partitions, version=7, *, dry=False):
    r = CreateTopicsRequest
    topic = r.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = scene.ask(1, r(topics=[topic], timeout_ms=10_000, validate_only=dry), version)
    (result,) = answer.topics
    assert result.error_message is None
    return result.error_code, answer.throttle_time_ms


def grow(scene, name, count, version):
    r = CreatePartitionsRequest
    topic = r.CreatePartitionsTopic(name=name, count=count, assignments=None)
    answer = scene.ask(1, r(topics=[topic], timeout_ms=10_000), version)
    return answer.results[0].error_code, answer.throttle_time_ms


def delete(scene, name, version):
    r = DeleteTopicsRequest
    named = {"topics": [r.DeleteTopicState(name=name)]} if version > 5 else {"topic_names": [name]}
    answer = scene.ask(1, r(**named, timeout_ms=10_000), version)
    return answer.responses[0].error_code, answer.throttle_time_ms


def exhausted(code, throttle_ms):
    return code == ErrorCode.THROTTLING_QUOTA_EXCEEDED and 0 < throttle_ms <= 20_000


def waits(code, throttle_ms):
    return code == ErrorCode.NONE and 0 < throttle_ms <= 20_000


def test_the_bound_is_described(cluster):
    answer = cluster.ask(1, DescribeClientQuotasRequest(components=[]), 1)
    (entry,) = answer.entries
    assert [(v.key, v.value) for v in entry.values] == [(MUTATION_RATE, RATE)]


def test_what_is_only_validated_costs_nothing(cluster):
    assert create(cluster, "large", 1000, dry=True) == (ErrorCode.NONE, 0)
    assert create(cluster, "a", 1) == (ErrorCode.NONE, 0)


def test_requests_that_know_the_error_are_refused(cluster):
    assert create(cluster, "large", 10) == (ErrorCode.NONE, 0)
    assert exhausted(*create(cluster, "a", 1))
    assert exhausted(*create(cluster, "a", 1, 6))
    assert exhausted(*grow(cluster, "kept", 2, 3))
    assert exhausted(*delete(cluster, "kept", 6))
    assert exhausted(*delete(cluster, "kept", 5))
    assert cluster.znode("/brokers/topics/a") is None
    assert cluster.znode("/admin/delete_topics/kept") is None
    cluster.simulation.run_for(20)
    assert create(cluster, "a", 1) == (ErrorCode.NONE, 0)


def test_requests_that_do_not_are_served_and_wait(cluster):
    assert create(cluster, "large", 10, 5) == (ErrorCode.NONE, pytest.approx(9000, abs=500))
    assert waits(*create(cluster, "a", 1, 4))
    assert waits(*grow(cluster, "kept", 2, 2))
    assert waits(*delete(cluster, "kept", 4))


def test_topics_that_are_made_by_asking_for_them_count(cluster):
    assert create(cluster, "large", 5) == (ErrorCode.NONE, 0)
    for name in ("one", "two"):
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        cluster.ask(1, asked, 9)
        assert cluster.znode(f"/brokers/topics/{name}") is not None
    assert exhausted(*create(cluster, "a", 1))


def test_a_client_over_its_bound_is_not_read_for_a_while(cluster):
    node = cluster.simulation.node("client")
    r = CreateTopicsRequest

    def request(name, partitions):
        topic = r.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        return r(topics=[topic], timeout_ms=10_000)

    async def twice():
        peer = await PeerConnection.open(node.world, "b1", 9092, "t", timeout_s=5)
        try:
            await peer.send(request("large", 8), 7, 60)
            refused = await peer.send(request("a", 1), 7, 60)
            began_s = node.world.clock.monotonic()
            await peer.send(request("a", 1), 7, 60)
            return refused.throttle_time_ms, node.world.clock.monotonic() - began_s
        finally:
            peer.close()

    throttle_ms, held_s = node.call(twice())
    assert 4000 < throttle_ms < 5100
    assert throttle_ms / 1000 <= held_s < throttle_ms / 1000 + 1
