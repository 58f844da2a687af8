"""The Spark job against real brokers: exactly once, again and again, also across a dead leader."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from cluster import OttlaCluster

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.timeout(450)]
TOPIC = "flights"


def flights(first, count):
    return [
        (
            b"AA",
            json.dumps(
                {"n": n, "year": 2013, "month": 1 + n % 12, "day": 1 + n % 28, "carrier": "AA",
                 "dep_delay": None if n % 10 == 0 else 5.0, "arr_delay": 20.0 if n % 2 else 10.0}
            ).encode(),
        )
        for n in range(first, first + count)
    ]  # fmt: skip


def produce(bootstrap, records):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for key, value in records:
        producer.produce(TOPIC, value, key)
        producer.poll(0)
    assert producer.flush(60) == 0


def run_job(bootstrap, lake, topic=TOPIC, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "ottla.pipelines.flights", "--bootstrap-server", bootstrap,
         "--topic", topic, "--lake", str(lake)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=3) as cluster:
        subprocess.run(
            [sys.executable, "-m", "ottla", "topics", "create", TOPIC, "--partitions", "3",
             "--replication-factor", "3", "--bootstrap-server", cluster.bootstrap],
            check=True,
        )  # fmt: skip
        yield cluster


def test_each_record_lands_once_again_and_again(cluster, tmp_path):
    lake = tmp_path / "lake"
    produce(cluster.bootstrap, flights(0, 3000))
    first = run_job(cluster.bootstrap, lake)
    assert (first["rows"], first["distinct_records"], first["exactly_once"]) == (3000, 3000, True)
    assert sorted(p.name for p in lake.glob("flight_date=2013-01-*"))[:1] == [
        "flight_date=2013-01-01"
    ]
    (delays,) = first["delays"]
    assert delays["flights"] == 3000
    assert delays["cancelled"] == 300
    assert delays["mean_arrival_delay_min"] == 15.0
    assert delays["late_percent"] == 50.0

    produce(cluster.bootstrap, flights(3000, 500))
    cluster.kill(0)
    try:
        alive = ",".join(cluster.address(b) for b in (1, 2))
        second = run_job(alive, lake)
    finally:
        cluster.start_broker(0)
    assert (second["rows"], second["exactly_once"]) == (3500, True)
    assert second["batches"] == first["batches"] + 1


@pytest.mark.parametrize(
    ("bootstrap", "topic", "says"),
    [("127.0.0.1:1", TOPIC, "cannot reach 127.0.0.1:1"), (None, "nosuch", "nosuch does not exist")],
)
def test_what_fails_is_one_line_and_quick(cluster, tmp_path, bootstrap, topic, says):
    line = run_job(bootstrap or cluster.bootstrap, tmp_path / "lake", topic=topic, code=1)
    assert line.startswith("pipeline flights: ")
    assert says in line
    assert len(line.splitlines()) == 1
