"""A producer and a consumer of confluent-kafka, and the death of a leader between them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer

from ottla import SyncCluster
from ottla.testing.chaos import Chaos

Delivered = Callable[[Any, Message], None]


def send_orders(bootstrap: str, count: int, delivered: Delivered) -> None:
    """Stand for your application: it writes orders, each with the customer as its key."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(count):
        order = json.dumps({"number": number})
        producer.produce("orders", order, key=f"customer-{number % 5}", on_delivery=delivered)
        producer.poll(0)
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
    send_orders(kafka_bootstrap, 100, lambda _error, _message: None)
    assert sorted(read_orders(kafka_bootstrap, 100)) == list(range(100))


@pytest.mark.ottla(brokers=3, in_process=True)
def test_no_order_is_lost_when_leaders_die(ottla_cluster: SyncCluster, chaos: Chaos) -> None:
    ottla_cluster.create_topic("orders", partitions=3)

    def delivered(error: Any, message: Message) -> None:
        assert error is None, error
        chaos.acknowledged(
            "orders", message.key(), message.value(), message.partition(), message.offset()
        )

    with chaos.during("kill_leader", "pause_leader", pause_s=(0.0, 0.2), longest_s=0.3):
        send_orders(ottla_cluster.bootstrap, 20_000, delivered)
    assert chaos.check().acknowledged == 20_000
