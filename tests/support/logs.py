"""What tests of logs share: a world of files and a clock, and what a reader makes of a log."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from ottla.log.log import Log, TimestampOffset
from ottla.log.manager import LogManager
from ottla.log.recovery import Known
from ottla.log.tail import TailBudget
from ottla.log.time_search import Search, find_by_timestamp, find_max_timestamp
from ottla.model.config import BrokerConfig, TopicConfig
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.model.steps import Driven, drain
from ottla.wire.batch_header import BatchHeader
from ottla.wire.records import (
    Record,
    build_batch,
    build_control_batch,
    crc_ok,
    iter_batches,
    iter_records,
)


class HandClock:
    """Time stands still until a test moves it."""

    slice_s = 0.008

    def __init__(self, wall_ms: int = 1_000_000) -> None:
        self.now_ms = 0.0
        self._start_ms = wall_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        return self._start_ms + int(self.now_ms)


class SystemClock:
    """Time as it is."""

    slice_s = 0.008

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return int(time.time() * 1000)


class Inline:
    """Workers that work at once."""

    async def run(self, function: Any, *args: Any) -> Any:
        return function(*args)


def file_world(clock: Any, files: Any, rng: random.Random | None = None) -> World:
    """Return a world without a network."""
    return World(clock, rng or random.Random(1), files, None, Inline())  # type: ignore[arg-type]


def folder_config(folder: object, **settings: object) -> BrokerConfig:
    """Return a broker's settings with its logs in this folder; _ stands for the dots of names."""
    dotted = {k.replace("_", "."): str(v) for k, v in settings.items()}
    return BrokerConfig(
        {"zookeeper.connect": "unused:1", "broker.id": "1", "log.dirs": str(folder), **dotted}
    )


def framed(records: list[Record], **header: Any) -> memoryview:
    """Return a batch in a buffer of its own, as a frame's is."""
    return memoryview(bytearray(build_batch(records, **header)))


def marker(kind: int, producer_id: int, timestamp: int, **header: Any) -> memoryview:
    """Return a transaction's marker in a buffer of its own."""
    facts = {"producer_epoch": 0, "coordinator_epoch": 0, **header}
    batch = build_control_batch(kind, producer_id=producer_id, timestamp=timestamp, **facts)
    return memoryview(bytearray(batch))


def open_log(
    tp: TopicPartition, folder: str, config: TopicConfig, world: World, known: Known | None = None
) -> Log:
    """Load the log of an existing folder."""
    return drain(Log.opening(tp, folder, config, world, known or Known(), TailBudget()))


def load_logs(manager: LogManager, topic_configs: Callable[[str], TopicConfig]) -> None:
    """Load all logs of a manager, as a broker's start does."""
    drain(manager.loading(topic_configs))


def stop_logs(manager: LogManager) -> None:
    """Flush and close all logs of a manager, as a broker's stop does."""
    asyncio.run(manager.shutdown(Inline()))


def write_high_watermarks(manager: LogManager) -> None:
    asyncio.run(manager.write_high_watermarks(Inline()))


def write_recovery_points(manager: LogManager) -> None:
    asyncio.run(manager.write_recovery_points(Inline()))


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """Return the first record with a timestamp of at least `timestamp`, None if there is none."""
    return _run_now(find_by_timestamp(log, timestamp))


def max_timestamp_offset(log: Log) -> TimestampOffset | None:
    """Return the first record with the largest timestamp, None if there is none."""
    return _run_now(find_max_timestamp(log))


def _run_now(search: Search) -> TimestampOffset | None:
    driven = Driven(search)
    for job in driven:
        job()
    return driven.result


def batches_of(log: Log) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Read a log from its start to its end: what was read, a batch's place in it, its header."""
    log.local.tail.clear()  # the files are to be read, not what was appended last
    offset, last = log.log_start_offset, -1
    while offset < log.log_end_offset:
        data = b"".join(log.read(offset, 1 << 20, log.log_end_offset).parts)
        assert data, f"nothing at {offset} of {log}"
        for at, header in iter_batches(data):
            assert crc_ok(data, at, header)
            assert header.base_offset > last, "offsets rise"
            last, offset = header.last_offset, header.next_offset
            yield data, at, header


def table_of(log: Log) -> dict[bytes, bytes]:
    """Return what a read_committed consumer knows once it has read all: each key's last value."""
    aborted = log.aborted_transactions(0, log.log_end_offset)
    known: dict[bytes, bytes] = {}
    for data, at, header in batches_of(log):
        gone = header.is_transactional and any(
            a.producer_id == header.producer_id
            and a.first_offset <= header.base_offset <= a.last_offset
            for a in aborted
        )
        if header.is_control or gone:
            continue
        for record in iter_records(data, at):
            assert record.key is not None
            known.pop(record.key, None)
            if record.value is not None:
                known[record.key] = record.value
    return known


def facts_of(log: Log) -> dict[str, Any]:
    """Return all that a log is to those who read it and write to it."""
    start, end = log.log_start_offset, log.log_end_offset
    return {
        "records": [
            (record.offset, header.partition_leader_epoch, record.timestamp, record.value)
            for data, at, header in batches_of(log)
            for record in iter_records(data, at)
            if record.offset >= start
        ],
        "epochs": log.epochs.entries,
        "range": (start, end),
        "aborted": log.aborted_transactions(start, end),
        "producers": {
            p.id: (p.epoch, p.last_sequence, p.txn_first, p.coordinator_epoch)
            for p in log.producers.producers.values()
        },
        "topic id": log.topic_id,
    }
