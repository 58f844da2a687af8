"""Figures under Kafka's names: what moves them, and what they cost a request."""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from ottla.broker.metrics.mbeans import SAMPLE_S, WINDOW, Metrics, ThreadTimes
from ottla.broker.metrics.request_times import EVERY, RequestTimes
from ottla.net.connection import Pending
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.metadata import MetadataRequest

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).resolve().parents[3]
MANAGER = "kafka.server:type=ReplicaManager,name="
CONTROLLER = "kafka.controller:type=KafkaController,name="
ELECTIONS = "kafka.controller:type=ControllerStats,name="
IDLE = "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"
HANDLERS = "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"
REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request="
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


@pytest.fixture
def pair(scene):
    """Two brokers and a topic of one partition on both, led by the first."""
    scene.up(1)
    scene.up(2, replica_lag_time_max_ms="3000")
    r = CreateTopicsRequest
    assignment = r.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
    topic = r.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    scene.ask(1, r(topics=[topic], timeout_ms=10_000), 7)
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
    times = found[f"{ELECTIONS}ControllerChangeRateAndTimeMs"]
    assert times["Count"] >= 1
    assert 0 < times["Min"] <= times["50thPercentile"] <= times["Max"]
    assert values(second)[f"{CONTROLLER}OfflinePartitionsCount"] == 1, "t waits for broker 1"
    controller = pair.brokers["b2"].services.controller
    pair.simulation.node("b2").loop.call_soon(controller._end_term, "the test says so", 0)
    pair.wait(lambda: not controller.is_active)
    assert second.figures()[f"{ELECTIONS}UncleanLeaderElectionsPerSec"]["Count"] == 1


def test_every_figure_is_explained(pair):
    pair.ask(1, MetadataRequest(topics=[]), 9)
    told = (ROOT / "docs" / "METRICS.md").read_text(encoding="utf-8")
    for name in metrics_of(pair.brokers["b1"], Hand()).figures():
        kind, *tags = name.split(",")
        assert f"`{kind}," in told, name
        assert not tags[0].startswith("name=") or f"{tags[0]}" in told, name


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
    assert metrics.figures()[HANDLERS] == {"OneMinuteRate": 0.75}
    told = metrics.document()
    hand.busy += 60
    assert metrics.document() is told, "made once a second at most, however many ask"


def test_every_request_is_counted_and_few_are_timed(pair):
    metrics = metrics_of(pair.brokers["b1"], Hand())
    pair.ask(1, MetadataRequest(topics=[]), 9)
    before = metrics.figures()[f"{REQUESTS}Metadata"]["Count"]
    timed = metrics.figures()[f"{TIMES}Metadata"]["Count"]
    for _ in range(EVERY):
        pair.ask(1, MetadataRequest(topics=[]), 9)
    found = metrics.figures()
    assert found[f"{REQUESTS}Metadata"]["Count"] == before + EVERY
    assert found[f"{TIMES}Metadata"]["Count"] == timed + 1


class Line:
    def __init__(self, times):
        self.times = times

    def completed(self, pending):
        if pending.timed is not None:
            self.times.responded(pending)


def test_a_response_that_comes_later_is_timed_until_it_is_there():
    hand = Hand()
    times = RequestTimes(lambda: hand.now)
    pending = Pending(Line(times), pipelined=True)
    times.end(1, times.begin(), pending)
    assert list(times.figures()) == []
    hand.now += 0.5
    pending.complete([b""])
    ((key, figures),) = times.figures()
    assert (key, figures["Count"], figures["Max"]) == (1, 1, 500.0)
    dropped = Pending(Line(times), pipelined=True)
    times.end(1, times.begin(), dropped)
    dropped.drop()
    ((_, figures),) = times.figures()
    assert figures["Count"] == 1, "nobody was answered"


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
