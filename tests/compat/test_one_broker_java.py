"""One broker of ours, asked by Kafka's own command line tools."""

import pytest

from support.clients import fresh

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(180)]


def test_topics_create_list_describe(one_broker, kafka_tools):
    at = ("--bootstrap-server", one_broker.bootstrap)
    topic = fresh()
    out = kafka_tools.run(
        kafka_tools.TOPICS, *at, "--create", "--topic", topic, "--partitions", "3",
        "--replication-factor", "1", "--config", "retention.ms=100000",
    )  # fmt: skip
    assert f"Created topic {topic}" in out
    assert topic in kafka_tools.run(kafka_tools.TOPICS, *at, "--list").split()
    out = kafka_tools.run(kafka_tools.TOPICS, *at, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in out
    assert "ReplicationFactor: 1" in out
    assert "retention.ms=100000" in out
    assert out.count("Leader: 0\tReplicas: 0\tIsr: 0") == 3
    again = kafka_tools.run(kafka_tools.TOPICS, *at, "--create", "--topic", topic, check=False)
    assert "already exists" in again


def test_console_producer_and_consumer(one_broker, kafka_tools):
    topic = fresh()
    at = ("--bootstrap-server", one_broker.bootstrap)
    kafka_tools.run(kafka_tools.TOPICS, *at, "--create", "--topic", topic)
    lines = [f"line {n}" for n in range(100)]
    kafka_tools.run(
        kafka_tools.CONSOLE_PRODUCER, *at, "--topic", topic, stdin="\n".join(lines) + "\n"
    )
    out = kafka_tools.run(
        kafka_tools.CONSOLE_CONSUMER, *at, "--topic", topic, "--partition", "0",
        "--offset", "earliest", "--max-messages", "100", "--timeout-ms", "30000",
    )  # fmt: skip
    assert out.splitlines()[:100] == lines
    out = kafka_tools.run(kafka_tools.GET_OFFSETS, *at, "--topic", topic)
    assert f"{topic}:0:100" in out


def test_producer_performance(one_broker, kafka_tools):
    topic = fresh()
    at = ("--bootstrap-server", one_broker.bootstrap)
    kafka_tools.run(kafka_tools.TOPICS, *at, "--create", "--topic", topic)
    out = kafka_tools.run(
        kafka_tools.PRODUCER_PERFORMANCE, "--topic", topic, "--num-records", "20000",
        "--record-size", "200", "--throughput", "-1", "--producer-props",
        f"bootstrap.servers={one_broker.bootstrap}", "acks=all",
    )  # fmt: skip
    assert "20000 records sent" in out


def test_broker_api_versions_lists_what_is_served(one_broker, kafka_tools):
    out = kafka_tools.run(
        kafka_tools.BROKER_API_VERSIONS, "--bootstrap-server", one_broker.bootstrap
    )
    assert "Produce(0): 0 to 11 [usable: 11]" in out
    assert "Fetch(1): 0 to 17 [usable: 17]" in out
    assert "ApiVersions(18): 0 to 4 [usable: 4]" in out


def test_configs_describe(one_broker, kafka_tools):
    at = ("--bootstrap-server", one_broker.bootstrap)
    out = kafka_tools.run(
        kafka_tools.CONFIGS, *at, "--describe", "--entity-type", "brokers", "--entity-name", "0",
        "--all",
    )  # fmt: skip
    assert "broker.id=0" in out
