"""Our files under Kafka's eyes: its dump tool reads them, its broker and we share one folder."""

import signal
import time
from pathlib import Path

import pytest

from ottla.log import gap_bound, transactions
from ottla.log.checkpoints import decode_meta_properties
from ottla.log.files import OsFiles
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.recovery import UNCLEAN_MARK
from ottla.log.validate import COORDINATOR
from ottla.model.config import default_topic_config
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import World
from ottla.wire.records import ABORT, COMMIT, Record, iter_records
from support.logs import (
    SystemClock,
    batches_of,
    file_world,
    folder_config,
    framed,
    load_logs,
    marker,
    open_log,
    stop_logs,
    write_high_watermarks,
)
from support.seen import Znodes
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

TP = TopicPartition("shared", 0)
SESSION_MS = 6000
"""One that a busy machine does not end; the kill waits for it."""
NOW = int(time.time() * 1000)


def world() -> World:
    return file_world(SystemClock(), OsFiles())


def batch(values, at=NOW, **header) -> memoryview:
    records = [
        Record(timestamp=at + i, key=b"k%d" % i, value=value.encode())
        for i, value in enumerate(values)
    ]
    return framed(records, **header)


def test_kafkas_dump_tool_reads_every_file(tmp_path, kafka_tools):
    folder = tmp_path / "t-0"
    folder.mkdir()
    config = default_topic_config(segment_bytes="3000", index_interval_bytes="200")
    log = open_log(TopicPartition("t", 0), str(folder), config, world())
    for number in range(30):
        values = [f"v{number}.{i}" for i in range(3)]
        log.append_as_leader(batch(values, NOW + 10 * number, codec=number % 5), number // 10, 0)
    for sequence in range(4):
        data = batch(
            ["x"], producer_id=9, producer_epoch=0, base_sequence=sequence, is_transactional=True
        )
        log.append_as_leader(data, 3, 0)
    log.append_as_leader(marker(ABORT, 9, NOW), 3, 0, origin=COORDINATOR)
    end = log.log_end_offset
    log.close()
    text = kafka_tools.dump_log(folder, ".log")
    assert text.count("| offset: ") == end
    assert "compresscodec: zstd" in text
    assert "endTxnMarker: ABORT coordinatorEpoch: 0" in text
    assert "offset: " in kafka_tools.dump_log(folder, ".index")
    assert "timestamp: " in kafka_tools.dump_log(folder, ".timeindex")
    snapshots = kafka_tools.dump_log(folder, ".snapshot")
    assert "producerId: 9 producerEpoch: 0" in snapshots
    assert "lastSequence: 3" in snapshots
    assert "producerId: 9 firstOffset: 90 lastOffset: 94" in kafka_tools.dump_log(
        folder, ".txnindex"
    )


@pytest.fixture
def kafka(tmp_path, kafka_tools):
    from support.kafka39 import Kafka39Cluster

    with Kafka39Cluster(tmp_path / "kafka", heap_mb=300, session_timeout_ms=SESSION_MS) as cluster:
        yield cluster


def manager_of(kafka) -> LogManager:
    config = folder_config(
        kafka.data(0), broker_id=0, log_segment_bytes=2000, log_index_interval_bytes=100,
        log_cleanup_policy="compact",  # so that there is a gap bound; nothing cleans
    )  # fmt: skip
    manager = LogManager(world(), config)
    load_logs(manager, lambda _: config.topic_config({}))
    return manager


def values_of(log: Log) -> list[str]:
    return [
        (record.value or b"").decode()
        for data, at, header in batches_of(log)
        if not header.is_control
        for record in iter_records(data, at)
    ]


def produce(kafka_tools, kafka, values) -> None:
    kafka_tools.run(
        kafka_tools.CONSOLE_PRODUCER, "--bootstrap-server", kafka.bootstrap, "--topic", TP.topic,
        stdin="".join(f"{v}\n" for v in values),
    )  # fmt: skip


def consume(kafka_tools, kafka, count, *more) -> list[str]:
    out = kafka_tools.run(
        kafka_tools.CONSOLE_CONSUMER, "--bootstrap-server", kafka.bootstrap, "--topic", TP.topic,
        "--partition", "0", "--offset", "earliest", "--max-messages", str(count),
        "--timeout-ms", "20000", *more,
    )  # fmt: skip
    return out.splitlines()[:count]


@pytest.mark.slow
@pytest.mark.processes
def test_one_folder_opened_by_kafka_and_by_us_in_turn(kafka, kafka_tools):
    """Clean stops and kill -9 on both sides; no record lost, none doubled."""
    kafka_tools.run(
        kafka_tools.TOPICS, "--bootstrap-server", kafka.bootstrap, "--create", "--topic", TP.topic,
        "--config", "segment.bytes=2000", "--config", "index.interval.bytes=100",
    )  # fmt: skip
    want = [f"kafka {n}" for n in range(100)]
    produce(kafka_tools, kafka, want)
    assert kafka.terminate(0) in (0, 128 + signal.SIGTERM)

    manager = manager_of(kafka)  # after Kafka's clean stop
    assert manager.recovered_logs == 0
    log = manager.get(TP)
    assert log is not None
    assert values_of(log) == want
    assert log.topic_id != ZERO_UUID
    assert log.high_watermark == log.log_end_offset
    epoch = log.epochs.latest
    for number in range(20):
        more = [f"ottla {number}.{i}" for i in range(5)]
        log.append_as_leader(batch(more, codec=number % 5), epoch, 0)
        want += more
    for sequence, kind in enumerate((COMMIT, ABORT)):
        header = {"producer_id": 4000, "producer_epoch": 0, "base_sequence": sequence}
        value = f"transaction {sequence}"
        log.append_as_leader(batch([value], is_transactional=True, **header), epoch, 0)
        log.append_as_leader(marker(kind, 4000, NOW), epoch, 0, origin=COORDINATOR)
        want.append(value)
    end = log.log_end_offset
    log.set_high_watermark(end - 1)  # the last marker is written down as not replicated yet
    manager.unclean.add(TP)  # its folder is marked then (R18)
    stop_logs(manager)
    marks = [Path(log.dir) / UNCLEAN_MARK, Path(log.dir) / transactions.UNREPLICATED_FILE]
    assert all(mark.exists() for mark in marks)
    bound = Path(log.dir) / gap_bound.NAME
    assert bound.exists()

    kafka.start_broker(0)  # after our clean stop
    told = kafka.log(0).read_text()
    assert "ERROR" not in told, told
    assert all(mark.exists() for mark in marks)
    assert not bound.exists(), "Kafka writes segments that begin behind gaps"
    assert consume(kafka_tools, kafka, len(want)) == want
    committed = [v for v in want if v != "transaction 1"]
    assert (
        consume(kafka_tools, kafka, len(committed), "--isolation-level", "read_committed")
        == committed
    )
    out = kafka_tools.run(
        kafka_tools.GET_OFFSETS, "--bootstrap-server", kafka.bootstrap, "--topic", TP.topic
    )
    assert f"{TP.topic}:0:{end}" in out
    produce(kafka_tools, kafka, ["after"])
    want.append("after")
    kafka.kill(0)

    manager = manager_of(kafka)  # after kill -9 of Kafka
    assert manager.recovered_logs > 0
    log = manager.get(TP)
    assert log is not None
    assert values_of(log) == want
    assert [a.first_offset for a in log.aborted_transactions(0, end)] == [end - 2]
    log.append_as_leader(batch(["last"]), log.epochs.latest, 0)
    want.append("last")
    log.set_high_watermark(log.log_end_offset)
    write_high_watermarks(manager)
    log.flush()
    assert bound.exists()
    manager.abandon()  # as kill -9 of ours

    with Znodes(kafka.zookeeper) as znodes:  # a killed broker's lives as long as its session
        until(lambda: not znodes.brokers(), 30, "the broker is forgotten")
    kafka.start_broker(0)
    assert not bound.exists(), "nor does it outlive a start of Kafka after a crash"
    assert consume(kafka_tools, kafka, len(want)) == want


@pytest.mark.slow
@pytest.mark.processes
def test_meta_properties_that_kafka_completes_we_complete(kafka):
    kafka.terminate(0)
    path = kafka.data(0) / "meta.properties"
    whole = path.read_bytes()
    cluster = next(line for line in whole.splitlines() if line.startswith(b"cluster.id="))
    meta = decode_meta_properties(whole)
    for data in (b"", b"version=0\n" + cluster + b"\n", b"broker.id=0\r\nmine=1\r\n"):
        path.write_bytes(data)
        kafka.start_broker(0)
        kafka.terminate(0)
        assert decode_meta_properties(path.read_bytes()) == meta, data
        path.write_bytes(data)
        manager = manager_of(kafka)
        manager.write_meta(meta)
        stop_logs(manager)
        assert decode_meta_properties(path.read_bytes()) == meta, data
