"""format("ottla") as people run Spark: a standalone cluster of two workers, over Spark Connect.

The server of Connect is the driver; tasks run in the workers' executors, each a process of its own.
Also an environment that is not activated, where Spark's Python is another one.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

pytest.importorskip("grpc")  # Spark Connect's client

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.cluster import OttlaCluster, free_ports
from support.landed import Produced, numbered
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.timeout(300)]

HOME = Path(pyspark.__file__).parent
COUNT = 400
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
CONNECTED = """
import json, sys
from pyspark.sql import SparkSession
import pyspark_ottla
address, bootstrap, folder = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "numbers"}
def executors(batches):
    import os, pyarrow
    for batch in batches:
        yield pyarrow.RecordBatch.from_pylist([{"folder": os.getcwd(), "n": batch.num_rows}])
frame = spark.read.format("ottla").options(**options, minPartitions="6").load()
spread = frame.mapInArrow(executors, "folder string, n long").groupBy("folder").sum("n").collect()
pyspark_ottla.register(spark)
query = (
    spark.readStream.format("ottla").options(**options, startingOffsets="earliest").load()
    .writeStream.format("parquet").option("path", folder + "/rows")
    .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination(120)
from ottla.pipelines.progress import lag_of
spark.sql("create temporary view numbers using ottla options "
          f"('kafka.bootstrap.servers' '{bootstrap}', 'subscribe' 'numbers')")
print(json.dumps({
    "executors": len(spread), "batch": sum(row[1] for row in spread),
    "stream": spark.read.parquet(folder + "/rows").count(),
    "lag": lag_of(query.lastProgress),
    "sql": spark.sql("select count(distinct partition, offset) from numbers").first()[0],
}))
"""
NOT_ACTIVATED = """
import sys
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").config("spark.log.level", "OFF").getOrCreate())
read = lambda: (spark.read.format("ottla").option("kafka.bootstrap.servers", sys.argv[1])
                .option("subscribe", "numbers").load().count())
try:
    read()
except Exception as error:
    print("fails", str(error)[:500].replace("\\n", " "))
import pyspark_ottla
pyspark_ottla.register(spark)
print(read())
"""


@pytest.fixture(scope="module")
def produced(tmp_path_factory):
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=1) as cluster:
        command = [sys.executable, "-m", "ottla", "topics", "create", "numbers", "--partitions",
                   "2", "--replication-factor", "1",
                   "--bootstrap-server", cluster.bootstrap]  # fmt: skip
        subprocess.run(command, check=True, timeout=60)
        yield Produced(cluster.bootstrap, "numbers").send(numbered(0, COUNT))


def started(stack, folder, name, sign, *command):
    """Start a program of Spark's; wait until its log has a sign."""
    log = folder / f"{name}.log"
    environment = os.environ | {
        "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(folder / "work"), "SPARK_DAEMON_MEMORY": "640m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            [HOME / "bin" / command[0], *command[1:]], stdout=out, stderr=out, cwd=folder,
            env=environment, start_new_session=True,
        )  # fmt: skip

    def stop():
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)

    stack.callback(stop)
    return lambda: until(lambda: sign in log.read_text(), 120, log.read_text)


@pytest.fixture(scope="module")
def connect(tmp_path_factory):
    """Start a master, two workers of a core each, and a server of Spark Connect on them."""
    folder = tmp_path_factory.mktemp("spark")
    master, page, server = free_ports(3)
    address = f"spark://127.0.0.1:{master}"
    deploy = ["spark-class", "org.apache.spark.deploy"]
    with ExitStack() as stack:
        ready = started(
            stack, folder, "master", "I have been elected leader", deploy[0],
            f"{deploy[1]}.master.Master", "--host", "127.0.0.1", "--port", str(master),
            "--webui-port", str(page),
        )  # fmt: skip
        ready()
        waits = [
            started(
                stack, folder, f"worker{n}", "Successfully registered with master", deploy[0],
                f"{deploy[1]}.worker.Worker", "--host", "127.0.0.1", "--cores", "1",
                "--memory", "700m", "--webui-port", "0", address,
            )
            for n in range(2)
        ]  # fmt: skip
        conf = {
            "spark.connect.grpc.binding.port": server, "spark.driver.host": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1", "spark.ui.enabled": "false",
            "spark.executor.memory": "512m", "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.cores.max": "2", "spark.executor.cores": "1",
            "spark.sql.shuffle.partitions": "2",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        }  # fmt: skip
        options = [word for k, v in conf.items() for word in ("--conf", f"{k}={v}")]
        ready = started(
            stack, folder, "connect", "Spark Connect server started", "spark-submit",
            "--master", address, *options, "--class", SERVER,
        )  # fmt: skip
        for wait in waits:
            wait()
        ready()
        yield f"sc://127.0.0.1:{server}"


def run(script, *arguments, **environment):
    # A job that ran in this process before has set some.
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True,
        timeout=240, check=False, env=kept | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_two_workers_read_a_topic_for_a_client_of_spark_connect(connect, produced, tmp_path):
    found = json.loads(run(CONNECTED, connect, produced.bootstrap, tmp_path)[-1])
    (lag,) = found.pop("lag")
    assert found == {"executors": 2, "batch": COUNT, "stream": COUNT, "sql": COUNT}
    assert (lag["offsetsBehindLatest"], lag["inputRows"]) == (0, COUNT)


def test_without_an_activated_environment_register_makes_it_known(produced, tmp_path):
    """Spark starts `python3` of the PATH: here one that knows no package of ours."""
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec "{sys.base_prefix}/bin/python3" -S "$@"\n')
    bare.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    before, after = run(NOT_ACTIVATED, produced.bootstrap, PATH=path)
    assert before.startswith("fails")
    assert after == str(COUNT)
