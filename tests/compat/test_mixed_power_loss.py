"""F5, R18 among both kinds: a broker of ours that lost its tails gets them back from a JVM broker.

A JVM broker answers the same questions as ours do: it tells its log end as a leader and as any
replica, and gives what it has up to there.
"""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from ottla.log.boot_ids import BOOT_ID_FILE
from ottla.log.recovery import UNCLEAN_MARK
from ottla.wire.records import iter_batches
from support.clients import admin_client, create_topics
from support.mixed import MixedCluster
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

TOPIC = "mixed"
OURS, JVM = 0, 10
COUNT = 40


def produce(bootstrap):
    """Send records that are acknowledged by all replicas, each in a batch of its own."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    acked = []
    for number in range(COUNT):
        producer.produce(
            TOPIC,
            b"%d" % number,
            partition=number % 2,
            on_delivery=lambda error, _: acked.append(error),
        )
        producer.flush(30)
    assert acked == COUNT * [None]


def lose_half(path):
    """Take the second half of a log's batches away, as a power loss may."""
    data = path.read_bytes()
    starts = [position for position, _ in iter_batches(memoryview(data))]
    path.write_bytes(data[: starts[len(starts) // 2]])


def test_what_a_power_loss_took_from_us_comes_back_from_a_jvm_broker(tmp_path, kafka_tools):
    """Ours is elected for both partitions, and leads neither before it heard the JVM broker."""
    with MixedCluster(tmp_path, 1, 1) as mixed:
        admin = admin_client(mixed.bootstrap)
        replicas = [[OURS, JVM], [JVM, OURS]]
        create_topics(admin, NewTopic(TOPIC, num_partitions=2, replica_assignment=replicas))
        mixed.wait_full(TOPIC)
        produce(mixed.bootstrap)
        whole = {p: mixed.log_bytes(OURS, TOPIC, p) for p in (0, 1)}
        assert whole == {p: mixed.log_bytes(JVM, TOPIC, p) for p in (0, 1)}
        mixed.ours.kill(OURS)
        mixed.theirs.kill(JVM)
        for partition in (0, 1):
            lose_half(mixed.folder(OURS) / f"{TOPIC}-{partition}" / f"{0:020d}.log")
        # The machine is another boot away; without this the note says that only the process died.
        (mixed.folder(OURS) / BOOT_ID_FILE).unlink()
        until(lambda: not mixed.znodes.brokers(), 30, "both are forgotten")
        mixed.ours.start_broker(OURS)
        until(lambda: OURS in mixed.znodes.brokers(), 30, "ours is registered")
        mixed.theirs.start_broker(JVM)
        mixed.wait_full(TOPIC, timeout_s=60)
        assert {p: mixed.log_bytes(OURS, TOPIC, p)[: len(whole[p])] for p in (0, 1)} == whole
        mixed.stop()
        marks = list(mixed.folder(OURS).glob(f"*/{UNCLEAN_MARK}"))
        assert marks == [], "both were shown to be complete"
        assert mixed.replica_differences(TOPIC) == []
