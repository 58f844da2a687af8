"""A bit flips on a broker's disk: how tests do it, read after it, and see that all is whole."""

import os
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from ottla.log import damage
from ottla.wire.records import iter_batches
from support.clients import named
from support.waiting import until

COUNT = 6000
SEGMENT = {"segment_bytes": "100000"}


def values() -> list[bytes]:
    return [b"value %d " % n + b"x" * 50 for n in range(COUNT)]


def fill(cluster, topic) -> None:
    """Write all values, in batches of 50, and wait until each is acknowledged."""
    errors = []

    def delivered(error, _message) -> None:
        if error is not None:
            errors.append(error)

    settings = {"enable_idempotence": True, "batch_num_messages": 50, "linger_ms": 5}
    producer = Producer(named(cluster.bootstrap, settings))
    for value in values():
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert not errors, errors[:3]


def segments(cluster, broker, topic) -> list[Path]:
    """Return the segment files of partition 0 on a broker."""
    return sorted((cluster.data(broker) / f"{topic}-0").glob("*.log"))


def drop_cache(path: Path) -> None:
    """Have the kernel forget what it holds of a file; what is dirty is written before."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def flip(path: Path, at: int = 100) -> int:
    """Flip one bit of the file's second batch; return that batch's first offset."""
    data = path.read_bytes()
    position, header = list(iter_batches(memoryview(data)))[1]
    with path.open("r+b") as file:
        file.seek(position + at)
        file.write(bytes([data[position + at] ^ 0x10]))
        file.flush()
        os.fsync(file.fileno())
    drop_cache(path)
    return header.base_offset


def partition(admin, topic):
    return admin.list_topics(topic, timeout=10).topics[topic].partitions[0]


def full(admin, topic, count=3) -> bool:
    """Return whether a partition has so many in sync; not, if the broker asked knows none yet."""
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions.get(0)
    return found is not None and len(found.isrs) == count and found.leader >= 0


def leader_of(admin, topic) -> int:
    return partition(admin, topic).leader


def read(bootstrap, topic, start=0, stop=COUNT, timeout_s=60, *, after_error_s=None):
    """Read the partition with one consumer; return {offset: value} and the errors it was given.

    `after_error_s`: how long to go on after the first error.
    """
    settings = {"group_id": topic, "enable_auto_commit": False, "auto_offset_reset": "error"}
    consumer = Consumer(named(bootstrap, settings))
    consumer.assign([TopicPartition(topic, 0, start)])
    found, errors = {}, []
    deadline = time.monotonic() + timeout_s
    try:
        while len(found) < stop - start and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                errors.append(message.error())
                if after_error_s is not None and len(errors) == 1:
                    deadline = min(deadline, time.monotonic() + after_error_s)
                if message.error().code() == KafkaError._BAD_MSG:
                    break
                continue
            found[message.offset()] = message.value()
    finally:
        consumer.close()
    return found, errors


def left_over(cluster, broker, topic) -> list[str]:
    """Name what of damage is left on a disk."""
    folder = cluster.data(broker)
    found = [p.name for p in folder.glob(f"{topic}-0.*-stray")]
    return found + [p.name for p in folder.glob(f"{topic}-0/{damage.DAMAGE_FILE}")]


def wait_healed(cluster, admin, topic, broker) -> None:
    until(
        lambda: full(admin, topic) and not left_over(cluster, broker, topic),
        60,
        lambda: (
            f"{broker} is whole again: {partition(admin, topic).isrs}, "
            f"{left_over(cluster, broker, topic)}"
        ),
    )
