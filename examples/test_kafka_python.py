"""kafka-python: a consumer that goes on where it was, after its broker was restarted."""

import pytest
from kafka import KafkaConsumer, KafkaProducer

from ottla import SyncCluster


def read(bootstrap: str, count: int) -> list[bytes]:
    """Stand for your application: read so many lines as a member of a group, and commit."""
    consumer = KafkaConsumer(
        "lines",
        bootstrap_servers=bootstrap.split(","),
        group_id="reader",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=30_000,
    )
    values: list[bytes] = []
    try:
        for message in consumer:
            values.append(message.value)
            if len(values) == count:
                break
        consumer.commit()
    finally:
        consumer.close()
    return values


@pytest.mark.ottla(brokers=1, in_process=True, scope="function")
def test_a_restart_is_no_loss(ottla_cluster: SyncCluster, kafka_bootstrap: str) -> None:
    ottla_cluster.create_topic("lines")
    producer = KafkaProducer(bootstrap_servers=kafka_bootstrap.split(","), acks="all")
    for number in range(5):
        producer.send("lines", b"line %d" % number).get(timeout=30)
    assert read(kafka_bootstrap, 3) == [b"line 0", b"line 1", b"line 2"]

    ottla_cluster.restart(1)

    producer.send("lines", b"line 5").get(timeout=30)
    producer.close()
    assert read(kafka_bootstrap, 3) == [b"line 3", b"line 4", b"line 5"]
