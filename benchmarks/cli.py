"""How long commands take, beside Kafka's tools and kcat that do the same: medians of 20.

One broker of ours, started for it; all sides ask it in turn, so that a busy machine is the same for
all. Kafka's jars come from `scripts/kafka-jars`, kcat from the system; who is missing is left out.
    PYTHONPATH=src:tests python benchmarks/cli.py [--runs 20] [--processor]
"""

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support import kafka_tools
from support.cluster import OttlaCluster

GOAL_S = {"help": 0.1, "asks": 0.25}
"""What a person is to wait at most, on a quiet machine."""


def kafka(tool: str, *arguments: str) -> list[str]:
    """Return what starts a tool as Kafka's own scripts do: their heap and their collector."""
    java = kafka_tools.java() or "java"
    jvm = ["-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
    return [java, *jvm, "-cp", f"{kafka_tools.libs()}/*", tool, *arguments]


def cases(address: str) -> list[tuple[str, str, list[str], list[str] | None]]:
    """Return (name, kind, our command, Kafka's) of each thing that is done."""
    ours = [sys.executable, "-m", "ottla"]
    asked = ["--bootstrap-server", address]
    groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    return [
        ("help", "help", [*ours, "--help"], None),
        ("help of topics create", "help", [*ours, "topics", "create", "--help"],
         kafka(kafka_tools.TOPICS, "--help")),
        ("topics list", "asks", [*ours, "topics", "list", *asked],
         kafka(kafka_tools.TOPICS, *asked, "--list")),
        ("topics describe", "asks", [*ours, "topics", "describe", "t", *asked],
         kafka(kafka_tools.TOPICS, *asked, "--describe", "--topic", "t")),
        ("configs describe", "asks", [*ours, "configs", "describe", "--topic", "t", *asked],
         kafka(kafka_tools.CONFIGS, *asked, "--describe", "--entity-type", "topics",
               "--entity-name", "t")),
        ("groups list", "asks", [*ours, "groups", "list", *asked],
         kafka(groups, *asked, "--list")),
        ("status", "asks", [*ours, "status", *asked], None),
        ("consume 10 records", "asks",
         [*ours, "consume", "t", "--from-beginning", "--max-messages", "10", *asked],
         kafka(kafka_tools.CONSOLE_CONSUMER, *asked, "--topic", "t", "--from-beginning",
               "--max-messages", "10", "--timeout-ms", "20000")),
        ("produce a record", "asks", [*ours, "produce", "t", *asked],
         kafka(kafka_tools.CONSOLE_PRODUCER, *asked, "--topic", "t")),
        ("log-dirs", "asks", [*ours, "log-dirs", *asked],
         kafka(kafka_tools.LOG_DIRS, *asked, "--describe")),
    ]  # fmt: skip


def of_kcat(address: str) -> dict[str, list[str]]:
    """Return kcat's commands for the same, by name; none where it is not installed."""
    program = shutil.which("kcat")
    if program is None:
        return {}
    kcat = [program, "-b", address]
    return {
        "topics list": [*kcat, "-L"],
        "consume 10 records": [*kcat, "-q", "-C", "-t", "t", "-o", "beginning", "-c", "10"],
        "produce a record": [*kcat, "-P", "-t", "t", "-X", "acks=all"],
    }


def processor_s() -> float:
    """Return the processor seconds of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(command: list[str], clock: Callable[[], float]) -> float:
    began = clock()
    done = subprocess.run(command, input=b"x\n", capture_output=True, timeout=60, check=False)
    taken = clock() - began
    assert done.returncode in (0, 1), done.stderr.decode()[-500:]  # 1: Kafka's --help
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument(
        "--processor",
        action="store_true",
        help="user and system seconds, for a busy machine: what waits is not counted",
    )
    options = parser.parse_args()
    runs, clock = options.runs, processor_s if options.processor else time.perf_counter
    missing = kafka_tools.why_not()
    if missing:
        print(f"ours only: {missing}", file=sys.stderr)
    settings = {"offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "1"}
    print("| | goal | ottla, s | Kafka's tool, s | kcat, s |")
    print(f"|---|---|---|---|---|  <!-- medians of {runs} -->")
    with (
        tempfile.TemporaryDirectory() as folder,
        OttlaCluster(Path(folder), brokers=1, **settings) as cluster,
    ):
        ours = [sys.executable, "-m", "ottla"]
        asked = ["--bootstrap-server", cluster.bootstrap]
        subprocess.run([*ours, "topics", "create", "t", *asked], check=True, timeout=60)
        subprocess.run(
                [*ours, "produce", "t", *asked],
                input=b"x\n" * 100, check=True, timeout=60, capture_output=True,
            )  # fmt: skip
        kcat = of_kcat(cluster.bootstrap)
        for name, kind, our_command, their_command in cases(cluster.bootstrap):
            theirs = None if missing else their_command
            sides = [our_command, theirs, kcat.get(name)]
            times: list[list[float]] = [[], [], []]
            for _ in range(runs):
                for side, taken in zip(sides, times, strict=True):
                    if side is not None:
                        taken.append(seconds(side, clock))
            cells = [f"{statistics.median(of):.3f}" if of else "-" for of in times]
            print(f"| {name} | {GOAL_S[kind]} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
