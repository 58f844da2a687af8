"""A table's columns as an Arrow schema: from DDL, Spark's JSON or Avro, or what JSON records have.

Invariants: everything may be null. A column keeps its type unless a user asks to widen it; new
columns come at the end, up to MOST_COLUMNS, so that a topic of arbitrary keys makes no table of
arbitrary columns. No Spark is needed.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from ottla.model.errors import ConfigError, OttlaError
from ottla.pipelines.record_arrow import EPOCH, TYPES

VALUE, REASON, DETAIL = "kafka_value", "reason", "detail"
ORIGINS = ("key", "headers", "timestamp", "timestampType", "topic", "partition", "offset", EPOCH)
"""The source's columns that say where a record comes from."""
META_COLUMNS = (
    "kafka_key", "kafka_headers", "kafka_timestamp", "kafka_timestamp_type", "kafka_topic",
    "kafka_partition", "kafka_offset", "kafka_leader_epoch",
)  # fmt: skip
"""What they are called in a table; data columns may not be called so."""
META = pa.schema(
    [pa.field(a, TYPES.get(n, pa.int32())) for n, a in zip(ORIGINS, META_COLUMNS, strict=True)]
)
DEAD = pa.schema([(REASON, pa.string()), (DETAIL, pa.string()), (VALUE, pa.binary()), *META])
"""The columns of dead letters."""
SUFFIXES = (".ddl", ".json", ".avsc")
MOST_COLUMNS = 1_000
UTC_US = pa.timestamp("us", tz="UTC")

_SIMPLE = {
    "boolean": pa.bool_(), "byte": pa.int8(), "tinyint": pa.int8(), "short": pa.int16(),
    "smallint": pa.int16(), "int": pa.int32(), "integer": pa.int32(), "long": pa.int64(),
    "bigint": pa.int64(), "float": pa.float32(), "real": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "binary": pa.binary(), "date": pa.date32(), "timestamp": UTC_US,
    "timestamp_ltz": UTC_US, "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_NAMES = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int",
    pa.int64(): "bigint", pa.float32(): "float", pa.float64(): "double", pa.string(): "string",
    pa.large_string(): "string", pa.binary(): "binary", pa.large_binary(): "binary",
    pa.date32(): "date", UTC_US: "timestamp", pa.timestamp("us"): "timestamp_ntz",
}  # fmt: skip
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z0-9_]+)|([<>(),:]))")


def given_schema(text: str) -> pa.Schema:
    """Return the schema in a file (.ddl, .json as Spark writes schemas, .avsc), or in DDL."""
    path = Path(text)
    where = text if path.suffix in SUFFIXES else "schema"
    if path.suffix in SUFFIXES:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
    try:
        if path.suffix == ".avsc":
            found = _of_avro(json.loads(text), where, {})
        elif path.suffix == ".json":
            found = of_spark(json.loads(text))
        else:
            found = _Ddl(text).columns()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{where}: no schema: {error}") from None
    if not pa.types.is_struct(found) or not found.num_fields:
        raise ConfigError(f"{where}: a schema with columns is needed; --infer offers one")
    return pa.schema(list(found))


class _Ddl:
    """A parser of `name type, …`, as Spark writes it."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"unexpected {text[at:].strip()[:20]!r}")
            self._tokens.append(found[0].strip())
            at = found.end()
        self._at = 0

    def columns(self) -> pa.DataType:
        fields = self._fields("") if self._tokens else []
        return pa.struct(fields)

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""

    def _expect(self, wanted: str) -> None:
        if (found := self._next()) != wanted:
            raise ValueError(f"{wanted!r} expected, not {found or 'the end'!r}")

    def _fields(self, end: str) -> list[pa.Field]:
        fields = []
        while True:
            name = self._next()
            if not re.match(r"[`A-Za-z0-9_]", name):
                raise ValueError(f"the name of a column expected, not {name or 'the end'!r}")
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if self._peek() == ":":
                self._next()
            fields.append(pa.field(name, self._type()))
            if [t.lower() for t in self._tokens[self._at : self._at + 2]] == ["not", "null"]:
                self._at += 2
            if (found := self._next()) == end:
                return fields
            if found != ",":
                raise ValueError(f"',' expected behind column {name}, not {found!r}")

    def _type(self) -> pa.DataType:
        name = self._next().lower()
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in ("decimal", "dec", "numeric"):
            return pa.decimal128(*self._numbers()) if self._peek() == "(" else pa.decimal128(10, 0)
        if name in ("varchar", "char"):
            self._numbers()
            return pa.string()
        if name == "array":
            self._expect("<")
            inner = self._type()
            self._expect(">")
            return pa.list_(pa.field("element", inner))
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return pa.map_(key, value)
        if name == "struct":
            self._expect("<")
            return pa.struct(self._fields(">"))
        raise ValueError(f"{name or 'the end'!r} is not a type")

    def _numbers(self) -> list[int]:
        self._expect("(")
        found = [int(self._next())]
        while self._next() == ",":
            found.append(int(self._next()))
        return found


def ddl(schema: Iterable[pa.Field]) -> str:
    """Return columns as DDL."""
    return ", ".join(f"{_quoted(f.name)} {type_name(f.type)}" for f in schema)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"`{name.replace('`', '``')}`"


def type_name(kind: pa.DataType) -> str:
    """Return what DDL calls a type."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{_quoted(f.name)}: {type_name(f.type)}' for f in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    return _NAMES.get(kind, str(kind))


def of_spark(told: Any) -> pa.DataType:
    """Return the type in a schema as Spark writes it in JSON."""
    if isinstance(told, str):
        return _Ddl(f"c {told}").columns().field(0).type
    match told["type"]:
        case "struct":
            return pa.struct([(f["name"], of_spark(f["type"])) for f in told["fields"]])
        case "array":
            return pa.list_(pa.field("element", of_spark(told["elementType"])))
        case "map":
            return pa.map_(of_spark(told["keyType"]), of_spark(told["valueType"]))
        case other:
            raise ValueError(f"{other!r} is not a type")


_AVRO = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip


def _of_avro(told: Any, where: str, named: dict[str, Any]) -> pa.DataType:
    """Return the column type for an Avro schema; ConfigError for what no column can hold."""
    if isinstance(told, list):
        others = [part for part in told if part != "null"]
        if len(others) == 1:
            return _of_avro(others[0], where, named)
        raise ConfigError(f"{where}: a union of several types has no column: {others}")
    if isinstance(told, str):
        if told in _AVRO:
            return _AVRO[told]
        if told in named:
            return named[told]
        raise ConfigError(f"{where}: {told} is not a type that a column can have")
    logical = told.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(told["precision"], told.get("scale", 0))
    if logical in ("timestamp-millis", "timestamp-micros"):
        return UTC_US
    if logical in ("date", "uuid"):
        return pa.date32() if logical == "date" else pa.string()
    match told["type"]:
        case "record":
            fields = [(f["name"], _of_avro(f["type"], where, named)) for f in told["fields"]]
            found = pa.struct(fields)
        case "array":
            return pa.list_(pa.field("element", _of_avro(told["items"], where, named)))
        case "map":
            return pa.map_(pa.string(), _of_avro(told["values"], where, named))
        case "enum":
            found = pa.string()
        case "fixed":
            found = pa.binary()
        case inner:
            return _of_avro(inner, where, named)
    named[told["name"]] = found
    return found


# -- what records have -----------------------------------------------------------------------------


def seen_in(value: Any) -> pa.DataType:
    """Return the type that a JSON value would have as a column; null for what says nothing."""
    match value:
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if -(1 << 63) <= value < 1 << 63 else pa.float64()
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case dict():
            return pa.struct([(name, seen_in(inner)) for name, inner in value.items()])
        case list():
            inner = pa.null()
            for one in value:
                inner = merged(inner, seen_in(one))
            return pa.list_(pa.field("element", inner))
    return pa.null()


def merged(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type for values of both: a string where nothing else has room for them."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        names = {f.name: f.type for f in one}
        for field in other:
            known = names.get(field.name)
            names[field.name] = field.type if known is None else merged(known, field.type)
        return pa.struct(list(names.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(pa.field("element", merged(one.value_type, other.value_type)))
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return pa.string()


def settled(kind: pa.DataType) -> pa.DataType:
    """Return a type in which what was never seen is a string, and an empty object a map."""
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return pa.map_(pa.string(), pa.string())
        return pa.struct([(f.name, settled(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", settled(kind.value_type)))
    return pa.string() if pa.types.is_null(kind) else kind


# -- a table's schema and another ------------------------------------------------------------------


def widened(
    schema: Iterable[pa.Field], seen: Iterable[pa.Field], taken: Iterable[str] = ()
) -> pa.Schema:
    """Return `schema` with the fields that only `seen` has, also of objects in objects.

    What differs from a column in case alone, is called as one in `taken`, or exceeds the bound is
    left out.
    """
    new = {field.name: field.type for field in seen}
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_struct(kind) and pa.types.is_struct(new.get(field.name, pa.null())):
            kind = pa.struct(list(widened(kind, new[field.name])))
        fields.append(pa.field(field.name, kind))
    names = {field.name.lower() for field in fields} | {name.lower() for name in taken}
    for name, kind in new.items():
        if name.lower() not in names and _count(fields) < MOST_COLUMNS:
            names.add(name.lower())
            fields.append(pa.field(name, settled(kind)))
    return pa.schema(fields)


def _count(fields: Iterable[pa.Field]) -> int:
    return sum(_count(f.type) if pa.types.is_struct(f.type) else 1 for f in fields)


def plain(kind: pa.DataType) -> pa.DataType:
    """Return a type as this module makes it, of one that a table's library gave.

    Fields keep their metadata, in which Iceberg has their ids.
    """
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(plain(f.type)) for f in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(plain(key.type)), item.with_type(plain(item.type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(plain(kind.value_type)).with_name("element"))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with plain types, all of them nullable."""
    return pa.schema([f.with_type(plain(f.type)).with_nullable(True) for f in schema])


_SIZES = {pa.int8(): 0, pa.int16(): 1, pa.int32(): 2, pa.int64(): 3}


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether each value of a type has a place in another: int, bigint, double, decimal.

    Whole numbers beyond 2**53 may lose digits as double: that is what is asked for.
    """
    if pa.types.is_string(new):
        return not pa.types.is_nested(old) and not pa.types.is_binary(old)
    if old in _SIZES:
        if pa.types.is_decimal(new):
            return bool(new.precision - new.scale >= {3: 19, 2: 10}.get(_SIZES[old], 5))
        return new == pa.float64() or _SIZES.get(new, -1) > _SIZES[old]
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        whole = new.precision - new.scale >= old.precision - old.scale
        return bool(whole and new.scale >= old.scale)
    return bool((old, new) in ((pa.float32(), pa.float64()), (pa.date32(), UTC_US)))


def changes(table: Mapping[str, pa.DataType], given: pa.Schema) -> dict[str, pa.DataType]:
    """Return the columns whose type in a schema is another than the table's, with the new type."""
    return {
        f.name: f.type
        for f in given
        if f.name in table and not _contains(table[f.name], plain(f.type))
    }


def refuse_changes(where: str, table: Mapping[str, pa.DataType], found: Mapping[str, Any]) -> None:
    """Refuse a schema with other types than the table's, in one line that says the way out."""
    for name, kind in found.items():
        can = widens(table[name], kind)
        raise OttlaError(
            f"{where}: column {name} is {type_name(table[name])} in the table, {type_name(kind)} "
            "in the schema; "
            + (
                "--widen rewrites the table so"
                if can
                else "it cannot become that: name another lake, or another column"
            )
        )


def _contains(known: pa.DataType, new: pa.DataType) -> bool:
    """Return whether two types agree, two objects on the fields that both have."""
    if not pa.types.is_struct(known) or not pa.types.is_struct(new):
        return bool(known == new or (known == pa.int32() and new in (pa.int8(), pa.int16())))
    types = {field.name: field.type for field in known}
    return all(_contains(types.get(x.name, x.type), x.type) for x in new)
