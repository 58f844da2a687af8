"""Each job handed to spark-submit as a plain script, by the path that docs/PIPELINES.md names.

Spark's Java runs before our code then, so nothing of ours chooses its settings. What jobs should
find is known: records that were acknowledged.
"""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.pipelines.result_schemas import RESULTS
from support import replayed
from support.cluster import OttlaCluster
from support.landed import Produced, by_library, differences, numbered, settings_of
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


def test_lake(cluster, produced, tmp_path):
    lake = tmp_path / "lake"
    sets = settings_of(cluster.bootstrap, lake, [produced.topic])
    told = submitted("lake", "--verify", sets=sets)
    assert told["exactly_once"]
    assert differences(by_library(lake / produced.topic / "data"), produced) == []


@pytest.mark.parametrize("job", ["replay", "mirror"])
def test_replay_and_mirror(cluster, produced, job):
    to = f"submitted-{job}"
    sets = replayed.settings_of(cluster.bootstrap, cluster.bootstrap, produced.topic, to,
                                create=True)  # fmt: skip
    told = submitted(job, *(["--once"] if job == "mirror" else []), sets=sets)
    assert (told["records"], told["exactly_once"]) == (COUNT, True)
    source = replayed.read_all(cluster.bootstrap, produced.topic)
    assert replayed.differences(source, replayed.read_all(cluster.bootstrap, to)) == []
