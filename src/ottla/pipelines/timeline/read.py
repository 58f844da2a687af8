"""Read: files of state-change logs and journals to a table of events, on Spark.

Invariants: a line is read as `lines.parse` and `journals.parse` read it, by Python workers, many at
once (`templates`). A file's own order is kept as (`block`, `line`), whatever the times say.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.pipelines.paths import spark_path
from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline.files import Files

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ottla.pipelines.timeline.reading import Block, Split
    from ottla.pipelines.timeline.rows import Rows, Texts

SCHEMA = (
    "time_ms long, broker int, side string, level string, kind string, epoch int, topic string, "
    "partition int, leader int, leader_epoch int, isr string, version int, previous int, "
    "topic_id string, about int, before string, after string, offset long, text string, "
    "file string, block long, line long"
)
_UNPACKED = 16
"""How many bytes of lines a byte of a packed file holds, at most, as a rule."""
_TYPES = dict(field.strip().split(" ") for field in SCHEMA.split(","))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to keep. Times are milliseconds since 1970 UTC, both ends included."""

    topic: str | None = None
    partitions: tuple[int, ...] = ()
    start_ms: int | None = None
    end_ms: int | None = None
    zone: str = "UTC"
    """The time zone of the logs' times; journals have UTC by nature."""

    def in_time(self, rows: "Rows") -> "Rows":
        """Keep what was written in the wanted time, and what was not understood."""
        if self.start_ms is None and self.end_ms is None:
            return rows
        return rows[self.is_in_time(rows)]

    def is_in_time(self, rows: "Rows") -> "npt.NDArray[np.bool_]":
        """Tell which rows `in_time` keeps."""
        from ottla.pipelines.timeline.rows import KIND

        kept = rows["kind"] >= 0
        if self.start_ms is not None:
            kept &= rows["time_ms"] >= self.start_ms
        if self.end_ms is not None:
            kept &= rows["time_ms"] <= self.end_ms
        return kept | (rows["kind"] == KIND[e.UNREAD])  # type: ignore[no-any-return]


def of_topic(events: "DataFrame", wanted: Wanted) -> "DataFrame":
    """Keep what is said of one topic's partitions, if one is wanted."""
    from pyspark.sql import functions as f

    if wanted.topic is None:
        return events
    kept = f.col("topic") == wanted.topic
    if wanted.partitions:
        kept = kept & f.col("partition").isin(*wanted.partitions)
    return events.where(kept)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a task gets its lines: of its split of plain files, or as Spark hands them over."""

    wanted: Wanted
    splits: "Sequence[Split]" = ()

    def blocks(self, given: Iterator[Any]) -> Iterator[tuple["Texts", "Block"]]:
        """Give blocks and the texts of their rows, which are the same object for all.

        Given are numbers of splits, or Arrow's batches of lines.
        """
        from ottla.pipelines.timeline.reading import Reader

        reader = Reader(self.wanted.zone)
        for one in given:
            blocks = reader.of_split(self.splits[one]) if self.splits else reader.of_batch(one)
            for block in blocks:
                yield reader.texts, block


def plain_and_others(files: Files) -> tuple[list[str], list[str]]:
    """Return which files workers open, and which ones Spark reads."""
    from ottla.pipelines.timeline.reading import is_plain

    paths = [*files.logs, *files.journals]
    return [p for p in paths if is_plain(p)], [p for p in paths if not is_plain(p)]


def splits_of(spark: "SparkSession", plain: Sequence[str]) -> "list[Split]":
    """Divide plain files among tasks."""
    from ottla.pipelines.timeline.reading import splits

    return splits(plain, 2 * spark.sparkContext.defaultParallelism)


def lines_of(spark: "SparkSession", others: Sequence[str]) -> "DataFrame":
    """Return the lines of packed files and of addresses, as Spark reads them."""
    from pyspark.sql import functions as f

    return spark.read.text([spark_path(path) for path in others]).select(
        f.col("value").cast("binary"),
        f.col("_metadata.file_path").alias("file"),
        f.col("_metadata.file_block_start").alias("block"),
        f.monotonically_increasing_id().alias("line"),
    )


def size_of(spark: "SparkSession", files: Files) -> int:
    """Return how many bytes files have when they are unpacked, about."""
    plain, others = plain_and_others(files)
    size = sum(Path(path).stat().st_size for path in plain)
    if others:
        table = spark.read.text([spark_path(path) for path in others])
        plan = table._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - no public way
        # Spark has them as a BigInt, of which Py4J may make an int.
        size += _UNPACKED * int(str(plan.stats().sizeInBytes()))
    return size


def events_of(spark: "SparkSession", files: Files, wanted: Wanted) -> "DataFrame":
    """Return all events of the wanted time, those of other topics included; SCHEMA."""
    plain, others = plain_and_others(files)
    tables = []
    if plain or not others:
        parts = splits_of(spark, plain)
        numbers = spark.range(0, len(parts), 1, max(len(parts), 1))
        tables.append(numbers.mapInArrow(_Events(Reading(wanted, parts)), SCHEMA))
    if others:
        tables.append(lines_of(spark, others).mapInArrow(_Events(Reading(wanted)), SCHEMA))
    return tables[0] if len(tables) == 1 else tables[0].unionByName(tables[1])


def numbers_in(batches: Iterator["pa.RecordBatch"]) -> Iterator[int]:
    """Return the numbers of splits that Arrow's batches hold."""
    return (number for batch in batches for number in batch.column(0).to_pylist())


class _Events:
    """Lines to events, as Spark's Python workers run it."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        given = numbers_in(batches) if self._reading.splits else batches
        for texts, block in self._reading.blocks(given):
            yield _to_arrow(block, texts, self._reading.wanted)


def _to_arrow(block: "Block", texts: "Texts", wanted: Wanted) -> "pa.RecordBatch":
    import numpy as np
    import pyarrow as pa

    from ottla.pipelines.timeline import rows as r

    kept = wanted.is_in_time(block.rows) & (block.rows["kind"] != r.KIND[e.UNREAD])
    rows, of_line = block.rows[kept], block.of_line[kept]
    types = {"long": pa.int64(), "int": pa.int32(), "string": pa.string()}
    names = pa.array(texts.names, pa.string())

    def column(name: str) -> "pa.Array":
        if name == "text":
            found = block.lines
            spans = zip(found.starts[of_line], found.ends[of_line], strict=True)
            raw = [
                found.data[begin:end].tobytes().decode("utf-8", "replace") for begin, end in spans
            ]
            return pa.array([text[: e.LONGEST_TEXT] for text in raw], pa.string())
        values = np.ascontiguousarray(rows[name])
        if name == "kind":
            return pa.array(r.KINDS, pa.string()).take(pa.array(values))
        if name == "side":
            return pa.array(r.SIDES, pa.string()).take(pa.array(values))
        if _TYPES[name] == "string":
            return names.take(pa.array(values, mask=values == r.NO_TEXT))
        missing = values == r.NONE if name in (*r.NUMBERS, *r.LONG_NUMBERS) else None
        return pa.array(values, types[_TYPES[name]], mask=missing)

    return pa.RecordBatch.from_arrays([column(name) for name in _TYPES], names=list(_TYPES))
