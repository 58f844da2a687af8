"""One topic's way into its table: plan, write, count, commit; and again until all is there.

Invariants: where to begin comes from the table's newest manifest, where to end from the cluster:
there is no other checkpoint. A batch is committed only when every offset of its plan is a row, a
dead letter, or was found by another reader to hold no record.
"""

import errno
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode, OttlaError
from ottla.pipelines import interrupts
from ottla.pipelines.landing import asking, gaps
from ottla.pipelines.landing.asking import Topic
from ottla.pipelines.landing.columns import inferred, widened
from ottla.pipelines.landing.counting import Found, compare
from ottla.pipelines.landing.dead_letters import send
from ottla.pipelines.landing.manifest import File, Landed, Manifest, Totals
from ottla.pipelines.landing.parsing import REASON, UNKNOWN, VALUE, Parser
from ottla.pipelines.landing.records import records
from ottla.pipelines.landing.settings import Settings
from ottla.pipelines.landing.spans import Span, all_missing, land, plan
from ottla.pipelines.landing.table import Stage, Table
from ottla.pipelines.paths import spark_path
from ottla.pipelines.source.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES = 5
RETRY_WAIT_S = 2.0
LASTING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
)
"""What a file system says that it will say again."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch brought."""

    number: int
    offsets: int
    rows: int
    dead: int
    gaps: int
    seconds: float


class Landing:
    """Lands one topic into its table."""

    def __init__(
        self, spark: "SparkSession", settings: Settings, topic: Topic, table: Table, parser: Parser
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._topic = topic
        self._table = table
        self._parser = parser

    @property
    def table(self) -> Table:
        return self._table

    def wanted(self, since: int | None = None, until: int | None = None) -> dict[int, Span]:
        """Ask the cluster which offsets are to be in the table, by partition.

        `since` and `until` (milliseconds) bound a backfill. OttlaError if the cluster holds less
        than has landed, or lost what has not landed.
        """
        topic = self._topic
        with self._reached() as cluster:
            self._patience_s = cluster.options.api_timeout_ms / 1000
            held = self._held = self._held_now(cluster)
            first = {p: self._table.binding.starts.get(p, 0) for p in held}
            last = {p: span.end for p, span in held.items()}
            if since is not None:
                first = asking.offsets_at(cluster, topic, since)
            if until is not None:
                last = asking.offsets_at(cluster, topic, until)
        ends = {p: min(last[p], span.end) for p, span in held.items()}
        return {p: Span(min(first[p], end), end) for p, end in ends.items()}

    def _reached(self) -> Cluster:
        return asking.reached(self._settings.cluster, self._settings.lake.isolation)

    def _held_now(self, cluster: Cluster) -> dict[int, Span]:
        """Ask what the cluster holds; OttlaError if what has landed is no longer a part of it.

        After an unclean election a log may be longer again than what has landed: the epochs tell.
        """
        topic, landed = self._topic, self.landed()
        held = asking.held(cluster, topic)
        for p, span in held.items():
            if landed.get(p) and landed[p][-1].end > span.end:
                self._refuse_changed(p, f"ends at {span.end}", landed[p][-1].end)
        last = self._table.last
        before = {} if last is None else {p: e for p, e in last.epochs.items() if e >= 0}
        for p, end in asking.epoch_ends(cluster, topic, before).items():
            if landed.get(p) and 0 <= end < landed[p][-1].end:
                self._refuse_changed(p, f"was cut to {end} offsets", landed[p][-1].end)
        self._epochs = {p: cluster.client.leader_epoch(topic.name, p) for p in held}
        return held

    def _refuse_changed(self, partition: int, what: str, landed: int) -> None:
        raise OttlaError(
            f"{self._topic.name}-{partition} {what} in the cluster, offsets up to {landed} have "
            "landed: the cluster lost records (an unclean election?); name another lake for what "
            "it has now"
        )

    def landed(self) -> Mapping[int, list[Span]]:
        """Return what has landed so far."""
        return {} if self._table.last is None else self._table.last.landed

    def missing(self, wanted: Mapping[int, Span]) -> dict[int, list[Span]]:
        """Return what has not landed."""
        return all_missing(wanted, self.landed())

    def land_next(self, wanted: Mapping[int, Span]) -> Batch | None:
        """Land the next batch; None if everything has landed. Tries again what may pass."""
        from pyspark.errors import AnalysisException, ParseException

        for attempt in range(1, TRIES + 1):
            began = time.monotonic()
            todo = self.missing(wanted)
            lost = self._lost(todo)
            batch = plan(lost or todo, self._settings.lake.batch_records)
            if not batch:
                return None
            try:
                return self._skip(batch) if lost else self._land(batch)
            except (AnalysisException, ParseException):
                raise
            except Exception as error:  # Spark raises what it likes: an executor is gone
                if (
                    interrupts.caused(error)
                    or attempt == TRIES
                    or self._lasts(error, time.monotonic() - began)
                ):
                    raise
                time.sleep(RETRY_WAIT_S * attempt)
        return None

    def _lasts(self, error: Exception, after_s: float) -> bool:
        """Return whether an error would come again: a full disk, or a cluster that was silent."""
        if isinstance(error, OSError):
            return error.errno in LASTING
        if not isinstance(error, OttlaError):
            return os.strerror(errno.ENOSPC) in str(error)
        silent = error.code == ErrorCode.NETWORK_EXCEPTION and after_s >= self._patience_s
        return silent or not error.retriable

    def _lost(self, todo: Mapping[int, list[Span]]) -> dict[int, list[Span]]:
        """Return what the cluster removed before it landed; OttlaError unless it may be skipped."""
        before = {p: Span(0, self._held[p].start) for p in todo}
        lost = {}
        for p, spans in todo.items():
            gone = [
                Span(s.start, min(s.end, before[p].end)) for s in spans if s.start < before[p].end
            ]
            if gone:
                lost[p] = gone
        if lost and self._settings.lake.on_loss == "fail":
            partition, spans = next(iter(sorted(lost.items())))
            raise OttlaError(
                f"{self._topic.name}-{partition}: offsets {spans[0].start}..{spans[-1].end - 1} "
                'were removed from the cluster before they landed; on_loss = "skip" goes on behind '
                "them and keeps account"
            )
        return lost

    def _skip(self, batch: Mapping[int, Span]) -> Batch:
        began = time.monotonic()
        counts = {
            p: Landed(start=s.start, end=s.end, rows=0, lost=s.size) for p, s in batch.items()
        }
        stage = self._table.stage()
        self._commit(stage, counts)
        size = sum(span.size for span in batch.values())
        return Batch(self._table.next_batch - 1, size, 0, 0, 0, time.monotonic() - began)

    def _land(self, batch: Mapping[int, Span]) -> Batch:
        began = time.monotonic()
        stage = self._table.stage()
        try:
            found = self._write(batch, stage)
            self._check_gaps(found)
            if stage.dead.is_dir() and self._settings.dead_letters.topic is not None:
                letters = self._spark.read.parquet(spark_path(stage.dead))
                send(letters, self._settings.cluster, self._settings.dead_letters.topic)
            counts = {
                p: Landed(
                    start=span.start,
                    end=span.end,
                    rows=found[p].rows,
                    dead=found[p].dead,
                    gaps=sum(hole.size for hole in found[p].missing),
                )
                for p, span in batch.items()
            }
            self._commit(stage, counts)
        except OSError as error:
            shutil.rmtree(stage.folder, ignore_errors=True)
            if error.filename is None:
                error.filename = str(stage.folder)
            raise
        except BaseException:
            shutil.rmtree(stage.folder, ignore_errors=True)
            raise
        return Batch(
            self._table.next_batch - 1,
            sum(span.size for span in batch.values()),
            sum(c.rows for c in counts.values()),
            sum(c.dead for c in counts.values()),
            sum(c.gaps for c in counts.values()),
            time.monotonic() - began,
        )

    def _write(self, batch: Mapping[int, Span], stage: Stage) -> dict[int, Found]:
        """Write rows, and dead letters if there are any; once more if the columns widen."""
        name = self._topic.name
        for _ in range(2):
            left = self._write_columns(batch, stage)
            judged = None if left is None else self._parser.judged(left)
            if judged is not None:
                self._save(self._parser.rows(judged), stage.data, self._settings.layout.date)
            found = compare(name, batch, stage.data, stage.dead)
            if judged is None or not any(f.missing for f in found.values()):
                return found
            # Parsing twice costs nothing where there are no dead letters, which is the rule.
            self._save(self._parser.dead_letters(judged), stage.dead, None)
            found = compare(name, batch, stage.data, stage.dead)
            if not any(f.dead for f in found.values()):
                shutil.rmtree(stage.dead)
                return found
            if not self._widen(stage.dead):
                return found
            stage.clear()
        raise OttlaError(f"{name}: the columns changed while a batch was read; run it again")

    def _write_columns(self, batch: Mapping[int, Span], stage: Stage) -> "DataFrame | None":
        """Write what needs no Spark; return what is left to it, None if nothing is."""
        from ottla.pipelines.landing.columnar import plan_of
        from ottla.pipelines.landing.columns_job import write_columns

        settings, spark = self._settings, self._spark
        time_zone = str(spark.conf.get("spark.sql.session.timeZone"))
        how = plan_of(self._parser, time_zone) if settings.lake.source == "ottla" else None
        if how is None:
            return self._records(batch)
        return write_columns(spark, settings, self._topic, how, batch, stage)

    def _records(self, batch: Mapping[int, Span]) -> "DataFrame":
        lake = self._settings.lake
        return records(
            self._spark,
            self._settings.cluster,
            lake.source,
            self._topic.name,
            batch,
            lake.isolation,
        )

    def _save(self, rows: "DataFrame", folder: Path, date: str | None) -> None:
        layout = self._settings.layout
        if date is not None and layout.gather:
            rows = rows.repartition(layout.date_column)
        writer = rows.write.mode("append").option("compression", layout.compression)
        if date is not None:
            writer = writer.partitionBy(layout.date_column)
        writer.parquet(spark_path(folder))

    def _widen(self, dead: Path) -> bool:
        """Add the columns that dead letters bring; return whether there are new ones."""
        from pyspark.sql import functions as f

        schema = self._parser.schema
        if schema is None or self._parser.value.drift != "widen":
            return False
        letters = self._spark.read.parquet(spark_path(dead)).where(f.col(REASON) == UNKNOWN)
        wider = widened(schema, inferred(self._spark, letters.select(f.col(VALUE).cast("string"))))
        if wider == schema:
            return False
        self._table.write_schema(wider.json())
        self._parser = replace(self._parser, schema=wider)
        return True

    def _check_gaps(self, found: Mapping[int, Found]) -> None:
        """Ask the cluster about offsets that gave no record; OttlaError if there was one."""
        holes = {p: f.missing for p, f in found.items() if f.missing}
        if not holes:
            return
        with self._reached() as cluster:
            wrong = cluster.run(gaps.records_in(cluster, self._topic, holes))
        if wrong:
            raise OttlaError(f"nothing was committed: {'; '.join(wrong)}")

    def _commit(self, stage: Stage, counts: Mapping[int, Landed]) -> None:
        table, layout = self._table, self._settings.layout
        spans = {p: Span(c.start, c.end) for p, c in counts.items()}
        totals = {} if table.last is None else dict(table.last.totals)
        for p, landed in counts.items():
            totals[p] = totals.get(p, Totals()).plus(landed)

        def make(files: list[File], dead_files: list[File], previous: str) -> Manifest:
            return Manifest(
                binding=table.binding,
                batch=table.next_batch,
                first=table.next_batch,
                previous=previous,
                committed_ms=time.time_ns() // 1_000_000,
                schema=table.schema_version(),
                partitions={p: [landed] for p, landed in counts.items()},
                files=files,
                dead_files=dead_files,
                landed=land(self.landed(), spans),
                epochs={**(table.last.epochs if table.last else {}), **self._epochs},
                totals=totals,
                date_column=layout.date_column if layout.date is not None else None,
                keep=self._parser.schema is None or self._parser.value.keep,
            )

        table.commit(stage, make)
