"""Transactions with Kafka's own tools and clients, and with a JVM coordinator beside ours."""

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

from support.clients import (
    admin_client,
    create_topic,
    create_topics,
    fresh,
    named,
    produce,
    read_ended,
)

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(240)]

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
INTERNAL = "__transaction_state"
JVM = 10


def transactional(bootstrap, transactional_id):
    p = Producer(named(bootstrap, {"transactional_id": transactional_id, "linger_ms": 0}))
    p.init_transactions(30)
    return p


def test_kafkas_transactional_copier_with_aborts_at_random(coordinator, kafka_tools):
    admin, count = admin_client(coordinator.bootstrap), 400
    source, target = (create_topic(admin, 1, 1) for _ in range(2))
    lines = [f"line {n}" for n in range(count)]
    produce(coordinator.bootstrap, source, lines, 1)
    kafka_tools.run(
        COPIER, "--broker-list", coordinator.bootstrap, "--input-topic", source,
        "--input-partition", "0", "--output-topic", target, "--transactional-id", fresh("copier"),
        "--consumer-group", fresh("copier"), "--max-messages", str(count),
        "--transaction-size", "40", "--enable-random-aborts", timeout_s=90,
    )  # fmt: skip
    out = kafka_tools.run(
        kafka_tools.CONSOLE_CONSUMER, "--bootstrap-server", coordinator.bootstrap,
        "--topic", target, "--partition", "0", "--offset", "earliest",
        "--isolation-level", "read_committed", "--max-messages", str(count),
        "--timeout-ms", "30000",
    )  # fmt: skip
    assert out.splitlines() == lines, "each once, in order"


def test_kafkas_transactions_tool(coordinator, kafka_tools):
    name = create_topic(admin_client(coordinator.bootstrap), 1, 1)
    transactional_id = fresh("id")
    p = transactional(coordinator.bootstrap, transactional_id)
    p.begin_transaction()
    p.produce(name, b"x", partition=0)
    assert p.flush(20) == 0
    with kafka_tools.OneJvm() as jvm:

        def tool(*arguments):
            code, out = jvm.call(
                TRANSACTIONS, "--bootstrap-server", coordinator.bootstrap, *arguments
            )
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
    from support.mixed import MixedCluster

    assert kafka_tools.why_not() is None
    settings = {
        "offsets_topic_num_partitions": "1",
        "offsets_topic_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
        "transaction_state_log_num_partitions": "1",
    }
    with MixedCluster(tmp_path, ours=1, theirs=1, **settings) as mixed:
        mixed.wait_agreed()
        config = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
        create_topics(
            admin_client(mixed.bootstrap),
            NewTopic(INTERNAL, 1, replica_assignment=[[0, JVM]], config=config),
            NewTopic("t", 2, replica_assignment=[[0, JVM], [JVM, 0]]),
        )
        p = transactional(mixed.bootstrap, "id")
        expected = []

        def send(value):
            """One record to a partition of each kind of leader."""
            for partition in (0, 1):
                p.produce("t", f"{value}-{partition}", partition=partition)
            assert p.flush(30) == 0

        for number, to in enumerate((JVM, 0, JVM, 0)):
            p.begin_transaction()
            send(f"before-{number}")
            mixed.give_lead_to(to, INTERNAL)
            send(f"after-{number}")
            if number % 2:
                p.abort_transaction(60)
            else:
                p.commit_transaction(60)
                expected += [f"{w}-{number}-{i}" for w in ("before", "after") for i in (0, 1)]
        # Either coordinator shuts out the older producer of an id that the other gave.
        newer = transactional(mixed.bootstrap, "id")
        p.begin_transaction()
        p.produce("t", "fenced", partition=0)
        with pytest.raises(KafkaException):
            p.commit_transaction(30)
        newer.begin_transaction()
        newer.produce("t", "last", partition=0)
        newer.commit_transaction(30)
        found = sorted(v.decode() for v in read_ended(mixed.bootstrap, "t", 2))
        assert found == sorted([*expected, "last"])
