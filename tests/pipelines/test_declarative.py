"""The declarative project as users run it: copied, by spark-pipelines, killed, and run again.

What is right is what the producer's acknowledgements say, and what librdkafka reads.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyspark
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.pipelines.declarative import command as init
from ottla.pipelines.declarative.cluster_offsets import SCHEMA as SCHEMA_OF_HELD
from support.cluster import OttlaCluster
from support.landed import Produced, by_spark, differences, numbered, places

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(1800)]

TOPIC, PARTITIONS, BATCH = "flights", 3, 300
SCHEMA = "n long, day string, note string"
ENDS_AFTER_S = 900
"""Most of it is for a machine on which other tests run."""
SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture(scope="module")
def produced(tmp_path_factory):
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=1) as cluster:
        where = ["--bootstrap-server", cluster.bootstrap, "--replication-factor", "1"]
        create = ["topics", "create", TOPIC, "--partitions", str(PARTITIONS)]
        subprocess.run([sys.executable, "-m", "ottla", *create, *where], check=True, timeout=60)
        yield Produced(cluster.bootstrap, TOPIC)


def flights(first, count):
    """Return flights of which a tenth is garbage of four kinds, and every 50th is a tombstone."""
    garbage = [b"no json", b'{"n": "five"}', b'{"n": 1, "new": 2}', b'{"note": "\xff"}']
    records = []
    for n, (key, value) in enumerate(numbered(first, count), first):
        if n % 10 == 3:
            records.append((b"bad", garbage[n // 10 % 4], [("trace", b"%d" % n), ("none", None)]))
        else:
            records.append((key, None if n % 50 == 0 else value))
    return records


def project(folder, produced):
    """Copy the project as a user does; small batches, so that there is a middle to be killed in."""
    arguments = [str(folder), "--topic", TOPIC, "--schema", SCHEMA]
    assert init.main([*arguments, "--bootstrap-server", produced.bootstrap]) == 0
    specification = folder / "spark-pipeline.yml"
    text = specification.read_text()
    assert '"500000"' in text
    specification.write_text(text.replace('"500000"', f'"{BATCH}"'))
    return folder


def start(folder, *arguments, home=SPARK_HOME):
    program = home / "bin" / "spark-pipelines"
    with (folder / "out.txt").open("wb") as out:
        return subprocess.Popen(
            ["bash", str(program), *arguments],
            cwd=folder,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_CONF_DIR": "conf",
            },
        )


def end(process):
    """kill -9 the processes of a run: Java's, Python's, and Spark's in it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def ran(folder, *arguments, home=SPARK_HOME):
    process = start(folder, *arguments, home=home)
    try:
        code = process.wait(ENDS_AFTER_S)
    finally:
        end(process)
    told = (folder / "out.txt").read_text()
    assert code == 0, told
    assert "Run is COMPLETED" in told, told


def commits(folder, flow):
    """Return the micro-batches of a flow that are committed."""
    found = [p for p in (folder / "storage").rglob("commits/*") if f"/{flow}/" in str(p)]
    return {int(p.name) for p in found if p.name.isdigit()}


def killed_amid(folder, flow, batches):
    """Start a run, kill it when a flow has committed so many batches more."""
    before = len(commits(folder, flow))
    process = start(folder, "run")
    try:
        deadline = time.monotonic() + ENDS_AFTER_S
        while len(commits(folder, flow)) < before + batches:
            assert process.poll() is None, (folder / "out.txt").read_text()
            assert time.monotonic() < deadline, "the run never came to its middle"
            time.sleep(0.002)
    finally:
        end(process)
    return len(commits(folder, flow)) - before


def table(spark, folder, name):
    return by_spark(spark, folder / "warehouse" / name)


def landed_differences(spark, folder, produced):
    rows, dead = table(spark, folder, "records"), table(spark, folder, "dead_letters")
    return differences(rows, produced, dead)


def consumed(produced):
    """Return what librdkafka reads: by partition and offset the time in ms, and the size."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": produced.bootstrap, "group.id": "witness"})
    found = {}
    try:
        consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
        deadline = time.monotonic() + 60
        while len(found) < len(produced.acked):
            assert time.monotonic() < deadline
            for message in consumer.consume(500, 1):
                size = len(message.key() or b"") + len(message.value() or b"")
                place = (message.partition(), message.offset())
                found[place] = (message.timestamp()[1], size)
    finally:
        consumer.close()
    return found


def assert_facts(spark, folder, records, dead):
    """Compare the audit's facts with what librdkafka has read."""
    buckets = {}
    for time_ms, size in records:
        one = buckets.setdefault(time_ms - time_ms % 600_000, [0, 0])
        one[0], one[1] = one[0] + 1, one[1] + size
    facts = table(spark, folder, "facts")
    got = {int(f["bucket"].timestamp() * 1000): [f["records"], f["bytes"]] for f in facts}
    assert got == buckets
    assert sum(fact["dead"] for fact in facts) == dead
    for fact in facts:
        assert fact["topic"] == TOPIC
        assert 0 < fact["latency_mean_ms"] <= fact["latency_max_ms"]
        assert fact["latency_p95_ms"] <= fact["latency_p99_ms"] <= fact["latency_max_ms"]


def completeness(spark, folder):
    return {row["partition"]: row for row in table(spark, folder, "completeness")}


def tamper(spark, folder):
    """Take a row out of the table, and double another; return where both came from."""
    import pyarrow as pa
    from pyarrow import parquet

    table = folder / "warehouse" / "records"
    found = spark.read.parquet(str(table)).selectExpr("_metadata.file_path AS file")
    file = table / min(Path(row["file"]).name for row in found.distinct().collect())
    rows = parquet.read_table(file)
    gone, twice = (
        (row["kafka_partition"], row["kafka_offset"]) for row in rows.slice(0, 2).to_pylist()
    )
    before = file.stat().st_size
    file.unlink()
    (table / f".{file.name}.crc").unlink(missing_ok=True)
    other = pa.concat_tables([rows.slice(1), rows.slice(1, 1)])
    parquet.write_table(other, file, use_deprecated_int96_timestamps=True)  # as Spark writes them
    entry = rf'({re.escape(file.name)}","size":){before}\b'
    for log in (table / "_spark_metadata").glob("[0-9]*"):
        text, changed = re.subn(entry, rf"\g<1>{file.stat().st_size}", log.read_text())
        if changed:
            log.write_text(text)
            (log.parent / f".{log.name}.crc").unlink(missing_ok=True)
    return gone, twice


@pytest.mark.alone
@pytest.mark.processes
@pytest.mark.skipif(
    bool(init.missing_modules()), reason="no spark-pipelines: pip install 'ottla[declarative]'"
)
def test_every_record_is_once_in_a_table_through_a_kill_and_a_missing_row_is_seen(
    produced, spark, tmp_path
):
    folder = project(tmp_path / "project", produced)
    produced.send(flights(0, 1500))
    ran(folder, "dry-run")
    assert not list(folder.glob("warehouse/*/*.parquet"))  # nothing was landed by that

    ran(folder, "run")
    assert landed_differences(spark, folder, produced) == []
    dead = places(table(spark, folder, "dead_letters"))
    assert len(dead) == 150
    assert {row["reason"] for row in dead.values()} == {
        "invalid UTF-8", "does not fit the schema", "fields that the schema lacks",
    }  # fmt: skip
    assert_facts(spark, folder, consumed(produced).values(), len(dead))
    views = completeness(spark, folder)
    assert sorted(views) == list(range(PARTITIONS))
    assert sum(v["rows"] for v in views.values()) == 1350
    assert sum(v["dead_letters"] for v in views.values()) == 150
    assert all(v["complete"] and v["missing"] == 0 for v in views.values())

    produced.send(flights(1500, 3000))
    assert 1 <= killed_amid(folder, "records", 2) < 3000 / BATCH
    left = landed_differences(spark, folder, produced)
    assert left  # it was amid its work
    assert all(line.endswith("is missing") for line in left)

    gone, twice = tamper(spark, folder)
    ran(folder, "run")
    rows, dead = table(spark, folder, "records"), table(spark, folder, "dead_letters")
    counts = Counter((row["kafka_partition"], row["kafka_offset"]) for row in rows)
    assert [place for place, count in counts.items() if count > 1] == [twice]
    once = {(row["kafka_partition"], row["kafka_offset"]): row for row in rows}.values()
    assert differences(once, produced, dead) == [f"{gone} is missing"]
    records = consumed(produced)
    assert records.keys() == produced.acked.keys()
    there = [records[place] for place in records if place != gone] + [records[twice]]
    assert_facts(spark, folder, there, len(dead))
    for partition, view in completeness(spark, folder).items():
        wrong = (int(partition == gone[0]), int(partition == twice[0]))
        assert (view["missing"], view["doubled"]) == wrong
        assert view["complete"] is (wrong == (0, 0))
        ends = [offset for p, offset in produced.acked if p == partition]
        assert (view["first_offset"], view["end_offset"]) == (0, max(ends) + 1)


@pytest.mark.alone
@pytest.mark.processes
@pytest.mark.skipif(
    bool(init.missing_modules()), reason="no spark-pipelines: pip install 'ottla[declarative]'"
)
def test_executors_of_their_own_land_the_same(spark, tmp_path):
    home = tmp_path / "spark"  # executors write into SPARK_HOME/work
    home.mkdir()
    for path in SPARK_HOME.iterdir():
        if path.name != "work":
            (home / path.name).symlink_to(path)
    with OttlaCluster(tmp_path / "cluster", brokers=1) as cluster:
        where = ["--bootstrap-server", cluster.bootstrap, "--replication-factor", "1"]
        create = ["topics", "create", TOPIC, "--partitions", str(PARTITIONS)]
        subprocess.run([sys.executable, "-m", "ottla", *create, *where], check=True, timeout=60)
        produced = Produced(cluster.bootstrap, TOPIC)
        folder = project(tmp_path / "project", produced)
        produced.send(flights(0, 600))
        ran(folder, "run", "--remote", "local-cluster[2,1,1024]", home=home)
        assert landed_differences(spark, folder, produced) == []
        assert len(places(table(spark, folder, "dead_letters"))) == 60
        assert all(view["complete"] for view in completeness(spark, folder).values())
    # Both executors had tasks that wrote files.
    for executor in ("0", "1"):
        (told,) = home.glob(f"work/app-*/{executor}/stderr")
        assert "ParquetRecordWriter" in told.read_text()


def view_of(spark, name, **tables):
    """Return what a view's query says of these tables: {name: (schema, rows)}."""
    for table, (schema, rows) in tables.items():
        spark.createDataFrame(rows, schema).createOrReplaceTempView(table)
    text = (init.PROJECT / "transformations" / f"{name}.sql").read_text()
    _, found, query = text.partition(f"CREATE MATERIALIZED VIEW {name} AS\n")
    assert found
    try:
        return [tuple(row) for row in spark.sql(query + "ORDER BY 1, 2").collect()]
    finally:
        for table in tables:
            spark.catalog.dropTempView(table)


def test_completeness_tells_missing_and_doubled_offsets_apart(spark):
    place = "kafka_topic string, kafka_partition int, kafka_offset long"
    found = view_of(
        spark,
        "completeness",
        cluster_offsets=(SCHEMA_OF_HELD, [("a", 0, 2, 6), ("a", 1, 0, 0), ("b", 0, 0, 3)]),
        # Offset 1 was removed by retention, 9 came after the brokers were asked.
        records=(place, [("a", 0, n) for n in (1, 2, 3, 3, 9)] + [("b", 0, 0), ("b", 0, 2)]),
        dead_letters=(place, [("a", 0, 5), ("b", 0, 1)]),
    )
    assert found == [
        ("a", 0, 2, 6, 3, 1, 1, 1, False),
        ("a", 1, 0, 0, 0, 0, 0, 0, True),
        ("b", 0, 0, 3, 2, 1, 0, 0, True),
    ]


def test_facts_go_by_the_stamp_or_by_the_records_timestamp(spark):
    schema = (
        "kafka_topic string, kafka_headers array<struct<key:string,value:binary>>, "
        "kafka_timestamp timestamp, kafka_bytes long, landed_at timestamp"
    )

    def row(time, size, *stamps):
        headers = [("other", b"p;1;1"), *(("ottla.audit", s) for s in stamps)] if stamps else None
        return ("a", headers, time, size, datetime(2026, 1, 1, 1, 0, tzinfo=UTC))

    first, second = (datetime(2026, 1, 1, 0, minute, tzinfo=UTC) for minute in (9, 19))
    stamp = b"p;%d;0" % (int(first.timestamp()) * 1000)
    found = view_of(
        spark,
        "facts",
        records=(schema, [row(first, 1), row(second, 2, b"p;0;0", stamp), row(second, 4)]),
        dead_letters=(schema, [row(second, 8, b"no stamp")]),
    )
    buckets = [row[1].timestamp() for row in found]
    assert buckets == [datetime(2026, 1, 1, 0, m, tzinfo=UTC).timestamp() for m in (0, 10)]
    minutes = 60_000
    assert [(row[0], *row[2:]) for row in found] == [
        ("a", 2, 0, 1, 3, *[51 * minutes] * 4),
        ("a", 2, 1, 0, 12, *[41 * minutes] * 4),
    ]
