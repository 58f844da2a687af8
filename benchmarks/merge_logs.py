"""State change logs merged by `ottla history merge` and by Kafka's StateChangeLogMerger.

Three files of the form of Kafka before 1.1, which is the one that Kafka's class knows; the same
lines must come in the same order. In turn, medians; a JVM as Kafka's own scripts start it.
    PYTHONPATH=src:tests python benchmarks/merge_logs.py [--megabytes 500 2000] [--rounds 3]
Goal: at least as fast, and memory that does not grow with the files.
"""

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from cli import kafka

FILES = 3
TOPIC_PARTITIONS = 100
LINES_AT_ONCE = 20_000
MERGER = "kafka.tools.StateChangeLogMerger"


class Run(NamedTuple):
    """Seconds by the clock and of processor time, resident bytes at most, hash of the output."""

    seconds: float
    processor: float
    resident: int
    output: str


def write(folder: Path, megabytes: int) -> list[Path]:
    """Write logs of three brokers; no two lines of two brokers have the same time."""
    paths = [folder / f"state-change-{broker}.log" for broker in range(FILES)]
    for broker, path in enumerate(paths):
        number = 0
        with path.open("wb") as file:
            while file.tell() < megabytes * 1_000_000 // FILES:
                lines = []
                for _ in range(LINES_AT_ONCE):
                    number += 1
                    at = number * FILES + broker
                    hour, rest = divmod(at, 3_600_000)
                    day, hour = divmod(hour, 24)
                    minute, ms = divmod(rest, 60_000)
                    lines.append(
                        f"[2026-11-{day + 1:02} {hour:02}:{minute:02}:{ms // 1000:02},"
                        f"{ms % 1000:03}] TRACE Broker {broker} received LeaderAndIsr request "
                        f"(LeaderAndIsrInfo:(Leader:{number % 3},ISR:0,1,2,LeaderEpoch:"
                        f"{number // 100},ControllerEpoch:3),ReplicationFactor:3),AllReplicas:"
                        f"0,1,2) correlation id {number} from controller 1 epoch 3 for partition "
                        f"[orders,{number % TOPIC_PARTITIONS}] (state.change.logger)\n"
                    )
                file.write("".join(lines).encode())
    return paths


def run(command: list[str]) -> Run:
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        digest = hashlib.md5(usedforsecurity=False)
        assert process.stdout is not None
        first = process.stdout.readline()
        while first.startswith(b"WARNING: "):  # Kafka's: the class is deprecated
            first = process.stdout.readline()
        digest.update(first)
        while data := process.stdout.read(1 << 20):
            digest.update(data)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    assert process.returncode == 0, command
    return Run(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, digest.hexdigest())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    for megabytes in wanted.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            paths = ",".join(map(str, write(Path(folder), megabytes)))
            for options in ([], ["--topic", "orders", "--partitions", "3,50"]):
                ours = [sys.executable, "-m", "ottla", "merge-state-changes", "--logs", paths]
                sides = {
                    "Kafka": kafka(MERGER, "--logs", paths, *options),
                    "Ottla": [*ours, *options],
                }
                found: dict[str, list[Run]] = {name: [] for name in sides}
                load = os.getloadavg()[0]
                for _ in range(wanted.rounds):
                    for name, command in sides.items():
                        found[name].append(run(command))
                print(f"{megabytes:,} MB, {' '.join(options) or 'all lines'}; load {load:.1f}")
                for name, runs in found.items():
                    seconds = statistics.median(r.seconds for r in runs)
                    processor = statistics.median(r.processor for r in runs)
                    resident = max(r.resident for r in runs)
                    print(
                        f"  {name}: {seconds:.1f} s, {megabytes / seconds:,.0f} MB/s, processor "
                        f"time {processor:.1f} s, {resident / 1e6:,.0f} MB resident"
                    )
                outputs = {r.output for runs in found.values() for r in runs}
                assert len(outputs) == 1, "they do not print the same"


if __name__ == "__main__":
    main()
