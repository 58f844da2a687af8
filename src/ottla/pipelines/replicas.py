"""The replicas job: segment files of all brokers, compared; a table or JSON, and an exit code.

Invariants: nothing is written, to no folder and no broker; stdout carries the result alone; exit
code 0: all replicas hold the same and nothing is damaged, 1: something is wrong, or it failed.
"""

import json
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ottla.cli import Option
from ottla.model.printable import plural
from ottla.pipelines import job
from ottla.pipelines.config import Cluster, Spark, read_config
from ottla.pipelines.replica_files.job import Report, compare
from ottla.pipelines.segments.folders import Wanted, parse_places
from ottla.pipelines.session import Work, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "replicas"
WORK = Work(quick_java=True, modules=("ottla.pipelines.replica_files.job",))


class Replicas(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[replicas]`: the folders, as `[BROKER=]FOLDER[,…]`; only these topics and partitions."""

    brokers: str
    topics: list[str] = []
    partitions: list[int] = []


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The job's file."""

    replicas: Replicas
    cluster: Cluster | None = None
    spark: Spark = Spark()


@dataclass(frozen=True, kw_only=True)
class Options(job.ClusterOptions):
    """What follows `ottla pipeline replicas`."""

    brokers: Annotated[
        str | None,
        Option(metavar="[ID=]FOLDER[,…]", help="Log dirs; the id is meta.properties' by default"),
    ] = None
    topic: job.Topics = ()
    output: job.Output = job.Shown.table


def replicas(options: Options) -> int:
    return job.run(NAME, lambda: run(options))


main = partial(job.main, NAME)


def settings_of(options: Options) -> Settings:
    """Return the file's settings, the command line's over them; ConfigError if they do not fit."""
    sets = job.cluster_sets(options)
    if options.brokers:
        sets.append(f"replicas.brokers={options.brokers}")
    if options.topic:
        sets.append(f"replicas.topics={json.dumps(list(options.topic))}")
    return read_config(options.config, sets, Settings)


def run(options: Options, spark: "SparkSession | None" = None) -> int:
    """Run the job, in a session of its own or a given one; return the exit code."""
    settings = settings_of(options)
    wanted = Wanted(frozenset(settings.replicas.topics), frozenset(settings.replicas.partitions))
    places = parse_places(settings.replicas.brokers)
    started = time.monotonic()
    own = spark is None
    spark = spark or start_session(NAME, job.wanted_of(options), settings.spark, work=WORK)
    ready = time.monotonic()
    try:
        report = compare(spark, places, wanted, settings.cluster)
    finally:
        if own:
            spark.stop()
    facts = {
        "session_s": round(ready - started, 1),
        "job_s": round(time.monotonic() - ready, 1),
    }
    if options.output == "json":
        sys.stdout.write(json.dumps(as_json(report) | facts) + "\n")
    else:
        print_report(report, facts["job_s"])
    return job.EXIT_OK if report.held else job.EXIT_FAILED


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as one JSON object; offsets and places that no one knows are null."""
    return {
        "held": report.held,
        "partitions": report.partitions,
        "replicas": report.replicas,
        "files": report.files,
        "bytes": report.bytes,
        "batches": report.batches,
        "records": report.records,
        "cluster_asked": report.asked,
        "problems": list(report.problems),
        "findings": [
            {
                "topic": f.topic,
                "partition": f.partition,
                "kind": f.kind,
                "wrong": f.wrong,
                "offset": None if f.offset < 0 else f.offset,
                "broker": None if f.broker < 0 else f.broker,
                "file": f.file or None,
                "position": None if f.position < 0 else f.position,
                "detail": f.detail,
            }
            for f in report.findings
        ],
    }


def print_report(report: Report, seconds: float) -> None:
    """Print a table of what was found, and a last line that says how much was read."""
    from rich.console import Console  # only where a table is drawn
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 220, highlight=False)
    if report.findings:
        table = Table(box=None, pad_edge=False)
        for column in ("partition", "", "what", "offset", "broker", "position", "file", "detail"):
            right = column in ("offset", "broker", "position")
            table.add_column(column, justify="right" if right else "left", overflow="fold")
        for f in report.findings:
            numbers = ["-" if n < 0 else str(n) for n in (f.offset, f.broker, f.position)]
            state = "wrong" if f.wrong else "note"
            table.add_row(str(f.tp), state, f.kind, *numbers, f.file or "-", f.detail)
        console.print(table, markup=False)
    for problem in report.problems:
        console.print(f"bad checkpoint: {problem}", markup=False, soft_wrap=True)
    wrong = len(report.wrong)
    rate = report.bytes / max(seconds, 0.1) / 1e6
    console.print(
        f"{plural(report.partitions, 'partition')}, {plural(report.replicas, 'replica')}, "
        f"{plural(report.files, 'file')}, "
        f"{report.bytes / 1e6:,.0f} MB, {plural(report.records, 'record')}: "
        + (f"{wrong} findings are wrong" if wrong else "nothing is wrong")
        + f" ({seconds} s, {rate:,.0f} MB/s)",
        markup=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    sys.exit(main())
