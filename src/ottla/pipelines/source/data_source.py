"""What Spark makes readers of: `format("ottla")`, with options and a schema.

Invariants: options are checked before a schema is returned, so that `load()` refuses bad ones.
Spark: `KafkaSourceProvider`.
"""

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql import types as t
from pyspark.sql.datasource import DataSource

from ottla.model.errors import ConfigError
from ottla.pipelines.source.options import SourceOptions, parse_options, without_effect

if TYPE_CHECKING:
    from ottla.pipelines.source.batch import BatchReader
    from ottla.pipelines.source.streaming import StreamReader

log = logging.getLogger(__name__)

FORMAT = "ottla"

_HEADER = t.StructType().add("key", t.StringType()).add("value", t.BinaryType())
ALL_COLUMNS = (
    t.StructType()
    .add("key", t.BinaryType())
    .add("value", t.BinaryType())
    .add("topic", t.StringType())
    .add("partition", t.IntegerType())
    .add("offset", t.LongType())
    .add("timestamp", t.TimestampType())
    .add("timestampType", t.IntegerType())
    .add("headers", t.ArrayType(_HEADER))
)
"""The connector's schema with includeHeaders."""


class TopicSource(DataSource):  # type: ignore[misc]
    """Topics of a Kafka-compatible cluster.

    A schema that the user gives is a choice of these columns: what it leaves out is not decoded.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Warn of options without effect: once for each `load()`, in its Python worker's log."""
        super().__init__(options)
        for line in without_effect(options):
            log.warning("%s", line)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> t.StructType:
        count = len(ALL_COLUMNS) if self._parsed().include_headers else len(ALL_COLUMNS) - 1
        return t.StructType(ALL_COLUMNS.fields[:count])

    def reader(self, schema: t.StructType) -> "BatchReader":
        from ottla.pipelines.source.batch import BatchReader  # imports pyarrow

        return BatchReader(self._parsed(), chosen_columns(schema))

    def streamReader(self, schema: t.StructType) -> "StreamReader":  # noqa: N802 - Spark's name
        from ottla.pipelines.source.streaming import StreamReader  # as above

        return StreamReader(self._parsed(), chosen_columns(schema))

    def _parsed(self) -> SourceOptions:
        return parse_options(self.options)


def chosen_columns(schema: t.StructType) -> list[str]:
    """Return the columns of a schema; ConfigError for any that no record has, or has otherwise."""
    types = {field.name: field.dataType for field in ALL_COLUMNS}
    for field in schema:
        if types.get(field.name) != field.dataType:
            known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in types.items())
            raise ConfigError(
                f"the schema has {field.name} {field.dataType.simpleString()}; columns are: {known}"
            )
    return list(schema.fieldNames())
