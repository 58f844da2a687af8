"""Transactions on brokers of ours, with the clients people use."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from support import command_line
from support.clients import create_topic, end_offsets, fresh, named, read_ended, read_to_end
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(120)]

PARTITIONS = 3


@pytest.fixture
def name(admin):
    return new_topic(admin)


def new_topic(admin):
    return create_topic(admin, PARTITIONS, 3, min_insync_replicas="2")


def transactional(cluster, transactional_id, **settings):
    """Return a producer whose transactions can begin."""
    producer = Producer(
        named(cluster.bootstrap, {"transactional_id": transactional_id, **settings})
    )
    producer.init_transactions(30)
    return producer


def committed(cluster, name):
    """Return what was committed in a topic, once nobody is about to add to it."""
    return sorted(read_ended(cluster.bootstrap, name, PARTITIONS))


def everything(cluster, name):
    return sorted(read_to_end(cluster.bootstrap, name, PARTITIONS, "read_uncommitted"))


def test_commit_shows_and_abort_hides(three, name):
    p = transactional(three, fresh("id"))
    for round_, end in enumerate(["commit", "abort", "commit"]):
        p.begin_transaction()
        for n in range(30):
            p.produce(name, f"{round_}-{n:02}".encode(), partition=n % PARTITIONS)
        p.commit_transaction(30) if end == "commit" else p.abort_transaction(30)
    expected = sorted(f"{r}-{n:02}".encode() for r in (0, 2) for n in range(30))
    assert committed(three, name) == expected
    # An aborted transaction is not sent to the brokers as far as the client still held it back.
    assert set(everything(three, name)) >= set(expected)


def end_shown(admin, name, isolation):
    return end_offsets(admin, name, PARTITIONS, isolation)


def test_an_open_transaction_holds_the_stable_offset_and_its_end_wakes_readers(three, admin, name):
    p = transactional(three, fresh("id"), linger_ms=0)
    p.begin_transaction()
    for n in range(6):
        p.produce(name, b"%d" % n, partition=n % PARTITIONS)
    assert p.flush(20) == 0
    assert end_shown(admin, name, "read_uncommitted") == 6
    assert end_shown(admin, name, "read_committed") == 0
    assert read_to_end(three.bootstrap, name, PARTITIONS, "read_committed") == []
    settings = {
        "group_id": fresh("g"),
        "isolation_level": "read_committed",
        "fetch_wait_max_ms": 30_000,
        "fetch_min_bytes": 1,
    }
    consumer = Consumer(named(three.bootstrap, settings))
    consumer.assign([TopicPartition(name, 0, 0)])
    assert consumer.poll(1) is None, "its fetch is parked now, for half a minute"
    p.commit_transaction(30)
    message = consumer.poll(20)  # it was parked a second ago: by itself it would end after that
    assert message is not None
    assert message.value() == b"0"
    consumer.close()
    # A marker stands in each partition, and counts as an offset.
    assert len(committed(three, name)) == 6
    assert end_shown(admin, name, "read_committed") == 6 + PARTITIONS


def test_a_newer_producer_fences_the_older_and_aborts_what_it_left(three, name):
    transactional_id = fresh("id")
    old = transactional(three, transactional_id, linger_ms=0)
    old.begin_transaction()
    old.produce(name, b"left behind", partition=0)
    assert old.flush(20) == 0
    new = transactional(three, transactional_id, linger_ms=0)
    with pytest.raises(KafkaException) as failure:
        old.commit_transaction(30)
    assert failure.value.args[0].fatal()
    assert failure.value.args[0].name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
    new.begin_transaction()
    new.produce(name, b"kept", partition=0)
    new.commit_transaction(30)
    assert committed(three, name) == [b"kept"]
    assert everything(three, name) == [b"kept", b"left behind"]


def test_the_coordinator_aborts_what_takes_too_long(three, admin, name):
    # Longer than a busy machine needs from the beginning to the record.
    p = transactional(three, fresh("id"), transaction_timeout_ms=8000, linger_ms=0)
    p.begin_transaction()
    p.produce(name, b"slow", partition=0)
    assert p.flush(20) == 0
    # The record and its marker.
    until(lambda: end_shown(admin, name, "read_committed") == 2, 60, "somebody aborts it")
    with pytest.raises(KafkaException):
        p.commit_transaction(30)
    assert committed(three, name) == []


def test_offsets_of_a_transaction_show_when_it_is_committed(three, admin, name):
    source, group = new_topic(admin), fresh("g")
    p = transactional(three, fresh("id"))
    consumer = Consumer(named(three.bootstrap, {"group_id": group}))
    tp = TopicPartition(source, 0)
    consumer.assign([tp])

    def stable_offset():
        """Return the group's offset; who asks for stable ones waits while one is pending."""
        settings = {"group_id": group, "isolation_level": "read_committed"}
        reader = Consumer(named(three.bootstrap, settings))
        try:
            return reader.committed([tp], timeout=30)[0].offset
        finally:
            reader.close()

    for offset, end in ((5, "abort"), (7, "commit"), (9, "abort")):
        p.begin_transaction()
        p.produce(name, b"%d" % offset, partition=0)
        p.send_offsets_to_transaction(
            [TopicPartition(source, 0, offset)], consumer.consumer_group_metadata(), 30
        )
        p.commit_transaction(30) if end == "commit" else p.abort_transaction(30)
        assert stable_offset() == {5: -1001, 7: 7, 9: 7}[offset]
    assert committed(three, name) == [b"7"]


def test_kafka_python_in_a_transaction(three, name):
    from kafka import KafkaProducer

    p = KafkaProducer(bootstrap_servers=three.bootstrap, transactional_id=fresh("id"))
    p.init_transactions()
    for end in ("commit", "abort"):
        p.begin_transaction()
        sent = [p.send(name, b"%s %d" % (end.encode(), n), partition=n) for n in range(PARTITIONS)]
        p.flush(20)
        assert all(s.succeeded() for s in sent)
        p.commit_transaction() if end == "commit" else p.abort_transaction()
    p.close(10)
    assert committed(three, name) == [b"commit %d" % n for n in range(PARTITIONS)]


def test_aiokafka_in_a_transaction(three, name):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.structs import TopicPartition

    group = fresh("g")

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
            while (offset := await consumer.committed(TopicPartition(name, 0))) is None:
                await asyncio.sleep(0.05)  # its marker is on its way
            assert offset == 1
            await consumer.seek_to_beginning()
            return sorted([(await consumer.getone()).value for _ in range(PARTITIONS)])
        finally:
            await consumer.stop()

    assert asyncio.run(asyncio.wait_for(run(), 60)) == [b"commit %d" % n for n in range(PARTITIONS)]
    assert committed(three, name) == [b"commit %d" % n for n in range(PARTITIONS)]


def ottla(*arguments):
    """Run the command line; return (exit code, standard output, standard error)."""
    done = command_line.ottla("txn", *arguments)
    return done.returncode, done.stdout, done.stderr


def test_the_command_line_lists_describes_and_aborts(three, admin, name):
    transactional_id = fresh("id")
    at = ("--bootstrap-server", three.bootstrap)
    p = transactional(three, transactional_id, linger_ms=0)
    p.begin_transaction()
    p.produce(name, b"x", partition=1)
    assert p.flush(20) == 0

    code, out, _ = ottla("list", "--state", "Ongoing", "--output", "json", *at)
    rows = [row for row in json.loads(out) if row["transactional_id"] == transactional_id]
    assert (code, [row["state"] for row in rows]) == (0, ["Ongoing"])
    code, out, _ = ottla("describe", transactional_id, "--output", "json", *at)
    (facts,) = json.loads(out)
    assert (code, facts["state"], facts["partitions"]) == (
        0,
        "Ongoing",
        [{"topic": name, "partition": 1}],
    )
    assert facts["coordinator"] == rows[0]["coordinator"]
    assert facts["producer_id"] == rows[0]["producer_id"]
    assert facts["start_ms"] > 0
    code, out, _ = ottla("producers", name, "1", *at)
    assert code == 0
    assert str(facts["producer_id"]) in out.split()
    code, out, _ = ottla("hanging", "--topic", name, "--older-than", "0s", "--output", "json", *at)
    assert (code, json.loads(out)) == (0, []), "its coordinator knows it"
    code, _, error = ottla("abort", name, "1", "--start-offset", "5", "--yes", *at)
    assert code != 0
    assert "no open transaction began at 5" in error
    code, _, _ = ottla("abort", name, "1", "--start-offset", "0", "--yes", *at)
    assert code == 0
    assert end_shown(admin, name, "read_committed") == 2
    assert committed(three, name) == []
    code, _, error = ottla("describe", "nobody", *at)
    assert code != 0
    assert "TRANSACTIONAL_ID_NOT_FOUND" in error
    code, _, error = ottla("list", "--state", "Sleeping", *at)
    assert code != 0
    assert "Sleeping" in error


@pytest.mark.timeout(400)
def test_exactly_once_through_kills(tmp_path):
    """The short form of transaction_proof.py, whose other victims need `--rounds 4`."""
    proof = Path(__file__).parents[1] / "proofs" / "transaction_proof.py"
    command = [
        sys.executable, str(proof), "--rounds", "2", "--rate", "600", "--before", "4",
        "--down", "4.5", "--after", "1", "--session-timeout", "3000", "--keep", str(tmp_path),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        try:
            out, _ = running.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)  # so that it stops its brokers
            out, _ = running.communicate(timeout=40)
    assert running.returncode == 0, out.decode()
    assert "exactly once" in out.decode().splitlines()


def test_what_was_not_added_to_a_transaction_is_refused(three, name):
    """KIP-890: each version hears it as it knows it, whoever coordinates."""
    from ottla.admin.session import connected
    from ottla.model.errors import ErrorCode
    from ottla.wire.messages.records import ProduceRequest
    from ottla.wire.records import Record, build_batch

    transactional_id = fresh("id")
    p = transactional(three, transactional_id, linger_ms=0)
    p.begin_transaction()
    p.produce(name, b"added", partition=0)
    assert p.flush(20) == 0

    async def ask(client):
        from ottla.client import transactions

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
    assert everything(three, name) == [b"added"]
