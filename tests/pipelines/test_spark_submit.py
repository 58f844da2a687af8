"""Each job handed to spark-submit as a plain script, by the path that docs/PIPELINES.md names.

Spark's Java runs before our code then, so nothing of ours chooses its settings. What jobs should
find is known: records that were acknowledged, a byte that was flipped, offsets that were committed.
"""

import json
import os
import re
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.pipelines.result_schemas import RESULTS
from support import planted, replayed
from support.clients import named
from support.cluster import OttlaCluster
from support.drill_world import LEADS, TOPIC, World
from support.landed import Produced, by_pyarrow, differences, numbered, settings_of
from support.schemas import problems

pytestmark = [
    pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.alone,
    pytest.mark.timeout(900),
]  # fmt: skip
COUNT = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    few = dict.fromkeys(
        ("offsets_topic_num_partitions", "offsets_topic_replication_factor",
         "transaction_state_log_num_partitions", "transaction_state_log_replication_factor",
         "transaction_state_log_min_isr"), "1",
    )  # fmt: skip
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=1, **few) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def produced(cluster):
    command = [sys.executable, "-m", "ottla", "topics", "create", "numbers", "--partitions", "2",
               "--replication-factor", "1", "--bootstrap-server", cluster.bootstrap]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    return Produced(cluster.bootstrap, "numbers").send(numbered(0, COUNT))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "world")


def submitted(job, *arguments, sets=(), code=0):
    """Run a job by spark-submit; return what it printed, as JSON if that has a schema."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    script = import_module(f"ottla.pipelines.{job}").__file__
    words = [str(program), "--master", "local[2]", str(script), *map(str, arguments)]
    done = subprocess.run(
        ["bash", *words, *(w for one in sets for w in ("--set", one))],
        capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
             "PYSPARK_DRIVER_PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == code, done.stderr[-3000:]
    # Spark's PythonRunner puts what goes to stderr on stdout, too: the result is what comes last.
    begin = re.search(r"^\{", done.stdout, re.MULTILINE)
    if begin is None:
        return done.stdout
    found = json.loads(done.stdout[begin.start() :])
    assert problems(found, RESULTS[job]) == []
    return found


def test_lake_and_audit(cluster, produced, tmp_path):
    lake = tmp_path / "lake"
    sets = settings_of(cluster.bootstrap, lake, [produced.topic])
    told = submitted("lake", "--verify", sets=sets)
    assert told["exactly_once"]
    assert differences(by_pyarrow(lake / produced.topic / "data"), produced) == []
    sets = [f"cluster.bootstrap_servers={cluster.bootstrap}", f'audit.topics=["{produced.topic}"]',
            f"audit.lake={lake}"]  # fmt: skip
    found = submitted("audit", "--output", "json", sets=sets)
    assert found["findings"] == []
    for tier in ("log", "lake"):
        assert sum(b["records"] for b in found["buckets"] if b["tier"] == tier) == COUNT


@pytest.mark.parametrize("job", ["replay", "mirror"])
def test_replay_and_mirror(cluster, produced, job):
    to = f"submitted-{job}"
    sets = replayed.settings_of(cluster.bootstrap, cluster.bootstrap, produced.topic, to,
                                create=True)  # fmt: skip
    told = submitted(job, *(["--once"] if job == "mirror" else []), sets=sets)
    assert (told["records"], told["exactly_once"]) == (COUNT, True)
    source = replayed.read_all(cluster.bootstrap, produced.topic)
    assert replayed.differences(source, replayed.read_all(cluster.bootstrap, to)) == []


def test_lag(cluster, produced):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(named(cluster.bootstrap, {"group_id": "readers"}))
    consumer.commit(offsets=[TopicPartition(produced.topic, 0, 7)], asynchronous=False)
    consumer.close()
    end = max(offset for partition, offset in produced.acked if partition == 0) + 1
    out = submitted("lag", "--bootstrap-server", cluster.bootstrap, "--output", "json",
                    "--group", "readers", sets=["lag.minutes=1"])  # fmt: skip
    (found,) = out["partitions"]
    assert (found["committed"], found["end"], found["lag"]) == (7, end, end - 7)


def test_rebalance(cluster, produced, tmp_path):
    samples = tmp_path / "samples"
    for _ in range(2):
        submitted("rebalance", "--bootstrap-server", cluster.bootstrap, "--samples", samples,
                  "--sample")  # fmt: skip
        time.sleep(0.5)
    out = submitted("rebalance", "--samples", samples, "--output", "json",
                    sets=["rebalance.capacity=1 GB"])  # fmt: skip
    (broker,) = out["before"]["brokers"]
    assert broker["bytes"] > sum(len(value) for _, value, _ in produced.acked.values())


def test_replicas(world):
    first = planted.flip(world.segments(1, 0)[1], 0)
    places = ",".join(f"{b}={world.log_dir(b)}" for b in range(3))
    out = submitted("replicas", "--output", "json", "--topic", TOPIC, "--brokers", places, code=1)
    wrong = [f for f in out["findings"] if f["wrong"]]
    assert {(f["broker"], f["partition"], f["offset"]) for f in wrong} == {(1, 0, first)}


def test_timeline_and_drill(world, tmp_path):
    out = tmp_path / "out"
    found = submitted("timeline", world.folder, "--time-zone", "UTC", "--output", out, "--format",
                      "json", "--print", "json")  # fmt: skip
    assert found["errors"] == 0
    terms = [json.loads(x) for p in (out / "terms").glob("*.json") for x in p.open()]
    assert {(t["partition"], t["first_epoch"]): t["leader"] for t in terms} == LEADS
    for broker in range(3):
        planted.cut_tail(world.segments(broker, 0)[-1], 2)
    told = submitted("drill", world.folder, "--time-zone", "UTC", "--acks",
                     world.folder / "acks.csv", "--topic", TOPIC, "--output", tmp_path / "drill",
                     code=1)  # fmt: skip
    assert told.count("\n") == 1
    report = json.loads((tmp_path / "drill" / "report.json").read_text())
    kinds = {f["kind"] for p in report["partitions"] for f in p["findings"] if f["wrong"]}
    assert "lost" in kinds
