"""A consumer with a rack reads from the replica there, follower or leader."""

import json
import time

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

VALUES = [b"%05d" % n * 200 for n in range(2000)]


@pytest.fixture
def cluster(tmp_path):
    from support.cluster import OttlaCluster

    settings = {
        "broker_rack": "rack-{broker}",
        "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "offsets_topic_replication_factor": "1",
    }
    with OttlaCluster(tmp_path / "cluster", brokers=2, **settings) as cluster:
        yield cluster


def partition(admin, topic):
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions.get(0)
    return found if found is not None and found.leader >= 0 else None


class Reader:
    """Reads one partition from its start and knows how many bytes came from which broker."""

    def __init__(self, cluster, topic, rack):
        from confluent_kafka import Consumer, TopicPartition

        from support.clients import fresh, named

        self.received = {}
        settings = {
            "group_id": fresh("reader"),
            "client_rack": rack,
            "statistics_interval_ms": 100,
        }
        self.consumer = Consumer({**named(cluster.bootstrap, settings), "stats_cb": self.told})
        self.consumer.assign([TopicPartition(topic, 0, 0)])

    def told(self, text):
        for broker in json.loads(text)["brokers"].values():
            self.received[broker["nodeid"]] = broker["rxbytes"]

    def read(self, count):
        values = []
        deadline = time.monotonic() + 40
        while len(values) < count:
            assert time.monotonic() < deadline, f"{len(values)} of {count} read"
            message = self.consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value())
        return values

    def bytes_of(self, broker, least):
        """Return how much came from a broker, once it is at least so much."""
        deadline = time.monotonic() + 20
        while self.received.get(broker, 0) < least:
            assert time.monotonic() < deadline, self.received
            self.consumer.poll(0.1)
        return self.received[broker]


def test_a_consumer_reads_in_its_rack(cluster):
    from support.clients import admin_client, create_topic, produce
    from support.waiting import until

    admin = admin_client(cluster.bootstrap)
    topic = create_topic(admin, 1, 2)
    # The broker that is asked may hear of the topic last.
    leader = until(lambda: partition(admin, topic), 30, "the topic is known").leader
    near = 1 - leader
    produce(cluster.bootstrap, topic, VALUES, 1)
    size = sum(map(len, VALUES))
    readers = {b: Reader(cluster, topic, f"rack-{b}") for b in (near, leader)}
    try:
        for broker, reader in readers.items():
            assert reader.read(len(VALUES)) == VALUES
            assert reader.bytes_of(broker, size) >= size
            assert reader.received.get(1 - broker, 0) < size / 4, reader.received
    finally:
        for reader in readers.values():
            reader.consumer.close()
