"""Each job on executors of their own: two Java processes of one core each, beside the driver's.

Nothing that a task needs may lie in the driver's process: neither objects nor the working
directory, which is why paths are relative here. One session for all jobs, since its start takes
longest; what jobs should say comes from producers, from librdkafka and from files made by hand.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.cli.grammar import read
from ottla.pipelines import audit, drill, job, lag, rebalance, replay, replicas
from ottla.pipelines.auditing.stamps import BUCKET_MS, Stamps
from ottla.pipelines.result_schemas import RESULTS
from ottla.pipelines.timeline import command as timeline
from support import planted, replayed
from support.cluster import OttlaCluster
from support.delta_readers import by_protocol
from support.drill_world import BEGAN, FIRST, LEADS, TOPIC, World
from support.landed import (
    Produced,
    by_pyarrow,
    differences,
    numbered,
    run_here,
    settings_of,
)
from support.schemas import problems
from support.streams import run_to_its_end
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.timeout(300)]
MASTER = "local-cluster[2,1,1024]"
COUNT = 300


@pytest.fixture(scope="module")
def spark():
    """Start a driver, two executors, and Python workers as the lake job wants them.

    With the connector, since a JVM keeps the class path of its first session.
    """
    import pyspark

    from ottla.pipelines import lake
    from ottla.pipelines.session import Wanted, Work, start_session

    work = Work(quick_java=True, modules=lake.MODULES)
    session = start_session("executors", Wanted(MASTER), connector=True, work=work)
    name = session.sparkContext.applicationId
    yield session
    session.stop()
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / name, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    names = (
        "offsets_topic_num_partitions", "offsets_topic_replication_factor",
        "transaction_state_log_num_partitions", "transaction_state_log_replication_factor",
        "transaction_state_log_min_isr",
    )  # fmt: skip
    settings = dict.fromkeys(names, "1")
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=1, **settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def produced(cluster):
    """Fill a topic of two partitions."""
    command = [sys.executable, "-m", "ottla", "topics", "create", "numbers", "--partitions", "2",
               "--replication-factor", "1", "--bootstrap-server", cluster.bootstrap]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    return Produced(cluster.bootstrap, "numbers").send(numbered(0, COUNT))


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(module, spark, capsys, *arguments, code=0):
    """Run a job in the session; return what it printed."""
    options = read(module.Options, [*map(str, arguments)])
    capsys.readouterr()
    ended = job.run(module.NAME, lambda: module.run(options, spark))
    out = capsys.readouterr()
    assert ended == code, out.err
    if out.out.startswith("{"):
        assert problems(json.loads(out.out), RESULTS[module.NAME]) == []
    return out.out


def keys(rows):
    return {(r["partition"], r["offset"]): bytes(r["key"]) for r in rows}


def test_tasks_run_in_two_other_places(spark):
    def place(_):
        time.sleep(0.3)
        return os.getcwd()  # noqa: PTH109 - a text

    def two_places():
        found = set(spark.sparkContext.parallelize(range(8), 8).map(place).collect())
        return found if len(found) == 2 else None

    # Spark begins with one executor while the other one's Java is still starting.
    found = until(two_places, 120, "both executors take tasks")
    assert str(Path.cwd()) not in found


def test_the_source_in_a_batch_and_in_a_stream(spark, cluster, produced, tmp_path):
    where = {"bootstrap": cluster.bootstrap, "subscribe": produced.topic}
    truth = {place: key for place, (key, _, _) in produced.acked.items()}
    read = spark.read.format("ottla").options(**where, maxRecordsPerPartition=60).load()
    assert read.rdd.getNumPartitions() > 4
    assert keys(read.collect()) == truth
    reading = spark.readStream.format("ottla").options(
        **where, startingOffsets="earliest", maxOffsetsPerTrigger=200
    )
    writing = (
        reading.load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    run_to_its_end(writing.start, 120)
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert len(rows) == COUNT
    assert keys(rows) == truth


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_lake(spark, cluster, produced, table_format):
    more = {"lake__format": table_format, "lake__batch_records": 200}
    sets = settings_of(cluster.bootstrap, "lake", [produced.topic], **more)
    done = run_here(spark, sets, "--verify")
    assert (done.code, done.result["exactly_once"]) == (0, True), done.told
    table = Path("lake", produced.topic)
    assert differences(by_pyarrow(table / "data"), produced) == []
    if table_format == "delta":
        assert differences(by_protocol(table / "delta/data"), produced) == []


def test_rows_that_only_spark_reads_and_dead_letters(spark, cluster, produced):
    sets = settings_of(
        cluster.bootstrap, "lake", [produced.topic], layout__date="date_sub(to_date(day), 1)",
        value__schema="n int, day string, note long", layout__gather=True,
    )  # fmt: skip
    done = run_here(spark, sets)
    assert (done.code, done.result["exactly_once"]) == (0, True), done.told
    told = done.result["topics"][produced.topic]
    assert (told["rows"], told["dead"]) == (0, COUNT)  # a note is no number
    dead = by_pyarrow(Path("lake", produced.topic, "dead"))
    assert differences([], produced, dead) == []


@pytest.mark.parametrize("name", [replay.REPLAY, replay.MIRROR])
def test_replay_of_bytes_and_mirror_of_rows(spark, cluster, produced, name):
    rows = {"filter": "offset % 2 = 0"} if name == replay.MIRROR else {}
    sets = replayed.settings_of(
        cluster.bootstrap, cluster.bootstrap, produced.topic, name, create=True, offset_map="map",
        batch_records=500, **rows,
    )  # fmt: skip
    once = ["--once"] if name == replay.MIRROR else []
    done = replayed.run_here(spark, sets, "--verify", *once, name=name)
    assert (done.code, done.result["exactly_once"]) == (0, True), done
    source = replayed.read_all(cluster.bootstrap, produced.topic)
    target = replayed.read_all(cluster.bootstrap, name)
    assert len(source) == COUNT

    def wanted(record):
        return not rows or record.offset % 2 == 0

    assert replayed.differences(source, target, wanted=wanted) == []
    assert list(Path("map").glob("*.parquet"))


def test_audit(spark, cluster, capsys):
    command = [sys.executable, "-m", "ottla", "topics", "create", "stamped", "--partitions", "2",
               "--replication-factor", "1", "--bootstrap-server", cluster.bootstrap]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    stamps = Stamps("web", "stamped")
    first_ms = int(time.time() * 1000) // BUCKET_MS * BUCKET_MS - BUCKET_MS
    headers = [stamps.next(first_ms + n, b"k", b"v%d" % n) for n in range(60)]
    for header in headers:
        stamps.acknowledged(header)
    records = [(b"k", b"v%d" % n, [h]) for n, h in enumerate(headers) if n != 17]
    topic = Produced(cluster.bootstrap, "stamped").send(records)
    Path("reports").write_text("".join(stamps.report()))
    assert run_here(spark, settings_of(
        cluster.bootstrap, "lake", [topic.topic], value__format=None, value__schema=None,
        layout__date=None,
    )).code == 0  # fmt: skip
    sets = [f"cluster.bootstrap_servers={cluster.bootstrap}", 'audit.topics=["stamped"]',
            "audit.lake=lake", "audit.reports=reports"]  # fmt: skip
    out = run(audit, spark, capsys, "--output", "json", *(x for s in sets for x in ("--set", s)),
              code=1)  # fmt: skip
    found = json.loads(out)
    (lost,) = found["findings"]
    assert (lost["kind"], lost["amount"]) == ("lost", 1)
    assert lost["text"].endswith(" 17")
    assert {(b["tier"], b["records"]) for b in found["buckets"]} == {("log", 59), ("lake", 59)}


def test_lag(spark, cluster, produced, capsys):
    from confluent_kafka import Consumer, TopicPartition

    from support.clients import named

    consumer = Consumer(named(cluster.bootstrap, {"group_id": "readers"}))
    consumer.commit(offsets=[TopicPartition(produced.topic, 0, 7)], asynchronous=False)
    consumer.close()
    end = max(offset for partition, offset in produced.acked if partition == 0) + 1
    out = run(lag, spark, capsys, "--output", "json", "--bootstrap-server", cluster.bootstrap,
              "--set", "lag.minutes=1", "--history", "history")  # fmt: skip
    (told,) = json.loads(out)["partitions"]
    assert (told["group"], told["committed"], told["end"]) == ("readers", 7, end)
    rows = by_pyarrow(Path("history"))
    assert rows[-1]["lag"] == end - 7


def test_rates_of_rebalance(spark, cluster, produced, capsys):
    where = ("--bootstrap-server", cluster.bootstrap)
    for _ in range(2):
        run(rebalance, None, capsys, *where, "--samples", "samples", "--sample")
        size = sum(len(key) for key, _, _ in produced.acked.values())
        time.sleep(0.5)
    out = run(rebalance, spark, capsys, "--samples", "samples", "--output", "json",
              "--set", "rebalance.capacity=1 GB")  # fmt: skip
    (broker,) = json.loads(out)["before"]["brokers"]
    assert broker["rate"] == 0
    assert broker["bytes"] > size


def test_replicas_and_segments(spark, tmp_path, capsys):
    world = World(tmp_path / "world")
    first = planted.flip(world.segments(1, 0)[1], 0)
    out = run(replicas, spark, capsys, "--output", "json", "--topic", TOPIC, "--brokers",
              ",".join(f"{b}=world/broker-{b}" for b in range(3)), code=1)  # fmt: skip
    told = json.loads(out)
    assert {(f["broker"], f["partition"], f["offset"]) for f in told["findings"] if f["wrong"]} == {
        (1, 0, first)
    }
    rows = (
        spark.read.format("ottla-segments").load(f"0={tmp_path}/world/broker-0").select("partition")
    )
    assert [r.partition for r in rows.collect()].count(1) == 100


def test_timeline(spark, tmp_path, capsys):
    World(tmp_path / "world")
    # A packed log is read by Spark, the others by the workers themselves.
    log = next((tmp_path / "world").rglob("state-change.log"))
    log.with_name("state-change.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    run(timeline, spark, capsys, "world", "--time-zone", "UTC", "--output", "out", "--format",
        "json", "--report", "page.html")  # fmt: skip
    terms = [json.loads(x) for p in Path("out/terms").glob("*.json") for x in p.open()]
    found = {(t["partition"], t["first_epoch"]): t["leader"] for t in terms}
    assert found == LEADS
    assert all(0 <= t["began_ms"] - BEGAN[t["partition"], t["first_epoch"]] < 100 for t in terms)
    assert f"{TOPIC}-0" in Path("page.html").read_text()
    assert FIRST.keys() == LEADS.keys()


def test_drill(spark, tmp_path, capsys):
    world = World(tmp_path / "world")
    for broker in range(3):
        planted.cut_tail(world.segments(broker, 0)[-1], 2)
    arguments = ["world", "--time-zone", "UTC", "--acks", "world/acks.csv", "--lake", "world/lake",
                 "--topic", TOPIC]  # fmt: skip
    told = {}
    for output, more in (("spark", ()), ("here", ("--here",))):
        run(drill, spark, capsys, *arguments, *more, "--output", output, code=1)
        told[output] = json.loads(Path(output, "report.json").read_text())
        told[output]["result"]["general"].pop("audit", None)
    assert told["spark"] == told["here"]
    kinds = {f["kind"] for p in told["spark"]["partitions"] for f in p["findings"] if f["wrong"]}
    assert "lost" in kinds
