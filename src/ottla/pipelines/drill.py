"""The drill job: after a failover drill one page per partition, and whether anything was lost.

Invariants: nothing is written but the report, to no broker and no lake; stdout carries one line;
exit code 0: nothing acknowledged is lost, replicas and lake agree, 1: something is wrong, or it
failed.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import msgspec

from ottla.cli import Argument, Option
from ottla.model.errors import ConfigError
from ottla.pipelines import job as frame
from ottla.pipelines import paths
from ottla.pipelines.config import Cluster, Spark, read_config
from ottla.pipelines.drilling import outputs
from ottla.pipelines.drilling.joining import Report
from ottla.pipelines.segments.folders import Place, parse_places
from ottla.pipelines.session import start_session
from ottla.pipelines.timeline.command import local_zone, moment
from ottla.pipelines.timeline.files import Files, NoLogsError, find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "drill"
META = "meta.properties"
FEW = 500
"""Partitions that the driver may hold at once."""
DEEPEST = 3
"""Levels below a named folder in which log dirs are looked for: `ottla-data/broker-0/data/`."""


class Drill(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[drill]`: the brokers' folders, and what to compare them with; see docs/PIPELINES.md."""

    paths: list[str] = []
    topics: list[str] = []
    partitions: list[int] = []
    acks: str | None = None
    reports: str | None = None
    lake: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    time_zone: str | None = None
    overlap_ms: int = 1000
    output: str = "drill-report"


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The job's file."""

    drill: Drill = Drill()
    cluster: Cluster | None = None
    spark: Spark = Spark()


@dataclass(frozen=True, kw_only=True)
class Options(frame.ClusterOptions):
    """What follows `ottla pipeline drill`."""

    paths: Annotated[
        Sequence[str],
        Argument(metavar="[[ID=]FOLDER]...", help="The cluster's folder, or brokers' folders"),
    ] = ()
    acks: Annotated[
        str | None,
        Option(metavar="PATH", help="Acknowledgements to producers: CSV, JSON lines or Parquet"),
    ] = None
    reports: Annotated[
        str | None,
        Option(metavar="PATH", help="Producers' reports, as for `ottla pipeline audit`"),
    ] = None
    lake: Annotated[
        str | None, Option(metavar="FOLDER", help="The lake of `ottla pipeline lake`")
    ] = None
    topic: frame.Topics = ()
    partitions: Annotated[
        str | None, Option(metavar="0,1,…", help="Only these partitions of the topics")
    ] = None
    start_time: Annotated[
        str | None,
        Option("--from", metavar="TIME", help="From this time on: `2026-11-22 16:00:00`, or less"),
    ] = None
    end_time: Annotated[str | None, Option("--until", metavar="TIME", help="Until this time")] = (
        None
    )
    time_zone: Annotated[
        str | None, Option(metavar="ZONE", help="Time zone of the logs [this machine's]")
    ] = None
    output: Annotated[
        str | None, Option(metavar="FOLDER", help="A new folder for the report [drill-report]")
    ] = None
    here: Annotated[
        bool, Option("--here", help="Run in this process, without Spark: up to 1 GiB of files")
    ] = False


def drill(options: Options) -> int:
    return frame.run(NAME, lambda: run(options))


main = partial(frame.main, NAME)


def run(options: Options, spark: "SparkSession | None" = None) -> int:
    """Run the job, in a session of its own or a given one; return the exit code."""
    settings = settings_of(options)
    output = Path(settings.drill.output)
    paths.new_folder(output, "--output")
    zone = settings.drill.time_zone or local_zone()
    wanted = _wanted(settings, zone)
    if options.here:
        return _print_sums(_report_here(settings, wanted, output, zone), output)
    own = spark is None
    spark = spark or start_session(NAME, frame.wanted_of(options), settings.spark)
    try:
        sums = _report(spark, settings, wanted, output, zone)
    finally:
        if own:
            spark.stop()
    return _print_sums(sums, output)


def _print_sums(sums: outputs.Sums, output: Path) -> int:
    sys.stdout.write(sums.line(output / outputs.INDEX) + "\n")
    return frame.EXIT_OK if sums.held else frame.EXIT_FAILED


def settings_of(options: Options) -> Settings:
    """Return the file's settings with the command line's over them; ConfigError if they clash."""
    sets = frame.cluster_sets(options)
    names = ("acks", "reports", "lake", "start_time", "end_time", "time_zone", "output")
    given = {name: getattr(options, name) for name in names}
    sets += [f"drill.{name}={json.dumps(v)}" for name, v in given.items() if v is not None]
    if options.paths:
        sets.append(f"drill.paths={json.dumps(list(options.paths))}")
    if options.topic:
        sets.append(f"drill.topics={json.dumps(list(options.topic))}")
    if options.partitions:
        sets.append(f"drill.partitions=[{options.partitions}]")
    settings = read_config(options.config, sets, Settings)
    if not settings.drill.paths:
        raise ConfigError("name the cluster's folder, or the brokers' folders")
    if settings.drill.reports is not None and not (settings.cluster and settings.drill.topics):
        raise ConfigError("reports need --bootstrap-server and --topic: the log is read for them")
    return settings


def _wanted(settings: Settings, zone: str) -> Any:
    from ottla.pipelines.drilling.job import Wanted  # imports pandas

    try:
        known = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"there is no time zone {zone}; write one as Europe/Vienna") from None
    drill = settings.drill
    return Wanted(
        places=[place for path in drill.paths for place in places_of(path)],
        files=_logs_of(drill.paths),
        topics=tuple(drill.topics),
        partitions=tuple(drill.partitions),
        cluster=settings.cluster,
        acks=drill.acks,
        lake=drill.lake,
        start_ms=moment(drill.start_time, known),
        end_ms=moment(drill.end_time, known),
        zone=zone,
        overlap_ms=drill.overlap_ms,
    )


def places_of(path: str) -> list[Place]:
    """Return the log dirs below a folder: those with meta.properties, or else the folder itself."""
    bare = _bare(path)
    if bare == path:
        folder = Path(path)
        found = [
            meta.parent
            for depth in range(DEEPEST)
            for meta in sorted(folder.glob("*/" * depth + META))
        ]
        if found:
            return parse_places(",".join(map(str, found)))
    return parse_places(path)


def _bare(path: str) -> str:
    broker, equals, folder = path.partition("=")
    return folder if equals and broker.isascii() and broker.isdigit() else path


def _logs_of(paths: Sequence[str]) -> Files | None:
    """Return the state-change logs and journals; None if there is none: replicas are compared."""
    try:
        return find([_bare(path) for path in paths])
    except NoLogsError as error:
        sys.stderr.write(f"pipeline {NAME}: {error}; who led is left out\n")
        return None


def _report(
    spark: "SparkSession", settings: Settings, wanted: Any, output: Path, zone: str
) -> outputs.Sums:
    from ottla.pipelines.drilling.job import drill  # imports pandas

    audited = _audited(spark, settings, wanted)
    made = drill(spark, wanted)
    try:
        made.general["audit"] = audited
        count, rows = _in_order(made.result)
        reports: Iterator[Report] = (msgspec.json.decode(row["body"], type=Report) for row in rows)
        return outputs.write(reports, count, made.general, output, zone, _span(made.general))
    finally:
        made.close()


def _report_here(settings: Settings, wanted: Any, output: Path, zone: str) -> outputs.Sums:
    from ottla.pipelines.drilling.here import drill  # imports numpy

    if settings.drill.reports is not None:
        raise ConfigError("reports need Spark: leave out --here")
    reports, general = drill(wanted)
    return outputs.write(iter(reports), len(reports), general, output, zone, _span(general))


def _span(general: Mapping[str, Any]) -> tuple[int, int]:
    """Return the first and the last time of the logs, in ms."""
    files = (general["logs"] or {"files": []})["files"]
    first = min((f["first_ms"] for f in files if f["first_ms"] is not None), default=0)
    return first, max((f["last_ms"] for f in files if f["last_ms"] is not None), default=0)


def _in_order(result: Any) -> tuple[int, Iterator[Any]]:
    """Return how many rows there are, and the rows, the worst first; few are sorted here."""
    order = ("rank", "topic", "partition")
    few = result.limit(FEW + 1).collect()
    if len(few) <= FEW:
        return len(few), iter(sorted(few, key=lambda row: tuple(row[name] for name in order)))
    return result.count(), result.orderBy(*order).toLocalIterator()


def _audited(spark: "SparkSession", settings: Settings, wanted: Any) -> list[str]:
    """Return what the job audit finds by producers' reports, in words."""
    if settings.drill.reports is None:
        return []
    from ottla.pipelines import audit  # only where it is asked for

    assert settings.cluster is not None
    asked = audit.Audit(
        topics=list(settings.drill.topics), lake=None, reports=settings.drill.reports
    )
    result = audit.audited(
        spark,
        audit.Settings(cluster=settings.cluster, audit=asked, spark=settings.spark),
        wanted.start_ms,
        wanted.end_ms,
    )
    return [f"{f.kind}: {f.topic}: {f.amount:,}: {f.text}" for f in result.findings]


if __name__ == "__main__":
    sys.exit(main())
