"""Groups of real clusters, ours and Kafka's: lag beside what an admin client says; stuck ones."""

import io
import json
import sys
import threading
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from ottla.cli.grammar import read
from ottla.pipelines import job, lag
from support import kafka_tools
from support.clients import admin_client, create_topics, named
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.landed import run_here as land
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.spark,
    pytest.mark.alone,
    pytest.mark.timeout(600),
]
TOPIC = "events"
COUNT = 300
GROUPS = ("ready", "stopped", "stalled", "rewound", "overtaken", "deleted")


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def cluster(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka" and kafka_tools.why_not():
        pytest.skip(kafka_tools.why_not())
    kind = OttlaCluster if request.param == "ottla" else Kafka39Cluster
    with kind(folder, brokers=1, offsets_topic_replication_factor="1") as cluster:
        create_topics(admin_client(cluster.bootstrap), NewTopic(TOPIC, 1, 1))
        yield cluster


def produce(cluster, count):
    """Produce records with the time of now; return that time in ms."""
    producer = Producer(named(cluster.bootstrap, {"linger_ms": 0}))
    for n in range(count):
        producer.produce(TOPIC, b"%d" % n)
    assert producer.flush(30) == 0
    return time.time_ns() // 1_000_000


class Group:
    """Commits offsets by hand, and keeps when: (before, after, offset)."""

    def __init__(self, cluster, name):
        self.consumer = Consumer(
            named(cluster.bootstrap, {"group_id": name, "enable_auto_commit": False})
        )
        self.said = []

    def commit(self, offset):
        before = time.time_ns() // 1_000_000
        self.consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        self.said.append((before, time.time_ns() // 1_000_000, offset))

    @contextmanager
    def committing(self, offset):
        """Commit the same offset again and again."""
        stop = threading.Event()

        def go_on():
            for _ in range(2000):
                if stop.wait(0.3):
                    return
                self.commit(offset)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(30)


@pytest.fixture(scope="module")
def groups(cluster):
    """Some groups of all kinds; (produced at which time how many, the groups by name)."""
    produced = [(0, 0), (produce(cluster, COUNT), COUNT)]
    found = {name: Group(cluster, name) for name in GROUPS}
    time.sleep(1.2)
    for step in range(4):
        found["ready"].commit(COUNT * (step + 1) // 4)
        found["rewound"].commit((100, 200, 50, COUNT)[step])
        found["deleted"].commit(10)
        found["overtaken"].commit(10 + step)
        if step < 3:
            found["stopped"].commit(10 * (step + 1))
        time.sleep(0.6)
    admin = admin_client(cluster.bootstrap)
    found["deleted"].consumer.close()
    admin.delete_consumer_groups(["deleted"])["deleted"].result(30)
    cut = admin.delete_records([TopicPartition(TOPIC, 0, 20)])
    assert next(iter(cut.values())).result(30).low_watermark == 20
    produced.append((produce(cluster, 40), COUNT + 40))
    found["ready"].commit(COUNT + 40)
    found["overtaken"].commit(15)
    time.sleep(3)
    with found["stalled"].committing(33):
        # Else the job may have read the commits before a busy machine has made the first.
        until(lambda: len(found["stalled"].said) >= 4, 60, "a group that stalls")
        yield produced, found


def run(spark, *arguments):
    out, told = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(told):
        options = read(lag.Options, ["--output", "json", *arguments])
        code = job.run(lag.NAME, lambda: lag.run(options, spark))
    return code, json.loads(out.getvalue()) if out.getvalue() else told.getvalue()


def test_lag_is_what_an_admin_client_says_and_stuck_groups_are_found(
    cluster, groups, spark, tmp_path
):
    produced, found = groups
    steps = ["--set", "lag.minutes=10", "--set", "lag.step_seconds=0.5"]
    where = ["--bootstrap-server", cluster.bootstrap]
    folder = tmp_path / "history"
    code, told = run(spark, *where, *steps, "--history", str(folder))
    admin = admin_client(cluster.bootstrap)
    tp = TopicPartition(TOPIC, 0)
    end = admin.list_offsets({tp: OffsetSpec.latest()})[tp].result(20).offset
    truth = {}
    for name in GROUPS:
        asked = ConsumerGroupTopicPartitions(name)
        answer = admin.list_consumer_group_offsets([asked])[name].result(20).topic_partitions
        if answer and answer[0].offset >= 0:
            truth[name] = end - answer[0].offset
    assert {p["group"]: p["lag"] for p in told["partitions"] if p["lag"] is not None} == truth
    assert truth.keys() == set(GROUPS) - {"deleted"}
    kinds = {(one["group"], one["kind"]) for one in told["findings"]}
    stuck = {one for one in kinds if one[0] in ("stopped", "stalled", "ready", "deleted")}
    assert stuck == {("stopped", "stopped"), ("stalled", "stalled")}
    assert {("rewound", "rewound"), ("overtaken", "overtaken")} <= kinds
    assert code == 1
    states = {p["group"]: p["state"] for p in told["partitions"]}
    assert (states["ready"], states["deleted"]) == ("ok", "gone")
    assert wrong_samples(spark.read.parquet(str(folder)).collect(), produced, found) == []

    code, text = run(spark, *where, "--history", str(folder))
    assert (code, text.count("\n")) == (1, 1)
    assert "is there already and not empty" in text
    code, told = run(spark, *where, *steps, "--group", "ready")
    assert (code, told["states"]) == (0, {"ok": 1})


def wrong_samples(rows, produced, groups):
    """Compare a history with what was done when; what happened just then is left open.

    So is the last time, at which commits count that were read a moment later.
    """
    wrong, compared = [], 0
    last = max(row["at_ms"] for row in rows)
    for row in rows:
        at = row["at_ms"]
        if at == last or any(abs(at - when) < 600 for when, _ in produced[1:]):
            continue
        end = [count for when, count in produced if when <= at][-1]
        said = groups[row["group"]].said
        if row["group"] == "deleted" or any(b - 50 < at < a + 50 for b, a, _ in said):
            continue
        committed = [offset for _, after, offset in said if after <= at]
        expected = (end, committed[-1] if committed else None)
        compared += 1
        # Of records that DeleteRecords took no time is known: the first one left is at 20.
        if (max(row["end"], 20), row["committed"]) != (max(expected[0], 20), expected[1]):
            wrong.append((row["group"], at, row["end"], row["committed"], expected))
    assert compared > 50
    return wrong


def test_a_lake_keeps_what_compaction_takes(cluster, groups, spark, tmp_path):
    """The lake's rows alone, of the log none that is in it: the history is the same."""
    where = [f"cluster.bootstrap_servers={cluster.bootstrap}"]
    lake = [*where, f"lake.path={tmp_path}", 'lake.topics=["__consumer_offsets"]']
    assert land(spark, [*lake, "lake.source=ottla", "lake.isolation=read_committed"]).code == 0
    steps = ["--set", "lag.minutes=20", "--bootstrap-server", cluster.bootstrap]
    _, without = run(spark, *steps)
    _, beside = run(spark, *steps, "--set", f"lag.lake={tmp_path}")
    assert [p["committed"] for p in beside["partitions"]] == [
        p["committed"] for p in without["partitions"]
    ]
    count = len([f for f in beside["findings"] if f["kind"] == "rewound"])
    assert count == len([f for f in without["findings"] if f["kind"] == "rewound"]) >= 1


def test_what_is_wrong_is_one_line(cluster, spark, tmp_path):
    where = ["--bootstrap-server", cluster.bootstrap]
    for more, says in [
        (["--set", f"lag.lake={tmp_path}"], "is no table of this job"),
        (["--set", "lag.minutes=100000"], "make more than 1500 steps"),
        (["--bootstrap-server", "127.0.0.1:1"], "is kafka.bootstrap.servers="),
        (["--until", "noon"], "'noon' is no time"),
    ]:
        code, text = run(spark, *where, *more)
        assert (code, text.count("\n")) == (1, 1), text
        assert says in text
