"""Delays per carrier: a Spark SQL table over the lake, as proof that it is all there.

Who may call: the jobs of this room. Invariants: reads the lake through Spark, so that rows of an
unfinished batch do not count.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = """
SELECT carrier,
       count(*)                                                AS flights,
       round(avg(dep_delay), 1)                                AS mean_departure_delay_min,
       round(avg(arr_delay), 1)                                AS mean_arrival_delay_min,
       round(100 * avg(CASE WHEN arr_delay > 15 THEN 1.0 ELSE 0.0 END), 1) AS late_percent,
       sum(CASE WHEN dep_delay IS NULL THEN 1 ELSE 0 END)      AS cancelled
FROM flights
GROUP BY carrier
ORDER BY flights DESC, carrier
"""


@dataclass(frozen=True, slots=True)
class CarrierDelays:
    """One carrier's year. Late is more than 15 minutes after schedule."""

    carrier: str
    flights: int
    mean_departure_delay_min: float | None
    mean_arrival_delay_min: float | None
    late_percent: float
    cancelled: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def delays_per_carrier(spark: "SparkSession", lake: Path) -> list[CarrierDelays]:
    """Return the table, the carrier with most flights first."""
    spark.read.parquet(str(lake)).createOrReplaceTempView("flights")
    return [
        CarrierDelays(
            row["carrier"],
            row["flights"],
            row["mean_departure_delay_min"],
            row["mean_arrival_delay_min"],
            float(row["late_percent"]),
            row["cancelled"],
        )
        for row in spark.sql(QUERY).collect()
    ]
