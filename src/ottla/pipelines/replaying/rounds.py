"""Rounds: a Spark job each that copies what is there, then the check and the offset map.

Invariants: a round that fails is tried again from what is committed, three times without progress
at most; what was copied is noted as checked only after both topics agreed, and after the offset
map's file is in place. So a run that was killed at any moment leaves work that the next run does,
and nothing that it does twice.
"""

import contextlib
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ottla.model.errors import ConfigError, OttlaError
from ottla.model.printable import plural
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines import interrupts, job
from ottla.pipelines.landing.spans import Span
from ottla.pipelines.replaying import (
    checking,
    copying,
    offset_map,
    opening,
    origins,
    rows,
)
from ottla.pipelines.replaying.checking import Compared, Outcome, Side
from ottla.pipelines.replaying.comparing import Run
from ottla.pipelines.replaying.copying import Done, Task
from ottla.pipelines.replaying.opening import Found, Opening, Standing
from ottla.pipelines.replaying.plan import PartitionMap, mapped, next_round
from ottla.pipelines.replaying.settings import Settings
from ottla.pipelines.sink import progress
from ottla.pipelines.sink.progress import Checked
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.planning import edges
from ottla.pipelines.source.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ATTEMPTS = 3


@dataclass(slots=True)
class Totals:
    """What one run did."""

    records: int = 0
    looped: int = 0
    rounds: int = 0
    seconds: float = 0.0
    checked: int = 0
    gaps: int = 0
    map_rows: int = 0
    wrong: list[str] = field(default_factory=list)


class Rounds:
    """One run of a job; use it with `with`."""

    def __init__(self, settings: Settings, spark: "SparkSession | None" = None) -> None:
        self._settings = settings
        self._replay = settings.replay
        self._target_config = settings.target or settings.source
        self._spark = spark
        self.totals = Totals()
        self._target: Found | None = None
        self._clusters: list[Cluster] = []
        self._standings: dict[int, Standing] = {}
        self._dropped: dict[int, frozenset[int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for cluster in self._clusters:
            cluster.close()

    # -- before Spark ----------------------------------------------------------------------------

    def reach(self, *, only_look: bool = False) -> None:
        """Ask both clusters for the topics; what does not fit is known in a second.

        `only_look`: the target has to be there.
        """
        replay = self._replay
        self._from_options = opening.options_of(self._settings.source, replay.topic)
        self._to_options = opening.options_of(self._target_config, replay.target)
        self._from, self._to = Cluster(self._from_options), Cluster(self._to_options)
        self._clusters = [self._from, self._to]
        self.source = opening.found_of(self._from, replay.topic)
        self._target = opening.target_of(
            self._to, replay.target, create=replay.create and not only_look
        )
        if self._target is not None:
            self._map = self._mapped(self.source, self._target)

    def open(self) -> None:
        """Bind the job, and shut out earlier runs."""
        replay = self._replay
        rows.refuse_bad_expressions(self.spark, replay)
        if self._target is None:
            if replay.offset_map is not None:  # a map that is there is another target's
                offset_map.refuse_other(
                    Path(replay.offset_map), replay.name, self.source.name, "none yet"
                )
            self._target = opening.created(self._to, replay, self.source)
            self._map = self._mapped(self.source, self._target)
        self._opening = Opening(
            replay, self._from, self._to, source=self.source, target=self.target
        )
        owner = (replay.name, self.source.name, self.target.id_text)
        if replay.offset_map is not None:
            offset_map.refuse_other(Path(replay.offset_map), *owner)
        self._opening.bind()
        if replay.offset_map is not None:
            offset_map.open_folder(Path(replay.offset_map), *owner)
        self._standings = self._opening.take(self.source.topic.partitions)

    def _mapped(self, source: Found, target: Found) -> PartitionMap:
        return mapped(self._replay.partitions, source.topic.partitions, target.topic.partitions)

    @property
    def target(self) -> Found:
        assert self._target is not None
        return self._target

    @property
    def spark(self) -> "SparkSession":
        assert self._spark is not None
        return self._spark

    @spark.setter
    def spark(self, spark: "SparkSession") -> None:
        self._spark = spark

    @property
    def nexts(self) -> dict[int, int]:
        """The next offset of each partition of the source."""
        return {p: standing.progress.next for p, standing in self._standings.items()}

    @property
    def poll_seconds(self) -> float:
        return self._replay.poll_seconds

    def duplicates(self) -> list[dict[str, Any]]:
        """Return the target's records whose origin stands there more than once."""
        starts = edges(self._to, self.target.at(EARLIEST))
        first = {tp.partition: offset for tp, offset in starts.items()}
        spans = checking.spans_between(first, self._target_ends())
        return checking.duplicates(self.spark, self._target_config, self._replay.target, spans)

    # -- what there is to do ---------------------------------------------------------------------

    def ends(self) -> dict[int, int]:
        """Return where this run of replay ends: `replay.end`."""
        ends = opening.places(self._from, self.source, self._replay.end, "end")
        if self._replay.deduplicate:
            assert self._opening.binding is not None
            spans = checking.spans_between(self._opening.binding.starts, ends)
            self._dropped = checking.later_duplicates(
                self.spark, self._settings.source, self._replay.topic, spans
            )
        return ends

    def refresh(self) -> dict[int, int]:
        """Look for new partitions, and return where the source ends now.

        OttlaError if one of the topics is another one by now.
        """
        for cluster, name, known in (
            (self._from, self._replay.topic, self.source),
            (self._to, self._replay.target, self.target),
        ):
            if opening.found_of(cluster, name).name != known.name:
                raise ConfigError(f"topic {name} was deleted and made anew while it was copied")
        source = opening.found_of(self._from, self._replay.topic)
        new = sorted(set(source.topic.partitions) - set(self._standings))
        if new:
            self._target = opening.found_of(self._to, self._replay.target)
            self._map = self._mapped(source, self.target)
            self.source = self._opening.source = source
            self._standings |= self._opening.take(new)
        found = edges(self._from, self.source.at(LATEST))
        return {tp.partition: offset for tp, offset in found.items()}

    # -- one round -------------------------------------------------------------------------------

    def copy_next(self, ends: Mapping[int, int]) -> bool:
        """Copy a round; return whether there was anything to do."""
        began = time.monotonic()
        before = sum(s.progress.records for s in self._standings.values())
        failed = 0
        done: list[Done] = []
        while spans := next_round(self.nexts, ends, self._replay.batch_records):
            was = self.nexts
            problem: Exception | None = None
            try:
                done = self._run(spans)
            except Exception as error:  # a worker that was lost, whatever Spark calls it
                if interrupts.caused(error):
                    raise
                problem, done = error, []
            for one in done:
                self.totals.looped += one.looped
                if one.problem is not None:
                    problem = OttlaError(one.problem)
                    if one.final:
                        raise problem
            if problem is None:
                for p in spans:
                    self._standings[p] = self._opening.standing(p, self._standings[p].at)
                break
            # What failed may have left transactions open: they end before anything is read.
            self._standings |= self._opening.take(spans, again=True)
            failed = 1 if self.nexts != was else failed + 1
            if failed >= ATTEMPTS:
                raise problem
            self._say(f"tried again, since {job.in_one_line(problem)}")
        else:
            return False
        copied = sum(s.progress.records for s in self._standings.values()) - before
        seconds = time.monotonic() - began
        self.totals.records += copied
        self.totals.rounds += 1
        self.totals.seconds += seconds
        lag = opening.lag_of(self.nexts, ends)
        self._say(
            f"{plural(copied, 'record')}, {round(copied / max(seconds, 1e-9)):,}/s, lag {lag:,}"
        )
        return True

    def _run(self, spans: Mapping[int, Span]) -> list[Done]:
        """Copy these spans by a Spark job: a task for each partition of the source."""
        tasks = [self._task(p, span) for p, span in sorted(spans.items())]
        if self._replay.plain:
            context = self.spark.sparkContext
            return list(context.parallelize(tasks, len(tasks)).map(copying.copy).collect())
        found = rows.records(self.spark, self._settings.source, self._replay.topic, spans)
        written = rows.copied(found, self._replay, self._loop_prefix)

        def copy(batches: "Iterable[pa.RecordBatch]") -> "Iterable[pa.RecordBatch]":
            import pyarrow as pa  # in a worker
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            one = copying.copy_rows(tasks[context.partitionId()], batches)
            values = (one.partition, one.next, one.records, one.looped, one.problem, one.final)
            types = (pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.string(), pa.bool_())
            names = [field.split()[0] for field in copying.RESULT.split(", ")]
            arrays = [pa.array([v], t) for v, t in zip(values, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

        ended = rows.as_bytes(written).mapInArrow(copy, copying.RESULT).collect()
        return [Done(*row) for row in ended]

    def _task(self, partition: int, span: Span) -> Task:
        topic = self.source.topic
        return Task(
            source=self._from_options,
            target=self._to_options,
            wanted=OffsetRange(topic.name, topic.topic_id, partition, span.start, span.end),
            to=self._replay.target,
            job=self._replay.name,
            run=self._opening.run,
            source_prefix=origins.prefix(
                self.source.cluster_id, topic.name, self.source.id_text, partition
            ),
            loop_prefix=self._loop_prefix.encode(),
            partitions=self._map,
            codec=self._replay.codec,
            transaction_records=self._replay.transaction_records,
            progress_from=self._standings[partition].at,
            dropped=self._dropped.get(partition, frozenset()),
        )

    @property
    def _loop_prefix(self) -> str:
        return f"{self.target.name};"

    # -- after -----------------------------------------------------------------------------------

    def check(self, *, accept: bool = False) -> list[str]:
        """Compare what was copied since the last check; return what is wrong, in words.

        What agrees, or is accepted, is noted as checked, with the offset map's file before that.
        """
        checked, nexts = self._opening.checked, self.nexts
        if all(checked.source.get(p, 0) >= at for p, at in nexts.items()):
            return []
        ends = self._target_ends()
        compared = self._compared(checked.source, checked.target, ends)
        wrong: list[str] = []
        runs = None
        if self._replay.check:
            wrong = self._removed(checked.target, compared.target.spans)
            outcome = checking.compare(self.spark, compared)
            wrong, runs = wrong + self._tell(outcome), outcome.runs
        if wrong and not accept:
            return wrong
        self._write_map(compared, ends, runs)
        self._opening.note_checked(Checked(checks=checked.checks + 1, source=nexts, target=ends))
        return wrong

    def verify(self) -> list[str]:
        """Compare all that the job ever copied; return what is wrong.

        What retention has taken from the source by now is not compared.
        """
        binding = self._opening.binding
        assert binding is not None
        compared = self._all(self._target_ends())
        wrong = self._removed(binding.target_starts, compared.target.spans)
        return wrong + self._tell(checking.compare(self.spark, compared))

    def _all(self, ends: Mapping[int, int]) -> Compared:
        binding = self._opening.binding
        assert binding is not None
        starts = edges(self._from, self.source.at(EARLIEST))
        first = {tp.partition: offset for tp, offset in starts.items()}
        there = {
            p: max(standing.progress.start, first[p]) for p, standing in self._standings.items()
        }
        return replace(self._compared(there, binding.target_starts, ends), all_of_job=True)

    def _removed(self, wanted: Mapping[int, int], there: Mapping[int, Span]) -> list[str]:
        """Tell what was removed from the target before it could be compared."""
        return [
            f"target {self._replay.target}-{p}: offsets {wanted[p]} to {span.start - 1} were "
            "removed (retention, DeleteRecords) and cannot be compared"
            for p, span in sorted(there.items())
            if wanted.get(p, 0) < span.start
        ]

    def _compared(
        self, starts: Mapping[int, int], target_starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> Compared:
        young = {p: s.progress.start for p, s in self._standings.items()}
        logs = edges(self._to, self.target.at(EARLIEST))
        first = {
            tp.partition: max(at, target_starts.get(tp.partition, 0)) for tp, at in logs.items()
        }
        return Compared(
            self._replay,
            Side(
                self._settings.source,
                self._from_options,
                self.source.described,
                checking.spans_between({**young, **starts}, self.nexts),
            ),
            Side(
                self._target_config,
                self._to_options,
                self.target.described,
                checking.spans_between(first, ends),
            ),
            self.source.name,
            self._loop_prefix,
            self._dropped,
        )

    def _target_ends(self) -> dict[int, int]:
        """Return where the target ends, once no transaction hides anything before that."""
        ends = progress.settled(self._to, list(self.target.at(LATEST)))
        return {tp.partition: offset for tp, offset in ends.items()}

    def _tell(self, outcome: Outcome) -> list[str]:
        self.totals.checked += outcome.copied
        self.totals.gaps += outcome.gaps
        self._say(
            f"checked: {plural(outcome.records, 'record')} and {plural(outcome.gaps, 'gap')} in "
            "the source, "
            f"{outcome.copied:,} to copy, {plural(len(outcome.wrong), 'problem')}"
        )
        return outcome.wrong

    def _write_map(
        self, compared: Compared, ends: Mapping[int, int], runs: list[Run] | None
    ) -> None:
        checks = self._opening.checked.checks
        if self._replay.offset_map is None:
            return
        folder = Path(self._replay.offset_map)
        if not offset_map.complete(folder, checks):  # it was asked for later, or files are gone
            for path in folder.glob("check-*.parquet"):
                path.unlink()
            compared, runs = self._all(ends), None
            for number in range(checks):
                offset_map.write(folder, number, [])
        if runs is None:
            runs = checking.target_runs(self.spark, compared)
        self.totals.map_rows += offset_map.write(folder, checks, runs)

    def result(self) -> dict[str, Any]:
        """Return the run's result."""
        totals = self.totals
        return {
            "job": self._replay.name,
            "from": self.source.name,
            "to": self.target.name,
            "records": totals.records,
            "looped": totals.looped,
            "duplicates_dropped": sum(map(len, self._dropped.values())),
            "rounds": totals.rounds,
            "records_per_s": round(totals.records / totals.seconds) if totals.seconds else 0,
            "checked": totals.checked,
            "gaps": totals.gaps,
            "unchecked_offsets": opening.lag_of(self._opening.checked.source, self.nexts),
            "next": {str(p): at for p, at in sorted(self.nexts.items())},
            "total": sum(s.progress.records for s in self._standings.values()),
        }

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # no one may be listening any more
            sys.stderr.write(f"{self._replay.name}: {text}\n")
