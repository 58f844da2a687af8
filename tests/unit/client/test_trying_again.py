"""What is asked again, and for how long: coordinators that move, leaders that are not there."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from ottla.client.client import Patience
from ottla.client.coordinators import Coordinator, at_each_leader
from ottla.client.fetching import fetch
from ottla.client.offsets import all_offsets
from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from support.fake_client import FakeClient

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
GONE = ConnectionLostError("cannot reach it")
LASTING = OttlaError("no permission", ErrorCode.GROUP_AUTHORIZATION_FAILED)


class Clock:
    """Moves only while someone sleeps."""

    def __init__(self, monkeypatch):
        self.now_s = 0.0
        self.waits = []
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def sleep(self, seconds):
        self.waits.append(seconds)
        self.now_s += seconds


def test_waits_grow_to_a_bound_and_end_with_the_time_granted(monkeypatch):
    clock = Clock(monkeypatch)

    async def used_up():
        patience = Patience(lambda: clock.now_s, random.Random(1), 10.0)
        while True:
            await patience.wait(GONE)

    with pytest.raises(ConnectionLostError):
        asyncio.run(used_up())
    assert 0.1 <= clock.waits[0] <= 0.2
    assert all(0.5 <= wait <= 1.0 for wait in clock.waits[4:-1])
    assert clock.now_s == pytest.approx(10.0)


def test_a_success_grants_the_time_again_and_what_lasts_is_raised_at_once(monkeypatch):
    clock = Clock(monkeypatch)

    async def renewed():
        patience = Patience(lambda: clock.now_s, random.Random(1), 1.0)
        for _ in range(20):
            await patience.wait(GONE)
            patience.renew()
        await patience.wait(LASTING)

    with pytest.raises(OttlaError, match="no permission"):
        asyncio.run(renewed())
    assert len(clock.waits) == 20


class Cluster(FakeClient):
    """Answers with the next of some codes or errors; its coordinator is the next of some ids."""

    def __init__(self, *answers, coordinators=(1,)):
        self.answers = list(answers)
        self.coordinators = list(coordinators)
        self.asked = []

    async def coordinator(self, _key, _kind):
        return 0, self.coordinators.pop(0) if len(self.coordinators) > 1 else self.coordinators[0]

    async def metadata(self, _topics):
        return None

    async def call(self, _request, broker, **_):
        self.asked.append(broker)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(error_code=answer)


def ask(cluster, **more):
    coordinator = Coordinator(cluster, "g", patience_s=0.3)
    return asyncio.run(coordinator.ask(None, **more)).error_code


def test_a_coordinator_that_moved_is_looked_for_again():
    cluster = Cluster(ErrorCode.NOT_COORDINATOR, GONE, 0, coordinators=(1, 2, 3))
    assert ask(cluster) == 0
    assert cluster.asked == [1, 2, 3]


def test_a_code_that_is_not_of_moving_is_the_callers():
    assert ask(Cluster(ErrorCode.REBALANCE_IN_PROGRESS)) == ErrorCode.REBALANCE_IN_PROGRESS
    again = {ErrorCode.REQUEST_TIMED_OUT}
    assert ask(Cluster(ErrorCode.REQUEST_TIMED_OUT, 0), again=again) == 0


def test_a_coordinator_that_still_ends_a_transaction_is_not_looked_for_elsewhere():
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    cluster = Cluster(busy, busy, busy, 0, coordinators=(1, 2))
    assert ask(cluster, again={busy}) == 0
    assert cluster.asked == [1, 1, 1, 1]


def test_a_coordinator_that_never_comes_is_an_error():
    cluster = Cluster(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with pytest.raises(OttlaError, match=r"coordinator of group g: .*COORDINATOR_LOAD_IN_PROGRESS"):
        ask(cluster)
    assert len(cluster.asked) > 2
    cluster = Cluster(LASTING)
    with pytest.raises(OttlaError, match="no permission"):
        ask(cluster)
    assert cluster.asked == [1]


def test_a_cluster_that_was_never_reached_is_an_error_at_once():
    """`ottla groups delete` said it after 15 s: what cannot be asked has not moved."""
    cluster = Cluster(0)
    tries = []

    async def coordinator(_key, _kind):
        tries.append(1)
        if len(tries) == 1:
            raise GONE
        return 0, 1

    cluster.coordinator = coordinator
    with pytest.raises(type(GONE)):
        ask(cluster)
    assert len(tries) == 1
    assert cluster.asked == []


class Leaders(FakeClient):
    """`led`: who leads each partition, -1 for nobody; it may change at each refresh."""

    def __init__(self, *led, offsets=(7, 8)):
        self.led = list(led)
        self.offsets = dict(zip((A, B), offsets, strict=True))
        self.asked = []

    async def metadata(self, _topics):
        if len(self.led) > 1:
            self.led.pop(0)

    async def leader(self, topic, partition):
        leader = self.led[0][topic, partition]
        if leader < 0:
            raise OttlaError(f"{topic}-{partition} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return leader

    def leader_epoch(self, _topic, _partition):
        return 5

    async def call(self, request, broker, **_):
        self.asked.append(broker)
        if broker == 9:
            raise GONE
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=t.name,
                    partitions=[
                        SimpleNamespace(
                            partition_index=p.partition_index,
                            error_code=0 if p.current_leader_epoch in (-1, 5) else 76,
                            offset=self.offsets[TopicPartition(t.name, p.partition_index)],
                            leader_epoch=5,
                        )
                        for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )


def test_leaders_are_asked_and_what_failed_is_named():
    cluster = Leaders({A: 1, B: 9})

    async def asked(led):
        cluster.led = [led]
        request = SimpleNamespace(topics=[])
        return await at_each_leader(cluster, [A, B], lambda _some: request)

    found = asyncio.run(asked({A: 1, B: 9}))
    assert (len(found.responses), list(found.failed), found.leaderless) == (1, [9], {})
    problems = []
    found.note("offsets", problems)
    assert problems == ["offsets of partitions led by broker 9: cannot reach it"]
    with pytest.raises(ConnectionLostError):
        found.note("offsets", None)
    assert list(asyncio.run(asked({A: 1, B: -1})).leaderless) == [B]


def test_offsets_of_all_partitions_wait_for_the_last_leader():
    cluster = Leaders({A: 1, B: -1}, {A: 1, B: 9}, {A: 1, B: 2})
    found = asyncio.run(all_offsets(cluster, {A: -1, B: -1}, cluster.patience(5.0)))
    assert {tp: one.offset for tp, one in found.items()} == {A: 7, B: 8}
    assert cluster.asked == [1, 9, 2]
    gone = Leaders({A: 1, B: -1})
    with pytest.raises(OttlaError, match="t-1 has no leader"):
        asyncio.run(all_offsets(gone, {A: -1, B: -1}, gone.patience(0.05)))


def test_a_response_that_lacks_a_partition_is_an_error_in_bounded_time():
    class Silent(Leaders):
        async def call(self, request, broker, **_):
            self.asked.append(broker)
            return SimpleNamespace(topics=[])

    cluster = Silent({A: 1, B: 1})
    with pytest.raises(OttlaError, match="the leader of t-0 returned no offset"):
        asyncio.run(all_offsets(cluster, {A: -1}, cluster.patience(0.05)))
    assert 1 < len(cluster.asked) < 50


@pytest.mark.parametrize(
    ("ids", "version"), [({}, 12), ({"t": bytes(16)}, 12), ({"t": b"i" * 16}, None)]
)
def test_a_fetch_names_topics_by_their_ids_where_all_are_known(ids, version):
    sent = []

    class Broker(FakeClient):
        async def call(self, request, broker, *, version, timeout_s):
            sent.append((request, version))
            topic = SimpleNamespace(
                topic="" if version is None else "t",
                topic_id=ids.get("t", bytes(16)),
                partitions=[SimpleNamespace(partition_index=1, error_code=0)],
            )
            return SimpleNamespace(error_code=0, responses=[topic])

    ((tp, _),) = asyncio.run(fetch(Broker(), 1, {B: 42}, partition_bytes=10, topic_ids=ids))
    assert (tp, sent[0][1]) == (B, version)
    assert sent[0][0].topics[0].partitions[0].fetch_offset == 42
