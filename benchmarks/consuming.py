"""Consuming side by side: hot and cold, one consumer and three, plain and compressed.

Who may call: `quick.py`, on a cluster of three brokers. Kafka's ConsumerPerformance reads topics of
three partitions (RF 1, one on each broker) that ProducerPerformance has just filled, one consumer
alone or three at once, each in a group of its own and each reading all. *Hot*: the records are in
the page cache. *Cold*: they are durable and the kernel was told to forget their pages. All three
brokers' CPU seconds (user and system) are counted per GB of records that consumers got.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import perf_tools

PLAIN_RECORDS = 3_000_000
ZSTD_RECORDS = 2_000_000
RECORD_BYTES = 100
PARTITIONS = 3
PLAIN, ZSTD = "consume-plain", "consume-zstd"


class Cluster(Protocol):
    """What is needed of a system under test."""

    bootstrap: str

    @property
    def pids(self) -> list[int]: ...


def measure(
    system: Cluster, folder: Path, create_topic: Callable[[str, str, int, int], None]
) -> dict[str, float]:
    """Return records per second and CPU seconds per GB by the keys of `quick.SCENARIOS`."""
    for topic, records, codec in ((PLAIN, PLAIN_RECORDS, "none"), (ZSTD, ZSTD_RECORDS, "zstd")):
        create_topic(system.bootstrap, topic, PARTITIONS, 1)
        perf_tools.producer_performance(system.bootstrap, topic, records, "1", codec)
    found: dict[str, float] = {}
    # Warm: what a JVM runs often it compiles, and a consumer's topics have been read before.
    consume(system, ZSTD, ZSTD_RECORDS, 1)
    consume(system, PLAIN, PLAIN_RECORDS, 1)
    found["consume_hot1_rec_s"], one = consume(system, PLAIN, PLAIN_RECORDS, 1)
    found["consume_hot3_rec_s"], three = consume(system, PLAIN, PLAIN_RECORDS, 3)
    found["consume_hot_cpu_s_gb"] = (one + three) / 2
    found["consume_zstd_rec_s"], found["consume_zstd_cpu_s_gb"] = consume(
        system, ZSTD, ZSTD_RECORDS, 1
    )
    forget(folder)
    found["consume_cold1_rec_s"], one = consume(system, PLAIN, PLAIN_RECORDS, 1)
    forget(folder)
    found["consume_cold3_rec_s"], three = consume(system, PLAIN, PLAIN_RECORDS, 3)
    found["consume_cold_cpu_s_gb"] = (one + three) / 2
    return found


def consume(system: Cluster, topic: str, records: int, consumers: int) -> tuple[float, float]:
    """Have `consumers` read all of a topic at once.

    Return records per second of all together, from the first fetch of the first to the last record
    of the last, and the brokers' CPU seconds per GB.
    """
    group = f"{topic}-{time.monotonic_ns()}"
    with ThreadPoolExecutor(consumers) as pool, cpu_of(system.pids) as used:
        runs = [
            pool.submit(
                perf_tools.consumer_performance, system.bootstrap, topic, f"{group}-{n}", records
            )
            for n in range(consumers)
        ]
        done = [run.result() for run in runs]
    got = sum(run.records for run in done)
    seconds = max(run.ended_s for run in done) - min(run.began_s for run in done)
    return got / seconds, used[0] / (got * RECORD_BYTES / 1e9)


@contextlib.contextmanager
def cpu_of(pids: list[int]) -> Iterator[list[float]]:
    """Yield a list; at the end its one item is the CPU seconds that these processes used."""
    used = [0.0]
    before = sum(map(cpu_seconds, pids))
    yield used
    used[0] = sum(map(cpu_seconds, pids)) - before


def cpu_seconds(pid: int) -> float:
    """Return the user and system seconds that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def forget(folder: Path) -> None:
    """Make the segment files durable and drop their pages; brokers keep what they hold in memory.

    That is all that can be dropped without the machine's other pages.
    """
    for path in folder.rglob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
