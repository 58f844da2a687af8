"""What the log costs: append, read, recover, start and stop with many partitions.

    python benchmarks/bench_log.py [--quick]

Prints one line per figure: best of several rounds, so that a busy machine hurts less.
"""

import argparse
import asyncio
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ottla.log.checkpoints import MetaProperties
from ottla.log.files import OsFiles
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.model.config import BrokerConfig, default_topic_config
from ottla.model.ids import TopicPartition
from ottla.model.ports import World
from ottla.wire.records import Record, build_batch


class Clock:
    slice_s = 0.008

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return int(time.time() * 1000)


class Threads:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(4)

    async def run(self, function, *args):
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)


SMALL_BATCHES = 300_000


def world() -> World:
    return World(Clock(), random.Random(1), OsFiles(), None, Threads())  # type: ignore[arg-type]


def batch(count: int, size: int = 100, **header) -> bytes:
    now = int(time.time() * 1000)
    records = [Record(timestamp=now, value=bytes(size)) for _ in range(count)]
    return build_batch(records, **header)


def best(rounds: int, count: int, prepare: Callable[[], object], run: Callable) -> float:
    """Return the best time per item in microseconds."""
    times = []
    for _ in range(rounds):
        items = prepare()
        started = time.perf_counter()
        run(items)
        times.append(time.perf_counter() - started)
    return min(times) / count * 1e6


def open_log(folder: str, **settings: str) -> Log:
    Path(folder).mkdir(exist_ok=True)
    config = default_topic_config(**settings)
    return Log.open(TopicPartition("bench", 0), folder, config, world(), clean=True)


def appends(folder: str, rounds: int) -> None:
    for records in (1, 10, 150, 600):
        log = open_log(f"{folder}/append-{records}")
        data = batch(records)
        count = max(50, 4000 // records)

        def fresh(data=data, count=count) -> list[memoryview]:
            return [memoryview(bytearray(data)) for _ in range(count)]

        def run(items, log=log) -> None:
            append = log.append_as_leader
            for item in items:
                append(item, 0, 0)

        cost = best(rounds, count, fresh, run)
        print(f"append, {records:4} records, {len(data):6} bytes   {cost:8.2f} us")
    log = open_log(f"{folder}/append-idempotent")
    start = [0]

    def sequences() -> list[memoryview]:
        start[0] += 2000
        return [
            memoryview(
                bytearray(batch(1, producer_id=1, producer_epoch=0, base_sequence=start[0] + i))
            )
            for i in range(2000)
        ]

    def run_idempotent(items) -> None:
        for item in items:
            log.append_as_leader(item, 0, 0)

    cost = best(rounds, 2000, sequences, run_idempotent)
    print(f"append, one record, idempotent        {cost:8.2f} us")
    follower = open_log(f"{folder}/append-follower")

    def fetched() -> list[memoryview]:
        base = follower.log_end_offset
        return [
            memoryview(bytearray(batch(10, base_offset=base + 10 * i, leader_epoch=0)))
            for i in range(500)
        ]

    def run_follower(items) -> None:
        for item in items:
            follower.append_as_follower(item)

    cost = best(rounds, 500, fetched, run_follower)
    print(f"append as follower, 10 records        {cost:8.2f} us")


def reads(folder: str, rounds: int) -> None:
    log = open_log(f"{folder}/read", segment_bytes=str(256 << 20))
    data = batch(150)
    for _ in range(4000):
        log.append_as_leader(memoryview(bytearray(data)), 0, 0)
    end = log.log_end_offset

    def run(offsets) -> None:
        for offset in offsets:
            log.read(offset, 1 << 20, end)

    cost = best(rounds, 2000, lambda: [end - 150] * 2000, run)
    print(f"hot read, last batch                  {cost:8.2f} us")
    cost = best(rounds, 2000, lambda: [end - 150 * 60] * 2000, run)
    print(f"hot read, 60 batches of 16 KiB        {cost:8.2f} us")
    cost = best(rounds, 30, lambda: [150 * 64 * i for i in range(30)], run)
    print(f"cold read, 1 MiB in the page cache    {cost:8.2f} us")
    size = log.size
    log.abandon()
    started = time.perf_counter()
    log = Log.open(log.tp, log.dir, log.config, world())
    took = time.perf_counter() - started
    print(f"unclean recovery, 16 KiB batches      {took * (1 << 30) / size:8.2f} s/GiB")
    for what, fields in (("one record", {}), ("idempotent", {"producer_id": 7})):
        log = open_log(f"{folder}/recover-{what}")
        one = bytes(batch(1, producer_epoch=0, base_sequence=0, **fields))
        log.abandon()
        with Path(log.dir, f"{0:020d}.log").open("wb") as file:
            file.writelines(offset.to_bytes(8, "big") + one[8:] for offset in range(SMALL_BATCHES))
        started = time.process_time()
        log = Log.open(log.tp, log.dir, log.config, world())
        took = time.process_time() - started
        assert log.log_end_offset == SMALL_BATCHES
        print(f"unclean recovery, {what:20}{took / SMALL_BATCHES * 1e6:8.2f} us per batch")


def many(folder: str, count: int) -> None:
    properties = {"zookeeper.connect": "x:1", "broker.id": "1", "log.dirs": f"{folder}/many"}
    config = BrokerConfig(properties)
    topic = config.topic_config({})

    def timed(what: str, run: Callable[[], object]) -> None:
        started = time.perf_counter()
        run()
        print(f"{what:37} {time.perf_counter() - started:8.2f} s")

    def started_manager() -> LogManager:
        manager = LogManager(world(), config)
        manager.startup(lambda _: topic)
        return manager

    manager = started_manager()
    manager.write_meta(MetaProperties("bench", 1))
    tps = [TopicPartition("many", i) for i in range(count)]
    topic_id = bytes(range(16))
    timed(
        f"create {count} logs",
        lambda: [manager.get_or_create(tp, topic_id, is_new=True) for tp in tps],
    )
    data = batch(1)
    timed(
        f"first append to {count} logs",
        lambda: [log.append_as_leader(memoryview(bytearray(data)), 0, 0) for log in manager.logs()],
    )
    timed(f"clean stop of {count} logs", lambda: asyncio.run(stop(manager)))
    managers = []
    timed(f"clean start of {count} logs", lambda: managers.append(started_manager()))
    managers[0].abandon()
    timed(f"unclean start of {count} logs", lambda: managers.append(started_manager()))
    timed(f"stop of {count} untouched logs", lambda: asyncio.run(stop(managers[1])))


async def stop(manager: LogManager) -> None:
    await manager.shutdown_with(Threads())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and partitions")
    quick = parser.parse_args().quick
    print(f"load average {os.getloadavg()[0]:.1f}")
    folder = tempfile.mkdtemp(prefix="bench-log-")
    try:
        appends(folder, 3 if quick else 9)
        reads(folder, 3 if quick else 9)
        many(folder, 300 if quick else 2000)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
