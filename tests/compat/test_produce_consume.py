"""Records in and out of the command line, on Ottla and on Kafka 3.9; librdkafka reads along."""

import contextlib
import json
import os
import pty
import random
import re
import select
import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.admin.operations.record_json import to_line
from ottla.model.ids import TopicPartition as Partition
from ottla.wire.records import Record
from support import command_line
from support.clients import admin_client, create_topics, fresh, named
from support.kafka39 import Kafka39Cluster

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(400)]

RECORDS = 10_000
PARTITIONS = 5
TIMESTAMP = 1_750_000_000_000


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def cluster(request, tmp_path_factory):
    """A broker of ours, then one of Kafka's: whatever the command line does, it does with both."""
    if request.param == "ottla":
        yield request.getfixturevalue("coordinator")
        return
    request.getfixturevalue("kafka_tools")
    with Kafka39Cluster(tmp_path_factory.mktemp("kafka"), zookeeper_server="own") as found:
        yield found


def run(cluster, *arguments, stdin=b"", code=0):
    at = ("--bootstrap-server", cluster.bootstrap)
    done = command_line.ottla(*arguments, *at, stdin=stdin, text=False, timeout_s=180)
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    return done


def out(cluster, *arguments, **more):
    return run(cluster, *arguments, **more).stdout


def said(cluster, *arguments, code, **more):
    """Return the one line that a command says that fails, without what it counted."""
    lines = run(cluster, *arguments, code=code, **more).stderr.decode().splitlines()
    return [line for line in lines if " produced to " not in line][-1]


def topic(cluster, partitions=1, **config):
    from confluent_kafka.admin import NewTopic

    name = fresh()
    admin = admin_client(cluster.bootstrap)
    # Some records are of 2025: Kafka looks for old ones after five minutes.
    settings = {"retention.ms": "-1"} | {k.replace("_", "."): v for k, v in config.items()}
    create_topics(admin, NewTopic(name, partitions, 1, config=settings))
    return name


def read(cluster, name, partitions=1, isolation="read_uncommitted"):
    """Return all records that librdkafka reads: (partition, offset, time, key, value, headers)."""
    consumer = Consumer(
        named(
            cluster.bootstrap,
            {"group_id": "nobody", "enable_auto_commit": False, "isolation_level": isolation},
        )
    )
    found = []
    try:
        ends = {}
        for p in range(partitions):
            _, ends[p] = consumer.get_watermark_offsets(TopicPartition(name, p), timeout=20)
        consumer.assign([TopicPartition(name, p, 0) for p in range(partitions)])
        left = {p for p in ends if ends[p]}
        deadline = time.monotonic() + 60
        while left:
            assert time.monotonic() < deadline
            for message in consumer.consume(1000, timeout=0.5):
                assert message.error() is None
                found.append(
                    (message.partition(), message.offset(), message.timestamp()[1], message.key(),
                     message.value(), message.headers() or [])
                )  # fmt: skip
            left = {
                p for p in left if consumer.position([TopicPartition(name, p)])[0].offset < ends[p]
            }
    finally:
        consumer.close()
    return sorted(found, key=lambda f: f[:2])


def generated(seed):
    """Records of every kind: random bytes, texts, nulls, headers of all sorts, some huge."""
    chance = random.Random(seed)

    def content(largest=60):
        kind = chance.randrange(8)
        if kind == 0:
            return None
        if kind == 1:
            return b""
        if kind < 5:
            return chance.randbytes(chance.randrange(largest))
        return "".join(chance.choice('aäß"\\\n\t\x00\x1b\u2028😀') for _ in range(9)).encode()

    for n in range(RECORDS):
        names = [chance.choice(["", "a", "ä", "trace"]) for _ in range(chance.choice([0, 0, 1, 3]))]
        headers = tuple((name, content()) for name in names)
        value = content() if n % 1000 else chance.randbytes(3_000_000)
        yield Record(n, TIMESTAMP + chance.randrange(10**6), content(), value, headers)


def test_ten_thousand_records_come_back_as_they_were(cluster):
    """Written as JSON lines; librdkafka reads what was meant, and so does `consume`; and copied."""
    records = list(generated(1))
    chance = random.Random(2)
    into = [chance.randrange(PARTITIONS) for _ in records]
    lines = [to_line(Partition("x", p), r) for p, r in zip(into, records, strict=True)]
    first, copy = (topic(cluster, PARTITIONS, max_message_bytes="5000000") for _ in range(2))
    run(
        cluster, "produce", first, "--input", "json", "--keep-partitions", "-z", "lz4",
        stdin=b"\n".join(lines),
    )  # fmt: skip
    wanted = [[] for _ in range(PARTITIONS)]
    for p, r in zip(into, records, strict=True):
        wanted[p].append((r.timestamp, r.key, r.value, list(r.headers)))

    def by_partition(name):
        found = read(cluster, name, PARTITIONS)
        return [[f[2:] for f in found if f[0] == n] for n in range(PARTITIONS)]

    assert by_partition(first) == wanted
    printed = out(
        cluster, "consume", first, "--from", "beginning", "--until", "end", "--output", "json"
    )
    assert printed.count(b"\n") == RECORDS
    for n in range(PARTITIONS):
        mine = [line for line in printed.splitlines() if json.loads(line)["partition"] == n]
        offsets = range(len(wanted[n]))
        assert [json.loads(line)["offset"] for line in mine] == list(offsets)
        ours = [r for p, r in zip(into, records, strict=True) if p == n]
        expected = [
            to_line(Partition(first, n), r._replace(offset=o))
            for o, r in zip(offsets, ours, strict=True)
        ]
        assert mine == expected
    run(cluster, "produce", copy, "--input", "json", "--keep-partitions", stdin=printed)
    assert by_partition(copy) == wanted


def test_keys_headers_tombstones_and_partitions(cluster, tmp_path):
    name = topic(cluster, 3)
    run(cluster, "produce", name, "-k", "k", "-H", "a=1", "-H", "b", "-p", 2, stdin=b"one\r\ntwo")
    run(cluster, "produce", "-t", name, "--tombstone", "-k", "k", "-p", "2", stdin=b"not read")
    run(cluster, "produce", name, "--tombstone", "-p", 0, stdin=b"x\ny\n")
    run(
        cluster,
        "produce",
        name,
        "--key-separator",
        "=",
        "--null",
        "-",
        "-p",
        "1",
        stdin=b"-=v\nk=-\n",
    )
    headers = [("a", b"1"), ("b", None)]
    assert [(f[0], *f[3:]) for f in read(cluster, name, 3)] == [
        (0, b"x", None, []), (0, b"y", None, []),
        (1, None, b"v", []), (1, b"k", None, []),
        (2, b"k", b"one", headers), (2, b"k", b"two", headers), (2, b"k", None, []),
    ]  # fmt: skip


def test_files_values_and_templates(cluster, tmp_path):
    name = topic(cluster)
    (tmp_path / "a").write_bytes(b"1\n2")
    (tmp_path / "b").write_bytes(b"3\n")
    (tmp_path / "c").write_bytes(b"\0\n\xff")
    run(cluster, "produce", name, "--file", tmp_path / "a", "--file", tmp_path / "b")
    run(cluster, "produce", name, "--value-file", tmp_path / "c", "-k", "c")
    run(
        cluster, "produce", name, "--format", r"%k\t%v\t%h\0", "--timestamp", f"@{TIMESTAMP}",
        stdin=b"a\tv\nw\tx=1\0b\t\t",
    )  # fmt: skip
    found = read(cluster, name)
    assert [f[3:] for f in found] == [
        (None, b"1", []), (None, b"2", []), (None, b"3", []), (b"c", b"\0\n\xff", []),
        (b"a", b"v\nw", [("x", b"1")]), (b"b", b"", []),
    ]  # fmt: skip
    assert [f[2] for f in found[4:]] == [TIMESTAMP] * 2
    printed = out(
        cluster, "consume", name, "--from", 4, "--until", "end", "-f", r"%t[%p]@%o %k=%v %h %T %d|"
    )
    assert (
        printed
        == (
            f"{name}[0]@4 a=v\nw x=1 {TIMESTAMP} 2025-06-15T15:06:40.000Z|"
            f"{name}[0]@5 b=  {TIMESTAMP} 2025-06-15T15:06:40.000Z|"
        ).encode()
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression_is_what_the_log_has(cluster, codec):
    name = topic(cluster)
    text = b"".join(b"%d %s\n" % (n, b"ab" * 50) for n in range(2000))
    run(cluster, "produce", name, "--compression", codec, stdin=text)
    (log,) = cluster.data(0).glob(f"{name}-0/*.log")
    attributes = int.from_bytes(log.read_bytes()[21:23], "big")
    assert attributes & 7 == ["none", "gzip", "snappy", "lz4", "zstd"].index(codec)
    assert b"".join(f[4] + b"\n" for f in read(cluster, name)) == text


def test_batches_that_a_topic_finds_too_large_are_cut(cluster):
    name = topic(cluster, max_message_bytes="20000")
    text = b"".join(b"%d %s\n" % (n, b"x" * 1000) for n in range(300))
    run(cluster, "produce", name, stdin=text)
    assert b"".join(f[4] + b"\n" for f in read(cluster, name)) == text
    line = said(cluster, "produce", name, code=1, stdin=b"x" * 30_000)
    assert "MESSAGE_TOO_LARGE" in line


def test_records_without_a_key_are_spread(cluster):
    name = topic(cluster, 4)
    # A partition is drawn for each 16 KiB: so often that each of the four is.
    run(cluster, "produce", name, stdin=b"".join(b"%0100d\n" % n for n in range(20_000)))
    assert {f[0] for f in read(cluster, name, 4)} == {0, 1, 2, 3}
    other = topic(cluster, 4)
    run(cluster, "produce", other, "--partitioner", "random", stdin=b"a\n" * 200)
    assert {f[0] for f in read(cluster, other, 4)} == {0, 1, 2, 3}


@pytest.fixture(scope="module")
def numbered(cluster):
    """Three partitions of twenty records, a second from each to the next; some with "even"."""
    name = topic(cluster, 3)
    lines = [
        {"partition": n % 3, "key": str(n), "value": "even" if n % 2 == 0 else "odd",
         "timestamp": TIMESTAMP + n * 1000}
        for n in range(60)
    ]  # fmt: skip
    text = "\n".join(map(json.dumps, lines)).encode()
    run(cluster, "produce", name, "--input", "json", "--keep-partitions", stdin=text)
    return name


NUMBERED = [
    (("--from", "beginning"), range(60)),
    (("--from", "15"), range(45, 60)),
    (("--from", "-2"), range(54, 60)),
    (("--from", f"@{TIMESTAMP + 30_000}"), range(30, 60)),
    (("--from", "2025-06-15T15:07:10+00:00"), range(30, 60)),
    (("--from", "end"), ()),
    (("--from", "beginning", "--until", f"@{TIMESTAMP + 30_000}"), range(30)),
    (("--from", "beginning", "--until", "5"), range(15)),
    (("--from", "beginning", "--until", "-5"), range(45)),
    (("--from", "5", "--until", "6", "-p", "1"), (16,)),
    (("--from-beginning", "-p", "0", "-p", "2"), [n for n in range(60) if n % 3 != 1]),
    (("--offset", "18", "-p", "1"), (55, 58)),
    (("--from", "beginning", "--grep", "^even$"), range(0, 60, 2)),
    (("--from", "beginning", "--grep", "^1[0-3]"), range(10, 14)),
    (("--from", "1s"), ()),
]


@pytest.mark.parametrize(("arguments", "wanted"), NUMBERED, ids=lambda x: " ".join(map(str, x)))
def test_where_reading_begins_and_ends(cluster, numbered, arguments, wanted):
    until = () if "--until" in arguments else ("--until", "end")
    printed = out(cluster, "consume", numbered, *arguments, *until, "-f", r"%k\n")
    assert sorted(map(int, printed.split())) == list(wanted)
    counted = out(cluster, "consume", numbered, *arguments, *until, "--count")
    assert int(counted) == len(wanted)


def test_the_last_records_in_order_of_time(cluster, numbered):
    assert [
        int(k) for k in out(cluster, "consume", numbered, "--tail", 7, "-f", r"%k\n").split()
    ] == [*range(53, 60)]
    everything = out(cluster, "consume", numbered, "--tail", 1000, "-f", r"%k\n")
    assert [int(k) for k in everything.split()] == [*range(60)]
    some = out(cluster, "consume", numbered, "--tail", 20, "--max-messages", 3, "-f", "%k ")
    assert some == b"40 41 42 "


def test_tail_and_follow(cluster):
    name = topic(cluster)
    run(cluster, "produce", name, stdin=b"a\nb\nc\n")
    reading = subprocess.Popen(
        [sys.executable, "-m", "ottla", "consume", name, "--tail", "2", "--follow",
         "--max-messages", "3", "--bootstrap-server", cluster.bootstrap],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert reading.stdout.readline() == b"b\n"
        assert reading.stdout.readline() == b"c\n"
        run(cluster, "produce", name, stdin=b"d\n")
        assert reading.communicate(timeout=60)[0] == b"d\n"
    finally:
        reading.kill()
        reading.wait(10)


def test_counts(cluster, numbered):
    assert out(cluster, "consume", numbered, "--count") == b"60\n"
    found = json.loads(out(cluster, "consume", numbered, "--count", "--output", "json"))
    assert found == [{"topic": numbered, "partition": p, "records": 20} for p in range(3)]


def test_several_topics_and_topics_by_pattern(cluster):
    prefix = fresh("many")
    from confluent_kafka.admin import NewTopic

    names = [f"{prefix}-{n}" for n in range(3)]
    create_topics(admin_client(cluster.bootstrap), *(NewTopic(n, 2, 1) for n in names))
    for n in names:
        run(cluster, "produce", n, stdin=n.encode())
    two = out(cluster, "consume", *names[:2], "--from-beginning", "--until", "end")
    assert sorted(two.decode().split()) == names[:2]
    regex = out(
        cluster, "consume", "--regex", f"{prefix}-[12]", "--from-beginning", "--until", "end",
        "-f", r"%t\n",
    )  # fmt: skip
    assert sorted(regex.decode().split()) == names[1:]
    group = out(
        cluster, "consume", "--regex", f"{prefix}.*", "--group", prefix, "--from-beginning",
        "--max-messages", 3,
    )  # fmt: skip
    assert sorted(group.decode().split()) == names
    again = out(cluster, "consume", *names, "--group", prefix, "--timeout-ms", 2500)
    assert again == b""
    assert "no topic has a name like" in said(cluster, "consume", "--regex", "nosuch.*", code=1)


def test_transactions_by_isolation_level(cluster):
    name = topic(cluster)
    producer = Producer(named(cluster.bootstrap, {"transactional_id": fresh(), "linger_ms": 0}))
    producer.init_transactions(30)
    for text, commit in (("a", True), ("b", False), ("c", True), ("d", None)):
        producer.begin_transaction()
        producer.produce(name, text)
        producer.flush(20)
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)(20)
    try:
        until = ("--from-beginning", "--until", "end")
        every = out(cluster, "consume", name, *until)
        assert every.split() == [b"a", b"b", b"c", b"d"]
        committed = out(cluster, "consume", name, *until, "--isolation", "read_committed")
        assert committed.split() == [b"a", b"c"]
        assert out(cluster, "consume", name, "--tail", "2").split() == [b"c", b"d"]
        last = out(cluster, "consume", name, "--tail", 2, "--isolation", "read_committed")
        assert last.split() == [b"a", b"c"]
    finally:
        with contextlib.suppress(KafkaException):
            producer.abort_transaction(20)


BAD = [
    (("produce", "{t}", "--input", "json"), b'{"value":"a"}\n{}', 1, "line 2: no "),
    (("produce", "{t}", "--key-separator", ":"), b"a:b\nc", 1, "line 2 has no key separator"),
    (("produce", "{t}", "-f", "%k=%v"), b"ab", 1, "line 1: no '=' in it, as --format has it"),
    (("produce", "{t}", "-p", "7"), b"a", 1, "partition 7: topic {t} has partitions 0 to 0"),
    (("produce", "{t}", "-f", r"%p %v\n"), b"7 a", 1, "partition 7: topic {t} has"),
    (("produce", "{t}", "--file", "/nosuch"), b"", 1, "/nosuch: No such file"),
    (("produce", "{t}", "--value-file", "/"), b"", 1, "directory"),
    (("consume", "{t}", "-p", "4", "--until", "end"), b"", 1, "--partition 4: topic {t} has"),
]  # fmt: skip


@pytest.fixture(scope="module")
def small(cluster):
    return topic(cluster)


@pytest.mark.parametrize(("arguments", "stdin", "code", "says"), BAD, ids=lambda x: str(x)[:50])
def test_bad_input_is_one_line(cluster, small, arguments, stdin, code, says):
    told = said(cluster, *(a.format(t=small) for a in arguments), code=code, stdin=stdin)
    assert says.format(t=small) in told


@pytest.mark.timeout(180)
def test_on_a_terminal_there_is_a_prompt_and_a_rate(cluster):
    name = topic(cluster)
    ours, theirs = pty.openpty()
    producing = subprocess.Popen(
        [sys.executable, "-m", "ottla", "produce", name, "--bootstrap-server", cluster.bootstrap],
        stdin=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    shown = b""

    def wait_for(pattern):
        nonlocal shown
        while not re.search(pattern, shown):
            assert select.select([ours], [], [], 30)[0], shown
            shown += os.read(ours, 10_000)

    try:
        wait_for(rb"one record each line, Ctrl-D ends\r\n> ")
        time.sleep(1.1)
        os.write(ours, b"hello\n")
        wait_for(rb"1 record, [01]/s")  # less than 0.5 a second where the broker takes its time
        os.write(ours, b"\x04")
        wait_for(rf"1 record produced to {name} \(".encode())
        assert producing.wait(30) == 0
    finally:
        producing.kill()
        producing.wait(10)
        os.close(ours)
    assert [f[4] for f in read(cluster, name)] == [b"hello"]
