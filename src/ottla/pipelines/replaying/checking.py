"""The check: both topics read again and compared, record by record, by the source's coordinates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.pipelines.replaying.rows import Spans

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

MISSING, DOUBLED, DIFFERS, FOREIGN = "missing", "doubled", "differs", "not of this copy"
MOST_FINDINGS = 100
PLACES = 5

Run = tuple[int, int, int, int, int]
"""Partition of the target and of the source, the first offset in each, how many."""


@dataclass(slots=True)
class Outcome:
    """What a check found; `copied`: what the target should have."""

    copied: int
    wrong: list[str] = field(default_factory=list)


def compare(wanted: "DataFrame", there: "DataFrame", spans: Spans) -> Outcome:
    """Compare rows of COPIED with those that stand in the target.

    A record below its span was copied and checked before: it is doubled now.
    """
    from pyspark.sql import functions as f

    nowhere = f.lit(None).cast("struct<to_partition:int,to_offset:bigint>")
    place = f.struct("to_partition", "to_offset")
    both = wanted.select("partition", "offset", _hash(), nowhere.alias("place")).unionAll(
        there.select("partition", "offset", _hash(), place.alias("place"))
    )
    found = both.groupBy("partition", "offset").agg(
        f.count_if(f.col("place").isNull()).alias("wanted"),
        f.count("place").alias("times"),
        (f.min("hash") != f.max("hash")).alias("differs"),
        f.slice(f.sort_array(f.collect_list("place")), 1, PLACES).alias("places"),
    )
    found = found.persist()
    try:
        copied = found.where("wanted > 0").count()
        wrong = found.where("wanted <> 1 or times <> 1 or differs")
        told = wrong.orderBy("partition", "offset").limit(MOST_FINDINGS).collect()
        more = wrong.count() - len(told) if len(told) == MOST_FINDINGS else 0
    finally:
        found.unpersist()
    lines = [_line(row, spans) for row in told]
    return Outcome(copied, lines + ([f"and {more} more records"] if more else []))


def _line(row: "Row", spans: Spans) -> str:
    partition, offset, wanted, times, _, places = row
    kind = DIFFERS
    if not times:
        kind = MISSING
    elif not wanted:
        kind = DOUBLED if offset < spans.get(partition, (offset + 1, 0))[0] else FOREIGN
    elif times > 1:
        kind = DOUBLED
    at = ", ".join(f"{p}:{o}" for p, o in places)
    return f"record {partition}:{offset} of the source: {kind}" + (f" (target {at})" if at else "")


def _hash() -> "Column":
    """Return a hash of all that has to arrive; nulls differ from what is empty."""
    from pyspark.sql import functions as f

    nulls = f.transform("headers", lambda h: h["value"].isNull())
    content = ("key", "value", "headers", "timestamp")
    return f.xxhash64(
        *content, f.col("key").isNull(), f.col("value").isNull(), f.coalesce(nulls, f.array())
    ).alias("hash")


def runs(there: "DataFrame", spans: Spans) -> list[Run]:
    """Return where the source's offsets of the spans stand in the target, in the source's order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    lane = ("to_partition", "partition", "apart")
    rows = there.withColumn("apart", f.col("to_offset") - f.col("offset"))
    number = f.row_number().over(Window.partitionBy(*lane).orderBy("offset"))
    found = (
        rows.withColumn("run", f.col("offset") - number)
        .groupBy(*lane, "run")
        .agg(f.min("to_offset").alias("x"), f.min("offset").alias("y"), f.count("*").alias("n"))
        .select("to_partition", "partition", "x", "y", "n")
        .orderBy("partition", "to_partition", "x")
        .collect()
    )
    return [tuple(row) for row in found if row["y"] < spans.get(row["partition"], (0, 0))[1]]


def spans_between(starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Return the span of each partition; one that has no start begins at 0."""
    return {p: (min(starts.get(p, 0), end), end) for p, end in ends.items()}
