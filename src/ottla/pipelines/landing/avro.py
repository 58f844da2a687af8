"""Avro schemas: which columns a table has for them.

Who may call: the lake's parts. Invariants: a schema that columns cannot hold is refused in one
line; what is read are .avsc files, by fastavro.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ConfigError, StartupError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

NO_AVRO = "no Avro record of the schema"


def read_schema(path: Path) -> Any:
    """Return an .avsc file, parsed; ConfigError if it is none, StartupError without fastavro."""
    try:
        import fastavro  # noqa: PLC0415 - an extra
    except ImportError:
        raise StartupError(
            "format avro needs fastavro, not installed here: pip install 'ottla[spark]'"
        ) from None
    try:
        return fastavro.parse_schema(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except Exception as error:  # noqa: BLE001 - fastavro raises what it likes
        raise ConfigError(f"{path}: no Avro schema: {error}") from None


def columns_of(schema: Any, where: str) -> "StructType":
    """Return the columns for an Avro record; ConfigError for what no column can hold."""
    found = _kind(schema, where, {})
    from pyspark.sql.types import StructType  # noqa: PLC0415 - an extra

    if not isinstance(found, StructType):
        raise ConfigError(f"{where}: a record is needed, this is {schema!r}")
    return found


def _kind(schema: Any, where: str, named: dict[str, Any]) -> "DataType":
    from pyspark.sql import types as t  # noqa: PLC0415 - an extra

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
