"""`ottla elect unclean` says before what is lost; afterwards a consumer finds just that missing.

The independent truth is what librdkafka was acknowledged and reads after the election.
"""

from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from support.clients import admin_client, fresh, named
from support.cluster import OttlaCluster
from support.command_line import call, found
from support.kafka39 import Kafka39Cluster
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def cluster(request, tmp_path_factory):
    kind = OttlaCluster
    if request.param == "kafka":
        request.getfixturevalue("kafka_tools")
        kind = Kafka39Cluster
    settings = {"replica_lag_time_max_ms": "4000", "min_insync_replicas": "1"}
    folder = tmp_path_factory.mktemp(request.param)
    with kind(folder, brokers=3, **settings) as found:
        found.longest_log = request.param == "ottla"
        yield found


def partition(cluster, topic):
    """Return a partition's leader and ISR as librdkafka has it; none of a topic not known yet."""
    topics = admin_client(cluster.bootstrap).list_topics(timeout=20).topics
    if topic not in topics or 0 not in topics[topic].partitions:
        return {"leader": None, "isr": []}
    p = topics[topic].partitions[0]
    return {"leader": p.leader, "isr": list(p.isrs)}


def fill(cluster, topic, count):
    producer = Producer(named(cluster.bootstrap, {"acks": "all", "enable_idempotence": True}))
    for n in range(count):
        producer.produce(topic, b"%d" % n, partition=0)
    assert producer.flush(60) == 0


def end_of(cluster, topic):
    consumer = Consumer(named(cluster.bootstrap, {"group_id": "nobody"}))
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    finally:
        consumer.close()


def test_what_is_said_to_be_lost_is_what_is_lost(cluster):
    topic = fresh()
    made = call(cluster, "topics", "create", topic, "--assignment", "0:1:2")
    assert made.returncode == 0, made.stderr

    def grow(in_sync, count):
        # In any order: who was late for a moment comes last.
        until(lambda: sorted(partition(cluster, topic)["isr"]) == in_sync, 60, f"{in_sync} in sync")
        fill(cluster, topic, count)

    grow([0, 1, 2], 30)
    cluster.kill(1)
    grow([0, 2], 20)
    cluster.kill(2)
    grow([0], 50)
    cluster.kill(0)
    cluster.start_broker(1)
    cluster.start_broker(2)
    until(
        lambda: partition(cluster, topic)["leader"] == -1,
        60,
        "no leader",
        despite=(KafkaException,),  # not all of the metadata is there yet
    )
    alive = partial(admin_client(cluster.bootstrap).list_topics, timeout=20)
    until(lambda: set(alive().brokers) == {1, 2}, 60, "two are alive")

    (shown,) = found(cluster, "elect", "unclean", f"{topic}-0", "--dry-run")
    leader, end = (2, 50) if cluster.longest_log else (1, 30)
    assert shown["result"] == "would be elected"
    assert shown["leader"] == leader
    lost = {loss["broker"]: (loss["from"], loss["to"]) for loss in shown["lost"]}
    assert lost[0] == (end, None)
    assert lost.get(2) == (None if cluster.longest_log else (30, 49))
    assert "start broker 0 first" in shown["recommendation"]
    assert partition(cluster, topic)["leader"] < 0, "a dry run changes nothing"

    refused = call(cluster, "elect", "unclean", f"{topic}-0")
    assert refused.returncode == 2
    assert "may lose acknowledged records; add --yes" in refused.stderr
    assert partition(cluster, topic)["leader"] < 0

    done = call(cluster, "elect", "unclean", f"{topic}-0", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"broker {leader}, not in sync, alive: its log ends at offset {end}" in done.stderr
    assert f"broker {leader} leads; lost: what broker 0 has from offset {end} on" in done.stderr
    until(lambda: partition(cluster, topic)["leader"] == leader, 30, "all have heard of it")
    until(lambda: end_of(cluster, topic) == end, 30, "it ends there", despite=(KafkaException,))

    cluster.start_broker(0)
    until(lambda: sorted(partition(cluster, topic)["isr"]) == [0, 1, 2], 60, "in sync again")
    assert end_of(cluster, topic) == end, "nobody brought the lost records back"


@pytest.mark.alone
def test_logs_of_other_leader_epochs_are_compared_batch_by_batch(cluster):
    """Broker 0 has epoch 0 up to 50, broker 2 epoch 1 up to 80, and 1, which is dead, has all."""
    topic = fresh()
    made = call(cluster, "topics", "create", topic, "--assignment", "0:1:2")
    assert made.returncode == 0, made.stderr

    def in_sync(*brokers):
        until(
            lambda: sorted(partition(cluster, topic)["isr"]) == list(brokers), 60,
            f"{brokers} are in sync",
        )  # fmt: skip

    in_sync(0, 1, 2)
    fill(cluster, topic, 30)
    cluster.kill(1)
    in_sync(0, 2)
    fill(cluster, topic, 20)
    cluster.kill(0)
    in_sync(2)
    cluster.start_broker(1)
    in_sync(1, 2)
    fill(cluster, topic, 30)
    cluster.kill(2)
    in_sync(1)
    fill(cluster, topic, 10)
    cluster.kill(1)
    cluster.start_broker(0)
    cluster.start_broker(2)
    try:
        alive = partial(admin_client(cluster.bootstrap).list_topics, timeout=20)
        until(lambda: set(alive().brokers) == {0, 2}, 60, "two are alive")
        until(lambda: partition(cluster, topic)["leader"] == -1, 60, "no leader")
        (shown,) = found(cluster, "elect", "unclean", f"{topic}-0", "--dry-run")
        lost = {loss.pop("broker"): loss for loss in shown["lost"]}
        if cluster.longest_log:
            assert shown["leader"] == 2
            assert lost == {1: {"from": 80, "to": None, "or_earlier": False}}
        else:
            assert shown["leader"] == 0
            assert lost == {
                1: {"from": 50, "to": None, "or_earlier": False},
                2: {"from": 50, "to": 79, "or_earlier": False},
            }
    finally:
        cluster.start_broker(1)
    until(lambda: end_of(cluster, topic) == 90, 60, "nothing was lost", despite=(KafkaException,))
