"""Avro schemas: how files of them are read, and which columns a table has for them.

Invariants: a schema that columns cannot hold is refused in one line; what is read are .avsc files,
by fastavro; a value that decodes in a time that its size does not bound is none of ours
(`why_unbounded`, `MOST_DECIMAL_BYTES`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.model.errors import ConfigError, StartupError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

NO_AVRO = "no Avro record of the schema"
MOST_DECIMAL_BYTES = 256
"""Larger decimals take time that grows with the square of their size: 1 MiB takes minutes."""


class Schema(NamedTuple):
    """A schema as fastavro parsed it, and the types in it that have names."""

    parsed: Any
    named: Mapping[str, Any]


def read_schema(path: Path, needed_for: str = "format avro", extra: str = "spark") -> Schema:
    """Return an .avsc file, parsed; ConfigError if it is none, StartupError without fastavro."""
    try:
        import fastavro
    except ImportError:
        raise StartupError(
            f"{needed_for} needs fastavro, not installed here: pip install 'ottla[{extra}]'"
        ) from None
    named: dict[str, Any] = {}
    try:
        text = path.read_text(encoding="utf-8")
        return Schema(fastavro.parse_schema(json.loads(text), named_schemas=named), named)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except Exception as error:  # noqa: BLE001 - fastavro raises what it likes
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ConfigError(f"{path}: no Avro schema: {why}") from None


def why_unbounded(schema: Schema) -> str | None:
    """Return why a value of few bytes can take any time or depth to decode; None if it cannot.

    An array announces how many items follow: items of no bytes need not follow. A record inside
    itself nests as deep as its value says, and fastavro's recursion ends the process.
    """
    sizes: dict[str, int] = {}
    try:
        _least_size(schema.parsed, schema.named, sizes, ())
    except _UnboundedError as error:
        return str(error)
    return None


class _UnboundedError(Exception):
    """A schema whose values have no bound. The message is a clause that says why."""


def _least_size(
    schema: Any, named: Mapping[str, Any], sizes: dict[str, int], inside: tuple[str, ...]
) -> int:
    """Return how many bytes a value takes at least; `sizes` keeps those of named types."""
    if isinstance(schema, list):
        return 1 + min(_least_size(part, named, sizes, inside) for part in schema)
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "null":
            return 0
        case "float":
            return 4
        case "double":
            return 8
        case "boolean" | "int" | "long" | "bytes" | "string" | "enum":
            return 1
        case "fixed":
            return int(schema["size"])
        case "array":
            if not _least_size(schema["items"], named, sizes, inside):
                raise _UnboundedError("an array's items take no bytes")
            return 1
        case "map":
            _least_size(schema["values"], named, sizes, inside)
            return 1
        case "record" | "error":
            name = schema["name"]
            if name in inside:
                raise _UnboundedError(f"record {name} is inside itself")
            if name not in sizes:
                fields = [field["type"] for field in schema["fields"]]
                within = (*inside, name)
                sizes[name] = sum(_least_size(f, named, sizes, within) for f in fields)
            return sizes[name]
    inner = named[kind] if isinstance(kind, str) else kind
    return _least_size(inner, named, sizes, inside)


def columns_of(schema: Any, where: str) -> "StructType":
    """Return the columns for an Avro record; ConfigError for what no column can hold."""
    found = _kind(schema, where, {})
    from pyspark.sql.types import StructType

    if not isinstance(found, StructType):
        raise ConfigError(f"{where}: a record is needed, this is {schema!r}")
    return found


def _kind(schema: Any, where: str, named: dict[str, Any]) -> "DataType":
    from pyspark.sql import types as t

    if isinstance(schema, list):
        others = [part for part in schema if part != "null"]
        if len(others) == 1:
            return _kind(others[0], where, named)
        raise ConfigError(f"{where}: a union of several types has no column: {others}")
    if isinstance(schema, str):
        simple = {
            "boolean": t.BooleanType(),
            "int": t.IntegerType(),
            "long": t.LongType(),
            "float": t.FloatType(),
            "double": t.DoubleType(),
            "bytes": t.BinaryType(),
            "string": t.StringType(),
        }
        if schema in simple:
            return simple[schema]
        if schema in named:
            return _kind(named[schema], where, named)
        raise ConfigError(f"{where}: {schema} is no type that a column can have")
    logical = schema.get("logicalType")
    if logical == "decimal":
        return t.DecimalType(schema["precision"], schema.get("scale", 0))
    if logical in ("timestamp-millis", "timestamp-micros"):
        return t.TimestampType()
    if logical in ("date", "uuid"):
        return t.DateType() if logical == "date" else t.StringType()
    match schema["type"]:
        case "record":
            fields = [
                t.StructField(f["name"], _kind(f["type"], where, named), True)
                for f in schema["fields"]
            ]
            return t.StructType(fields)
        case "array":
            return t.ArrayType(_kind(schema["items"], where, named), True)
        case "map":
            return t.MapType(t.StringType(), _kind(schema["values"], where, named), True)
        case "enum":
            return t.StringType()
        case "fixed":
            return t.BinaryType()
        case inner:
            return _kind(inner, where, named)
