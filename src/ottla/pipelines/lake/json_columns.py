"""JSON values to Arrow columns, by msgspec and Arrow's own casts.

Invariants: a value is a row only if it is one JSON object, valid UTF-8, whose fields all have their
columns' types and, if `strict`, are all known; nothing is dropped or rounded silently. Texts are
times (ISO 8601; UTC unless they say else), dates and base64 (binary); numbers and booleans in a
string column are their JSON text. Memory: the objects of ROWS_AT_ONCE records.
"""

import gc
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ottla.model.errors import ConfigError
from ottla.pipelines.lake.schemas import merged, seen_in

ROWS_AT_ONCE = 2_000
"""So few that their objects stay in the processor's cache."""
INVALID_UTF8 = "invalid UTF-8"
NO_JSON = "no JSON object"
MISFIT = "does not fit the schema"
UNKNOWN = "fields that the schema lacks"
MOST_SEEN = 10_000
"""Dead letters whose new fields are looked at, in one task."""
ZONE = r"(?i)(z|[+-]\d\d(:?\d\d)?)$"


def _whole(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(1 << (bits - 1)), le=(1 << (bits - 1)) - 1)]


SIMPLE: dict[pa.DataType, Any] = {
    pa.bool_(): bool,
    pa.int8(): _whole(8),
    pa.int16(): _whole(16),
    pa.int32(): _whole(32),
    pa.int64(): _whole(64),
    pa.float32(): float,
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): bytes,
    pa.date32(): str,
}
NUMBERS = {
    pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q", pa.float64(): "d",
}  # fmt: skip
"""What `array` calls numbers of these types, in Arrow's own layout."""


@dataclass
class Parsed:
    """What became of values: columns of those that are `taken`, why not of each other, in order.

    `seen`: the type of what had fields that the schema lacks.
    """

    batches: list[pa.RecordBatch]
    taken: NDArray[np.bool_]
    reasons: list[tuple[str, str]] = field(default_factory=list)
    seen: pa.DataType = field(default_factory=pa.null)


class JsonColumns:
    """Parses values into the columns of a schema; ConfigError for a type that JSON has not.

    `strict`: a value with fields that the schema lacks is left out, else these fields are dropped.
    """

    def __init__(self, schema: pa.Schema, *, strict: bool) -> None:
        self._schema = schema
        self._strict = strict
        self._kind = _struct("Row", schema, strict=strict)
        self._nothing = self._kind()
        self._decoder = msgspec.json.Decoder(self._kind)
        self._texts = [f.name for f in schema if f.type == pa.string()]

    def parse(self, values: pa.Array) -> Parsed:
        """Return the columns of values. A value that is null is a row of nulls."""
        found = Parsed([], np.ones(len(values), bool))
        with _no_garbage_collection():
            for at in range(0, len(values), ROWS_AT_ONCE):
                some = values.slice(at, ROWS_AT_ONCE)
                rows = self._lines(some)
                try:
                    if rows is not None:
                        found.batches.append(self._columns(rows))
                        continue
                except (pa.ArrowException, OverflowError):
                    pass  # not a time, or a decimal with too many digits
                kept = list(self._one_by_one(some, found.taken[at : at + ROWS_AT_ONCE], found))
                found.batches.append(self._columns(kept))
        return found

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

    def _one_by_one(
        self, values: pa.Array, taken: NDArray[np.bool_], found: Parsed
    ) -> Iterator[Any]:
        for n, value in enumerate(values.to_pylist()):
            try:
                row = self._nothing if value is None else self._row(value)
                self._columns([row])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                taken[n] = False
                found.reasons.append(self._why(value, str(error), found))
            except (pa.ArrowException, OverflowError) as error:
                taken[n] = False
                found.reasons.append((MISFIT, str(error).partition("\n")[0]))
            else:
                yield row

    def _row(self, value: bytes) -> Any:
        """Decode a value; where texts are wanted, numbers and booleans are taken as such."""
        if not self._strict:
            value.decode()
        try:
            return self._decoder.decode(value)
        except msgspec.ValidationError as error:
            if "Expected `str" not in str(error):
                raise
            raw = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
            for name in self._texts:
                if bytes(raw.get(name, b'"'))[:1] not in b'"{[n':
                    raw[name] = msgspec.Raw(msgspec.json.encode(bytes(raw[name]).decode()))
            return self._decoder.decode(msgspec.json.encode(raw))

    def _why(self, value: bytes, problem: str, found: Parsed) -> tuple[str, str]:
        """Return why a value is no row, and note the fields that are new in it."""
        try:
            value.decode()
            told = msgspec.json.decode(value)
        except UnicodeDecodeError:
            return INVALID_UTF8, ""
        except (msgspec.DecodeError, RecursionError):
            return NO_JSON, ""
        if not isinstance(told, dict):
            return NO_JSON, ""
        if "unknown field" not in problem:
            return MISFIT, problem
        if len(found.reasons) < MOST_SEEN:
            found.seen = merged(found.seen, seen_in(told))
        return UNKNOWN, problem.removeprefix("Object contains unknown field ")

    def _columns(self, rows: list[Any]) -> pa.RecordBatch:
        columns: Iterable[Any] = zip(*map(msgspec.structs.astuple, rows), strict=True)
        if not rows:
            columns = [()] * len(self._schema)
        arrays = []
        for column, wanted in zip(columns, self._schema, strict=True):
            try:
                arrays.append(_array(column, wanted.type))
            except (pa.ArrowException, OverflowError) as error:
                raise pa.ArrowInvalid(f"{wanted.name}: {error}") from None
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
    if pa.types.is_nested(kind):
        column = msgspec.to_builtins(column, builtin_types=(Decimal, bytes))
    return _cast(pa.array(column, _raw(kind)), kind)


def _raw(kind: pa.DataType) -> pa.DataType:
    """Return the type that decoded objects have: texts where Arrow is to parse them."""
    if pa.types.is_timestamp(kind) or kind == pa.date32():
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _raw(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _raw(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _raw(kind.item_type))
    return kind


def _cast(found: pa.Array, kind: pa.DataType) -> pa.Array:
    if found.type == kind:
        return found
    if pa.types.is_struct(kind):
        fields = [_cast(one, f.type) for one, f in zip(found.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=found.is_null())
    if pa.types.is_list(kind):
        inner = _cast(found.values, kind.value_type)
        return pa.ListArray.from_arrays(found.offsets, inner, type=kind, mask=found.is_null())
    if pa.types.is_map(kind):
        inner = _cast(found.items, kind.item_type)
        return pa.MapArray.from_arrays(found.offsets, found.keys, inner, type=kind)
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return found.cast(kind)
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        zoned = pc.fill_null(pc.match_substring_regex(found, ZONE), False)
        # A date ends like a zone ("-05"), but has no time before it.
        zoned = pc.and_(zoned, pc.greater(pc.utf8_length(pc.fill_null(found, "")), 10))
        nothing = pa.scalar(None, pa.string())
        naive = pc.if_else(zoned, nothing, found).cast(pa.timestamp(kind.unit))
        return pc.coalesce(
            pc.if_else(zoned, found, nothing).cast(kind), pc.assume_timezone(naive, kind.tz)
        )


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
    for n, one in enumerate(fields):
        kind = _kind(f"{name}{n}", one, strict=strict)
        wanted.append((f"f{n}", kind | None, None))
        names[f"f{n}"] = one.name
    try:
        return msgspec.defstruct(
            name, wanted, rename=names, forbid_unknown_fields=strict, gc=False
        )  # fmt: skip
    except (TypeError, ValueError) as error:  # a name with quotes, or one that stands twice
        raise ConfigError(f"the schema's columns {sorted(names.values())}: {error}") from None


def _kind(name: str, of: pa.Field, *, strict: bool) -> Any:
    kind = of.type
    if kind in SIMPLE:
        return SIMPLE[kind]
    if pa.types.is_timestamp(kind):
        return str
    if pa.types.is_decimal(kind):
        return Decimal
    if pa.types.is_struct(kind):
        return _struct(name, list(kind), strict=strict)
    if pa.types.is_list(kind):
        return list[_kind(name, kind.value_field, strict=strict) | None]  # type: ignore[misc]
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return dict[str, _kind(name, kind.item_field, strict=strict) | None]  # type: ignore[misc]
    raise ConfigError(f"column {of.name}: JSON has no {kind}")


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
