"""Kafka's own consumers as members of groups: the default console consumer, the measuring one, the
one that tells every event as JSON."""

import json
import subprocess
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaException

from support.clients import admin_client, fresh, produce
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(300)]

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


COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


class Member:
    """A VerifiableConsumer of a name in its group; stopped as an operator would, by a signal."""

    def __init__(self, kafka_tools, bootstrap, topic, instance, assignors, said):
        self.said = said
        with said.open("wb") as out:
            self.process = subprocess.Popen(
                kafka_tools.command(
                    TOOLS + "VerifiableConsumer",
                    "--bootstrap-server", bootstrap, "--topic", topic, "--group-id", f"g-{topic}",
                    "--group-instance-id", instance, "--assignment-strategy", ",".join(assignors),
                    "--reset-policy", "earliest", "--session-timeout", "20000",
                ),
                stdout=out,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def told(self, name, field=None):
        whole, _, _ = self.said.read_text().rpartition("\n")  # the last line may be half written
        return events(whole, name, field)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        try:
            self.process.wait(15)
        finally:
            self.process.kill()


def test_static_members_go_over_to_cooperative_rebalances_one_by_one(
    coordinator, kafka_tools, tmp_path
):
    """KIP-429's way: each restarts with both protocols; the group changes when both know it."""
    topic = fresh()
    bootstrap = coordinator.bootstrap
    admin = admin_client(bootstrap)
    kafka_tools.run(kafka_tools.TOPICS, "--bootstrap-server", bootstrap, "--create", "--topic",
                    topic, "--partitions", "2")  # fmt: skip
    produce(bootstrap, topic, (b"%d" % n for n in range(100)), 2)

    def state():
        group = admin.describe_consumer_groups([f"g-{topic}"])[f"g-{topic}"].result(20)
        shares = sorted(len(m.assignment.topic_partitions) for m in group.members)
        return group.state.name, group.partition_assignor, shares

    def is_in(assignor):
        last = [None]

        def now():
            last[0] = state()
            return last[0] == ("STABLE", assignor, [1, 1])

        until(now, 60, lambda: f"{assignor}: {last[0]}", despite=(KafkaException,))

    def start(instance, *assignors):
        said = tmp_path / f"{instance}{len(assignors)}"
        return Member(kafka_tools, bootstrap, topic, instance, assignors, said)

    with ExitStack() as members:
        eager = start("a", RANGE)
        members.callback(eager.__exit__)
        members.enter_context(start("b", COOPERATIVE, RANGE))
        is_in("range")
        eager.__exit__()
        again = members.enter_context(start("a", COOPERATIVE, RANGE))
        is_in("cooperative-sticky")
        produce(bootstrap, topic, (b"%d" % n for n in range(100)), 2)
        until(lambda: again.told("records_consumed", "count") >= 50, 60, "it reads its share")
