"""Avro values to columns, by fastavro, one Arrow batch at a time.

Who may call: `parsing`. Invariants: a value is read with the schema it was written with, into the
columns of the table's schema (Avro's schema resolution); what does not decode, or goes on after the
record, is a dead letter with fastavro's reason. With framing "confluent" a value begins with a
zero byte and the id of its schema (4 bytes), whose file is ID.avsc beside the table's schema.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ConfigError, StartupError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

HEADER = 5
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


def decoded(schema: "StructType", path: Path, framing: str) -> "Column":
    """Return the values as struct<v: array<the schema's struct>, error: string>."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - no public way
    from pyspark.sql.types import (  # noqa: PLC0415 - an extra
        ArrayType,
        StringType,
        StructField,
        StructType,
    )

    result = StructType([StructField("v", ArrayType(schema)), StructField("error", StringType())])
    schemas: dict[int | None, Any] = {None: read_schema(path)}
    if framing == "confluent":
        for file in sorted(path.parent.glob("*.avsc")):
            if file.stem.isdigit():
                schemas[int(file.stem)] = read_schema(file)
    names = schema.names
    arrow_type = to_arrow_type(result, timezone="UTC")

    def decode(values: pa.Array) -> pa.Array:
        read = _reader(schemas, framing)
        rows: list[dict[str, Any]] = []
        for value in values:
            try:
                row = None if not value.is_valid else read(value.as_py())
                rows.append({"v": None if row is None else [_only(row, names)], "error": None})
            except Exception as error:  # noqa: BLE001 - fastavro raises what it likes
                rows.append({"v": None, "error": f"{type(error).__name__}: {error}"[:200]})
        return pa.array(rows, type=arrow_type)

    return f.arrow_udf(decode, result)(f.col("value"))


def _only(row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: row.get(name) for name in names}


def _reader(schemas: dict[int | None, Any], framing: str) -> Callable[[bytes], dict[str, Any]]:
    """Return what decodes one value into the table's schema."""
    from fastavro import schemaless_reader  # noqa: PLC0415 - in a worker

    wanted = schemas[None]

    def read(value: bytes) -> dict[str, Any]:
        source, written = io.BytesIO(value), wanted
        if framing == "confluent":
            header = source.read(HEADER)
            if len(header) < HEADER or header[0]:
                raise ValueError("the value does not begin with a zero byte and a schema's id")
            number = int.from_bytes(header[1:], "big")
            if number not in schemas:
                raise ValueError(f"there is no file {number}.avsc for its schema")
            written = schemas[number]
        found = schemaless_reader(source, written, wanted)
        if source.tell() != len(value):
            raise ValueError(f"{len(value) - source.tell()} bytes follow the record")
        return dict(found)

    return read
