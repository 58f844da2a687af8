"""Sizes, offsets, deleted records, assignments, patterns, snapshots, znodes: on both systems.

What they say is compared with librdkafka, kazoo and the files of the broker.
"""

import json
import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support import command_line
from support.clients import admin_client, fresh, named
from support.kafka39 import Kafka39Cluster
from support.schemas import SCHEMAS, problems
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def cluster(request, tmp_path_factory):
    if request.param == "ottla":
        yield request.getfixturevalue("coordinator")
        return
    request.getfixturevalue("kafka_tools")
    with Kafka39Cluster(tmp_path_factory.mktemp("kafka"), brokers=1) as found:
        yield found


def call(cluster, *arguments, stdin="", address=True):
    where = ["--bootstrap-server", cluster.bootstrap] if address else []
    return command_line.ottla(*arguments, *where, stdin=stdin)


def ok(cluster, *arguments, code=0, **more):
    done = call(cluster, *arguments, **more)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


def found(cluster, *arguments, **more):
    return json.loads(ok(cluster, *arguments, "--output", "json", **more))


def said(cluster, *arguments, code=1):
    done = call(cluster, *arguments)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def fill(cluster, name, count, partition=0, timestamp=0):
    producer = Producer(named(cluster.bootstrap, {}))
    for n in range(count):
        more = {"timestamp": timestamp + n} if timestamp else {}
        producer.produce(name, b"%d" % n, partition=partition, **more)
    assert producer.flush(30) == 0


def watermarks(cluster, name, partition=0):
    consumer = Consumer(named(cluster.bootstrap, {"group_id": "nobody"}))
    try:
        return consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=20)
    finally:
        consumer.close()


def test_sizes_are_those_of_the_files(cluster):
    name = fresh()
    ok(cluster, "topics", "create", name, "--partitions", 2)
    fill(cluster, name, 1000)
    (one,) = found(cluster, "topics", "list", name, "--sizes")
    files = sum(p.stat().st_size for p in cluster.data(0).glob(f"{name}-*/*.log"))
    assert one["size"] == one["size_of_replicas"] == files > 0
    assert "bytes of replicas" in ok(cluster, "topics", "list", name, "--sizes")


def test_offsets_and_deleted_records(cluster):
    name = fresh()
    ok(cluster, "topics", "create", name, "--partitions", 2)
    fill(cluster, name, 100, timestamp=1_750_000_000_000)
    rows = found(cluster, "topics", "offsets", name)
    assert [(r["partition"], r["beginning"], r["end"]) for r in rows] == [(0, 0, 100), (1, 0, 0)]
    at = found(cluster, "topics", "offsets", f"{name}:0", "--at", "@1750000000040")
    assert at[0]["offset"] == 40
    assert found(cluster, "topics", "offsets", f"{name}:0", "--at", "newest")[0]["offset"] == 99
    ok(cluster, "topics", "delete-records", name, "--before", "30", "--dry-run")
    assert watermarks(cluster, name) == (0, 100)
    assert said(cluster, "topics", "delete-records", name, "--before", "30", code=2).endswith(
        "add --yes to do it without being asked"
    )
    # Partition 1 has no offset 30: it is refused, the other is not.
    rows = found(cluster, "topics", "delete-records", name, "--before", "30", "--yes", code=1)
    assert [(r["first_offset"], bool(r["problem"])) for r in rows] == [(30, False), (None, True)]
    assert watermarks(cluster, name) == (30, 100)
    file = {"partitions": [{"topic": name, "partition": 0, "offset": -1}], "version": 1}
    ok(cluster, "topics", "delete-records", "--from-file", "-", "--yes", stdin=json.dumps(file))
    assert watermarks(cluster, name) == (100, 100)
    assert "no partition 7" in said(
        cluster, "topics", "delete-records", f"{name}:7", "--before", "1", "--yes"
    )


def test_assignment_patterns_and_dry_runs(cluster):
    prefix = fresh("p")
    ok(cluster, "topics", "create", f"{prefix}-a", "--assignment", "0,0,0")
    (topic,) = found(cluster, "topics", "describe", f"{prefix}-a")
    assert [p["replicas"] for p in topic["partitions"]] == [[0]] * 3
    assert found(cluster, "topics", "create", f"{prefix}-b", "--dry-run")[0]["result"] == "valid"
    assert found(cluster, "topics", "list", f"{prefix}-b") == []
    assert "names a broker twice" in said(
        cluster, "topics", "create", f"{prefix}-b", "--assignment", "0:0", code=2
    )
    # A controller would make it, leave it without a leader, and let the request time out.
    assert "broker 7 is not alive" in said(
        cluster, "topics", "create", f"{prefix}-b", "--assignment", "7"
    )
    exists = found(cluster, "topics", "create", f"{prefix}-a", "--if-not-exists")
    assert exists[0]["result"] == "exists"
    ok(cluster, "topics", "alter", f"{prefix}-a", "--partitions", 4, "--assignment", "0")
    ok(cluster, "topics", "alter", f"{prefix}-a", "--partitions", 9, "--dry-run")
    assert len(found(cluster, "topics", "describe", f"{prefix}-a")[0]["partitions"]) == 4
    ok(cluster, "topics", "create", f"{prefix}-c", "--config", "retention.ms=5000000")
    both = found(cluster, "topics", "list", f"{prefix}-.", "--regex")
    assert [t["topic"] for t in both] == [f"{prefix}-a", f"{prefix}-c"]
    own = found(cluster, "topics", "list", f"{prefix}-.", "--regex", "--overrides")
    assert [t["topic"] for t in own] == [f"{prefix}-c"]
    names = {p["topic"] for p in found(cluster, "topics", "describe", f"{prefix}-.", "--regex")}
    assert names == {f"{prefix}-a", f"{prefix}-c"}
    ok(cluster, "topics", "delete", f"{prefix}-.", "--regex", "--dry-run")
    assert len(found(cluster, "topics", "list", f"{prefix}-.", "--regex")) == 2
    ok(cluster, "topics", "delete", f"{prefix}-.", "--regex", "--yes")
    assert found(cluster, "topics", "list", f"{prefix}-.", "--regex") == []
    assert "no topic has a name like" in said(
        cluster, "topics", "delete", prefix, "--regex", "--yes"
    )


def test_at_min_isr(cluster):
    name = fresh()
    ok(cluster, "topics", "create", name, "--config", "min.insync.replicas=1")
    (topic,) = found(cluster, "topics", "describe", name, "--at-min-isr")
    assert topic["topic"] == name
    assert found(cluster, "topics", "describe", name, "--under-min-isr") == []


def test_a_group_is_watched(cluster):
    name, group = fresh(), fresh("g")
    ok(cluster, "topics", "create", name)
    fill(cluster, name, 10)
    ok(cluster, "consume", name, "--group", group, "--from-beginning", "--max-messages", 4)
    watch = ("groups", "watch", group, "--interval", "1", "--output", "json")
    began = time.monotonic()
    watching = subprocess.Popen(
        [sys.executable, "-m", "ottla", *watch, "-b", cluster.bootstrap],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        first = json.loads(watching.stdout.readline())
        assert first[0]["lag"] == 6
        assert first[0]["partitions"][0]["read_per_s"] is None
        fill(cluster, name, 500)
        rounds = []
        while not rounds or rounds[-1][0]["lag"] < 506:  # as many as a busy machine needs
            rounds.append(json.loads(watching.stdout.readline()))
            assert len(rounds) < 60, rounds[-1]
        took_s = time.monotonic() - began
    finally:
        watching.kill()
        watching.communicate(timeout=10)
    assert rounds[-1][0]["lag"] == 506
    assert max(r[0]["partitions"][0]["written_per_s"] for r in rounds) >= int(500 / took_s)
    counted = ok(cluster, *watch, "--count", "3").splitlines()
    assert [json.loads(line)[0]["lag"] for line in counted] == [506] * 3


def test_a_snapshot_is_what_there_is_and_is_applied(cluster, tmp_path):
    kept, gone = fresh("kept"), fresh("gone")
    ok(cluster, "topics", "create", kept, "--partitions", 2, "--config", "retention.ms=5000000")
    ok(cluster, "topics", "create", gone)
    ok(cluster, "configs", "alter", "--user", "u", "--set", "consumer_byte_rate=1000000")
    before = tmp_path / "before.json"
    before.write_text(ok(cluster, "cluster", "snapshot"))
    listed = set(admin_client(cluster.bootstrap).list_topics(timeout=20).topics)
    taken = json.loads(before.read_text())
    assert set(taken["topics"]) == {t for t in listed if not t.startswith("__")}
    assert ok(cluster, "cluster", "diff", before, "--without-groups") != ""
    assert found(cluster, "cluster", "diff", before, "--without-groups") == []

    ok(cluster, "topics", "delete", gone, "--yes")
    ok(cluster, "topics", "alter", kept, "--config", "retention.ms=6000000")
    ok(cluster, "topics", "create", f"{gone}-new")
    ok(cluster, "configs", "alter", "--user", "u", "--set", "consumer_byte_rate=2000000")
    ok(cluster, "configs", "alter", "--broker-defaults", "--set", "log.cleaner.threads=2")
    wanted = {
        ("topic", gone, 1, None),
        ("topic", f"{gone}-new", None, 1),
        ("topic setting", f"{kept}: retention.ms", "5000000", "6000000"),
        ("broker setting", "default: log.cleaner.threads", None, "2"),
        ("quota", "user u: consumer_byte_rate", 1000000.0, 2000000.0),
    }

    def differs():
        different = found(cluster, "cluster", "diff", before, "--without-groups", code=1)
        assert problems(different, SCHEMAS["cluster diff"]) == []
        return {(d["what"], d["name"], d["before"], d["after"]) for d in different} == wanted

    until(differs, 60, "the broker has heard of its new setting by a watch")
    steps = found(cluster, "cluster", "apply", before, "--delete", "--dry-run")
    assert {(s["step"], s["name"]) for s in steps} == {
        ("create topic", gone), ("alter topic", kept), ("delete topic", f"{gone}-new"),
        ("alter broker", "default"), ("alter quota", "user u"),
    }  # fmt: skip
    assert len(found(cluster, "cluster", "diff", before, "--without-groups", code=1)) == 5
    ok(cluster, "cluster", "apply", before, "--delete", "--yes")
    until(
        lambda: call(cluster, "cluster", "diff", before, "--without-groups").returncode == 0,
        60,
        "all is as it was",
    )
    assert found(cluster, "cluster", "apply", before, "--dry-run") == []
    other = tmp_path / "other.json"
    other.write_text('{"topics": 1}')
    assert "other.json" in said(cluster, "cluster", "diff", other)


def test_znodes_are_those_that_kazoo_reads(cluster):
    from kazoo.client import KazooClient

    name = fresh()
    ok(cluster, "topics", "create", name, "--partitions", 2)
    kazoo = KazooClient(cluster.zookeeper)
    kazoo.start(10)
    try:

        def below(path):
            for child in sorted(kazoo.get_children(path)):
                inner = f"{path.rstrip('/')}/{child}"
                yield inner
                yield from below(inner)

        listed = json.loads(
            ok(cluster, "znode", "ls", "/brokers", "-r", "--zookeeper", cluster.zookeeper,
               "--output", "json", address=False)
        )  # fmt: skip
        assert [z["path"] for z in listed] == list(below("/brokers"))
        path = f"/brokers/topics/{name}/partitions/0/state"
        data, stat = kazoo.get(path)
        one = json.loads(
            ok(cluster, "znode", "get", path, "--zookeeper", cluster.zookeeper, "--output", "json",
               address=False)
        )  # fmt: skip
        assert one["data"] == json.loads(data)
        assert one["kind"] == "leader and ISR of a partition"
        assert (one["version"], one["modified_zxid"], one["modified_ms"], one["bytes"]) == (
            stat.version, stat.mzxid, stat.mtime, len(data),
        )  # fmt: skip
        text = ok(
            cluster,
            "znode",
            "get",
            "/brokers/ids/0",
            "--zookeeper",
            cluster.zookeeper,
            address=False,
        )
        assert '"endpoints"' in text
        assert "a live broker" in text
    finally:
        kazoo.stop()
        kazoo.close()
    done = call(cluster, "znode", "get", "/nosuch", "--zookeeper", cluster.zookeeper, address=False)
    assert (done.returncode, len(command_line.lines(done))) == (1, 1)
    assert "there is no znode /nosuch" in done.stderr
