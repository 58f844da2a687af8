"""What a task holds when records are large: memory of the largest Python worker, and of Java.

    python benchmarks/task_memory.py [--mib 128 256 512] [--record-bytes 1048000 100 …]
A topic of two partitions with so many MiB of JSON objects of the given size; each way of reading it
runs as a process of its own, Spark local[2]: two tasks at once. What is bounded does not grow with
the topic: for each way and size of records a line of JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from processor_time import Watch

from support.cluster import OttlaCluster

PARTITIONS = 2
SCAN = """
import sys
from ottla.pipelines.session import Wanted, start_session
spark = start_session("scan", Wanted("local[2]"))
read = spark.read.format("ottla").options(bootstrap=sys.argv[1], subscribe=sys.argv[2])
print(read.load().selectExpr("sum(length(value))").first()[0])
"""
STREAM = """
import sys, tempfile
from ottla.pipelines.session import Wanted, start_session
spark = start_session("stream", Wanted("local[2]"))
read = spark.readStream.format("ottla").options(
    bootstrap=sys.argv[1], subscribe=sys.argv[2], startingOffsets="earliest")
with tempfile.TemporaryDirectory() as folder:
    writing = read.load().writeStream.format("parquet").option("path", folder + "/rows")
    writing = writing.option("checkpointLocation", folder + "/checkpoint")
    writing.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""
WAYS = (
    "source", "source, stream", "lake", "lake, by date", "lake, raw", "lake, rows through Spark",
    "replay", "replay, rows", "audit",
)  # fmt: skip


def fill(bootstrap: str, topic: str, mib: int, size: int) -> int:
    """Fill a topic; return how many records it has."""
    from confluent_kafka import Producer

    create = [
        "topics", "create", topic, "--partitions", str(PARTITIONS), "--replication-factor", "1",
        "--config", "max.message.bytes=4000000", "--bootstrap-server", bootstrap,
    ]  # fmt: skip
    subprocess.run([sys.executable, "-m", "ottla", *create], check=True, timeout=60)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4",
         "message.max.bytes": 4_000_000, "queue.buffering.max.kbytes": 262_144,
         "batch.size": 1_000_000}
    )  # fmt: skip
    notes = [os.urandom(max(8, (size - 50) // 2)).hex() for _ in range(16)]
    count = max(1, (mib << 20) // size)
    for n in range(count):
        value = json.dumps({"n": n, "day": f"2026-01-{1 + n % 28:02}", "note": notes[n % 16]})
        while True:
            try:
                producer.produce(topic, value.encode(), b"k%d" % n, n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0
    return count


def command(way: str, bootstrap: str, topic: str, folder: Path) -> list[str]:
    """Return what reads the topic in a way."""
    if way.startswith("source"):
        code = STREAM if way.endswith("stream") else SCAN
        return [sys.executable, "-c", code, bootstrap, topic]
    name = way.partition(",")[0]
    if name == "replay":
        sets = {
            "source.bootstrap_servers": bootstrap,
            "replay.topic": topic,
            "replay.to": f"{topic}-{way.replace(', ', '-')}",
            "replay.create": "true",
        }
        if way == "replay, rows":
            sets["replay.filter"] = "value is not null"
    elif name == "audit":
        sets = {"cluster.bootstrap_servers": bootstrap, "audit.topics": json.dumps([topic])}
    else:
        sets = {
            "cluster.bootstrap_servers": bootstrap,
            "lake.topics": json.dumps([topic]),
            "lake.path": str(folder / way.replace(", ", "-").replace(" ", "-")),
            "value.format": "json",
            "value.schema": "n long, day string, note string",
        }
        sets |= {
            "lake, raw": {"value.format": "raw", "value.schema": ""},
            "lake, by date": {"layout.date": "to_date(day)"},
            "lake, rows through Spark": {"layout.date": "date_sub(to_date(day), 1)"},
        }.get(way, {})
    arguments = [x for key, value in sets.items() for x in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "ottla", "pipeline", name, "--master", "local[2]", *arguments]


def measure(way: str, bootstrap: str, topic: str, folder: Path) -> dict[str, object]:
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen(
            command(way, bootstrap, topic, folder), stdout=out, stderr=out, text=True
        ) as process,
    ):
        watch = Watch(process.pid)
        try:
            process.wait(600)
        finally:
            process.kill()
            used = watch.end()
        out.seek(0)
        told = out.read().strip().splitlines()
    found: dict[str, object] = {
        "largest_worker_mb": round(used.largest_worker / 1e6),
        "java_mb": round(used.largest_java / 1e6),
        "cpu_s": round(used.seconds, 1),
    }
    return found if process.returncode == 0 else {**found, "failed": told[-1:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--record-bytes", type=int, nargs="+", default=[1_048_000])
    parser.add_argument("--way", choices=WAYS, nargs="+", default=list(WAYS))
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        OttlaCluster(
            Path(name) / "cluster",
            brokers=1,
            message_max_bytes="4000000",
            transaction_state_log_replication_factor="1",
            transaction_state_log_min_isr="1",
            transaction_state_log_num_partitions="1",
        ) as cluster,
    ):
        for size in args.record_bytes:
            for mib in args.mib:
                topic = f"large-{size}-{mib}"
                count = fill(cluster.bootstrap, topic, mib, size)
                for way in args.way:
                    folder = Path(name) / topic
                    told = measure(way, cluster.bootstrap, topic, folder)
                    known = {"way": way, "records": count, "record_bytes": size, "mib": mib}
                    print(json.dumps({**known, **told}), flush=True)


if __name__ == "__main__":
    main()
