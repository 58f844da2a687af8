"""How fast the replicas job reads: three equal replicas, two cores, and one flipped bit to find.

    PYTHONPATH=src:tests python benchmarks/replicas.py [--megabytes 3000] [--batch-bytes 15000 1000]
For each size of batches: megabytes per second by the clock and per second of processor time (of
Spark and all its workers, without the session's start), and the largest resident set of a worker.
The files are in the page cache. Goal: 200 MB/s on two cores.
"""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import planted
from batches import patch_leader_fields
from ottla.log import checkpoints
from ottla.pipelines.replica_files.job import compare
from ottla.pipelines.segments.folders import Place
from ottla.pipelines.session import Wanted, start_session
from ottla.wire.records import Record, build_batch

BROKERS = range(3)
PARTITIONS = 4
SEGMENT_BYTES = 128 << 20
RECORD_BYTES = 100
CLOCK_TICK = os.sysconf("SC_CLK_TCK")
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


def below(pid: int) -> dict[int, tuple[float, int]]:
    """Return (seconds of processor time, resident bytes) of a process and all below it."""
    found, children = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        one = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(one)
        found[one] = (int(fields[11]) + int(fields[12])) / CLOCK_TICK, int(fields[21]) * 4096
    wanted, kept = [pid], {}
    while wanted:
        one = wanted.pop()
        kept[one] = found.get(one, (0.0, 0))
        wanted += children.get(one, [])
    return kept


class Watch:
    """Notes processor time and the largest worker while the job runs."""

    def __init__(self) -> None:
        self._start = below(os.getpid())
        self._last: dict[int, float] = {}
        self.largest_worker = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            for pid, (seconds, resident) in below(os.getpid()).items():
                self._last[pid] = seconds
                # Spark's Java process is there before; workers are started for the tasks.
                if pid not in self._start or "worker" in _command(pid):
                    self.largest_worker = max(self.largest_worker, resident)

    def end(self) -> float:
        """Return the seconds of processor time since the start."""
        self._ended.set()
        self._thread.join()
        return sum(s - self._start.get(pid, (0.0, 0))[0] for pid, s in self._last.items())


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def run(spark: Any, folder: str, megabytes: int, batch_bytes: int) -> str:
    """Write files, flip one bit, compare; return what it took."""
    root = Path(folder)
    make(root, megabytes, batch_bytes)
    flipped = planted.flip(planted.segments(root / "1" / "t-2")[-1], 3)
    places = [Place(b, str(root / str(b))) for b in BROKERS]
    load = os.getloadavg()[0]
    watch, begun = Watch(), time.monotonic()
    report = compare(spark, places)
    seconds, processor = time.monotonic() - begun, watch.end()
    assert {(f.broker, f.partition, f.offset) for f in report.wrong} == {(1, 2, flipped)}
    read = report.bytes / 1e6
    return (
        f"{read:,.0f} MB, {report.files} files, {report.batches:,} batches in {seconds:.1f} s: "
        f"{read / seconds:,.0f} MB/s (goal {GOAL}), {read / processor:,.0f} MB per second of "
        f"processor time, largest worker {watch.largest_worker / 1e6:,.0f} MB; load {load:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=3000, help="of all replicas together")
    parser.add_argument("--batch-bytes", type=int, nargs="+", default=[15_000, 1_000])
    wanted = parser.parse_args()
    spark = start_session("benchmark", Wanted("local[2]"))
    try:
        with tempfile.TemporaryDirectory() as folder:
            print(f"first run, 60 MB, Java and workers cold: {run(spark, folder, 60, 15_000)}")
        for batch_bytes in wanted.batch_bytes:
            with tempfile.TemporaryDirectory() as folder:
                told = run(spark, folder, wanted.megabytes, batch_bytes)
            print(f"batches of {batch_bytes:,} bytes: {told}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
