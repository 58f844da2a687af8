"""F56: logs of upgraded clusters: records of formats 0 and 1, beside Apache Kafka 3.9."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from support.clients import admin_client, create_topics, named
from support.cluster import OttlaCluster
from support.old_messages import FIRST_MS, message_set
from support.reassigning import reassigned
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

TOPICS = {
    f"{packed}-{magic}": (magic, packed)
    for magic in (0, 1)
    for packed in ("plain", "gzip", "snappy", "lz4")
}
COUNT = 200
KEPT = {"retention.ms": "-1"}
"""The records are years old: the first pass of retention would delete a segment that is rolled."""
JVM = 10


def lay(folder: Path, magic: int, packed: str) -> bytes:
    """Put what an old broker wrote in the place of a log."""
    for path in folder.iterdir():
        if path.suffix in (".index", ".timeindex", ".snapshot", ".log"):
            path.unlink()
    whole = message_set(0, COUNT, magic=magic, packed=packed)
    (folder / f"{0:020d}.log").write_bytes(whole)
    (folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    return whole


def read(bootstrap: str, topic: str, count: int) -> dict[int, bytes]:
    consumer = Consumer(
        named(bootstrap, {"group_id": "g", "check_crcs": True, "enable_auto_commit": False})
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[int, bytes] = {}
    end_s = time.monotonic() + 30
    while len(found) < count and time.monotonic() < end_s:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            found[message.offset()] = message.value()
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["clean", "killed"])
def test_clients_read_all_of_them_and_no_file_changes(tmp_path, how):
    with OttlaCluster(tmp_path, 1) as cluster:
        admin = admin_client(cluster.bootstrap)
        create_topics(admin, *(NewTopic(topic, 1, 1, config=KEPT) for topic in TOPICS))
        if how == "clean":
            cluster.terminate(0)
        else:
            cluster.kill(0)
        laid = {}
        for topic, (magic, packed) in TOPICS.items():
            laid[topic] = lay(cluster.data(0) / f"{topic}-0", magic, packed)
        for _ in range(2):
            cluster.start_broker(0)
            for topic, (magic, packed) in TOPICS.items():
                found = read(cluster.bootstrap, topic, COUNT)
                assert found == {o: b"v%d" % o for o in range(COUNT)}, topic
                if magic:
                    consumer = Consumer(
                        named(cluster.bootstrap, {"group_id": "g", "enable_auto_commit": False})
                    )
                    place = consumer.offsets_for_times(
                        [TopicPartition(topic, 0, FIRST_MS + 77)], timeout=10
                    )
                    assert place[0].offset == 77, packed
                    consumer.close()
                log = cluster.data(0) / f"{topic}-0" / f"{0:020d}.log"
                assert log.read_bytes() == laid[topic], topic
            cluster.kill(0) if how == "killed" else cluster.terminate(0)
        cluster.start_broker(0)
        producer = Producer(named(cluster.bootstrap, {}))
        for topic in TOPICS:
            producer.produce(topic, b"new", partition=0)
        assert producer.flush(20) == 0
        for topic in TOPICS:
            assert read(cluster.bootstrap, topic, COUNT + 1)[COUNT] == b"new"


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("first", [JVM, 0], ids=["a JVM broker led", "we led"])
def test_replicas_of_both_kinds_are_copied_and_alike(tmp_path, first):
    """An Ottla broker follows a JVM leader that has them, and the other way round."""
    from support.mixed import MixedCluster

    with MixedCluster(tmp_path, 1, 1, jvm_first=True) as mixed:
        admin = admin_client(mixed.bootstrap)
        until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, 30, "both are known")
        create_topics(
            admin, *(NewTopic(t, 1, replica_assignment=[[first]], config=KEPT) for t in TOPICS)
        )
        folders = [mixed.folder(first) / f"{topic}-0" for topic in TOPICS]
        until(lambda: all(folder.is_dir() for folder in folders), 30, "the leader has them")
        mixed.kind(first).terminate(first)
        laid = {}
        for topic, (magic, packed) in TOPICS.items():
            laid[topic] = lay(mixed.folder(first) / f"{topic}-0", magic, packed)
        mixed.start(first)
        other = 0 if first == JVM else JVM
        for topic in TOPICS:
            until(lambda t=topic: reassigned(mixed.bootstrap, t, [first, other]) == 0, 30, topic)
        mixed.wait_full(*TOPICS)
        producer = Producer(named(mixed.bootstrap, {"acks": "all"}))
        for topic in TOPICS:
            producer.produce(topic, b"new", partition=0)
        assert producer.flush(30) == 0
        for topic in TOPICS:
            found = read(mixed.bootstrap, topic, COUNT + 1)
            assert found == {o: b"v%d" % o for o in range(COUNT)} | {COUNT: b"new"}, topic
            for broker in (first, other):
                until(
                    lambda t=topic, b=broker: mixed.log_bytes(b, t, 0)[: len(laid[t])] == laid[t],
                    10,
                    f"{topic} is whole on {broker}",
                )
        mixed.stop()
        for topic in TOPICS:
            assert mixed.log_bytes(first, topic, 0) == mixed.log_bytes(other, topic, 0)
