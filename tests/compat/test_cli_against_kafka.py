"""The client half of the command line against a real Apache Kafka 3.9."""

import json
import subprocess
import sys

import pytest

from support.kafka39 import Kafka39Cluster

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def kafka(kafka_tools, tmp_path_factory):
    with Kafka39Cluster(tmp_path_factory.mktemp("kafka"), zookeeper_server="own") as cluster:
        yield cluster


def ottla(kafka, *arguments, stdin="", code=0):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ottla",
            *map(str, arguments),
            "--bootstrap-server",
            kafka.bootstrap,
        ],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_topics(kafka):
    ottla(kafka, "topics", "create", "t", "--partitions", 3, "--config", "retention.ms=5000000")
    (found,) = json.loads(ottla(kafka, "topics", "describe", "t", "--output", "json"))
    assert [p["leader"] for p in found["partitions"]] == [0, 0, 0]
    assert found["settings"] == {"retention.ms": "5000000"}
    assert "t" in [
        t["topic"] for t in json.loads(ottla(kafka, "topics", "list", "--output", "json"))
    ]
    assert "TOPIC_ALREADY_EXISTS" in ottla(kafka, "topics", "create", "t", code=1)


def test_records_go_where_kafka_puts_them(kafka, kafka_tools):
    """Kafka's console producer and ours put a key into the same partition."""
    for topic in ("ours", "theirs"):
        ottla(kafka, "topics", "create", topic, "--partitions", 7)
    lines = "".join(f"key{n}:{n}\n" for n in range(100))
    ottla(kafka, "produce", "ours", "--key-separator", ":", stdin=lines)
    kafka_tools.run(
        kafka_tools.CONSOLE_PRODUCER, "--bootstrap-server", kafka.bootstrap, "--topic", "theirs",
        "--property", "parse.key=true", "--property", "key.separator=:", stdin=lines,
    )  # fmt: skip
    placed = []
    for topic in ("ours", "theirs"):
        out = ottla(
            kafka, "consume", topic, "--from-beginning", "--max-messages", 100, "--output", "json"
        )
        records = [json.loads(line) for line in out.splitlines()]
        assert len({r["value"] for r in records}) == 100
        placed.append({r["key"]: r["partition"] for r in records})
    assert placed[0] == placed[1]


def test_status(kafka):
    found = json.loads(ottla(kafka, "status", "--output", "json"))
    assert found["controller"] == 0
    assert found["healthy"]
