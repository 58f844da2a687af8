"""Spark: a topic is read as rows by `format("ottla")`, in one batch, and added up.

`pip install 'ottla[spark]'`, and a Java for Spark itself, 17 or newer. There is no jar to fetch.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

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
        .config("spark.sql.shuffle.partitions", "1")
        # For few rows Java starts sooner when it compiles once, not twice.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    yield session
    session.stop()


def cups_by_customer(spark: Any, bootstrap: str) -> dict[str, int]:
    """Stand for your application: it reads all orders and adds up each customer's cups."""
    orders = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .load()
    )
    rows = (
        orders.selectExpr("string(key) AS customer", "int(string(value)) AS cups")
        .groupBy("customer")
        .sum("cups")
        .collect()
    )
    return dict(map(tuple, rows))


@pytest.mark.ottla(brokers=1, in_process=True)
def test_cups_are_added_up(spark: Any, ottla_cluster: SyncCluster, kafka_bootstrap: str) -> None:
    ottla_cluster.create_topic("orders", partitions=3)
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "acks": "all"})
    for number in range(100):
        producer.produce("orders", str(number), key=f"customer-{number % 4}")
    assert producer.flush(30) == 0

    found = cups_by_customer(spark, kafka_bootstrap)

    assert found == {f"customer-{n}": sum(range(n, 100, 4)) for n in range(4)}
