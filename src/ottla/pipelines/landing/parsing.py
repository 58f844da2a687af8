"""Values to columns: which records become rows, which become dead letters, and why.

Invariants: each record is a row or a dead letter, never both and never neither; a row holds all
that its value said. A record without a value (a tombstone) is a row with its key alone. Checked
are: valid UTF-8, one JSON object and nothing after it, the types, and fields that the schema lacks;
of Avro that it decodes and nothing follows.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.model.errors import ConfigError
from ottla.pipelines.landing.settings import BATCH, META_COLUMNS, Layout, Value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

REASON, DETAIL = "reason", "detail"
VALUE = "kafka_value"
PARSED, BARRIER = "__parsed", "__barrier"
CORRUPT = "__corrupt"
END = secrets.randbits(62)
"""What follows a value while it is parsed: no value can know it, and so pretend to end there."""
INVALID_UTF8 = "invalid UTF-8"
NO_JSON = "no JSON object"
MISFIT = "does not fit the schema"
UNKNOWN = "fields that the schema lacks"


@dataclass(frozen=True)
class Parser:
    """How the values of one topic are read. `schema` is None for raw bytes.

    `also` names columns of the records that rows and dead letters get, too.
    """

    value: Value
    layout: Layout
    schema: "StructType | None"
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        taken = {*META_COLUMNS, *self.also, BATCH, VALUE}
        if self.layout.date is not None:
            taken.add(self.layout.date_column)
        names = [] if self.schema is None else self.schema.names
        clash = [n for n in names if n.lower() in taken]
        if clash:
            raise ConfigError(
                f"the schema's column {clash[0]} is called as one of the lake's own; "
                "leave it out, or rename date_column"
            )

    def judged(self, records: "DataFrame", *, streaming: bool = False) -> "DataFrame":
        """Return the records with what was parsed and, for dead letters, why (else null).

        `streaming`: the records are a stream, in which Spark may parse a value more than once.
        """
        from pyspark.sql import functions as f

        if self.schema is None:
            return records.withColumn(REASON, f.lit(None).cast("string"))
        # Spark would copy the parsing into each filter and column behind it, and do it again
        # there; it does not where a column's values depend on the row's place.
        if self.value.format == "avro":
            from ottla.pipelines.landing.avro_columns import decoded

            parsed = decoded(self.schema, Path(self.value.schema or ""), self.value.framing)
            reason = _avro_reason()
        else:
            parsed, reason = _parsed(self.schema), _reason(self.schema, self.value.drift)
        if streaming:  # Spark allows no ids that depend on a row's place there
            return records.withColumn(PARSED, parsed).withColumn(REASON, reason)
        return (
            records.withColumn(PARSED, parsed)
            .withColumn(BARRIER, f.monotonically_increasing_id())
            .withColumn(REASON, f.when(f.col(BARRIER) < 0, f.lit("")).otherwise(reason))
        )

    def rows(self, judged: "DataFrame") -> "DataFrame":
        """Return the table's rows: data columns, the date, and where each came from."""
        from pyspark.sql import functions as f

        names = [] if self.schema is None else self.schema.names
        data: list[Column] = [
            f.element_at(f.col(f"{PARSED}.v"), 1).getField(n).alias(n) for n in names
        ]
        if self.schema is None or self.value.keep:
            data.append(f.col("value").alias(VALUE))
        rows = judged.where(f.col(REASON).isNull()).select(*data, *origin(), *self.also)
        if self.layout.date is None:
            return rows
        return rows.withColumn(self.layout.date_column, f.expr(self.layout.date).cast("date"))

    def dead_letters(self, judged: "DataFrame") -> "DataFrame":
        """Return the dead letters: the reason, the original bytes, and where each came from."""
        from pyspark.sql import functions as f

        if self.schema is None:
            detail = f.lit(None).cast("string")
        elif self.value.format == "avro":
            detail = f.col(f"{PARSED}.error")
        else:
            detail = _detail(self.schema)
        return judged.where(f.col(REASON).isNotNull()).select(
            REASON, detail.alias(DETAIL), f.col("value").alias(VALUE), *origin(), *self.also
        )


def origin() -> "list[Column]":
    """Return the columns that say where a record came from, in the order of META_COLUMNS."""
    from pyspark.sql import functions as f

    names = ("key", "headers", "timestamp", "timestampType", "topic", "partition", "offset")
    return [f.col(n).alias(a) for n, a in zip(names, META_COLUMNS, strict=True)]


def text() -> "Column":
    from pyspark.sql import functions as f

    return f.col("value").cast("string")


def _parsed(schema: "StructType") -> "Column":
    """Parse the value inside of something bigger.

    Spark's parser takes the first object of a text and ignores what follows it; inside an array
    that something follows, it is malformed, or a second element.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import (
        ArrayType,
        LongType,
        StringType,
        StructField,
        StructType,
    )

    around = StructType(
        [
            StructField("v", ArrayType(schema)),
            StructField("end", LongType()),
            StructField(CORRUPT, StringType()),
        ]
    )
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return f.from_json(_wrapped(), around, options)


def _wrapped() -> "Column":
    from pyspark.sql import functions as f

    return f.concat(f.lit('{"v":['), text(), f.lit(f'],"end":{END}}}'))


def _reason(schema: "StructType", drift: str) -> "Column":
    from pyspark.sql import functions as f

    found = f.col(PARSED)
    one_object = (
        (f.size(found.getField("v")) == 1)
        & (found.getField("end") == END)
        & f.element_at(found.getField("v"), 1).isNotNull()
        # A value may close the array itself, and go on with another field.
        & (~f.contains(text(), f.lit("]")) | (f.size(f.json_object_keys(_wrapped())) == 2))
    )
    reason = (
        f.when(f.col("value").isNull(), f.lit(None).cast("string"))
        .when(~f.is_valid_utf8(text()), INVALID_UTF8)
        .when(found.getField(CORRUPT).isNotNull(), MISFIT)
        .when(~f.coalesce(one_object, f.lit(False)), NO_JSON)
    )
    if drift == "ignore":
        return reason
    return reason.when(f.size(unknown_fields(schema)) > 0, UNKNOWN)


def _avro_reason() -> "Column":
    from pyspark.sql import functions as f

    misread = f.col("value").isNotNull() & f.col(f"{PARSED}.error").isNotNull()
    return f.when(misread, "no Avro record of the schema").otherwise(f.lit(None).cast("string"))


def unknown_fields(schema: "StructType") -> "Column":
    """Return the names of an object's fields that the schema lacks, also of objects in objects.

    Objects in arrays are not looked into.
    """
    from pyspark.sql import functions as f

    found = [_unknown(text(), schema)]
    for path, inner in _objects(schema, "$"):
        found.append(_unknown(f.get_json_object(text(), path), inner))
    none = f.array().cast("array<string>")
    return found[0] if len(found) == 1 else f.concat(*(f.coalesce(x, none) for x in found))


def _unknown(json: "Column", schema: "StructType") -> "Column":
    from pyspark.sql import functions as f

    known = f.array(*(f.lit(n) for n in schema.names)).cast("array<string>")
    keys = f.json_object_keys(json)
    # Most records have all fields in the schema's order, and comparing is the cheaper question.
    none = f.array().cast("array<string>")
    return f.when(keys == known, none).otherwise(f.array_except(keys, known))


def _objects(schema: "StructType", path: str) -> "Iterator[tuple[str, StructType]]":
    """Yield the paths of the objects in an object, with their schemas."""
    from pyspark.sql.types import StructType

    for field in schema.fields:
        if isinstance(field.dataType, StructType) and "'" not in field.name:
            inner = f"{path}['{field.name}']"
            yield inner, field.dataType
            yield from _objects(field.dataType, inner)


def _detail(schema: "StructType") -> "Column":
    """Say which fields do not fit, or are not known. Costly: for dead letters alone."""
    from pyspark.sql import functions as f

    row = f.element_at(f.col(f"{PARSED}.v"), 1)
    misfits = f.array_compact(
        f.array(
            *(
                f.when(
                    f.get_json_object(text(), f"$['{name}']").isNotNull()
                    & row.getField(name).isNull(),
                    f.lit(name),
                )
                for name in schema.names
                if "'" not in name
            )
        )
    )
    return (
        f.when(f.col(REASON) == MISFIT, f.concat_ws(", ", misfits))
        .when(f.col(REASON) == UNKNOWN, f.concat_ws(", ", unknown_fields(schema)))
        .otherwise(f.lit(None).cast("string"))
    )
