"""Three brokers of ours, administered with Kafka's own command line tools."""

import json
import re

import pytest

from support.clients import fresh, named
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, kafka_tools):
    from support.cluster import OttlaCluster

    with OttlaCluster(tmp_path_factory.mktemp("tools"), brokers=3) as cluster:
        yield cluster


@pytest.fixture
def run(cluster, kafka_tools):
    def call(tool, *arguments, **options):
        return kafka_tools.run(
            getattr(kafka_tools, tool),
            "--bootstrap-server",
            cluster.bootstrap,
            *arguments,
            **options,
        )

    return call


@pytest.fixture
def topic(run):
    name = fresh("tools")
    run("TOPICS", "--create", "--topic", name, "--replica-assignment", "0:1,1:2,2:0")
    return name


def describe(run, topic):
    """Return {partition: (leader, replicas, isr)}."""
    out = run("TOPICS", "--describe", "--topic", topic)
    pattern = r"Partition: (\d+)\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S+)"
    return {
        int(p): (
            -1 if leader == "none" else int(leader),
            [int(r) for r in replicas.split(",")],
            sorted(map(int, isr.split(","))),
        )
        for p, leader, replicas, isr in re.findall(pattern, out)
    }


def test_more_partitions(run, topic):
    run("TOPICS", "--alter", "--topic", topic, "--partitions", "5")
    # The broker that is asked hears of them a moment after the controller's.

    def five():
        found = describe(run, topic)
        led = all(leader >= 0 for leader, _, _ in found.values())
        return found if led and sorted(found) == [0, 1, 2, 3, 4] else None

    found = until(five, 60, "five partitions are known")
    assert found[0][1] == [0, 1]
    assert all(len(replicas) == 2 for _, replicas, _ in found.values())
    fewer = run("TOPICS", "--alter", "--topic", topic, "--partitions", "2", check=False)
    assert "higher than the requested 2" in fewer


def test_settings_of_a_topic(run, topic):
    of = ("--entity-type", "topics", "--entity-name", topic)
    run("CONFIGS", "--alter", *of, "--add-config", "retention.ms=123456,segment.bytes=1048576")
    assert "retention.ms=123456" in run("CONFIGS", "--describe", *of)
    run("CONFIGS", "--alter", *of, "--delete-config", "segment.bytes")
    out = run("CONFIGS", "--describe", *of)
    assert "retention.ms=123456" in out
    assert "segment.bytes" not in out
    bad = run("CONFIGS", "--alter", *of, "--add-config", "retention.ms=soon", check=False)
    assert "Invalid value soon for configuration retention.ms" in bad


def test_settings_given_at_creation_are_in_force(run, cluster):
    from confluent_kafka import KafkaError, Producer

    name = fresh("strict")
    run(
        "TOPICS", "--create", "--topic", name, "--replica-assignment", "0:1",
        "--config", "min.insync.replicas=2", "--config", "segment.bytes=2000",
    )  # fmt: skip
    errors = []
    patient = Producer(named(cluster.bootstrap, {}))
    for _ in range(10):
        patient.produce(name, b"x" * 700, on_delivery=lambda error, _: errors.append(error))
        patient.flush(30)
    assert errors == [None] * 10
    assert len(list((cluster.data(0) / f"{name}-0").glob("*.log"))) > 3
    cluster.kill(1)
    try:
        until(lambda: describe(run, name)[0][2] == [0], 60, "the leader is alone")
        errors.clear()
        without_retries = Producer(named(cluster.bootstrap, {"message_timeout_ms": 3000}))
        without_retries.produce(name, b"x", on_delivery=lambda error, _: errors.append(error))
        without_retries.flush(30)
        assert errors[0] is not None
        assert errors[0].code() in (KafkaError._MSG_TIMED_OUT, KafkaError.NOT_ENOUGH_REPLICAS)
    finally:
        cluster.start_broker(1)


def test_reassignment(run, topic, tmp_path):
    plan = {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": 0, "replicas": [2, 1]},
            {"topic": topic, "partition": 1, "replicas": [0]},
        ],
    }
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    out = run("REASSIGN", "--execute", "--reassignment-json-file", str(file))
    assert "Successfully started partition reassignments" in out
    verify = ("--verify", "--preserve-throttles", "--reassignment-json-file", str(file))
    until(lambda: run("REASSIGN", *verify).count("is completed") == 2, 60, "both have moved")
    expected = ((2, [2, 1], [1, 2]), (1, [2, 1], [1, 2]))
    until(
        lambda: (found := describe(run, topic))[0] in expected and found[1] == (0, [0], [0]),
        60,
        lambda: f"every broker has heard of it: {describe(run, topic)}",
    )
    assert "No partition reassignments found" in run("REASSIGN", "--list")


def test_preferred_election(run, topic, cluster):
    assert cluster.terminate(1) == 0
    assert describe(run, topic)[1][0] == 2
    cluster.start_broker(1)
    until(lambda: describe(run, topic)[1][2] == [1, 2], 60, "broker 1 is in sync again")
    # Of all topics: who is not in sync yet is elected nowhere.
    behind = ("--describe", "--under-replicated-partitions")
    until(lambda: not run("TOPICS", *behind).strip(), 60, "all topics are in sync again")
    run("LEADER_ELECTION", "--election-type", "preferred", "--all-topic-partitions")
    until(lambda: describe(run, topic)[1][0] == 1, 60, "broker 1 leads")


def held(run, topic):
    """Return the folders of a topic's partitions by broker."""
    out = run("LOG_DIRS", "--describe", "--topic-list", topic)
    found = json.loads(out.splitlines()[-1])
    return {
        broker["broker"]: sorted(p["partition"] for d in broker["logDirs"] for p in d["partitions"])
        for broker in found["brokers"]
    }


def test_log_dirs(run, topic):
    expected = {
        0: [f"{topic}-0", f"{topic}-2"],
        1: [f"{topic}-0", f"{topic}-1"],
        2: [f"{topic}-1", f"{topic}-2"],
    }
    until(lambda: held(run, topic) == expected, 60, lambda: f"folders: {held(run, topic)}")


def test_records_deleted(run, topic, cluster, tmp_path):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    for n in range(20):
        producer.produce(topic, b"%d" % n, partition=0)
    assert producer.flush(20) == 0
    file = tmp_path / "offsets.json"
    wanted = [{"topic": topic, "partition": 0, "offset": 7}]
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    out = run("DELETE_RECORDS", "--offset-json-file", str(file))
    assert "low_watermark: 7" in out
    out = run("GET_OFFSETS", "--topic-partitions", f"{topic}:0", "--time", "earliest")
    assert f"{topic}:0:7" in out


def test_deletion(run, topic):
    run("TOPICS", "--delete", "--topic", topic)
    until(lambda: topic not in run("TOPICS", "--list").split(), 60, "every broker has heard of it")
