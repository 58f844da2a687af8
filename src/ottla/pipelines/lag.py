"""The lag job: how far each group was behind at which time, and which groups do not get on.

Invariants: nothing is written to brokers; stdout carries the result alone; exit code 0: all groups
get on, 1: one has stalled, stopped, gone back or lost records to retention, or the job failed.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ottla.cli import Option
from ottla.model.ids import GROUP_METADATA_TOPIC, TopicPartition
from ottla.pipelines import job, paths
from ottla.pipelines.config import Cluster, Spark, read_config
from ottla.pipelines.landing.settings import parse_time
from ottla.pipelines.session import start_session
from ottla.pipelines.source.cluster import refuse_unknown
from ottla.pipelines.source.options import parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "lag"
SHOWN = 50
MOST_TIMES = 1500
"""Times at which the cluster is asked for the logs' ends."""


class Lag(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[lag]`: only these groups and topics; a lake that keeps commits; steps of the history."""

    groups: list[str] = []
    topics: list[str] = []
    lake: str | None = None
    minutes: float = 60
    step_seconds: float = 60

    def __post_init__(self) -> None:
        if self.minutes <= 0 or self.step_seconds < 0.1:
            raise ValueError("minutes must be above 0, step_seconds at least 0.1")
        if 60 * self.minutes / self.step_seconds > MOST_TIMES:
            raise ValueError(f"minutes and step_seconds make more than {MOST_TIMES} steps")


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The job's file."""

    cluster: Cluster
    lag: Lag = Lag()
    spark: Spark = Spark()


@dataclass(frozen=True, kw_only=True)
class Options(job.ClusterOptions):
    """What follows `ottla pipeline lag`."""

    group: Annotated[
        Sequence[str], Option("--group", metavar="GROUP", help="Only this group; repeatable")
    ] = ()
    until: Annotated[str | None, Option(metavar="TIME", help="End of the history [now]")] = None
    history: Annotated[
        str | None, Option(metavar="FOLDER", help="Write the history to this folder, as Parquet")
    ] = None
    output: job.Output = job.Shown.table


def lag(options: Options) -> int:
    return job.run(NAME, lambda: run(options))


main = partial(job.main, NAME)


def run(options: Options, spark: "SparkSession | None" = None) -> int:
    """Run the job, in a session of its own or a given one; return the exit code."""
    sets = job.cluster_sets(options)
    if options.group:
        sets.append(f"lag.groups={json.dumps(list(options.group))}")
    settings = read_config(options.config, sets, Settings)
    until_ms = None if options.until is None else parse_time(options.until)
    paths.new_folder(options.history, "--history")
    names = {"subscribe": ",".join(settings.lag.topics or [GROUP_METADATA_TOPIC])}
    refuse_unknown(parse_options({**settings.cluster.source_options(), **names}))
    own = spark is None
    spark = spark or start_session(NAME, job.wanted_of(options), settings.spark)
    try:
        reported, leaderless = judged(spark, settings, until_ms)
        try:
            found = _found(reported, settings.lag.groups)
            found["no_leader"] = [str(tp) for tp in leaderless]
            if options.history is not None:
                from ottla.pipelines.lagging.history import samples_of  # pyspark

                samples_of(reported).write.parquet(paths.spark_path(options.history))
        finally:
            reported.unpersist()
    finally:
        if own:
            spark.stop()
    if options.output == "json":
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        _print_table(found)
    return job.EXIT_OK if found["held"] else job.EXIT_FAILED


def times_of(lag: Lag, until_ms: int) -> list[int]:
    """Return the times of the history in order, the last of them being `until_ms`."""
    step_ms = round(1000 * lag.step_seconds)
    steps = max(1, round(60_000 * lag.minutes) // step_ms)
    return [until_ms - step_ms * n for n in range(steps, -1, -1)]


def judged(
    spark: "SparkSession", settings: Settings, until_ms: int | None
) -> "tuple[DataFrame, list[TopicPartition]]":
    """Return `history.SCHEMA` of all groups, cached, and partitions that no one leads now.

    Whoever asked drops the cache. `until_ms` None is now.
    """
    from pyspark.sql import functions as f

    from ottla.pipelines.lagging import commits, ends, history  # imports pyspark

    lag, client = settings.lag, settings.cluster.source_options()
    # Before anything is read: reading takes a while, in which a group would seem to be silent.
    now_ms = time.time_ns() // 1_000_000
    rows = commits.commits_of(commits.records_of(spark, client, lag.lake))
    if until_ms is not None:
        rows = rows.where(f.col("at_ms") <= until_ms)
    for names, column in ((lag.groups, "group"), (lag.topics, "topic")):
        if names:
            rows = rows.where(f.col(column).isin(names))
    rows = rows.persist()
    try:
        named = rows.select("topic", "partition").distinct().collect()
        times = times_of(lag, now_ms if until_ms is None else until_ms)
        of_logs, leaderless = ends.ends_of(client, (TopicPartition(*n) for n in named), times)
        if until_ms is not None:  # where logs began then no one knows
            of_logs = {tp: (0, found) for tp, (_, found) in of_logs.items()}
        reported = history.judged_all(rows, of_logs).persist()
        reported.count()
        return reported, leaderless
    finally:
        rows.unpersist()


def _found(reported: "DataFrame", groups: list[str]) -> dict[str, Any]:
    """Return what is printed: counts, findings, and the partitions with the most lag."""
    from pyspark.sql import functions as f

    from ottla.pipelines.lagging.rules import WRONG  # with the rest

    counts = {row["state"]: row["count"] for row in reported.groupBy("state").count().collect()}
    each = ("group", "topic", "partition", "state", "committed", "end", "lag", "last_ms")
    one = reported.select(*each[:3], f.explode("findings").alias("one")).select(*each[:3], "one.*")
    findings = one.orderBy(*each[:3], "at_ms").limit(1000).collect()
    rows = reported.select(*each).orderBy(f.desc("lag"), *each[:3]).limit(1000).collect()
    known = reported.where(f.col("group").isin(groups)).select("group").distinct().collect()
    unknown = sorted(set(groups) - {row["group"] for row in known})
    return {
        "held": not unknown and not any(row["kind"] in WRONG for row in findings),
        "unknown_groups": unknown,
        "states": counts,
        "findings": [row.asDict() for row in findings],
        "partitions": [row.asDict() for row in rows],
    }


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _print_table(found: dict[str, Any]) -> None:
    """Print the partitions with the most lag, then what is wrong."""
    from rich.console import Console  # only where a table is drawn
    from rich.table import Table

    from ottla.pipelines.lagging.rules import KINDS  # with the rest

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    table = Table(box=None, pad_edge=False)
    names = ("group", "partition", "state", "committed", "end", "lag", "last commit (UTC)")
    for name in names:
        right = name in ("committed", "end", "lag")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in found["partitions"][:SHOWN]:
        numbers = ("-" if row[n] is None else f"{row[n]:,}" for n in ("committed", "end", "lag"))
        tp = f"{row['topic']}-{row['partition']}"
        table.add_row(row["group"], tp, row["state"], *numbers, _clock(row["last_ms"]))
    console.print(table, markup=False)
    lines = [
        f"{one['kind']}: {one['group']} {one['topic']}-{one['partition']} "
        f"{_clock(one['at_ms'])}: {one['text']} ({KINDS[one['kind']]})"
        for one in found["findings"][:SHOWN]
    ]
    lines += [f"group {name} has committed nothing" for name in found["unknown_groups"]]
    if found["no_leader"]:
        named = ", ".join(found["no_leader"][:SHOWN])
        lines.append(f"left out, since they have no leader now: {named}")
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(found["states"].items()))
    lines.append(f"partitions of groups: {states or 'none'}")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
