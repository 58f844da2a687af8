"""A producer and a consumer of confluent-kafka: what one writes, the other reads."""

import json

import pytest
from confluent_kafka import Consumer, Producer

from ottla import SyncCluster


def send_orders(bootstrap: str, count: int) -> None:
    """Stand for your application: it writes orders, each with the customer as its key."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(count):
        order = json.dumps({"number": number})
        producer.produce("orders", order, key=f"customer-{number % 5}")
    assert producer.flush(30) == 0


def read_orders(bootstrap: str, count: int) -> list[int]:
    """Read this many orders as a member of a group."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    numbers: list[int] = []
    try:
        while len(numbers) < count:
            message = consumer.poll(30)
            assert message is not None, f"only {len(numbers)} of {count} came"
            assert message.error() is None, message.error()
            numbers.append(json.loads(message.value())["number"])
    finally:
        consumer.close()
    return numbers


@pytest.mark.ottla(brokers=1, in_process=True)
def test_orders_arrive(ottla_cluster: SyncCluster, kafka_bootstrap: str) -> None:
    ottla_cluster.create_topic("orders", partitions=3)
    send_orders(kafka_bootstrap, 100)
    assert sorted(read_orders(kafka_bootstrap, 100)) == list(range(100))
