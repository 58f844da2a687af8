"""An application that writes while brokers fail: is everything that was acknowledged kept?"""

from itertools import count
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from ottla import SyncCluster
from ottla.testing.chaos import Chaos

SETTINGS = {"acks": "all", "enable.idempotence": True}


@pytest.mark.ottla(brokers=3, in_process=True)
def test_no_order_is_lost(ottla_cluster: SyncCluster, chaos: Chaos) -> None:
    ottla_cluster.create_topic("orders", partitions=3)
    producer = Producer({"bootstrap.servers": ottla_cluster.bootstrap, **SETTINGS})

    def delivered(error: Any, message: Message) -> None:
        assert error is None, error
        chaos.acknowledged(
            "orders", message.key(), message.value(), message.partition(), message.offset()
        )

    with chaos.during("kill_isolated_leader", "lose_responses", "pause_leader", longest_s=0.5):
        for number in count():
            producer.produce("orders", f"{number}", key=f"{number % 20}", on_delivery=delivered)
            producer.poll(0.001)
            if not chaos.pending:  # each of the faults has happened
                break
        assert producer.flush(30) == 0
    checked = chaos.check()  # nothing lost, nothing doubled, each key in its order
    assert checked.acknowledged == number + 1
