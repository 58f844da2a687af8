"""What the brokers hold of the topics, for the view `completeness`."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from ottla.pipelines.declarative.cluster_offsets import SCHEMA, held_offsets

spark = SparkSession.active()
# Asked while the pipeline is loaded, before it runs: what comes later is the next run's.
NAMES = ("bootstrap", "topics", "isolation", "properties")
asked = (str(spark.conf.get(f"spark.ottla.{name}")) for name in NAMES)
held = spark.createDataFrame(held_offsets(*asked), SCHEMA)


@dp.temporary_view
def cluster_offsets() -> DataFrame:
    return held
