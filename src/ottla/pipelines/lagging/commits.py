"""Commits: what coordinators keep in `__consumer_offsets`, a row for each commit.

Invariants: of transactions only what was committed; rows of log and lake that are the same record
are one row; a record that is no commit (a group's members, another version) is left out. Kafka:
`GroupMetadataManager.readMessageKey` and `OffsetCommitValue`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla.model.errors import OttlaError
from ottla.model.ids import GROUP_METADATA_TOPIC
from ottla.pipelines.landing.table import snapshot
from ottla.pipelines.paths import spark_path
from ottla.pipelines.source.data_source import TopicSource
from ottla.wire.codec import decode_versioned
from ottla.wire.messages.groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "group string, topic string, partition int, place long, at_ms long, committed long"
NEWEST_KEY_OF_AN_OFFSET = 1
_TYPES = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64())
_NAMES = [field.split()[0] for field in SCHEMA.split(", ")]


def records_of(spark: "SparkSession", client: Mapping[str, str], lake: str | None) -> "DataFrame":
    """Return the records of the topic: of the log, and of a lake that has what was compacted."""
    from pyspark.sql import functions as f

    spark.dataSource.register(TopicSource)
    log = (
        spark.read.format(TopicSource.name())
        .schema("key binary, value binary, partition int, offset long, timestamp timestamp")
        .options(**client)
        .option("subscribe", GROUP_METADATA_TOPIC)
        .option("kafka.isolation.level", "read_committed")
        .option("onDataLoss", "earliest")  # compaction and its tombstones go on while we read
        .load()
    )
    if lake is not None:
        files = [spark_path(path) for path in snapshot(Path(lake) / GROUP_METADATA_TOPIC)]
        if not files:
            raise OttlaError(
                f"{lake}/{GROUP_METADATA_TOPIC} has no batch; "
                "let `ottla pipeline lake` land it first"
            )
        columns = ("key", "value", "partition", "offset", "timestamp")
        landed = spark.read.parquet(*files).select(*(f.col(f"kafka_{n}").alias(n) for n in columns))
        log = log.unionByName(landed).dropDuplicates(["partition", "offset"])
    return log


def commits_of(records: "DataFrame") -> "DataFrame":
    """Return `SCHEMA`: a deletion has no `committed`; `place` orders a group's commits."""
    return records.select("key", "value", "offset", "timestamp").mapInArrow(_decoded, SCHEMA)


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [
            row
            for key, value, place, at in zip(
                *(batch.column(n).to_pylist() for n in range(3)),
                batch.column(3).cast(pa.int64()).to_pylist(),
                strict=True,
            )
            if (row := decoded(key, value, place, at // 1000)) is not None
        ]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(_NAMES)
        arrays = [pa.array(c, t) for c, t in zip(columns, _TYPES, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=_NAMES)


def decoded(
    key: bytes | None, value: bytes | None, place: int, at_ms: int
) -> tuple[Any, ...] | None:
    """Return a record's row of `SCHEMA`; None if it is no commit that can be read."""
    if key is None or not 0 <= int.from_bytes(key[:2], "big") <= NEWEST_KEY_OF_AN_OFFSET:
        return None
    try:
        found: Any = decode_versioned(OffsetCommitKey, key)
        if value is None:
            return found.group, found.topic, found.partition, place, at_ms, None
        commit: Any = decode_versioned(OffsetCommitValue, value)
    except OttlaError:
        return None
    at_ms = commit.commit_timestamp if commit.commit_timestamp >= 0 else at_ms
    return found.group, found.topic, found.partition, place, at_ms, commit.offset
