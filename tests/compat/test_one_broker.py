"""One broker of ours as a process, asked by the clients people use."""

import asyncio
import time

import pytest

from support.clients import admin_client, create_topics, fresh
from support.seen import Znodes
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(180)]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 500


def create(cluster, name, partitions=1, **config):
    from confluent_kafka.admin import NewTopic

    new = NewTopic(name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
    create_topics(admin_client(cluster.bootstrap), new)
    return name


def expected():
    return [(b"k%d" % (n % 7), b"value-%d" % n) for n in range(RECORDS)]


def confluent_produce(cluster, topic, records, **settings):
    from confluent_kafka import Producer

    errors, offsets = [], []

    def delivered(error, message):
        if error is not None:
            errors.append(error)
        else:
            offsets.append(message.offset())

    base = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5}
    producer = Producer(base | {k.replace("_", "."): v for k, v in settings.items()})
    for key, value in records:
        producer.produce(topic, value, key, partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert not errors, errors[:3]
    return offsets


def confluent_read(cluster, topic, count, partition=0):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = []
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.5):
                assert message.error() is None, message.error()
                found.append((message.key(), message.value()))
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_codecs_come_back(one_broker, codec):
    topic = create(one_broker, fresh(codec))
    offsets = confluent_produce(one_broker, topic, expected(), compression_type=codec)
    assert offsets == list(range(RECORDS))
    assert confluent_read(one_broker, topic, RECORDS) == expected()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_confluent_acks(one_broker, acks):
    topic = create(one_broker, fresh("acks"))
    confluent_produce(one_broker, topic, expected(), acks=acks)
    assert confluent_read(one_broker, topic, RECORDS) == expected()


def test_confluent_idempotent(one_broker):
    topic = create(one_broker, fresh("idempotent"))
    offsets = confluent_produce(one_broker, topic, expected(), enable_idempotence=True)
    assert offsets == list(range(RECORDS))
    assert confluent_read(one_broker, topic, RECORDS) == expected()


def test_confluent_offsets_by_time(one_broker):
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic = create(one_broker, fresh("times"))
    producer = Producer({"bootstrap.servers": one_broker.bootstrap})
    start = int(time.time() * 1000) - 100_000
    for n in range(10):
        producer.produce(topic, b"x", timestamp=start + n * 1000, partition=0)
        producer.flush(10)
    consumer = Consumer(
        {
            "bootstrap.servers": one_broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
        }
    )
    asked = [TopicPartition(topic, 0, start + 3500)]
    assert consumer.offsets_for_times(asked, timeout=10)[0].offset == 4
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 10)
    consumer.close()


def test_confluent_metadata_and_configs(one_broker):
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    topic = create(one_broker, fresh("described"), partitions=3, retention_ms="1234567")
    admin = AdminClient({"bootstrap.servers": one_broker.bootstrap})
    metadata = admin.list_topics(timeout=10)
    assert list(metadata.brokers) == [0]
    assert metadata.controller_id == 0
    assert sorted(metadata.topics[topic].partitions) == [0, 1, 2]
    assert all(p.leader == 0 and p.isrs == [0] for p in metadata.topics[topic].partitions.values())
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = next(iter(admin.describe_configs([resource]).values())).result(10)
    assert configs["retention.ms"].value == "1234567"
    assert configs["segment.bytes"].value == "1073741824"
    broker = ConfigResource(ResourceType.BROKER, "0")
    configs = next(iter(admin.describe_configs([broker]).values())).result(10)
    assert configs["zookeeper.session.timeout.ms"].value == "6000"
    cluster = admin.describe_cluster().result(10)
    assert cluster.controller.id == 0


def test_creation_is_checked(one_broker):
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": one_broker.bootstrap})
    taken = create(one_broker, fresh("taken.name"))
    cases = [
        (NewTopic(taken, 1, 1), KafkaError.TOPIC_ALREADY_EXISTS),
        (NewTopic(taken.replace(".", "_"), 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic(fresh(), 1, 2), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic(fresh(), 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("a b", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic(fresh(), 1, 1, config={"retention.ms": "x"}), KafkaError.INVALID_CONFIG),
        (NewTopic(fresh(), 1, 1, config={"no.such.key": "x"}), KafkaError.INVALID_CONFIG),
        (NewTopic(fresh(), 1, replica_assignment=[[0, 0]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ]
    for new, code in cases:
        with pytest.raises(KafkaException) as caught:
            admin.create_topics([new], operation_timeout=10)[new.topic].result(20)
        assert caught.value.args[0].code() == code, caught.value
    only = NewTopic(fresh(), 2, 1)
    admin.create_topics([only], validate_only=True)[only.topic].result(20)
    assert only.topic not in admin.list_topics(timeout=10).topics


def test_a_topic_deleted_is_gone_and_comes_back_empty(one_broker):
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": one_broker.bootstrap})
    topic = create(one_broker, fresh("deleted"), partitions=2)
    confluent_produce(one_broker, topic, expected())
    admin.delete_topics([topic], operation_timeout=20)[topic].result(30)
    assert topic not in admin.list_topics(timeout=10).topics
    # As with a JVM broker the name is gone from the metadata a moment before all else is.
    with Znodes(one_broker.zookeeper) as znodes:
        until(lambda: topic not in znodes.names("/brokers/topics"), 30, "its znodes are gone")
        until(lambda: topic not in znodes.names("/admin/delete_topics"), 30, "it is done with")
    assert not list(one_broker.data(0).glob(f"{topic}-[0-9]"))
    with pytest.raises(KafkaException) as caught:
        admin.delete_topics([topic], operation_timeout=5)[topic].result(10)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    create(one_broker, topic)
    assert confluent_produce(one_broker, topic, expected()[:5]) == list(range(5))
    assert confluent_read(one_broker, topic, 5) == expected()[:5]


def test_a_topic_comes_into_being_by_being_written_to(one_broker):
    topic = fresh("auto")
    confluent_produce(one_broker, topic, expected()[:10])
    assert confluent_read(one_broker, topic, 10) == expected()[:10]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_codecs_come_back(one_broker, codec):
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.codec import has_lz4, has_snappy, has_zstd

    has = {"snappy": has_snappy, "lz4": has_lz4, "zstd": has_zstd}
    if codec in has and not has[codec]():
        pytest.skip(f"kafka-python needs a library of its own for {codec}, which is not installed")

    topic = create(one_broker, fresh("kp"))
    producer = KafkaProducer(
        bootstrap_servers=one_broker.bootstrap, compression_type=codec, linger_ms=5
    )
    futures = [producer.send(topic, v, k, partition=0) for k, v in expected()]
    assert [f.get(30).offset for f in futures] == list(range(RECORDS))
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=one_broker.bootstrap, auto_offset_reset="earliest")
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    assert consumer.end_offsets([tp]) == {tp: RECORDS}
    found = []
    deadline = time.monotonic() + 30
    while len(found) < RECORDS and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            found += [(r.key, r.value) for r in records]
    consumer.close()
    assert found == expected()


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_kafka_python_acks(one_broker, acks):
    from kafka import KafkaProducer

    topic = create(one_broker, fresh("kp-acks"))
    producer = KafkaProducer(
        bootstrap_servers=one_broker.bootstrap, acks=acks, enable_idempotence=acks == "all"
    )
    for key, value in expected():
        producer.send(topic, value, key, partition=0)
    producer.flush(30)
    producer.close()
    assert confluent_read(one_broker, topic, RECORDS) == expected()


def test_kafka_python_admin(one_broker):
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=one_broker.bootstrap)
    topic = fresh("kp-admin")
    admin.create_topics([NewTopic(topic, 2, 1)])
    assert topic in admin.list_topics()
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 2
    admin.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_aiokafka_comes_back(one_broker, codec, idempotent):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    topic = create(one_broker, fresh("aio"))

    async def go():
        producer = AIOKafkaProducer(
            bootstrap_servers=one_broker.bootstrap,
            compression_type=codec,
            enable_idempotence=idempotent,
        )
        await producer.start()
        sent = [await producer.send(topic, v, k, partition=0) for k, v in expected()]
        offsets = [(await f).offset for f in sent]
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=one_broker.bootstrap)
        await consumer.start()
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        await consumer.seek_to_beginning(tp)
        found = []
        while len(found) < RECORDS:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [(r.key, r.value) for r in records]
        ends = await consumer.end_offsets([tp])
        await consumer.stop()
        return offsets, found, ends[tp]

    offsets, found, end = asyncio.run(asyncio.wait_for(go(), 60))
    assert offsets == list(range(RECORDS))
    assert found == expected()
    assert end == RECORDS


def test_restart_keeps_what_was_written(one_broker):
    topic = create(one_broker, fresh("kept"))
    confluent_produce(one_broker, topic, expected())
    assert one_broker.terminate(0) == 0
    one_broker.start_broker(0)
    assert confluent_read(one_broker, topic, RECORDS) == expected()
    one_broker.kill(0)
    one_broker.start_broker(0)
    assert confluent_read(one_broker, topic, RECORDS) == expected()
