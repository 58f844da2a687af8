"""Job: timeline, replicas, acknowledgements and lake, joined by partition on Spark.

Invariants: acknowledgements are read first, then the lake's manifests, then the cluster is asked,
then files are listed: what was acknowledged or landed is in the log by then. A task holds CELL
offsets of one partition, or one partition's parts, at a time; the driver holds what is per log
folder and per file, not what is per record.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition, uuid_to_text
from ottla.pipelines import config
from ottla.pipelines.auditing.reading import Landed, landed_of
from ottla.pipelines.drilling import acks as acknowledgements
from ottla.pipelines.drilling import reasons, runs
from ottla.pipelines.drilling.cells import CELL, Run, judge
from ottla.pipelines.drilling.held import SCHEMA as HELD_SCHEMA
from ottla.pipelines.drilling.held import Confirmed, Given, known_of, report_of, row_of, told_of
from ottla.pipelines.landing.manifest import DATA, NAME, batch_folder, decode_manifest
from ottla.pipelines.landing.table import committed_batches
from ottla.pipelines.paths import spark_path
from ottla.pipelines.replica_files import job as replica_job
from ottla.pipelines.replica_files.files import topic_id_in
from ottla.pipelines.segments.folders import Place
from ottla.pipelines.segments.folders import Wanted as Logs
from ottla.pipelines.timeline import clocks
from ottla.pipelines.timeline.files import Files
from ottla.pipelines.timeline.job import timeline
from ottla.pipelines.timeline.read import Wanted as Times

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PART = "topic string, partition int, what string, body string"
RESULT = "topic string, partition int, rank int, body string"
_CELL_ROWS = (
    "topic", "partition", "cell", "kind", "offset", "last", "ms", "broker", "epoch", "flags", "text"
)  # fmt: skip
_ACK, _ROW, _RUN, _LANDED, _KNOWN = range(5)
_DECISION, _EVENT = "decision", "event"
_JOURNALED = "what string, epoch int, cause long, topic string, partition int, body string"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to join. `files` None: no logs; `cluster` None: the cluster is not asked."""

    places: Sequence[Place]
    files: Files | None
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    cluster: config.Cluster | None = None
    acks: str | None = None
    lake: str | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    zone: str = "UTC"
    overlap_ms: int = 1000


@dataclass(slots=True)
class Drill:
    """What was joined: a row for each partition (RESULT), the worst first when ordered by rank."""

    result: "DataFrame"
    general: dict[str, Any]
    """What is of no single partition: inputs, clocks, findings about brokers."""
    held: list[Any] = field(default_factory=list)

    def close(self) -> None:
        for table in self.held:
            table.unpersist()


def drill(spark: "SparkSession", wanted: Wanted) -> Drill:
    """Run all parts and join them; OttlaError if what was named cannot be read."""
    kept: list[Any] = []
    general: dict[str, Any] = {"acknowledgements": None, "lake": None, "logs": None}
    acks, ack_topics = _acks(spark, wanted, general, kept)
    landed = landed_tables(wanted)
    general["lake"] = None if wanted.lake is None else sorted(one.topic for one in landed)
    logs = Logs(frozenset(wanted.topics), frozenset(wanted.partitions))
    planned = replica_job.plan(wanted.places, logs, wanted.cluster)
    refuse_other_topics(landed, planned)
    given = Given(
        frozenset(ack_topics),
        {one.topic: one.isolation == "read_committed" for one in landed},
        wanted.overlap_ms,
        wanted.start_ms is None and wanted.end_ms is None,
    )
    held = _replicas(spark, wanted, logs, planned).persist()
    kept.append(held)
    confirmed = _confirmed(spark, wanted, held)
    parts = [held.selectExpr("topic", "partition", "'base' what", "known body")]
    parts.append(held.selectExpr("topic", "partition", "'replicas' what", "body"))
    history = _history(spark, wanted, general, kept)
    parts += history
    if acks is not None or landed:
        terms = history[0] if history else None
        rows = _cell_rows(spark, wanted, acks, landed, held, terms)
        parts.append(
            rows.groupBy("topic", "partition", "cell").applyInPandas(_judging(given), PART)
        )
    if landed:
        parts.append(spark.createDataFrame(rows_of_manifests(landed, wanted), PART))
    general["cluster_asked"] = wanted.cluster is not None
    general["problems"] = list(planned.problems)
    general["delta"] = [line for one in landed for line in one.delta]
    general["files"] = planned.files
    joined = (
        _unioned(parts).repartition("topic", "partition").sortWithinPartitions("topic", "partition")
    )
    result = joined.mapInArrow(_Joint(given, confirmed), RESULT).persist()
    kept.append(result)
    return Drill(result, general, kept)


def _unioned(tables: Sequence["DataFrame"]) -> "DataFrame":
    whole = tables[0]
    for table in tables[1:]:
        whole = whole.unionByName(table)
    return whole


def _of_wanted(table: "DataFrame", wanted: Wanted) -> "DataFrame":
    from pyspark.sql import functions as f

    if wanted.topics:
        table = table.where(f.col("topic").isin(*wanted.topics))
    if wanted.partitions:
        table = table.where(f.col("partition").isin(*wanted.partitions))
    return table


# -- acknowledgements and the lake -----------------------------------------------------------------


def _acks(
    spark: "SparkSession", wanted: Wanted, general: dict[str, Any], kept: list[Any]
) -> tuple["DataFrame | None", list[str]]:
    if wanted.acks is None:
        return None, []
    rows, broken = acknowledgements.read(
        spark, wanted.acks, list(wanted.topics), (wanted.start_ms, wanted.end_ms)
    )
    rows = _of_wanted(rows, wanted).persist()
    kept.append(rows)
    counts = {row["topic"]: row["count"] for row in rows.groupBy("topic").count().collect()}
    note_acks(wanted, sum(counts.values()), broken, general)
    return rows, sorted(counts)


def note_acks(wanted: Wanted, records: int, broken: int, general: dict[str, Any]) -> None:
    """Note how many acknowledgements are compared; OttlaError if none is."""
    if not records:
        raise OttlaError(
            f"acknowledgements: {wanted.acks} has none of the topics, partitions and times that "
            f"are wanted ({broken} lines are unreadable), so nothing can be compared"
        )
    general["acknowledgements"] = {
        "path": wanted.acks, "records": records, "unreadable_lines": broken,
    }  # fmt: skip


def landed_tables(wanted: Wanted) -> list[Landed]:
    if wanted.lake is None:
        return []
    lake = Path(wanted.lake)
    if not lake.is_dir():
        raise OttlaError(f"lake: {lake} does not exist")
    names = [p.name for p in sorted(lake.iterdir()) if (p / "table.json").exists()]
    if not names:
        raise OttlaError(f"lake: {lake} has no table of the job `lake`")
    missing = sorted(set(wanted.topics) - set(names))
    if missing and len(missing) == len(wanted.topics):
        raise OttlaError(f"lake: {lake} has no table of {', '.join(missing)}")
    return [landed_of(lake, name) for name in names if not wanted.topics or name in wanted.topics]


def refuse_other_topics(landed: Sequence[Landed], planned: replica_job.Plan) -> None:
    """Refuse a lake that was landed from another topic of the same name."""
    for one in landed:
        for tp, logs in planned.logs.items():
            if tp.topic != one.topic:
                continue
            truth = planned.truths.get(tp)
            here = truth.topic_id if truth is not None else None
            here = here or next(
                (i for log in logs if (i := topic_id_in(f"{log.log_dir}/{tp}"))), None
            )
            of = uuid_to_text(uuid.UUID(one.topic_id).bytes) if one.topic_id else None
            if here and of and here != of:
                raise OttlaError(
                    f"lake: the table of {one.topic} belongs to topic id {of}, the brokers have "
                    f"{here}; name the lake of this cluster"
                )
            break


def rows_of_manifests(landed: Sequence[Landed], wanted: Wanted) -> list[tuple[str, int, str, str]]:
    """Return what the newest manifest of each table says of each partition."""
    rows = []
    for one in landed:
        folder = Path(wanted.lake or "") / one.topic
        newest = folder / DATA / batch_folder(committed_batches(folder)[-1]) / NAME
        manifest = decode_manifest(newest.read_bytes(), str(newest))
        for partition, spans in one.spans.items():
            if wanted.partitions and partition not in wanted.partitions:
                continue
            totals = manifest.totals.get(partition)
            body = {
                "landed": [(s.start, s.end - 1) for s in spans],
                "gaps": 0 if totals is None else totals.gaps,
                "lost": 0 if totals is None else totals.lost,
            }
            rows.append((one.topic, partition, "lake", json.dumps(body)))
    return rows


# -- replicas --------------------------------------------------------------------------------------


def _replicas(
    spark: "SparkSession", wanted: Wanted, logs: Logs, planned: replica_job.Plan
) -> "DataFrame":
    """Return a row of `held.SCHEMA` for each partition."""
    empty = [tp for tp in planned.logs if tp not in planned.written]
    tables = []
    if planned.files:

        def reported(key: tuple[str, int], rows: pd.DataFrame) -> pd.DataFrame:
            return told_of(planned, TopicPartition(str(key[0]), int(key[1])), rows)

        files = replica_job.segments(spark, wanted.places, logs)
        tables.append(
            files.select("topic", "partition", "folder", "file", "segment", "size", "facts")
            .groupBy("topic", "partition")
            .applyInPandas(reported, HELD_SCHEMA)
        )
    if empty or not tables:
        rows = [row_of(planned, tp, {}) for tp in empty]
        tables.append(spark.createDataFrame(rows, HELD_SCHEMA))
    return _unioned(tables)


def _confirmed(spark: "SparkSession", wanted: Wanted, held: "DataFrame") -> Confirmed:
    """Look a second time where something is wrong while a cluster runs; None: all counts.

    Brokers append, cut and delete while files are read: what is found once may be none.
    """
    if wanted.cluster is None:
        return None
    suspects = [
        row["topic"] for row in held.where("wrong > 0").select("topic").distinct().collect()
    ]
    if not suspects:
        return frozenset()
    again = replica_job.compare(
        spark, wanted.places, Logs(frozenset(suspects), frozenset(wanted.partitions)),
        wanted.cluster,
    )  # fmt: skip
    return frozenset((f.topic, f.partition, f.kind, f.broker, f.offset) for f in again.wrong)


# -- who led, and why ------------------------------------------------------------------------------


def _history(
    spark: "SparkSession", wanted: Wanted, general: dict[str, Any], kept: list[Any]
) -> list["DataFrame"]:
    """Return the parts of the timeline, and of the journals if there are any."""
    if wanted.files is None:
        return []
    one = wanted.topics[0] if len(wanted.topics) == 1 else None
    times = Times(
        one, wanted.partitions if one is not None else (), wanted.start_ms, wanted.end_ms,
        wanted.zone,
    )  # fmt: skip
    made = timeline(spark, wanted.files, times, wanted.overlap_ms)
    kept.append(made.judged)
    general["logs"] = {
        "files": made.files,
        "lines": made.lines,
        "unread": made.unread,
        "dropped": made.dropped,
        "clocks": clocks.tell(made.shifts),
    }
    general["findings_of_brokers"] = [
        {"kind": x.kind, "level": x.level, "time_ms": x.time_ms, "broker": x.broker, "text": x.text}
        for x in made.of_brokers
    ]
    tables = [_of_wanted(made.result, wanted)]
    if wanted.files.journals:
        tables.append(_of_wanted(_decisions(spark, wanted), wanted))
    return tables


def _decisions(spark: "SparkSession", wanted: Wanted) -> "DataFrame":
    """Return decisions with the events of their causes, as parts."""
    from pyspark.sql import functions as f

    assert wanted.files is not None
    lines = spark.read.text([spark_path(path) for path in wanted.files.journals])
    found = lines.mapInArrow(_Journal(wanted), _JOURNALED).persist()
    events = (
        found.where(f.col("what") == _EVENT)
        .groupBy("epoch", "cause")
        .agg(f.slice(f.collect_list("body"), 1, reasons.MOST_EVENTS).alias("events"))
    )
    decided = found.where(f.col("what") == _DECISION).join(events, ["epoch", "cause"], "left")
    whole = f.concat(
        f.lit('{"events":['),
        f.array_join(f.coalesce("events", f.array().cast("array<string>")), ","),
        f.lit("],"),
        f.substr("body", f.lit(2)),
    )
    return decided.select("topic", "partition", f.lit(_DECISION).alias("what"), whole.alias("body"))


def decided_in_time(decision: reasons.Decision, wanted: Wanted) -> bool:
    return (wanted.start_ms is None or decision.ts >= wanted.start_ms) and (
        wanted.end_ms is None or decision.ts <= wanted.end_ms
    )


class _Journal:
    """Lines of journals to decisions and events, in Spark's Python workers."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        for batch in batches:
            rows = [row for (raw,) in _rows(batch) if raw and (row := self._row(raw)) is not None]
            if rows:
                yield _to_arrow(rows, _JOURNALED)

    def _row(self, raw: str) -> tuple[Any, ...] | None:
        found = reasons.parse(raw)
        if found is None:
            return None
        epoch, cause = reasons.cause_of(raw)
        if isinstance(found, reasons.Event):
            return (_EVENT, epoch, cause, None, None, msgspec.json.encode(found).decode())
        topic, partition, decision = found
        if not decided_in_time(decision, self._wanted):
            return None
        body = msgspec.to_builtins(decision)
        del body["events"]  # those of its cause come from other lines
        return (_DECISION, epoch, cause, topic, partition, json.dumps(body))


# -- offsets ---------------------------------------------------------------------------------------


def _cell_rows(
    spark: "SparkSession",
    wanted: Wanted,
    acks: "DataFrame | None",
    landed: Sequence[Landed],
    held: "DataFrame",
    terms: "DataFrame | None",
) -> "DataFrame":
    """Return all that is known of offsets, each row with its cell."""
    from pyspark.sql import functions as f

    def shaped(table: "DataFrame", kind: int, **columns: Any) -> "DataFrame":
        """Give a table the columns of _CELL_ROWS; what it lacks is 0."""
        made = {"last": "offset", "ms": f.lit(0), "broker": f.lit(-1), "epoch": f.lit(-1),
                "flags": f.lit(0), **columns}  # fmt: skip
        types = {"offset": "long", "last": "long", "ms": "long", "broker": "int", "epoch": "int",
                 "flags": "int"}  # fmt: skip
        table = table.withColumns(
            {n: (f.col(c) if isinstance(c, str) else c).cast(types[n]) for n, c in made.items()}
        )
        if "cell" not in table.columns:
            table = table.withColumn("cell", f.floor(f.col("offset") / CELL))
        if "text" not in table.columns:
            table = table.withColumn("text", f.lit(None).cast("string"))
        return table.withColumn("kind", f.lit(kind)).select(*_CELL_ROWS)

    def in_cells(table: "DataFrame") -> "DataFrame":
        """Repeat rows of offsets `offset` to `last` for each cell that they are in."""
        cells = f.sequence(f.floor(f.col("offset") / CELL), f.floor(f.col("last") / CELL))
        return table.withColumn("cell", f.explode(cells))

    texts = ",".join(p.path if p.broker is None else f"{p.broker}={p.path}" for p in wanted.places)
    of_logs = runs.read(spark, texts, list(wanted.topics), list(wanted.partitions))
    compared = {one.topic for one in landed}
    if acks is not None:
        compared |= {row["topic"] for row in acks.select("topic").distinct().collect()}
    of_logs = of_logs.where(f.col("topic").isin(*compared)).withColumnRenamed("base", "offset")
    names = {name: name for name in ("last", "broker", "epoch", "flags")}
    tables = [shaped(in_cells(of_logs), _RUN, **names)]
    if acks is not None:
        tables.append(shaped(acks, _ACK, ms="ms"))
    for one in landed:
        spans = [(one.topic, p, s.start, s.end - 1) for p, all_ in one.spans.items() for s in all_]
        table = spark.createDataFrame(spans, "topic string, partition int, offset long, last long")
        tables.append(_of_wanted(shaped(in_cells(table), _LANDED, last="last"), wanted))
        if one.files:
            schema = "kafka_topic string, kafka_partition int, kafka_offset long"
            rows = (
                spark.read.schema(schema)
                .parquet(*map(spark_path, one.files))
                .toDF("topic", "partition", "offset")
            )
            tables.append(_of_wanted(shaped(rows, _ROW), wanted))
    rows = _unioned(tables)
    where = rows.select("topic", "partition", "cell").distinct()
    known = held.select("topic", "partition", f.col("known").alias("text"))
    if terms is not None:
        began = f.from_json("body", "began_ms long, last_epoch int")
        of_terms = (
            terms.where(f.col("what") == "terms")
            .groupBy("topic", "partition")
            .agg(f.to_json(f.collect_list(began)).alias("terms"))
        )
        known = known.join(of_terms, ["topic", "partition"], "left").withColumn(
            "text", f.concat("text", f.lit("\n"), f.coalesce("terms", f.lit("[]")))
        )
    known = where.join(known.select("topic", "partition", "text"), ["topic", "partition"])
    return rows.unionByName(shaped(known.withColumn("offset", f.lit(0)), _KNOWN))


def _judging(given: Given) -> Any:
    """Return what a task does with one cell's rows."""

    def judged(key: tuple[str, int, int], rows: pd.DataFrame) -> pd.DataFrame:
        topic, partition, number = str(key[0]), int(key[1]), int(key[2])
        body = msgspec.json.encode(_cell_of(topic, number, rows, given)).decode()
        return pd.DataFrame(
            [(topic, partition, "cell", body)], columns=["topic", "partition", "what", "body"]
        )

    return judged


def _cell_of(topic: str, number: int, rows: pd.DataFrame, given: Given) -> Any:
    kind = rows["kind"].to_numpy()
    numbers = {n: rows[n].to_numpy() for n in ("offset", "last", "ms", "broker", "epoch", "flags")}
    base: dict[str, Any] = {}
    terms: list[tuple[int, int]] = []
    for text in rows["text"][kind == _KNOWN]:
        first, _, second = text.partition("\n")
        base = json.loads(first)
        terms = [(t["began_ms"], t["last_epoch"]) for t in json.loads(second or "[]")]
    low, high = number * CELL, (number + 1) * CELL - 1

    def part(which: int) -> Iterator[tuple[int, ...]]:
        at = np.flatnonzero(kind == which)
        columns = (numbers[n][at].tolist() for n in ("broker", "offset", "last", "epoch", "flags"))
        for broker, offset, last, epoch, flags in zip(*columns, strict=True):
            yield broker, max(offset, low), min(last, high), epoch, flags

    acked = kind == _ACK
    return judge(
        known_of(topic, base, terms, given),
        (numbers["offset"][acked], numbers["ms"][acked]),
        numbers["offset"][kind == _ROW],
        [Run(*one) for one in part(_RUN)],
        [(one[1], one[2]) for one in part(_LANDED)],
    )


# -- joining ---------------------------------------------------------------------------------------


class _Joint:
    """All parts of a partition to its report, in Spark's Python workers."""

    def __init__(self, given: Given, confirmed: Confirmed) -> None:
        self._given = given
        self._confirmed = confirmed

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        rows = (row for batch in batches for row in _rows(batch))
        for (topic, partition), group in groupby(rows, key=lambda row: row[:2]):
            parts: dict[str, list[Any]] = {}
            for _, _, what, body in group:
                parts.setdefault(what, []).append(json.loads(body))
            yield _to_arrow([self._row(topic, partition, parts)], RESULT)

    def _row(self, topic: str, partition: int, parts: dict[str, list[Any]]) -> tuple[Any, ...]:
        report = report_of(topic, partition, parts, self._given, self._confirmed)
        return topic, partition, report.rank, msgspec.json.encode(report).decode()


def _rows(batch: "pa.RecordBatch") -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _to_arrow(rows: Sequence[tuple[Any, ...]], schema: str) -> "pa.RecordBatch":
    import pyarrow as pa

    types = {"long": pa.int64(), "int": pa.int32(), "string": pa.string()}
    fields = [name.split() for name in schema.split(",")]
    arrays = [
        pa.array(column, types[kind])
        for column, (_, kind) in zip(zip(*rows, strict=True), fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in fields])
