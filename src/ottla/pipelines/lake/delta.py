"""A table of Delta Lake, by delta-rs: a commit has the files, and the state as `txn` actions.

Invariants: each number of the state is the version of an application `ottla:NAME` in the log's
`txn` actions, which checkpoints keep and VACUUM, OPTIMIZE and DELETE leave alone. Each commit of
the job sets `ottla:batch`, so that Delta's own check refuses the second of two runs. Delta Lake's
protocol: "Transaction Identifiers"; delta-rs writes a checkpoint every 100 commits.
"""

import contextlib
import json
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.errors import OttlaError
from ottla.pipelines.lake.schemas import plain_schema
from ottla.pipelines.lake.state import BATCH, FIELDS, State, state_of
from ottla.pipelines.lake.tables import COMMIT, ConflictError, merges
from ottla.pipelines.lake.writing import File, Target

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction
except ImportError as error:
    raise OttlaError(
        f"format delta needs deltalake ({error.name} is missing): pip install 'ottla[spark]'"
    ) from None

APP = "ottla:"
TRIES = 5
MOST_TEXT = 64
"""Characters of a text in statistics."""
LOOKED_BACK = 100
"""Commits among which one of ours is looked for that was not acknowledged."""


def open_delta(uri: str) -> "Delta | None":
    """Open a table; None if there is none."""
    try:
        return Delta(uri, DeltaTable(uri))
    except TableNotFoundError:
        return None


def create_delta(
    uri: str, schema: pa.Schema, date_column: str | None, properties: Mapping[str, str]
) -> "Delta":
    """Make a table; of two runs that do so at once the later opens what the first made."""
    DeltaTable.create(
        uri,
        Schema.from_arrow(schema),
        mode="ignore",
        partition_by=None if date_column is None else [date_column],
        configuration=dict(properties),
        raise_if_key_not_exists=False,
    )
    return Delta(uri, DeltaTable(uri))


class Delta:
    """One table. `state` is of the version that was opened or refreshed last."""

    def __init__(self, uri: str, table: DeltaTable) -> None:
        self.uri = uri
        self.where = uri.removeprefix("file://")
        self._table = table
        self.state = self._state()

    @property
    def properties(self) -> Mapping[str, str]:
        return {k: v for k, v in self._table.metadata().configuration.items() if v is not None}

    @property
    def schema(self) -> pa.Schema:
        return plain_schema(pa.schema(self._table.schema().to_arrow()))

    @property
    def version(self) -> int:
        return int(self._table.version())

    def _by(self) -> list[str]:
        return list(self._table.metadata().partition_columns)

    def target(self, compression: str) -> Target:
        by = self._by()
        return Target(self.uri, self.schema, by[0] if by else None, False, compression)

    def retyped(self, kinds: Mapping[str, pa.DataType], compression: str) -> Target:
        target = self.target(compression)
        schema = pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in target.schema])
        return replace(target, schema=schema)

    def refresh(self) -> None:
        self._table.update_incremental()
        self.state = self._state()

    def _state(self) -> State:
        def number(name: str) -> int | None:
            found: int | None = self._table.transaction_version(APP + name)
            return found

        found = {BATCH: number(BATCH) or 0}
        partition = 0
        while number(f"{partition}:next") is not None:
            for name in FIELDS:
                found[f"{partition}:{name}"] = number(f"{partition}:{name}") or 0
            partition += 1
        return state_of(found)

    # -- commits -----------------------------------------------------------------------------------

    def widen(self, schema: pa.Schema) -> None:
        if schema != self.schema:
            self._table.alter.add_columns(list(Schema.from_arrow(schema).fields))
            self.refresh()

    def append(self, files: Sequence[File], state: State) -> None:
        self._commit(files, state, "append", self.schema)

    def replace(self, schema: pa.Schema, files: Sequence[File], state: State) -> None:
        self._commit(files, state, "overwrite", schema)

    def _commit(self, files: Sequence[File], state: State, mode: str, schema: pa.Schema) -> None:
        before, mark = self.state.flat(), uuid.uuid4().hex
        changed = {k: v for k, v in state.flat().items() if before.get(k) != v}
        properties = CommitProperties(
            app_transactions=[Transaction(APP + name, value) for name, value in changed.items()],
            custom_metadata={COMMIT: mark},
        )
        expected = self.state.batch
        for attempt in range(TRIES):
            try:
                self._table.create_write_transaction(
                    [self._action(file) for file in files],
                    mode,
                    Schema.from_arrow(schema),
                    self._by(),
                    commit_properties=properties,
                )
                break
            except (DeltaError, OSError) as error:
                self._table = DeltaTable(self.uri)
                self.state = self._state()
                if any(h.get(COMMIT) == mark for h in self._table.history(LOOKED_BACK)):
                    break  # it went through, the acknowledgement was lost
                if self.state.batch != expected:
                    raise ConflictError(self.where) from None
                # Others deleted or merged files meanwhile: an append does not care.
                again = mode == "append" and isinstance(error, CommitFailedError)
                if not again or attempt == TRIES - 1:
                    raise OttlaError(f"{self.where}: {str(error).splitlines()[0]}") from None
        self.refresh()

    def _action(self, file: File) -> AddAction:
        by = self._by()
        day = None if file.day is None else str(np.datetime64(file.day, "D"))
        values = dict.fromkeys(by, day)
        now = time.time_ns() // 1_000_000
        return AddAction(file.path, file.bytes, values, now, True, json.dumps(statistics(file)))

    # -- reading -----------------------------------------------------------------------------------

    def read(
        self, columns: Sequence[str] | None = None, least: Mapping[int, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        wanted = None
        for partition, offset in (least or {}).items():
            one = (pc.field("kafka_partition") == partition) & (pc.field("kafka_offset") >= offset)
            wanted = one if wanted is None else wanted | one
        names = None if columns is None else list(columns)
        dataset = self._table.to_pyarrow_dataset()
        yield from dataset.scanner(columns=names, filter=wanted).to_batches()

    def _adds(self) -> pa.Table:
        return pa.table(self._table.get_add_actions(flatten=True))

    def rows(self) -> int:
        counts = self._adds().column("num_records")
        return self._table.count() if counts.null_count else pc.sum(counts).as_py() or 0

    def files(self) -> list[str]:
        return list(self._table.file_uris())

    # -- maintenance -------------------------------------------------------------------------------

    def compact(self) -> Mapping[str, Any]:
        adds, by = self._adds(), self._by()
        dates = adds.column(f"partition.{by[0]}").to_pylist() if by else [None] * len(adds)
        sizes = defaultdict(list)
        for day, size in zip(dates, adds.column("size_bytes").to_pylist(), strict=True):
            sizes[day].append(size)
        groups = defaultdict(list)
        for day, found in sizes.items():
            if (count := merges(found)) and (day is not None or not by):
                groups[sum(sorted(found)[:count]).bit_length()].append(day)
        for bits, chosen in groups.items():
            filters = [(by[0], "in", [str(day) for day in chosen])] if by else None
            self._table.optimize.compact(filters, target_size=1 << bits)
            self.refresh()
        return {"files": [len(adds), len(self.files())]}

    def clean(self, older_than_hours: float) -> int:
        hours = int(older_than_hours)
        gone = self._table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        self.refresh()
        return len(gone)


def statistics(file: File) -> dict[str, Any]:
    """Return a file's statistics for the log, from its footer: for each plain column.

    All of them: delta-rs' datasets skip a file for each column of which it has none.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = defaultdict(int)
    for group in range(file.footer.num_row_groups):
        for n in range(file.footer.num_columns):
            column = file.footer.row_group(group).column(n)
            name, found = column.path_in_schema, column.statistics
            if "." in name or found is None:
                continue
            nulls[name] += found.null_count or 0
            with contextlib.suppress(OverflowError, ValueError):  # a date after the year 9999
                if found.has_min_max:
                    least[name] = min(found.min, least.get(name, found.min))
                    most[name] = max(found.max, most.get(name, found.max))
    shown = {"minValues": (least, ""), "maxValues": (most, "\U0010ffff")}
    return {
        "numRecords": file.rows,
        **{
            key: {n: v for n, value in values.items() if (v := _shown(value, end)) is not None}
            for key, (values, end) in shown.items()
        },
        "nullCount": nulls,
    }


def _shown(value: Any, end: str) -> Any:
    """Return a value as Delta's statistics have it; None if they cannot. Long texts are cut."""
    match value:
        case bool() | bytes():
            return None
        case str():
            return value if len(value) <= MOST_TEXT else value[:MOST_TEXT] + end
        case datetime():
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case date():
            return value.isoformat()
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return float(value)
    return value
