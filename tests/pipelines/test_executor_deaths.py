"""An executor dies by kill -9 amid its task: the task is done again, each record is there once.

The driver lives, Spark's worker starts an executor in its place. Truth: the producer's
acknowledgements, and what librdkafka reads; that a task was lost at all is Spark's own count.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Consumer, TopicPartition

sys.path.insert(0, str(Path(__file__).parent.parent))
from support import replayed
from support.clients import named
from support.cluster import OttlaCluster
from support.landed import Produced, by_library, by_spark, differences, numbered
from support.landed import run_here as land_here
from support.landed import settings_of as lake_settings
from support.waiting import until

pytestmark = [
    pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.alone,
    pytest.mark.timeout(600),
]  # fmt: skip
COUNT = 6000
SMALL = {"batch.size": 2000}
FETCH = "cluster.options={'max.partition.fetch.bytes' = '2000'}"
"""So few bytes that a task takes many fetches: there is a middle to be killed in."""


@pytest.fixture(scope="module")
def spark():
    import pyspark

    from ottla.pipelines.session import start_session
    from support.spark_connector import with_connector

    session = start_session("deaths", with_connector("local-cluster[2,1,1024]"))
    name = session.sparkContext.applicationId
    yield session
    session.stop()
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / name, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    few = {"transaction_state_log_num_partitions": "3", "offsets_topic_num_partitions": "3"}
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=3, **few) as cluster:
        yield cluster


def create(cluster, topic, partitions):
    command = [sys.executable, "-m", "ottla", "topics", "create", topic, "--partitions",
               str(partitions), "--replication-factor", "3",
               "--bootstrap-server", cluster.bootstrap]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    return topic


def executors(spark):
    """Return the processes of a session's executors."""
    name, found = spark.sparkContext.applicationId.encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if name in words and any(w.endswith(b"CoarseGrainedExecutorBackend") for w in words):
                found.append(int(folder.name))
    return sorted(found)


def lost_tasks(spark):
    """Return how many attempts of tasks have failed in this session, of streams as well."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None).iterator()
    found = 0
    while jobs.hasNext():
        found += jobs.next().numFailedTasks()
    return found


class Killer(threading.Thread):
    """Kills an executor at a moment."""

    def __init__(self, spark, moment):
        super().__init__()
        self._spark, self._moment = spark, moment
        self.before = until(lambda: found if len(found := executors(spark)) == 2 else None, 60,
                            "two executors run")  # fmt: skip
        self.killed = None

    def run(self):
        until(self._moment, 120, "a task is amid its work")
        os.kill(self.before[0], signal.SIGKILL)
        self.killed = self.before[0]

    def __enter__(self):
        self._lost = lost_tasks(self._spark)
        self.start()
        return self

    def __exit__(self, *error):
        self.join(130)
        if error[0] is None:
            assert self.killed, "nobody was killed"
            assert lost_tasks(self._spark) > self._lost, "no task was lost"
            after = until(lambda: found if len(found := executors(self._spark)) == 2 else None, 60,
                          "there are two executors again")  # fmt: skip
            assert self.killed not in after


def test_lake(spark, cluster, tmp_path):
    topic = create(cluster, "lake", 3)
    produced = Produced(cluster.bootstrap, topic).send(numbered(0, COUNT), **SMALL)
    sets = lake_settings(cluster.bootstrap, tmp_path, [topic], lake__batch_records=1500)
    table = tmp_path / topic
    with Killer(spark, lambda: list(table.glob("data/event_date=*/*.parquet"))) as killer:
        done = land_here(spark, [*sets, FETCH], "--verify")
    assert done.code == 0, done.told
    assert killer.killed
    assert done.result["topics"][topic]["rows"] == COUNT
    assert differences(by_library(table / "data"), produced) == []
    assert differences(by_spark(spark, table / "data"), produced) == []


@pytest.mark.parametrize("rows", [False, True])
def test_replay(spark, cluster, rows):
    topic = create(cluster, f"replay-{rows}".lower(), 2)
    to = create(cluster, f"{topic}-copy", 2)
    Produced(cluster.bootstrap, topic).send(numbered(0, COUNT), **SMALL)
    filtered = {"filter": "offset >= 0"} if rows else {}
    sets = replayed.settings_of(cluster.bootstrap, cluster.bootstrap, topic, to,
                                batch_records=1_500, **filtered)  # fmt: skip

    consumer = Consumer(named(cluster.bootstrap, {"group_id": "witness"}))

    def some():
        ends = [consumer.get_watermark_offsets(TopicPartition(to, p), 10)[1] for p in (0, 1)]
        return sum(ends) > COUNT // 10

    with Killer(spark, some):
        done = replayed.run_here(spark, sets, "--verify")
    consumer.close()
    assert (done.code, done.result["exactly_once"]) == (0, True), done
    source = replayed.read_all(cluster.bootstrap, topic)
    assert len(source) == COUNT
    assert replayed.differences(source, replayed.read_all(cluster.bootstrap, to)) == []


def test_a_stream_of_the_source(spark, cluster, tmp_path):
    """Into files of Spark's own sink, which Spark alone reads as each record once."""
    topic = create(cluster, "streamed", 2)
    produced = Produced(cluster.bootstrap, topic).send(numbered(0, 2 * COUNT), **SMALL)
    rows, checkpoint = tmp_path / "rows", tmp_path / "checkpoint"

    def amid():
        """Return whether both executors are at work on the second micro-batch, or a later one."""
        if not (checkpoint / "offsets" / "1").exists():
            return False
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage.numActiveTasks == 2 for stage in stages if stage)

    with Killer(spark, amid):
        query = (
            spark.readStream.format("ottla")
            .options(bootstrap=cluster.bootstrap, subscribe=topic, startingOffsets="earliest",
                     maxOffsetsPerTrigger=3000)
            .option("kafka.max.partition.fetch.bytes", 2000)
            .load()
            .writeStream.format("parquet")
            .option("path", str(rows))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )  # fmt: skip
        assert query.awaitTermination(200)
    found = spark.read.parquet(str(rows)).collect()
    assert len(found) == 2 * COUNT
    truth = {place: key for place, (key, _, _) in produced.acked.items()}
    assert {(r["partition"], r["offset"]): bytes(r["key"]) for r in found} == truth
