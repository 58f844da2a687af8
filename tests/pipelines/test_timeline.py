"""The timeline of a real cluster, two brokers of ours and one of Kafka's, beside its own znodes.

The truth is what ZooKeeper had: each version of each state znode, with ZooKeeper's time of writing.
"""

import functools
import json
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from confluent_kafka.admin import NewTopic

from ottla.pipelines.timeline.events import FIELDS
from ottla.pipelines.timeline.lines import parse
from support import kafka39
from support.clients import admin_client, create_topics
from support.mixed import MixedCluster
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.spark,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]

STATE_CHANGE = """\
log4j.logger.state.change.logger=TRACE, changes
log4j.additivity.state.change.logger=false
log4j.appender.changes=org.apache.log4j.FileAppender
log4j.appender.changes.File={file}
log4j.appender.changes.layout=org.apache.log4j.PatternLayout
log4j.appender.changes.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
PARTITIONS = [("events", 0), ("events", 1), ("events", 2), ("single", 0)]
UTC = ZoneInfo("UTC")
LATE_MS = 4000
"""From a write in ZooKeeper to the line of the broker that acts on it, on a busy machine."""
EARLY_MS = 50
"""No line comes before the write; but clocks are read in two processes."""


class Truth:
    """Every state of some partitions, as kazoo's watches see them: (leader, epoch, mtime)."""

    def __init__(self, client):
        self.states = {}
        self._lock = threading.Lock()
        for topic, partition in PARTITIONS:
            path = f"/brokers/topics/{topic}/partitions/{partition}/state"
            client.DataWatch(path, functools.partial(self._saw, (topic, partition)))

    def _saw(self, name, data, stat, _event=None):
        if data is not None:
            found = json.loads(data)
            with self._lock:
                self.states.setdefault(name, []).append(
                    (found["leader"], found["leader_epoch"], round(stat.mtime))
                )

    def terms(self, name):
        """Return (leader, first epoch, since) where leaders change, -1 for none."""
        found = []
        for leader, epoch, when in self.states[name]:
            if not found or found[-1][0] != leader:
                found.append((leader, epoch, when))
        return found


@pytest.fixture(scope="module")
def drill(tmp_path_factory):
    """Kill a leader of ours, wait, start it again; return (folder of logs, truth, kill time)."""
    folder = tmp_path_factory.mktemp("drill")
    log4j = kafka39.LOG4J
    kafka39.LOG4J += STATE_CHANGE.format(file=folder / "kafka-state-change.log")
    logs = tmp_path_factory.mktemp("logs")
    try:
        with MixedCluster(folder, ours=2, theirs=1) as cluster:
            first = {0: [0, 10, 1], 1: [10, 1, 0], 2: [1, 0, 10]}
            admin = admin_client(cluster.bootstrap)
            create_topics(
                admin,
                NewTopic("events", 3, replica_assignment=list(first.values())),
                NewTopic("single", 1, replica_assignment=[[0]]),
            )
            cluster.wait_full("events", "single")
            truth = Truth(cluster.znodes.client)
            cluster.give_office_to(10)
            create_topics(
                admin, NewTopic("mark", 1, replica_assignment=[[0, 1, 10]])
            )  # signs of life
            cluster.wait_full("mark")
            killed_ms = round(time.time() * 1000)
            cluster.ours.kill(0)
            until(
                lambda: cluster.znodes.states("events")[0].leader not in {0, -1}, 30, "a new leader"
            )
            until(lambda: cluster.znodes.states("single")[0].leader == -1, 30, "no leader")
            time.sleep(1)
            cluster.start(0)
            cluster.wait_full("events", "single")
            for broker in (0, 1):
                shutil.copytree(cluster.folder(broker), logs / str(broker))
            (logs / "10").mkdir()
            shutil.copy(folder / "kafka-state-change.log", logs / "10" / "state-change.log")
            yield logs, truth, killed_ms
    finally:
        kafka39.LOG4J = log4j


# Runs one command after the other in one process: a JVM's start and warming up take longest.
RUNNER = """
import contextlib, io, json, sys
from ottla.cli.grammar import run
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(["pipeline", "timeline", "--master", "local[2]", *json.loads(line)])
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def run():
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def run(*arguments, code):
        runner.stdin.write(json.dumps(arguments) + "\n")
        runner.stdin.flush()
        ended, out, err = json.loads(runner.stdout.readline())
        assert ended == code, err + out
        return out

    try:
        yield run
    finally:
        runner.stdin.close()
        try:
            runner.wait(30)
        except subprocess.TimeoutExpired:
            runner.kill()
            runner.wait(10)


def seen(event):
    """Return what a line says, but for its time, which is one of this machine's zone."""
    isr = event.get("isr")
    isr = isr if isr is None or isinstance(isr, str) else ",".join(map(str, isr))
    names = [n for n in FIELDS if n not in {"time_ms", "isr"}]
    return (isr, *(event.get(name) for name in names))


def rows(folder, what, **equal):
    found = [json.loads(x) for p in sorted((folder / what).glob("*.json")) for x in p.open()]
    return [r for r in found if all(r.get(k) == v for k, v in equal.items())]


def test_terms_and_gaps_are_those_of_the_znodes(drill, run, tmp_path):
    logs, truth, killed_ms = drill
    out, page = tmp_path / "out", tmp_path / "page.html"
    printed = json.loads(
        run(str(logs), "--output", str(out), "--format", "json", "--report", str(page),
            "--print", "json", code=0)
    )  # fmt: skip
    assert (printed["errors"], printed["dropped"]) == (0, 0)
    assert len(printed["files"]) >= 4  # three logs, and at least one journal
    for topic, partition in PARTITIONS:
        terms = rows(out, "terms", topic=topic, partition=partition)
        terms.sort(key=lambda t: t["first_epoch"])
        expected = [t for t in truth.terms((topic, partition)) if t[0] >= 0]
        # A broker that starts again at its own epoch begins a term that no znode tells of.
        said = [(t["leader"], t["first_epoch"]) for t in terms]
        assert said == [(leader, epoch) for leader, epoch, _ in expected], (topic, partition)
        for term, (_, _, since) in zip(terms, expected, strict=True):
            assert -EARLY_MS < term["began_ms"] - since < LATE_MS, (term, since)

    (gap,) = rows(out, "gaps", topic="events", partition=0, how="died")
    led_again = next(
        when for leader, _, when in truth.terms(("events", 0)) if leader not in {0, -1}
    )
    assert gap["start_from_ms"] <= killed_ms <= gap["start_to_ms"]
    assert killed_ms - gap["start_from_ms"] < 5000  # the sign of life just before
    assert -EARLY_MS < gap["end_ms"] - led_again < LATE_MS
    assert gap["least_ms"] <= gap["end_ms"] - killed_ms <= gap["most_ms"]

    (gap,) = rows(out, "gaps", topic="single", how="died")
    none, back = truth.terms(("single", 0))[1:]
    assert (none[0], back[0]) == (-1, 0)
    assert abs(gap["start_to_ms"] - none[2]) < LATE_MS
    assert -EARLY_MS < gap["end_ms"] - back[2] < LATE_MS

    last = {p: rows(out, "states", topic="events", partition=p)[-1] for p in range(3)}
    assert all(sorted(s["isr"]) == [0, 1, 10] for s in last.values()), last
    text = page.read_text()
    assert "events-0" in text
    assert "http" not in text
    assert "<script" not in text
    kinds = {r["kind"] for r in rows(out, "events", broker=10)}
    assert {"led", "followed", "decided", "asked", "cached", "sent", "moved"} <= kinds
    # Spark takes lines apart as plain Python does, with another engine for patterns.
    said = Counter(
        seen(event._asdict())
        for path in logs.glob("*/state-change.log*")
        for line in path.open()
        if (event := parse(line, UTC)) is not None
    )
    events = [r for r in rows(out, "events") if r["level"] != "JOURNAL"]
    assert Counter(map(seen, events)) == said


def test_planted_double_leader_and_stale_epochs_are_found(drill, run, tmp_path):
    logs, _, _ = drill
    doctored = tmp_path / "logs"
    shutil.copytree(logs, doctored)
    led = next(
        line for line in (logs / "1" / "state-change.log").open() if " Leader events-2 " in line
    )
    head = led[: led.index("[Broker")].replace(led[1:11], "2099-01-01")
    body = led[led.index("Leader events-2") :]
    with (doctored / "10" / "state-change.log").open("a") as log:
        log.write(head + "[Broker id=10] " + body)  # leads at broker 1's epoch
    with (doctored / "1" / "state-change.log").open("a") as log:
        for epoch in (90, 89):
            log.write(
                f"{head}[Broker id=1] Follower events-0 starts at leader epoch {epoch} from offset "
                "0 with partition epoch 9 and high watermark 0. Current leader is 0. Previous "
                f"leader Some(0) and previous leader epoch was {epoch - 1}. (state.change.logger)\n"
            )
        for epoch in (99, 98):
            log.write(
                f"{head}[Broker id=1] Add 1 partitions and deleted 0 partitions from metadata "
                "cache in response to UpdateMetadata request sent by controller 0 epoch "
                f"{epoch} with correlation id 7 (state.change.logger)\n"
            )
    printed = json.loads(run(str(doctored), "--print", "json", code=1))
    found = {(f["kind"], f["topic"], f["partition"], f["broker"]) for f in printed["found"]}
    assert ("double-leader", "events", 2, 10) in found
    assert ("stale-leader-epoch", "events", 0, 1) in found
    assert ("stale-controller-epoch", None, None, 1) in found


def test_filters_and_merged_lines_are_the_merge_tools(drill, run):
    logs, _, killed_ms = drill
    everything = run(
        str(logs), "--print", "lines", "--topic", "events", "--partitions", "1", code=0
    )
    lines = everything.splitlines()
    expected = [
        line.rstrip("\n")
        for path in sorted(logs.glob("*/state-change.log*"))
        for line in path.open()
        if " events-1 " in line or "'events', partitionIndex=1," in line
    ]
    assert sorted(lines) == sorted(expected)
    times = [line[1:24] for line in lines]
    assert times == sorted(times)
    assert any("] INFO [Broker id=10] " in line for line in lines)
    killed = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(killed_ms / 1000))
    later = run("--logs-regex", str(logs / "1" / "state-change.*"), "--start-time", killed,
                "--topic", "events", "--print", "lines", code=0)  # fmt: skip
    assert later
    assert all(line[1:20] >= killed for line in later.splitlines())
