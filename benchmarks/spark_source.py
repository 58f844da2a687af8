"""How fast Spark reads a topic: its own Kafka connector beside format("ottla"), in turn.

    python benchmarks/spark_source.py [--rows N] [--rounds N] [--master local[2]] [--json FILE]

One broker (Apache Kafka, or ours with --ottla), four partitions, an aggregate over all rows. The
connector is tuned (max.poll.records 50000, fetches of 8 MiB, as format("ottla") has by default).
Each round reads with one and then with the other; the best of each counts. Before that, rows must
be hash-equal.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster

PARTITIONS = 4
TUNED = {"kafka.max.poll.records": "50000", "kafka.max.partition.fetch.bytes": str(8 << 20)}
HASH = "sum(cast(xxhash64(key, value, topic, partition, offset, timestamp) AS decimal(38)))"


def small(_number):
    """Return a key and 100 bytes, as kafka-producer-perf-test sends them: hardly compressible."""
    return None, os.urandom(50).hex().encode()


def flight(number):
    """Return a key and about 300 bytes of JSON."""
    value = {
        "n": number, "year": 2013, "month": 1 + number % 12, "day": 1 + number % 28,
        "dep_time": float(number * 7 % 2400), "sched_dep_time": number * 7 % 2400,
        "dep_delay": None if number % 40 == 0 else float(number % 90 - 10),
        "arr_time": float(number * 11 % 2400), "sched_arr_time": number * 11 % 2400,
        "arr_delay": float(number % 120 - 30), "carrier": "UADLAAB6"[number % 7 :][:2],
        "flight": number % 6000, "tailnum": f"N{number * 31 % 99999}", "origin": "EWR",
        "dest": "IAH", "air_time": float(number % 600), "distance": number % 4000,
        "hour": number % 24, "minute": number % 60, "time_hour": "2013-01-01T10:00:00Z",
    }  # fmt: skip
    return value["carrier"].encode(), json.dumps(value).encode()


def fill(bootstrap, topic, rows, make, codec):
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(60)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": codec,
         "queue.buffering.max.messages": 500_000}
    )  # fmt: skip
    size = 0
    for number in range(rows):
        key, value = make(number)
        size += len(value) + len(key or b"")
        while True:
            try:
                producer.produce(topic, value, key, partition=number // 500 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0
    return size / rows


def read(spark, format_, bootstrap, topic):
    frame = spark.read.format(format_).option("kafka.bootstrap.servers", bootstrap)
    frame = frame.option("subscribe", topic)
    if format_ == "kafka":
        frame = frame.options(**TUNED)
    return frame.load()


def timed(spark, format_, bootstrap, topic, what):
    from pyspark.sql import functions as f

    began = time.monotonic()
    row = read(spark, format_, bootstrap, topic).agg(*map(f.expr, what)).first()
    return time.monotonic() - began, tuple(row)


def compare(spark, bootstrap, topic, rows, rounds):
    """Return rows/s of both, after a first run that must find equal rows."""
    both = ("kafka", "ottla")
    hashes = {name: timed(spark, name, bootstrap, topic, (HASH,))[1] for name in both}
    assert hashes["kafka"] == hashes["ottla"], hashes
    best = dict.fromkeys(both, float("inf"))
    for _ in range(rounds):
        for name in both:
            seconds, found = timed(
                spark, name, bootstrap, topic,
                ("count(*)", "sum(length(value))", "max(offset)", "max(timestamp)"),
            )  # fmt: skip
            assert found[0] == rows
            best[name] = min(best[name], seconds)
    return {name: rows / seconds for name, seconds in best.items()}


def main():
    plain = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--ottla", action="store_true", help="a broker of ours")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    from ottla.pipelines.session import start_session
    from support.spark_connector import with_connector

    cases = {
        "100 B, plain": (small, "none", wanted.rows),
        "300 B JSON, lz4": (flight, "lz4", wanted.rows * 4 // 5),
    }
    found = {}
    kind = OttlaCluster if wanted.ottla else Kafka39Cluster
    with tempfile.TemporaryDirectory() as folder, kind(Path(folder), brokers=1) as cluster:
        sizes = {}
        for name, (make, codec, rows) in cases.items():
            topic = make.__name__
            sizes[name] = fill(cluster.bootstrap, topic, rows, make, codec)
        spark = start_session("spark_source", with_connector(wanted.master))
        try:
            for name, (make, _, rows) in cases.items():
                rate = compare(spark, cluster.bootstrap, make.__name__, rows, wanted.rounds)
                ratio = rate["ottla"] / rate["kafka"]
                found[name] = {**rate, "ratio": ratio, "bytes": sizes[name], "rows": rows}
                print(
                    f"{name} ({sizes[name]:.0f} bytes, {rows:,} rows): connector "
                    f"{rate['kafka']:,.0f} rows/s, ottla {rate['ottla']:,.0f} rows/s: {ratio:.2f}x",
                    flush=True,
                )
        finally:
            spark.stop()
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
