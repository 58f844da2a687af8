"""Writes the archive of loaded classes that `kafka_tools.quick_jvm` names: once per machine.

    python tests/support/class_archive.py

A broker of Kafka starts, takes some records and stops; Java then writes what it has loaded. Later
starts take less processor time. Where it fails, tests run without it.
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from ottla.zookeeper.embedded import start_own_zookeeper
from support import kafka_tools
from support.clients import produce
from support.kafka39 import Kafka39Cluster

STOP_S = 60


def main() -> int:
    """Write it, unless it is there; return the exit code."""
    problem = kafka_tools.why_not()
    if problem:
        print(f"class archive: {problem}")
        return 1
    archive = kafka_tools.archive()
    if archive.exists():
        print(f"class archive: {archive}")
        return 0
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(f".{os.getpid()}")

    class Archiving(Kafka39Cluster):
        def quick_jvm(self) -> tuple[str, ...]:
            return (*kafka_tools.QUICK_JVM, f"-XX:ArchiveClassesAtExit={part}", "-Xlog:disable")

    os.environ["OTTLA_QUICK_JAVA"] = "yes"
    with tempfile.TemporaryDirectory(prefix="class-archive-") as name:
        zookeeper = start_own_zookeeper(Path(name) / "zookeeper")
        try:
            one = {"offsets_topic_replication_factor": "1"}
            with Archiving(
                Path(name) / "kafka", 1, zookeeper=zookeeper.connect_string, **one
            ) as kafka:
                produce(kafka.bootstrap, "t", [b"a", b"b"], 1)
                kafka.terminate(0, STOP_S)
        finally:
            zookeeper.kill()
    if not part.exists():
        print("class archive: Java wrote none; tests run without it")
        return 0
    part.rename(archive)
    print(f"class archive: {archive}, {archive.stat().st_size >> 20} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
