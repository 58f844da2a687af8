"""The rebalance job on real clusters, ours and Kafka's: its stages are executed, files are counted.

What is true is told by the brokers' files (`*.log` of each replica) and by an admin client, never
by the job. Stages go through `ottla reassign` and, on each cluster, through Kafka's own tool.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from ottla.cli.grammar import read
from ottla.pipelines import job, rebalance
from support import kafka_tools
from support.clients import admin_client, create_topics, named
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.spark,
    pytest.mark.timeout(600),
]
RACKS = {0: "a", 1: "b", 2: "a", 3: "b"}
BAND = 0.1
# Replicas by partition, and how many KB are written to each: brokers 0 and 1 have too much.
TOPICS = {
    "big": ([[0, 1]] * 6 + [[1, 0]] * 2, [900, 300, 700, 200, 500, 400, 800, 600]),
    "small": ([[0, 1], [2, 3], [0, 3], [2, 1]] * 3, [40] * 12),
    "one-rack": ([[0, 2], [1, 3]], [250, 150]),
}


class OurBrokers(OttlaCluster):
    def start_broker(self, broker, *, wait=True):
        self.settings["broker.rack"] = RACKS[broker]
        super().start_broker(broker, wait=wait)


class KafkasBrokers(Kafka39Cluster):
    def start_broker(self, broker, *, wait=True):
        self.settings["broker.rack"] = RACKS[broker]
        super().start_broker(broker, wait=wait)


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.alone)])
def cluster(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if kafka_tools.why_not():
        pytest.skip(kafka_tools.why_not())
    settings = {"auto_leader_rebalance_enable": "false", "session_timeout_ms": 18_000}
    if request.param == "kafka":
        settings |= {"heap_mb": 256, "log_cleaner_dedupe_buffer_size": "16777216"}
    kind = OurBrokers if request.param == "ottla" else KafkasBrokers
    with kind(folder, brokers=4, **settings) as cluster:
        until(
            lambda: all(cluster.known_to(b) == set(RACKS) for b in RACKS), 60, "all know all",
            despite=(Exception,),
        )  # fmt: skip
        admin = admin_client(cluster.bootstrap)
        create_topics(
            admin,
            *(NewTopic(name, len(r), replica_assignment=r) for name, (r, _) in TOPICS.items()),
        )
        producer = Producer(named(cluster.bootstrap, {"acks": "all", "linger_ms": 5}))
        for name, (_, sizes) in TOPICS.items():
            for partition, kilobytes in enumerate(sizes):
                for _ in range(kilobytes // 10):
                    producer.produce(name, os.urandom(10_000), partition=partition)
        assert producer.flush(60) == 0
        yield cluster


def placement_at(address):
    """What an admin client says who knows one broker: (topic, partition) to (replicas, leader)."""
    found = admin_client(address).list_topics(timeout=20).topics
    return {
        (name, p.id): (tuple(p.replicas), p.leader)
        for name, topic in found.items()
        if name in TOPICS
        for p in topic.partitions.values()
    }


def placement(cluster):
    """The same once all brokers say it: they hear of a change one after the other."""

    def agreed():
        said = [placement_at(cluster.address(b)) for b in RACKS if cluster.running(b)]
        return said[0] if all(one == said[0] for one in said) else None

    return until(agreed, 60, "all brokers say the same")


def on_disk(cluster):
    """Bytes of the log files by broker and (topic, partition), of topics' folders in use."""
    found = {}
    for broker in RACKS:
        for name, (replicas, _) in TOPICS.items():
            for partition in range(len(replicas)):
                folder = cluster.data(broker) / f"{name}-{partition}"
                if folder.is_dir():
                    size = sum(path.stat().st_size for path in folder.glob("*.log"))
                    found[broker, (name, partition)] = size
    return found


def by_broker(sizes):
    found = Counter(dict.fromkeys(RACKS, 0))
    for (broker, _), size in sizes.items():
        found[broker] += size
    return found


def matches(cluster):
    """Whether disks have just the replicas that the cluster names."""
    there = {(b, tp) for tp, (replicas, _) in placement(cluster).items() for b in replicas}
    return set(on_disk(cluster)) == there


def run(*arguments, code=0):
    """Run the job in a process of its own; return its JSON, or its line on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "pipeline", "rebalance", "--output", "json", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, (done.returncode, done.stdout[-500:], done.stderr)
    if code == 0:
        return json.loads(done.stdout)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def ottla(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def execute(cluster, path):
    """Execute one file with our command and wait for its end."""
    where = ("--bootstrap-server", cluster.bootstrap)
    ottla("reassign", "execute", "--file", path, "--wait", 90, *where)
    ottla("reassign", "verify", "--file", path, *where)


def execute_with_kafkas_tool(cluster, path):
    what = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(path))
    out = kafka_tools.run(kafka_tools.REASSIGN, *what, "--execute")
    assert "Successfully started partition reassignment" in out
    until(
        lambda: "still in progress" not in kafka_tools.run(
            kafka_tools.REASSIGN, *what, "--verify", "--preserve-throttles"
        ),
        90, "Kafka's tool says that all is done",
    )  # fmt: skip
    out = kafka_tools.run(kafka_tools.REASSIGN, *what, "--verify")
    listed = len(json.loads(path.read_text())["partitions"])
    assert out.count("is completed") == listed, out


def common(cluster):
    return [
        "--bootstrap-server", cluster.bootstrap, "--set", f"rebalance.band={BAND}",
        "--set", "rebalance.capacity=100 MB", "--set", 'rebalance.exclude_topics=["__*"]'
        if "__consumer_offsets" in admin_client(cluster.bootstrap).list_topics(timeout=20).topics
        else "rebalance.racks=true",
    ]  # fmt: skip


def spread_of(counts):
    return max(counts.values()) - min(counts.values())


def test_stages_make_disks_even_as_predicted_and_lead_back(cluster, tmp_path):
    where = common(cluster)
    start, start_sizes = placement(cluster), by_broker(on_disk(cluster))
    folder = tmp_path / "plan"
    bounds = ["--set", "stages.bytes=1500 KB", "--set", "stages.moves_per_broker=3"]
    told = run(*where, *bounds, "--plan", str(folder))
    assert {b["broker"]: b["bytes"] for b in told["before"]["brokers"]} == start_sizes
    assert (told["before"]["racks"], told["after"]["racks"]) == (2, 0)
    assert placement(cluster) == start
    assert told == json.loads((folder / "summary.json").read_text())
    stages = sorted(folder.glob("stage-*.json"))
    assert len(stages) == len(told["stages"]) > 2
    # Kafka's tool takes the first one, ours the others.
    execute_with_kafkas_tool(cluster, stages[0])
    for path in stages[1:]:
        execute(cluster, path)
    until(lambda: matches(cluster), 90, "old replicas are gone")
    now = placement(cluster)
    sizes = by_broker(on_disk(cluster))
    assert {b["broker"]: b["bytes"] for b in told["after"]["brokers"]} == sizes
    mean = sum(sizes.values()) / len(sizes)
    assert max(start_sizes.values()) > 1.5 * mean
    assert all(abs(size - mean) <= BAND * mean + 1 for size in sizes.values()), sizes
    assert all({RACKS[b] for b in replicas} == {"a", "b"} for replicas, _ in now.values())
    assert {tp: len(r) for tp, (r, _) in now.items()} == dict.fromkeys(start, 2)
    moved = {tp: set(now[tp][0]) - set(start[tp][0]) for tp in now}
    of = on_disk(cluster)
    assert told["bytes_to_move"] == sum(of[b, tp] for tp, new in moved.items() for b in new)
    # Leaders: what elections.json names, and nothing else, has to be elected.
    named = json.loads((folder / "elections.json").read_text())["partitions"]
    kafka_tools.run(
        kafka_tools.LEADER_ELECTION, "--bootstrap-server", cluster.bootstrap,
        "--election-type", "preferred", "--path-to-json-file", str(folder / "elections.json"),
    )  # fmt: skip
    assert len(named) == told["elections"]
    until(
        lambda: all(leader == replicas[0] for replicas, leader in placement(cluster).values()),
        90, "the first replicas lead",
    )  # fmt: skip
    leaders = Counter(leader for _, leader in placement(cluster).values())
    assert spread_of(leaders) == told["after"]["leaders_off"] <= 1

    again = run(*where)
    assert (again["stages"], again["elections"], again["bytes_to_move"]) == ([], 0, 0)

    for path in sorted(folder.glob("rollback-*.json"), reverse=True):
        execute(cluster, path)
    until(lambda: matches(cluster), 90, "the way back has ended")
    assert {tp: r for tp, (r, _) in placement(cluster).items()} == {
        tp: r for tp, (r, _) in start.items()
    }


@pytest.mark.alone
def test_a_drained_broker_and_one_over_its_capacity(cluster, tmp_path):
    where = common(cluster)
    before = by_broker(on_disk(cluster))
    assert before[0] > 3_500_000
    limit = ["--set", 'rebalance.capacities={"0" = "3500 KB"}', "--set", "rebalance.max_use=1"]
    folder = tmp_path / "plan"
    told = run(*where, *limit, "--drain", "3", "--plan", str(folder))
    assert told["before"]["over_capacity"] == 1
    assert told["before"]["to_leave"] > 0
    for path in sorted(folder.glob("stage-*.json")):
        execute(cluster, path)
    until(lambda: matches(cluster), 90, "old replicas are gone")
    sizes = by_broker(on_disk(cluster))
    assert sizes[3] == 0
    assert 0 < sizes[0] <= 3_500_000
    assert {b["broker"]: b["bytes"] for b in told["after"]["brokers"]} == sizes


@pytest.mark.alone
def test_what_is_wrong_is_one_line_and_writes_nothing(cluster, tmp_path):
    where, folder = common(cluster), tmp_path / "plan"
    plan = ["--plan", str(folder)]
    for more, says in [
        (["--set", 'rebalance.exclude_topics=["nosuch"]'], "there is no such topic"),
        (["--drain", "9"], "drain names broker 9, which is not there"),
        (["--set", "rebalance.capacity=", "--set", 'rebalance.capacities={"0"=9}'],
         "capacities says nothing of broker 1"),
        (["--set", "rebalance.capacity=1 MB"], "capacity: "),
        (["--drain", "0", "--drain", "1", "--drain", "2"], "replica count: "),
        (["--bootstrap-server", "127.0.0.1:1"], "127.0.0.1:1"),
        (["--set", "rebalance.capacity=soon"], "'soon' is no size"),
    ]:  # fmt: skip
        assert says in run(*where, *more, *plan, code=1)
        assert list(tmp_path.iterdir()) == []
    folder.mkdir()
    (folder / "mine.txt").write_text("kept")
    assert "is there already and not empty" in run(*where, *plan, code=1)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


@pytest.mark.alone
def test_a_reassignment_in_progress_is_waited_for(cluster, tmp_path):
    """A throttle of one byte keeps it in progress."""
    tp, (replicas, _) = max(placement(cluster).items())
    tp = next(tp for tp in placement(cluster) if tp[0] == "big")
    replicas = placement(cluster)[tp][0]
    target = [replicas[0], next(b for b in RACKS if b not in replicas)]
    where = ("--bootstrap-server", cluster.bootstrap)
    move = f"{tp[0]}-{tp[1]}={','.join(map(str, target))}"
    ottla("reassign", "execute", "--partition", move, "--throttle", 1, *where)
    try:
        line = run(*common(cluster), "--plan", str(tmp_path / "plan"), code=1)
        assert f"{tp[0]}-{tp[1]} is being reassigned" in line
        assert list(tmp_path.iterdir()) == []
    finally:
        ottla("reassign", "cancel", "--all", *where)
    until(lambda: matches(cluster), 90, "the move is taken back")


@pytest.mark.alone
def test_rates_from_samples_are_what_was_produced(cluster, spark, tmp_path, capsys):
    """Two samples around a known load; the plan is made of them alone, with the cluster's sizes."""
    folder = tmp_path / "samples"

    def do(*arguments):
        options = read(rebalance.Options, ["--output", "json", *arguments])
        code = job.run(rebalance.NAME, lambda: rebalance.run(options, spark))
        out = capsys.readouterr()
        return code, json.loads(out.out) if out.out else out.err

    where = ("--bootstrap-server", cluster.bootstrap)
    assert do("--samples", str(folder))[0] == 1
    began = time.monotonic()
    assert do(*where, "--samples", str(folder), "--sample")[1]["samples"] == 1
    producer = Producer(named(cluster.bootstrap, {"acks": "all", "linger_ms": 5}))
    time.sleep(1)
    for _ in range(100):
        producer.produce("big", os.urandom(10_000), partition=3)
    assert producer.flush(60) == 0
    time.sleep(1)
    code, told = do(*where, "--samples", str(folder), "--sample")
    longest_s = time.monotonic() - began
    assert (code, told["samples"]) == (0, 2)
    limits = ["--set", "rebalance.capacity=100 MB", "--set", "rebalance.topic_band=9"]
    code, told = do("--samples", str(folder), *limits, "--set", "rebalance.rate_quantile=1")
    assert code == 0
    replicas = placement(cluster)["big", 3][0]
    rates = {b["broker"]: b["rate"] for b in told["before"]["brokers"]}
    for broker, rate in rates.items():
        if broker in replicas:
            assert 1_000_000 / longest_s <= rate <= 1_050_000 / 2, rates
        else:
            assert rate == 0
    sizes = by_broker(on_disk(cluster))
    assert {b["broker"]: b["bytes"] for b in told["before"]["brokers"]} == sizes
    limit = ["--set", f"rebalance.rate_capacity={max(rates.values()) - 1}"]
    code, line = do("--samples", str(folder), *limits, *limit)
    assert (code, line.count("\n")) == (1, 1)
    assert "rate capacity: " in line


@pytest.mark.alone
def test_a_dead_brokers_replicas_are_made_anew(cluster, tmp_path):
    """Last: a broker is killed."""
    victim = Counter(b for r, _ in placement(cluster).values() for b in r).most_common()[-1][0]
    cluster.kill(victim)
    try:
        until(
            lambda: all(leader not in (victim, -1) for _, leader in placement(cluster).values()),
            60, "others lead",
        )  # fmt: skip
        refused = ["--set", "rebalance.dead=refuse"]
        assert f"broker {victim} is down" in run(*common(cluster), *refused, code=1)
        folder = tmp_path / "plan"
        told = run(*common(cluster), "--plan", str(folder))
        assert told["before"]["to_leave"] > 0
        for path in sorted(folder.glob("stage-*.json")):
            execute(cluster, path)
        now = placement(cluster)
        assert not any(victim in replicas for replicas, _ in now.values())
        sizes = on_disk(cluster)
        for tp, (replicas, leader) in now.items():
            assert {sizes[b, tp] for b in replicas} == {sizes[leader, tp]}
    finally:
        cluster.start_broker(victim)
