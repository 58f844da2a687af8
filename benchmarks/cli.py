"""How long commands take, beside Kafka's tools that do the same: medians of 20, by the clock.

One broker of ours, started for it; both sides ask it in turn, so that a busy machine is the same
for both. Kafka's jars come from `scripts/kafka-jars`; without them only ours are measured.
    PYTHONPATH=src:tests python benchmarks/cli.py [--runs 20]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import kafka_tools
from cluster import OttlaCluster

GOAL_S = {"help": 0.1, "asks": 0.25}
"""What issue 12 asks for, on a quiet machine."""


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
        ("log-dirs", "asks", [*ours, "log-dirs", *asked],
         kafka(kafka_tools.LOG_DIRS, *asked, "--describe")),
    ]  # fmt: skip


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    taken = time.perf_counter() - began
    assert done.returncode in (0, 1), done.stderr.decode()[-500:]  # 1: Kafka's --help
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    missing = kafka_tools.why_not()
    if missing:
        print(f"ours only: {missing}", file=sys.stderr)
    settings = {"offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "1"}
    print(f"| | goal | ottla, s | Kafka's tool, s |\n|---|---|---|---|  <!-- medians of {runs} -->")
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
        for name, kind, our_command, their_command in cases(cluster.bootstrap):
            times: tuple[list[float], list[float]] = ([], [])
            theirs = None if missing else their_command
            for _ in range(runs):
                times[0].append(seconds(our_command))
                if theirs:
                    times[1].append(seconds(theirs))
            shown = f"{statistics.median(times[1]):.2f}" if theirs else "-"
            print(
                f"| {name} | {GOAL_S[kind]} | {statistics.median(times[0]):.3f} | {shown} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
