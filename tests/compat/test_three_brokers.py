"""Three brokers of ours: leaders and controllers killed, stopped and brought back."""

import time
import uuid

import pytest

from support.seen import Znodes

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from support.cluster import OttlaCluster

    folder = tmp_path_factory.mktemp("three")
    with OttlaCluster(
        folder, brokers=3, zookeeper_server="java", min_insync_replicas="2"
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster):
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})


def wait_for(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def create(admin, cluster, partitions=3):
    from confluent_kafka.admin import NewTopic

    from support.clients import create_topics

    def all_here():
        return len(admin.list_topics(timeout=10).brokers) == len(cluster.ids)

    assert wait_for(all_here), "not all brokers have registered"
    topic = f"t-{uuid.uuid4().hex[:8]}"
    create_topics(admin, NewTopic(topic, partitions, 3))
    assert wait_for(lambda: full_isr(admin, topic))
    return topic


def states(admin, topic):
    return admin.list_topics(topic, timeout=10).topics[topic].partitions


def full_isr(admin, topic):
    from confluent_kafka import KafkaException

    try:
        found = states(admin, topic)
    except KafkaException:  # nobody is up yet
        return False
    return found and all(len(p.isrs) == 3 and p.leader >= 0 for p in found.values())


def controller(admin):
    return admin.list_topics(timeout=10).controller_id


class Writer:
    """An idempotent acks=all producer that remembers what was acknowledged."""

    def __init__(self, cluster, topic):
        from confluent_kafka import Producer

        self.topic, self.number, self.errors = topic, 0, []
        self.acked = {}
        self.producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "log_level": 2,
            }
        )

    def write(self, count):
        for _ in range(count):
            self.number += 1
            self.producer.produce(self.topic, b"%d" % self.number, on_delivery=self.delivered)
            self.producer.poll(0)

    def delivered(self, error, message):
        if error is not None:
            self.errors.append(error)
        else:
            self.acked[message.partition(), message.offset()] = message.value()

    def write_for(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.write(20)
            self.producer.poll(0.02)

    def finish(self):
        assert self.producer.flush(60) == 0
        assert not self.errors, self.errors[:3]
        assert len(self.acked) == self.number


def end_offset(consumer, partition):
    """Ask as applications have to: again while the leadership moves.

    librdkafka keeps what it heard of a topic: after "no leader" it says _UNKNOWN_PARTITION without
    asking a broker again, until somebody asks for the topic's metadata.
    """
    from confluent_kafka import KafkaError, KafkaException

    moving = {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    deadline = time.monotonic() + 30
    while True:
        try:
            consumer.list_topics(partition.topic, timeout=10)
            return consumer.get_watermark_offsets(partition, timeout=20)[1]
        except KafkaException as error:
            if error.args[0].code() not in moving or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def read_all(cluster, topic, partitions=3):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "x",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    try:
        asked = [TopicPartition(topic, p, 0) for p in range(partitions)]
        total = sum(end_offset(consumer, tp) for tp in asked)
        consumer.assign(asked)
        found = {}
        deadline = time.monotonic() + 30
        while len(found) < total and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.5):
                assert message.error() is None, message.error()
                found[message.partition(), message.offset()] = message.value()
        return found
    finally:
        consumer.close()


def test_a_leader_killed_loses_nothing(cluster, admin):
    topic = create(admin, cluster)
    writer = Writer(cluster, topic)
    writer.write_for(1)
    victim = states(admin, topic)[0].leader
    cluster.kill(victim)
    writer.write_for(2)
    writer.finish()
    # Who is asked may be the last to hear of what the controller has decided.
    assert wait_for(
        lambda: all(p.leader not in (-1, victim) for p in states(admin, topic).values())
    ), "others lead"
    assert read_all(cluster, topic) == writer.acked
    cluster.start_broker(victim)
    assert wait_for(lambda: full_isr(admin, topic)), "the ISR did not heal"
    assert read_all(cluster, topic) == writer.acked


def test_the_controller_killed_loses_nothing(cluster, admin):
    topic = create(admin, cluster)
    writer = Writer(cluster, topic)
    writer.write_for(1)
    victim = controller(admin)
    cluster.kill(victim)
    writer.write_for(2)
    writer.finish()
    assert wait_for(lambda: controller(admin) not in (-1, victim)), "no new controller"
    cluster.start_broker(victim)
    assert wait_for(lambda: full_isr(admin, topic)), "the ISR did not heal"
    assert read_all(cluster, topic) == writer.acked


def test_a_rolling_restart_is_not_noticed(cluster, admin):
    topic = create(admin, cluster)
    writer = Writer(cluster, topic)
    with Znodes(cluster.zookeeper) as znodes:
        for broker in cluster.ids:
            writer.write_for(0.5)
            assert cluster.terminate(broker) == 0
            assert (cluster.data(broker) / ".kafka_cleanshutdown").exists()
            # In ZooKeeper at once: a broker that is asked may hear of it a moment later.
            assert all(s.leader not in (-1, broker) for s in znodes.states(topic).values())
            writer.write_for(0.5)
            cluster.start_broker(broker)
            assert wait_for(lambda: full_isr(admin, topic)), "the ISR did not heal"
    writer.finish()
    assert read_all(cluster, topic) == writer.acked


def test_all_killed_and_started_again(cluster, admin):
    topic = create(admin, cluster)
    writer = Writer(cluster, topic)
    writer.write_for(1)
    writer.finish()
    for broker in cluster.ids:
        cluster.kill(broker)
    for broker in cluster.ids:
        cluster.start_broker(broker, wait=False)
    assert wait_for(lambda: full_isr(admin, topic)), "the ISR did not heal"
    assert read_all(cluster, topic) == writer.acked
    writer = Writer(cluster, topic)
    writer.write(100)
    writer.finish()
