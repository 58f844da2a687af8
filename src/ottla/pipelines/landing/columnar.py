"""Records to rows without Spark: whole Arrow columns, in its Python workers.

Invariants: a row that is made here is the row that Spark would have made (`parsing`), with the same
columns in the same order; a record that is in doubt is set aside as it came, and Spark judges it.
So each record is a row or set aside, never both. What a topic's settings need is known on the
driver: `plan_of` says whether this way can be taken at all.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ottla.pipelines.landing.avro_columns import AvroColumns
from ottla.pipelines.landing.dates import DateRule, dates, rule_of
from ottla.pipelines.landing.json_columns import JsonColumns, UnsupportedTypeError
from ottla.pipelines.landing.parsing import VALUE, Parser
from ottla.pipelines.landing.settings import META_COLUMNS
from ottla.pipelines.record_arrow import TYPES, arrow_schema

ORIGINS = ("key", "headers", "timestamp", "timestampType", "topic", "partition", "offset")
"""What the source calls META_COLUMNS."""
UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


@dataclass(frozen=True)
class Plan:
    """How values become columns; can be pickled. `columns` is None for raw bytes.

    `keep`: the value is a column, too. `date` and `date_column`: the folder's column.
    """

    columns: "AvroColumns | JsonSchema | None"
    keep: bool
    date: DateRule | None
    date_column: str


@dataclass(frozen=True)
class JsonSchema:
    """What JsonColumns are made of, in a worker."""

    schema: pa.Schema
    strict: bool


def plan_of(parser: Parser, time_zone: str) -> Plan | None:
    """Return how a topic's values become columns here; None if only Spark can do it.

    `time_zone`: the session's.
    """
    from pyspark.sql.pandas.types import to_arrow_schema  # no public way

    value, layout = parser.value, parser.layout
    columns: AvroColumns | JsonSchema | None = None
    fields: list[pa.Field] = []
    if parser.schema is not None:
        schema = to_arrow_schema(parser.schema, timezone="UTC")
        fields = list(schema)
        if value.format == "avro":
            columns = AvroColumns.of(parser.schema, Path(value.schema or ""), value.framing)
        else:
            columns = JsonSchema(schema, value.drift != "ignore")
            try:
                JsonColumns(schema, strict=True)
            except UnsupportedTypeError:
                return None
    fields += [pa.field(a, TYPES[n]) for n, a in zip(ORIGINS, META_COLUMNS, strict=True)]
    rule = None
    if layout.date is not None:
        rule = rule_of(layout.date, pa.schema(fields))
        if rule is None or time_zone not in UTC:
            return None
    return Plan(columns, parser.schema is None or value.keep, rule, layout.date_column)


class Rows:
    """Makes rows of records, as a plan says."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        columns = plan.columns
        self._columns = (
            JsonColumns(columns.schema, strict=columns.strict)
            if isinstance(columns, JsonSchema)
            else columns
        )

    def split(self, records: pa.RecordBatch) -> tuple[pa.Table, pa.RecordBatch | None]:
        """Return the rows of records with the columns of the source, and what is set aside."""
        plan, values = self._plan, records.column("value")
        parsed: pa.Table | None = None
        taken = np.ones(len(records), bool)
        if self._columns is not None:
            batches, taken = self._columns.parse(values)
            parsed = pa.Table.from_batches(batches)
        rest = None if taken.all() else records.filter(pa.array(~taken))
        rows = self._origins(records if rest is None else records.filter(pa.array(taken)), parsed)
        if plan.date is None:
            return rows, rest
        found = [dates(plan.date, batch) for batch in rows.to_batches()]
        known = np.concatenate([known for _, known in found]) if found else np.ones(0, bool)
        days = pa.chunked_array([days for days, _ in found], pa.date32())
        rows = rows.append_column(plan.date_column, days)
        if known.all():
            return rows, rest
        taken[np.flatnonzero(taken)[~known]] = False
        return rows.filter(pa.array(known)), records.filter(pa.array(~taken))

    def _origins(self, records: pa.RecordBatch, parsed: pa.Table | None) -> pa.Table:
        """Return the rows' columns, and behind them where each came from."""
        names = [] if parsed is None else parsed.column_names
        columns = [] if parsed is None else parsed.columns
        if self._plan.keep:
            names, columns = [*names, VALUE], [*columns, records.column("value")]
        origins = [records.column(name) for name in ORIGINS]
        return pa.table([*columns, *origins], names=[*names, *META_COLUMNS])


RECORDS = arrow_schema(tuple(TYPES))
"""The columns of records that are set aside: the source's."""
