"""From the command `ottla up` to the first record that three brokers have, beside Kafka 3.9.

    python benchmarks/first_record.py [--rounds 20] [--kafka 3] [--ottla PATH]

Each round: `ottla up` as a process in an empty folder, with an environment that has no Java, an
empty HOME and nothing on the PATH but this Python's programs; once it has ended with code 0, a
topic of one partition and three replicas is created and one record is acknowledged (acks=all,
min.insync.replicas=3). Measured from the start of the process. `--ottla` names the command of
another environment, such as one with the built wheel. Kafka: from the start of ZooKeeper and of
three brokers to the same record; heaps of 512 MB. Goal: a median of 0.8 s at most.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import quick

from support.kafka39 import Kafka39Cluster

GOAL_S = 0.8
OTTLA = Path(sys.executable).parent / "ottla"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kafka", type=int, default=3, help="rounds of Kafka 3.9")
    parser.add_argument("--ottla", type=Path, default=OTTLA, help="the command")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    ottla(options.ottla, 1)  # compiles modules, warms the page cache
    found = [ottla(options.ottla, 3) for _ in range(options.rounds)]
    served, first = zip(*found, strict=True)
    report("Ottla: ottla up has ended", served)
    report("Ottla: first record acknowledged", first)
    if options.kafka:
        report("Kafka 3.9: first record acknowledged", [kafka() for _ in range(options.kafka)])
    median = statistics.median(first)
    print(f"goal: a median of {GOAL_S} s at most: {'held' if median <= GOAL_S else 'missed'}")
    return int(median > GOAL_S)


def report(what, values):
    values = sorted(values)
    print(
        f"{what}: median {statistics.median(values):.2f} s "
        f"[{values[0]:.2f} .. {values[-1]:.2f}], {len(values)} rounds"
    )


def without_java(folder, command):
    """Return an environment in which no Java is found, and whose HOME is empty."""
    home = folder / "home"
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if k in ("PYTHONPATH", "LANG", "LC_ALL")}
    return {**kept, "HOME": str(home), "PATH": str(command.parent), "JAVA_HOME": str(home)}


def ottla(command, brokers):
    """Return the seconds until `ottla up` has ended, and until its cluster has a record."""
    with tempfile.TemporaryDirectory(prefix="ottla-first-") as name:
        folder = Path(name)
        environment = without_java(folder, command)
        began = time.monotonic()
        try:
            done = subprocess.run(
                [command, "up", "-n", str(brokers), "--dir", str(folder / "data")],
                env=environment, check=True, capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            served = time.monotonic() - began
            first_record(
                re.findall(r"^bootstrap\.servers=(\S+)", done.stderr, re.MULTILINE)[0], brokers
            )
            return served, time.monotonic() - began
        finally:
            subprocess.run(
                [command, "down", "--dir", str(folder / "data")],
                env=environment, check=True, capture_output=True, timeout=60,
            )  # fmt: skip


def kafka():
    with tempfile.TemporaryDirectory(prefix="kafka-first-") as name:
        began = time.monotonic()
        with Kafka39Cluster(Path(name) / "kafka", 3) as cluster:
            first_record(cluster.bootstrap, 3)
            return time.monotonic() - began


def first_record(bootstrap, replicas):
    settings = {"min.insync.replicas": str(replicas)}
    quick.first_record(bootstrap, replicas, settings=settings, pause_s=0.01)


if __name__ == "__main__":
    sys.exit(main())
