"""Samples: what was seen of a cluster again and again, as Parquet; rates out of their history.

Invariants: a sample is there whole or not at all: two files with its time as name, brokers first,
each renamed when it is complete. Spark reads the history; each partition's rate is a quantile of
those between its samples, in bytes per second.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.model.durable_files import replacing
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.pipelines.paths import of_disk, spark_path
from ottla.pipelines.rebalancing.seen import Seen, SeenBroker, SeenPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LONG, _INT, _TEXT = pa.int64(), pa.int32(), pa.string()
BROKERS = pa.schema(
    [
        ("at_ms", _LONG), ("cluster_id", _TEXT), ("id", _INT), ("rack", _TEXT), ("logs", _LONG),
        ("other", _LONG), ("total", _LONG), ("usable", _LONG),
    ]
)  # fmt: skip
PARTITIONS = pa.schema(
    [
        ("at_ms", _LONG), ("topic", _TEXT), ("partition", _INT), ("topic_id", _TEXT),
        ("replicas", pa.list_(_INT)), ("sizes", pa.list_(_LONG)), ("leader", _INT),
        ("offline", pa.list_(_INT)), ("moving", pa.bool_()), ("start", _LONG), ("end", _LONG),
    ]
)  # fmt: skip


def write(folder: Path, seen: Seen) -> None:
    """Add a sample; ConfigError if the folder has samples of another cluster."""
    of = cluster_of(folder)
    if of is not None and of != seen.cluster_id:
        raise ConfigError(
            f"{folder} has samples of cluster {of}, this is {seen.cluster_id}: name another folder"
        )
    brokers = [{"at_ms": seen.at_ms, "cluster_id": seen.cluster_id, **b._asdict()}
               for b in seen.brokers]  # fmt: skip
    partitions = [
        {"at_ms": seen.at_ms, "topic": p.tp.topic, "partition": p.tp.partition, **p._asdict()}
        for p in seen.partitions
    ]
    for name, rows, schema in (
        ("brokers", brokers, BROKERS),
        ("partitions", partitions, PARTITIONS),
    ):
        path = folder / name / f"{seen.at_ms}.parquet"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as part:
                pq.write_table(pa.Table.from_pylist(rows, schema=schema), part)
        except OSError as error:
            raise OttlaError(of_disk(error, path)) from None


def times(folder: Path) -> list[int]:
    """Return the times in ms of the samples that are whole, in order."""
    return sorted(
        int(path.stem)
        for path in (folder / "partitions").glob("[0-9]*.parquet")
        if (folder / "brokers" / path.name).exists()
    )


def cluster_of(folder: Path) -> str | None:
    """Return the id of the cluster that samples are of; None if there are none."""
    found = times(folder)
    return read_brokers(folder, found[-1])[1] if found else None


def read_brokers(folder: Path, at_ms: int) -> tuple[list[SeenBroker], str]:
    """Return the brokers of one sample, and its cluster's id."""
    path = folder / "brokers" / f"{at_ms}.parquet"
    try:
        rows = pq.ParquetFile(path).read().to_pylist()
    except pa.ArrowInvalid as error:
        raise OttlaError(f"{path}: {str(error).splitlines()[0]}") from None
    brokers = [SeenBroker(**{key: row[key] for key in SeenBroker._fields}) for row in rows]
    return brokers, str(rows[0]["cluster_id"]) if rows else ""


def history(
    spark: "SparkSession", folder: Path, quantile: float
) -> tuple[Seen, dict[TopicPartition, float]]:
    """Return the newest sample, and the rate of each of its partitions that has two or more."""
    found = times(folder)
    if not found:
        raise ConfigError(f"{folder} has no samples; `ottla pipeline rebalance --sample` takes one")
    paths = [spark_path(folder / "partitions" / f"{at_ms}.parquet") for at_ms in found]
    table = spark.read.parquet(*paths)
    rows = _newest(table, found[-1]).join(
        rates(table, quantile), ["topic", "partition", "topic_id"], "left"
    )
    brokers, cluster_id = read_brokers(folder, found[-1])
    partitions, reported = [], {}
    for row in rows.toArrow().to_pylist():
        tp = TopicPartition(row["topic"], row["partition"])
        partitions.append(_partition(tp, row))
        if row["rate"] is not None:
            reported[tp] = float(row["rate"])
    return Seen(found[-1], cluster_id, brokers, sorted(partitions)), reported


def _partition(tp: TopicPartition, row: dict[str, Any]) -> SeenPartition:
    lists = (tuple(row["replicas"]), tuple(row["sizes"]))
    offline = tuple(row["offline"])
    return SeenPartition(
        tp, row["topic_id"], *lists, row["leader"], offline, row["moving"], row["start"], row["end"]
    )


def _newest(table: "DataFrame", at_ms: int) -> "DataFrame":
    from pyspark.sql import functions as f

    return table.where(f.col("at_ms") == at_ms)


def rates(table: "DataFrame", quantile: float) -> "DataFrame":
    """Return topic, partition, topic_id and rate: the quantile of those between two samples.

    Between two samples: records that came, by the mean size of those in the log, by the second.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = ("topic", "partition", "topic_id")
    reported = table.where((f.col("end") >= f.col("start")) & (f.col("start") >= 0))
    by_time = Window.partitionBy(*key).orderBy("at_ms")
    held = f.col("end") - f.col("start")
    came = f.col("end") - f.lag("end").over(by_time)
    seconds = (f.col("at_ms") - f.lag("at_ms").over(by_time)) / 1000
    mean = f.when(held > 0, f.array_max("sizes") / held).otherwise(0.0)
    return (
        reported.withColumn("one", f.when(came >= 0, came * mean / seconds))
        .where(f.col("one").isNotNull())
        .groupBy(*key)
        .agg(f.percentile("one", f.lit(quantile)).alias("rate"))
    )
