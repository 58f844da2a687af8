"""R13: an eligible replica leads only if the leader never acknowledged without it, on processes.

min.insync.replicas is lowered for a while, or for the leader alone, or the controller knows a value
that the leader never heard of. The truth is what librdkafka was acknowledged and reads afterwards.
"""

import json

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from support.clients import named, read_ended
from support.cluster import OttlaCluster
from support.command_line import ok
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

KEPT = "kept"
"""The topic whose own min.insync.replicas stays as it is: its eligible replica leads."""


@pytest.fixture
def cluster(tmp_path):
    settings = {
        "min_insync_replicas": "2",
        "default_replication_factor": "3",
        "auto_leader_rebalance_enable": "false",
    }
    with OttlaCluster(tmp_path, 3, **settings) as cluster:
        yield cluster


@pytest.fixture
def zookeeper(cluster):
    client = KazooClient(cluster.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


def state(zookeeper, topic):
    return json.loads(zookeeper.get(f"/brokers/topics/{topic}/partitions/0/state")[0])


def write(address, topic, count, seconds=30):
    """Return how many records of `count` were acknowledged by all in-sync replicas."""
    acknowledged = []
    settings = {"acks": "all", "message_timeout_ms": seconds * 1000, "linger_ms": 5}
    producer = Producer(named(address, settings))
    for n in range(count):
        producer.produce(
            topic, b"%d" % n, partition=0,
            on_delivery=lambda error, message: error or acknowledged.append(message.offset()),
        )  # fmt: skip
    producer.flush(seconds + 5)
    return len(acknowledged)


def lower(cluster, zookeeper, way):
    """Have broker 0 acknowledge alone for a while; return what undoes it."""
    if way == "znode":
        # What it was told is 1. What a controller reads from now on it is never told.
        zookeeper.set("/config/topics/t", b'{"version":1,"config":{"min.insync.replicas":"2"}}')
        return lambda: None
    whose = ["--broker-defaults"] if way == "default" else ["--broker", 0]
    alter = ["configs", "alter", *whose]
    ok(cluster, *alter, "--set", "min.insync.replicas=1", broker=0)
    return lambda: ok(cluster, *alter, "--delete", "min.insync.replicas", broker=0)


@pytest.mark.parametrize("way", ["default", "broker", "znode"])
def test_r13_no_replica_leads_without_records_that_the_leader_acknowledged_alone(
    cluster, zookeeper, way
):
    create = ["topics", "create", "--assignment", "0:1:2"]
    own = {"znode": ["--config", "min.insync.replicas=1"]}.get(way, [])
    ok(cluster, *create, "t", *own)
    ok(cluster, *create, KEPT, "--config", "min.insync.replicas=2")
    for topic in ("t", KEPT):
        assert write(cluster.bootstrap, topic, 10) == 10
    undo = lower(cluster, zookeeper, way) if way == "znode" else None
    for broker in (2, 1):
        cluster.kill(broker)
        for topic in ("t", KEPT):
            until(lambda t=topic, b=broker: b not in state(zookeeper, t)["isr"], 40, "out of ISR")
    undo = undo or lower(cluster, zookeeper, way)
    until(lambda: write(cluster.address(0), "t", 1, 4) == 1, 40, "it is lowered")
    assert write(cluster.address(0), "t", 50) == 50
    undo()
    cluster.kill(0)
    for broker in (1, 2):
        cluster.start_broker(broker)
    until(lambda: state(zookeeper, KEPT)["leader"] == 1, 40, "the eligible replica leads")
    assert state(zookeeper, "t")["leader"] == -1, "as Kafka 3.9, it waits for broker 0"
    cluster.start_broker(0)
    until(lambda: len(state(zookeeper, "t")["isr"]) == 3, 60, "all are in sync")
    assert len(read_ended(cluster.bootstrap, "t", 1)) >= 61
