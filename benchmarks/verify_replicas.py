"""Replicas verified over the wire: `ottla verify-replicas` beside Kafka's ReplicaVerificationTool.

A topic on three brokers, three replicas, filled by ProducerPerformance; both tools read all of it
from the same brokers, in turn, on a cluster of Kafka 3.9 and on one of ours. Kafka's tool goes on
for ever: it is done when it first reports a lag of 0 (it reports ten times a second here).
    PYTHONPATH=src:tests python benchmarks/verify_replicas.py [--megabytes 1000] [--rounds 3]
Goal: at least as fast as Kafka's tool, and memory that does not grow with the topic.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cli import kafka
from perf_tools import java

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.cluster import OttlaCluster
from support.command_line import ok
from support.kafka39 import Kafka39Cluster
from support.predictions import all_in_sync
from support.waiting import until

RECORD_BYTES = 1000
LONGEST_S = 300
CLOCK_TICK = os.sysconf("SC_CLK_TCK")
TOOL = "org.apache.kafka.tools.ReplicaVerificationTool"


class Run(NamedTuple):
    """Seconds by the clock, seconds of processor time of the tool, resident bytes at most."""

    seconds: float
    processor: float
    resident: int


def used_by(pid: int) -> tuple[float, int]:
    """Return seconds of processor time, and the most bytes that were resident, of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    (peak,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICK, int(peak.split()[1]) * 1024


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def of_kafka(bootstrap: str, topic: str) -> Run:
    command = kafka(
        TOOL, "--broker-list", bootstrap, "--topics-include", topic, "--time", "-2",
        "--report-interval-ms", "100",
    )  # fmt: skip
    began = time.monotonic()
    with started(command) as process:
        assert process.stdout is not None
        for line in process.stdout:
            assert "doesn't match" not in line, line
            if "max lag is 0 " in line:
                return Run(time.monotonic() - began, *used_by(process.pid))
            assert time.monotonic() < began + LONGEST_S, line
    raise RuntimeError("Kafka's tool ended")


def of_ottla(bootstrap: str, topic: str) -> Run:
    command = [
        sys.executable, "-m", "ottla", "verify-replicas", topic, "-b", bootstrap, "--output", "tsv",
    ]  # fmt: skip
    began = time.monotonic()
    with started(command) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
    assert process.returncode == 0, said
    assert " 0 differ" in said, said
    return Run(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def fill(bootstrap: str, topic: str, megabytes: int) -> None:
    records = megabytes * 1_000_000 // RECORD_BYTES
    said = java(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records",
        str(records), "--record-size", str(RECORD_BYTES), "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all", "linger.ms=5",
    )  # fmt: skip
    assert f"{records} records sent" in said, said[-2000:]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[250, 1000])
    parser.add_argument("--partitions", type=int, nargs="+", default=[6])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["kafka", "ottla"], help="whose brokers")
    wanted = parser.parse_args()
    tools = {"Kafka's tool": of_kafka, "ottla verify-replicas": of_ottla}
    for kind in (Kafka39Cluster, OttlaCluster):
        whose = "kafka" if kind is Kafka39Cluster else "ottla"
        if wanted.only not in (None, whose):
            continue
        with tempfile.TemporaryDirectory() as folder, kind(Path(folder), brokers=3) as cluster:
            for partitions in wanted.partitions:
                for megabytes in wanted.megabytes:
                    topic = f"t-{partitions}-{megabytes}"
                    ok(cluster, "topics", "create", topic, "--partitions", partitions,
                       "--replication-factor", 3)  # fmt: skip
                    fill(cluster.bootstrap, topic, megabytes)
                    until(lambda cluster=cluster: all_in_sync(cluster), 60, "in sync")
                    load = os.getloadavg()[0]
                    found: dict[str, list[Run]] = {name: [] for name in tools}
                    for _ in range(wanted.rounds):
                        for name, tool in tools.items():
                            found[name].append(tool(cluster.bootstrap, topic))
                    print(
                        f"brokers of {whose}: {megabytes:,} MB x 3, {partitions} partitions; load "
                        f"{load:.1f}"
                    )
                    for name, runs in found.items():
                        seconds = statistics.median(r.seconds for r in runs)
                        print(
                            f"  {name}: {seconds:.2f} s, {3 * megabytes / seconds:,.0f} MB/s, "
                            f"processor time {statistics.median(r.processor for r in runs):.1f} s, "
                            f"{max(r.resident for r in runs) / 1e6:,.0f} MB resident",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
