"""Compaction on real processes, and cleaned files under Kafka's eyes."""

import asyncio
import contextlib
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.log import checkpoints
from ottla.log.cleaner import LogCleaner
from ottla.log.files import OsFiles
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.validate import COORDINATOR
from ottla.model import ids
from ottla.wire.records import ABORT, COMMIT, Record
from support.clients import admin_client, create_topic, named
from support.logs import (
    SystemClock,
    file_world,
    folder_config,
    framed,
    load_logs,
    marker,
    stop_logs,
    table_of,
)
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(300)]

TP = ids.TopicPartition("table", 0)
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "3000",
    "index.interval.bytes": "200",
    "min.cleanable.dirty.ratio": "0.01",
}
NOW = int(time.time() * 1000)


# One folder, two brokers ---------------------------------------------------------------------


def open_folder(folder: Path) -> tuple[LogManager, LogCleaner]:
    config, world = folder_config(folder, broker_id=0), file_world(SystemClock(), OsFiles())
    manager = LogManager(world, config)
    load_logs(manager, lambda name: config.topic_config(TOPIC_CONFIGS if name == TP.topic else {}))
    return manager, LogCleaner(world, config, manager)


def write_table(log: Log) -> None:
    """Append keys of every kind of batch the cleaner treats differently."""
    epoch = max(log.epochs.latest, 0)
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
        log.append_as_leader(framed(records, codec=number % 5, **header), epoch, NOW)
        if transactional:
            end = marker(ABORT if number % 8 == 0 else COMMIT, 4000, NOW)
            log.append_as_leader(end, epoch, NOW, origin=COORDINATOR)
    log.roll()
    last = framed([Record(timestamp=NOW, key=b"last", value=b"of all")])
    log.append_as_leader(last, epoch, NOW)


def cleaner_offset(folder: Path) -> int:
    path = folder / checkpoints.CLEANER_OFFSETS
    if not path.exists():
        return -1
    return checkpoints.decode_offsets(path.read_bytes()).get(TP, -1)


@pytest.fixture
def kafka(tmp_path, kafka_tools):
    from support.kafka39 import Kafka39Cluster

    with Kafka39Cluster(
        tmp_path / "kafka",
        heap_mb=300,
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
    assert asyncio.run(cleaner.clean_dirtiest())
    assert table_of(log) == table
    assert log.size < size / 2
    stop_logs(manager)
    folder = kafka.data(0) / str(TP)
    text = kafka_tools.dump_log(folder, ".log")
    assert "deleteHorizonMs: OptionalLong[" in text
    assert "compresscodec: zstd" in text
    kafka_tools.dump_log(folder, ".index")
    kafka_tools.dump_log(folder, ".timeindex")
    cleaned = cleaner_offset(kafka.data(0))
    assert cleaned == log.local.active.base_offset

    kafka.start_broker(0)
    lines = "".join(f"k{n % 30}\tkafka {n}\n" for n in range(300))
    kafka_tools.run(
        kafka_tools.CONSOLE_PRODUCER, "--bootstrap-server", kafka.bootstrap, "--topic", TP.topic,
        "--property", "parse.key=true", "--producer-property", "batch.size=400", stdin=lines,
    )  # fmt: skip
    table |= {b"k%d" % (n % 30): b"kafka %d" % n for n in range(300)}
    until(lambda: cleaner_offset(kafka.data(0)) > cleaned, 90, "Kafka's cleaner goes on from ours")
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
    assert asyncio.run(cleaner.clean_dirtiest())
    assert table_of(log) == table
    stop_logs(manager)


# Processes of ours ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from support.cluster import OttlaCluster

    with OttlaCluster(
        tmp_path_factory.mktemp("compaction"),
        brokers=1,
        session_timeout_ms=10_000,  # the cleaner takes a whole core
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
    admin = admin_client(cluster.bootstrap)
    name = create_topic(admin, 1, 1, cleanup_policy="compact", segment_bytes="1000000")
    settings = {
        "enable_idempotence": True,
        "linger_ms": 20,
        "queue_buffering_max_messages": 200_000,
    }
    producer = Producer(named(cluster.bootstrap, settings))
    updates, keys = 100_000, 1000
    for n in range(updates):
        producer.produce(name, b"%060d" % n, key=b"key-%d" % (n % keys))
    assert producer.flush(60) == 0
    folder = cluster.data(0) / f"{name}-0"
    full = updates * 70
    until(lambda: bytes_in(folder) < full / 3, 60, lambda: f"{bytes_in(folder)} B left of {full}")
    settings = {"group_id": name, "auto_offset_reset": "earliest", "enable_partition_eof": True}
    consumer = Consumer(named(cluster.bootstrap, settings))
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
    name = create_topic(admin_client(cluster.bootstrap), 1, 1)
    settings = {"group_id": name, "enable_auto_commit": False}
    consumer = Consumer(named(cluster.bootstrap, settings))
    commits = 4000
    for n in range(1, commits + 1):
        consumer.commit(offsets=[TopicPartition(name, 0, n)], asynchronous=n % 200 != 0)
    folder = cluster.data(0) / "__consumer_offsets-0"

    cleaned = cluster.data(0) / checkpoints.CLEANER_OFFSETS

    def is_small() -> bool:
        noted = cleaned.exists() and "__consumer_offsets 0 " in cleaned.read_text()
        return noted and bytes_in(folder) < 150_000

    until(is_small, 60, lambda: f"{bytes_in(folder)} bytes of offsets")
    cluster.kill(0)
    cluster.start_broker(0)
    [found] = consumer.committed([TopicPartition(name, 0)], timeout=60)
    assert found.offset == commits
    consumer.close()
