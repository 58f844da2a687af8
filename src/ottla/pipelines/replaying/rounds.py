"""Rounds: a numbered batch write each, then the check and the offset map.

Invariants: a round is committed with the note that says how far it got, so one that is run again
adds nothing; it is tried again from what is committed, ATTEMPTS times. What was copied counts as
checked only after both topics agreed and the offset map's file is in place.
"""

import contextlib
import re
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ottla.model.errors import ConfigError, OffsetOutOfRangeError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines import interrupts, job
from ottla.pipelines.replaying import checking, offset_map, rows, state
from ottla.pipelines.replaying.checking import spans_between
from ottla.pipelines.replaying.settings import Settings
from ottla.pipelines.replaying.state import State, Store, found_of
from ottla.pipelines.sink import progress
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.planning import edges
from ottla.pipelines.source.ranges import limited

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ATTEMPTS = 3
FINAL = re.compile(
    r"\bottla\.\S+\.(Config|CorruptRecord|OffsetOutOfRange|RecordTooLarge|UnknownTopic)Error: "
    r"|USER_RAISED_EXCEPTION"
)
"""Errors that another attempt would meet again."""
CONSUMERS = ("kafka.max.partition.fetch.bytes", "kafka.fetch.max.wait.ms")


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


class Rounds:
    """One run of a job; use it with `with`."""

    def __init__(self, settings: Settings, spark: "SparkSession | None" = None) -> None:
        self._settings = settings
        self._replay = settings.replay
        self._to_config = settings.target or settings.source
        self.spark: Any = spark
        self.totals = Totals()
        self._run = uuid.uuid4().hex
        self._clusters: list[Cluster] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for cluster in self._clusters:
            cluster.close()

    # -- before Spark ----------------------------------------------------------------------------

    def reach(self) -> None:
        """Ask both clusters for the topics; what does not fit is known in a second."""
        replay = self._replay
        self._from = Cluster(state.options_of(self._settings.source, replay.topic))
        self._to = Cluster(state.options_of(self._to_config, replay.target))
        self._clusters = [self._from, self._to]
        self.source = found_of(self._from, replay.topic)
        found = state.target_of(self._to, replay)
        given = self._to_config.source_options(every=True)
        connection = {name: text for name, text in given.items() if name not in CONSUMERS}
        self._store = Store(self._to, connection, replay)
        known = self._store.look()
        if known is not None:
            state.refuse_other(known, replay, self.source, found)
        if found is not None:
            self._target = found
            self._map = state.refuse_missing(replay, self.source, found)
            if known is None:
                state.refuse_new(replay, self.source, found, self._store)
            state.refuse_other_times(self._to, replay)
        self._create = found is None

    def open(self) -> None:
        """Bind the job, and shut out earlier runs."""
        replay = self._replay
        rows.refuse_bad_expressions(self.spark, replay)
        folder = None if replay.offset_map is None else Path(replay.offset_map)
        owner = (replay.name, self.source.name)
        if folder is not None:  # the map of a target that is still to be created is another's
            id_text = "none yet" if self._create else self._target.id_text
            offset_map.refuse_other(folder, *owner, id_text)
        if self._create:
            self._target = state.created(self._to, replay, self.source)
            self._map = state.refuse_missing(replay, self.source, self._target)
        starts = state.places(self._from, self.source, replay.start, "start")
        known = self._store.open()  # also ends what a run that was killed has left open
        if folder is not None:
            offset_map.open_folder(folder, *owner, self._target.id_text)
        if known is None:
            target_ends = self._target_ends()
            known = State(
                run=self._run, source=self.source.name, target=self._target.name,
                copies=replay.copies, starts=starts, before=starts, next=starts, checks=0,
                checked=starts, target_starts=target_ends, target_checked=target_ends, records=0,
            )  # fmt: skip
            self._store.keep(known)
        elif self._store.lost:
            self._again(known)
        self._keep(self._with_new_partitions(self._state))

    @property
    def _state(self) -> State:
        found = self._store.state
        assert found is not None
        return found

    @property
    def nexts(self) -> dict[int, int]:
        """The next offset of each partition of the source."""
        return self._state.next

    @property
    def _loop_prefix(self) -> str:
        return f"{self._target.name};"

    @property
    def poll_seconds(self) -> float:
        return self._replay.poll_seconds

    @property
    def total(self) -> int:
        """How many records all runs of the job have written."""
        return self._state.records + self._store.rows

    # -- what there is to do ---------------------------------------------------------------------

    def ends(self) -> dict[int, int]:
        """Return where this run of replay ends: `replay.end`."""
        return state.places(self._from, self.source, self._replay.end, "end")

    def refresh(self) -> dict[int, int]:
        """Look for new partitions, and return where the source ends now.

        OttlaError if one of the topics is another one by now.
        """
        source = found_of(self._from, self._replay.topic)
        target = found_of(self._to, self._replay.target)
        for known, now in ((self.source, source), (self._target, target)):
            if known.name != now.name:
                raise ConfigError(
                    f"topic {now.topic.name} was deleted and created again while it was copied"
                )
        self._map = state.refuse_missing(self._replay, source, target)
        self.source, self._target = source, target
        if set(source.topic.partitions) - set(self.nexts):
            self._keep(self._with_new_partitions(self._state))
        return _by_partition(edges(self._from, source.at(LATEST)))

    def _with_new_partitions(self, known: State) -> State:
        """Return a state in which partitions that are younger than the job begin at their start."""
        new = set(self.source.topic.partitions) - set(known.next)
        first = {p: at for p, at in self._firsts().items() if p in new}
        more = {
            name: {**getattr(known, name), **first}
            for name in ("starts", "before", "next", "checked")
        }
        return msgspec.structs.replace(known, run=self._run, **more)

    def _keep(self, new: State) -> None:
        """Keep a state that comes with no records; nothing if it is the same."""
        if new != self._state:
            self._store.keep(msgspec.structs.replace(new, records=self.total))

    def _firsts(self) -> dict[int, int]:
        return _by_partition(edges(self._from, self.source.at(EARLIEST)))

    # -- one round -------------------------------------------------------------------------------

    def copy_next(self, ends: Mapping[int, int]) -> bool:
        """Copy a round; return whether there was anything to do."""
        known = self._state
        upto = self._upto(ends)
        if upto == known.next:
            return False
        self._refuse_gone(known.next, upto)
        began, before = time.monotonic(), self.total
        new = msgspec.structs.replace(
            known, run=self._run, before=known.next, next=upto, records=before
        )
        self._write(new, self._store.batch + 1)
        copied, seconds = self.total - before, time.monotonic() - began
        self.totals.records += copied
        self.totals.rounds += 1
        self.totals.seconds += seconds
        lag = sum(max(0, end - upto.get(p, 0)) for p, end in ends.items())
        self._say(
            f"{plural(copied, 'record')}, {round(copied / max(seconds, 1e-9)):,}/s, lag {lag:,}"
        )
        return True

    def _refuse_gone(self, nexts: Mapping[int, int], upto: Mapping[int, int]) -> None:
        """Refuse a round that begins at an offset which the source has no more."""
        for p, first in sorted(self._firsts().items()):
            at = nexts.get(p, first)
            if at < min(first, upto.get(p, at)):
                raise OffsetOutOfRangeError(
                    f"{self._replay.topic}-{p}: offsets {at}..{first - 1} were "
                    "removed from the cluster before they were copied; to continue without them, "
                    "set another replay.job and another target (or replay.shared = true)"
                )

    def _upto(self, ends: Mapping[int, int]) -> dict[int, int]:
        """Return where the next round ends: about `batch_records` offsets, shared by what waits."""
        starts = {TopicPartition(self._replay.topic, p): at for p, at in self.nexts.items()}
        last = {tp: max(at, ends.get(tp.partition, 0)) for tp, at in starts.items()}
        return _by_partition(limited(starts, last, self._replay.batch_records))

    def _again(self, known: State) -> None:
        """Write what brokers had aborted of the newest round after it was decided."""
        self._say("the newest round is completed: brokers had aborted a part of it")
        self._write(known, self._store.batch)

    def _write(self, new: State, batch: int) -> None:
        """Copy what lies between `before` and `next` of a state, by a numbered batch write."""
        for attempt in range(ATTEMPTS):
            try:
                self._save(new, batch)
                break
            except Exception as error:  # a worker that was lost, whatever Spark calls it
                if interrupts.caused(error):
                    raise
                self._store.open()
                if self._store.batch == batch and not self._store.lost:
                    break
                if attempt == ATTEMPTS - 1 or FINAL.search(str(error)):
                    raise
                self._say(f"tried again, since {job.in_one_line(error)}")
        self._store.read()
        if self._state.run != new.run or self._store.batch != batch:
            raise OttlaError(f"another run of job {self._replay.name} has begun; this one ends")

    def _save(self, new: State, batch: int) -> None:
        from pyspark.sql import functions as f

        spans = spans_between(new.before, new.next)
        found = rows.records(self.spark, self._settings.source, self._replay.topic, spans)
        found = rows.copied(found, self._replay, self._loop_prefix)
        found = rows.with_source(found, self.source.name)
        partition = f.col("partition")
        if self._map is None:
            count = len(self._target.topic.partitions)
            partition = f.when(f.col("key").isNull(), partition % count)
        else:
            pairs = [f.lit(number) for pair in self._map.items() for number in pair]
            partition = f.create_map(*pairs)[partition]
        note = msgspec.json.encode(new).decode()
        options = {**self._store.options, "ottla.batch": str(batch), "ottla.note": note}
        found = found.withColumn("partition", partition.cast("int"))
        found.write.format("ottla").mode("append").options(**options).save()

    # -- after -----------------------------------------------------------------------------------

    def check(self, *, accept: bool = False) -> list[str]:
        """Compare what was copied since the last check; return what is wrong, in words.

        What agrees, or is accepted, counts as checked, with the offset map's file before that.
        """
        known = self._state
        if all(known.checked.get(p, 0) >= at for p, at in known.next.items()):
            return []
        ends = self._target_ends()
        wrong = []
        if self._replay.check:
            wrong = self._compared(known.checked, known.target_checked, ends)
        if wrong and not accept:
            return wrong
        self._write_map(known, ends)
        new = msgspec.structs.replace(
            known, checks=known.checks + 1, checked=known.next, target_checked=ends
        )
        self._keep(new)
        return wrong

    def verify(self) -> list[str]:
        """Compare all that the job ever copied; return what is wrong.

        What retention has taken from the source by now is not compared.
        """
        known, first = self._state, self._firsts()
        starts = {p: max(at, first[p]) for p, at in known.starts.items()}
        return self._compared(starts, known.target_starts, self._target_ends(), all_of_job=True)

    def _compared(
        self,
        starts: Mapping[int, int],
        target_starts: Mapping[int, int],
        ends: Mapping[int, int],
        *,
        all_of_job: bool = False,
    ) -> list[str]:
        from pyspark.sql import functions as f

        first = _by_partition(edges(self._to, self._target.at(EARLIEST)))
        wrong = [
            f"target {self._replay.target}-{p}: offsets {target_starts[p]} to {at - 1} were "
            "removed (retention, DeleteRecords) and cannot be compared"
            for p, at in sorted(first.items())
            if target_starts.get(p, 0) < at
        ]
        spans = spans_between(starts, self.nexts)
        found = rows.records(self.spark, self._settings.source, self._replay.topic, spans)
        looped = f.count_if(rows.loops(self._loop_prefix))
        records, loops = found.agg(f.count("*"), looped).collect()[0]
        wanted = rows.copied(found, self._replay, self._loop_prefix)
        there = self._there(target_starts, ends)
        if all_of_job:
            pairs = [f.lit(n) for p, (start, _) in spans.items() for n in (p, start)]
            there = there.where(f.col("offset") >= f.create_map(*pairs)[f.col("partition")])
        outcome = checking.compare(wanted, there, spans)
        gaps = sum(end - start for start, end in spans.values()) - records
        self.totals.checked += outcome.copied
        self.totals.gaps += gaps
        self.totals.looped += 0 if all_of_job else loops
        wrong += outcome.wrong
        self._say(
            f"checked: {plural(records, 'record')} and {plural(gaps, 'gap')} in the source, "
            f"{outcome.copied:,} to copy, {plural(len(wrong), 'problem')}"
        )
        return wrong

    def _there(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> "DataFrame":
        """Return the job's records of the target from some offsets on, as far as they are left."""
        first = _by_partition(edges(self._to, self._target.at(EARLIEST)))
        spans = spans_between({p: max(at, starts.get(p, 0)) for p, at in first.items()}, ends)
        found = rows.records(self.spark, self._to_config, self._replay.target, spans)
        return rows.with_origin(found, self.source.name)

    def _target_ends(self) -> dict[int, int]:
        """Return where the target ends, once no transaction hides anything before that."""
        return _by_partition(progress.settled(self._to, list(self._target.at(LATEST))))

    def _write_map(self, known: State, ends: Mapping[int, int]) -> None:
        if self._replay.offset_map is None:
            return
        folder, starts = Path(self._replay.offset_map), known.target_checked
        if not offset_map.complete(folder, known.checks):  # asked for later, or files are gone
            for path in folder.glob("check-*.parquet"):
                path.unlink()
            starts = known.target_starts
            for number in range(known.checks):
                offset_map.write(folder, number, [])
        runs = checking.runs(self._there(starts, ends), spans_between(known.starts, known.next))
        self.totals.map_rows += offset_map.write(folder, known.checks, runs)

    def result(self) -> dict[str, Any]:
        """Return what the job prints in the end."""
        known, totals = self._state, self.totals
        waiting = sum(at - known.checked.get(p, 0) for p, at in known.next.items())
        return {
            "job": self._replay.name,
            "from": self.source.name,
            "to": self._target.name,
            "records": totals.records,
            "looped": totals.looped,
            "rounds": totals.rounds,
            "records_per_s": round(totals.records / totals.seconds) if totals.seconds else 0,
            "checked": totals.checked,
            "gaps": totals.gaps,
            "unchecked_offsets": waiting,
            "next": {str(p): at for p, at in sorted(known.next.items())},
            "total": self.total,
        }

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # no one may be listening any more
            sys.stderr.write(f"{self._replay.name}: {text}\n")


def _by_partition(found: Mapping[TopicPartition, int]) -> dict[int, int]:
    return {tp.partition: offset for tp, offset in found.items()}
