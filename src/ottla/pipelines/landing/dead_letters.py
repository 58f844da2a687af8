"""Dead letters to a topic: the original record, with headers that say why and where it stood.

Invariants: the headers are those of Kafka Connect's dead letter queue (`DeadLetterQueueReporter`);
key, value and the record's own headers are as they were. They are produced before the batch is
committed: a batch that is done again sends them again, and the same topic, partition and offset in
the headers tell.
"""

from typing import TYPE_CHECKING

from ottla.pipelines.config import Cluster
from ottla.pipelines.landing.parsing import DETAIL, REASON, VALUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PREFIX = "__connect.errors."
STAGE = "VALUE_CONVERTER"
CLASS = "ottla.pipelines.landing.parsing"
NAME = "ottla-lake"


def send(letters: "DataFrame", cluster: Cluster, topic: str) -> None:
    """Produce dead letters, as they stand in the table `dead`, to a topic."""
    from pyspark.sql import functions as f

    errors = f.array(*(_header(name, value) for name, value in _facts().items()))
    own = f.coalesce(
        f.col("kafka_headers"), f.array().cast("array<struct<key:string,value:binary>>")
    )
    (
        letters.select(
            f.lit(topic).alias("topic"),
            f.col("kafka_key").alias("key"),
            f.col(VALUE).alias("value"),
            f.concat(own, errors).alias("headers"),
        )
        .write.format("kafka")
        .options(**cluster.connector_options())
        .save()
    )


def _facts() -> "dict[str, Column]":
    from pyspark.sql import functions as f

    return {
        "topic": f.col("kafka_topic"),
        "partition": f.col("kafka_partition"),
        "offset": f.col("kafka_offset"),
        "connector.name": f.lit(NAME),
        "stage": f.lit(STAGE),
        "class.name": f.lit(CLASS),
        "exception.message": f.concat_ws(": ", f.col(REASON), f.nullif(f.col(DETAIL), f.lit(""))),
    }


def _header(name: str, value: "Column") -> "Column":
    from pyspark.sql import functions as f

    content = value.cast("string").cast("binary")
    return f.struct(f.lit(PREFIX + name).alias("key"), content.alias("value"))
