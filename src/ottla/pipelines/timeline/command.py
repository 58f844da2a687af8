"""`ottla pipeline timeline`: options, settings, what is printed and the exit code.

Invariants: stdout carries the result alone; an output folder that is not empty is refused before
anything is read; exit code 1 where a finding is an error.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import msgspec

from ottla.cli import Argument, Option
from ottla.model.errors import ConfigError
from ottla.pipelines import job as frame
from ottla.pipelines import paths
from ottla.pipelines.config import Spark, read_config
from ottla.pipelines.session import Work, start_session
from ottla.pipelines.timeline import files, outputs
from ottla.pipelines.timeline.files import NoLogsError
from ottla.pipelines.timeline.read import Wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "timeline"
MODULES = ("pandas", "ottla.pipelines.timeline.partition_facts", "ottla.pipelines.timeline.reading")
"""What workers import: pyarrow imports pandas with the first array that it makes."""


class Printed(StrEnum):
    """What is printed."""

    table = "table"
    json = "json"
    lines = "lines"


class Format(StrEnum):
    """How --output is written."""

    parquet = "parquet"
    json = "json"


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[timeline]`."""

    paths: list[str] = []
    logs_regex: str | None = None
    topic: str | None = None
    partitions: list[int] = []
    start_time: str | None = None
    end_time: str | None = None
    time_zone: str | None = None
    overlap_ms: int = 1000
    output: str | None = None
    format: Format = Format.parquet
    report: str | None = None
    print: Printed = Printed.table


class File(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The job's file of settings."""

    timeline: Settings = Settings()
    spark: Spark = Spark()


@dataclass(frozen=True, kw_only=True)
class Options(frame.Options):
    """What follows `ottla pipeline timeline`."""

    paths: Annotated[
        Sequence[str],
        Argument(metavar="[PATH]...", help="Logs, journals, or a folder above them"),
    ] = ()
    logs_regex: Annotated[
        str | None,
        Option(metavar="FOLDER/REGEX", help="All files of a folder whose names match"),
    ] = None
    topic: Annotated[str | None, Option(metavar="TOPIC", help="Only events of this topic")] = None
    partitions: Annotated[
        str | None, Option(metavar="0,1,…", help="Only these partitions of --topic")
    ] = None
    start_time: Annotated[
        str | None,
        Option(metavar="TIME", help="From this time on: `2026-11-22 16:00:00,000`, or less"),
    ] = None
    end_time: Annotated[str | None, Option(metavar="TIME", help="Until this time")] = None
    time_zone: Annotated[
        str | None, Option(metavar="ZONE", help="Time zone of the logs [this machine's]")
    ] = None
    overlap_ms: Annotated[
        int | None,
        Option(metavar="N", help="Ignore terms that overlap for less than this [1000]"),
    ] = None
    output: Annotated[
        str | None,
        Option(metavar="FOLDER", help="Write events, states, terms, gaps and findings there"),
    ] = None
    format: Annotated[Format | None, Option(help="Format of --output [parquet]")] = None
    report: Annotated[str | None, Option(metavar="FILE.html", help="Write a page with plots")] = (
        None
    )
    print: Annotated[
        Printed | None, Option(help="What to print; `lines` are the merged lines [table]")
    ] = None


def timeline_command(options: Options) -> int:
    return frame.run(NAME, lambda: run(options))


main = partial(frame.main, NAME)


def work_of(*, events: bool) -> Work:
    """Return what a run is like: rows pass through Java only where events are written."""
    return Work(quick_java=not events, modules=MODULES)


def run(options: Options, spark: "SparkSession | None" = None) -> int:
    """Run the job, in a session of its own or a given one; return the exit code."""
    file = read_config(options.config, options.sets, File)
    settings = _over(file.timeline, options)
    wanted = _wanted(settings)
    found = files.find(settings.paths, settings.logs_regex)
    paths.new_folder(settings.output, "--output")
    paths.new_file(settings.report, "--report")
    own = spark is None
    work = work_of(events=settings.output is not None or settings.print == "lines")
    spark = spark or start_session(NAME, frame.wanted_of(options), file.spark, work=work)
    try:
        from ottla.pipelines.timeline.job import timeline

        made = timeline(spark, found, wanted, settings.overlap_ms)
        of_all_times = wanted.start_ms is None and wanted.end_ms is None
        if wanted.topic is not None and of_all_times and not made.counts():
            raise NoLogsError(f"the logs say nothing of topic {wanted.topic}")
        return outputs.show(
            made, wanted, settings.print, settings.output, settings.format, settings.report
        )
    finally:
        if own:
            spark.stop()


def _over(file: Settings, options: Options) -> Settings:
    """Return the file's settings with what the command line says over them."""
    said = {k: v for k, v in vars(options).items() if k in Settings.__struct_fields__ and v}
    if isinstance(said.get("partitions"), str):
        try:
            said["partitions"] = [int(p) for p in said["partitions"].split(",")]
        except ValueError:
            raise ConfigError(f"--partitions {said['partitions']}: write 0,1,2") from None
    settings = msgspec.structs.replace(file, **said)
    if not settings.paths and settings.logs_regex is None:
        raise ConfigError("name the logs, a folder above them, or --logs-regex")
    if settings.partitions and settings.topic is None:
        raise ConfigError("--partitions needs --topic")
    return settings


def _wanted(settings: Settings) -> Wanted:
    zone = settings.time_zone or local_zone()
    try:
        known = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"there is no time zone {zone}; write one as Europe/Vienna") from None
    return Wanted(
        settings.topic, tuple(settings.partitions), moment(settings.start_time, known),
        moment(settings.end_time, known), zone,
    )  # fmt: skip


def moment(text: str | None, zone: ZoneInfo) -> int | None:
    """Read a time as logs write it; a time without a zone is one of the logs' zone."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text.strip().replace(",", "."))
    except ValueError:
        raise ConfigError(f"{text}: write a time as 2026-11-22 16:00:00,000") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=zone)
    return round(found.timestamp() * 1000)


def local_zone() -> str:
    """Return this machine's time zone by name, since logs have the time of where they are."""
    link = Path("/etc/localtime")
    _, _, name = str(link.resolve()).partition("zoneinfo/")
    return name if name and datetime.now().astimezone().utcoffset() else "UTC"


if __name__ == "__main__":
    sys.exit(main())
