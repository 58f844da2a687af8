"""The topics' records: as rows of `records`, or with a reason in `dead_letters`."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ottla.pipelines.lake import judging
from ottla.pipelines.lake.schemas import given_schema

spark = SparkSession.active()


def setting(name: str) -> str:
    """Return a value of `configuration` in spark-pipeline.yml."""
    return str(spark.conf.get(f"spark.ottla.{name}"))


@dp.temporary_view
def judged() -> DataFrame:
    """Return the records, with the columns of their values, or the reason why they have none.

    JSON is read as the lake job reads it: one object, all types fit, no unknown fields.
    """
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
    strict = setting("drift") != "ignore"
    size = [
        f.coalesce(f.octet_length(name), f.lit(0)).cast("long")
        for name in ("kafka_key", "kafka_value")
    ]
    return judging.judged(records, given_schema(setting("schema")), strict=strict).withColumns(
        {"kafka_bytes": size[0] + size[1], "landed_at": f.current_timestamp()}
    )


@dp.table(comment="Each record that fits the schema, with where it came from.")
def records() -> DataFrame:
    rows = spark.readStream.table("judged").where("reason IS NULL")
    return rows.drop("reason", "detail", "kafka_value")


@dp.table(comment="Each record that does not, with the reason and its original bytes.")
def dead_letters() -> DataFrame:
    letters = spark.readStream.table("judged").where("reason IS NOT NULL")
    return letters.drop(*given_schema(setting("schema")).names)
