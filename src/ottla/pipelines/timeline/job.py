"""Job: the rules for all partitions and brokers, on Spark.

Who may call: `command`, tests. Invariants: a task holds one partition's facts at a time; the
driver holds what is per broker: names of files, clocks, deaths, and for each second in which a
broker wrote lines eight bytes (coarser where that is more than SIGNS). Metadata that many brokers
cached alike is put together before it is sorted.
"""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ottla.pipelines.timeline import clocks
from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.facts import Brokers, Fact
from ottla.pipelines.timeline.files import Files
from ottla.pipelines.timeline.findings import Acted, Finding, stale_controllers
from ottla.pipelines.timeline.history import history
from ottla.pipelines.timeline.read import Wanted, events_of, of_topic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SIGNS = 2_000_000
"""Signs of life that the driver and each task hold at most: 16 MB."""
RESULT = "topic string, partition int, what string, body string"
BODIES = {
    "states": "life int, leader_epoch int, leader int, isr string, version int, time_ms long, "
    "controller_epoch int",
    "terms": "life int, leader int, first_epoch int, last_epoch int, began_ms long, "
    "ended_from_ms long, ended_to_ms long, how string, own_word boolean, topic_id string, "
    "offset long",
    "gaps": "life int, after int, next int, start_from_ms long, start_to_ms long, end_ms long, "
    "least_ms long, most_ms long, how string",
    "findings": "kind string, level string, time_ms long, broker int, text string",
}
"""What a partition's history holds, and its columns behind `topic` and `partition`."""
_FACT = [name for name in Fact._fields if name not in {"place", "life"}]
_GATHERED = (e.CACHED, e.SENT)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What was made of the logs; tables are Spark's, and stay on the executors."""

    events: "DataFrame"
    """`events.Event` with `file`, `block`, `line`; `at_ms` is the time with clocks agreed."""
    result: "DataFrame"
    of_brokers: list[Finding]
    """Findings about no single partition."""
    shifts: dict[int, int]
    files: list[dict[str, Any]]
    lines: int
    unread: int
    dropped: int

    def table(self, what: str) -> "DataFrame":
        """Return `states`, `terms`, `gaps` or `findings` of all partitions."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

        rows = self.result.where(f.col("what") == what)
        body = f.from_json("body", BODIES[what]).alias("body")
        return rows.select("topic", "partition", body).select("topic", "partition", "body.*")

    def close(self) -> None:
        self.result.unpersist()
        self.events.unpersist()


def timeline(
    spark: "SparkSession", files: Files, wanted: Wanted, overlap_ms: int, *, keep_text: bool
) -> Timeline:
    """Read the files and apply the rules; the text of lines is kept only if it is asked for."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    table = events_of(spark, files, wanted)
    table = (table if keep_text else table.drop("text")).persist()
    found = _files(table)
    numbers = {row["file"]: number for number, row in enumerate(found)}
    shifts = clocks.shifts(_leads(table))
    at = f.col("time_ms") + _looked_up(shifts, f.col("broker"), 0)
    placed = table.withColumn("at_ms", at)
    last_ms = max((row["last_ms"] or 0 for row in found), default=0)
    brokers = Brokers(gone=_gone(placed), last_ms=last_ms)
    facts = _facts(of_topic(placed, wanted), numbers)
    rules = _Rules(_signs(placed), brokers, overlap_ms)
    result = facts.mapInArrow(rules, RESULT).persist()
    return Timeline(
        placed,
        result,
        stale_controllers(_acted(table, numbers)),
        shifts,
        found,
        sum(row["lines"] for row in found),
        sum(row["unread"] for row in found),
        sum(row["dropped"] or 0 for row in found),
    )


def _looked_up(known: Mapping[Any, int], key: Any, otherwise: int) -> Any:
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    if not known:
        return f.lit(otherwise)
    pairs = f.create_map(*[f.lit(item) for pair in known.items() for item in pair])
    return f.coalesce(f.try_element_at(pairs, key), f.lit(otherwise))


def _files(events: "DataFrame") -> list[dict[str, Any]]:
    """Return the files, the one that begins first being the first."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    read = f.col("kind") != e.UNREAD
    time = f.when(read, f.col("time_ms"))
    rows = (
        events.groupBy("file")
        .agg(
            f.min(time).alias("first_ms"),
            f.max(time).alias("last_ms"),
            f.count_if(read).alias("lines"),
            f.count_if(~read).alias("unread"),
            f.sum(f.when(f.col("kind") == e.DROPPED, f.col("offset"))).alias("dropped"),
            f.sort_array(f.collect_set(f.when(read, f.col("broker")))).alias("brokers"),
        )
        .collect()
    )
    return sorted((row.asDict() for row in rows), key=lambda r: (r["first_ms"] or 0, r["file"]))


def _leads(events: "DataFrame") -> list[clocks.Lead]:
    """Return by how much brokers acted before what they acted on was decided.

    A partition that was created twice had the same leader epochs twice: left out.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    key = ["topic", "partition", "leader_epoch"]
    created = (f.col("before") == "NonExistentPartition") & (f.col("after") == "NewPartition")
    again = (
        events.where(created & (f.col("level") != "JOURNAL"))
        .groupBy("topic", "partition")
        .count()
        .where("count > 1")
    )
    decided = (
        events.where((f.col("kind") == e.DECIDED) & f.col("leader_epoch").isNotNull())
        .groupBy(*key)
        .agg(f.min(f.struct("time_ms", f.col("broker").alias("controller"))).alias("decided"))
    )
    acted = events.where(f.col("kind").isin(e.LED, e.FOLLOWED) & f.col("leader_epoch").isNotNull())
    rows = (
        acted.join(decided, key)
        .join(again, ["topic", "partition"], "left_anti")
        .groupBy(f.col("decided.controller"), "broker")
        .agg(f.max(f.col("decided.time_ms") - f.col("time_ms")).alias("ms"))
        .collect()
    )
    return [clocks.Lead(row["controller"], row["broker"], row["ms"]) for row in rows]


def _gone(events: "DataFrame") -> dict[int, list[int]]:
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    rows = events.where(f.col("kind") == e.GONE).select("about", "at_ms").collect()
    ordered = sorted((row["about"], row["at_ms"]) for row in rows)
    return {b: [t for _, t in times] for b, times in groupby(ordered, key=lambda r: r[0])}


def _signs(events: "DataFrame") -> dict[int, list[int]]:
    """Return, by broker, the last time in each second in which it wrote something."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    step = 1000
    while True:
        cells = (
            events.where(f.col("kind") != e.UNREAD)
            .groupBy("broker", f.floor(f.col("at_ms") / step).alias("cell"))
            .agg(f.max("at_ms").alias("at_ms"), f.min("at_ms").alias("from_ms"))
        )
        rows = cells.limit(SIGNS // 2 + 1).collect()
        if len(rows) <= SIGNS // 2:
            break
        step *= 60
    ordered = sorted({(r["broker"], ms) for r in rows for ms in (r["from_ms"], r["at_ms"])})
    return {b: [t for _, t in times] for b, times in groupby(ordered, key=lambda r: r[0])}


def _acted(events: "DataFrame", numbers: Mapping[str, int]) -> list[Acted]:
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    acting = f.col("kind").isin(e.CACHED, e.LED, e.FOLLOWED) & f.col("epoch").isNotNull()
    place = f.struct("block", "line", "time_ms")
    rows = (
        events.where(acting & (f.col("side") == e.BROKER))
        .groupBy("broker", "file", "epoch")
        .agg(f.min(place).alias("first"), f.max(place).alias("last"))
        .collect()
    )
    return [
        Acted(
            row["broker"], numbers[row["file"]], row["epoch"],
            (row["first"]["block"], row["first"]["line"]), row["first"]["time_ms"],
            (row["last"]["block"], row["last"]["line"]), row["last"]["time_ms"],
        )
        for row in rows
    ]  # fmt: skip


def _facts(events: "DataFrame", numbers: Mapping[str, int]) -> "DataFrame":
    """Return what the rules look at, each partition's together and in the order of files."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    ruled = events.where(f.col("kind").isin(*e.RULED) & f.col("topic").isNotNull())
    ruled = ruled.withColumn("file", _looked_up(numbers, f.col("file"), -1))
    ruled = ruled.withColumn("time_ms", f.col("at_ms"))
    columns = ["topic", "partition", *_FACT, "block", "line"]
    gathered = f.col("kind").isin(*_GATHERED)
    same = ["topic", "partition", "leader", "leader_epoch", "isr", "version"]
    once = (
        ruled.where(gathered & f.col("leader_epoch").isNotNull())
        .groupBy(*same)
        .agg(f.min("time_ms").alias("time_ms"), f.min("broker").alias("broker"))
    )
    missing = {
        c: f.lit(None).cast(ruled.schema[c].dataType) for c in columns if c not in once.columns
    }
    once = once.withColumns({**missing, "kind": f.lit(e.CACHED), "level": f.lit("TRACE")})
    both = ruled.where(~gathered).select(*columns).unionByName(once.select(*columns))
    order = ["topic", "partition", "file", "block", "line"]
    return both.repartition("topic", "partition").sortWithinPartitions(*order)


class _Rules:
    """The rules, as Spark's Python workers run them: batches of facts to batches of results."""

    def __init__(self, signs: dict[int, list[int]], brokers: Brokers, overlap_ms: int) -> None:
        self._signs = signs
        self._gone = brokers.gone
        self._last_ms = brokers.last_ms
        self._overlap_ms = overlap_ms

    def _sign(self, broker: int, before: int) -> int | None:
        times = self._signs.get(broker, [])
        place = bisect_left(times, before)
        return times[place - 1] if place else None

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        rows = (row for batch in batches for row in _rows(batch))
        brokers = Brokers(self._sign, self._gone, self._last_ms)
        held: list[tuple[str, int, str, str]] = []
        for (topic, partition), group in groupby(rows, key=lambda row: row[:2]):
            facts = [
                Fact(*row[2:-2], place=place)  # type: ignore[misc]
                for place, row in enumerate(group)
            ]
            told = asdict(history(facts, brokers, self._overlap_ms))
            held += [
                (topic, partition, what, json.dumps(one))
                for what, all_ in told.items()
                for one in all_
            ]
            if len(held) >= 5000:
                yield _to_arrow(held)
                held = []
        if held:
            yield _to_arrow(held)


def _rows(batch: "pa.RecordBatch") -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _to_arrow(rows: Sequence[tuple[str, int, str, str]]) -> "pa.RecordBatch":
    import pyarrow as pa  # noqa: PLC0415 - an extra

    types = [pa.string(), pa.int32(), pa.string(), pa.string()]
    columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=["topic", "partition", "what", "body"])
