"""Transactions with Kafka's own tools and clients, and with a JVM coordinator beside ours."""

import time
import uuid

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.admin.session import connected
from ottla.model.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(240)]

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
INTERNAL = "__transaction_state"
JVM = 10


def fresh(prefix):
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    from cluster import OttlaCluster

    settings = {
        "offsets_topic_replication_factor": "1",
        "offsets_topic_num_partitions": "3",
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
        "transaction_state_log_num_partitions": "3",
        "group_initial_rebalance_delay_ms": "0",
    }
    with OttlaCluster(tmp_path_factory.mktemp("one"), brokers=1, **settings) as cluster:
        yield cluster


def producer(bootstrap, transactional_id):
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    p = Producer({**settings, "linger.ms": 0, "log_level": 2})
    p.init_transactions(30)
    return p


def create(bootstrap, *topics):
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    for future in admin.create_topics(list(topics), operation_timeout=20).values():
        future.result(30)
    return admin


def test_kafkas_transactional_copier_with_aborts_at_random(broker, kafka_tools):
    source, target, count = fresh("in"), fresh("out"), 400
    create(broker.bootstrap, NewTopic(source, 1, 1), NewTopic(target, 1, 1))
    p = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    lines = [f"line {n}" for n in range(count)]
    for line in lines:
        p.produce(source, line, partition=0)
    assert p.flush(30) == 0
    kafka_tools.run(
        COPIER, "--broker-list", broker.bootstrap, "--input-topic", source,
        "--input-partition", "0", "--output-topic", target, "--transactional-id", fresh("copier"),
        "--consumer-group", fresh("copier"), "--max-messages", str(count),
        "--transaction-size", "40", "--enable-random-aborts", timeout_s=90,
    )  # fmt: skip
    out = kafka_tools.run(
        kafka_tools.CONSOLE_CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", target,
        "--partition", "0", "--offset", "earliest", "--isolation-level", "read_committed",
        "--max-messages", str(count), "--timeout-ms", "30000",
    )  # fmt: skip
    assert out.splitlines() == lines, "each once, in order"


def test_kafkas_transactions_tool(broker, kafka_tools):
    name, transactional_id = fresh("t"), fresh("id")
    create(broker.bootstrap, NewTopic(name, 1, 1))
    p = producer(broker.bootstrap, transactional_id)
    p.begin_transaction()
    p.produce(name, b"x", partition=0)
    assert p.flush(20) == 0
    with kafka_tools.OneJvm() as jvm:

        def tool(*arguments):
            code, out = jvm.call(TRANSACTIONS, "--bootstrap-server", broker.bootstrap, *arguments)
            assert code == 0, out
            return out

        (row,) = [r.split() for r in tool("list").splitlines() if r.startswith(transactional_id)]
        assert (row[1], row[3]) == ("0", "Ongoing")
        out = tool("describe", "--transactional-id", transactional_id)
        (row,) = [r.split() for r in out.splitlines() if transactional_id in r]
        assert (row[0], row[1], row[3], row[4]) == ("0", transactional_id, "0", "Ongoing")
        assert f"{name}-0" in out
        out = tool("describe-producers", "--topic", name, "--partition", "0")
        (row,) = [r.split() for r in out.splitlines() if r and r[0].isdigit()]
        assert (row[1], row[3], row[5]) == ("0", "0", "0"), (
            "epoch, last sequence, transaction start"
        )
        start = row[5]
        tool("abort", "--topic", name, "--partition", "0", "--start-offset", start)
        out = tool("describe-producers", "--topic", name, "--partition", "0")
        (row,) = [r.split() for r in out.splitlines() if r and r[0].isdigit()]
        assert row[5] == "None", "the marker was written"


def test_a_jvm_coordinator_takes_over_in_the_midst_of_a_transaction_and_gives_back(
    tmp_path, kafka_tools
):
    """One leads the data, the other coordinates: verification and markers cross over both ways."""
    from cluster import OttlaCluster
    from kafka39 import Kafka39Cluster

    assert kafka_tools.why_not() is None
    settings = {
        "offsets_topic_num_partitions": "1",
        "offsets_topic_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
        "transaction_state_log_num_partitions": "1",
        "auto_leader_rebalance_enable": "false",
    }
    with OttlaCluster(tmp_path / "ours", brokers=1, **settings) as ours:
        with Kafka39Cluster(
            tmp_path / "theirs", ids=[JVM], zookeeper=ours.zookeeper, heap_mb=320, **settings
        ) as theirs:
            bootstrap = f"{ours.bootstrap},{theirs.bootstrap}"
            admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
            until(lambda: set(admin.list_topics(timeout=10).brokers) == {0, JVM}, "both are known")
            config = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
            create(
                bootstrap,
                NewTopic(INTERNAL, 1, replica_assignment=[[0, JVM]], config=config),
                NewTopic("t", 2, replica_assignment=[[0, JVM], [JVM, 0]]),
            )
            p = producer(bootstrap, "id")
            expected = []

            def send(value):
                """One record to a partition of each kind of leader."""
                for partition in (0, 1):
                    p.produce("t", f"{value}-{partition}", partition=partition)
                assert p.flush(30) == 0

            def lead(broker_id):
                order = [broker_id, JVM if broker_id == 0 else 0]
                connected(bootstrap, lambda client: move(client, INTERNAL, order))

                def leads():
                    found = admin.list_topics(INTERNAL, timeout=10).topics[INTERNAL]
                    return found.partitions[0].leader == broker_id

                until(leads, f"{broker_id} leads")

            for number, to in enumerate((JVM, 0, JVM, 0)):
                p.begin_transaction()
                send(f"before-{number}")
                lead(to)
                send(f"after-{number}")
                if number % 2:
                    p.abort_transaction(60)
                else:
                    p.commit_transaction(60)
                    expected += [f"{w}-{number}-{i}" for w in ("before", "after") for i in (0, 1)]
            # Either coordinator shuts out the older producer of an id that the other gave.
            newer = producer(bootstrap, "id")
            p.begin_transaction()
            p.produce("t", "fenced", partition=0)
            with pytest.raises(KafkaException):
                p.commit_transaction(30)
            newer.begin_transaction()
            newer.produce("t", "last", partition=0)
            newer.commit_transaction(30)
            assert read_committed(bootstrap, "t", 2) == sorted([*expected, "last"])
            theirs.terminate(JVM)


def read_committed(bootstrap, name, partitions):
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": fresh("g"), "enable.partition.eof": True,
            "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 2,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(name, n, 0) for n in range(partitions)])
    values, ended = [], set()
    deadline = time.monotonic() + 40
    while len(ended) < partitions:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            values.append(message.value().decode())
    consumer.close()
    return sorted(values)


async def move(client, topic, order):
    """Make the first of `order` the preferred replica of partition 0, and its leader."""
    r = AlterPartitionReassignmentsRequest
    moved = r.ReassignableTopic(
        name=topic, partitions=[r.ReassignablePartition(partition_index=0, replicas=order)]
    )
    answer = await client.call(r(topics=[moved], timeout_ms=20_000), "controller")
    assert answer.responses[0].partitions[0].error_code == 0
    chosen = [ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])]
    request = ElectLeadersRequest(election_type=0, topic_partitions=chosen, timeout_ms=20_000)

    async def elected():
        results = (await client.call(request, "controller")).replica_election_results
        codes = {p.error_code for t in results for p in t.partition_result}
        return codes <= {0, ErrorCode.ELECTION_NOT_NEEDED}

    deadline = time.monotonic() + 30
    while not await elected():
        assert time.monotonic() < deadline


def until(condition, what, timeout_s=40):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.1)
