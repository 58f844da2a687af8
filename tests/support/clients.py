"""confluent-kafka as the tests use it: names, topics, a load in the background, reading to the end.

Settings are given with _ for the dots of librdkafka's names.
"""

import sys
import threading
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.waiting import until  # tests are no package


def fresh(prefix: str = "t") -> str:
    """Return a name that nobody else has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def named(bootstrap: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as librdkafka wants them, quiet but for errors."""
    dotted = {k.replace("_", "."): v for k, v in settings.items()}
    return {"bootstrap.servers": bootstrap, "log_level": 2, **dotted}


def admin_client(bootstrap: str) -> AdminClient:
    """Return an admin client; hold it, for one that nobody holds takes its open requests along."""
    return AdminClient(named(bootstrap, {}))


def create_topics(admin: AdminClient, *topics: NewTopic, timeout_s: float = 30) -> None:
    """Create topics, also where the controller has changed since the client last heard of it.

    librdkafka sends to the controller that it heard of last and gives NOT_CONTROLLER to its caller
    (with brokers of Apache Kafka as with ours), who is to ask again; all else is raised.
    """
    deadline = time.monotonic() + timeout_s
    # A broker that began a moment ago names no controller, and librdkafka then waits for its next
    # look at the metadata.
    until(
        lambda: admin.list_topics(timeout=10).controller_id >= 0, timeout_s, "a controller is known"
    )
    left = list(topics)
    while left:
        futures = admin.create_topics(left, operation_timeout=20)
        refused = [topic for topic in left if not _created(futures[topic.topic], timeout_s)]
        assert not refused or time.monotonic() < deadline, f"no controller within {timeout_s} s"
        if refused:
            admin.list_topics(timeout=10)  # who is the controller now
        left = refused


def _created(future: Any, timeout_s: float) -> bool:
    """Return whether a topic is created, False if who was asked is not the controller."""
    try:
        future.result(timeout_s)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.NOT_CONTROLLER:
            raise
        return False
    return True


def create_topic(admin: AdminClient, partitions: int, replicas: int, **config: str) -> str:
    """Create a topic with a name of its own; return the name."""
    name = fresh()
    settings = {k.replace("_", "."): v for k, v in config.items()}
    create_topics(admin, NewTopic(name, partitions, replicas, config=settings))
    return name


def produce(bootstrap: str, topic: str, values: Iterable[bytes | str], partitions: int) -> None:
    """Write values to a topic's partitions in turn, and wait until each is acknowledged."""
    errors = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer(named(bootstrap, {"linger_ms": 5, "enable_idempotence": True}))
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions, on_delivery=delivered)
    assert producer.flush(40) == 0
    assert not errors, errors[:3]


def end_offsets(admin: AdminClient, topic: str, partitions: int, isolation: str) -> int:
    """Add up the offsets after the last record of each partition that an isolation level shows."""
    # librdkafka keeps "no leader" of a topic until somebody asks for the topic's metadata again.
    admin.list_topics(topic, timeout=10)
    asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
    found = admin.list_offsets(asked, isolation_level=IsolationLevel[isolation.upper()])
    return sum(future.result(20).offset for future in found.values())


def stable_end(bootstrap: str, topic: str, partition: int) -> int:
    """Return the end of a partition that a read_committed consumer sees."""
    consumer = Consumer(named(bootstrap, {"group_id": "end", "isolation_level": "read_committed"}))
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, partition), 20)[1]
    finally:
        consumer.close()


def read_ended(bootstrap: str, topic: str, partitions: int, timeout_s: float = 40) -> list[bytes]:
    """Wait until no transaction is open in a topic; return what is committed, in any order.

    A commit is acknowledged once it is decided, by Kafka's brokers as by ours; its markers, and
    with them the end that readers see, come a moment after.
    """
    admin = admin_client(bootstrap)
    until(
        lambda: (
            end_offsets(admin, topic, partitions, "read_committed")
            == end_offsets(admin, topic, partitions, "read_uncommitted")
        ),
        timeout_s,
        f"every transaction in {topic} has ended",
        despite=(KafkaException,),
    )
    return read_to_end(bootstrap, topic, partitions, "read_committed", timeout_s=timeout_s)


def read_to_end(
    bootstrap: str, topic: str, partitions: int, isolation: str, *, timeout_s: float = 40
) -> list[bytes]:
    """Return the values of a topic up to the end that an isolation level shows, in any order."""
    settings = {
        "group_id": fresh("reader"),
        "isolation_level": isolation,
        "enable_partition_eof": True,
        "enable_auto_commit": False,
    }
    consumer = Consumer(named(bootstrap, settings))
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    values: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + timeout_s
    try:
        while len(ended) < partitions:
            left = set(range(partitions)) - ended
            assert time.monotonic() < deadline, f"no end of {topic}-{left} within {timeout_s} s"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                values.append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
    finally:
        consumer.close()
    return values


class Load:
    """Sends at a bounded rate, acks=all and idempotent, in a thread of its own in a `with` block.

    What was sent is waited for at the block's end. Who derives says what the next record is.
    """

    STEP_S = 0.01

    def __init__(self, bootstrap: str, rate: int, **settings: Any) -> None:
        self._a_step = max(1, int(rate * self.STEP_S))
        self._stop = threading.Event()
        self.producer = Producer(
            named(bootstrap, {"enable_idempotence": True, "linger_ms": 5, **settings})
        )

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(90)

    def _run(self) -> None:
        while not self._stop.is_set():
            next_s = time.monotonic() + self.STEP_S
            for _ in range(self._a_step):
                self.send()
            self.producer.poll(0)
            time.sleep(max(0.0, next_s - time.monotonic()))
        self.producer.flush(60)

    def send(self) -> None:
        """Produce the next record."""
        raise NotImplementedError
