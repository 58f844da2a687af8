"""How fast Spark writes a topic: its own Kafka sink beside format("ottla"), in turn.

    python benchmarks/spark_sink.py [--rows N] [--rounds N] [--keys] [--kafka] [--json FILE]

One broker (ours, or Apache Kafka with --kafka), four partitions, rows of 100 bytes from a table
in Spark's memory. Spark's sink is at-least-once; ours is exactly-once, and once more
at-least-once. The best round of each counts; the rows of each are counted in the topic.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster

PARTITIONS = 4
FEW = {
    "transaction_state_log_replication_factor": "1", "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "3",
}  # fmt: skip
SINKS = {
    "kafka": ("kafka", {}),
    "kafka, tuned": ("kafka", {"kafka.batch.size": "262144", "kafka.linger.ms": "20"}),
    "ottla": ("ottla", {}),
    "ottla, at least once": ("ottla", {"ottla.delivery": "at-least-once"}),
}


def main():
    plain = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--kafka", action="store_true", help="a broker of Apache Kafka 3.9")
    parser.add_argument("--keys", action="store_true", help="rows have keys")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    from confluent_kafka.admin import AdminClient, NewTopic

    from ottla.pipelines.session import start_session
    from ottla.pipelines.sink.data_source import TopicFormat
    from support.spark_connector import with_connector

    spark = start_session("sinks", with_connector(wanted.master))
    spark.dataSource.register(TopicFormat)
    key = "string(id % 1000)" if wanted.keys else "string(null)"
    rows = spark.range(0, wanted.rows, 1, PARTITIONS).selectExpr(
        f"{key} as key",
        "substr(concat(sha2(string(id), 256), sha2(string(-id), 256)), 1, 100) as value",
    )
    rows = rows.persist()
    rows.count()
    kind = Kafka39Cluster if wanted.kafka else OttlaCluster
    found = dict.fromkeys(SINKS, 0.0)
    with tempfile.TemporaryDirectory() as folder, kind(Path(folder), brokers=1, **FEW) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for number in range(wanted.rounds):
            for name, (format_, options) in SINKS.items():
                topic = f"{name.replace(', ', '-').replace(' ', '-')}-{number}"
                for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
                    future.result(60)
                began = time.monotonic()
                (
                    rows.write.format(format_).mode("append")
                    .option("kafka.bootstrap.servers", cluster.bootstrap)
                    .option("topic", topic).options(**options).save()
                )  # fmt: skip
                speed = wanted.rows / (time.monotonic() - began)
                found[name] = max(found[name], speed)
                there = spark.read.format("ottla").option("subscribe", topic)
                there = there.option("kafka.isolation.level", "read_committed")
                there = there.option("kafka.bootstrap.servers", cluster.bootstrap)
                assert there.load().count() == wanted.rows
                print(f"round {number + 1}: {name}: {speed:,.0f} rows/s", flush=True)
                admin.delete_topics([topic])[topic].result(60)
    for name, speed in found.items():
        print(f"{name:24} {speed:12,.0f} rows/s  {speed / found['kafka']:.2f}")
    if wanted.json:
        wanted.json.write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
