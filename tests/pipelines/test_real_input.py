"""The lake job on what others wrote: garbage of every kind, a public git history, request logs.

Truth is never the lake's own: the producer's acknowledgements, git's own counts by day, a plain
parser of the log. Readers are pyarrow, Spark and DuckDB over the folders alone.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from support import kafka39, kafka_tools
from support.clients import admin_client, create_topics, named
from support.cluster import OttlaCluster
from support.landed import (
    Produced,
    by_duckdb,
    by_library,
    by_spark,
    differences,
    numbered,
    run_here,
    settings_of,
)

pytestmark = [
    pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.alone,
    pytest.mark.timeout(900),
]  # fmt: skip
MIB = 1 << 20
HISTORY = "OTTLA_GIT_HISTORY"
"""The folder of a clone of a public repository. Its data is not ours to keep here."""
LATE_MS = 86_400_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    few = {"offsets_topic_num_partitions": "3"}
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=1, **few) as cluster:
        yield cluster


def create(cluster, topic, partitions, *settings):
    command = [sys.executable, "-m", "ottla", "topics", "create", topic, "--partitions",
               str(partitions), "--replication-factor", "1",
               *(word for one in settings for word in ("--config", one)),
               "--bootstrap-server", cluster.bootstrap]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    return Produced(cluster.bootstrap, topic)


def big(n, size=MIB):
    """Return a JSON object of a size: most of it is text."""
    frame = json.dumps({"n": n, "day": "2026-01-02", "note": ""})
    return frame.replace('"note": ""', f'"note": "{"x" * (size - len(frame))}"').encode()


GARBAGE = [
    b"no json", b'{"n": "five"}', b'{"n": [1], "day": "2026-01-01"}', b'{"n": 1, "note": "\xff"}',
    b"", b"null", b"\x00\x01\x02\xfe", b"[1, 2]", b"x" * MIB, b"\xff" * MIB, big(1)[:-1],
]  # fmt: skip
"""None of them is a row."""


def garbage(count):
    """Return records of which one in ten is a tombstone, of 1 MiB, or nothing that fits."""
    kinds = [*GARBAGE, None]
    for n, (key, value) in enumerate(numbered(0, count)):
        if n % 10 == 3:
            yield key, kinds[n // 10 % len(kinds)]
        elif n % 500 == 0:
            yield (None, big(n))  # fits, and has 1 MiB
        else:
            yield key, value


def rows_hash(spark, source, **options):
    read = spark.read.format(source).options(**options).load()
    return tuple(
        read.selectExpr(
            "count(*)", "count(distinct partition, offset)", "sum(length(value))",
            "sum(cast(xxhash64(topic, partition, offset, key, value) as decimal(38, 0)))",
        ).first()
    )  # fmt: skip


def test_a_tenth_of_garbage_with_records_of_a_mebibyte(cluster, spark, tmp_path):
    produced = create(cluster, "garbage", 3, f"max.message.bytes={2 * MIB}")
    produced.send(garbage(3000))
    values = [value for _, value, _ in produced.acked.values()]
    letters = [v for v in values if v in set(GARBAGE)]
    assert Counter(v is None for v in values)[True] == 25
    assert len(letters) == 275
    assert sum(len(v or b"") >= MIB - 1 for v in values) > 75

    ours = rows_hash(spark, "ottla", bootstrap=cluster.bootstrap, subscribe=produced.topic)
    theirs = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": produced.topic}
    assert ours == rows_hash(spark, "kafka", **theirs)
    assert ours[:3] == (3000, 3000, sum(len(v or b"") for v in values))

    sets = settings_of(
        cluster.bootstrap, tmp_path, [produced.topic], lake__batch_records=1000
    )  # fmt: skip
    done = run_here(spark, sets, "--verify")
    assert (done.code, done.result["exactly_once"]) == (0, True), done.told
    told = done.result["topics"][produced.topic]
    assert (told["rows"], told["dead"]) == (3000 - len(letters), len(letters))
    folder = tmp_path / produced.topic
    for rows_of in (by_library, by_duckdb, lambda f: by_spark(spark, f)):
        rows, dead = rows_of(folder / "data"), rows_of(folder / "dead")
        assert differences(rows, produced, dead) == []
        assert Counter(bytes(d["kafka_value"]) for d in dead) == Counter(letters)
    whole = [row for row in rows if row["n"] is not None and len(row["note"]) > MIB // 2]
    assert len(whole) == 6
    assert {len(big(row["n"])) for row in whole} == {MIB}


def git(*words):
    done = subprocess.run(
        ["git", "-C", os.environ[HISTORY], *words], capture_output=True, check=True, timeout=300,
        env={**os.environ, "TZ": "UTC"},
    )  # fmt: skip
    return done.stdout.decode("utf-8", errors="replace")


def file_changes():
    """Return (key, JSON, ms of the author, ms of the committer) of each file of each commit."""
    found = []
    text = git("log", "HEAD", "--reverse", "--no-renames", "--name-status", "-z",
               "--format=%x01%H%x02%at%x02%ct%x02%ae")  # fmt: skip
    for commit in text.split("\x01")[1:]:
        head, *words = commit.replace("\n", "", 1).split("\0")
        name, authored, committed, author = head.split("\x02")
        words = [w.strip("\n") for w in words if w.strip("\n")]
        for change, path in zip(words[::2], words[1::2], strict=True):
            event = {
                "commit": name,
                "authored": datetime.fromtimestamp(int(authored), UTC).isoformat(),
                "author": hashlib.sha256(author.encode()).hexdigest()[:16],
                "change": change, "path": path,
            }  # fmt: skip
            found.append((path.encode(), json.dumps(event).encode(), int(authored) * 1000,
                          int(committed) * 1000))  # fmt: skip
    return found


def produce_at(cluster, topic, events):
    """Produce events with their own times; return {(partition, offset): (key, value, [])}."""
    from confluent_kafka import Producer

    acked, failed = {}, []
    producer = Producer(named(cluster.bootstrap, {"acks": "all", "linger_ms": 20}))
    for key, value, ms, _ in events:

        def told(error, message, key=key, value=value):
            if error is not None:
                failed.append(error)
            else:
                acked[message.partition(), message.offset()] = (key, value, [])

        producer.produce(topic, value, key, timestamp=ms, on_delivery=told)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed
    return acked


@pytest.mark.skipif(HISTORY not in os.environ, reason=f"{HISTORY} names no public git repository")
def test_a_git_history_with_late_events_by_date(cluster, spark, tmp_path, capsys):
    """Events come in the order of commits; the date is the author's, days or months before."""
    events = file_changes()
    late = sum(committed - authored > LATE_MS for _, _, authored, committed in events)
    assert late > 100
    topic = "history"
    produced = create(cluster, topic, 3, "retention.ms=-1")  # their times are years ago
    sets = settings_of(
        cluster.bootstrap, tmp_path, [topic], layout__date="to_date(authored)",
        value__schema="commit string, authored string, author string, change string, path string",
        lake__batch_records=20_000,
    )  # fmt: skip
    before = len(events) // 2
    produced.acked = produce_at(cluster, topic, events[:before])
    first = run_here(spark, sets)
    assert first.code == 0, first.told
    produced.acked |= produce_at(cluster, topic, events[before:])
    second = run_here(spark, sets, "--verify")
    assert (second.code, second.result["exactly_once"]) == (0, True), second.told

    rows = by_library(tmp_path / topic / "data")
    assert differences(rows, produced) == []
    assert differences(by_duckdb(tmp_path / topic / "data"), produced) == []
    # By day what git itself says of each changed file.
    lines = git("log", "HEAD", "--no-renames", "--name-only", "-z", "--date=format-local:%Y-%m-%d",
                "--format=%x01%ad")  # fmt: skip
    truth = Counter()
    for commit in lines.split("\x01")[1:]:
        day, *paths = commit.replace("\n", "\0").split("\0")
        truth[day] += sum(bool(path) for path in paths)
    assert Counter(str(row["event_date"]) for row in rows) == +truth


REQUESTS = "\nlog4j.logger.kafka.request.logger=DEBUG\n"
MARK = "Completed request:"


class DebuggedOttla(OttlaCluster):
    def command(self, broker, config):
        return [*super().command(broker, config), "--log-level", "debug"]


@pytest.fixture(params=["kafka", "ottla"])
def request_log(request, tmp_path, monkeypatch):
    """Return the JSON that a broker of Kafka's or ours wrote of each request, as clients worked."""
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import NewTopic

    if (missing := kafka_tools.why_not()) is not None:
        pytest.skip(missing)
    monkeypatch.setattr(kafka39, "LOG4J", kafka39.LOG4J + REQUESTS)
    kind = kafka39.Kafka39Cluster if request.param == "kafka" else DebuggedOttla
    few = {"offsets_topic_num_partitions": "3", "offsets_topic_replication_factor": "1"}
    with kind(tmp_path / request.param, brokers=1, **few) as kafka:
        admin = admin_client(kafka.bootstrap)
        create_topics(admin, NewTopic("a", 3, 1), NewTopic("b", 1, 1))
        producer = Producer(named(kafka.bootstrap, {"linger_ms": 0}))
        for n in range(300):
            producer.produce("ab"[n % 2], b"%d" % n)
            producer.poll(0)
            if n % 20 == 0:
                producer.flush(20)
        assert producer.flush(20) == 0
        settings = {"group_id": "readers", "auto_offset_reset": "earliest"}
        consumer = Consumer(named(kafka.bootstrap, settings))
        consumer.subscribe(["a", "b"])
        count = 0
        while count < 300:
            count += len(consumer.consume(100, 5))
        consumer.commit(asynchronous=False)
        consumer.close()
        admin.list_topics(timeout=20)
        text = kafka.log(0).read_text()
    found = [
        line.partition(MARK)[2].removesuffix(" (kafka.request.logger)")
        for line in text.splitlines()
        if MARK in line
    ]
    assert len(found) > 100
    return found


def test_a_brokers_request_log(cluster, spark, tmp_path, request_log):
    """Nested objects whose fields differ by the kind of request, with a schema that was offered."""
    kinds = Counter(json.loads(line)["requestHeader"]["requestApiKeyName"] for line in request_log)
    assert {"PRODUCE", "FETCH", "METADATA", "JOIN_GROUP"} <= kinds.keys()
    produced = create(cluster, "requests", 2)
    produced.send([(b"broker-0", line.encode()) for line in request_log])
    where = settings_of(cluster.bootstrap, tmp_path / "lake", [produced.topic],
                        value__schema=None, layout__date=None)  # fmt: skip
    offered = subprocess.run(
        [sys.executable, "-m", "ottla", "pipeline", "lake", "--infer",
         *(word for one in where for word in ("--set", one))],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    (schema,) = offered.stdout.splitlines()
    file = tmp_path / "requests.ddl"
    file.write_text(schema)
    done = run_here(spark, [*where, f"value.schema={file}"], "--verify")
    assert (done.code, done.result["exactly_once"]) == (0, True), done.told
    told = done.result["topics"][produced.topic]
    assert (told["rows"], told["dead"]) == (len(request_log), 0)
    rows = by_library(tmp_path / "lake" / produced.topic / "data")
    assert differences(rows, produced) == []
    assert Counter(row["requestHeader"]["requestApiKeyName"] for row in rows) == kinds
    for row in rows:
        _, value, _ = produced.acked[row["kafka_partition"], row["kafka_offset"]]
        sent = json.loads(value)
        assert row["totalTimeMs"] == sent["totalTimeMs"]
        assert row["requestHeader"]["correlationId"] == sent["requestHeader"]["correlationId"]
