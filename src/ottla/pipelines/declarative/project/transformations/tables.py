"""The topics' records: as rows of `records`, or with a reason in `dead_letters`."""

import msgspec
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from ottla.pipelines.landing.parsing import Parser
from ottla.pipelines.landing.settings import Layout, Value

spark = SparkSession.active()


def setting(name: str) -> str:
    """Return a value of `configuration` in spark-pipeline.yml."""
    return str(spark.conf.get(f"spark.ottla.{name}"))


# JSON is read as the lake job reads it: one object, all types fit, no unknown fields.
parser = Parser(
    msgspec.convert(
        {"format": "json", "schema": setting("schema"), "drift": setting("drift")}, Value
    ),
    Layout(),
    StructType.fromDDL(setting("schema")),
    also=("kafka_bytes", "landed_at"),
)


@dp.temporary_view
def judged() -> DataFrame:
    """Return the records, with what was parsed of their values, or the reason why not."""
    records = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", setting("bootstrap"))
        .option("properties", setting("properties"))
        .option("subscribe", setting("topics"))
        .option("kafka.isolation.level", setting("isolation"))
        .option("maxOffsetsPerTrigger", setting("batch"))
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    size = [f.coalesce(f.octet_length(name), f.lit(0)).cast("long") for name in ("key", "value")]
    records = records.withColumns(
        {"kafka_bytes": size[0] + size[1], "landed_at": f.current_timestamp()}
    )
    return parser.judged(records, streaming=True)


@dp.table(comment="Each record that fits the schema, with where it came from.")
def records() -> DataFrame:
    return parser.rows(spark.readStream.table("judged"))


@dp.table(comment="Each record that does not, with the reason and its original bytes.")
def dead_letters() -> DataFrame:
    return parser.dead_letters(spark.readStream.table("judged"))
