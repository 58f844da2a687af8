"""JSON values to Arrow columns, by msgspec: those values that are plainly rows of the schema.

Invariants: a value that is taken has the columns that Spark's parser makes of it (`parsing`);
whatever is in doubt is left to that parser: unknown fields, other types, several objects, invalid
UTF-8, NaN, single quotes. Types are those of SIMPLE, and lists and objects of them. Memory: the
objects of ROWS_AT_ONCE records.
"""

import gc
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

ROWS_AT_ONCE = 2_000
"""So few that their objects stay in the processor's cache."""
Taken = NDArray[np.bool_]


def _whole(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(1 << (bits - 1)), le=(1 << (bits - 1)) - 1)]


SIMPLE: dict[pa.DataType, Any] = {
    pa.bool_(): bool,
    pa.int8(): _whole(8),
    pa.int16(): _whole(16),
    pa.int32(): _whole(32),
    pa.int64(): _whole(64),
    pa.float64(): float,
    pa.string(): str,
}

NUMBERS = {
    pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q", pa.float64(): "d",
}  # fmt: skip
"""What `array` calls numbers of these types, in Arrow's own layout."""


class UnsupportedTypeError(Exception):
    """A column has a type or a name that only Spark's parser reads."""


class JsonColumns:
    """Parses values into the columns of a schema; UnsupportedTypeError if it cannot.

    `strict`: a value with fields that the schema lacks is left out, else these fields are dropped.
    """

    def __init__(self, schema: pa.Schema, *, strict: bool) -> None:
        self._schema = schema
        self._strict = strict
        kind = _struct("Row", schema, strict=strict)
        self._nothing = kind()
        self._decoder = msgspec.json.Decoder(kind)

    def parse(self, values: pa.Array) -> tuple[list[pa.RecordBatch], Taken]:
        """Return the columns of the values that are taken, in order, and which these are.

        A value that is null is a row of nulls.
        """
        taken = np.ones(len(values), bool)
        found = []
        with _no_garbage_collection():
            for at in range(0, len(values), ROWS_AT_ONCE):
                some = values.slice(at, ROWS_AT_ONCE)
                rows = self._lines(some)
                if rows is None:
                    rows = list(self._one_by_one(some, taken[at : at + ROWS_AT_ONCE]))
                found.append(self._columns(rows))
        return found, taken

    def _lines(self, values: pa.Array) -> list[Any] | None:
        """Decode values that are a line each, all at once; None if they must be looked at singly.

        msgspec does not say where an object ended. But where each line begins with a brace and
        ends with one, no object goes beyond its line: JSON has no `}` before a `{`, and no line
        break in a text. Then each line has one object at least, and as many as lines are one each.
        """
        if values.null_count:
            return None
        joined = pc.binary_join_element_wise(values, b"\n", b"")
        lines = joined.buffers()[2].to_pybytes()
        if lines.count(b"\n") != len(values) or not _in_braces(joined, lines):
            return None
        try:
            if not self._strict:
                lines.decode()  # what is dropped is not looked at otherwise
            rows = self._decoder.decode_lines(lines)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return rows if len(rows) == len(values) else None

    def _one_by_one(self, values: pa.Array, taken: Taken) -> Iterator[Any]:
        for n, value in enumerate(values.to_pylist()):
            if value is None:
                yield self._nothing
                continue
            try:
                if not self._strict:
                    value.decode()
                yield self._decoder.decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                taken[n] = False

    def _columns(self, rows: list[Any]) -> pa.RecordBatch:
        columns: Iterable[Any] = zip(*map(msgspec.structs.astuple, rows), strict=True)
        if not rows:
            columns = [()] * len(self._schema)
        arrays = []
        for column, field in zip(columns, self._schema, strict=True):
            arrays.append(_array(column, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _array(column: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    """Return a column as an Arrow array.

    Numbers without nulls take half the time by Python's own array, which looks at each once.
    """
    if kind in NUMBERS:
        try:
            numbers = array(NUMBERS[kind], column)
        except TypeError:  # a null; often it comes soon
            return pa.array(column, kind)
        return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(numbers)], 0)
    return pa.array(msgspec.to_builtins(column) if pa.types.is_nested(kind) else column, kind)


def _in_braces(joined: pa.Array, lines: bytes) -> bool:
    """Return whether each line begins and ends with a brace."""
    bounds = np.frombuffer(joined.buffers()[1], np.int32, len(joined) + 1)
    there = np.frombuffer(lines, np.uint8)
    return bool(
        (there[bounds[:-1]] == ord("{")).all()
        and (np.diff(bounds) > 2).all()
        and (there[bounds[1:] - 2] == ord("}")).all()
    )


def _struct(name: str, fields: Iterable[pa.Field], *, strict: bool) -> type[msgspec.Struct]:
    """Return a struct with these fields; all of them may be null or left out."""
    wanted, names = [], {}
    for n, field in enumerate(fields):
        kind = _kind(f"{name}{n}", field.type, strict=strict)
        wanted.append((f"f{n}", kind | None, None))
        names[f"f{n}"] = field.name
    if not wanted:
        raise UnsupportedTypeError(f"{name} has no fields")
    try:
        return msgspec.defstruct(
            name, wanted, rename=names, forbid_unknown_fields=strict, gc=False
        )  # fmt: skip
    except (TypeError, ValueError) as error:  # a name with quotes, or one that stands twice
        raise UnsupportedTypeError(str(error)) from None


def _kind(name: str, kind: pa.DataType, *, strict: bool) -> Any:
    if kind in SIMPLE:
        return SIMPLE[kind]
    if pa.types.is_struct(kind):
        return _struct(name, list(kind), strict=strict)
    if pa.types.is_list(kind):
        return list[_kind(name, kind.value_type, strict=strict) | None]  # type: ignore[misc]
    raise UnsupportedTypeError(f"{name} is {kind}")


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Objects of records make no cycles; looking for some costs a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
