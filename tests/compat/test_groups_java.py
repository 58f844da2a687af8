"""Kafka's own tools and a JVM coordinator, with groups of ours."""

import asyncio
import time
import uuid

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.admin import groups
from ottla.admin.session import connected
from ottla.model.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(240)]

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
INTERNAL = "__consumer_offsets"
JVM = 10


def fresh(prefix):
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    from cluster import OttlaCluster

    settings = {
        "offsets_topic_replication_factor": "1",
        "offsets_topic_num_partitions": "3",
        "group_initial_rebalance_delay_ms": "0",
    }
    with OttlaCluster(tmp_path_factory.mktemp("one"), brokers=1, **settings) as cluster:
        yield cluster


def test_the_default_console_consumer_and_the_group_tool(broker, kafka_tools):
    name, group = fresh("t"), fresh("console")
    at = ("--bootstrap-server", broker.bootstrap)
    lines = [f"line {n}" for n in range(50)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    admin.create_topics([NewTopic(name, 2, 1)], operation_timeout=20)[name].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for number, line in enumerate(lines):
        producer.produce(name, line, partition=number % 2)
    assert producer.flush(30) == 0
    out = kafka_tools.run(
        kafka_tools.CONSOLE_CONSUMER, *at, "--topic", name, "--from-beginning",
        "--max-messages", "50", "--timeout-ms", "30000", "--group", group,
    )  # fmt: skip
    assert sorted(out.splitlines()) == sorted(lines)

    def tool(*arguments):
        return kafka_tools.run(CONSUMER_GROUPS, *at, *arguments)

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
    from cluster import OttlaCluster
    from kafka39 import Kafka39Cluster

    settings = {
        "offsets_topic_num_partitions": "1",
        "offsets_topic_replication_factor": "1",
        "group_initial_rebalance_delay_ms": "0",
        "auto_leader_rebalance_enable": "false",
    }
    name, group = "t", "g"
    with OttlaCluster(tmp_path / "ours", brokers=1, **settings) as ours:
        with Kafka39Cluster(
            tmp_path / "theirs", ids=[JVM], zookeeper=ours.zookeeper, heap_mb=320, **settings
        ) as theirs:
            bootstrap = f"{ours.bootstrap},{theirs.bootstrap}"
            admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
            until(lambda: set(admin.list_topics(timeout=10).brokers) == {0, JVM}, "both are known")
            internal = NewTopic(
                INTERNAL, 1, replica_assignment=[[0, JVM]],
                config={"cleanup.policy": "compact"},
            )  # fmt: skip
            mine = NewTopic(name, 1, replica_assignment=[[0, JVM]])
            for future in admin.create_topics([internal, mine]).values():
                future.result(30)
            consumer = Consumer(
                {
                    "bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False,
                    "auto.offset.reset": "earliest", "session.timeout.ms": 30_000,
                    "heartbeat.interval.ms": 300, "group.instance.id": "i", "log_level": 2,
                }
            )  # fmt: skip
            assignments = []
            consumer.subscribe([name], on_assign=lambda _c, p: assignments.append(p))
            producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
            read = []

            def consume(count):
                """Produce so many records more, read them, commit."""
                first = len(read)
                for n in range(first, first + count):
                    producer.produce(name, b"%d" % n, partition=0)
                assert producer.flush(30) == 0
                deadline = time.monotonic() + 40
                while len(read) < first + count and time.monotonic() < deadline:
                    read.extend(int(m.value()) for m in consumer.consume(100, 0.2) if not m.error())
                assert read == list(range(first + count))
                consumer.commit(asynchronous=False)

            def facts():
                # A new client each time: one keeps to the coordinator it found, for minutes.
                admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
                found = admin.describe_consumer_groups([group])[group].result(20)
                offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
                (tp,) = offsets[group].result(20).topic_partitions
                return found.coordinator.id, found.state.name, len(found.members), tp.offset

            def lead(broker_id):
                """Make this broker the first replica of both partitions, and their leader."""
                order = [broker_id, JVM if broker_id == 0 else 0]
                connected(bootstrap, lambda client: move(client, [name, INTERNAL], order))

                def leads():
                    found = admin.list_topics(INTERNAL, timeout=10).topics[INTERNAL]
                    return found.partitions[0].leader == broker_id

                until(leads, f"{broker_id} leads")

            consume(30)
            assert facts() == (0, "STABLE", 1, 30)
            lead(JVM)
            until(lambda: facts() == (JVM, "STABLE", 1, 30), "the JVM coordinates")
            consume(30)
            assert facts() == (JVM, "STABLE", 1, 60)
            # Our command line works with a JVM coordinator too.
            described = connected(theirs.bootstrap, lambda c: groups.describe(c, group))
            assert (described.coordinator, described.members[0].instance) == (JVM, "i")
            (row,) = connected(theirs.bootstrap, lambda c: groups.lag(c, group))
            assert (row.committed, row.end, row.lag) == (60, 60, 0)
            assert group in [
                g.group for g in connected(theirs.bootstrap, groups.list_groups) if g.state
            ]
            lead(0)
            until(lambda: facts() == (0, "STABLE", 1, 60), "we coordinate again")
            consume(30)
            assert facts() == (0, "STABLE", 1, 90)
            assert len(assignments) == 1, "a rebalance was needed"
            consumer.close()
            theirs.terminate(JVM)


async def move(client, topics, order):
    r = AlterPartitionReassignmentsRequest
    moves = [
        r.ReassignableTopic(
            name=topic, partitions=[r.ReassignablePartition(partition_index=0, replicas=order)]
        )
        for topic in topics
    ]
    answer = await client.call(r(topics=moves, timeout_ms=20_000), "controller")
    assert [t.partitions[0].error_code for t in answer.responses] == [0, 0]
    chosen = [ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0]) for topic in topics]
    request = ElectLeadersRequest(election_type=0, topic_partitions=chosen, timeout_ms=20_000)
    for _ in range(100):
        results = (await client.call(request, "controller")).replica_election_results
        codes = {p.error_code for topic in results for p in topic.partition_result}
        if codes <= {0, ErrorCode.ELECTION_NOT_NEEDED}:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(codes)


def until(condition, what, timeout_s=40):
    deadline = time.monotonic() + timeout_s
    last = None
    while True:
        try:
            if condition():
                return
        except KafkaException as error:
            last = error
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what} ({last})"
        time.sleep(0.1)
