"""The schema registry of `ottla up` and of the fixture, by the serializers of confluent-kafka.

Java's serializers are not in Maven Central; what they ask is in tests/unit/registry.
"""

import json
import subprocess
import sys

import pytest

pytest.importorskip("starlette")
pytest.importorskip("avro")
pytest.importorskip("httpx")

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.testing.schema_registry import SchemaRegistry
from ottla.testing.sync_cluster import SyncCluster
from support.cluster import free_ports
from support.messages import message

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
THING = {"title": "Thing", "type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.fixture(scope="module")
def cluster():
    with SyncCluster(1, in_process=True) as cluster:
        yield cluster


def client_of(cluster):
    return SchemaRegistryClient({"url": cluster.schema_registry_url})


def there_and_back(serializer, deserializer, value, topic):
    context = SerializationContext(topic, MessageField.VALUE)
    data = serializer(value, context)
    assert data[0] == 0
    return int.from_bytes(data[1:5], "big"), deserializer(data, context)


def test_the_serializers_of_confluent_kafka(cluster):
    client = client_of(cluster)
    avro = AvroSerializer(client, json.dumps(ORDER)), AvroDeserializer(client_of(cluster))
    first, found = there_and_back(*avro, {"amount": 5}, "orders")
    assert found == {"amount": 5}
    text = json.dumps(THING)
    second, found = there_and_back(
        JSONSerializer(text, client),
        JSONDeserializer(text, schema_registry_client=client_of(cluster)),
        {"n": 3}, "things",
    )  # fmt: skip
    assert found == {"n": 3}
    kind, plain = message("Click", n="int64", who="string"), {"use.deprecated.format": False}
    third, found = there_and_back(
        ProtobufSerializer(kind, client, plain),
        ProtobufDeserializer(kind, plain, client_of(cluster)),
        kind(n=1 << 40, who="x"), "clicks",
    )  # fmt: skip
    assert (found.n, found.who) == (1 << 40, "x")
    assert len({first, second, third}) == 3
    assert client.get_subjects() == ["clicks-value", "orders-value", "things-value"]


def test_what_its_client_asks(cluster):
    client = client_of(cluster)
    more = {**ORDER, "fields": [*ORDER["fields"], {"name": "unit", "type": "string"}]}
    schema, wider = Schema(json.dumps(ORDER), "AVRO"), Schema(json.dumps(more), "AVRO")
    schema_id = client.register_schema("asked", schema)
    assert client.register_schema("asked", schema) == schema_id
    assert client.lookup_schema("asked", schema).schema_id == schema_id
    assert client.get_schema(schema_id).schema_str == json.dumps(ORDER, separators=(",", ":"))
    assert not client.test_compatibility("asked", wider)
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("asked", wider)
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    client.set_compatibility("asked", "NONE")
    assert client.get_compatibility("asked") == "NONE"
    client.register_schema("asked", wider)
    assert client.get_versions("asked") == [1, 2]
    assert client.get_latest_version("asked").version == 2
    with pytest.raises(SchemaRegistryError) as missing:
        client.get_latest_version("nosuch")
    assert missing.value.error_code == 40401
    assert client.delete_version("asked", 1) == 1
    assert client.delete_subject("asked") == [2]
    assert client.delete_subject("asked", permanent=True) == [1, 2]


def test_another_registry_goes_on_with_the_topic_and_others_read_it(cluster):
    client = client_of(cluster)
    schema = Schema(json.dumps({"type": "enum", "name": "E", "symbols": ["a"]}), "AVRO")
    schema_id = client.register_schema("kept", schema)
    again = SchemaRegistry(cluster.bootstrap)
    try:
        other = SchemaRegistryClient({"url": again.url})
        assert other.get_latest_version("kept").schema_id == schema_id
        other.set_compatibility(level="FULL")
    finally:
        again.close()
    client.register_schema("kept2", schema)  # reads on before it decides
    assert client.get_compatibility() == "FULL"
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "x"})
    consumer.assign([TopicPartition("_schemas", 0, 0)])
    records = {}
    while (record := consumer.poll(5)) is not None:
        assert record.error() is None
        records[record.key()] = record.value()
    consumer.close()
    key = b'{"keytype":"SCHEMA","subject":"kept","version":1,"magic":1}'
    value = json.loads(records[key])
    assert (value["subject"], value["version"], value["id"]) == ("kept", 1, schema_id)
    assert value["deleted"] is False


def ottla(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "ottla", *map(str, arguments)], capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


def test_up_starts_it_beside_the_brokers_and_down_ends_it(tmp_path):
    port = free_ports(1)[0]
    up = ["up", "-n", 1, "--dir", tmp_path, "--port-base", port]
    try:
        done = ottla(*up, "--schema-registry")
        assert done.returncode == 0, done.stderr
        (url,) = [
            line.partition("=")[2]
            for line in done.stderr.splitlines()
            if line.startswith("schema.registry.url=")
        ]
        client = SchemaRegistryClient({"url": url})
        schema_id = client.register_schema("s", Schema('"string"', "AVRO"))
        assert "4 processes" not in ottla("down", "--dir", tmp_path).stderr
        with pytest.raises(Exception, match="refused"):
            SchemaRegistryClient({"url": url, "max.retries": 0}).get_subjects()
        assert ottla(*up).returncode == 0  # with the registry, as before
        assert client.get_latest_version("s").schema_id == schema_id
    finally:
        ottla("down", "--dir", tmp_path)


def test_a_topic_that_would_forget_schemas_is_refused(cluster):
    with SyncCluster(1, in_process=True) as other:
        other.create_topic("_schemas", partitions=1)
        with pytest.raises(Exception, match=r"cleanup.policy=delete, which would delete schemas"):
            _ = other.schema_registry_url
