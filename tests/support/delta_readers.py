"""Reading Delta tables as strangers do: by the protocol alone, by delta-rs, DuckDB and Spark.

None of them knows of the lake's manifests. `by_protocol` is a reader of its own: it follows the
transaction log protocol for tables without checkpoints and refuses what it does not know.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote

from pyarrow import parquet


def versions(folder):
    """Return the actions of each version; fails if one is missing."""
    paths = sorted((folder / "_delta_log").glob("*.json"))
    assert [p.name for p in paths] == [f"{n:020d}.json" for n in range(len(paths))], paths
    return [[json.loads(line) for line in p.read_text().splitlines()] for p in paths]


def by_protocol(folder, version=None):
    """Return the rows of a version, the newest by default."""
    files, schema, kinds = {}, None, {}
    for actions in versions(folder)[: None if version is None else version + 1]:
        for action in actions:
            ((kind, told),) = action.items()
            if kind == "protocol":
                assert told["minReaderVersion"] == 1
            elif kind == "metaData":
                schema = json.loads(told["schemaString"])
                kinds = {f["name"]: f["type"] for f in schema["fields"]}
                assert set(told["partitionColumns"]) < kinds.keys()
            elif kind == "add":
                assert told["path"] not in files
                files[told["path"]] = told
            elif kind == "remove":
                del files[told["path"]]
            else:
                assert kind in ("commitInfo", "txn")
    found = []
    for path, add in files.items():
        file = folder / unquote(path)
        assert file.stat().st_size == add["size"]
        rows = parquet.ParquetFile(file).read().to_pylist()
        assert len(rows) == json.loads(add["stats"])["numRecords"]
        values = {
            name: int(text) if kinds[name] == "integer" and text is not None else text
            for name, text in add["partitionValues"].items()
        }
        for row in rows:
            assert row.keys() <= kinds.keys()
            found.append(dict.fromkeys(kinds) | row | values)
    return found


def by_delta_rs(folder, version=None):
    import deltalake

    return deltalake.DeltaTable(str(folder), version=version).to_pyarrow_table().to_pylist()


def by_duckdb(folder):
    """Return (rows, distinct places), or why there is no DuckDB with its Delta extension."""
    try:
        import duckdb
    except ImportError:
        return "duckdb is not installed"
    reader = duckdb.connect()
    try:
        reader.execute("LOAD delta")
    except duckdb.Error as error:
        return str(error).splitlines()[0]
    question = (
        "SELECT count(*), count(DISTINCT (kafka_partition, kafka_offset)) "
        f"FROM delta_scan('{folder}')"
    )
    return reader.execute(question).fetchall()[0]


JARS = Path(__file__).parent / "delta-pom.xml"
"""Delta for Spark: the jars beside Spark's own."""
VERSION = "4.2.0"


def spark_jars():
    """Return Delta's jars for Spark, fetched once by Maven; or why there are none."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(base) / "ottla" / "delta" / VERSION
    if not any(cache.glob("delta-spark*.jar")):
        maven = shutil.which("mvn")
        if maven is None:
            return "Maven is missing"
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:  # Maven writes beside the pom
            shutil.copy(JARS, Path(scratch) / "pom.xml")
            done = subprocess.run(
                [maven, "-q", "-B", "-f", f"{scratch}/pom.xml", "dependency:copy-dependencies",
                 "-DincludeScope=runtime", "-DincludeGroupIds=io.delta",
                 f"-DoutputDirectory={cache}", f"-Ddelta.version={VERSION}"],
                capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
        if done.returncode:
            return (
                f"Maven could not fetch io.delta:delta-spark_2.13:{VERSION}: {done.stdout[-300:]}"
            )
    return sorted(map(str, cache.glob("*.jar")))


SPARK = """
import json, sys
from pyspark.sql import functions as f
from ottla.pipelines.session import Wanted, start_session
jars, data, dead = sys.argv[1:]
delta = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
s = start_session("delta", Wanted("local[2]", {
    "spark.jars": jars, "spark.driver.memory": "700m",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": delta, "spark.databricks.delta.snapshotPartitions": "2",
}))
def places(path):
    rows = s.read.format("delta").load(path).select("kafka_partition", "kafka_offset").collect()
    return sorted([list(row) for row in rows])
rows = s.read.format("delta").load(data)
refused = {}
for name, write in {
    "append": lambda: rows.limit(1).write.format("delta").mode("append").save(data),
    "delete": lambda: s.sql(f"DELETE FROM delta.`{data}` WHERE n = 1"),
    "optimize": lambda: s.sql(f"OPTIMIZE delta.`{data}`").collect(),
    "vacuum": lambda: s.sql(f"VACUUM delta.`{data}`").collect(),
}.items():
    try:
        write()
    except Exception as error:
        refused[name] = str(error)
added = rows.where("kafka_key = X'6e6577'").select("added.a").collect()
print(json.dumps({"rows": places(data), "dead": places(dead), "refused": refused,
                  "added": sorted(row.a for row in added)}))
"""


def by_spark_delta(jars, data, dead):
    """Return what a Spark with Delta reads, and what it refuses to write."""
    done = subprocess.run(
        [sys.executable, "-c", SPARK, ",".join(jars), str(data), str(dead)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
