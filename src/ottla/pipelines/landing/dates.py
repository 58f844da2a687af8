"""The date folders of rows, for the expressions of `layout.date` that need no Spark.

Invariants: a row has the date that Spark's expression gives it, in UTC and without ANSI mode: null
for what is no date. Rows in doubt are left out. Known are: a column of dates, `date(c)`,
`to_date(c)`, `cast(c as date)` and `make_date(year, month, day)`.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MAKE = re.compile(r"make_date\s*\(\s*(\w+)\s*,\s*(\w+)\s*,\s*(\w+)\s*\)", re.IGNORECASE)
ONE = re.compile(
    r"(?:to_date|date)\s*\(\s*(\w+)\s*\)|cast\s*\(\s*(\w+)\s+as\s+date\s*\)|(\w+)", re.IGNORECASE
)
TEXT = r"(?s)^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T].*)?$"
DAY_US = 86_400_000_000
SMALL = (pa.int8(), pa.int16(), pa.int32())
Days = NDArray[Any]


@dataclass(frozen=True, slots=True)
class DateRule:
    """Which columns make the date: year, month and day, or one of texts, times or dates."""

    columns: tuple[str, ...]


def rule_of(expression: str, schema: pa.Schema) -> DateRule | None:
    """Return the rule of an expression over these columns; None if only Spark knows it."""
    text = expression.strip()
    if found := MAKE.fullmatch(text):
        names = found.groups()
        known = all(n in schema.names and schema.field(n).type in SMALL for n in names)
        return DateRule(names) if known else None
    found = ONE.fullmatch(text)
    name = next((n for n in found.groups() if n), "") if found else ""
    if name not in schema.names:
        return None
    kind = schema.field(name).type
    bare = bool(found and found[3])
    text_or_time = pa.types.is_string(kind) or kind == pa.timestamp("us", tz="UTC")
    return DateRule((name,)) if kind == pa.date32() or (text_or_time and not bare) else None


def dates(rule: DateRule, rows: pa.RecordBatch) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return the rows' dates, and of which rows they are known to be Spark's."""
    columns = [rows.column(name) for name in rule.columns]
    if len(columns) == 3:
        return _made(*columns)
    (column,) = columns
    everything = np.ones(len(column), bool)
    if column.type == pa.date32():
        return column, everything
    if pa.types.is_string(column.type):
        return _parsed(column)
    days = np.floor_divide(pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), DAY_US)
    return _array(days, ~_is_null(column)), everything


def _parsed(texts: pa.Array) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return the dates of texts that begin with one of ten characters; others are in doubt."""
    plain = pc.fill_null(pc.match_substring_regex(texts, TEXT), False)
    some = pc.if_else(plain, texts, "1970-01-01")
    parts = [
        pc.utf8_slice_codeunits(some, start, stop).cast(pa.int32())
        for start, stop in ((0, 4), (5, 7), (8, 10))
    ]
    found, known = _made(*parts)
    null = _is_null(texts)
    known &= plain.to_numpy(zero_copy_only=False) | null
    return pc.if_else(pa.array(null), pa.scalar(None, pa.date32()), found), known


def _made(*parts: pa.Array) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return the dates of years, months and days; years outside of 1 to 9999 are in doubt."""
    null = np.logical_or.reduce([_is_null(part) for part in parts])
    year, month, day = (
        pc.fill_null(part, 1).to_numpy(zero_copy_only=False).astype(np.int64) for part in parts
    )
    known = null | ((year >= 1) & (year <= 9999))
    fits = known & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    year, month, day = (np.where(fits, part, 1) for part in (year, month, day))
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    fits &= days.astype("datetime64[M]") == months  # no 31st of April
    return _array(days.astype(np.int64), fits & ~null), known


def _array(days: Days, valid: NDArray[np.bool_]) -> pa.Array:
    return pa.array(days.astype(np.int32), pa.int32(), mask=~valid).cast(pa.date32())


def _is_null(column: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return found
