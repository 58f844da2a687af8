"""Kafka's own tools and a JVM coordinator, with groups of ours."""

import time

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import NewTopic

from ottla.admin.session import connected
from ottla.client import groups
from support.clients import admin_client, create_topic, create_topics, fresh, named, produce
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(240)]

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
INTERNAL = "__consumer_offsets"
JVM = 10
COMPACT = {"cleanup.policy": "compact"}


def test_the_default_console_consumer_and_the_group_tool(coordinator, kafka_tools):
    name, group = create_topic(admin_client(coordinator.bootstrap), 2, 1), fresh("console")
    at = ("--bootstrap-server", coordinator.bootstrap)
    lines = [f"line {n}" for n in range(50)]
    produce(coordinator.bootstrap, name, lines, 2)
    out = kafka_tools.run(
        kafka_tools.CONSOLE_CONSUMER, *at, "--topic", name, "--from-beginning",
        "--max-messages", "50", "--timeout-ms", "30000", "--group", group,
    )  # fmt: skip
    assert sorted(out.splitlines()) == sorted(lines)

    def tool(*arguments):
        return kafka_tools.run(CONSUMER_GROUPS, *at, "--timeout", "30000", *arguments)

    assert group in tool("--list").split()
    out = tool("--describe", "--group", group)
    rows = [line.split() for line in out.splitlines() if line.startswith(group)]
    assert sorted((row[2], row[3] == row[4], row[5]) for row in rows) == [
        ("0", True, "0"),
        ("1", True, "0"),
    ]
    out = tool("--reset-offsets", "--group", group, "--topic", name, "--to-earliest", "--execute")
    assert out.count(f" {name} ") == 2
    out = tool("--describe", "--group", group)
    assert sum(int(line.split()[5]) for line in out.splitlines() if line.startswith(group)) == 50
    assert "Successful" in tool("--delete-offsets", "--group", group, "--topic", f"{name}:0")
    assert "successful" in tool("--delete", "--group", group)
    assert group not in tool("--list").split()


def test_a_jvm_broker_takes_the_coordination_over_and_gives_it_back(tmp_path, kafka_tools):
    """The group and its offsets go with the partition, and its members notice nothing."""
    from support.mixed import MixedCluster

    settings = {
        "offsets_topic_num_partitions": "1",
        "offsets_topic_replication_factor": "1",
        "group_initial_rebalance_delay_ms": "0",
    }
    name, group = "t", "g"
    with MixedCluster(tmp_path, ours=1, theirs=1, **settings) as mixed:
        mixed.wait_agreed()
        admin = admin_client(mixed.bootstrap)
        create_topics(
            admin,
            NewTopic(INTERNAL, 1, replica_assignment=[[0, JVM]], config=COMPACT),
            NewTopic(name, 1, replica_assignment=[[0, JVM]]),
        )
        settings = {
            "group_id": group, "enable_auto_commit": False, "auto_offset_reset": "earliest",
            "session_timeout_ms": 30_000, "heartbeat_interval_ms": 300, "group_instance_id": "i",
        }  # fmt: skip
        consumer = Consumer(named(mixed.bootstrap, settings))
        assignments = []
        consumer.subscribe([name], on_assign=lambda _c, p: assignments.append(p))
        read = []

        def consume(count):
            """Produce so many records more, read them, commit."""
            first = len(read)
            produce(mixed.bootstrap, name, (b"%d" % n for n in range(first, first + count)), 1)
            deadline = time.monotonic() + 40
            while len(read) < first + count and time.monotonic() < deadline:
                read.extend(int(m.value()) for m in consumer.consume(100, 0.2) if not m.error())
            assert read == list(range(first + count))
            consumer.commit(asynchronous=False)

        def facts():
            # A new client each time: one keeps to the coordinator it found, for minutes.
            admin = admin_client(mixed.bootstrap)
            found = admin.describe_consumer_groups([group])[group].result(20)
            offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            (tp,) = offsets[group].result(20).topic_partitions
            return found.coordinator.id, found.state.name, len(found.members), tp.offset

        def coordinates(broker, offset):
            mixed.give_lead_to(broker, name, INTERNAL)
            until(
                lambda: facts() == (broker, "STABLE", 1, offset),
                40,
                f"broker {broker} coordinates",
                despite=(KafkaException,),
            )

        consume(30)
        assert facts() == (0, "STABLE", 1, 30)
        coordinates(JVM, 30)
        consume(30)
        assert facts() == (JVM, "STABLE", 1, 60)
        # Our command line works with a JVM coordinator too.
        theirs = mixed.theirs.bootstrap
        described = connected(theirs, lambda c: groups.describe(c, group))
        assert (described.coordinator, described.members[0].instance) == (JVM, "i")
        (row,) = connected(theirs, lambda c: groups.lag(c, group))
        assert (row.committed, row.end, row.lag) == (60, 60, 0)
        assert group in [g.group for g in connected(theirs, groups.list_groups) if g.state]
        coordinates(0, 60)
        consume(30)
        assert facts() == (0, "STABLE", 1, 90)
        assert len(assignments) == 1, "a rebalance was needed"
        consumer.close()
