"""A task: one range of offsets, from the brokers into Parquet files, in a Python worker.

Invariants: each attempt of a task writes into a folder of its own below `_staging`, which no reader
looks at; what counts are the files that an attempt has named to the driver. So an attempt that was
given up, or goes on unseen, changes nothing. Memory: two fetches and BUFFER_BYTES of rows.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from ottla.model.errors import ErrorCode, OttlaError
from ottla.pipelines.landing.columnar import RECORDS, Plan, Rows
from ottla.pipelines.landing.parsing import VALUE
from ottla.pipelines.paths import of_disk
from ottla.pipelines.record_arrow import TYPES
from ottla.pipelines.source.options import SourceOptions
from ottla.pipelines.source.ranges import OffsetRange
from ottla.pipelines.source.scan import scan

BUFFER_BYTES = 64 * 1024 * 1024
"""Rows that become one row group; of rows with dates, what is sorted at once."""
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
UNIQUE = ("kafka_offset", "kafka_timestamp", VALUE)
"""Columns whose values hardly repeat: a dictionary of them is work for nothing."""


@dataclass(frozen=True)
class Task:
    """What a task does; can be pickled. `folder` is where attempts write.

    `gather`: rows are kept as pieces of their dates.
    """

    options: SourceOptions
    wanted: OffsetRange
    plan: Plan
    folder: str
    compression: str
    gather: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one date's folder: a record batch of an Arrow file, by its number."""

    folder: str
    path: str
    number: int
    rows: int


@dataclass(slots=True)
class Written:
    """What an attempt wrote, by paths.

    `rows`: where each file belongs in the batch's folder. `pieces`: rows that are to be gathered
    by date (`gathering`). `aside`: records for Spark's parser, and how many. `problem`: why there
    is nothing, and `code` Kafka's for it.
    """

    rows: dict[str, str] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    aside: str | None = None
    aside_count: int = 0
    problem: str | None = None
    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR


def write(task: Task) -> Written:
    """Read and write a range."""
    return attempted(lambda: _Attempt(task).run(), task.folder)


def attempted(work: Callable[[], Written], folder: str) -> Written:
    """Return what an attempt wrote. What is wrong in the world is in there, in one line."""
    try:
        return work()
    except OttlaError as error:
        return Written(problem=str(error), code=error.code)
    except OSError as error:
        return Written(problem=of_disk(error, folder))


class _Attempt:
    """One attempt at a task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._name = uuid.uuid4().hex
        self._folder = Path(task.folder) / self._name
        self._folder.mkdir(parents=True)
        self._written = Written()
        self._files = 0
        self._open = ExitStack()
        self._pieces: pa.ipc.RecordBatchFileWriter | None = None

    def run(self) -> Written:
        task, rows = self._task, Rows(self._task.plan)
        with self._open, _Aside(self._folder / "aside.parquet") as aside:
            buffered: list[pa.Table] = []
            size = 0
            for records in scan(task.options, task.wanted, tuple(TYPES)):
                some, rest = rows.split(records)
                if rest is not None:
                    aside.write(rest)
                buffered.append(some)
                size += some.nbytes
                if size >= BUFFER_BYTES:
                    self._flush(buffered)
                    size = 0
            self._flush(buffered)
        if aside.count:
            self._written.aside, self._written.aside_count = str(aside.path), aside.count
        return self._written

    def _flush(self, buffered: list[pa.Table]) -> None:
        if buffered:
            rows = pa.concat_tables(buffered)
            buffered.clear()
            for folder, some in self._by_date(rows):
                (self._keep if self._task.gather else self._save)(folder, some)

    def _by_date(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows of each date, and the name of its folder."""
        if not rows.num_rows:
            return
        if self._task.plan.date is None:
            yield "", rows
            return
        name = self._task.plan.date_column
        rows = rows.take(pc.sort_indices(rows, [(name, "ascending")])).combine_chunks()
        days = rows.column(name)
        rows = rows.drop_columns(name)
        numbers = pc.fill_null(days.cast(pa.int32()), np.iinfo(np.int32).min).to_numpy()
        starts: Any = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1))
        for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
            day = days[int(start)].as_py()
            yield f"{name}={NO_DATE if day is None else day}", rows.slice(start, end - start)

    def _save(self, folder: str, rows: pa.Table) -> None:
        wanted = self._task.wanted
        name = f"part-{wanted.partition}-{wanted.start}-{self._files}-{self._name}.parquet"
        self._files += 1
        path = self._folder / name
        save(path, rows, self._task.compression)
        self._written.rows[str(path)] = f"{folder}/{name}" if folder else name

    def _keep(self, folder: str, rows: pa.Table) -> None:
        """Keep rows as a piece, for a task that writes the whole date."""
        path, pieces = self._folder / "rows.arrow", self._written.pieces
        if self._pieces is None:
            self._pieces = self._open.enter_context(pa.ipc.new_file(path, rows.schema))
        (batch,) = rows.combine_chunks().to_batches()
        self._pieces.write_batch(batch)
        pieces.append(Piece(folder, str(path), len(pieces), rows.num_rows))


def save(path: Path, rows: pa.Table, compression: str) -> None:
    """Write rows to a Parquet file, a row group for BUFFER_BYTES of them."""
    size = max(1, rows.num_rows // (1 + rows.nbytes // BUFFER_BYTES))
    with writer(path, rows.schema, compression) as file:
        file.write_table(rows, row_group_size=size)


def writer(path: Path, schema: pa.Schema, compression: str) -> parquet.ParquetWriter:
    """Return what writes rows to a Parquet file, as all files of a table are written."""
    plain = [field.name for field in schema if not pa.types.is_nested(field.type)]
    return parquet.ParquetWriter(
        path,
        schema,
        compression=compression,
        use_dictionary=[name for name in plain if name not in UNIQUE],
        store_schema=False,
    )


class _Aside:
    """Records for Spark's parser, in a file that is made with the first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._writer: parquet.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, records: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self.path, RECORDS, store_schema=False)
        self._writer.write_batch(records.select(RECORDS.names))
        self.count += len(records)
