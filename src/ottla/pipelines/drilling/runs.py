"""Runs: which offsets each replica's files hold, as runs of whole, undamaged batches.

Invariants: a batch whose checksum is wrong holds nothing; batches that follow each other with the
same leader epoch and flags are one row, so that a row stands for many.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ottla.pipelines.drilling.cells import EXACT, GOOD_DATA, TRANSACTIONAL, Run
from ottla.pipelines.segments.batches import batch_rows
from ottla.pipelines.segments.folders import Segment
from ottla.pipelines.segments.reading import Piece

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "topic string, partition int, broker int, base long, last long, epoch int, flags int"
_COLUMNS = (
    "topic", "partition", "broker", "base_offset", "last_offset", "leader_epoch", "record_count",
    "transactional", "control",
)  # fmt: skip


def read(
    spark: "SparkSession", places: str, topics: list[str], partitions: list[int]
) -> "DataFrame":
    """Return the runs of all replicas under these folders."""
    from pyspark.sql import functions as f

    from ottla.pipelines.segments.source import SegmentsSource  # needs Spark

    spark.dataSource.register(SegmentsSource)
    reader = (
        spark.read.format(SegmentsSource.name())
        .option("mode", "batches")
        .option("damaged", "report")
    )
    if topics:
        reader = reader.option("topics", ",".join(topics))
    if partitions:
        reader = reader.option("partitions", ",".join(map(str, partitions)))
    sound = reader.load(places).where(
        f.col("damage").isNull() & (f.col("crc") == f.col("crc_computed"))
    )
    return sound.select(*_COLUMNS).mapInArrow(_merged, SCHEMA)


def runs_of(segment: Segment, piece: Piece) -> list[Run]:
    """Return the runs of a piece of one file, in this process."""
    import pyarrow.compute as pc

    rows = batch_rows(segment, piece)
    sound = rows.filter(
        pc.and_(pc.is_null(rows["damage"]), pc.equal(rows["crc"], rows["crc_computed"]))
    )
    found = []
    for batch in sound.select(list(_COLUMNS)).combine_chunks().to_batches():
        if batch.num_rows:
            columns = [column.to_pylist() for column in merged(batch).columns]
            found += [
                Run(broker, base, last, epoch, flags)
                for broker, base, last, epoch, flags in zip(*columns[2:], strict=True)
            ]
    return found


def _merged(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    for batch in batches:
        if batch.num_rows:
            yield merged(batch)


def merged(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Put batches together that follow each other in one replica."""
    import pyarrow as pa

    columns = dict(zip(_COLUMNS, batch.columns, strict=True))

    def numbers(name: str, kind: Any = np.int64) -> Any:
        return columns[name].fill_null(-1).to_numpy(zero_copy_only=False).astype(kind)

    base, last = numbers("base_offset"), numbers("last_offset")
    control = columns["control"].to_numpy(zero_copy_only=False).astype(bool)
    transactional = columns["transactional"].to_numpy(zero_copy_only=False).astype(bool)
    exact = numbers("record_count") == last - base + 1
    flags = GOOD_DATA * ~control + EXACT * exact + TRANSACTIONAL * transactional
    topic = columns["topic"].dictionary_encode()
    same = [
        topic.indices.to_numpy(zero_copy_only=False),
        numbers("partition"),
        numbers("broker"),
        numbers("leader_epoch"),
        flags,
    ]
    new = base[1:] != last[:-1] + 1
    for column in same:
        new |= column[1:] != column[:-1]
    starts = np.concatenate(([0], np.flatnonzero(new) + 1))
    ends = np.concatenate((starts[1:], [len(base)])) - 1
    take = pa.array(starts)
    return pa.RecordBatch.from_arrays(
        [
            columns["topic"].take(take),
            columns["partition"].take(take),
            columns["broker"].fill_null(-1).take(take),
            pa.array(base[starts]),
            pa.array(last[ends]),
            columns["leader_epoch"].take(take),
            pa.array(flags[starts].astype(np.int32)),
        ],
        names=["topic", "partition", "broker", "base", "last", "epoch", "flags"],
    )
