"""The lake job's speed: flights to Parquet, rows a second end to end, beside a scan of the topic.

One broker, one topic of 6 partitions with the flights of 2013 several times over, lz4. Each way of
landing them runs as a process of its own on local[2], twice in turn; the better one counts. The
scan reads the same topic with Spark's connector and writes nowhere: what remains is the job's own.
Brokers, Spark and the job share the machine: run it when nothing else does; processor time says
what it costs when others do. Several sizes show how that grows:
    python benchmarks/lake.py --times 5
    python benchmarks/lake.py --times 1 2 4 --way "json, no date folders" --rounds 1 --no-scan
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from processor_time import BROKER, Watch, below

from ottla.admin.demo.producing import TOTAL, flights
from support.cluster import OttlaCluster

TOPIC = "flights"
CONFIG = Path(__file__).parent.parent / "src" / "ottla" / "admin" / "demo" / "flights.toml"
WAYS = {
    "json, date folders": [],
    "json, no date folders": ["layout.date="],
    "json, no check for unknown fields": ["layout.date=", "value.drift=ignore"],
    "raw": ["layout.date=", "value.format=raw", "value.schema="],
}
SCAN = """
import sys, time
from ottla.pipelines.session import start_session
from support.spark_connector import with_connector
spark = start_session("scan", with_connector("local[2]"))
def scan():
    began = time.monotonic()
    (spark.read.format("kafka").option("kafka.bootstrap.servers", sys.argv[1])
     .option("subscribe", sys.argv[2]).option("kafka.max.poll.records", "20000")
     .option("kafka.max.partition.fetch.bytes", "8388608")
     .load().write.format("noop").mode("overwrite").save())
    return time.monotonic() - began
print(min(scan() for _ in range(2)))
"""


def fill(bootstrap: str, times: int, topic: str = TOPIC) -> int:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4",
         "batch.size": 262_144, "queue.buffering.max.messages": 500_000}
    )  # fmt: skip
    for _ in range(times):
        for key, value in flights(TOTAL):
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
    assert producer.flush(120) == 0
    return times * TOTAL


def land(bootstrap: str, lake: Path, sets: list[str], rows: int, topic: str) -> dict[str, float]:
    """Run the job; return its speed, and its seconds of processor time with Spark's start."""
    sets = [
        f"cluster.bootstrap_servers={bootstrap}", f"lake.path={lake}",
        f"lake.topics={json.dumps([topic])}", *sets,
    ]  # fmt: skip
    arguments = [x for s in sets for x in ("--set", s)]
    began, load = time.monotonic(), os.getloadavg()[0]
    command = [sys.executable, "-m", "ottla.pipelines.lake", "--config", str(CONFIG), *arguments]
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        subprocess.Popen(command, stdout=out, stderr=err, text=True) as process,
    ):
        watch = Watch(process.pid)
        try:
            process.wait(1200)
        finally:
            process.kill()
            used = watch.end()
        for file in (out, err):
            file.seek(0)
        assert process.returncode == 0, err.read()
        told = json.loads(out.read())
    found = told["topics"][topic]
    assert (found["rows"], told["exactly_once"]) == (rows, True), told
    return {
        "rows_per_s": round(rows / told["job_s"]),
        "batches_rows_per_s": found["rows_per_s"],
        "job_s": told["job_s"],
        "with_start_s": round(time.monotonic() - began, 1),
        "java_cpu_s": round(used.java, 1),
        "workers_cpu_s": round(used.workers, 1),
        "driver_cpu_s": round(used.driver, 1),
        "largest_worker_mb": round(used.largest_worker / 1e6),
        "load": round(load, 1),
    }


def scan(bootstrap: str, topic: str, rows: int) -> float:
    """Return how many rows a second Spark's connector reads."""
    done = subprocess.run(
        [sys.executable, "-c", SCAN, bootstrap, topic],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return rows / float(done.stdout.split()[-1])


def broker_seconds() -> float:
    """Return the processor time of the brokers that this program has started."""
    below_us = below(os.getpid()).values()
    return sum(p.seconds for p in below_us if p.kind == BROKER)


def measure(bootstrap: str, folder: Path, times: int, args: argparse.Namespace) -> None:
    """Fill a topic, scan it if asked for and land it in each way; print a line for each."""
    topic = f"{TOPIC}-{times}"
    where = ["--replication-factor", "1", "--bootstrap-server", bootstrap]
    create = [sys.executable, "-m", "ottla", "topics", "create", topic, "--partitions", "6"]
    subprocess.run([*create, *where], check=True, timeout=60)
    rows = fill(bootstrap, times, topic)
    speed = scan(bootstrap, topic, rows) if args.scan else None
    print(json.dumps({"rows": rows, "scan_rows_per_s": speed and round(speed)}), flush=True)
    for number, way in enumerate(args.way):
        lakes = [folder / f"lake-{times}-{number}-{n}" for n in range(args.rounds)]
        found = []
        for lake in lakes:
            before = broker_seconds()
            one = land(bootstrap, lake, WAYS[way], rows, topic)
            found.append({**one, "broker_cpu_s": round(broker_seconds() - before, 1)})
        best = max(found, key=lambda f: f["rows_per_s"])
        if speed is not None:
            best["of_the_scan"] = round(best["rows_per_s"] / speed, 2)
        print(json.dumps({"way": way, **best}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--times", type=int, nargs="+", default=[5], help=f"{TOTAL:,} flights so many times"
    )
    parser.add_argument("--way", choices=WAYS, nargs="+", default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--no-scan", dest="scan", action="store_false")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        OttlaCluster(Path(folder) / "cluster", brokers=1) as cluster,
    ):
        for times in args.times:
            measure(cluster.bootstrap, Path(folder), times, args)


if __name__ == "__main__":
    main()
