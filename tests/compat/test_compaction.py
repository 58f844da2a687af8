"""Compaction on real processes, and cleaned files under Kafka's eyes."""

import asyncio
import contextlib
import random
import signal
import time
import uuid
from pathlib import Path

import pytest

from ottla.log import checkpoints
from ottla.log.cleaner import LogCleaner
from ottla.log.files import OsFiles
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.validate import COORDINATOR
from ottla.model.config import BrokerConfig
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.wire.records import (
    ABORT,
    COMMIT,
    Record,
    build_batch,
    build_control_batch,
    iter_batches,
    iter_records,
)

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(180)]

DUMP = "kafka.tools.DumpLogSegments"
TP = TopicPartition("table", 0)
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "3000",
    "index.interval.bytes": "200",
    "min.cleanable.dirty.ratio": "0.01",
}
NOW = int(time.time() * 1000)


def until(condition, what, timeout_s=40):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


# One folder, two brokers ---------------------------------------------------------------------


class Clock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return int(time.time() * 1000)


class Inline:
    async def run(self, function, *args):
        return function(*args)


def open_folder(folder: Path) -> tuple[LogManager, LogCleaner]:
    properties = {"zookeeper.connect": "unused:1", "broker.id": "0", "log.dirs": str(folder)}
    config = BrokerConfig(properties)
    world = World(Clock(), random.Random(1), OsFiles(), None, Inline())  # type: ignore[arg-type]
    manager = LogManager(world, config)
    manager.startup(lambda name: config.topic_config(TOPIC_CONFIGS if name == TP.topic else {}))
    return manager, LogCleaner(world, config, manager)


def table_of(log: Log) -> dict[str, str]:
    """Return the last value of each key, without what was aborted."""
    aborted = log.aborted_transactions(0, log.log_end_offset)
    table: dict[str, str] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(log.read(offset, 1 << 20, log.log_end_offset).parts)
        for at, header in iter_batches(data):
            offset = header.next_offset
            gone = any(
                a.producer_id == header.producer_id
                and a.first_offset <= header.base_offset <= a.last_offset
                for a in aborted
            )
            if header.is_control or (header.is_transactional and gone):
                continue
            for record in iter_records(data, at):
                table.pop((record.key or b"").decode(), None)
                if record.value is not None:
                    table[(record.key or b"").decode()] = record.value.decode()
    return table


def write_table(log: Log) -> None:
    """Append keys of every kind of batch the cleaner treats differently."""
    epoch = max(log.latest_epoch, 0)
    sequence = 0
    for number in range(60):
        pairs = [(f"k{(number * 7 + i) % 40}", f"{number}.{i}") for i in range(4)]
        if number % 11 == 0:
            pairs.append((f"dead{number}", None))
        records = [
            Record(timestamp=NOW + i, key=k.encode(), value=None if v is None else v.encode())
            for i, (k, v) in enumerate(pairs)
        ]
        transactional = number % 4 == 0
        header = {}
        if number % 2 == 0:
            producer_id = 4000 if transactional else 5000 + number
            header = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence if transactional else 0,
                "is_transactional": transactional,
            }
            sequence += len(records) if transactional else 0
        batch = build_batch(records, codec=number % 5, **header)
        log.append_as_leader(memoryview(bytearray(batch)), epoch, NOW)
        if transactional:
            marker = build_control_batch(
                ABORT if number % 8 == 0 else COMMIT,
                producer_id=4000,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=NOW,
            )
            log.append_as_leader(memoryview(bytearray(marker)), epoch, NOW, origin=COORDINATOR)
    log.roll()
    last = build_batch([Record(timestamp=NOW, key=b"last", value=b"of all")])
    log.append_as_leader(memoryview(bytearray(last)), epoch, NOW)


def dump(kafka_tools, folder: Path, *suffixes: str) -> str:
    files = sorted(str(p) for p in folder.iterdir() if p.suffix in suffixes)
    assert files
    out = kafka_tools.run(DUMP, "--deep-iteration", "--files", ",".join(files))
    for complaint in ("ismatch", "isvalid: false", "Found timestamp", "out of order", "xception"):
        assert complaint not in out, out
    return out


def cleaner_offset(folder: Path) -> int:
    path = folder / checkpoints.CLEANER_OFFSETS
    if not path.exists():
        return -1
    return checkpoints.decode_offsets(path.read_bytes()).get(TP, -1)


@pytest.fixture
def kafka(tmp_path, kafka_tools):
    from kafka39 import Kafka39Cluster

    with Kafka39Cluster(
        tmp_path / "kafka",
        heap_mb=300,
        session_timeout_ms=2000,
        log_cleaner_backoff_ms="100",
        log_cleaner_dedupe_buffer_size="2000000",
    ) as cluster:
        yield cluster


@pytest.mark.slow
def test_kafka_reads_what_we_cleaned_and_cleans_on(kafka, kafka_tools):
    """Kafka's dump tool and broker take our cleaned files; then its cleaner and ours in turn."""
    more = [x for k, v in TOPIC_CONFIGS.items() for x in ("--config", f"{k}={v}")]
    kafka_tools.run(
        kafka_tools.TOPICS, "--bootstrap-server", kafka.bootstrap, "--create",
        "--topic", TP.topic, *more,
    )  # fmt: skip
    assert kafka.terminate(0) in (0, 128 + signal.SIGTERM)

    manager, cleaner = open_folder(kafka.data(0))
    log = manager.get(TP)
    assert log is not None
    write_table(log)
    log.set_high_watermark(log.log_end_offset)
    log.flush()
    table, size = table_of(log), log.size
    assert asyncio.run(cleaner.clean_filthiest())
    assert table_of(log) == table
    assert log.size < size / 2
    manager.shutdown()
    folder = kafka.data(0) / str(TP)
    text = dump(kafka_tools, folder, ".log")
    assert "deleteHorizonMs: OptionalLong[" in text
    assert "compresscodec: zstd" in text
    dump(kafka_tools, folder, ".index")
    dump(kafka_tools, folder, ".timeindex")
    cleaned = cleaner_offset(kafka.data(0))
    assert cleaned == log.active_base_offset

    kafka.start_broker(0)
    lines = "".join(f"k{n % 30}\tkafka {n}\n" for n in range(300))
    kafka_tools.run(
        kafka_tools.CONSOLE_PRODUCER, "--bootstrap-server", kafka.bootstrap, "--topic", TP.topic,
        "--property", "parse.key=true", "--producer-property", "batch.size=400", stdin=lines,
    )  # fmt: skip
    table |= {f"k{n % 30}": f"kafka {n}" for n in range(300)}
    until(lambda: cleaner_offset(kafka.data(0)) > cleaned, "Kafka's cleaner goes on from ours")
    told = kafka.log(0).read_text()
    assert "ERROR" not in told, told
    assert kafka.terminate(0) in (0, 128 + signal.SIGTERM)

    manager, cleaner = open_folder(kafka.data(0))
    log = manager.get(TP)
    assert log is not None
    assert log.cleaned_offset > cleaned
    assert table_of(log) == table
    log.roll()
    log.set_high_watermark(log.log_end_offset)
    log.flush()
    assert asyncio.run(cleaner.clean_filthiest())
    assert table_of(log) == table
    manager.shutdown()


# Processes of ours ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from cluster import OttlaCluster

    with OttlaCluster(
        tmp_path_factory.mktemp("compaction"),
        brokers=1,
        session_timeout_ms=4000,
        log_cleaner_backoff_ms="200",
        log_retention_check_interval_ms="500",
        log_segment_delete_delay_ms="500",
        offsets_topic_num_partitions="1",
        offsets_topic_segment_bytes="60000",
        offsets_topic_replication_factor="1",
        group_initial_rebalance_delay_ms="0",
    ) as running:
        yield running


def bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # replaced by the cleaner just now
            total += path.stat().st_size
    return total


def test_a_topic_of_many_updates_shrinks_to_its_keys(cluster):
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"updates-{uuid.uuid4().hex[:6]}"
    config = {"cleanup.policy": "compact", "segment.bytes": "1000000"}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 200000,
        }
    )
    updates, keys = 100_000, 1000
    for n in range(updates):
        producer.produce(name, b"%060d" % n, key=b"key-%d" % (n % keys))
    assert producer.flush(60) == 0
    folder = cluster.data(0) / f"{name}-0"
    full = updates * 70
    until(lambda: bytes_in(folder) < full / 3, f"{bytes_in(folder)} bytes of {full} are left")
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([name])
    table, seen, last = {}, 0, -1
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            break
        assert message.offset() > last
        last = message.offset()
        table[message.key()] = int(message.value())
        seen += 1
    consumer.close()
    assert table == {b"key-%d" % (n % keys): n for n in range(updates - keys, updates)}
    assert seen < updates / 2
    assert last == updates - 1


def test_committed_offsets_stay_bounded_and_outlive_a_kill(cluster):
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"read-{uuid.uuid4().hex[:6]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": name, "enable.auto.commit": False}
    )
    commits = 4000
    for n in range(1, commits + 1):
        consumer.commit(offsets=[TopicPartition(name, 0, n)], asynchronous=n % 200 != 0)
    folder = cluster.data(0) / "__consumer_offsets-0"

    cleaned = cluster.data(0) / checkpoints.CLEANER_OFFSETS

    def is_small() -> bool:
        noted = cleaned.exists() and "__consumer_offsets 0 " in cleaned.read_text()
        return noted and bytes_in(folder) < 150_000

    until(is_small, f"{bytes_in(folder)} bytes of offsets")
    cluster.processes[0].kill()
    cluster.processes[0].wait(10)
    cluster.start_broker(0)
    [found] = consumer.committed([TopicPartition(name, 0)], timeout=30)
    assert found.offset == commits
    consumer.close()
