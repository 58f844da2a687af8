"""The lake job's speed: flights to Parquet, rows a second end to end, beside a scan of the topic.

One broker, one topic of 6 partitions with the flights of 2013 several times over, lz4. Each way of
landing them runs as a process of its own on local[2], twice in turn; the better one counts. The
scan reads the same topic with Spark's connector and writes nowhere: what remains is the job's own.
Brokers, Spark and the job share the machine: run it when nothing else does.
    python benchmarks/lake.py --times 5
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from cluster import OttlaCluster
from ottla.admin.demo.flights import TOTAL, flights

TOPIC = "flights"
CONFIG = Path(__file__).parent.parent / "src" / "ottla" / "admin" / "demo" / "flights.toml"
WAYS = {
    "json, no date folders": ["layout.date=", "layout.gather=false"],
    "json, date folders": ["layout.gather=false"],
    "json, no check for unknown fields": [
        "layout.date=", "layout.gather=false", "value.drift=ignore"
    ],
    "json, a file for each date and batch": [],
    "raw": ["layout.date=", "layout.gather=false", "value.format=raw", "value.schema="],
    'json, no date folders, format("ottla")': [
        "layout.date=", "layout.gather=false", "lake.source=ottla"
    ],
}  # fmt: skip
SCAN = """
import sys, time
from ottla.pipelines.session import Wanted, start_session
spark = start_session("scan", Wanted("local[2]"), connector=True)
def scan():
    began = time.monotonic()
    (spark.read.format("kafka").option("kafka.bootstrap.servers", sys.argv[1])
     .option("subscribe", "flights").option("kafka.max.poll.records", "20000")
     .option("kafka.max.partition.fetch.bytes", "8388608")
     .load().write.format("noop").mode("overwrite").save())
    return time.monotonic() - began
print(min(scan() for _ in range(2)))
"""


def fill(bootstrap: str, times: int) -> int:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4",
         "batch.size": 262_144, "queue.buffering.max.messages": 500_000}
    )  # fmt: skip
    for _ in range(times):
        for key, value in flights(TOTAL):
            while True:
                try:
                    producer.produce(TOPIC, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
    assert producer.flush(120) == 0
    return times * TOTAL


def land(bootstrap: str, lake: Path, sets: list[str], rows: int) -> dict[str, float]:
    sets = [f"cluster.bootstrap_servers={bootstrap}", f"lake.path={lake}", *sets]
    arguments = [x for s in sets for x in ("--set", s)]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "ottla.pipelines.lake", "--config", str(CONFIG), *arguments],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    topic = told["topics"][TOPIC]
    assert (topic["rows"], told["exactly_once"]) == (rows, True), told
    return {
        "rows_per_s": round(rows / told["job_s"]),
        "batches_rows_per_s": topic["rows_per_s"],
        "job_s": told["job_s"],
        "with_start_s": round(time.monotonic() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5, help=f"{TOTAL:,} flights so many times")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        OttlaCluster(Path(folder) / "cluster", brokers=1) as cluster,
    ):
        where = ["--replication-factor", "1", "--bootstrap-server", cluster.bootstrap]
        create = [sys.executable, "-m", "ottla", "topics", "create", TOPIC, "--partitions", "6"]
        subprocess.run([*create, *where], check=True, timeout=60)
        rows = fill(cluster.bootstrap, args.times)
        scan = subprocess.run(
            [sys.executable, "-c", SCAN, cluster.bootstrap],
            capture_output=True, text=True, timeout=600, check=True,
        )  # fmt: skip
        speed = rows / float(scan.stdout.split()[-1])
        print(json.dumps({"rows": rows, "scan_rows_per_s": round(speed)}), flush=True)
        for number, (way, sets) in enumerate(WAYS.items()):
            lakes = [Path(folder) / f"lake-{number}-{n}" for n in range(args.rounds)]
            found = [land(cluster.bootstrap, lake, sets, rows) for lake in lakes]
            best = max(found, key=lambda f: f["rows_per_s"])
            ratio = round(best["rows_per_s"] / speed, 2)
            print(json.dumps({"way": way, **best, "of_the_scan": ratio}), flush=True)


if __name__ == "__main__":
    main()
