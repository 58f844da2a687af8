"""Spark: a stream of orders, added up by windows of time, from a topic into another.

`format("ottla")` is the source and the sink. Each result stands in the topic once for consumers
with `isolation.level=read_committed`, also if the job is killed and started again.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ottla import SyncCluster

pytest.importorskip("pyspark", reason="no pyspark: pip install 'ottla[spark]'")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Start Spark in this process once: it takes seconds."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # its workers need ottla, too
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        # For few rows Java starts sooner when it compiles once, not twice.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    yield session
    session.stop()


def cups_by_minute(spark: Any, bootstrap: str, checkpoint: Path) -> None:
    """Stand for your application: it adds up the cups of each minute, up to 30 s late."""
    from pyspark.sql import functions as f

    orders = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("timestamp", "int(string(value)) AS cups")
    )
    minutes = (
        orders.withWatermark("timestamp", "30 seconds")
        .groupBy(f.window("timestamp", "1 minute"))
        .sum("cups")
        .selectExpr(
            "date_format(window.start, 'HH:mm') AS key",
            "to_json(struct(window.start AS minute, `sum(cups)` AS cups)) AS value",
            "window.end AS timestamp",
        )
    )
    query = (
        minutes.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "cups-by-minute")
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)


def send(bootstrap: str, minutes: range) -> None:
    """Produce an order for each second of some minutes."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for minute in minutes:
        for second in range(60):
            at_ms = 1_700_000_040_000 + (minute * 60 + second) * 1000
            producer.produce("orders", str(minute + 1), timestamp=at_ms)
    assert producer.flush(30) == 0


def read(bootstrap: str, count: int) -> list[int]:
    """Consume some results; return their cups."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "display", "auto.offset.reset": "earliest",
         "isolation.level": "read_committed"}
    )  # fmt: skip
    consumer.subscribe(["cups-by-minute"])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found.append(json.loads(message.value())["cups"])
    consumer.close()
    return sorted(found)


@pytest.mark.timeout(400)
@pytest.mark.ottla(brokers=1, in_process=True)
def test_each_minute_is_added_up_once(
    spark: Any, ottla_cluster: SyncCluster, kafka_bootstrap: str, tmp_path: Path
) -> None:
    ottla_cluster.create_topic("orders", partitions=2)
    ottla_cluster.create_topic("cups-by-minute", partitions=1)
    send(kafka_bootstrap, range(5))
    cups_by_minute(spark, kafka_bootstrap, tmp_path / "checkpoint")
    send(kafka_bootstrap, range(5, 9))
    cups_by_minute(spark, kafka_bootstrap, tmp_path / "checkpoint")

    # A minute is written once its end is 30 s past: here all but the last.
    assert read(kafka_bootstrap, 8) == [60 * (minute + 1) for minute in range(8)]
