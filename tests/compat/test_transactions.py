"""Transactions on brokers of ours, with the clients people use."""

import uuid

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(120)]

SETTINGS = {
    "offsets_topic_num_partitions": "4",
    "transaction_state_log_num_partitions": "4",
    "group_initial_rebalance_delay_ms": "0",
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "500",
}
PARTITIONS = 3


def fresh(prefix):
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    from cluster import OttlaCluster

    folder = tmp_path_factory.mktemp("transactions")
    with OttlaCluster(folder, brokers=3, session_timeout_ms=4000, **SETTINGS) as cluster:
        yield cluster


def topic(cluster):
    from confluent_kafka.admin import AdminClient, NewTopic

    if not hasattr(cluster, "admin"):
        cluster.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    name = fresh("t")
    new = NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    cluster.admin.create_topics([new], operation_timeout=20)[name].result(30)
    return name


def producer(cluster, transactional_id, **settings):
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id,
            "log_level": 2,
            **settings,
        }
    )


def read(cluster, name, isolation="read_committed", group=None):
    """Return all values of a topic, sorted, up to the end that this isolation shows."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group or fresh("reader"),
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(name, p, 0) for p in range(PARTITIONS)])
    values, ended = [], set()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(20)
            assert message is not None, f"no end of {name} within 20 s: {ended}"
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                ended.add(message.partition())
            else:
                values.append(message.value())
    finally:
        consumer.close()
    return sorted(values)


def test_commit_shows_and_abort_hides(three):
    name = topic(three)
    p = producer(three, fresh("id"))
    p.init_transactions(30)
    for round_, end in enumerate(["commit", "abort", "commit"]):
        p.begin_transaction()
        for n in range(30):
            p.produce(name, f"{round_}-{n:02}".encode(), partition=n % PARTITIONS)
        p.commit_transaction(30) if end == "commit" else p.abort_transaction(30)
    committed = sorted(f"{r}-{n:02}".encode() for r in (0, 2) for n in range(30))
    assert read(three, name) == committed
    # An aborted transaction is not sent to the brokers as far as the client still held it back.
    assert set(read(three, name, "read_uncommitted")) >= set(committed)
