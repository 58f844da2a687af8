"""A task of a batch: a range of offsets to Parquet files that no version names yet.

Invariants: every offset of the range is a row, a dead letter or in a hole, which the task counts
against what it wrote; offsets ascend. Files have names of their own: those of an attempt that
failed are never named by a commit. Memory: two fetches and BUFFER_BYTES of rows.
"""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs, parquet

from ottla.model.errors import ErrorCode, OttlaError
from ottla.pipelines.lake.avro_columns import AvroColumns
from ottla.pipelines.lake.dates import DateRule, dates
from ottla.pipelines.lake.json_columns import JsonColumns, Parsed
from ottla.pipelines.lake.schemas import (
    DEAD,
    DETAIL,
    META_COLUMNS,
    ORIGINS,
    REASON,
    VALUE,
    merged,
)
from ottla.pipelines.lake.spans import Span
from ottla.pipelines.source.options import SourceOptions
from ottla.pipelines.source.ranges import OffsetRange
from ottla.pipelines.source.scan import scan

BUFFER_BYTES = 64 * 1024 * 1024
UNIQUE = ("kafka_offset", "kafka_timestamp", "kafka_key", VALUE)
"""Columns in which hardly any value stands twice: no dictionary."""
NO_DATE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Target:
    """A table's files: where they go (an address that pyarrow knows), and their columns.

    `date_column`: the partition's; `keeps_date`: it is a column of the files, too.
    """

    uri: str
    schema: pa.Schema
    date_column: str | None
    keeps_date: bool
    compression: str


@dataclass(frozen=True)
class Plan:
    """How records become rows; can be pickled. `schema` is None for raw bytes."""

    schema: pa.Schema | None
    avro: AvroColumns | None
    strict: bool
    keep: bool
    date: DateRule | None
    rows: Target
    dead: Target

    def rows_of(self, records: pa.RecordBatch, why: list[tuple[str, str]]) -> "Split":
        """Return the rows of records, and the dead letters among them."""
        return _split(self, self.columns(), records, why)

    def columns(self) -> Any:
        if self.schema is None:
            return None
        return self.avro or JsonColumns(self.schema, strict=self.strict)


class Split(NamedTuple):
    """Rows, dead letters, and the type of what had unknown fields."""

    rows: pa.Table
    dead: pa.Table
    seen: pa.DataType


@dataclass(frozen=True)
class Task:
    """What an attempt does. `known_dead`: offsets that are dead letters of the table already."""

    options: SourceOptions
    wanted: OffsetRange
    plan: Plan
    known_dead: frozenset[int] = frozenset()


class File(NamedTuple):
    """A Parquet file, by its path below the table and by its whole address.

    `day`: its partition, days since 1970. `footer`: what Parquet says of it.
    """

    path: str
    bytes: int
    rows: int
    day: int | None
    address: str
    footer: parquet.FileMetaData


@dataclass(slots=True)
class Written:
    """What an attempt wrote, and why there is nothing (`problem`, with Kafka's code for it)."""

    wanted: OffsetRange
    rows: list[File] = field(default_factory=list)
    dead: list[File] = field(default_factory=list)
    holes: list[Span] = field(default_factory=list)
    known_dead: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    seen: pa.DataType = field(default_factory=pa.null)
    problem: str | None = None
    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR


def write(task: Task) -> Written:
    """Read and write a range. What is wrong in the world is in there, in one line."""
    found = Written(task.wanted)
    try:
        _write(task, found)
    except OttlaError as error:
        found.problem, found.code = str(error), error.code
    except OSError as error:
        found.problem = f"{task.plan.rows.uri}: {error.strerror or str(error).splitlines()[0]}"
    return found


def _write(task: Task, found: Written) -> None:
    plan, columns = task.plan, task.plan.columns()
    rows, dead = FileWriter(plan.rows, found.rows), FileWriter(plan.dead, found.dead)
    offsets = []
    for batch in scan(task.options, task.wanted, (*ORIGINS, "value")):
        offsets.append(batch.column("offset").to_numpy())
        records = batch
        if task.known_dead:
            known = pc.is_in(batch.column("offset"), pa.array(sorted(task.known_dead)))
            found.known_dead += pc.sum(known).as_py() or 0
            records = batch.filter(pc.invert(known))
        reasons: list[tuple[str, str]] = []
        some = _split(plan, columns, records, reasons)
        found.seen = merged(found.seen, some.seen)
        for reason, _ in reasons:
            found.reasons[reason] = found.reasons.get(reason, 0) + 1
        rows.add(some.rows)
        dead.add(some.dead)
    rows.flush()
    dead.flush()
    found.holes = _holes(offsets, task.wanted)
    written = sum(f.rows for f in (*found.rows, *found.dead)) + found.known_dead
    if written + sum(hole.size for hole in found.holes) != task.wanted.size:
        raise OttlaError(f"{task.wanted}: {written} rows were written, of other offsets")


def _holes(parts: "list[np.ndarray[Any, Any]]", wanted: OffsetRange) -> list[Span]:
    """Return the spans in which no offset came; OttlaError if offsets do not ascend."""
    there = np.concatenate([[wanted.start - 1], *parts, [wanted.end]])
    steps = np.diff(there)
    if (steps < 1).any():
        again = there[int(np.flatnonzero(steps < 1)[0]) + 1]
        raise OttlaError(f"{wanted.tp}: offset {again} came twice, or out of its range")
    return [Span(int(there[i]) + 1, int(there[i + 1])) for i in np.flatnonzero(steps > 1)]


def _split(plan: Plan, columns: Any, records: pa.RecordBatch, why: list[tuple[str, str]]) -> Split:
    keep = plan.schema is None or plan.keep
    rows, dead, parsed = split_records(columns, plan.schema, records, keep=keep)
    why += parsed.reasons
    if plan.date is not None and plan.rows.date_column not in rows.column_names:
        rows = rows.append_column(plan.rows.date_column, dates(plan.date, rows))
    return Split(rows, dead, parsed.seen)


def split_records(
    columns: Any, schema: pa.Schema | None, records: pa.RecordBatch, *, keep: bool
) -> tuple[pa.Table, pa.Table, Parsed]:
    """Return the rows of records, the dead letters among them, and what was parsed.

    `keep`: the original bytes are a column of rows.
    """
    values = records.column("value")
    raw = Parsed([], np.ones(len(records), bool))
    parsed = raw if columns is None else columns.parse(values)
    whole = bool(parsed.taken.all())
    good = records if whole else records.filter(pa.array(parsed.taken))
    found = _origins(good)
    if schema is not None:
        of_values = pa.Table.from_batches(parsed.batches, schema)
        found = pa.table(
            [*of_values.columns, *found.columns],
            names=[*of_values.column_names, *found.column_names],
        )
    if keep:
        found = found.append_column(VALUE, good.column("value"))
    if whole:
        return found, DEAD.empty_table(), parsed
    bad = records.filter(pa.array(~parsed.taken))
    letters = _origins(bad)
    for name, texts in (
        (VALUE, bad.column("value")),
        (DETAIL, pa.array([detail[:1000] for _, detail in parsed.reasons], pa.string())),
        (REASON, pa.array([reason for reason, _ in parsed.reasons], pa.string())),
    ):
        letters = letters.add_column(0, name, texts)
    return found, letters, parsed


def _origins(records: pa.RecordBatch) -> pa.Table:
    """Return where records came from; streams of Spark do not say the leader epoch."""
    columns = [
        records.column(name) if name in records.schema.names else pa.nulls(len(records), pa.int32())
        for name in ORIGINS
    ]
    return pa.table(columns, names=list(META_COLUMNS))


class FileWriter:
    """Writes a table's rows to files, buffered, each date for itself."""

    def __init__(self, target: Target, found: list[File]) -> None:
        self._target = target
        self._found = found
        self._held: list[pa.Table] = []
        self._size = 0

    def add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._held.append(rows)
            self._size += rows.nbytes
            if self._size >= BUFFER_BYTES:
                self.flush()

    def flush(self) -> None:
        if not self._held:
            return
        rows = pa.concat_tables(self._held)
        self._held, self._size = [], 0
        system, root = fs.FileSystem.from_uri(self._target.uri)
        for day, some in self._by_date(rows):
            self._save(system, root, day, some)

    def _by_date(self, rows: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
        name = self._target.date_column
        if name is None:
            yield None, rows
            return
        rows = rows.take(pc.sort_indices(rows, [(name, "ascending")])).combine_chunks()
        days = rows.column(name).cast(pa.int32())
        numbers = pc.fill_null(days, np.iinfo(np.int32).min).to_numpy()
        starts: Any = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1))
        for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
            yield days[int(start)].as_py(), rows.slice(start, end - start)

    def _save(self, system: fs.FileSystem, root: str, day: int | None, rows: pa.Table) -> None:
        target = self._target
        name = target.date_column
        folder = ""
        if name is not None:
            text = NO_DATE if day is None else np.datetime64(day, "D")
            folder = f"{name}={text}/"
        path = f"{folder}{uuid.uuid4().hex}.parquet"
        if isinstance(system, fs.LocalFileSystem):
            system.create_dir(f"{root}/{folder}", recursive=True)
        footer: list[parquet.FileMetaData] = []
        rows = conformed(rows, target)
        groups = max(1, rows.num_rows // (1 + rows.nbytes // BUFFER_BYTES))
        plain = [f.name for f in rows.schema if not pa.types.is_nested(f.type)]
        try:
            with system.open_output_stream(f"{root}/{path}") as file:
                parquet.write_table(
                    rows, file, row_group_size=groups, compression=target.compression,
                    use_dictionary=[n for n in plain if n not in UNIQUE], store_schema=False,
                    metadata_collector=footer,
                )  # fmt: skip
                size = file.tell()
        except OSError:  # such as a full disk: what was begun is of no use
            with contextlib.suppress(OSError):
                system.delete_file(f"{root}/{path}")
            raise
        address = f"{target.uri}/{path}"
        self._found.append(File(path, size, footer[0].num_rows, day, address, footer[0]))


def conformed(rows: pa.Table, target: Target) -> pa.Table:
    """Return rows with the columns of a table's files; those that they lack are null."""
    columns = []
    for of in target.schema:
        if of.name == target.date_column and not target.keeps_date:
            continue
        there = of.name in rows.column_names
        found = rows.column(of.name).cast(of.type) if there else pa.nulls(rows.num_rows, of.type)
        columns.append((of, found))
    return pa.table([c for _, c in columns], schema=pa.schema([f for f, _ in columns]))
