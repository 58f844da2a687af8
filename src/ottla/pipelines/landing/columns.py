"""A table's columns: from the schema file, widened by what records bring, never narrowed.

Invariants: a column never changes its type; one of another type in the schema file is refused, and
a record that has one is a dead letter. New columns come at the end. There is a bound, so that a
topic of arbitrary keys makes no table of arbitrary columns.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ConfigError, OttlaError
from ottla.pipelines.landing.settings import BATCH, META_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

SUFFIXES = (".ddl", ".json", ".avsc")
MOST_COLUMNS = 1_000
"""A topic whose records bring more has keys that are data: they become dead letters."""


def schema_text(text: str) -> str:
    """Return what a schema file holds, or the DDL that stands in its place."""
    path = Path(text)
    if path.suffix not in SUFFIXES:
        return text
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def given_schema(text: str) -> "StructType":
    """Return the schema in a file (.ddl, .json, .avsc), or in a text of DDL."""
    from pyspark.sql.types import StructType

    path = Path(text)
    where = text if path.suffix in SUFFIXES else "schema"
    text = schema_text(text)
    if path.suffix == ".avsc":
        try:
            return _columns_of_avro(json.loads(text), where)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{where}: not an Avro schema: {type(error).__name__}: {error}"
            ) from None
    try:
        if path.suffix == ".json":
            return StructType.fromJson(json.loads(text))
        return StructType.fromDDL(" ".join(text.split()))
    except Exception as error:  # noqa: BLE001 - Spark raises what it likes
        lines = [line for line in str(error).splitlines() if line.strip()] or ["no schema"]
        raise ConfigError(f"{where}: {lines[0]}") from None


def _columns_of_avro(schema: Any, where: str) -> "StructType":
    """Return the columns for an Avro record; ConfigError for what no column can hold."""
    found = _avro_type(schema, where, {})
    from pyspark.sql.types import StructType

    if not isinstance(found, StructType):
        raise ConfigError(f"{where}: a record is needed, this is {schema!r}")
    return found


def _avro_type(schema: Any, where: str, named: dict[str, Any]) -> "DataType":
    from pyspark.sql import types as t

    if isinstance(schema, list):
        others = [part for part in schema if part != "null"]
        if len(others) == 1:
            return _avro_type(others[0], where, named)
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
            return _avro_type(named[schema], where, named)
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
                t.StructField(f["name"], _avro_type(f["type"], where, named), True)
                for f in schema["fields"]
            ]
            return t.StructType(fields)
        case "array":
            return t.ArrayType(_avro_type(schema["items"], where, named), True)
        case "map":
            return t.MapType(t.StringType(), _avro_type(schema["values"], where, named), True)
        case "enum":
            return t.StringType()
        case "fixed":
            return t.BinaryType()
        case inner:
            return _avro_type(inner, where, named)


def stored_schema(text: str) -> "StructType":
    """Return the schema that a table keeps."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text))


def united(table: "StructType | None", given: "StructType", where: str) -> "StructType":
    """Return the table's columns and then those that only the schema file has.

    OttlaError if a column has two types.
    """
    if table is None:
        return nullable(given)
    types = {field.name: field.dataType for field in table.fields}
    for field in given.fields:
        known = types.get(field.name)
        new = nullable(field.dataType)
        if known is not None and known != new and not _contains(known, new):
            raise OttlaError(
                f"{where}: column {field.name} is {known.simpleString()} in the table, "
                f"{new.simpleString()} in the schema; name another lake, or another column"
            )
    return widened(table, given)


def widened(schema: "StructType", seen: "StructType") -> "StructType":
    """Return `schema` with the fields that only `seen` has, also of objects in objects.

    What cannot be a column beside the others (it differs in case alone, or is called as one of the
    lake's own) is left out, and so is all that exceeds the bound.
    """
    from pyspark.sql.types import StructField, StructType

    by_name = {field.name: field for field in seen.fields}
    fields = []
    for field in schema.fields:
        new = by_name.get(field.name)
        kind = field.dataType
        if new and isinstance(kind, StructType) and isinstance(new.dataType, StructType):
            kind = widened(kind, new.dataType)
        fields.append(StructField(field.name, kind, True))
    taken = {name.lower() for name in schema.names} | {*META_COLUMNS, BATCH, "kafka_value"}
    for field in seen.fields:
        if field.name.lower() not in taken and _count(StructType(fields)) < MOST_COLUMNS:
            taken.add(field.name.lower())
            fields.append(StructField(field.name, nullable(field.dataType), True))
    return StructType(fields)


def nullable(kind: Any) -> Any:
    """Return a type in which everything may be null; what was never seen is a string."""
    from pyspark.sql.types import (
        ArrayType,
        MapType,
        NullType,
        StringType,
        StructField,
        StructType,
    )

    if isinstance(kind, StructType):
        return StructType([StructField(x.name, nullable(x.dataType), True) for x in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, nullable(kind.valueType), True)
    return StringType() if isinstance(kind, NullType) else kind


def _contains(known: "DataType", new: "DataType") -> bool:
    """Return whether two objects agree on the fields that both have."""
    from pyspark.sql.types import StructType

    if not isinstance(known, StructType) or not isinstance(new, StructType):
        return bool(known == new)
    types = {field.name: field.dataType for field in known.fields}
    return all(_contains(types.get(x.name, x.dataType), x.dataType) for x in new.fields)


def _count(kind: "DataType") -> int:
    from pyspark.sql.types import StructType

    if isinstance(kind, StructType):
        return sum(_count(field.dataType) for field in kind.fields)
    return 1


def inferred(spark: "SparkSession", texts: "DataFrame") -> "StructType":
    """Return the schema of JSON objects in the only column of a DataFrame of strings."""
    from pyspark.sql.types import StructType

    jvm = spark._jvm  # noqa: SLF001 - Python's reader would take the rows through Python
    assert jvm is not None
    strings = getattr(texts._jdf, "as")(jvm.org.apache.spark.sql.Encoders.STRING())  # noqa: SLF001
    reader = spark._jsparkSession.read()  # noqa: SLF001
    reader.option("columnNameOfCorruptRecord", "__corrupt")
    found = StructType.fromJson(json.loads(reader.json(strings).schema().json()))
    return StructType([field for field in found.fields if field.name != "__corrupt"])
