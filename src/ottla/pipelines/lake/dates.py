"""The date that a table is partitioned by, for each row.

`layout.date` names it over the columns: a date or timestamp column, `to_date(c)`, `date(c)` or
`cast(c as date)` of a date, a timestamp (by UTC) or a text that begins with YYYY-MM-DD, or
`make_date(year, month, day)`. What is no date is null.
"""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.errors import ConfigError
from ottla.pipelines.lake.schemas import type_name

MAKE = re.compile(r"make_date\s*\(\s*(\w+)\s*,\s*(\w+)\s*,\s*(\w+)\s*\)", re.IGNORECASE)
ONE = re.compile(
    r"(?:to_date|date)\s*\(\s*(\w+)\s*\)|cast\s*\(\s*(\w+)\s+as\s+date\s*\)|(\w+)", re.IGNORECASE
)
TEXT = r"(?s)^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T].*)?$"
NOTHING = pa.scalar(None, pa.int64())


@dataclass(frozen=True, slots=True)
class DateRule:
    """Which columns make the date: year, month and day, or one of texts, times or dates."""

    columns: tuple[str, ...]


def rule_of(expression: str, schema: pa.Schema) -> DateRule:
    """Return the rule of an expression over these columns; ConfigError if it is none."""
    if found := MAKE.fullmatch(expression.strip()):
        names = found.groups()
    elif found := ONE.fullmatch(expression.strip()):
        names = tuple(name for name in found.groups() if name)
    else:
        raise ConfigError(
            f"layout.date {expression!r}: write a column, to_date(column), or "
            "make_date(year, month, day)"
        )
    for name in names:
        if name not in schema.names:
            raise ConfigError(f"layout.date {expression!r}: there is no column {name}")
        kind = schema.field(name).type
        fits = (
            pa.types.is_integer(kind)
            if len(names) == 3
            else pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        )
        if not fits:
            raise ConfigError(f"layout.date {expression!r}: {name} is {type_name(kind)}")
    return DateRule(names)


def dates(rule: DateRule, rows: pa.Table) -> pa.ChunkedArray:
    """Return the rows' dates."""
    columns = [rows.column(name) for name in rule.columns]
    if len(columns) == 3:
        return _made(*(column.cast(pa.int64()) for column in columns))
    (column,) = columns
    if pa.types.is_date(column.type):
        return column
    if pa.types.is_timestamp(column.type):
        naive = column.cast(pa.timestamp("us"))  # the same instant, in UTC
        return pc.floor_temporal(naive, unit="day").cast(pa.date32())
    fits = pc.fill_null(pc.match_substring_regex(column, TEXT), False)
    parts = [
        pc.if_else(
            fits, pc.utf8_slice_codeunits(pc.if_else(fits, column, "0000-00-00"), *at)
            .cast(pa.int64()), NOTHING,
        )
        for at in ((0, 4), (5, 7), (8, 10))
    ]  # fmt: skip
    return _made(*parts)


def _made(*parts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the dates of years, months and days; null for what is none between 1 and 9999."""
    year, month, day = (
        pc.fill_null(part, 0).to_numpy(zero_copy_only=False)
        if isinstance(part, pa.Array)
        else pc.fill_null(part, 0).to_numpy()
        for part in parts
    )
    fits = (year >= 1) & (year <= 9999) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    year, month, day = (np.where(fits, part, 1) for part in (year, month, day))
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    fits &= days.astype("datetime64[M]") == months  # no 31st of April
    found = pa.array(days.astype(np.int64).astype(np.int32), pa.int32(), mask=~fits)
    return pa.chunked_array([found.cast(pa.date32())])
