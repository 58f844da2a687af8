"""The lake job: topics to tables, each record exactly once for every reader.

Invariants: stdout carries the result alone, as one line of JSON (`results`); exit code 1 if a
record is missing or doubled, or if a table belongs to something else (then nothing in it has
changed).
"""

import contextlib
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ottla.cli import Option
from ottla.model.errors import OttlaError
from ottla.model.printable import plural
from ottla.pipelines import interrupts, job
from ottla.pipelines.config import read_config
from ottla.pipelines.lake import asking
from ottla.pipelines.lake.landing import Batch, Landing
from ottla.pipelines.lake.metrics import Metrics
from ottla.pipelines.lake.opening import Tables
from ottla.pipelines.lake.results import LakeResult, Maintained, TopicResult
from ottla.pipelines.lake.settings import Settings
from ottla.pipelines.session import Work, start_session
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.options import Subscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "lake"
MODULES = ("pandas", "ottla.pipelines.lake.writing")
"""What workers import: pyarrow imports pandas with the first array that it makes."""
WORK = Work(quick_java=True, modules=MODULES)
"""No row passes through Java."""


@dataclass(frozen=True, kw_only=True)
class Options(job.Options):
    """What follows `ottla pipeline lake`."""

    once: Annotated[
        bool, Option("--once", help="Land the records present now, then stop [default]")
    ] = False
    follow: Annotated[bool, Option("--follow", help="Continue until Ctrl-C or SIGTERM")] = False
    infer: Annotated[bool, Option("--infer", help="Print a schema for [value]")] = False
    land_dead: Annotated[
        bool, Option("--land-dead", help="Parse dead letters again with the current schema")
    ] = False
    compact: Annotated[
        bool, Option("--compact", help="Merge small files and delete unreferenced ones")
    ] = False
    files: Annotated[bool, Option("--files", help="Print the committed files")] = False
    migrate: Annotated[
        bool, Option("--migrate", help="Convert tables of earlier versions of Ottla, in place")
    ] = False
    widen: Annotated[
        bool, Option("--widen", help="Rewrite tables to the schema's wider column types")
    ] = False
    verify: Annotated[
        bool, Option("--verify", help="Then compare every offset with the cluster again")
    ] = False
    sql: Annotated[
        Path | None,
        Option(metavar="FILE", help="Run a query over the tables, named after their topics"),
    ] = None


def lake(options: Options) -> int:
    return job.run(NAME, lambda: run(options))


main = partial(job.main, NAME)


def run(options: Options, spark: "SparkSession | None" = None) -> int:
    """Run the job, in a session of its own or a given one; return the exit code."""
    alone = ("once", "follow", "infer", "land_dead", "compact", "files", "migrate")
    job.at_most_one(**{name: getattr(options, name) for name in alone})
    settings = read_config(options.config, options.sets, Settings)
    if options.infer:
        return _print_schemas(settings)
    if options.files or options.compact:
        return _maintain(settings, options)
    started = time.monotonic()
    with contextlib.closing(Run(settings, options)) as it:
        if options.migrate:
            it.migrate()
        it.open()
        if options.land_dead or options.migrate:
            return it.end_without_spark(started)
        return it.run(spark, started)


def _topics(cluster: Cluster, settings: Settings) -> list[str]:
    """Return the topics that are named, and those that match the pattern now."""
    lake = settings.lake
    found = dict.fromkeys(lake.topics)
    if lake.pattern is not None:
        found |= dict.fromkeys(sorted(cluster.topics(Subscription(pattern=lake.pattern))))
    return list(found)


def _print_schemas(settings: Settings) -> int:
    """Print the schema that the newest records of each topic have, as DDL."""
    from ottla.pipelines.lake.sampling import sampled_schema

    with asking.reached(settings.cluster, settings.lake.isolation) as cluster:
        schemas = [sampled_schema(settings, cluster, name) for name in _topics(cluster, settings)]
    sys.stdout.write("".join(f"{text}\n" for text in schemas))
    return job.EXIT_OK


def _maintain(settings: Settings, options: Options) -> int:
    """Print the files of the newest versions, or compact and clean; no Spark is started."""
    tables, lake = Tables(settings), settings.lake
    names: Sequence[str] = lake.topics
    if lake.pattern is not None:
        with asking.reached(settings.cluster, lake.isolation) as cluster:
            names = _topics(cluster, settings)
    found: dict[str, Maintained] = {}
    lines: list[str] = []
    for name in names:
        pair = tables.open(name)
        if pair is None:
            raise OttlaError(f"{tables.path}/{name}: no {lake.format} table of this job is there")
        if options.files:
            lines += pair[0].files()
            continue
        files = list(pair[0].compact()["files"])
        pair[1].compact()
        deleted = sum(table.clean(lake.retention_hours) for table in pair)
        found[name] = Maintained(files=files, deleted=deleted)
    if options.files:
        job.print_lines(f"{path}\n" for path in sorted(lines))
    else:
        _print({"topics": found})
    return job.EXIT_OK


def _print(result: Any) -> None:
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


class Run:
    """One run of the job over all its topics."""

    def __init__(self, settings: Settings, options: Options) -> None:
        self._settings = settings
        self._options = options
        self._landings: dict[str, Landing] = {}
        # What does not fit in the settings is known before anything is asked or made.
        self._prepared = {name: Landing(settings, name) for name in settings.lake.topics}
        self._tables: Tables | None = None
        self._ends: dict[str, dict[int, int]] = {}
        self._wrong: list[str] = []
        self._metrics = Metrics()

    def close(self) -> None:
        self._metrics.close()

    def _reached(self) -> Cluster:
        return asking.reached(self._settings.cluster, self._settings.lake.isolation)

    # -- before Spark ------------------------------------------------------------------------------

    def migrate(self) -> None:
        """Take over the tables of the format before; a line for each says what was found."""
        from ottla.pipelines.lake.migrating import migrate

        for name in self._settings.lake.topics:
            batches = migrate(self._settings, Tables(self._settings), name)
            sys.stderr.write(f"{name}: {plural(batches, 'batch', 'batches')} taken over\n")

    def open(self) -> None:
        """Ask for the topics, and open their tables: what does not fit is known in a second."""
        with self._reached() as cluster:
            self._look(cluster)
        if self._settings.lake.metrics_port is not None:
            self._metrics.serve(self._settings.lake.metrics_port)

    def _look(self, cluster: Cluster) -> None:
        """Ask where each topic ends now, also what came since: partitions, topics of a pattern."""
        for name in _topics(cluster, self._settings):
            landing = self._landings.get(name)
            if landing is None:
                landing = self._prepared.pop(name, None) or Landing(self._settings, name)
                self._tables = self._tables or Tables(self._settings)
                landing.open(cluster, self._tables, widen=self._options.widen)
                self._landings[name] = landing
            self._ends[name] = landing.look(cluster)

    def end_without_spark(self, started: float) -> int:
        """Land dead letters again if asked for; say what there is."""
        for name, landing in self._landings.items() if self._options.land_dead else ():
            landed = landing.land_dead()
            sys.stderr.write(f"{name}: {plural(landed, 'dead letter')} became rows\n")
        return self._end(None, started, time.monotonic())

    # -- with Spark --------------------------------------------------------------------------------

    def run(self, given: "SparkSession | None", started: float) -> int:
        settings = self._settings
        spark = given or start_session(
            f"lake {','.join(self._landings)[:60]}",
            job.wanted_of(self._options),
            settings.spark,
            work=WORK,
        )
        try:
            ready = time.monotonic()
            (self._follow if self._options.follow else self._once)(spark)
            return self._end(spark, started, ready)
        finally:
            if given is None:
                with contextlib.suppress(Exception):  # it may be gone: its process dies with ours
                    spark.stop()

    def _once(self, spark: "SparkSession") -> None:
        """Land what the cluster held of each topic when the run began."""
        for name, landing in self._landings.items():
            while batch := landing.land_next(spark, self._ends[name]):
                self._tell(landing, batch)

    def _follow(self, spark: "SparkSession") -> None:
        """Land what comes, a batch of each topic in turn, until interrupted."""
        try:
            while True:
                interrupts.check()
                with self._reached() as cluster:
                    self._look(cluster)
                idle = True
                for name, landing in self._landings.items():
                    self._metrics.update(name, {"lag_offsets": landing.lag(self._ends[name])})
                    if batch := landing.land_next(spark, self._ends[name]):
                        idle = False
                        self._tell(landing, batch)
                if idle:
                    time.sleep(self._settings.lake.poll_seconds)
        except BaseException as error:  # an interrupt comes out of Spark's calls as what it likes
            if not interrupts.caused(error):
                raise
            sys.stderr.write(f"pipeline {NAME}: interrupted; what is committed stays\n")
        for landing in self._landings.values():
            landing.rows.refresh()  # its last commit may have been interrupted
        with contextlib.suppress(OttlaError), self._reached() as cluster:
            self._look(cluster)
            return
        self._ends = {}  # it did not say where the topics end

    def _tell(self, landing: Landing, batch: Batch) -> None:
        lag, state = landing.lag(self._ends[landing.name]), landing.rows.state
        speed = round((batch.rows + batch.dead) / max(batch.seconds, 1e-9))
        dead = f", {plural(batch.dead, 'dead letter')}" if batch.dead else ""
        sys.stderr.write(
            f"{landing.name}: batch {batch.number}: {plural(batch.rows, 'row')}{dead}, "
            f"{speed:,}/s, lag {lag:,}\n"
        )
        self._metrics.update(
            landing.name,
            {
                "rows_total": state.total(lambda a: a.rows),
                "dead_letters_total": state.total(lambda a: a.dead),
                "gap_offsets_total": state.total(lambda a: a.gaps),
                "lost_offsets_total": state.total(lambda a: a.lost),
                "batches_total": state.batch,
                "lag_offsets": lag,
                "rows_per_second": speed,
                "last_commit_seconds": time.time(),
            },
        )

    # -- after -------------------------------------------------------------------------------------

    def _end(self, spark: "SparkSession | None", started: float, ready: float) -> int:
        topics = {name: self._compared(one) for name, one in self._landings.items()}
        query = self._query(spark)
        if spark is not None and self._options.verify:
            self._verify()
        for line in self._wrong:
            sys.stderr.write(f"pipeline {NAME}: {line}\n")
        complete = all(one.complete for one in topics.values())
        _print(
            LakeResult(
                topics=topics,
                exactly_once=False if self._wrong else complete or None,
                session_s=round(ready - started, 1),
                job_s=round(time.monotonic() - ready, 1),
                query=query,
            )
        )
        return job.EXIT_FAILED if self._wrong else job.EXIT_OK

    def _compared(self, landing: Landing) -> TopicResult:
        """Compare a topic's tables with their accounts, and these with the leaders' ends."""
        ends = self._ends.get(landing.name)
        wrong, gone = landing.compare()
        self._wrong += wrong
        if gone:
            sys.stderr.write(
                f"{landing.name}: {plural(gone, 'row')} fewer than landed: others deleted them\n"
            )
        lag = None if ends is None else landing.lag(ends)
        landed = sum(b.rows + b.dead for b in landing.batches)
        seconds = sum(b.seconds for b in landing.batches)
        state = landing.rows.state
        return TopicResult(
            table=landing.rows.where,
            dead_table=landing.dead.where,
            version=landing.rows.version,
            batches=state.batch,
            rows=state.total(lambda a: a.rows),
            dead=state.total(lambda a: a.dead),
            gaps=state.total(lambda a: a.gaps),
            lost=state.total(lambda a: a.lost),
            deleted=gone,
            new_rows=landed,
            rows_per_s=round(landed / seconds) if seconds else 0,
            lag=lag,
            complete=lag == 0 and not gone and not wrong,
        )

    def _verify(self) -> None:
        from ottla.pipelines.lake.verifying import verify

        with self._reached() as cluster:
            for name, landing in self._landings.items():
                compared, gone, wrong = verify(cluster, landing)
                self._wrong += wrong
                sys.stderr.write(
                    f"{name}: {plural(compared, 'record')} compared by other readers, "
                    f"{plural(len(wrong), 'problem')}"
                    + (f", {plural(gone, 'offset')} gone from the cluster\n" if gone else "\n")
                )

    def _query(self, spark: "SparkSession | None") -> list[dict[str, Any]] | msgspec.UnsetType:
        """Run a query over the tables' files; return its rows for the result."""
        if self._options.sql is None or spark is None:
            return msgspec.UNSET
        for name, landing in self._landings.items():
            root, files = landing.rows.uri, landing.rows.files()
            if files:
                files = [f if re.match(r"\w+:", f) else f"file://{f}" for f in files]
                reader = spark.read.option("mergeSchema", "true").option("basePath", root)
                reader.parquet(*files).createOrReplaceTempView(f"`{name}`")
        rows = spark.sql(self._options.sql.read_text(encoding="utf-8")).collect()
        plain = [row.asDict(recursive=True) for row in rows]
        return list(json.loads(json.dumps(plain, default=str)))
