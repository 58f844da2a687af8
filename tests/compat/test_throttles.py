"""A partition is moved by Kafka's own tool under a throttle: slowly, and nobody in sync notices.

Three brokers as processes. What is measured is bounded generously: a busy machine makes it slower,
and nothing but a throttle that does not work makes it faster.
"""

import json
import os
import time

import pytest

from support import kafka_tools
from support.clients import admin_client, create_topics
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(240)]

MIB = 1 << 20
MOVED_MIB = 8
RATE = MIB // 2


@pytest.fixture
def cluster(tmp_path):
    from support.cluster import OttlaCluster

    if kafka_tools.why_not() is not None:
        pytest.skip(kafka_tools.why_not())
    with OttlaCluster(tmp_path / "cluster", brokers=3) as cluster:
        yield cluster


def throttled_settings(admin, topic):
    from confluent_kafka.admin import ConfigResource, ResourceType

    asked = [ConfigResource(ResourceType.TOPIC, topic)]
    (found,) = [f.result(10) for f in admin.describe_configs(asked).values()]
    return {n: e.value for n, e in found.items() if "throttled" in n and e.value}


def test_a_throttled_move(cluster, tmp_path):
    from confluent_kafka import Producer
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewTopic,
        ResourceType,
    )

    admin = admin_client(cluster.bootstrap)
    topics = [
        NewTopic("moved", num_partitions=1, replica_assignment=[[0, 1]]),
        NewTopic("busy", num_partitions=1, replica_assignment=[[0, 2]]),
    ]
    create_topics(admin, *topics)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})

    def partition(topic):
        return admin.list_topics(topic, timeout=10).topics[topic].partitions[0]

    until(lambda: all(len(partition(t).isrs) == 2 for t in ("moved", "busy")), 30, "all in sync")
    chunk = os.urandom(100_000)
    for _ in range(MOVED_MIB * MIB // len(chunk)):
        producer.produce("moved", chunk)
    assert producer.flush(60) == 0

    def produce_one():
        start = time.monotonic()
        # Small: what is in sync is never held back, but it counts, and the move gets the rest.
        producer.produce("busy", b"x" * 1000)
        assert producer.flush(30) == 0
        return time.monotonic() - start

    everything = [
        ConfigEntry(f"{side}.replication.throttled.replicas", "*",
                    incremental_operation=AlterConfigOpType.SET)
        for side in ("leader", "follower")
    ]  # fmt: skip
    resource = ConfigResource(ResourceType.TOPIC, "busy", incremental_configs=everything)

    moves = tmp_path / "moves.json"
    moves.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [{"topic": "moved", "partition": 0, "replicas": [0, 2]}],
            }
        )
    )
    of = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(moves))
    with kafka_tools.OneJvm() as jvm:
        # The JVM's start and its first tool take seconds. They are over before anything counts
        # under a throttle, for the time since would be given to the move.
        code, out = jvm.call(kafka_tools.REASSIGN, *of[:2], "--list")
        assert code == 0, out
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(10)
        before = sorted(produce_one() for _ in range(10))[5]
        code, out = jvm.call(kafka_tools.REASSIGN, *of, "--execute", "--throttle", str(RATE))
        started = time.monotonic()
        assert code == 0, out
        assert "Warning: You must run --verify periodically" in out
        assert set(throttled_settings(admin, "moved")) == {
            "leader.replication.throttled.replicas",
            "follower.replication.throttled.replicas",
        }
        waits = []
        while sorted(partition("moved").isrs) != [0, 2]:
            assert time.monotonic() - started < 60, "the move does not end"
            waits.append(produce_one())
            time.sleep(0.1)
        took = time.monotonic() - started
        # What came seconds ago is counted with the time since (Kafka's SimpleRate): up to ten
        # seconds' worth may pass at once, as long as the tool took, and an answer.
        assert (MOVED_MIB - 1) * MIB / RATE - 10 <= took <= 4 * MOVED_MIB * MIB / RATE
        assert len(waits) > 10
        usual = sorted(waits)[len(waits) // 2]
        assert usual < 0.5 + 2 * before, f"in-sync replicas were slowed: {before}, now {usual}"
        code, out = jvm.call(kafka_tools.REASSIGN, *of, "--verify")
        assert code == 0, out
        assert "Clearing topic-level throttles on topic moved" in out
    until(lambda: not throttled_settings(admin, "moved"), 30, "no throttle is left")
    assert cluster.replica_differences("moved", 1) == []
    print(f"moved {MOVED_MIB} MiB at {RATE} B/s in {took:.1f} s; {len(waits)} produces meanwhile, "
          f"p50 {sorted(waits)[len(waits) // 2] * 1000:.0f} ms")  # fmt: skip
