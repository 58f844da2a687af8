"""format("ottla") in a real Spark: the connector's rows, whatever the brokers go through."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.seen import all_know
from support.streams import TOO_BUSY, run_to_its_end
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.timeout(600)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONTENT = "key, value, topic, partition, offset, timestamp, timestampType, to_json(headers)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with OttlaCluster(tmp_path_factory.mktemp("ottla"), brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with Kafka39Cluster(tmp_path_factory.mktemp("kafka"), brokers=1) as cluster:
        yield cluster


def topics(cluster, *arguments):
    subprocess.run(
        [sys.executable, "-m", "ottla", "topics", *arguments,
         "--bootstrap-server", cluster.bootstrap],
        check=True, timeout=60, capture_output=True,
    )  # fmt: skip


def create(cluster, topic, partitions=2, replicas=1, *configs):
    settings = [word for config in configs for word in ("--config", config)]
    topics(cluster, "create", topic, "--partitions", str(partitions),
           "--replication-factor", str(replicas), *settings)  # fmt: skip


def producer(cluster, **more):
    from confluent_kafka import Producer

    base = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0, "linger.ms": 20}
    return Producer(base | {k.replace("_", "."): v for k, v in more.items()})


def produce(cluster, topic, records, **more):
    """Send (key, value, headers) each."""
    sending = producer(cluster, **more)
    for key, value, headers in records:
        sending.produce(topic, value, key, headers=headers)
        sending.poll(0)
    assert sending.flush(180) == 0


def records(count, first=0, size=20):
    for n in range(first, first + count):
        key = None if n % 7 == 0 else b"key-%d" % n
        value = None if n % 10 == 0 else b"%d:" % n + b"v" * (n % size)
        headers = [("n", b"%d" % n), ("none", None), ("n", b"")] if n % 4 == 0 else None
        yield key, value, headers


def reading(spark, format_, cluster, topic, **options):
    found = spark.read.format(format_).option("kafka.bootstrap.servers", cluster.bootstrap)
    for key, value in {"subscribe": topic, "includeHeaders": "true", **options}.items():
        found = found.option(key, value)
    return found.load()


def content(frame):
    """Return how many rows there are, and a hash over all columns of all of them."""
    hashed = f"sum(cast(xxhash64({CONTENT}) AS decimal(38)))"
    return tuple(frame.selectExpr("count(*)", hashed).first())


def error_of(work):
    with pytest.raises(Exception) as found:
        work()
    return str(found.value)


# -- rows ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def mixed(request):
    """Return a cluster with a topic of all codecs, one with LogAppendTime, and transactions."""
    cluster = request.getfixturevalue("cluster" if request.param == "ottla" else "kafka")
    create(cluster, "mixed")
    for number, codec in enumerate(CODECS):
        produce(cluster, "mixed", records(1000, 1000 * number), compression_type=codec)
    create(cluster, "appended", 1, 1, "message.timestamp.type=LogAppendTime")
    produce(cluster, "appended", records(500))
    create(cluster, "transactions")
    produce(cluster, "transactions", records(50))
    sending = producer(cluster, transactional_id="writer", compression_type="lz4")
    sending.init_transactions(60)
    for turn in range(12):
        sending.begin_transaction()
        for key, value, headers in records(100, 100 * turn):
            sending.produce("transactions", value, key, headers=headers)
        if turn % 3 == 2:
            sending.flush(30)
            sending.abort_transaction(60)
        else:
            sending.commit_transaction(60)
    return cluster


@pytest.mark.parametrize(
    ("topic", "count"), [("mixed", 5000), ("appended", 500), ("mixed,appended", 5500)]
)
def test_rows_are_the_connectors(spark, mixed, topic, count):
    found = reading(spark, "ottla", mixed, topic)
    connectors = reading(spark, "kafka", mixed, topic)
    assert found.schema == connectors.schema
    assert content(found) == content(connectors)
    assert found.count() == count
    divided = reading(spark, "ottla", mixed, topic, maxRecordsPerPartition="170")
    assert divided.rdd.getNumPartitions() > 25 * count / 5000
    assert content(divided) == content(connectors)


def test_transactions(spark, mixed):
    for level, count in (("read_committed", 50 + 800), ("read_uncommitted", 50 + 1200)):
        options = {"kafka.isolation.level": level}
        found = content(reading(spark, "ottla", mixed, "transactions", **options))
        assert found == content(reading(spark, "kafka", mixed, "transactions", **options))
        assert found[0] == count


def test_bounds_filters_and_columns(spark, mixed):
    from pyspark.sql import functions as f

    bounds = {
        "startingOffsets": '{"mixed":{"0":10,"1":-2}}',
        "endingOffsets": '{"mixed":{"0":1000,"1":300}}',
    }
    found = content(reading(spark, "ottla", mixed, "mixed", **bounds))
    assert found == content(reading(spark, "kafka", mixed, "mixed", **bounds))
    middle = reading(spark, "kafka", mixed, "mixed").agg(
        f.expr("percentile_approx(timestamp, 0.5)")
    )
    at = middle.first()[0]
    times = {"startingTimestamp": str(int(at.timestamp() * 1000))}
    found = content(reading(spark, "ottla", mixed, "mixed", **times))
    assert found == content(reading(spark, "kafka", mixed, "mixed", **times))
    clauses = (
        "partition = 1 AND offset BETWEEN 100 AND 199",
        "topic <> 'mixed'",
        f"timestamp >= '{at}' AND partition IN (0, 7)",
        "offset > 50 AND value IS NULL",
    )
    switch = "spark.sql.python.filterPushdown.enabled"
    for on in ("false", "true"):
        spark.conf.set(switch, on)
        for clause in clauses:
            theirs = content(reading(spark, "kafka", mixed, "mixed").where(clause))
            assert content(reading(spark, "ottla", mixed, "mixed").where(clause)) == theirs
    narrow = reading(spark, "ottla", mixed, "mixed").where(clauses[0])
    assert narrow.rdd.getNumPartitions() == 1
    spark.conf.unset(switch)
    chosen = spark.read.format("ottla").schema("offset bigint, value binary")
    frame = chosen.options(bootstrap=mixed.bootstrap, subscribePattern="mix.*").load()
    assert tuple(frame.selectExpr("count(*)", "count(value)").first()) == (5000, 4500)


# -- what goes wrong ----------------------------------------------------------------------------


def test_bad_input_is_one_line(spark, cluster):
    create(cluster, "few", 1)
    where = {"bootstrap": cluster.bootstrap}
    cases = [
        ({"subscribe": "few"}, "option kafka.bootstrap.servers is missing"),
        ({**where, "subscribe": "few", "foo": "1"}, 'format("ottla") has no option foo'),
        ({**where, "subscribe": "nosuch"}, "topic nosuch does not exist at 127.0.0.1:"),
        ({"bootstrap": "127.0.0.1:1", "subscribe": "few"}, "cannot reach 127.0.0.1:1"),
        ({**where, "subscribe": "few", "startingOffsets": '{"few":{"0":5}}',
          "endingOffsets": '{"few":{"0":9}}'}, "few-0: offset 5 is gone, the log holds 0 to 0"),
    ]  # fmt: skip
    for options, says in cases:
        text = error_of(lambda options=options: spark.read.format("ottla").options(**options)
                        .load().count())  # fmt: skip
        lines = [line for line in text.splitlines() if line.startswith("ottla.model.errors.")]
        assert len(lines) == 1, text
        assert says in lines[0]


def paused_scan(flag, go_on):
    """Return what lets the first rows through, says so, and waits before it takes more."""

    def take(batches):
        for number, batch in enumerate(batches):
            if number == 1:
                Path(flag).touch()
                deadline = time.monotonic() + 60
                while not Path(go_on).exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
            yield batch

    return take


def leader_of(cluster, topic, partition=0):
    from confluent_kafka.admin import AdminClient

    asking = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    return asking.list_topics(topic, timeout=20).topics[topic].partitions[partition].leader


def test_the_leader_is_killed_amid_a_scan(spark, cluster, tmp_path):
    create(cluster, "killed", 1, 3)
    value = bytes(range(256)) * 8
    count = 30_000
    produce(cluster, "killed", ((b"%d" % n, value, None) for n in range(count)))
    flag, go_on = tmp_path / "reading", tmp_path / "go-on"
    frame = reading(
        spark, "ottla", cluster, "killed", **{"kafka.max.partition.fetch.bytes": "262144"}
    ).select("key", "value", "offset")
    leader = leader_of(cluster, "killed")
    seen = []
    scanned = frame.mapInArrow(paused_scan(str(flag), str(go_on)), frame.schema)
    summary = scanned.selectExpr(
        "count(*)", "count(DISTINCT offset)", "max(offset)", "count(DISTINCT value)",
        "sum(CASE WHEN cast(key AS string) = cast(offset AS string) THEN 1 ELSE 0 END)",
    )  # fmt: skip
    job = threading.Thread(target=lambda: seen.append(tuple(summary.first())))
    job.start()
    try:
        until(flag.exists, 120, "the scan has begun")
        cluster.kill(leader)
        go_on.touch()
        job.join(200)
    finally:
        go_on.touch()
        job.join(60)
        if not cluster.running(leader):
            cluster.start_broker(leader)
    assert seen == [(count, count, count - 1, 1, count)]


def test_records_that_retention_took_are_refused_or_skipped(spark, cluster):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    create(cluster, "shortened", 1)
    produce(cluster, "shortened", records(2000))
    asking = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in asking.delete_records([TopicPartition("shortened", 0, 1600)]).values():
        future.result(30)
    start = {"startingOffsets": '{"shortened":{"0":100}}'}
    text = error_of(lambda: reading(spark, "ottla", cluster, "shortened", **start).count())
    assert "shortened-0: offset 100 is gone, the log holds 1600 to 2000" in text
    left = reading(spark, "ottla", cluster, "shortened", onDataLoss="earliest", **start)
    assert left.count() == 400


# -- streams ------------------------------------------------------------------------------------


def stream(spark, cluster, topic, folder, *, once=True, **options):
    """Start a stream into a folder of Parquet; with `once` it ends by itself."""
    found = spark.readStream.format("ottla").option("kafka.bootstrap.servers", cluster.bootstrap)
    for key, value in {"subscribe": topic, "startingOffsets": "earliest", **options}.items():
        found = found.option(key, value)
    writing = found.load().writeStream.format("parquet").option("path", str(folder / "rows"))
    writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
    return (writing.trigger(availableNow=True) if once else writing).start()


def run(spark, cluster, topic, folder, **options):
    """Run a stream to its end; return the query."""
    return run_to_its_end(lambda: stream(spark, cluster, topic, folder, **options))


def landed(spark, folder):
    rows = spark.read.parquet(str(folder / "rows"))
    return tuple(rows.selectExpr("count(*)", "count(DISTINCT partition, offset)").first())


def batches(folder):
    return [p for p in (folder / "checkpoint" / "commits").iterdir() if p.name.isdigit()]


def test_a_stream_goes_on_from_its_checkpoint_and_finds_new_partitions(spark, cluster, tmp_path):
    create(cluster, "streamed", 2)
    produce(cluster, "streamed", records(3000))
    query = run(spark, cluster, "streamed", tmp_path, maxOffsetsPerTrigger="1000")
    assert landed(spark, tmp_path) == (3000, 3000)
    assert len(batches(tmp_path)) >= 3
    assert sum(p["numInputRows"] for p in query.recentProgress) == 3000
    ends = json.loads(query.recentProgress[-1]["sources"][0]["endOffset"])
    assert sum(v for k, v in ends["streamed"].items() if k != "id") == 3000

    topics(cluster, "alter", "streamed", "--partitions", "3")
    # Else whoever produces may write to two of them alone.
    addresses = [cluster.address(b) for b in cluster.ids]
    until(lambda: all_know(addresses, "streamed", 3), 60, "all brokers know the new partition")
    produce(cluster, "streamed", records(2000, 3000))
    endless = {"once": False, "maxOffsetsPerTrigger": "300"}
    queries = [stream(spark, cluster, "streamed", tmp_path, **endless)]

    def reads_on():
        failed = queries[-1].exception()
        if failed is not None:
            assert TOO_BUSY in str(failed)
            queries.append(stream(spark, cluster, "streamed", tmp_path, **endless))
        return landed(spark, tmp_path)[0] > 3000

    try:
        until(reads_on, 200, "the stream reads on")
    finally:
        queries[-1].stop()
    run(spark, cluster, "streamed", tmp_path)
    assert landed(spark, tmp_path) == (5000, 5000)
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert rows.where("partition = 2").count() > 0
    columns = [c for c in CONTENT.split(", ") if not c.startswith("to_json")]
    hashed = f"sum(cast(xxhash64({', '.join(columns)}) AS decimal(38)))"
    connectors = reading(spark, "kafka", cluster, "streamed")
    assert rows.selectExpr(hashed).first() == connectors.selectExpr(hashed).first()
    before = len(batches(tmp_path))
    run(spark, cluster, "streamed", tmp_path)
    assert len(batches(tmp_path)) == before


def test_a_topic_deleted_and_made_anew_is_refused(spark, cluster, tmp_path):
    create(cluster, "remade", 1)
    produce(cluster, "remade", records(100))
    run(spark, cluster, "remade", tmp_path)
    topics(cluster, "delete", "remade", "--yes")

    def gone():
        try:
            create(cluster, "remade", 1)
        except subprocess.CalledProcessError:
            return False
        return True

    until(gone, 60, "the name is free again")
    produce(cluster, "remade", records(300))
    text = error_of(lambda: run(spark, cluster, "remade", tmp_path, onDataLoss="earliest"))
    assert "topic remade was deleted and created again" in text
    assert landed(spark, tmp_path) == (100, 100)
