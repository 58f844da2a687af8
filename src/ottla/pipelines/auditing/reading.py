"""Reading: rows of the log, of the lake and of producers' reports, in one shape.

Invariants: what is read of a log is fixed before anything is read, and after reports and lake were
listed: so whatever these have was in the log by then. A lake of another topic or cluster is
refused. A row: `tier`, `topic`, `partition`, `offset`, `bucket_ms`, `producer`, `number` (null
without a stamp), `malformed`, `bytes` (null in the lake), `delay_ms`.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.auditing.stamps import BUCKET_MS, HEADER, PATTERN
from ottla.pipelines.landing.manifest import (
    DATA,
    DEAD,
    NAME,
    Manifest,
    batch_folder,
    decode_manifest,
)
from ottla.pipelines.landing.spans import Span, missing
from ottla.pipelines.landing.table import (
    Allowed,
    committed_batches,
    delta_problems,
    read_binding,
)
from ottla.pipelines.paths import spark_path
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.data_source import TopicSource
from ottla.pipelines.source.options import parse_options
from ottla.pipelines.source.planning import edges, partitions_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LOG, LAKE = "log", "lake"
LAKE_SCHEMA = (
    "kafka_headers array<struct<key:string,value:binary>>, kafka_timestamp timestamp, "
    "kafka_topic string, kafka_partition int, kafka_offset long"
)
REPORT_SCHEMA = (
    "topic string, producer string, bucket_ms long, count long, bytes long, "
    "unacknowledged array<long>, broken string"
)


@dataclass(frozen=True, slots=True)
class Held:
    """What is read of a topic's log: [start, end) by partition.

    `removed`: partitions of which retention took what comes before, and no lake has it.
    """

    topic: str
    spans: Mapping[int, Span]
    removed: frozenset[int]


@dataclass(frozen=True, slots=True)
class Landed:
    """A lake's table as it was when it was listed."""

    topic: str
    topic_id: str
    cluster_id: str
    isolation: str
    files: list[str]
    """Of rows and of dead letters."""
    committed_ms: Mapping[int, int]
    """By batch; of batches that compaction has put together no one knows it any more."""
    spans: Mapping[int, list[Span]]
    delta: list[str] = field(default_factory=list)
    """What is wrong with the table's Delta log, if it has one."""


def landed_of(lake: Path, topic: str) -> Landed:
    """List what is committed of a topic's table; OttlaError if there is none."""
    folder = lake / topic
    binding = read_binding(folder, Allowed())
    numbers = committed_batches(folder)
    if binding is None or not numbers:
        raise OttlaError(
            f"{folder} has no batch of a lake: let `ottla pipeline lake` land it first"
        )
    files: list[str] = []
    committed_ms: dict[int, int] = {}
    manifests: list[Manifest] = []
    for number in numbers:
        path = folder / DATA / batch_folder(number) / NAME
        manifest = decode_manifest(path.read_bytes(), str(path))
        manifests.append(manifest)
        if manifest.first == manifest.batch:
            committed_ms[number] = manifest.committed_ms
        files += [str(folder / DATA / file.path) for file in manifest.files_in_place()]
        files += [str(folder / DEAD / file.path) for file in manifest.dead_in_place()]
    return Landed(
        topic, binding.topic_id, binding.cluster_id, binding.isolation, files, committed_ms,
        manifests[-1].landed, delta_problems(folder, binding, manifests),
    )  # fmt: skip


def held_of(
    client: Mapping[str, str],
    topics: list[str],
    isolation: str,
    since_ms: int | None,
    lake: list[Landed],
) -> list[Held]:
    """Ask the cluster what its logs hold, from a time on; OttlaError if a lake is not of it.

    `client`: `config.Cluster.source_options`.
    """
    options = parse_options(
        {
            **client,
            "subscribe": ",".join(topics),
            "kafka.isolation.level": isolation,
        }
    )
    with Cluster(options) as cluster:
        found = cluster.topics(options.subscription)
        cluster_id = cluster.run(cluster.client.metadata([])).cluster_id or ""
        for landed in lake:
            topic_id = found[landed.topic].topic_id
            of = (landed.cluster_id, landed.topic_id)
            if of != (cluster_id, str(uuid.UUID(bytes=topic_id)) if any(topic_id) else ""):
                raise OttlaError(
                    f"the lake's table of {landed.topic} belongs to topic id {of[1]} of cluster "
                    f"{of[0]}, not to what {options.bootstrap} has; name the lake of this cluster"
                )
        partitions = partitions_of(found)
        first = edges(cluster, dict.fromkeys(partitions, EARLIEST))
        starts = first
        if since_ms is not None:
            at = edges(cluster, dict.fromkeys(partitions, since_ms))
            starts = {tp: max(offset, first[tp]) for tp, offset in at.items() if offset >= 0}
        ends = edges(cluster, dict.fromkeys(partitions, LATEST))
    held = []
    for name in topics:
        spans = {}
        for partition in found[name].partitions:
            tp = TopicPartition(name, partition)
            spans[partition] = Span(min(starts.get(tp, ends[tp]), ends[tp]), ends[tp])
        removed = {p for p, s in spans.items() if 0 < s.start == first[TopicPartition(name, p)]}
        for landed in lake:
            if landed.topic == name:
                removed = {p for p in removed if missing(Span(0, spans[p].start), landed.spans[p])}
        held.append(Held(name, spans, frozenset(removed)))
    return held


def log_rows(
    spark: "SparkSession",
    client: Mapping[str, str],
    isolation: str,
    held: list[Held],
    since_ms: int | None,
) -> "DataFrame":
    """Return the rows of the logs; with `since_ms` those that are not older."""
    from pyspark.sql import functions as f

    spark.dataSource.register(TopicSource)
    bounds = [
        json.dumps({h.topic: {str(p): getattr(s, side) for p, s in h.spans.items()} for h in held})
        for side in ("start", "end")
    ]
    records = (
        spark.read.format(TopicSource.name())
        .options(**client)
        .option("subscribe", ",".join(h.topic for h in held))
        .option("startingOffsets", bounds[0])
        .option("endingOffsets", bounds[1])
        .option("kafka.isolation.level", isolation)
        .option("includeHeaders", "true")
        .load()
    )
    if since_ms is not None:
        records = records.where(f.col("timestamp") >= f.timestamp_millis(f.lit(since_ms)))
    size = f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))
    return _rows(records.withColumn("bytes", size.cast("long")), LOG, f.unix_millis("timestamp"))


def lake_rows(spark: "SparkSession", landed: Landed, since_ms: int | None) -> "DataFrame | None":
    """Return the rows and dead letters of a table; None if no file is there."""
    from pyspark.sql import functions as f

    if not landed.files:
        return None
    batch = f.regexp_extract("_metadata.file_path", r"/batch=(\d+)/", 1).cast("int")
    committed = spark.createDataFrame(list(landed.committed_ms.items()), "batch int, at_ms long")
    table = (
        spark.read.schema(LAKE_SCHEMA)
        .parquet(*map(spark_path, landed.files))
        .withColumn("batch", batch)
    )
    table = table.join(f.broadcast(committed), "batch", "left")
    if since_ms is not None:
        table = table.where(f.col("kafka_timestamp") >= f.timestamp_millis(f.lit(since_ms)))
    names = {f"kafka_{n}": n for n in ("headers", "timestamp", "topic", "partition", "offset")}
    table = table.withColumnsRenamed(names).withColumn("bytes", f.lit(None).cast("long"))
    return _rows(table, LAKE, f.col("at_ms"))


def _rows(records: "DataFrame", tier: str, there_ms: "Column") -> "DataFrame":
    """Return records in the shape of this module; `there_ms`: when this tier had them."""
    from pyspark.sql import functions as f

    stamps = f.filter("headers", lambda header: header["key"] == HEADER)
    text = f.try_element_at(stamps, f.lit(-1))["value"].cast("string")
    part = [f.regexp_extract(text, PATTERN, group) for group in (1, 2, 3)]
    stamped = text.rlike(PATTERN)
    event_ms = f.when(stamped, part[1].cast("long")).otherwise(f.unix_millis("timestamp"))
    return records.select(
        f.lit(tier).alias("tier"),
        "topic",
        "partition",
        "offset",
        (f.floor(event_ms / BUCKET_MS) * BUCKET_MS).cast("long").alias("bucket_ms"),
        f.when(stamped, part[0]).alias("producer"),
        f.when(stamped, part[2].cast("long")).alias("number"),
        (text.isNotNull() & ~stamped).alias("malformed"),
        "bytes",
        f.when(stamped, there_ms - part[1].cast("long")).alias("delay_ms"),
    )


def report_rows(spark: "SparkSession", path: str, topics: list[str]) -> "DataFrame":
    """Return the newest report of each topic, producer and bucket; OttlaError if one is none."""
    from pyspark.sql import functions as f

    if "://" not in path and not Path(path).exists():
        raise OttlaError(f"reports: {path} does not exist")
    lines = (
        spark.read.schema(REPORT_SCHEMA)
        .option("columnNameOfCorruptRecord", "broken")
        .json(spark_path(path))
        .persist()
    )
    whole = (
        f.col("broken").isNull()
        & f.col("topic").isNotNull()
        & f.col("producer").isNotNull()
        & (f.col("bucket_ms") % BUCKET_MS == 0)
        & (f.col("count") >= 0)
    )
    broken = lines.where(~f.coalesce(whole, f.lit(False))).limit(1).collect()
    if broken:
        raise OttlaError(
            f"reports: {path} has a line that is no report: {_short(broken[0])}; a report has "
            "topic, producer, bucket_ms, count, bytes and unacknowledged"
        )
    newest = f.max(f.struct("count", -f.size("unacknowledged"), "bytes", "unacknowledged"))
    reports = (
        lines.where(f.col("topic").isin(topics))
        .withColumn("unacknowledged", f.coalesce("unacknowledged", f.array().cast("array<long>")))
        .groupBy("topic", "producer", "bucket_ms")
        .agg(newest.alias("newest"))
        .select(
            "topic", "producer", "bucket_ms",
            f.col("newest.count").alias("reported"),
            f.col("newest.bytes").alias("reported_bytes"),
            f.col("newest.unacknowledged").alias("unacknowledged"),
        )
        .persist()
    )  # fmt: skip
    reports.count()  # now: what is reported later may be later than what is read of the log
    lines.unpersist()
    return reports


def _short(row: Any) -> str:
    text = row["broken"] or str({k: v for k, v in row.asDict().items() if v is not None})
    return text if len(text) <= 120 else text[:120] + "…"
