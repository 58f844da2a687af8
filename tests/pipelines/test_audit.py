"""The audit of a cluster that loses acknowledged records, and of a lake that was tampered with.

The truth is the producer's acknowledgements, and what a client of librdkafka reads of the log.
"""

import io
import json
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from ottla.cli.grammar import read
from ottla.pipelines import audit, job
from ottla.pipelines.auditing.stamps import BUCKET_MS, Stamps
from support.clients import admin_client, create_topics, read_to_end
from support.cluster import OttlaCluster
from support.landed import run_here as land
from support.seen import Znodes
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.spark,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]
TOPIC = "orders"
FIRST_MS = int(time.time() * 1000) // BUCKET_MS * BUCKET_MS - 3 * BUCKET_MS


class Sender:
    """A producer that stamps what it sends and keeps what was acknowledged."""

    def __init__(self, bootstrap, name):
        self.stamps = Stamps(name, TOPIC)
        self.acked = {}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True,
             "log_level": 0, "message.timeout.ms": 60_000}
        )  # fmt: skip

    def send(self, numbers, partition=None, stamp=None):
        for n in numbers:
            value = b"order %06d" % n
            header = stamp or self.stamps.next(FIRST_MS + 1000 * n, b"k", value)
            where = {} if partition is None else {"partition": partition}
            self._producer.produce(
                TOPIC, value, b"k", headers=[header], timestamp=FIRST_MS + 1000 * n + 250,
                on_delivery=lambda error, _, n=n, header=header: self._told(error, n, header),
                **where,
            )  # fmt: skip
            self._producer.poll(0)

    def _told(self, error, n, header):
        if error is None:
            self.acked[n] = header
            self.stamps.acknowledged(header)

    def flush(self):
        assert self._producer.flush(60) == 0
        return self


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=3) as cluster:
        admin = admin_client(cluster.bootstrap)
        create_topics(
            admin,
            NewTopic(
                TOPIC, 2, replica_assignment=[[0, 1], [2, 1]],
                config={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
            ),
        )  # fmt: skip
        yield cluster


def audited(spark, *sets):
    arguments = ["--output", "json", *(x for s in sets for x in ("--set", s))]
    out, told = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(told):
        options = read(audit.Options, arguments)
        code = job.run(audit.NAME, lambda: audit.run(options, spark))
    assert code in (0, 1)
    return code, json.loads(out.getvalue()) if out.getvalue() else told.getvalue()


def reported(path, *senders):
    path.write_text("".join(line for s in senders for line in s.stamps.report()))
    return f"audit.reports={path}"


def test_what_a_cluster_loses_is_told(cluster, spark, tmp_path):
    """Broker 1 stops; what is sent meanwhile is acknowledged by 0 alone, which then dies."""
    base = [f"cluster.bootstrap_servers={cluster.bootstrap}", f'audit.topics=["{TOPIC}"]']
    sender = Sender(cluster.bootstrap, "web")
    sender.send(range(1500))
    sender.flush()
    lake = [
        f"cluster.bootstrap_servers={cluster.bootstrap}", f"lake.path={tmp_path / 'lake'}",
        f'lake.topics=["{TOPIC}"]', "lake.source=ottla",
    ]  # fmt: skip
    assert land(spark, lake).code == 0
    with_lake = f"audit.lake={tmp_path / 'lake'}"

    code, whole = audited(spark, *base, reported(tmp_path / "r0", sender), with_lake)
    assert (code, whole["findings"], whole["waiting"]) == (0, [], [])
    counts = {
        tier: sum(b["records"] for b in whole["buckets"] if b["tier"] == tier)
        for tier in ("log", "lake")
    }
    assert counts == {"log": 1500, "lake": 1500}
    by_bucket = [b["records"] for b in whole["buckets"] if b["tier"] == "log"]
    assert by_bucket == [600, 600, 300]
    assert {b["max_ms"] for b in whole["buckets"] if b["tier"] == "log"} == {250}
    assert sum(b["bytes"] or 0 for b in whole["buckets"]) == 1500 * 13

    with Znodes(cluster.zookeeper) as znodes:
        cluster.terminate(1)
        until(lambda: list(znodes.states(TOPIC)[0].isr) == [0], 60, "broker 0 is alone in the ISR")
        sender.send(range(1500, 1700), partition=0)
        sender.send(range(1700, 1750), partition=1)
        sender.flush()
        cluster.kill(0)
        cluster.start_broker(1)
        until(lambda: znodes.states(TOPIC)[0].leader == 1, 60, "an unclean election")
        cluster.start_broker(0)
        until(lambda: znodes.full(TOPIC), 60, "all replicas are in sync")
    left = read_to_end(cluster.bootstrap, TOPIC, 2, "read_uncommitted")
    gone = sender.acked.keys() - {int(value.split()[1]) for value in left}
    truth = {int(sender.acked[n][1].split(b";")[2]) for n in gone}
    assert len(truth) == 200

    code, broken = audited(spark, *base, reported(tmp_path / "r1", sender), with_lake)
    assert code == 1
    (lost,) = broken["findings"]
    assert (lost["kind"], lost["amount"], lost["bucket_ms"]) == (
        "lost", 200, FIRST_MS + 2 * BUCKET_MS
    )  # fmt: skip
    named = {int(n) for n in lost["text"].rpartition("are ")[2].split(", ")}
    assert named == set(sorted(truth)[:10])
    assert sum(w["records"] for w in broken["waiting"]) == 50
    # Without reports the numbers alone tell, since some that were sent later are there.
    code, alone = audited(spark, *base)
    assert (code, [f["amount"] for f in alone["findings"]]) == (1, [200])


def test_what_is_sent_twice_or_otherwise(cluster, spark, tmp_path):
    base = [f"cluster.bootstrap_servers={cluster.bootstrap}", f'audit.topics=["{TOPIC}"]']
    other = Sender(cluster.bootstrap, "app")
    other.send(range(100))
    twice = other.stamps.next(FIRST_MS, b"k", b"order 000001")
    for _ in range(3):
        other.send([1], stamp=twice)
    shorter = Sender(cluster.bootstrap, "cut")
    shorter.send([5], stamp=shorter.stamps.next(FIRST_MS, b"k", b"order 000005 and more"))
    unsent = Sender(cluster.bootstrap, "in.flight")
    unsent.stamps.next(FIRST_MS, None, b"not sent, and not acknowledged")
    silent = Sender(cluster.bootstrap, "lost.all")
    silent.stamps.acknowledged(silent.stamps.next(FIRST_MS, None, b"never arrived"))
    for sender in (other, shorter):
        sender.flush()
    reports = reported(tmp_path / "reports", other, shorter, unsent, silent)
    code, found = audited(spark, *base, reports)
    executors = subprocess.run(
        [sys.executable, "-m", "ottla", "pipeline", "audit", "--master", "local-cluster[2,1,1024]",
         "--output", "json", *(x for s in (*base, reports) for x in ("--set", s))],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert executors.returncode == 1, executors.stderr
    assert json.loads(executors.stdout) == found
    told = {f["kind"]: f for f in found["findings"] if "web." not in f["text"]}
    assert code == 1
    assert {kind: f["amount"] for kind, f in told.items()} == {
        "lost": 1, "doubled": 2, "other bytes": 9
    }  # fmt: skip
    names = {"lost": silent, "doubled": other, "other bytes": shorter}
    assert all(names[kind].stamps.producer in f["text"] for kind, f in told.items())
    until_then = ["--until", "2020-01-01"]
    options = read(
        audit.Options,
        ["--output", "json", *until_then, *(x for s in (*base, reports) for x in ("--set", s))],
    )
    out = io.StringIO()
    with redirect_stdout(out):
        assert audit.run(options, spark) == 0
    assert json.loads(out.getvalue())["buckets"] == []


def test_a_lake_that_lacks_a_row_or_has_one_twice(cluster, spark, tmp_path):
    base = [f"cluster.bootstrap_servers={cluster.bootstrap}", f'audit.topics=["{TOPIC}"]']
    sender = Sender(cluster.bootstrap, "more")
    sender.send(range(50))
    sender.flush()
    sets = [base[0], f"lake.path={tmp_path}", f'lake.topics=["{TOPIC}"]', "lake.source=ottla"]
    assert land(spark, sets).code == 0
    files = sorted((tmp_path / TOPIC / "data").glob("batch=0/*.parquet"))
    table = pq.read_table(files[0])
    cut = pa.concat_tables([table.slice(0, 3), table.slice(5), table.slice(7, 1)])
    pq.write_table(cut, files[0], use_deprecated_int96_timestamps=True)
    place = [table[name].to_pylist()[3] for name in ("kafka_partition", "kafka_offset")]
    code, found = audited(spark, *base, f"audit.lake={tmp_path}")
    told = {f["kind"]: f for f in found["findings"] if f["kind"].endswith("lake")}
    assert code == 1
    assert {k: f["amount"] for k, f in told.items()} == {
        "not in the lake": 2, "doubled in the lake": 1
    }  # fmt: skip
    assert told["not in the lake"]["text"].startswith("partition {}, offset {} ".format(*place))

    create_topics(admin_client(cluster.bootstrap), NewTopic("others", 1, 1))
    code, text = audited(spark, base[0], 'audit.topics=["others"]', f"audit.lake={tmp_path}")
    assert code == 1
    assert text.count("\n") == 1
    assert "has no batch of a lake" in text


def test_what_is_wrong_is_one_line(cluster, spark, tmp_path):
    base = [f"cluster.bootstrap_servers={cluster.bootstrap}", f'audit.topics=["{TOPIC}"]']
    (tmp_path / "bad").write_text('{"topic": "orders"\n')
    for sets, says in [
        ([*base, "audit.reports=nowhere"], "reports: nowhere does not exist"),
        ([*base, f"audit.reports={tmp_path / 'bad'}"], "has a line that is no report"),
        ([*base, 'audit.topics=["nosuch"]'], "topic nosuch does not exist"),
        ([*base, "cluster.bootstrap_servers=127.0.0.1:1"], "is kafka.bootstrap.servers="),
        ([*base, "cluster.options={'security.protocol' = 'SSL'}"], "PLAINTEXT alone"),
        ([*base, "audit.isolation=serializable"], "[audit.isolation]"),
    ]:
        code, text = audited(spark, *sets)
        assert code == 1
        assert says in text
        assert text.startswith("pipeline audit: ")
        assert text.count("\n") == 1, text
