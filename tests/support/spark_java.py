"""What Spark's JVMs get in tests: they compile once and map their classes from an archive.

A session that starts and runs a query takes 8 s of processor time so, 15 s without. The archive is
in the virtual environment; `class_archive.py` writes it. Spark's launcher reads SPARK_SUBMIT_OPTS,
which `tests/conftest.py` sets.
"""

import hashlib
import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

from support import kafka_tools

WORK = """
from pyspark import SparkContext
from ottla.pipelines.session import Wanted, Work, start_session
spark = start_session("classes", Wanted("local[2]"), work=Work(quick_java=True))
rows = spark.range(100).selectExpr("id", "id % 7 AS k", "CAST(id AS STRING) AS v")
rows.groupBy("k").count().orderBy("k").collect()
rows.mapInArrow(lambda batches: batches, rows.schema).count()
rows.write.parquet({folder!r} + "/p")
rows.write.json({folder!r} + "/j")
spark.read.parquet({folder!r} + "/p").join(spark.read.json({folder!r} + "/j"), "id").collect()
stream = spark.readStream.schema(rows.schema).parquet({folder!r} + "/p").writeStream
stream = stream.format("parquet").option("checkpointLocation", {folder!r} + "/c")
stream.trigger(availableNow=True).start({folder!r} + "/s").awaitTermination()
spark.stop()
java = SparkContext._gateway.proc
java.stdin.close()  # it ends, and writes what it has loaded
java.wait(200)
"""


def archive() -> Path:
    """Return where the classes of this Spark on this Java are; Java checks that they fit."""
    found = next((d.version for d in distributions(name="pyspark")), "none")
    of = f"{Path(kafka_tools.java() or 'java').resolve()} {found}"
    return Path(sys.prefix) / f"spark-classes-{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa"


def options() -> str:
    """Return the options of Java for tests, as SPARK_SUBMIT_OPTS takes them."""
    quick = " ".join(kafka_tools.QUICK_JVM)
    # Where it does not fit, Java goes on without, and would say so in its output.
    return (
        f"{quick} -XX:SharedArchiveFile={archive()} -Xlog:disable" if archive().exists() else quick
    )


def write(part: Path, folder: Path) -> None:
    """Do some of what tests do in a session whose Java writes its loaded classes to `part`."""
    java = f"{' '.join(kafka_tools.QUICK_JVM)} -XX:ArchiveClassesAtExit={part} -Xlog:disable"
    subprocess.run(
        [sys.executable, "-c", WORK.format(folder=str(folder))],
        env=os.environ | {"SPARK_SUBMIT_OPTS": java},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )
