"""The lake job: topics to Parquet, each record exactly once for every reader.

Invariants: stdout carries the result alone, as one line of JSON; exit code 1 if a record is missing
or doubled, or if the lake belongs to something else (then nothing in it has changed).
"""

import contextlib
import json
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from ottla.cli import Option
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.printable import plural
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines import interrupts, job, paths
from ottla.pipelines.config import read_config
from ottla.pipelines.landing import asking
from ottla.pipelines.landing.asking import Topic
from ottla.pipelines.landing.columns import given_schema, schema_text, stored_schema, united
from ottla.pipelines.landing.delta_actions import refuse_types
from ottla.pipelines.landing.landing import Batch, Landing
from ottla.pipelines.landing.manifest import DATA
from ottla.pipelines.landing.metrics import Metrics
from ottla.pipelines.landing.parsing import Parser
from ottla.pipelines.landing.sampling import sampled_schema
from ottla.pipelines.landing.settings import Settings, parse_time
from ottla.pipelines.landing.spans import total
from ottla.pipelines.landing.table import (
    Allowed,
    Table,
    open_landed,
    open_table,
    snapshot,
)
from ottla.pipelines.landing.verifying import verify
from ottla.pipelines.session import Work, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "lake"
MODULES = ("pandas", "ottla.pipelines.landing.writing")
"""What workers import: pyarrow imports pandas with the first array that it makes."""


def work_of(settings: Settings, *, follow: bool) -> Work:
    """Return what a run is like: mostly no row passes through Java, or not for long.

    336,776 rows that only Spark could read took a third less of Java's processor time so, too.
    """
    return Work(quick_java=settings.lake.source == "ottla" and not follow, modules=MODULES)


@dataclass(frozen=True, kw_only=True)
class Options(job.Options):
    """What follows `ottla pipeline lake`."""

    once: Annotated[bool, Option("--once", help="Land what is there now [default]")] = False
    follow: Annotated[bool, Option("--follow", help="Continue until Ctrl-C or SIGTERM")] = False
    files: Annotated[
        bool, Option("--files", help="Print the committed files, without asking a cluster")
    ] = False
    compact: Annotated[
        bool, Option("--compact", help="Merge small files into large ones, without a cluster")
    ] = False
    infer: Annotated[bool, Option("--infer", help="Print a schema for [value]")] = False
    verify: Annotated[
        bool,
        Option("--verify", help="Then read everything again, by two other readers, and compare"),
    ] = False
    since: Annotated[
        str | None, Option("--from", metavar="TIME", help="Backfill from this time on")
    ] = None
    until: Annotated[str | None, Option(metavar="TIME", help="Backfill up to this time")] = None
    adopt: Annotated[bool, Option("--adopt", help="Accept a lake that was copied or moved")] = False
    restore: Annotated[
        bool,
        Option(
            "--restore",
            help="Rewrite lost table.json files and damaged Delta logs from the manifests",
        ),
    ] = False
    sql: Annotated[
        Path | None,
        Option(metavar="FILE", help="Run a query over the tables, which are named as their topics"),
    ] = None


def lake(options: Options) -> int:
    return job.run(NAME, lambda: run(options))


main = partial(job.main, NAME)


def run(options: Options, spark: "SparkSession | None" = None) -> int:
    """Run the job, in a session of its own or a given one; return the exit code."""
    job.at_most_one(
        once=options.once,
        follow=options.follow,
        files=options.files,
        compact=options.compact,
        infer=options.infer,
    )
    settings = read_config(options.config, options.sets, Settings)
    if options.files:
        return _print_files(settings)
    if options.compact:
        return _compact(settings)
    if options.infer:
        return _print_schema(settings, options, spark)
    started = time.monotonic()
    with Run(settings, options, spark) as it:
        it.open()
        it.start_spark()
        ready = time.monotonic()
        wrong = it.land()
        query = it.query(options.sql)
    for line in wrong:
        sys.stderr.write(f"pipeline {NAME}: {line}\n")
    result = {
        **it.result(),
        **query,
        "exactly_once": not wrong,
        "session_s": round(ready - started, 1),
        "job_s": round(time.monotonic() - ready, 1),
    }
    sys.stdout.write(json.dumps(result, default=str) + "\n")
    return job.EXIT_FAILED if wrong else job.EXIT_OK


def _print_files(settings: Settings) -> int:
    """Print a snapshot: the files of all batches that are committed now, a line each."""
    found = (path for t in settings.lake.topics for path in snapshot(Path(settings.lake.path) / t))
    job.print_lines(f"{path}\n" for path in found)
    return job.EXIT_OK


def _compact(settings: Settings) -> int:
    """Compact each topic's table; print what there was and what there is."""
    from ottla.pipelines.landing.compacting import compact

    lake, layout, found = settings.lake, settings.layout, {}
    for topic in lake.topics:
        table = open_landed(Path(lake.path) / topic, sync=layout.sync, table_format=lake.format)
        try:
            if wrong := table.problems():
                raise OttlaError(wrong[0])
            files = len(table.files())
            merged = compact(table, layout.compression)
            found[topic] = {"batches_merged": merged, "files": [files, len(table.files())]}
            if table.delta is not None:
                deleted = table.delta.clean(lake.delta_retention_hours * 3600)
                found[topic]["delta_files_deleted"] = deleted
        finally:
            table.close()
    sys.stdout.write(json.dumps({"topics": found}) + "\n")
    return job.EXIT_OK


def _print_schema(settings: Settings, options: Options, spark: "SparkSession | None") -> int:
    """Print the schema that the newest records of each topic have, as DDL."""
    own = spark is None
    spark = spark or start_session(
        NAME,
        job.wanted_of(options),
        settings.spark,
        connector=settings.lake.source == "kafka",
    )
    try:
        for name in settings.lake.topics:
            sys.stdout.write(f"{sampled_schema(spark, settings, name)}\n")
    finally:
        if own:
            spark.stop()
    return job.EXIT_OK


class Run:
    """One run of the job over all its topics; it holds their tables until its end.

    It stops the session at its end, unless it was given one.
    """

    def __init__(
        self,
        settings: Settings,
        options: Options,
        spark: "SparkSession | None" = None,
    ) -> None:
        self._settings = settings
        self._options = options
        self._since = None if options.since is None else parse_time(options.since)
        self._until = None if options.until is None else parse_time(options.until)
        self._topics: dict[str, Topic] = {}
        self._tables: dict[str, Table] = {}
        self._landings: dict[str, Landing] = {}
        self._batches: dict[str, list[Batch]] = {name: [] for name in settings.lake.topics}
        self._wrong: list[str] = []
        self._metrics = Metrics()
        self._spark = spark
        self._own_session = spark is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._own_session and self._spark is not None:
            with contextlib.suppress(Exception):  # it may be gone: its process dies with ours
                self._spark.stop()
        for table in self._tables.values():
            table.close()
        self._metrics.close()

    # -- before Spark ------------------------------------------------------------------------------

    def open(self) -> None:
        """Ask for the topics, and open their tables: what does not fit is known in a second."""
        lake, value = self._settings.lake, self._settings.value
        if value.format != "raw":
            if value.schema is None:
                raise ConfigError(
                    f"[value]: format {value.format} needs a schema; --infer offers one"
                )
            schema_text(value.schema)

        with asking.reached(self._settings.cluster, lake.isolation) as cluster:
            topics = [asking.described(cluster, name) for name in lake.topics]
        for topic in topics:
            self._topics[topic.name] = topic
            self._tables[topic.name] = open_table(
                Path(lake.path) / topic.name,
                topic,
                lake.isolation,
                lambda topic=topic: self._starts(topic),  # type: ignore[misc]
                Allowed(self._options.adopt, self._options.restore),
                sync=self._settings.layout.sync,
                table_format=lake.format,
            )
            self._refuse_other_folders(self._tables[topic.name])
        if lake.metrics_port is not None:
            self._metrics.serve(lake.metrics_port)

    def _refuse_other_folders(self, table: Table) -> None:
        layout = self._settings.layout
        wanted = layout.date_column if layout.date is not None else None
        if table.delta is not None and table.last and table.last.date_column != wanted:
            there, wanted = table.last.date_column or "none", wanted or "none"
            raise OttlaError(
                f"{table.folder}: its date folders are {there}, the settings say {wanted}: "
                "a Delta table keeps its partition columns; set [layout] so, or name another lake"
            )

    def _starts(self, topic: Topic) -> dict[int, int]:
        lake = self._settings.lake
        wanted = lake.start_timestamp()
        with asking.reached(self._settings.cluster, lake.isolation) as cluster:
            if wanted not in (EARLIEST, LATEST):
                return asking.offsets_at(cluster, topic, wanted)
            held = asking.held(cluster, topic)
            return {p: s.start if wanted == EARLIEST else s.end for p, s in held.items()}

    # -- with Spark --------------------------------------------------------------------------------

    def start_spark(self) -> None:
        settings = self._settings
        wants_connector = settings.lake.source == "kafka" or settings.dead_letters.topic is not None
        spark = self._spark = self._spark or start_session(
            f"lake {','.join(settings.lake.topics)[:60]}",
            job.wanted_of(self._options),
            settings.spark,
            connector=wants_connector,
            work=work_of(settings, follow=self._options.follow),
        )
        # With ANSI a date that makes no sense would end the job instead of being null.
        spark.conf.set("spark.sql.ansi.enabled", "false")
        # As pyarrow writes them: readers would see columns of two types otherwise.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        for name, topic in self._topics.items():
            table = self._tables[name]
            parser = Parser(settings.value, settings.layout, self._schema(table))
            self._landings[name] = Landing(spark, settings, topic, table, parser)

    def _schema(self, table: Table) -> Any:
        value = self._settings.value
        if value.format == "raw":
            return None
        assert value.schema is not None
        stored = table.schema()
        known = None if stored is None else stored_schema(stored)
        schema = united(known, given_schema(value.schema), str(table.folder))
        if table.delta is not None:
            refuse_types(json.loads(schema.json())["fields"], str(table.folder))
        if schema != known:
            table.write_schema(schema.json())
        return schema

    def land(self) -> list[str]:
        """Land what is asked for; return what is missing or doubled after that, in words."""
        if self._options.follow:
            self._follow()
        else:
            self._once()
        if self._options.verify:
            self._verify()
        return [*self._wrong, *(p for table in self._tables.values() for p in table.problems())]

    def _once(self) -> None:
        """Land what the cluster holds now of each topic."""
        for name, landing in self._landings.items():
            wanted = landing.wanted(self._since, self._until)
            while batch := landing.land_next(wanted):
                self._tell(name, batch, total(landing.missing(wanted)))
            for partition, spans in landing.missing(wanted).items():
                self._wrong.append(
                    f"{name}-{partition}: offsets {spans[0].start}..{spans[0].end - 1} are missing"
                )

    def _verify(self) -> None:
        for name, table in self._tables.items():
            found = verify(self._settings, self._topics[name], table)
            self._wrong += found.wrong
            if table.delta is not None:
                self._wrong += table.delta.other_bytes()
            gone = (
                f", {plural(found.gone, 'offset is', 'offsets are')} gone from the cluster"
                if found.gone
                else ""
            )
            sys.stderr.write(
                f"{name}: {plural(found.compared, 'record')} compared by other readers, "
                f"{plural(len(found.wrong), 'problem')}{gone}\n"
            )

    def _follow(self) -> None:
        """Land what comes, topic by topic in turn, until interrupted."""
        try:
            while True:
                interrupts.check()
                idle = True
                for name, landing in self._landings.items():
                    wanted = landing.wanted(self._since, self._until)
                    self._metrics.update(name, {"lag_offsets": total(landing.missing(wanted))})
                    batch = landing.land_next(wanted)
                    if batch is not None:
                        idle = False
                        self._tell(name, batch, total(landing.missing(wanted)))
                if idle:
                    time.sleep(self._settings.lake.poll_seconds)
        except BaseException as error:  # an interrupt comes out of Spark's calls as what it likes
            if not interrupts.caused(error):
                raise
            sys.stderr.write(f"pipeline {NAME}: interrupted; what is committed stays\n")

    def _tell(self, name: str, batch: Batch, lag: int) -> None:
        self._batches[name].append(batch)
        self._measure(name, batch, lag)
        speed = round((batch.rows + batch.dead) / max(batch.seconds, 1e-9))
        dead = f", {plural(batch.dead, 'dead letter')}" if batch.dead else ""
        sys.stderr.write(
            f"{name}: batch {batch.number}: {plural(batch.rows, 'row')}{dead}, {speed:,}/s, lag "
            f"{lag:,}\n"
        )

    def _measure(self, name: str, batch: Batch, lag: int) -> None:
        last = self._tables[name].last
        assert last is not None
        totals = last.totals.values()
        self._metrics.update(
            name,
            {
                "rows_total": sum(t.rows for t in totals),
                "dead_letters_total": sum(t.dead for t in totals),
                "gap_offsets_total": sum(t.gaps for t in totals),
                "lost_offsets_total": sum(t.lost for t in totals),
                "batches_total": last.batch + 1,
                "lag_offsets": lag,
                "rows_per_second": (batch.rows + batch.dead) / max(batch.seconds, 1e-9),
                "last_commit_seconds": last.committed_ms / 1000,
            },
        )

    # -- after -------------------------------------------------------------------------------------

    def result(self) -> dict[str, Any]:
        """Return the run's result by topic."""
        found = {}
        for name, table in self._tables.items():
            totals = [] if table.last is None else list(table.last.totals.values())
            batches = self._batches[name]
            seconds = sum(b.seconds for b in batches)
            landed = sum(b.rows + b.dead for b in batches)
            found[name] = {
                "table": str(table.folder),
                "batches": len(table.batches),
                **{
                    key: sum(getattr(t, key) for t in totals)
                    for key in ("rows", "dead", "gaps", "lost")
                },
                "new_rows": landed,
                "rows_per_s": round(landed / seconds) if seconds else 0,
            }
        return {"topics": found}

    def query(self, file: Path | None) -> dict[str, Any]:
        """Run a query over the tables; return its rows for the result."""
        if file is None:
            return {}
        spark = self._spark
        assert spark is not None
        for name, table in self._tables.items():
            if table.last is not None:
                reader = spark.read.option("mergeSchema", "true")
                reader.parquet(paths.spark_path(table.folder / DATA)).createOrReplaceTempView(
                    f"`{name}`"
                )
        rows = spark.sql(file.read_text(encoding="utf-8")).collect()
        return {"query": [row.asDict(recursive=True) for row in rows]}


if __name__ == "__main__":
    sys.exit(main())
