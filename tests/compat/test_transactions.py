"""Transactions on brokers of ours, with the clients people use."""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from pathlib import Path

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


def end_offsets(cluster, name, isolation):
    """Return the offset after the last record that each isolation level may read."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    asked = {TopicPartition(name, p): OffsetSpec.latest() for p in range(PARTITIONS)}
    found = cluster.admin.list_offsets(asked, isolation_level=IsolationLevel[isolation])
    return sum(future.result(20).offset for future in found.values())


def test_an_open_transaction_holds_the_stable_offset_and_its_end_wakes_readers(three):
    from confluent_kafka import Consumer, TopicPartition

    name = topic(three)
    p = producer(three, fresh("id"), **{"linger.ms": 0})
    p.init_transactions(30)
    p.begin_transaction()
    for n in range(6):
        p.produce(name, b"%d" % n, partition=n % PARTITIONS)
    assert p.flush(20) == 0
    assert end_offsets(three, name, "READ_UNCOMMITTED") == 6
    assert end_offsets(three, name, "READ_COMMITTED") == 0
    assert read(three, name) == []
    settings = {
        "bootstrap.servers": three.bootstrap,
        "group.id": fresh("g"),
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 30_000,
        "fetch.min.bytes": 1,
        "log_level": 2,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(name, 0, 0)])
    assert consumer.poll(1) is None, "its fetch is parked now, for half a minute"
    p.commit_transaction(30)
    message = consumer.poll(10)
    assert message is not None
    assert message.value() == b"0"
    consumer.close()
    # A marker stands in each partition, and counts as an offset.
    assert end_offsets(three, name, "READ_COMMITTED") == 6 + PARTITIONS


def test_a_newer_producer_fences_the_older_and_aborts_what_it_left(three):
    from confluent_kafka import KafkaException

    name, transactional_id = topic(three), fresh("id")
    old, new = (producer(three, transactional_id, **{"linger.ms": 0}) for _ in range(2))
    old.init_transactions(30)
    old.begin_transaction()
    old.produce(name, b"left behind", partition=0)
    assert old.flush(20) == 0
    new.init_transactions(30)
    with pytest.raises(KafkaException) as failure:
        old.commit_transaction(30)
    assert failure.value.args[0].fatal()
    assert failure.value.args[0].name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
    new.begin_transaction()
    new.produce(name, b"kept", partition=0)
    new.commit_transaction(30)
    assert read(three, name) == [b"kept"]
    assert read(three, name, "read_uncommitted") == [b"kept", b"left behind"]


def test_the_coordinator_aborts_what_takes_too_long(three):
    from confluent_kafka import KafkaException

    name = topic(three)
    p = producer(three, fresh("id"), **{"transaction.timeout.ms": 1500, "linger.ms": 0})
    p.init_transactions(30)
    p.begin_transaction()
    p.produce(name, b"slow", partition=0)
    assert p.flush(20) == 0
    deadline = time.monotonic() + 20
    while end_offsets(three, name, "READ_COMMITTED") < 2:  # the record and its marker
        assert time.monotonic() < deadline, "nobody aborted it"
        time.sleep(0.1)
    with pytest.raises(KafkaException):
        p.commit_transaction(30)
    assert read(three, name) == []


def test_offsets_of_a_transaction_show_when_it_is_committed(three):
    from confluent_kafka import Consumer, TopicPartition

    source, target, group = topic(three), topic(three), fresh("g")
    p = producer(three, fresh("id"))
    p.init_transactions(30)
    settings = {"bootstrap.servers": three.bootstrap, "group.id": group, "log_level": 2}
    consumer = Consumer(settings)
    tp = TopicPartition(source, 0)
    consumer.assign([tp])

    def committed(require_stable=False):
        with_stable = Consumer(
            {
                **settings,
                "isolation.level": "read_committed" if require_stable else "read_uncommitted",
            }
        )
        try:
            return with_stable.committed([tp], timeout=10)[0].offset
        finally:
            with_stable.close()

    for offset, end in ((5, "abort"), (7, "commit"), (9, "abort")):
        p.begin_transaction()
        p.produce(target, b"%d" % offset, partition=0)
        p.send_offsets_to_transaction(
            [TopicPartition(source, 0, offset)], consumer.consumer_group_metadata(), 30
        )
        p.commit_transaction(30) if end == "commit" else p.abort_transaction(30)
        assert committed(require_stable=True) == {5: -1001, 7: 7, 9: 7}[offset]
    assert read(three, target) == [b"7"]


def test_kafka_python_in_a_transaction(three):
    from kafka import KafkaProducer

    name = topic(three)
    p = KafkaProducer(bootstrap_servers=three.bootstrap, transactional_id=fresh("id"))
    p.init_transactions()
    for end in ("commit", "abort"):
        p.begin_transaction()
        sent = [p.send(name, b"%s %d" % (end.encode(), n), partition=n) for n in range(PARTITIONS)]
        p.flush(20)
        assert all(s.succeeded() for s in sent)
        p.commit_transaction() if end == "commit" else p.abort_transaction()
    p.close(10)
    assert read(three, name) == [b"commit %d" % n for n in range(PARTITIONS)]


def test_aiokafka_in_a_transaction(three):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.structs import TopicPartition

    name, group = topic(three), fresh("g")

    async def run():
        p = AIOKafkaProducer(bootstrap_servers=three.bootstrap, transactional_id=fresh("id"))
        await p.start()
        async with p.transaction():
            for n in range(PARTITIONS):
                await p.send_and_wait(name, b"commit %d" % n, partition=n)
            await p.send_offsets_to_transaction({TopicPartition(name, 0): 1}, group)
        await p.begin_transaction()
        await p.send_and_wait(name, b"abort", partition=0)
        await p.send_offsets_to_transaction({TopicPartition(name, 0): 2}, group)
        await p.abort_transaction()
        await p.stop()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=three.bootstrap,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
        )
        consumer.assign([TopicPartition(name, i) for i in range(PARTITIONS)])
        await consumer.start()
        try:
            assert await consumer.committed(TopicPartition(name, 0)) == 1
            await consumer.seek_to_beginning()
            return sorted([(await consumer.getone()).value for _ in range(PARTITIONS)])
        finally:
            await consumer.stop()

    assert asyncio.run(asyncio.wait_for(run(), 60)) == [b"commit %d" % n for n in range(PARTITIONS)]
    assert read(three, name) == [b"commit %d" % n for n in range(PARTITIONS)]


def ottla(*arguments):
    """Run the command line; return (exit code, standard output, standard error)."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "txn", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_line_lists_describes_and_aborts(three):
    name, transactional_id = topic(three), fresh("id")
    at = ("--bootstrap-server", three.bootstrap)
    p = producer(three, transactional_id, **{"linger.ms": 0})
    p.init_transactions(30)
    p.begin_transaction()
    p.produce(name, b"x", partition=1)
    assert p.flush(20) == 0

    code, out, _ = ottla("list", "--state", "Ongoing", "--output", "json", *at)
    rows = [row for row in json.loads(out) if row["transactional_id"] == transactional_id]
    assert (code, [row["state"] for row in rows]) == (0, ["Ongoing"])
    code, out, _ = ottla("describe", transactional_id, "--output", "json", *at)
    (facts,) = json.loads(out)
    assert (code, facts["state"], facts["partitions"]) == (0, "Ongoing", [f"{name}-1"])
    assert facts["coordinator"] == rows[0]["coordinator"]
    assert facts["producer_id"] == rows[0]["producer_id"]
    assert facts["start_ms"] > 0
    code, out, _ = ottla("producers", name, "1", *at)
    assert code == 0
    assert str(facts["producer_id"]) in out.split()
    code, _, error = ottla("abort", name, "1", "--start-offset", "5", "--yes", *at)
    assert code != 0
    assert "no open transaction began at 5" in error
    code, _, _ = ottla("abort", name, "1", "--start-offset", "0", "--yes", *at)
    assert code == 0
    assert end_offsets(three, name, "READ_COMMITTED") == 2
    assert read(three, name) == []
    code, _, error = ottla("describe", "nobody", *at)
    assert code != 0
    assert "TRANSACTIONAL_ID_NOT_FOUND" in error
    code, _, error = ottla("list", "--state", "Sleeping", *at)
    assert code != 0
    assert "Sleeping" in error


def test_exactly_once_through_kills(tmp_path):
    """The short form of `tests/transaction_proof.py`, whose other victims need `--rounds 4`."""
    proof = Path(__file__).parent.parent / "transaction_proof.py"
    done = subprocess.run(
        [
            sys.executable, str(proof), "--rounds", "2", "--rate", "600", "--before", "4",
            "--down", "4.5", "--after", "1", "--session-timeout", "3000", "--keep", str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exactly once" in done.stdout.splitlines()


def test_what_was_not_added_to_a_transaction_is_refused(three):
    """KIP-890: each version hears it as it knows it, whoever coordinates."""
    from ottla.admin.session import connected
    from ottla.model.errors import ErrorCode
    from ottla.wire.messages.produce import ProduceRequest
    from ottla.wire.records import Record, build_batch

    name, transactional_id = topic(three), fresh("id")
    p = producer(three, transactional_id, **{"linger.ms": 0})
    p.init_transactions(30)
    p.begin_transaction()
    p.produce(name, b"added", partition=0)
    assert p.flush(20) == 0

    async def ask(client):
        from ottla.admin import transactions

        facts = await transactions.describe(client, transactional_id)

        async def produce(indexes, version, *, named=True, epoch=None, ids=(0,)):
            topics = [
                ProduceRequest.TopicProduceData(
                    name=name,
                    partition_data=[
                        ProduceRequest.PartitionProduceData(
                            index=index,
                            records=build_batch(
                                [Record(timestamp=1, value=b"late")],
                                producer_id=facts.producer_id + ids[n % len(ids)],
                                producer_epoch=facts.producer_epoch if epoch is None else epoch,
                                base_sequence=0,
                                is_transactional=True,
                            ),
                        )
                        for n, index in enumerate(indexes)
                    ],
                )
            ]
            request = ProduceRequest(
                transactional_id=transactional_id if named else None,
                acks=-1,
                timeout_ms=10_000,
                topic_data=topics,
            )
            leader = await client.leader(name, indexes[-1], refresh=True)
            answer = await client.call(request, leader, version=version)
            return [ErrorCode(r.error_code) for r in answer.responses[0].partition_responses]

        e = ErrorCode
        for index in (1, 2):
            assert await produce([index], 10) == [e.INVALID_TXN_STATE]
            assert await produce([index], 11) == [e.TRANSACTION_ABORTABLE]
            assert await produce([index], 11, named=False) == [
                e.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            ]
            assert await produce([index], 11, epoch=9) == [e.INVALID_PRODUCER_EPOCH]
        mixed = await produce([0, 1], 11, ids=(0, 1))
        assert mixed == [e.INVALID_PRODUCER_ID_MAPPING] * 2

    connected(three.bootstrap, ask)
    p.commit_transaction(30)
    assert read(three, name, "read_uncommitted") == [b"added"]
