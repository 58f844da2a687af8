"""Sums: rows added up by topic, tier, producer and bucket, on Spark.

Invariants: the driver gets one row for each bucket and tier, and at most MOST producers' buckets in
which something is wrong; records stay on the executors. A record of a producer counts as found if
the log or the lake has it. Percentiles are approximate (Spark's `approx_percentile`), counts are
exact.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipelines.auditing.judging import (
    DOUBLED,
    DOUBLED_IN_LAKE,
    GONE,
    LOST,
    NOT_IN_LAKE,
    OTHER_BYTES,
    Bucket,
    Finding,
)
from ottla.pipelines.auditing.reading import LAKE, LOG, Held
from ottla.pipelines.landing.spans import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST = 1000
EXAMPLES = 10
_PRODUCER = ["topic", "producer", "bucket_ms"]


def buckets(rows: "DataFrame") -> list[Bucket]:
    """Return what each tier holds of each bucket."""
    from pyspark.sql import functions as f

    delay = f.col("delay_ms")
    found = (
        rows.groupBy("topic", "bucket_ms", "tier")
        .agg(
            f.count("*").alias("records"),
            f.sum("bytes").alias("bytes"),
            f.count_if(f.col("producer").isNull()).alias("unstamped"),
            f.count_if("malformed").alias("malformed"),
            f.round(f.mean(delay)).cast("long").alias("mean_ms"),
            f.approx_percentile(delay, [0.95, 0.99]).alias("high"),
            f.max(delay).alias("max_ms"),
        )
        .orderBy("topic", "bucket_ms", f.desc("tier"))
        .collect()
    )
    return [
        Bucket(
            row["topic"], row["bucket_ms"], row["tier"], row["records"], row["bytes"],
            row["unstamped"], row["malformed"], row["mean_ms"], (row["high"] or (None,))[0],
            (row["high"] or (None,))[-1], row["max_ms"],
        )
        for row in found
    ]  # fmt: skip


def judged_from(rows: "DataFrame", held: Iterable[Held]) -> dict[str, int | None]:
    """Return, by topic, the time from which on nothing was removed; None where all was.

    Of partitions whose log begins later than at offset 0 the first record's bucket may be in part.
    """
    from pyspark.sql import functions as f

    removed = {h.topic: h.removed for h in held if h.removed}
    if not removed:
        return {}
    first = f.min_by("bucket_ms", "offset").alias("first")
    found = rows.where(f.col("topic").isin(*removed)).groupBy("topic", "partition").agg(first)
    firsts = {(row["topic"], row["partition"]): row["first"] for row in found.collect()}
    return {
        topic: None
        if any((topic, p) not in firsts for p in partitions)
        else max(firsts[topic, p] for p in partitions)
        for topic, partitions in removed.items()
    }


def of_producers(rows: "DataFrame", reports: "DataFrame | None") -> list[Finding]:
    """Find what producers sent and no one has, what stands twice in the log, and other sizes."""
    from pyspark.sql import functions as f

    in_log = f.col("tier") == LOG
    ids = (
        rows.where(f.col("producer").isNotNull())
        .groupBy(*_PRODUCER, "number")
        .agg(f.count_if(in_log).alias("times"), f.sum(f.when(in_log, f.col("bytes"))).alias("size"))
        .persist()
    )
    try:
        per = _expected(ids, reports)
        wrong = (f.col("lost") > 0) | (f.col("doubled") > 0) | f.col("other_bytes")
        chosen = per.where(wrong).orderBy(*_PRODUCER).limit(MOST).collect()
        lost = {tuple(row[n] for n in _PRODUCER): row["expected"] for row in chosen if row["lost"]}
        missing = _missing(ids, reports, lost) if lost else {}
        return [one for row in chosen for one in _report(row, missing)]
    finally:
        ids.unpersist()


def _expected(ids: "DataFrame", reports: "DataFrame | None") -> "DataFrame":
    """Return, by producer and bucket, how many numbers are expected, lost, and doubled."""
    from pyspark.sql import functions as f

    per = ids.groupBy(*_PRODUCER).agg(
        f.count("*").alias("found"),
        (f.max("number") + 1).alias("reach"),
        f.sum(f.greatest(f.col("times") - 1, f.lit(0))).alias("doubled"),
        f.count_if(f.col("times") > 0).alias("in_log"),
        f.sum("size").alias("size"),
    )
    zero = f.lit(0).cast("long")
    if reports is None:
        unknown = f.lit(None).cast("long")
        found = per.withColumns({"reported": zero, "reported_bytes": unknown, "open": zero})
    else:
        open_ones = (
            reports.select(*_PRODUCER, f.explode("unacknowledged").alias("number"))
            .join(ids, [*_PRODUCER, "number"], "left_anti")
            .groupBy(*_PRODUCER)
            .agg(f.count("*").alias("open"))
        )
        found = per.join(reports.drop("unacknowledged"), _PRODUCER, "full").join(
            open_ones, _PRODUCER, "left"
        )
    found = found.na.fill(0, [c for c in found.columns if c != "reported_bytes"])
    expected = f.greatest("reach", "reported")
    found = found.withColumn("expected", expected)
    found = found.withColumn("lost", f.col("expected") - f.col("found") - f.col("open"))
    same = (f.col("in_log") == f.col("reported")) & (f.col("doubled") == 0)
    differs = f.coalesce(f.col("size") != f.col("reported_bytes"), f.lit(False))
    return found.withColumn("other_bytes", same & differs)


def _missing(
    ids: "DataFrame", reports: "DataFrame | None", lost: Mapping[tuple[Any, ...], int]
) -> dict[tuple[Any, ...], list[int]]:
    """Return the first numbers that are lost, by producer and bucket."""
    from pyspark.sql import functions as f

    spark = ids.sparkSession
    asked = [(*key, count) for key, count in list(lost.items())[:EXAMPLES]]
    schema = "topic string, producer string, bucket_ms long, expected long"
    all_numbers = spark.createDataFrame(asked, schema).select(
        *_PRODUCER,
        f.explode(f.sequence(f.lit(0).cast("long"), f.col("expected") - 1)).alias("number"),
    )
    left = all_numbers.join(ids, [*_PRODUCER, "number"], "left_anti")
    if reports is not None:
        unsure = reports.select(*_PRODUCER, f.explode("unacknowledged").alias("number"))
        left = left.join(unsure, [*_PRODUCER, "number"], "left_anti")
    first = f.slice(f.sort_array(f.collect_list("number")), 1, EXAMPLES)
    rows = left.groupBy(*_PRODUCER).agg(first.alias("numbers")).collect()
    return {tuple(row[n] for n in _PRODUCER): row["numbers"] for row in rows}


def _report(row: Any, missing: Mapping[tuple[Any, ...], list[int]]) -> Iterable[Finding]:
    key = tuple(row[n] for n in _PRODUCER)
    topic, producer, bucket_ms = key
    if row["lost"] > 0:
        numbers = ", ".join(map(str, missing.get(key, ())))
        first = (
            f": {'the first are ' if row['lost'] > EXAMPLES else ''}{numbers}" if numbers else ""
        )
        text = f"of {row['expected']} records of {producer} {row['lost']} are nowhere{first}"
        yield Finding(LOST, topic, bucket_ms, row["lost"], text)
    if row["doubled"] > 0:
        text = f"records of {producer} stand in the log more than once"
        yield Finding(DOUBLED, topic, bucket_ms, row["doubled"], text)
    if row["other_bytes"]:
        text = f"{producer} sent {row['reported_bytes']} bytes, the log has {row['size']}"
        yield Finding(OTHER_BYTES, topic, bucket_ms, abs(row["size"] - row["reported_bytes"]), text)


def of_lake(
    spark: "SparkSession",
    rows: "DataFrame",
    held: Iterable[Held],
    landed: Mapping[str, Mapping[int, list[Span]]],
    *,
    compacted: bool,
) -> tuple[list[Finding], dict[tuple[str, int], int]]:
    """Compare lake and log offset by offset; return findings, and what is yet to land, by bucket.

    `landed`: by topic and partition, the offsets that the lake says it has.
    """
    from pyspark.sql import functions as f

    of_log = [(h.topic, p, s.start, s.end) for h in held for p, s in h.spans.items() if s.size]
    of_lake = [
        (topic, p, s.start, s.end)
        for topic, by in landed.items()
        for p, ss in by.items()
        for s in ss
    ]
    schema = "topic string, partition int, start long, end long"
    counted = (
        rows.where(f.col("topic").isin(*landed))
        .groupBy("topic", "partition", "offset")
        .agg(
            f.count_if(f.col("tier") == LOG).alias("log"),
            f.count_if(f.col("tier") == LAKE).alias("lake"),
            f.min("bucket_ms").alias("bucket_ms"),
        )
        .where("log <> 1 or lake <> 1")
    )
    for name, spans in (("is_held", of_log), ("is_landed", of_lake)):
        table = f.broadcast(spark.createDataFrame(spans, schema)).alias(name)
        inside = (
            (f.col(f"{name}.topic") == f.col("c.topic"))
            & (f.col(f"{name}.partition") == f.col("c.partition"))
            & f.col("c.offset").between(f.col(f"{name}.start"), f.col(f"{name}.end") - 1)
        )
        counted = (
            counted.alias("c")
            .join(table, inside, "left")
            .select("c.*", f.col(f"{name}.topic").isNotNull().alias(name))
        )
    first = f.min(f.struct("partition", "offset"))
    kind = (
        f.when(f.col("lake") > 1, DOUBLED_IN_LAKE)
        .when((f.col("log") > 0) & (f.col("lake") == 0) & f.col("is_landed"), NOT_IN_LAKE)
        .when((f.col("log") > 0) & (f.col("lake") == 0), "waiting")
        .when((f.col("log") == 0) & f.col("is_held") & f.lit(not compacted), GONE)
    )
    found = (
        counted.withColumn("kind", kind)
        .where(f.col("kind").isNotNull())
        .groupBy("kind", "topic", "bucket_ms")
        .agg(f.count("*").alias("count"), first.alias("first"))
        .collect()
    )
    waiting = {
        (row["topic"], row["bucket_ms"]): row["count"] for row in found if row["kind"] == "waiting"
    }
    findings = [
        Finding(
            row["kind"], row["topic"], row["bucket_ms"], row["count"],
            f"partition {row['first']['partition']}, offset {row['first']['offset']} is the first",
        )
        for row in found
        if row["kind"] != "waiting"
    ]  # fmt: skip
    return findings, waiting
