"""The drill report on Spark beside the one without it, and beside what a real cluster was seen do.

The truth of the real cluster is ZooKeeper's: each version of each state znode as kazoo's watches
saw it, and what librdkafka was told of each record.
"""

import contextlib
import functools
import io
import json
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from ottla.cli.grammar import read
from ottla.pipelines import drill, job
from support import planted
from support.clients import admin_client, create_topics
from support.cluster import OttlaCluster
from support.drill_world import BEGAN, TOPIC, World, role
from support.seen import Znodes
from support.waiting import until

LATE_MS, EARLY_MS = 15_000, 50
"""A broker's line comes so long after the write in ZooKeeper, where it waits for a core; clocks are
read in two processes."""


def told(folder, output, *more, spark=None):
    """Run the job; return the exit code, its line and the JSON without what names a way."""
    arguments = [str(folder), "--time-zone", "UTC", "--output", str(output), *more]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        options = read(drill.Options, arguments)
        code = job.run(drill.NAME, lambda: drill.run(options, spark))
    path = output / "report.json"
    assert path.exists(), err.getvalue()
    found = json.loads(path.read_text())
    found["result"]["general"].pop("audit", None)
    return code, out.getvalue().replace(str(output), "OUT"), found


def damaged(world):
    """Plant several faults at once."""
    for broker in range(3):
        planted.cut_tail(world.segments(broker, 0)[-1], 2)
    planted.flip(world.segments(2, 1)[2], 0)
    world.rows.remove((1, 17))
    world.rows.append((1, 7))
    world.write_lake()
    world.acks.remove((1, 3, BEGAN[1, 0] + 103))
    world.acks.append((1, 50, BEGAN[1, 0] + 500))
    world.write_acks(tail="1,4")
    with world.state_changes(0).open("a") as log:
        line = role(2, 1, 0, BEGAN[1, 0] + 30_000, -1)
        log.write(line.replace("[Broker id=2]", "[Broker id=0]"))


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", [damaged, lambda _: None], ids=["damaged", "clean"])
def test_spark_and_one_process_tell_the_same(spark, tmp_path, plant):
    world = World(tmp_path / "cluster")
    plant(world)
    more = [
        "--acks", str(world.folder / "acks.csv"), "--lake", str(world.folder / "lake"),
        "--topic", TOPIC,
    ]  # fmt: skip
    by_spark = told(world.folder, tmp_path / "spark", *more, spark=spark)
    here = told(world.folder, tmp_path / "here", "--here", *more)
    assert by_spark == here
    kinds = {f["kind"] for p in here[2]["partitions"] for f in p["findings"] if f["wrong"]}
    if plant is damaged:
        assert kinds >= {
            "lost", "not in the lake", "doubled in the lake", "in the lake, not in the log",
            "acknowledged twice", "bad checksum", "double-leader",
        }  # fmt: skip
    assert by_spark[0] == int(bool(kinds))


class Truth:
    """Every state of a topic's partitions, as kazoo's watches see them: (leader, epoch, mtime)."""

    def __init__(self, client, topic, partitions):
        self.states = {p: [] for p in range(partitions)}
        self._lock = threading.Lock()
        for partition in range(partitions):
            path = f"/brokers/topics/{topic}/partitions/{partition}/state"
            client.DataWatch(path, functools.partial(self._saw, partition))

    def _saw(self, partition, data, stat, _event=None):
        if data is not None:
            found = json.loads(data)
            with self._lock:
                self.states[partition].append(
                    (found["leader"], found["leader_epoch"], round(stat.mtime))
                )

    def terms(self, partition):
        """Return (leader, first epoch, since) where leaders change."""
        found = []
        for leader, epoch, when in self.states[partition]:
            if not found or found[-1][0] != leader:
                found.append((leader, epoch, when))
        return [term for term in found if term[0] >= 0]


class Sender(threading.Thread):
    """Produces until stopped, and keeps (partition, offset, ms) of each acknowledgement."""

    def __init__(self, bootstrap, topic):
        super().__init__(daemon=True)
        self.acked, self.over = [], threading.Event()
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True,
             "log_level": 0, "linger.ms": 5}
        )  # fmt: skip

    def _told(self, error, message):
        if error is None:
            self.acked.append((message.partition(), message.offset(), int(time.time() * 1000)))

    def run(self):
        number = 0
        while not self.over.is_set():
            for _ in range(20):
                self._producer.produce(
                    self._topic, b"value %d" % number, partition=number % 2, on_delivery=self._told
                )
                number += 1
            self._producer.poll(0.05)
        assert self._producer.flush(60) == 0


@pytest.fixture(scope="module")
def drilled(tmp_path_factory):
    """Kill each partition's leader in turn under load; yield what was seen, and the folder."""
    folder = tmp_path_factory.mktemp("drill")
    with (
        OttlaCluster(folder / "cluster", brokers=3) as cluster,
        Znodes(cluster.zookeeper) as znodes,
    ):
        admin = admin_client(cluster.bootstrap)
        topic = NewTopic(
            "events", 2, replica_assignment=[[0, 1, 2], [1, 2, 0]],
            config={"min.insync.replicas": "2"},
        )  # fmt: skip
        create_topics(admin, topic)
        until(lambda: len(znodes.states("events")) == 2, 30, "the topic is there")
        truth = Truth(znodes.client, "events", 2)
        sender = Sender(cluster.bootstrap, "events")
        sender.start()
        killed = []
        for partition in (0, 1):
            time.sleep(1)
            leader = znodes.states("events")[partition].leader
            before_ms = round(time.time() * 1000)
            cluster.kill(leader)
            killed.append((partition, leader, before_ms, round(time.time() * 1000)))
            until(
                lambda p=partition, old=leader: (
                    znodes.states("events")[p].leader not in {old, -1}
                ),
                60, "a new leader",
            )  # fmt: skip
            count = len(sender.acked)
            until(lambda n=count: len(sender.acked) > n + 20, 60, "acknowledgements")
            cluster.start_broker(leader)
            until(
                lambda: all(len(s.isr) == 3 for s in znodes.states("events").values()),
                60, "all in sync",
            )  # fmt: skip
        sender.over.set()
        sender.join(90)
        assert not sender.is_alive()
        acks = folder / "acks.csv"
        lines = [
            "topic,partition,offset,ms",
            *(f"events,{p},{o},{ms}" for p, o, ms in sender.acked),
        ]
        acks.write_text("\n".join(lines) + "\n")
        running = told(
            cluster.folder, folder / "running", "--here", "--topic", "events", "--acks", str(acks),
            "--bootstrap-server", cluster.bootstrap,
        )  # fmt: skip
        seen = (cluster, [truth.terms(p) for p in (0, 1)], sender.acked, killed, acks, running)
        cluster.stop()
        yield seen


@pytest.mark.java
@pytest.mark.processes
@pytest.mark.timeout(400)
def test_terms_are_those_that_zookeeper_had(drilled):
    _, truth, acked, killed, _, (code, line, report) = drilled
    assert (code, line.split(":")[0]) == (0, "HELD"), line
    assert report["result"]["acknowledged"] == len({a[:2] for a in acked})
    for one in report["partitions"]:
        partition = one["partition"]
        expected = truth[partition]
        said = [(t["leader"], t["first_epoch"]) for t in one["leaders"]]
        assert said == [(leader, epoch) for leader, epoch, _ in expected], partition
        for term, (_, _, since) in zip(one["leaders"], expected, strict=True):
            assert -EARLY_MS < term["began_ms"] - since < LATE_MS, (term, since)
        mine = [a for a in acked if a[0] == partition]
        in_terms = sum(t["acknowledged"]["count"] for t in one["leaders"] if t["acknowledged"])
        assert in_terms == len(mine)
        assert one["acknowledged"]["last"] == max(offset for _, offset, _ in mine)
        assert one["high_watermark"] > one["acknowledged"]["last"]
        for number, leader, earliest, latest in killed:
            if number != partition:
                continue
            (gap,) = [
                g for g in one["without_leader"]
                if g["start_from_ms"] <= latest and earliest <= g["end_ms"]
            ]  # fmt: skip
            assert gap["after"] == leader
            assert f"broker {leader} died" in gap["reason"]
            after = next(t for t in one["leaders"] if t["began_ms"] == gap["end_ms"])
            assert gap["least_ms"] <= after["began_ms"] - earliest
            assert after["began_ms"] - latest <= gap["most_ms"] + EARLY_MS


@pytest.mark.java
@pytest.mark.processes
@pytest.mark.timeout(400)
def test_what_is_cut_from_the_stopped_brokers_is_lost(drilled, tmp_path):
    """The last batch of partition 1 is cut from all logs: its acknowledged offsets are told."""
    cluster, _, acked, _, acks, _ = drilled
    first = []
    for broker in cluster.ids:
        last = planted.segments(cluster.data(broker) / "events-1")[-1]
        first.append(planted.cut_tail(last, len(planted.batches(last)) - 1))
    assert len(set(first)) == 1
    lost = sorted(o for p, o, _ in acked if p == 1 and o >= first[0])
    assert lost
    code, line, report = told(
        cluster.folder, tmp_path / "cut", "--here", "--topic", "events", "--acks", str(acks)
    )
    assert code == 1
    assert line.startswith("WRONG")
    of = {p["partition"]: p for p in report["partitions"]}
    (found,) = [f for f in of[1]["findings"] if f["kind"] == "lost"]
    assert (found["offsets"], found["count"]) == ([[lost[0], lost[-1]]], len(lost))
    assert "lost" not in {f["kind"] for f in of[0]["findings"]}
