"""How fast the replicas job reads: three equal replicas, two cores, and one flipped bit to find.

    PYTHONPATH=src:tests python benchmarks/replicas.py [--megabytes 3000] [--batch-bytes 15000 …]
For each size of batches: megabytes per second by the clock and per second of processor time (of
Spark and all its workers, without the session's start), and the largest resident set of a worker.
The files are in the page cache. Goal: 200 MB/s on two cores.
"""

import argparse
import os
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

from processor_time import Watch

from ottla.log import checkpoints
from ottla.pipelines.replica_files.job import compare
from ottla.pipelines.replicas import WORK
from ottla.pipelines.segments.folders import Place
from ottla.pipelines.session import Wanted, start_session
from ottla.wire.records import Record, build_batch
from support import planted
from support.batches import patch_leader_fields

BROKERS = range(3)
PARTITIONS = 4
SEGMENT_BYTES = 128 << 20
RECORD_BYTES = 100
GOAL = 200


def write_partition(root: Path, partition: int, megabytes: int, batch_bytes: int) -> int:
    """Write the same log for each broker; return its end offset."""
    count = max(1, batch_bytes // (RECORD_BYTES + 12))
    values = [os.urandom(RECORD_BYTES) for _ in range(count)]
    batch = bytearray(build_batch([Record(timestamp=1, value=v) for v in values]))
    folders = [root / str(b) / f"t-{partition}" for b in BROKERS]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / checkpoints.LEADER_EPOCHS).write_bytes(checkpoints.encode_epochs([(1, 0)]))
    offset = 0
    left = megabytes * 1_000_000
    while left > 0:
        first = offset
        parts = []
        for _ in range(min(SEGMENT_BYTES, left) // len(batch) + 1):
            patch_leader_fields(memoryview(batch), 0, offset, 1)
            parts.append(bytes(batch))
            offset += count
        left -= len(parts) * len(batch)
        for folder in folders:
            planted.write(folder / f"{first:020}.log", parts)
    return offset


def make(root: Path, megabytes: int, batch_bytes: int) -> None:
    each = megabytes // PARTITIONS // len(BROKERS)
    ends = {f"t-{p}": write_partition(root, p, each, batch_bytes) for p in range(PARTITIONS)}
    for broker in BROKERS:
        planted.marks(root / str(broker), checkpoints.HIGH_WATERMARKS, ends)


def run(spark: Any, folder: str, megabytes: int, batch_bytes: int) -> str:
    """Write files, flip one bit, compare; return what it took."""
    root = Path(folder)
    make(root, megabytes, batch_bytes)
    flipped = planted.flip(planted.segments(root / "1" / "t-2")[-1], 3)
    places = [Place(b, str(root / str(b))) for b in BROKERS]
    load = os.getloadavg()[0]
    watch, begun = Watch(os.getpid()), time.monotonic()
    report = compare(spark, places)
    seconds, used = time.monotonic() - begun, watch.end()
    assert {(f.broker, f.partition, f.offset) for f in report.wrong} == {(1, 2, flipped)}
    read = report.bytes / 1e6
    return (
        f"{read:,.0f} MB, {report.files} files, {report.batches:,} batches in {seconds:.1f} s: "
        f"{read / seconds:,.0f} MB/s (goal {GOAL}), {read / used.seconds:,.0f} MB per second of "
        f"processor time (Java {used.java:.1f} s, workers {used.workers:.1f} s, driver "
        f"{used.driver:.1f} s), largest worker {used.largest_worker / 1e6:,.0f} MB; load {load:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--megabytes", type=int, nargs="+", default=[3000], help="of all replicas together"
    )
    parser.add_argument("--batch-bytes", type=int, nargs="+", default=[15_000, 1_000])
    wanted = parser.parse_args()
    spark = start_session("benchmark", Wanted("local[2]"), work=WORK)
    try:
        with tempfile.TemporaryDirectory() as folder:
            print(f"first run, 60 MB, Java and workers cold: {run(spark, folder, 60, 15_000)}")
        for batch_bytes, megabytes in product(wanted.batch_bytes, wanted.megabytes):
            with tempfile.TemporaryDirectory() as folder:
                told = run(spark, folder, megabytes, batch_bytes)
            print(f"batches of {batch_bytes:,} bytes: {told}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
