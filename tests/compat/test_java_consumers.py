"""Kafka's own consumers as members of groups: the default console consumer, the measuring one, the
one that tells every event as JSON."""

import json

import pytest

from clients import fresh

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(120)]

RECORDS = 2000
TOOLS = "org.apache.kafka.tools."


@pytest.fixture(scope="module")
def topic(coordinator, kafka_tools):
    """Return a topic of two partitions, filled by Kafka's VerifiableProducer with 0, 1, 2, ..."""
    name = fresh()
    at = ("--bootstrap-server", coordinator.bootstrap)
    kafka_tools.run(kafka_tools.TOPICS, *at, "--create", "--topic", name, "--partitions", "2")
    said = kafka_tools.run(TOOLS + "VerifiableProducer", *at, "--topic", name, "--acks", "-1",
                           "--max-messages", str(RECORDS))  # fmt: skip
    assert events(said, "producer_send_success") == RECORDS
    return name


def events(said, name, field=None):
    """Count events of a name, or add up one of their fields."""
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return sum(event[field] if field else 1 for event in found if event["name"] == name)


def run(coordinator, kafka_tools, tool, *arguments):
    return kafka_tools.run(tool, "--bootstrap-server", coordinator.bootstrap, *arguments)


def test_the_console_consumer_in_a_group_of_its_own_making(coordinator, kafka_tools, topic):
    said = run(
        coordinator, kafka_tools, kafka_tools.CONSOLE_CONSUMER, "--topic", topic,
        "--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "30000",
    )  # fmt: skip
    assert sorted(map(int, said.split())) == list(range(RECORDS))


def test_consumer_performance(coordinator, kafka_tools, topic):
    said = run(
        coordinator, kafka_tools, TOOLS + "ConsumerPerformance", "--topic", topic,
        "--messages", str(RECORDS), "--timeout", "30000",
    )  # fmt: skip
    assert int(said.splitlines()[-1].split(", ")[4]) == RECORDS


def test_verifiable_consumer(coordinator, kafka_tools, topic):
    said = run(
        coordinator, kafka_tools, TOOLS + "VerifiableConsumer", "--topic", topic,
        "--group-id", f"g-{topic}", "--max-messages", str(RECORDS), "--reset-policy", "earliest",
    )  # fmt: skip
    assert events(said, "partitions_assigned")
    assert events(said, "records_consumed", "count") == RECORDS
    assert events(said, "offsets_committed")
