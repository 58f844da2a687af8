"""`ottla pipeline timeline`: options, settings, what is printed and the exit code.

Invariants: stdout carries the result alone; an output folder that is not empty is refused before
anything is read; exit code 1 where a finding is an error.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

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
PRINTED = ("table", "json", "lines")
FORMATS = ("parquet", "json")
MODULES = ("pandas", "ottla.pipelines.timeline.partition_facts", "ottla.pipelines.timeline.reading")
"""What workers import: pyarrow imports pandas with the first array that it makes."""


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
    format: str = "parquet"
    report: str | None = None
    print: str = "table"


class File(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The job's file of settings."""

    timeline: Settings = Settings()
    spark: Spark = Spark()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code."""
    options = options_parser().parse_args(arguments)
    return frame.run(NAME, lambda: run(options))


def work_of(*, events: bool) -> Work:
    """Return what a run is like: rows pass through Java only where events are written."""
    return Work(quick_java=not events, modules=MODULES)


def options_parser() -> argparse.ArgumentParser:
    """Return the parser of the job's command line."""
    parser = frame.parser(
        NAME,
        "Merge all brokers' state-change logs and the controllers' journals: who led when, gaps, "
        "double leaders, stale epochs. Exit code 1 where one of the latter two is found.",
    )
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="logs, journals, or a folder above them")
    add("--logs-regex", metavar="FOLDER/REGEX", help="all files of a folder whose name matches")
    add("--topic", help="events of this topic alone")
    add("--partitions", metavar="0,1,…", help="of these partitions alone; needs --topic")
    add("--start-time", metavar="TIME", help="`2026-11-22 16:00:00,000`, or less of it")
    add("--end-time", metavar="TIME")
    add("--time-zone", metavar="ZONE", help="the logs' time zone [this machine's]")
    add("--overlap-ms", type=int, metavar="N", help="terms that overlap less are no finding [1000]")
    add("--output", metavar="FOLDER", help="write events, states, terms, gaps and findings there")
    add("--format", choices=FORMATS, help="of the output [parquet]")
    add("--report", metavar="FILE.html", help="write a page with plots")
    add("--print", choices=PRINTED, help="what stdout gets; `lines` are the merged lines [table]")
    return parser


def run(options: argparse.Namespace, spark: "SparkSession | None" = None) -> int:
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


def _over(file: Settings, options: argparse.Namespace) -> Settings:
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
    if settings.print not in PRINTED or settings.format not in FORMATS:
        raise ConfigError(f"print is one of {PRINTED}, format of {FORMATS}")
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
