"""Makes Spark know `format("ottla")`: it looks for packages of this name on its Python path.

Executors need the same package. Where Spark's Python is another one than the driver's, it finds
nothing: `register` is for that. PySpark: `lookup_data_sources`.
"""

import os
import sys
from typing import TYPE_CHECKING

from ottla.pipelines.sink.data_source import TopicFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DefaultSource(TopicFormat):
    """What Spark takes from this package."""


def register(spark: "SparkSession") -> None:
    """Make `format("ottla")` known to a session whose Python does not find this package.

    That is so in an environment that is not activated: Spark starts `python3` of the PATH then and
    says DATA_SOURCE_NOT_FOUND. With a local master its workers run this interpreter from now on,
    unless PYSPARK_PYTHON or `spark.pyspark.python` name another. Works over Spark Connect, too,
    where the server's Python needs the package.
    """
    if not _is_remote(spark):
        context = spark.sparkContext
        named = {"spark.pyspark.python", "spark.pyspark.driver.python"} & dict(
            context.getConf().getAll()
        ).keys()
        if context.master.startswith("local") and not named and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable
    spark.dataSource.register(DefaultSource)


def _is_remote(spark: "SparkSession") -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")
