"""Topic to Parquet: each record of a Kafka topic once, as a typed row, partitioned by flight date.

Who may call: the jobs of this room. Invariants: exactly once for readers that honour Spark's
`_spark_metadata` (Spark does): offsets are planned in the checkpoint before a batch and committed
after it, so a killed run goes on where it was and adds nothing twice; partition and offset are kept
as columns, so that anybody can check. Bounded: a batch takes a limited number of offsets.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_PER_BATCH = 500_000
"""A batch writes a file per flight date: few large ones, not many small ones."""
POLL_RECORDS = "20000"
"""The connector asks for the log's start and end at every poll: few large polls, not many."""

SCHEMA = (
    "n long, year int, month int, day int, dep_time double, sched_dep_time int, dep_delay double, "
    "arr_time double, sched_arr_time int, arr_delay double, carrier string, flight int, "
    "tailnum string, origin string, dest string, air_time double, distance int, hour int, "
    "minute int, time_hour string"
)


@dataclass(frozen=True, slots=True)
class Landed:
    """What is in the lake after a run. All three agree if every record is there exactly once."""

    rows: int
    distinct_offsets: int
    distinct_records: int
    batches: int

    @property
    def exactly_once(self) -> bool:
        return self.rows == self.distinct_offsets == self.distinct_records


def flights_of(records: "DataFrame") -> "DataFrame":
    """Turn Kafka records into typed flights, with their flight date and where they stood."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    return records.select(
        f.from_json(f.col("value").cast("string"), SCHEMA).alias("flight"),
        f.col("partition"),
        f.col("offset"),
        f.col("timestamp").alias("produced_at"),
    ).select(
        "flight.*",
        f.expr("make_date(flight.year, flight.month, flight.day)").alias("flight_date"),
        "partition",
        "offset",
        "produced_at",
    )


def land(spark: "SparkSession", bootstrap: str, topic: str, lake: Path, checkpoint: Path) -> Landed:
    """Bring everything the topic holds now, and the lake does not yet, into the lake."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH)
        .option("kafka.max.poll.records", POLL_RECORDS)
        .load()
    )
    query = (
        flights_of(records)
        # One file per date and batch, not one per date, batch and task.
        .repartition("flight_date")
        .writeStream.format("parquet")
        .partitionBy("flight_date")
        .option("path", str(lake))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return count(spark, lake, len(_commits(checkpoint)))


def _commits(checkpoint: Path) -> list[Path]:
    return [p for p in (checkpoint / "commits").glob("*") if p.name.isdigit()]


def count(spark: "SparkSession", lake: Path, batches: int) -> Landed:
    """Count what is in the lake, as Spark's reader sees it."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    row: Any = (
        spark.read.parquet(str(lake))
        .agg(
            f.count("*").alias("rows"),
            f.countDistinct("partition", "offset").alias("offsets"),
            f.countDistinct("n").alias("records"),
        )
        .first()
    )
    return Landed(row["rows"], row["offsets"], row["records"], batches)
