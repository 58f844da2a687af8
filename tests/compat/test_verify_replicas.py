"""`ottla verify-replicas` beside Kafka's own ReplicaVerificationTool, on planted differences.

Both systems: a follower is stopped, batches in its segment are replaced by others (valid ones, as
no broker would make them), and it is started again.
"""

import json
import subprocess
import sys
import threading

import pytest
from confluent_kafka import Producer

from ottla.wire.records import build_batch, iter_batches, iter_records
from support import kafka_tools
from support.clients import admin_client, fresh, named
from support.cluster import OttlaCluster
from support.command_line import call
from support.kafka39 import Kafka39Cluster
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def cluster(request, tmp_path_factory):
    request.getfixturevalue("kafka_tools")
    kind = OttlaCluster if request.param == "ottla" else Kafka39Cluster
    settings = {"auto_leader_rebalance_enable": "false"}
    with kind(tmp_path_factory.mktemp(request.param), brokers=3, **settings) as found:
        yield found


def made(cluster, *more):
    topic = fresh()
    done = call(cluster, "topics", "create", topic, "--assignment", "0:1:2,1:2:0", *more)
    assert done.returncode == 0, done.stderr
    return topic


def fill(cluster, topic, batches, size=3):
    producer = Producer(named(cluster.bootstrap, {"linger_ms": 100}))
    for n in range(batches):
        for i in range(size):
            for partition in (0, 1):
                producer.produce(topic, b"v%d" % i, key=b"k%d" % n, partition=partition)
        assert producer.flush(30) == 0


def verified(cluster, *arguments, code=0):
    done = call(cluster, "verify-replicas", *arguments, "--output", "json")
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def different(found):
    return {
        (p["partition"], r["broker"], d["kind"], d["offset"])
        for p in found
        for r in p["replicas"]
        for d in r["differences"]
    }


def in_sync(cluster, topic):
    topics = admin_client(cluster.bootstrap).list_topics(timeout=20).topics
    # A broker that has just started may not know it yet.
    partitions = topics[topic].partitions if topic in topics else {}
    return bool(partitions) and all(len(p.isrs) == 3 for p in partitions.values())


def left(cluster, topic, broker):
    """Return whether a broker is in sync nowhere in a topic."""
    topics = admin_client(cluster.bootstrap).list_topics(timeout=20).topics
    partitions = topics[topic].partitions if topic in topics else {}
    return bool(partitions) and all(broker not in p.isrs for p in partitions.values())


def kafkas_report(cluster, topic, want):
    """Run Kafka's tool until it has said something; return all its lines."""
    command = kafka_tools.command(
        "org.apache.kafka.tools.ReplicaVerificationTool", "--broker-list", cluster.bootstrap,
        "--topics-include", topic, "--report-interval-ms", "1000", "--time", "-2",
    )  # fmt: skip
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        killer = threading.Timer(60, process.kill)
        killer.start()
        for raw in process.stdout:
            lines.append(raw.decode())
            if want in lines[-1]:
                break
        killer.cancel()
        process.kill()
    return "".join(lines)


def replace(cluster, broker, topic, change, partition=0):
    """Stop a broker, change the batches of a replica, and start it again."""
    cluster.terminate(broker)
    folder = cluster.data(broker) / f"{topic}-{partition}"
    (segment,) = folder.glob("*.log")
    data = segment.read_bytes()
    batches = [(h, data[at : at + h.size]) for at, h in iter_batches(data)]
    segment.write_bytes(b"".join(change(batches)))
    for index in [*folder.glob("*.index"), *folder.glob("*.timeindex")]:
        index.unlink()
    cluster.start_broker(broker)
    until(lambda: in_sync(cluster, topic), 60, "all are in sync")


def rebuilt(header, data, *, value):
    records = [r._replace(value=value) for r in iter_records(data)]
    return build_batch(
        records, base_offset=header.base_offset, leader_epoch=header.partition_leader_epoch
    )


def test_equal_replicas(cluster):
    topic = made(cluster)
    fill(cluster, topic, 20)
    until(lambda: in_sync(cluster, topic), 30, "all are in sync")
    found = verified(cluster, topic)
    assert different(found) == set()
    assert [(p["from"], p["to"], p["high_watermark"]) for p in found] == [(0, 60, 60)] * 2
    assert all(r["lag"] == 0 for p in found for r in p["replicas"])
    small = verified(cluster, "--topics-include", f"{topic[:-1]}.", "--fetch-size", 1)
    assert [(p["to"], p["batches"]) for p in small] == [(p["to"], p["batches"]) for p in found]
    assert [p["from"] for p in verified(cluster, topic, "--time", "latest")] == [60, 60]


def test_another_checksum_is_found_where_kafkas_tool_finds_it(cluster):
    topic = made(cluster)
    fill(cluster, topic, 12)
    until(lambda: in_sync(cluster, topic), 30, "all are in sync")

    def change(batches):
        for n, (header, data) in enumerate(batches):
            yield rebuilt(header, data, value=b"zz") if n == len(batches) // 2 else data

    replace(cluster, 1, topic, change)
    ((partition, broker, kind, offset),) = different(verified(cluster, topic, code=1))
    assert (partition, broker, kind) == (0, 1, "checksum")
    said = kafkas_report(cluster, topic, "checksum")
    assert f"{topic}-0" in said
    # Kafka's tool names the last offset of a batch, ours the first.
    last = next(
        h.last_offset
        for at, h in iter_batches(segment(cluster, 0, topic))
        if h.base_offset == offset
    )
    assert f"at offset {last};" in said


def segment(cluster, broker, topic):
    (file,) = (cluster.data(broker) / f"{topic}-0").glob("*.log")
    return file.read_bytes()


def test_other_batches_are_found_as_kafkas_tool_finds_them(cluster):
    topic = made(cluster)
    fill(cluster, topic, 12)
    until(lambda: in_sync(cluster, topic), 30, "all are in sync")

    def change(batches):
        (first, one), (_, two), *rest = batches
        yield build_batch(
            [*iter_records(one), *iter_records(two)], base_offset=first.base_offset,
            leader_epoch=first.partition_leader_epoch,
        )  # fmt: skip
        yield from (data for _, data in rest)

    replace(cluster, 2, topic, change)
    assert different(verified(cluster, topic, code=1)) == {(0, 2, "offsets", 0)}
    assert "doesn't match" in kafkas_report(cluster, topic, "doesn't match")


def test_a_dead_replica_is_named_and_the_others_are_compared(cluster):
    topic = made(cluster)
    fill(cluster, topic, 5)
    until(lambda: in_sync(cluster, topic), 30, "all are in sync")
    cluster.kill(2)
    until(lambda: left(cluster, topic, 2), 60, "it left the ISRs")
    try:
        found = verified(cluster, topic, code=1)
    finally:
        cluster.start_broker(2)
    by_broker = {r["broker"]: r for r in found[0]["replicas"]}
    assert "broker 2 is not alive" in by_broker[2]["problem"]
    assert (by_broker[1]["problem"], found[0]["to"], found[0]["problem"]) == (None, 15, None)
    assert different(found) == set()


def test_bad_input_is_one_line(cluster):
    for arguments, words in (
        (("nosuch",), "nosuch"),
        (("--topics-include", "("), "--topics-include ("),
        (("--time", "soon"), "--time"),
        (("--fetch-size", "0"), "--fetch-size 0"),
    ):
        done = call(cluster, "verify-replicas", *arguments)
        assert done.returncode in (1, 2)
        assert words in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


def test_following_reports_as_kafkas_tool_does(cluster):
    topic = made(cluster)
    fill(cluster, topic, 3)
    until(lambda: in_sync(cluster, topic), 60, "all are in sync")
    command = [
        sys.executable, "-m", "ottla", "verify-replicas", topic, "--follow",
        "--report-interval-ms", "300", "--bootstrap-server", cluster.bootstrap,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        killer = threading.Timer(60, process.kill)
        killer.start()
        try:
            first = process.stdout.readline()
            fill(cluster, topic, 3)
            more = next((line for line in process.stdout if "at offset 18 among 2" in line), "")
        finally:
            killer.cancel()
            process.terminate()
    assert "max lag is 0 for partition" in first
    assert "at offset 18 among 2 partitions" in more
