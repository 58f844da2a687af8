"""Acks: acknowledgements that producers received, as rows of topic, partition, offset and time.

Invariants: a line that is cut off or no number is left out and counted, since a producer may be
killed while it writes; a file without the needed columns is an error before anything is read.
Formats: CSV with a line of names, JSON lines, Parquet; columns `partition`, `offset`, and, where
they are, `topic` and `ms` (milliseconds since 1970, when it came).
"""

from pathlib import Path
from typing import TYPE_CHECKING

from ottla.model.errors import OttlaError
from ottla.pipelines.paths import spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEEDED = ("partition", "offset")
_JSON = (".json", ".jsonl", ".ndjson")


def read(
    spark: "SparkSession", path: str, topics: list[str], between: tuple[int | None, int | None]
) -> tuple["DataFrame", int]:
    """Return rows (topic, partition, offset, ms; ms 0 where unknown), and how many were unreadable.

    `between`: only what was reported then, in ms; both ends included. OttlaError if nothing can be
    read.
    """
    from pyspark.sql import functions as f

    table = _table(spark, path)
    names = set(table.columns)
    if not names.issuperset(NEEDED):
        raise OttlaError(
            f"acknowledgements: {path} has the columns {', '.join(sorted(names))}; it needs "
            "partition and offset, and may have topic and ms"
        )
    if "topic" not in names:
        if len(topics) != 1:
            raise OttlaError(
                f"acknowledgements: {path} has no column topic; name the one topic by --topic"
            )
        table = table.withColumn("topic", f.lit(topics[0]))
    has_time = "ms" in names
    if not has_time:
        table = table.withColumn("ms", f.lit(0))
    kinds = {"topic": "string", "partition": "int", "offset": "long", "ms": "long"}
    rows = table.select(*[f.col(n).try_cast(kind).alias(n) for n, kind in kinds.items()])
    whole = f.lit(True)
    for name in kinds:
        whole = whole & f.col(name).isNotNull()
    whole = whole & (f.col("partition") >= 0) & (f.col("offset") >= 0)
    marked = rows.withColumn("whole", whole).persist()
    counted = {row["whole"]: row["count"] for row in marked.groupBy("whole").count().collect()}
    if not counted.get(True):
        raise OttlaError(f"acknowledgements: {path} has no line with a partition and an offset")
    found = marked.where("whole").drop("whole")
    if topics:
        found = found.where(f.col("topic").isin(topics))
    since, until = between
    if has_time and since is not None:
        found = found.where(f.col("ms") >= since)
    if has_time and until is not None:
        found = found.where(f.col("ms") <= until)
    return found, counted.get(False, 0)


def _table(spark: "SparkSession", path: str) -> "DataFrame":
    first = path
    if "://" not in path:
        local = Path(path)
        if not local.exists():
            raise OttlaError(f"acknowledgements: {path} does not exist")
        if local.is_dir():
            files = sorted(p for p in local.rglob("*") if p.is_file() and p.name[0] not in "._")
            if not files:
                raise OttlaError(f"acknowledgements: {path} has no file")
            first = str(files[0])
            if Path(first).suffix not in (*_JSON, ".parquet"):
                _refuse_other_names(files)
    where = spark_path(path)
    if first.endswith(".parquet"):
        return spark.read.parquet(where)
    if first.endswith(_JSON):
        return spark.read.json(where)
    return spark.read.option("header", "true").csv(where)


def _refuse_other_names(files: list[Path]) -> None:
    """Spark takes the names of the first file for all: refuse files that have others."""
    names: dict[str, Path] = {}
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as opened:
            names.setdefault(opened.readline().strip(), file)
    if len(names) > 1:
        one, other = list(names.values())[:2]
        raise OttlaError(
            f"acknowledgements: {one} and {other} do not begin with the same names of columns"
        )
