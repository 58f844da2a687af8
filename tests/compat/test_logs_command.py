"""`ottla dump-log` beside Kafka's DumpLogSegments, on files of Ottla and of Kafka; and damage."""

import contextlib
import json
import random
import re
import subprocess

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from ottla.wire.records import Record, build_batch
from support import command_line
from support.clients import admin_client, create_topics, fresh, named
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.schemas import SCHEMAS, problems
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]

SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "2",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "2",
    "log_cleaner_backoff_ms": "300",
    "group_initial_rebalance_delay_ms": "0",
}
DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def ottla(*arguments, code=0):
    done = command_line.ottla("dump-log", *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def kafkas(kafka_tools, *arguments):
    """Return what Kafka's tool prints, with the line ends that are in it."""
    command = kafka_tools.command(kafka_tools.DUMP_LOG, *arguments)
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    return done.stdout.decode()


def fill(cluster):
    """Write what makes every kind of file and entry; return the topics."""
    plain, compacted, many = fresh("plain"), fresh("compacted"), fresh("many")
    create_topics(
        admin_client(cluster.bootstrap),
        NewTopic(plain, 1, 1, config={"segment.bytes": "20000", "index.interval.bytes": "500"}),
        NewTopic(
            compacted, 1, 1,
            config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01",
                    "segment.bytes": "3000", "index.interval.bytes": "200"},
        ),
        NewTopic(many, 1, 1, config={"message.timestamp.type": "LogAppendTime"}),
    )  # fmt: skip
    chance = random.Random(3)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            named(cluster.bootstrap, {"compression_codec": codec, "enable_idempotence": True})
        )
        for n in range(400):
            key = chance.choice([None, b"", b"k", "ä".encode(), b"\xff\xfe", b"k%d" % n])
            headers = chance.choice([[], [("a", b"1"), ("", None)]])
            value = chance.choice(
                [
                    None,
                    b"",
                    b"v%d" % n,
                    chance.randbytes(20).replace(b"\n", b"").replace(b"\r", b""),
                ]
            )
            producer.produce(plain, value, key, headers=headers)
            producer.produce(many, b"%d" % n)
            producer.produce(compacted, None if n % 3 == 0 else b"x" * 50, b"key%d" % (n % 9))
            if n % 7 == 0:
                producer.flush(20)
        producer.flush(20)
    transactional = Producer(named(cluster.bootstrap, {"transactional_id": fresh()}))
    transactional.init_transactions(30)
    consumer = Consumer(
        named(cluster.bootstrap, {"group_id": fresh(), "auto_offset_reset": "earliest"})
    )
    consumer.subscribe([plain])
    until(lambda: consumer.poll(0.5) is not None, 60, "a record is read")
    for n in range(6):
        transactional.begin_transaction()
        transactional.produce(plain, b"in transaction %d" % n)
        if n % 2:
            transactional.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 20
            )
            transactional.commit_transaction(20)
        else:
            transactional.flush(20)
            transactional.abort_transaction(20)
    wide = fresh("wide")
    create_topics(admin_client(cluster.bootstrap), NewTopic(wide, 40, 1))
    for count in (3, 12, 40):
        transactional.begin_transaction()
        for n in chance.sample(range(40), count):
            transactional.produce(wide, b"x", partition=n)
            transactional.produce(plain, b"x")
        transactional.commit_transaction(20)
    transactional.begin_transaction()
    transactional.produce(plain, b"undecided")
    transactional.flush(20)
    consumer.subscribe([plain, wide])

    def read_anew():
        # Else there is nothing to commit: to be assigned takes away what was read before.
        message = consumer.poll(0.5)
        return message is not None and not message.error() and len(consumer.assignment()) > 20

    until(read_anew, 60, "all partitions are assigned, and read")
    consumer.commit(asynchronous=False)
    notes = 'a "note" \\ \t\x01\x1f\x7f ä \u2028 😀'
    consumer.commit(
        offsets=[TopicPartition(wide, 1, 7, metadata=notes), TopicPartition(wide, 2, 1 << 40)],
        asynchronous=False,
    )
    consumer.close()
    gone = fresh("gone")
    commits = [ConsumerGroupTopicPartitions(gone, [TopicPartition(plain, 0, 3)])]
    admin = admin_client(cluster.bootstrap)
    admin.alter_consumer_group_offsets(commits)[gone].result(20)
    admin.delete_consumer_groups([gone])[gone].result(20)
    folder = cluster.data(0) / f"{compacted}-0"
    until(
        lambda: any(a & 0x40 for a in attributes(folder)),
        60,
        "the cleaner has set a delete horizon",
    )
    return plain, compacted, many


def attributes(folder):
    """Return the attributes of all batches of a log, the lower byte of each."""
    found = []
    with contextlib.suppress(OSError):
        for path in folder.glob("*.log"):
            data = path.read_bytes()
            at = 0
            while at + 61 <= len(data):
                found.append(data[at + 22])
                at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def folder(request, kafka_tools, tmp_path_factory):
    """Yield the log dir of a broker that stopped cleanly."""
    kind = OttlaCluster if request.param == "ottla" else Kafka39Cluster
    path = tmp_path_factory.mktemp(request.param)
    with kind(path, 1, **SETTINGS) as cluster:
        fill(cluster)
        cluster.terminate(0)
        yield cluster.data(0)


def test_texts_that_are_no_utf8_are_shown_as_javas(kafka_tools, tmp_path):
    chance = random.Random(5)
    leads = [b"\xed", b"\xe0", b"\xf0", b"\xf4", b"\xc3", b""]
    values = [
        (chance.choice(leads) + chance.randbytes(3) + chance.choice(leads) + chance.randbytes(2))
        for _ in range(20_000)
    ]
    file = tmp_path / f"{0:020}.log"
    file.write_bytes(build_batch([Record(timestamp=1, value=v) for v in values]))
    theirs = kafkas(kafka_tools, "--print-data-log", "--files", str(file))
    assert ottla("--print-data-log", file).split("\n") == theirs.split("\n")


def files(folder):
    found = sorted(p for p in folder.glob("*/*") if p.suffix in DUMPED)
    endings = {p.suffix for p in found}
    assert endings == set(DUMPED), endings
    return found


@pytest.mark.parametrize(
    "options",
    [(), ("--deep-iteration",), ("--print-data-log",)],
    ids=lambda o: "".join(o) or "batches",
)
def test_the_lines_are_those_of_kafkas_tool(folder, kafka_tools, options):
    paths = files(folder)
    theirs = kafkas(kafka_tools, *options, "--files", ",".join(map(str, paths))).split("\n")
    ours = ottla(*options, *paths).split("\n")
    assert len(theirs) > 500
    assert any("OptionalLong[" in line for line in theirs)
    different = [(a, b) for a, b in zip(theirs, ours, strict=False) if a != b]
    assert not different, different[:3]
    assert len(ours) == len(theirs)


@pytest.mark.parametrize(
    ("topic", "option", "least", "signs"),
    [
        (
            "__consumer_offsets", "--offsets-decoder", 12,
            ('"ownedPartitions"', '"assignedPartitions"', r'"members":\[\]', "<DELETE>",
             r"\\u001F"),
        ),
        (
            "__transaction_state", "--transaction-log-decoder", 30,
            ("state=PrepareAbort", "state=CompleteCommit", r"partitions=\[\]", r"-39[,\]]"),
        ),
    ],
    ids=["offsets", "transactions"],
)  # fmt: skip
def test_states_are_decoded_as_by_kafkas_tool(folder, kafka_tools, topic, option, least, signs):
    paths = sorted(folder.glob(f"{topic}-*/*.log"))
    theirs = kafkas(kafka_tools, option, "--files", ",".join(map(str, paths))).split("\n")
    ours = ottla(option, *paths).split("\n")
    shown = [line for line in theirs if " payload: " in line]
    assert len(shown) > least
    for sign in signs:
        # Scala's set keeps partitions by hash: any of them may be the last, before the bracket.
        assert any(re.search(sign, line) for line in shown), (sign, shown)
    different = [(a, b) for a, b in zip(theirs, ours, strict=False) if a != b]
    assert not different, different[:3]
    assert len(ours) == len(theirs)
    assert ottla("--contents", *paths).split("\n") == ours, "told by the name of the folder"
    found = json.loads(ottla("--contents", *paths, "--output", "json"))
    assert problems(found, SCHEMAS["dump-log"]) == []
    decoded = [f["decoded"] for f in found if f["kind"] == "record" and f["marker"] is None]
    assert len(decoded) == len(shown)
    assert all(d["key"] for d in decoded)


def test_nothing_is_wrong_with_what_a_broker_wrote(folder):
    assert ottla("--check", folder) == ""
    text = ottla(folder)
    assert "topic_id: " in text
    assert "broker.id: 0" in text
    assert "epoch: 0 startOffset: 0" in text
    for checkpoint in ("replication-offset-checkpoint", "cleaner-offset-checkpoint"):
        rows = (folder / checkpoint).read_text().splitlines()[2:]
        assert rows
        for row in rows:
            topic, partition, offset = row.split()
            assert f"topic: {topic} partition: {partition} offset: {offset}\n" in text


def test_json_says_what_the_lines_say(folder):
    paths = files(folder)
    lines = [x for x in ottla(*paths, "--records").splitlines() if ": " in x]
    lines = [x for x in lines if not x.startswith(("Log starting", "Found "))]
    found = json.loads(ottla(*paths, "--records", "--output", "json"))
    assert len(found) == len(lines)
    assert problems(found, SCHEMAS["dump-log"]) == []
    assert {f["kind"] for f in found} == {
        "batch", "record", "index", "time_index", "aborted_transaction", "producer",
    }  # fmt: skip
    for entry, line in zip(found, lines, strict=True):
        for field in ("position", "last_offset", "offset", "crc", "producer_id", "size"):
            if entry.get(field) is not None:
                assert f" {entry[field]}" in line, (entry, line)
    assert (
        json.loads(ottla(folder / "meta.properties", "--output", "json"))[0]["kind"] == "property"
    )
