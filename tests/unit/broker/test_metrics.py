"""Figures under Kafka's names: what moves them, and what they cost a request."""

import asyncio
import importlib.util
import json
import os
import time
from pathlib import Path

import pytest

from ottla.broker.metrics.mbeans import SAMPLE_S, WINDOW, Metrics, ThreadTimes
from ottla.broker.requests.request_times import EVERY
from ottla.model.errors import ErrorCode
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
)
from ottla.zookeeper.session import SessionEvent, SessionState

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).resolve().parents[3]
MANAGER = "kafka.server:type=ReplicaManager,name="
CONTROLLER = "kafka.controller:type=KafkaController,name="
ELECTIONS = "kafka.controller:type=ControllerStats,name="
CAUSES = ("offline", "unclean", "reassignment", "preferred", "controlled-shutdown")
IDLE = "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"
HANDLERS = "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"
REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request="
FETCH_SESSIONS = "kafka.server:type=FetchSessionCache,name="
TIMES = "kafka.network:type=RequestMetrics,name=TotalTimeMs,request="
PARKED = "kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations,delayedOperation="


class Hand:
    """A clock and the busy time of a loop, moved by the test."""

    def __init__(self):
        self.now = 0.0
        self.busy = 0.0

    def pass_by(self, metrics, seconds, busy):
        for _ in range(round(seconds / SAMPLE_S)):
            self.now += SAMPLE_S
            self.busy += SAMPLE_S * busy
            metrics.sample()


def metrics_of(broker, hand):
    return Metrics(broker, lambda: hand.busy, lambda: hand.now)


def values(metrics):
    return {name: f["Value"] for name, f in metrics.figures().items() if "Value" in f}


def elections(metrics):
    """Return how many elections there were of each cause."""
    by_cause = "ottla.controller:type=ControllerStats,name=ElectionsPerSec,cause="
    found = metrics.figures().items()
    return {n.removeprefix(by_cause): f["Count"] for n, f in found if n.startswith(by_cause)}


def slow_requests(caplog):
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if line.startswith("request slow ")]


def create(scene, *replicas, at=1):
    """Create the topic t with these replicas of its partitions."""
    r = CreateTopicsRequest
    topic = r.CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            r.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in enumerate(replicas)
        ],
    )
    scene.ask(at, r(topics=[topic], timeout_ms=10_000), 7)


@pytest.fixture
def pair(scene):
    """Two brokers and a topic of one partition on both, led by the first."""
    scene.up(1)
    scene.up(2, replica_lag_time_max_ms="3000")
    create(scene, [1, 2])
    scene.wait(lambda: all(b.logs.logs() for b in scene.brokers.values()))
    return scene


def test_a_dead_follower_shows_and_its_return_too(pair):
    leader, hand = pair.brokers["b1"], Hand()
    metrics = metrics_of(leader, hand)
    pair.wait(lambda: values(metrics)[f"{PARKED}Fetch"] == 1)
    before = values(metrics)
    assert before[f"{CONTROLLER}ActiveControllerCount"] == 1
    assert before[f"{CONTROLLER}ActiveBrokerCount"] == 2
    assert before[f"{CONTROLLER}GlobalPartitionCount"] == 1
    assert before[f"{MANAGER}LeaderCount"] == 1
    assert before[f"{MANAGER}UnderReplicatedPartitions"] == 0
    follower = values(metrics_of(pair.brokers["b2"], hand))
    assert follower[f"{CONTROLLER}ActiveControllerCount"] == 0
    assert follower[f"{CONTROLLER}GlobalPartitionCount"] == 0
    assert (follower[f"{MANAGER}LeaderCount"], follower[f"{MANAGER}PartitionCount"]) == (0, 1)

    pair.simulation.node("b2").crash()
    pair.wait(lambda: values(metrics)[f"{MANAGER}UnderReplicatedPartitions"] == 1)
    (partition,) = leader.services.replicas.partitions.values()
    partition.state.adding = (2,)
    assert values(metrics)[f"{MANAGER}UnderReplicatedPartitions"] == 0, "it is only being added"
    partition.state.adding = ()
    pair.up(2)
    pair.wait(lambda: values(metrics)[f"{MANAGER}UnderReplicatedPartitions"] == 0)
    hand.pass_by(metrics, 10, busy=0)
    found = metrics.figures()
    assert found[f"{MANAGER}IsrExpandsPerSec"]["Count"] == 1
    assert found[f"{MANAGER}IsrExpandsPerSec"]["OneMinuteRate"] == 0.1
    assert metrics.document() == json.dumps(found, separators=(",", ":")).encode() + b"\n"


def test_an_unclean_election_is_counted_by_the_controller_that_held_it(pair):
    r = CreateTopicsRequest
    topic = r.CreatableTopic(
        name="u",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[r.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
        configs=[r.CreatableTopicConfig(name="unclean.leader.election.enable", value="true")],
    )
    pair.ask(1, r(topics=[topic], timeout_ms=10_000), 7)
    first = metrics_of(pair.brokers["b1"], Hand())
    pair.simulation.node("b2").crash()
    pair.wait(lambda: values(first)[f"{MANAGER}UnderReplicatedPartitions"] == 2)
    pair.simulation.node("b1").crash()
    second = metrics_of(pair.up(2), Hand())
    pair.wait(lambda: values(second)[f"{MANAGER}LeaderCount"] == 1)
    found = second.figures()
    assert found[f"{ELECTIONS}UncleanLeaderElectionsPerSec"]["Count"] == 1
    elected = "ottla.controller:type=ControllerStats,name=LeadersElectedPerSec"
    assert found[elected]["Count"] == 1
    assert elections(second) == dict.fromkeys(CAUSES, 0) | {"unclean": 1}
    times = found[f"{ELECTIONS}ControllerChangeRateAndTimeMs"]
    assert times["Count"] >= 1
    assert 0 < times["Min"] <= times["50thPercentile"] <= times["Max"]
    assert values(second)[f"{CONTROLLER}OfflinePartitionsCount"] == 1, "t waits for broker 1"
    controller = pair.brokers["b2"].services.controller
    pair.simulation.node("b2").loop.call_soon(controller._end_term, "the test says so", 0)
    pair.wait(lambda: not controller.is_active)
    assert second.figures()[f"{ELECTIONS}UncleanLeaderElectionsPerSec"]["Count"] == 1


def test_elections_are_counted_by_their_cause(scene):
    for number in (3, 1, 2):
        scene.up(number, auto_leader_rebalance_enable="false")
    controller = scene.brokers["b3"]
    metrics = metrics_of(controller, Hand())
    create(scene, [1, 2], [1, 2], [2, 1], [2, 1], at=3)
    known = controller.services.metadata

    def led_by(*leaders, in_sync=2):
        states = [known.partition("t", index) for index in range(4)]
        return all(
            state is not None and state.leader == leader and len(state.isr) == in_sync
            for state, leader in zip(states, leaders, strict=True)
        )

    scene.wait(lambda: led_by(1, 1, 2, 2))
    nothing = dict.fromkeys(CAUSES, 0)
    assert elections(metrics) == nothing, "the first leaders are not elected"
    scene.simulation.node("b1").crash()
    scene.wait(lambda: led_by(2, 2, 2, 2, in_sync=1))
    assert elections(metrics) == nothing | {"offline": 2}
    scene.up(1)
    scene.wait(lambda: led_by(2, 2, 2, 2))
    e = ElectLeadersRequest
    scene.ask(3, e(election_type=0, topic_partitions=[e.TopicPartitions("t", [0])]), 2)
    scene.wait(lambda: led_by(1, 2, 2, 2))
    assert elections(metrics) == nothing | {"offline": 2, "preferred": 1}
    scene.stop(2)
    scene.wait(lambda: led_by(1, 1, 1, 1, in_sync=1))
    found = nothing | {"offline": 2, "preferred": 1, "controlled-shutdown": 3}
    assert elections(metrics) == found
    a = AlterPartitionReassignmentsRequest
    moves = [a.ReassignablePartition(partition_index=index, replicas=[3]) for index in range(4)]
    scene.ask(3, a(topics=[a.ReassignableTopic(name="t", partitions=moves)]), 0)
    scene.wait(lambda: led_by(3, 3, 3, 3, in_sync=1))
    assert elections(metrics) == found | {"reassignment": 4}
    total = metrics.figures()["ottla.controller:type=ControllerStats,name=LeadersElectedPerSec"]
    assert total["Count"] == 10


def test_the_page_of_metrics_is_up_to_date():
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "list_metrics.py")
    listing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(listing)
    assert listing.PAGE.read_text(encoding="utf-8") == listing.page(), (
        "run: python docs/list_metrics.py"
    )


def test_idle_is_of_the_last_minute(pair):
    hand = Hand()
    metrics = metrics_of(pair.brokers["b1"], hand)
    assert values(metrics)[IDLE] == 1.0, "nothing is known yet"
    hand.pass_by(metrics, 30, busy=1.0)
    assert values(metrics)[IDLE] == 0.0
    hand.pass_by(metrics, 30, busy=0.5)
    assert values(metrics)[IDLE] == 0.25
    hand.pass_by(metrics, SAMPLE_S * WINDOW, busy=0.25)
    assert values(metrics)[IDLE] == 0.75
    assert metrics.figures()[HANDLERS]["OneMinuteRate"] == 0.75
    idle_s = 30 * 0.5 + SAMPLE_S * WINDOW * 0.75
    assert metrics.figures()[HANDLERS]["Count"] == pytest.approx(idle_s * 1e9), "nanoseconds"
    told = metrics.document()
    hand.busy += 60
    assert metrics.document() is told, "made once a second at most, however many ask"


def test_every_request_is_counted_and_few_are_timed(pair):
    metrics = metrics_of(pair.brokers["b1"], Hand())
    pair.ask(1, MetadataRequest(topics=[]), 9)
    times = pair.brokers["b1"].times
    before = metrics.figures()[f"{REQUESTS}Metadata,version=9"]["Count"]
    timed = {(kind, name): t["Count"] for kind, name, t in times.figures()}[3, "TotalTimeMs"]
    for _ in range(EVERY):
        pair.ask(1, MetadataRequest(topics=[]), 9)
    pair.ask(1, MetadataRequest(topics=[]), 8)
    found = metrics.figures()
    assert found[f"{REQUESTS}Metadata,version=9"]["Count"] == before + EVERY
    assert found[f"{REQUESTS}Metadata,version=8"]["Count"] == 1
    assert found[f"{TIMES}Metadata"]["Count"] == before + EVERY + 1, "all, not only those timed"
    now = {(kind, name): t["Count"] for kind, name, t in times.figures()}[3, "TotalTimeMs"]
    assert now == timed + 2, "the first of each version, and each 64th"


def test_fetches_of_followers_and_of_consumers_are_told_apart(pair):
    leader = pair.brokers["b1"]
    pair.produce("t", 5)
    found = metrics_of(leader, Hand()).figures()
    by_kind = {}
    for name, figures in found.items():
        if name.startswith(f"{REQUESTS}Fetch"):
            kind = name.removeprefix(REQUESTS).partition(",")[0]
            by_kind[kind] = by_kind.get(kind, 0) + figures["Count"]
    assert by_kind["FetchFollower"] == by_kind["Fetch"] > 0, "nobody consumes"
    assert found[f"{TIMES}FetchFollower"]["Count"] == by_kind["FetchFollower"]
    assert f"{TIMES}FetchConsumer" not in found
    remote = found["kafka.network:type=RequestMetrics,name=RemoteTimeMs,request=Produce"]
    assert remote["Max"] > 0, "the producer waits for the follower"


def test_a_broker_tells_slow_requests_if_its_settings_say_so(scene, caplog):
    scene.up(1, ottla_slow_request_ms="200")
    scene.up(2)
    create(scene, [1, 2])
    scene.wait(lambda: all(b.logs.logs() for b in scene.brokers.values()))
    scene.produce("t")
    assert not slow_requests(caplog), "it was fast"
    follower = scene.simulation.node("b2")
    follower.pause()
    scene.simulation.node("b1").loop.call_later(1.0, follower.resume)
    scene.produce("t")
    (line,) = slow_requests(caplog)
    assert line.startswith("request slow api=Produce version=9 ")
    assert "client_id='t' peer=" in line
    assert 200 <= float(line.partition(" total_ms=")[2].partition(" ")[0]) < 2000


def test_counts_of_topics_are_those_of_records_and_bytes(pair):
    leader, follower = pair.brokers["b1"], pair.brokers["b2"]
    pair.produce("t", 5)
    size = leader.logs.logs()[0].size
    pair.wait(lambda: follower.logs.logs()[0].size == size)
    counts = leader.services.replicas.topic_counts
    total = counts.total()
    assert (total.messages_in, total.bytes_in, total.produces) == (5, size, 1)
    assert (total.replication_bytes_out, total.bytes_out) == (size, 0)
    copied = follower.services.replicas.topic_counts.total()
    assert (copied.replication_bytes_in, copied.bytes_in) == (size, 0)
    counts.refused("t", ErrorCode.MESSAGE_TOO_LARGE, 77, expected=True)
    counts.refused("t", ErrorCode.INVALID_RECORD, 7, expected=False)
    counts.refused("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 7, expected=True)
    total = counts.total()
    assert (total.produces, total.failed_produces, total.bytes_rejected) == (3, 1, 77)
    pair.ask(1, DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 3)
    pair.wait(lambda: not len(counts))
    assert counts.total().messages_in == 5, "totals do not go back"


def test_each_count_stands_under_its_own_name(pair):
    """Counts that differ, each at the place where the broker keeps it."""
    broker = pair.brokers["b1"]
    replicas, logs = broker.services.replicas, broker.logs
    metrics = metrics_of(broker, Hand())
    replicas.purgatory.parked_total, replicas.purgatory.expired_total = 11, 12
    logs.budget.hits, logs.budget.misses = 13, 14
    logs.budget.used, logs.budget.limit = 15, 16
    replicas.damaged._corrupt_reads = 10
    logs.logs()[0].corrupt_reads = 7
    alter = replicas.alter
    alter.shrinks_total, alter.expands_total, alter.failed_total = 18, 19, 20
    replicas.fetchers._lost_before = 21
    replicas.fetchers._doubtful_before, replicas.recovery.truncated_total = 20, 6
    replicas.sessions.evicted_total = 22
    states = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.DEAD
    broker.membership.session_counts.update(zip(states, (23, 24, 25), strict=True))
    sessions = "kafka.server:type=SessionExpireListener,name=ZooKeeper"
    counts = {
        "ottla.server:type=Purgatory,name=ParkedPerSec": 11,
        "ottla.server:type=Purgatory,name=ExpiredPerSec": 12,
        "ottla.log:type=TailCache,name=HitsPerSec": 13,
        "ottla.log:type=TailCache,name=MissesPerSec": 14,
        f"{MANAGER}IsrShrinksPerSec": 18,
        f"{MANAGER}IsrExpandsPerSec": 19,
        f"{MANAGER}FailedIsrUpdatesPerSec": 20,
        "ottla.server:type=ReplicaManager,name=LostRecordsPerSec": 21,
        "ottla.server:type=ReplicaManager,name=DoubtfulRecordsPerSec": 26,
        f"{FETCH_SESSIONS}IncrementalFetchSessionEvictionsPerSec": 22,
        f"{sessions}SyncConnectsPerSec": 23,
        f"{sessions}DisconnectsPerSec": 24,
        f"{sessions}ExpiresPerSec": 25,
    }
    gauges = {
        "ottla.log:type=TailCache,name=Bytes": 15,
        "ottla.log:type=TailCache,name=MaxBytes": 16,
        "ottla.log:type=LogManager,name=CorruptReads": 17,
    }
    found = metrics.figures()
    assert {name: found[name]["Count"] for name in counts} == counts
    assert {name: found[name]["Value"] for name in gauges} == gauges


def test_a_session_that_ends_takes_its_connection_with_it(pair):
    membership = pair.brokers["b1"].membership
    session = membership._session.session_id
    before = dict(membership.session_counts)
    for state in (SessionState.SUSPENDED, SessionState.CONNECTED, SessionState.DEAD):
        membership._on_event(SessionEvent(state, "the test says so", session))
    grew = {state: membership.session_counts[state] - before[state] for state in SessionState}
    assert grew == {
        SessionState.CONNECTED: 1,
        SessionState.SUSPENDED: 2,
        SessionState.DEAD: 1,
    }


def test_the_loops_busy_time_is_that_of_the_thread():
    times = ThreadTimes()
    began = times.busy_s()
    while times.busy_s() < began + 0.02:
        sum(range(1000))
    assert times.core_wait_s() >= 0


def test_how_late_the_loop_is_costs_no_open_file_each_time(pair, monkeypatch):
    """A callback of 60 ms is seen; the probe, fifty times a second, opens no file again.

    While nobody reads the figures it is due four times a second.
    """
    metrics = Metrics(pair.brokers["b1"])
    opened = []
    plain = os.open
    monkeypatch.setattr(
        os, "open", lambda *given, **more: opened.append(1) or plain(*given, **more)
    )

    async def main():
        metrics.document()  # watched from now on
        task = asyncio.create_task(metrics.run())
        await asyncio.sleep(0.1)
        time.sleep(0.06)
        await asyncio.sleep(0.1)
        task.cancel()

    asyncio.run(main())
    late = metrics.figures()["ottla:type=EventLoop,name=LatenessMs"]
    assert late["CountFrom30"] >= 1
    assert late["Max"] >= 30
    assert not opened
