"""Writes the archives of loaded classes that Java maps in tests: of Kafka and of Spark, once each.

    python tests/support/class_archive.py

A broker of Kafka starts, takes some records and stops; a Spark session runs some queries. Java then
writes what it has loaded. Later starts take less processor time. Where it fails, tests run without.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from ottla.zookeeper.embedded import start_own_zookeeper
from support import kafka_tools, spark_java
from support.clients import produce
from support.kafka39 import Kafka39Cluster

STOP_S = 60


def of_kafka(part: Path, folder: Path) -> None:
    class Archiving(Kafka39Cluster):
        def quick_jvm(self) -> tuple[str, ...]:
            return (*kafka_tools.QUICK_JVM, f"-XX:ArchiveClassesAtExit={part}", "-Xlog:disable")

    os.environ["OTTLA_QUICK_JAVA"] = "yes"
    zookeeper = start_own_zookeeper(folder / "zookeeper")
    try:
        one = {"offsets_topic_replication_factor": "1"}
        with Archiving(folder / "kafka", 1, zookeeper=zookeeper.connect_string, **one) as kafka:
            produce(kafka.bootstrap, "t", [b"a", b"b"], 1)
            kafka.terminate(0, STOP_S)
    finally:
        zookeeper.kill()


def have(archive: Path, write: Callable[[Path, Path], None]) -> None:
    """Have `write` make an archive, given its file and a folder, unless it is there."""
    if archive.exists():
        print(f"class archive: {archive}")
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="class-archive-") as folder:
        write(part, Path(folder))
    if not part.exists():
        print(f"class archive: Java did not write {archive}; tests run without it")
        return
    part.rename(archive)
    print(f"class archive: {archive}, {archive.stat().st_size >> 20} MB")


def main() -> int:
    """Write them; return the exit code."""
    problem = kafka_tools.why_not()
    if problem:
        print(f"class archive: {problem}")
        return 1
    have(kafka_tools.archive(), of_kafka)
    have(spark_java.archive(), spark_java.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
