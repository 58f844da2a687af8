"""Each job on executors of their own: two Java processes of one core each, beside the driver's.

Nothing that a task needs may lie in the driver's process: neither objects nor the working
directory, which is why paths are relative here. One session for all jobs, since its start takes
longest; what jobs should say comes from producers, from librdkafka and from files made by hand.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.pipelines import replay
from support import replayed
from support.cluster import OttlaCluster
from support.landed import (
    Produced,
    by_library,
    differences,
    numbered,
    run_here,
    settings_of,
)
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

    from ottla.pipelines.lake import command as lake
    from ottla.pipelines.session import Work, start_session
    from support.spark_connector import with_connector

    work = Work(quick_java=True, modules=lake.MODULES)
    session = start_session("executors", with_connector(MASTER), work=work)
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


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_lake(spark, cluster, produced, table_format):
    more = {"lake__format": table_format, "lake__batch_records": 200}
    folder = f"lake-{table_format}"
    sets = settings_of(cluster.bootstrap, folder, [produced.topic], **more)
    done = run_here(spark, sets, "--verify")
    assert (done.code, done.result["exactly_once"]) == (0, True), done.told
    assert differences(by_library(Path(folder, produced.topic, "data").absolute()), produced) == []


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
