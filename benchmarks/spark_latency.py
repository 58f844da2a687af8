"""How long a record takes to a micro-batch: Spark's own Kafka connector beside format("ottla").

    python benchmarks/spark_latency.py [--seconds N] [--rounds N] [--rate N] [--json FILE]

One broker (Apache Kafka, or ours with --ottla), four partitions, 500 records/s, a trigger at once.
One session runs a stream of each in turn; a round counts after its 15th micro-batch, when Java has
compiled. Latency is from the producer's timestamp to the rows' arrival in `foreachBatch`.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster

PARTITIONS = 4
WARM = 15


def produce(bootstrap, topic, rate, stop):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    while not stop.is_set():
        for _ in range(5):
            producer.produce(topic, b"x" * 100)
        producer.poll(0)
        stop.wait(5 / rate)
    producer.flush(10)


def latencies(spark, format_, bootstrap, topic, seconds, folder):
    """Return the latency of each record in ms, and how long each micro-batch took."""
    found, batches = [], []
    warm = threading.Event()

    def take(frame, _number):
        rows = frame.select((frame.timestamp.cast("double") * 1000).alias("ms")).collect()
        now = time.time() * 1000
        batches.append(now)
        if warm.is_set():
            found.extend(now - row.ms for row in rows)
        elif rows and len(batches) >= WARM:
            warm.set()

    stream = spark.readStream.format(format_).option("kafka.bootstrap.servers", bootstrap)
    query = (
        stream.option("subscribe", topic)
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", f"{folder}/{format_}-{time.time()}")
        .start()
    )
    try:
        assert warm.wait(120), query.exception() or query.status
        time.sleep(seconds)
    finally:
        query.stop()
    took = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]
    return sorted(found), sorted(took)


def at(values, share):
    return values[min(int(len(values) * share), len(values) - 1)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--ottla", action="store_true", help="a broker of ours")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    from confluent_kafka.admin import AdminClient, NewTopic

    from ottla.pipelines.session import start_session
    from support.spark_connector import with_connector

    kind = OttlaCluster if wanted.ottla else Kafka39Cluster
    best = {}
    with tempfile.TemporaryDirectory() as folder, kind(Path(folder), brokers=1) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("latency", PARTITIONS, 1)])["latency"].result(60)
        spark = start_session("spark_latency", with_connector(wanted.master))
        stop = threading.Event()
        sending = threading.Thread(
            target=produce, args=(cluster.bootstrap, "latency", wanted.rate, stop)
        )
        sending.start()
        try:
            for turn in range(wanted.rounds):
                for name in ("kafka", "ottla"):
                    late, took = latencies(
                        spark, name, cluster.bootstrap, "latency", wanted.seconds, folder
                    )
                    found = {f"p{p}": round(at(late, p / 100)) for p in (50, 95, 99)}
                    found["trigger"] = at(took, 0.5)
                    print(f"round {turn}, {name}: {len(late)} records, {found}", flush=True)
                    if name not in best or found["p50"] < best[name]["p50"]:
                        best[name] = found
        finally:
            stop.set()
            sending.join()
            spark.stop()
    print(f"p50 of ottla / connector: {best['ottla']['p50'] / best['kafka']['p50']:.2f}")
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(best, indent=1))


if __name__ == "__main__":
    main()
