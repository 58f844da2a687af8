"""Values by a registry's schemas as columns: what confluent-kafka's serializers wrote."""

import json

import pytest

pytest.importorskip("starlette")
pytest.importorskip("avro")
pytest.importorskip("httpx")

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.testing.sync_cluster import SyncCluster

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(300)]

ORDER = {
    "type": "record", "name": "Order", "fields": [
        {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ],
}  # fmt: skip
COUNT = 200


@pytest.fixture(scope="module")
def cluster():
    with SyncCluster(1, in_process=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        client = SchemaRegistryClient({"url": cluster.schema_registry_url})
        serialize = AvroSerializer(client, json.dumps(ORDER))
        context = SerializationContext("orders", MessageField.VALUE)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for n in range(COUNT):
            order = {"n": n, "at": 1_700_000_000_000 + n, "lines": ["a"] * (n % 3)}
            producer.produce("orders", serialize(order, context))
        assert producer.flush(60) == 0
        yield cluster


def read(spark, cluster):
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"}
    return spark.read.format("ottla").options(**options).load()


def test_values_become_columns(spark, cluster):
    from ottla.pipelines.schemas import from_registry

    kind = "n long, at timestamp, lines array<string>, unknown string"
    orders = read(spark, cluster).select(
        from_registry("value", cluster.schema_registry_url, kind).alias("order")
    )
    rows = orders.selectExpr("order.*", "unix_millis(order.at) as ms").orderBy("n").collect()
    assert [r["n"] for r in rows] == list(range(COUNT))
    assert [r["ms"] for r in rows] == [1_700_000_000_000 + n for n in range(COUNT)]
    assert [r["lines"] for r in rows] == [["a"] * (n % 3) for n in range(COUNT)]
    assert {r["unknown"] for r in rows} == {None}


def test_bad_values_fail_the_query_or_are_null(spark, cluster):
    from ottla.pipelines.schemas import from_registry

    values = read(spark, cluster).selectExpr("if(offset = 0, binary('x'), value) as value")
    url = {"schema.registry.url": cluster.schema_registry_url}
    lenient = values.select(from_registry("value", url, "n long", mode="PERMISSIVE").alias("o"))
    assert lenient.where("o is null").count() == 2  # the first of each partition
    assert lenient.where("o.n is not null").count() == COUNT - 2
    with pytest.raises(Exception, match="not in a registry's wire format"):
        values.select(from_registry("value", url, "n long").alias("o")).collect()
