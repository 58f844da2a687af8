"""History: the rules for all groups and partitions, on Spark.

Invariants: a task holds the commits of one group's partition at a time, and the ends of all
partitions; the driver gets what is not well, and counts.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

from ottla.model.ids import TopicPartition
from ottla.pipelines.lagging.ends import Ends
from ottla.pipelines.lagging.rules import Commit, judged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY = ("group", "topic", "partition")
SCHEMA = (
    "group string, topic string, partition int, state string, committed long, end long, lag long, "
    "last_ms long, findings array<struct<kind string, at_ms long, text string>>, "
    "samples array<struct<at_ms long, end long, committed long, lag long>>"
)


def judged_all(commits: "DataFrame", ends: Ends) -> "DataFrame":
    """Return a row of `SCHEMA` for each group and partition whose log is still there."""
    known = {tuple(tp): found for tp, found in ends.items()}
    return commits.groupBy(*KEY).applyInPandas(_judging(known), SCHEMA)


def _judging(ends: dict[tuple[Any, ...], Any]) -> Callable[[Any, pd.DataFrame], pd.DataFrame]:
    def one(key: tuple[str, str, int], rows: pd.DataFrame) -> pd.DataFrame:
        return judged_rows(str(key[0]), TopicPartition(str(key[1]), int(key[2])), rows, ends)

    return one


def judged_rows(
    group: str, tp: TopicPartition, rows: pd.DataFrame, ends: dict[tuple[Any, ...], Any]
) -> pd.DataFrame:
    """Judge one partition of a group."""
    columns = [field.split()[0] for field in SCHEMA.split(", ")[:8]] + ["findings", "samples"]
    if tuple(tp) not in ends:
        return pd.DataFrame([], columns=columns)
    ordered = rows.sort_values("place")
    commits = [
        Commit(int(at), None if pd.isna(offset) else int(offset))
        for at, offset in zip(ordered["at_ms"], ordered["committed"], strict=True)
    ]
    start, of_log = ends[tuple(tp)]
    reported = judged(commits, of_log, start)
    now = reported.samples[-1]
    row = [
        group, tp.topic, tp.partition, reported.state, now.committed, now.end, now.lag,
        commits[-1].at_ms,
        [dict(zip(("kind", "at_ms", "text"), one, strict=True)) for one in reported.findings],
        [one._asdict() for one in reported.samples],
    ]  # fmt: skip
    return pd.DataFrame([row], columns=columns)


def samples_of(reported: "DataFrame") -> "DataFrame":
    """Return the history: a row for each group, partition and time."""
    from pyspark.sql import functions as f

    one = reported.select(*KEY, f.explode("samples").alias("one")).select(*KEY, "one.*")
    return one.withColumn("at", f.timestamp_millis("at_ms"))
