"""Read: files of state-change logs and journals to a table of events, on Spark.

Who may call: `job`. Invariants: a line of a log is taken apart by Spark itself, by one pattern, in
the JVM (Python takes ten times as long); journals, which are short, by Python. A file's own order
is kept as (`block`, `line`), whatever the times say. A line that is none of a state-change log has
kind `unread`. Kafka: the same forms as `lines.parse`.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.pipelines.timeline import events as e
from ottla.pipelines.timeline import journals
from ottla.pipelines.timeline.events import Event
from ottla.pipelines.timeline.files import Files
from ottla.pipelines.timeline.forms import COLUMNS, FORMS, NAMING, PLAIN, SEPARATOR, Form

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

SCHEMA = (
    "time_ms long, broker int, side string, level string, kind string, epoch int, topic string, "
    "partition int, leader int, leader_epoch int, isr string, version int, previous int, "
    "topic_id string, about int, before string, after string, offset long, text string, "
    "file string, block long, line long"
)
_TYPES = dict(field.strip().split(" ") for field in SCHEMA.split(","))
_NAMES = list(_TYPES)
UTC = "UTC"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to keep. Times are milliseconds since 1970 UTC, both ends included."""

    topic: str | None = None
    partitions: tuple[int, ...] = ()
    start_ms: int | None = None
    end_ms: int | None = None
    zone: str = "UTC"
    """The time zone of the logs' times; journals have UTC by nature."""


def events_of(spark: "SparkSession", files: Files, wanted: Wanted) -> "DataFrame":
    """Return all events of the wanted time, those of other topics included."""
    tables = []
    if files.logs:
        tables.append(_of_logs(_lines(spark, files.logs), wanted.zone))
    if files.journals:
        tables.append(_lines(spark, files.journals).mapInArrow(_journal_batches, SCHEMA))
    table = tables[0] if len(tables) == 1 else tables[0].unionByName(tables[1])
    return _in_time(table, wanted)


def of_topic(events: "DataFrame", wanted: Wanted) -> "DataFrame":
    """Keep what is said of one topic's partitions, if one is wanted."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    if wanted.topic is None:
        return events
    kept = f.col("topic") == wanted.topic
    if wanted.partitions:
        kept = kept & f.col("partition").isin(*wanted.partitions)
    return events.where(kept)


def _in_time(events: "DataFrame", wanted: Wanted) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    time = f.col("time_ms")
    kept = f.lit(True)
    if wanted.start_ms is not None:
        kept = kept & (time >= wanted.start_ms)
    if wanted.end_ms is not None:
        kept = kept & (time <= wanted.end_ms)
    return events.where(kept | (f.col("kind") == e.UNREAD))


def _lines(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    return spark.read.text(list(paths)).select(
        "value",
        f.col("_metadata.file_path").alias("file"),
        f.col("_metadata.file_block_start").alias("block"),
        f.monotonically_increasing_id().alias("line"),
    )


def java_pattern(form: Form) -> tuple[str, str]:
    """Return a form as Java has it: the pattern, and the replacement that gives its columns.

    A group that takes no part in a match gives nothing.
    """
    numbers = re.compile(form.pattern).groupindex  # Java looks names up each time
    values = [
        "".join(f"${numbers[name]}" for name in groups if name in numbers)
        for groups in COLUMNS.values()
    ]
    return re.sub(r"\(\?P<\w+>", "(", form.pattern), SEPARATOR.join([form.kind, *values])


def _of_logs(lines: "DataFrame", zone: str) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    value = f.col("value")

    def taken_apart(form: Form) -> "Column":
        pattern, replacement = java_pattern(form)
        return f.regexp_replace(value, pattern, replacement)

    first = functools.reduce(
        lambda otherwise, form: f.when(value.contains(form.needle), taken_apart(form)).otherwise(
            otherwise
        ),
        reversed(FORMS),
        taken_apart(NAMING),
    )
    taken = _once(lines, "taken", first)
    # What no form fits, and what is no line of a state-change log.
    for form in (NAMING, PLAIN):
        known = f.col("taken")
        other = f.when(value.contains(form.needle), taken_apart(form)).otherwise(known)
        taken = _once(taken, "taken", f.when(known.contains(SEPARATOR), known).otherwise(other))
    parts = _once(taken, "parts", f.split("taken", SEPARATOR))
    return parts.select(*_columns(f.col("parts"), zone))


def _once(table: "DataFrame", name: str, value: "Column") -> "DataFrame":
    """Add a column whose value is worked out once per row, however many columns are made of it.

    Spark puts the expression into each of them otherwise; it cannot look through a generator.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    kept = [c for c in table.columns if c != name]
    return table.select(*kept, f.explode(f.array(value)).alias(name))


def _columns(parts: "Column", zone: str) -> list["Column"]:
    """Return the columns of SCHEMA, of a line's parts."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    places = {name: 1 + place for place, name in enumerate(COLUMNS)}
    part = {name: f.get(parts, f.lit(place)) for name, place in places.items()}
    moment = part["second"].cast("timestamp_ntz")
    second = (
        f.unix_timestamp(f.convert_timezone(f.lit(zone), f.lit("UTC"), moment))
        if zone != UTC
        else f.unix_timestamp(moment)
    )
    isr = part["isr"]
    wordy = f.regexp_replace(f.regexp_replace(isr, r"brokerEpoch=-?\d+", ""), r"[^\d]+", ",")
    isr = f.when(isr.contains("("), f.trim(wordy, f.lit(","))).otherwise(f.replace(isr, f.lit(" ")))
    made = {
        "time_ms": second * 1000 + part["ms"].cast("long"),
        "side": f.lower(part["role"]),
        "kind": f.when(f.size(parts) > 1, f.get(parts, f.lit(0))).otherwise(e.UNREAD),
        "isr": isr,
        "text": f.substring("value", 1, e.LONGEST_TEXT),
    }
    columns = []
    for name, kind in _TYPES.items():
        column = made.get(name, part.get(name))
        if column is None:
            column = f.col(name)
        if kind in {"int", "long"} and name in part:
            column = f.nullif(column, f.lit("")).try_cast(kind)
        elif name in part:
            column = f.nullif(column, f.lit(""))
        columns.append(column.alias(name))
    return columns


def _journal_batches(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Turn batches of lines into batches of events; run by Spark's Python workers."""
    for batch in batches:
        rows: list[tuple[object, ...]] = []
        for value, *place in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found = journals.parse(value) if value else []
            if found is None:
                found = [Event(0, -1, e.CONTROLLER, "", e.UNREAD, text=value[: e.LONGEST_TEXT])]
            rows += [(*event, *place) for event in found]
        yield to_arrow(rows)


def to_arrow(rows: Sequence[tuple[object, ...]]) -> "pa.RecordBatch":
    """Return rows as a batch of SCHEMA."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    types = {"long": pa.int64(), "int": pa.int32(), "string": pa.string()}
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_NAMES)
    arrays = [
        pa.array(column, types[kind]) for column, kind in zip(columns, _TYPES.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=_NAMES)
