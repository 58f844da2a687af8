"""The audit job: whether all that was sent is there once, in the log and in the lake.

Invariants: nothing is written to brokers or lake; stdout carries the result alone; exit code 0: all
that can be judged is there once, 1: something is lost, doubled or different, or the job failed.
"""

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from ottla.cli import Option
from ottla.model.errors import ConfigError
from ottla.model.printable import plural
from ottla.pipelines import job
from ottla.pipelines.auditing.judging import KINDS, Bucket, Finding, in_time, kept
from ottla.pipelines.config import Cluster, Spark, read_config
from ottla.pipelines.landing.settings import parse_time
from ottla.pipelines.session import start_session
from ottla.pipelines.source.cluster import refuse_unknown
from ottla.pipelines.source.options import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "audit"
SHOWN = 50


class Audit(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[audit]`: topics; a lake's folder and producers' reports to compare with.

    `isolation` as consumers of these topics have it. `compacted`: that the log lacks what the lake
    has is no finding.
    """

    topics: list[str]
    lake: str | None = None
    reports: str | None = None
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    compacted: bool = False

    def __post_init__(self) -> None:
        if not self.topics or len(set(self.topics)) < len(self.topics):
            raise ValueError("topics: name each once, and at least one")


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The job's file."""

    cluster: Cluster
    audit: Audit
    spark: Spark = Spark()


class Result(msgspec.Struct, kw_only=True):
    """What was counted and found. `waiting`: what the lake has not landed yet, by bucket.

    `delta`: where the lake's Delta logs differ from its manifests.
    """

    buckets: list[Bucket]
    findings: list[Finding]
    unjudged: int
    waiting: dict[tuple[str, int], int]
    reported: int | None
    delta: list[str] = []


@dataclass(frozen=True, kw_only=True)
class Options(job.Options):
    """What follows `ottla pipeline audit`."""

    since: Annotated[
        str | None, Option("--from", metavar="TIME", help="Only from this time on")
    ] = None
    until: Annotated[str | None, Option(metavar="TIME", help="Only before this time")] = None
    output: job.Output = job.Shown.table


def audit(options: Options) -> int:
    return job.run(NAME, lambda: run(options))


main = partial(job.main, NAME)


def run(options: Options, spark: "SparkSession | None" = None) -> int:
    """Run the job, in a session of its own or a given one; return the exit code."""
    settings = read_config(options.config, options.sets, Settings)
    since = None if options.since is None else parse_time(options.since)
    until = None if options.until is None else parse_time(options.until)
    topics = ",".join(settings.audit.topics)
    refuse_unknown(parse_options({**settings.cluster.source_options(), "subscribe": topics}))
    own = spark is None
    spark = spark or start_session(NAME, job.wanted_of(options), settings.spark)
    try:
        result = audited(spark, settings, since, until)
    finally:
        if own:
            spark.stop()
    if options.output == "json":
        sys.stdout.write(json.dumps(as_json(result)) + "\n")
    else:
        _print_table(result)
    return job.EXIT_FAILED if result.findings or result.delta else job.EXIT_OK


def audited(
    spark: "SparkSession", settings: Settings, since_ms: int | None, until_ms: int | None
) -> Result:
    """Read reports, lake and log, in this order, and compare them."""
    from ottla.pipelines.auditing import reading, sums  # imports pyspark

    audit = settings.audit
    cluster = settings.cluster.source_options()
    reports = None
    if audit.reports is not None:
        reports = reading.report_rows(spark, audit.reports, audit.topics)
    landed = []
    if audit.lake is not None:
        landed = [reading.landed_of(Path(audit.lake), topic) for topic in audit.topics]
    for one in landed:
        if one.isolation != audit.isolation:
            raise ConfigError(
                f"[audit]: isolation is {audit.isolation}, the lake's table of {one.topic} was "
                f"landed with {one.isolation}; set audit.isolation so"
            )
    held = reading.held_of(cluster, audit.topics, audit.isolation, since_ms, landed)
    rows = reading.log_rows(spark, cluster, audit.isolation, held, since_ms)
    for one in landed:
        of_lake = reading.lake_rows(spark, one, since_ms)
        rows = rows if of_lake is None else rows.unionByName(of_lake)
    rows = rows.persist()
    try:
        found = sums.of_producers(rows, reports)
        waiting: dict[tuple[str, int], int] = {}
        if landed:
            spans = {one.topic: one.spans for one in landed}
            more, waiting = sums.of_lake(spark, rows, held, spans, compacted=audit.compacted)
            found += more
        findings, unjudged = kept(found, since_ms, until_ms, sums.judged_from(rows, held))
        return Result(
            buckets=[b for b in sums.buckets(rows) if in_time(b.bucket_ms, since_ms, until_ms)],
            findings=findings,
            unjudged=unjudged,
            waiting={key: n for key, n in waiting.items() if in_time(key[1], since_ms, until_ms)},
            reported=None if reports is None else reports.count(),
            delta=[line for one in landed for line in one.delta],
        )
    finally:
        rows.unpersist()
        if reports is not None:
            reports.unpersist()


def as_json(result: Result) -> dict[str, Any]:
    """Return the result as one JSON object."""
    return {
        "held": not result.findings and not result.delta,
        "reported_buckets": result.reported,
        "not_judged": result.unjudged,
        "buckets": [b._asdict() | {"bucket": _clock(b.bucket_ms)} for b in result.buckets],
        "waiting": [
            {"topic": topic, "bucket_ms": bucket_ms, "records": count}
            for (topic, bucket_ms), count in sorted(result.waiting.items())
        ],
        "delta": result.delta,
        "findings": [f._asdict() | {"bucket": _clock(f.bucket_ms)} for f in result.findings],
    }


def _clock(bucket_ms: int) -> str:
    return datetime.fromtimestamp(bucket_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _print_table(result: Result) -> None:
    """Print a line per bucket and tier, then what is wrong."""
    from rich.console import Console  # only where a table is drawn
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    table = Table(box=None, pad_edge=False)
    names = (
        "topic", "from (UTC)", "in", "records", "bytes", "no stamp", "mean ms", "p95", "p99", "max"
    )  # fmt: skip
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place > 2 else "left", overflow="fold")
    for b in result.buckets[-SHOWN:]:
        numbers = (b.records, b.bytes, b.unstamped, b.mean_ms, b.p95_ms, b.p99_ms, b.max_ms)
        reported = ("-" if n is None else f"{n:,}" for n in numbers)
        table.add_row(b.topic, _clock(b.bucket_ms), b.tier, *reported)
    console.print(table, markup=False)
    if len(result.buckets) > SHOWN:
        console.print(
            f"the last {SHOWN} of {plural(len(result.buckets), 'line')}; --output json has all"
        )
    lines = [
        f"{f.kind}: {f.topic} {_clock(f.bucket_ms)} {f.amount:,}: {f.text} ({KINDS[f.kind]})"
        for f in result.findings[:SHOWN]
    ]
    if len(result.findings) > SHOWN:
        lines.append(f"… and {len(result.findings) - SHOWN:,} more")
    if waiting := sum(result.waiting.values()):
        lines.append(f"{plural(waiting, 'record has', 'records have')} not landed in the lake yet")
    if result.unjudged:
        lines.append(
            f"{plural(result.unjudged, 'loss', 'losses')} cannot be judged: the log has removed "
            "records of that time"
        )
    if malformed := sum(b.malformed for b in result.buckets):
        lines.append(f"{plural(malformed, 'record has', 'records have')} a stamp that is none")
    lines += [f"Delta log: {line}" for line in result.delta]
    wrong = len(result.findings) + len(result.delta)
    lines.append(f"{wrong} findings" if wrong else "nothing is lost, doubled or different")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
