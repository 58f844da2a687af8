"""One topic's way into its table: ask, plan, run tasks, count, commit; and again.

Invariants: where to begin comes from the table, where to end from the partition's leader: there is
no other checkpoint. A batch is committed only when every offset of its plan is a row, a dead
letter, or was found by another reader to hold no record. Dead letters are committed before rows: a
run that died between both leaves dead letters beyond the rows' offsets, which the next run counts
as such instead of judging them again.
"""

import contextlib
import errno
import json
import pickle  # of our own tasks alone  # nosec B403
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec.structs import replace as changed
from pyarrow import fs

from ottla.model.errors import ConfigError, ErrorCode, OttlaError, UnknownTopicError
from ottla.model.printable import plural
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines import interrupts
from ottla.pipelines.lake import asking, gaps
from ottla.pipelines.lake.asking import CLIENT_ID, Topic
from ottla.pipelines.lake.avro_columns import AvroColumns
from ottla.pipelines.lake.dates import rule_of
from ottla.pipelines.lake.json_columns import JsonColumns
from ottla.pipelines.lake.opening import Tables
from ottla.pipelines.lake.schemas import (
    DEAD,
    META,
    META_COLUMNS,
    ORIGINS,
    VALUE,
    changes,
    given_schema,
    merged,
    refuse_changes,
    settled,
    widened,
    widens,
)
from ottla.pipelines.lake.settings import Settings
from ottla.pipelines.lake.spans import Span, plan
from ottla.pipelines.lake.state import Account
from ottla.pipelines.lake.tables import CLUSTER, TOPIC, TOPIC_ID, ConflictError
from ottla.pipelines.lake.writing import File, FileWriter, Plan, Task, Written, write
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.options import SourceOptions, parse_options
from ottla.pipelines.source.ranges import OffsetRange, divided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES = 5
RETRY_WAIT_S = 2.0
LASTING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
)
"""What a file system says that it will say again."""
LEAST_DEAD = 100
"""Fewer dead letters in a batch fail no run."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch brought."""

    number: int
    rows: int
    dead: int
    gaps: int
    seconds: float


class Landing:
    """Lands one topic. `batches`: what this run has landed so far."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.name = name
        self.batches: list[Batch] = []
        self.held: dict[int, Span] = {}
        self._settings = settings
        self._value, self._layout = settings.of(name)
        self._given = self._given_schema()
        self._wanted = self._wanted_columns()
        self._plan: Plan | None = None
        self._epochs: dict[int, int] = {}
        self._patience_s = 60.0

    def _given_schema(self) -> pa.Schema | None:
        value = self._value
        if value.format == "raw":
            return None
        if value.schema is None:
            raise ConfigError(f"[value]: format {value.format} needs a schema; --infer offers one")
        schema = given_schema(value.schema)
        taken = {*META_COLUMNS, VALUE}
        if self._layout.date is not None and self._layout.date != self._layout.date_column:
            taken.add(self._layout.date_column)
        if clash := [n for n in schema.names if n.lower() in taken]:
            raise ConfigError(
                f"the schema's column {clash[0]} is called as one of the lake's own; "
                "leave it out, or rename date_column"
            )
        return schema

    def _wanted_columns(self) -> pa.Schema:
        values = [] if self._given is None else list(self._given)
        if self._given is None or self._value.keep:
            values.append(pa.field(VALUE, pa.binary()))
        wanted = pa.schema([*values, *META])
        if self._value.format == "json":
            JsonColumns(pa.schema(values), strict=True)  # are there types that JSON has not?
        if self._layout.date is None:
            return wanted
        rule_of(self._layout.date, wanted)
        column = self._layout.date_column
        return wanted if column in wanted.names else wanted.append(pa.field(column, pa.date32()))

    # -- before Spark ------------------------------------------------------------------------------

    def open(self, cluster: Cluster, tables: Tables, *, widen: bool = False) -> None:
        """Ask for the topic and open its tables; OttlaError if they belong to something else."""
        topic = self.topic = asking.described(cluster, self.name)
        found = tables.open(self.name)
        column = None if self._layout.date is None else self._layout.date_column
        if found is None:
            tables.refuse_strangers(self.name)
            bound = {CLUSTER: topic.cluster_id, TOPIC: topic.name, TOPIC_ID: topic.topic_id}
            found = tables.create(self.name, self._wanted, DEAD, column, bound)
        self.rows, self.dead = found
        self._refuse_others(topic)
        if not self.rows.state.accounts:
            starts = self._starts(cluster, asking.held(cluster, topic))
            accounts = {p: Account(start=s, next=s) for p, s in starts.items()}
            self.rows.append([], self.rows.state.after(accounts))
        target = self.rows.target(self._layout.compression)
        if target.date_column != column:
            raise OttlaError(
                f"{self.rows.where}: its partitions are {target.date_column or 'none'}, the "
                f"settings say {column or 'none'}: set [layout] so, or name another lake"
            )
        self._fit_schema(self._wanted, widen=widen)

    def _starts(self, cluster: Cluster, held: Mapping[int, Span]) -> dict[int, int]:
        wanted = self._settings.lake.start_timestamp()
        if wanted not in (EARLIEST, LATEST):
            return asking.offsets_at(cluster, self.topic, wanted)
        return {p: s.start if wanted == EARLIEST else s.end for p, s in held.items()}

    def _refuse_others(self, topic: Topic) -> None:
        for table in (self.rows, self.dead):
            said = table.properties
            if said.get(TOPIC) != topic.name:
                whose = f"of topic {said[TOPIC]}" if TOPIC in said else "not made by this job"
                raise OttlaError(f"{table.where}: the table is {whose}; name another lake")
            if said.get(CLUSTER, "") != topic.cluster_id:
                raise OttlaError(
                    f"{table.where} is of cluster {said.get(CLUSTER)}, this is "
                    f"{topic.cluster_id}; name another lake"
                )
            self._refuse_anew(said.get(TOPIC_ID, ""), topic.topic_id)

    def _refuse_anew(self, known: str, found: str) -> None:
        if known and found and known != found:
            raise UnknownTopicError(
                f"topic {self.name} was deleted and created again: its offsets are not those that "
                f"landed in {self.rows.where}; name another lake"
            )

    def _fit_schema(self, wanted: pa.Schema, *, widen: bool) -> None:
        """Make the table's columns those of the settings and what it has; refuse other types."""
        types = {field.name: field.type for field in self.rows.schema}
        found = changes(types, wanted)
        if found and widen and all(widens(types[name], kind) for name, kind in found.items()):
            self._rewrite(found)
        elif found:
            refuse_changes(self.rows.where, types, found)
        known = self.rows.schema
        if (wider := widened(known, wanted)) != known:
            self.rows.widen(wider)
        self._make_plan()

    def _rewrite(self, kinds: Mapping[str, pa.DataType]) -> None:
        """Rewrite all rows with wider types, in one commit."""
        files: list[File] = []
        target = self.rows.retyped(kinds, self._layout.compression)
        writer = FileWriter(target, files)
        for batch in self.rows.read():
            writer.add(pa.Table.from_batches([batch]))
        writer.flush()
        self.rows.replace(target.schema, files, self.rows.state.after({}))

    def _make_plan(self) -> None:
        layout, value = self._layout, self._value
        target = self.rows.target(layout.compression)
        own = {*META_COLUMNS, VALUE, *([target.date_column] if layout.date is not None else [])}
        if layout.date == target.date_column:
            own.discard(target.date_column)
        schema = avro = None
        if self._given is not None:
            schema = pa.schema([f for f in target.schema if f.name not in own])
            if value.format == "avro":
                avro = AvroColumns.of(schema, Path(value.schema or ""), value.framing)
        self._plan = Plan(
            schema=schema,
            avro=avro,
            strict=value.drift != "ignore",
            keep=value.keep,
            date=None if layout.date is None else rule_of(layout.date, target.schema),
            rows=target,
            dead=self.dead.target(layout.compression),
        )

    # -- asking the cluster ------------------------------------------------------------------------

    def look(self, cluster: Cluster) -> dict[int, int]:
        """Ask which offsets the leaders confirm now; return the ends, by partition.

        OttlaError if the topic is another one, or the cluster holds less than has landed: after an
        unclean election a log may be longer again than what has landed, which the epochs tell.
        """
        topic = asking.described(cluster, self.name)
        self._refuse_anew(self.topic.topic_id, topic.topic_id)
        self.topic = topic
        self._patience_s = cluster.options.api_timeout_ms / 1000
        held = asking.held(cluster, topic)
        accounts = self.rows.state.accounts
        for p, span in held.items():
            if p in accounts and accounts[p].next > span.end:
                self._refuse_changed(p, f"ends at {span.end}", accounts[p].next)
        before = {p: a.epoch for p, a in accounts.items() if a.epoch >= 0 and p in held}
        for p, end in asking.epoch_ends(cluster, topic, before).items():
            if 0 <= end < accounts[p].next:
                self._refuse_changed(p, f"was cut to {end} offsets", accounts[p].next)
        self._epochs = {p: cluster.client.leader_epoch(topic.name, p) for p in held}
        self.held = held
        return {p: span.end for p, span in held.items()}

    def _refuse_changed(self, partition: int, what: str, landed: int) -> None:
        raise OttlaError(
            f"{self.name}-{partition} {what} in the cluster, offsets up to {landed} have "
            "landed: the cluster lost records (an unclean election?); name another lake for what "
            "it has now"
        )

    def account(self, partition: int) -> Account:
        """Return what the table says of a partition; one that came later begins at its start."""
        return self.rows.state.accounts.get(partition, Account(start=0, next=0))

    def missing(self, ends: Mapping[int, int]) -> dict[int, Span]:
        """Return what has not landed up to these ends."""
        found = {p: Span(self.account(p).next, end) for p, end in ends.items()}
        return {p: span for p, span in found.items() if span.end > span.start}

    def lag(self, ends: Mapping[int, int]) -> int:
        return sum(span.size for span in self.missing(ends).values())

    # -- landing -----------------------------------------------------------------------------------

    def land_next(self, spark: "SparkSession", ends: Mapping[int, int]) -> Batch | None:
        """Land the next batch; None if everything has landed. Tries again what may pass."""
        for attempt in range(1, TRIES + 1):
            began = time.monotonic()
            todo = self.missing(ends)
            if not todo:
                return None
            try:
                batch = self._skip(todo) or self._land(spark, todo)
                self.batches.append(batch)
                return batch
            except Exception as error:  # Spark raises what it likes: an executor is gone
                if (
                    interrupts.caused(error)
                    or attempt == TRIES
                    or self._lasts(error, time.monotonic() - began)
                ):
                    raise
                time.sleep(RETRY_WAIT_S * attempt)
                for table in (self.rows, self.dead):
                    table.refresh()
        return None

    def _lasts(self, error: Exception, after_s: float) -> bool:
        """Return whether an error would come again: a full disk, or a cluster that was silent."""
        if isinstance(error, OSError):
            return error.errno in LASTING
        if isinstance(error, ConflictError) or not isinstance(error, OttlaError):
            return isinstance(error, ConflictError)
        silent = error.code == ErrorCode.NETWORK_EXCEPTION and after_s >= self._patience_s
        return silent or not error.retriable

    def _skip(self, todo: Mapping[int, Span]) -> Batch | None:
        """Keep account of what the cluster removed before it landed; OttlaError unless it may."""
        lost = {
            p: Span(span.start, min(span.end, self.held[p].start))
            for p, span in todo.items()
            if span.start < self.held[p].start
        }
        if not lost:
            return None
        if self._settings.lake.on_loss == "fail":
            partition, span = min(lost.items())
            raise OttlaError(
                f"{self.name}-{partition}: offsets {span.start}..{span.end - 1} were removed from "
                'the cluster before they landed; on_loss = "skip" goes on behind them and keeps '
                "account"
            )
        accounts = {
            p: changed(self.account(p), next=s.end, lost=self.account(p).lost + s.size)
            for p, s in lost.items()
        }
        self.rows.append([], self.rows.state.after(accounts))
        return Batch(self.rows.state.batch, 0, 0, 0, 0.0)

    def _land(self, spark: "SparkSession", todo: Mapping[int, Span]) -> Batch:
        began = time.monotonic()
        batch = plan({p: [span] for p, span in todo.items()}, self._settings.lake.batch_records)
        written: list[Written] = []
        try:
            for _ in range(2):
                written = self._run(spark, batch)
                if not self._widen(merged_seen(written)):
                    break
                self._remove(written)
            holes = holes_of(self.name, batch, written)
            self._check_gaps(holes)
            self._check_dead(written)
            accounts = self._accounts(batch, written, holes)
            letters = [file for one in written for file in one.dead]
            if letters:
                self.dead.append(letters, self.dead.state.after(accounts))
        except BaseException:
            self._remove(written)
            raise
        # From here on files may be named by a commit whose acknowledgement was lost.
        self.rows.append(
            [file for one in written for file in one.rows], self.rows.state.after(accounts)
        )
        return Batch(
            self.rows.state.batch,
            sum(file.rows for one in written for file in one.rows),
            sum(file.rows for one in written for file in one.dead),
            sum(hole.size for spans in holes.values() for hole in spans),
            time.monotonic() - began,
        )

    def _run(self, spark: "SparkSession", batch: Mapping[int, Span]) -> list[Written]:
        options, known = self._options(batch), self._known_dead(batch)
        assert self._plan is not None
        parallelism = spark.sparkContext.defaultParallelism
        tasks = [
            Task(options, wanted, self._plan, known.get(wanted.partition, frozenset()))
            for wanted in ranges(self.topic, batch, parallelism)
        ]
        written = run_tasks(spark, tasks)
        for one in written:
            if one.problem is not None:
                self._remove(written)
                raise OttlaError(one.problem, one.code)
        return written

    def _options(self, batch: Mapping[int, Span]) -> SourceOptions:
        given = {
            **self._settings.cluster.source_options(every=True),
            "assign": json.dumps({self.name: sorted(batch)}),
            "onDataLoss": "fail",
            "kafka.isolation.level": self._settings.lake.isolation,
        }
        given.setdefault("kafka.client.id", CLIENT_ID)
        return parse_options(given)

    def _known_dead(self, batch: Mapping[int, Span]) -> dict[int, frozenset[int]]:
        """Return the offsets of a batch that a run before made dead letters of, and then died."""
        ahead = {
            p: span.start
            for p, span in batch.items()
            if (there := self.dead.state.accounts.get(p)) and there.next > span.start
        }
        found: dict[int, set[int]] = {}
        if ahead:
            for rows in self.dead.read(("kafka_partition", "kafka_offset"), ahead):
                columns = (rows.column(n).to_pylist() for n in ("kafka_partition", "kafka_offset"))
                for partition, offset in zip(*columns, strict=True):
                    found.setdefault(partition, set()).add(offset)
        return {p: frozenset(o for o in found[p] if o >= ahead[p]) for p in found}

    def _widen(self, seen: pa.DataType) -> bool:
        """Add the columns that dead letters bring; return whether there are new ones."""
        plan = self._plan
        assert plan is not None
        if self._value.drift != "widen" or plan.schema is None or not pa.types.is_struct(seen):
            return False
        taken = [*META_COLUMNS, VALUE, self._layout.date_column]
        wider = widened(plan.schema, list(seen), taken)
        if wider == plan.schema:
            return False
        self.rows.widen(widened(self.rows.schema, wider))
        self._make_plan()
        return True

    def _check_gaps(self, holes: Mapping[int, Sequence[Span]]) -> None:
        """Ask the cluster about offsets that gave no record; OttlaError if there was one."""
        if not holes:
            return
        with asking.reached(self._settings.cluster, self._settings.lake.isolation) as cluster:
            wrong = cluster.run(gaps.records_in(cluster, self.topic, holes))
        if wrong:
            raise OttlaError(f"nothing was committed: {'; '.join(wrong)}")

    def _check_dead(self, written: Sequence[Written]) -> None:
        dead = sum(f.rows for one in written for f in one.dead)
        rows = sum(f.rows for one in written for f in one.rows)
        if dead >= LEAST_DEAD and dead > self._settings.lake.max_dead * (dead + rows):
            reasons: Counter[str] = Counter()
            for one in written:
                reasons.update(one.reasons)
            ((reason, count),) = reasons.most_common(1)
            raise OttlaError(
                f"{self.name}: {dead} of {plural(dead + rows, 'record')} would be dead letters "
                f"({reason}: {count}), more than lake.max_dead = "
                f"{self._settings.lake.max_dead}: nothing was committed. Correct the schema, or "
                "raise max_dead"
            )

    def _accounts(
        self,
        batch: Mapping[int, Span],
        written: Sequence[Written],
        holes: Mapping[int, Sequence[Span]],
    ) -> dict[int, Account]:
        found = {p: self.account(p) for p in self.held}
        for p, span in batch.items():
            of_this = [one for one in written if one.wanted.partition == p]
            dead = sum(f.rows for one in of_this for f in one.dead)
            found[p] = changed(
                found[p],
                next=span.end,
                epoch=self._epochs[p],
                dead=found[p].dead + dead + sum(one.known_dead for one in of_this),
                gaps=found[p].gaps + sum(hole.size for hole in holes.get(p, ())),
            )
        return found

    def _remove(self, written: Sequence[Written]) -> None:
        """Remove files that no commit will name; what cannot be removed, `clean` will."""
        for table, files in (
            (self.rows, [f for one in written for f in one.rows]),
            (self.dead, [f for one in written for f in one.dead]),
        ):
            system, root = fs.FileSystem.from_uri(table.uri)
            for file in files:
                with contextlib.suppress(OSError):
                    system.delete_file(f"{root}/{file.path}")

    # -- dead letters again ------------------------------------------------------------------------

    def land_dead(self) -> int:
        """Parse dead letters again with the schema of today; return how many became rows.

        Rows are committed first. Letters that are rows already, since a run died before it took
        them away, are only taken away.
        """
        letters = pa.Table.from_batches(self.dead.read(), self.dead.schema).combine_chunks()
        if not letters.num_rows:
            return 0
        names = dict(zip(META_COLUMNS, ORIGINS, strict=True)) | {VALUE: "value"}
        letters = letters.cast(DEAD)
        (records,) = letters.select(list(names)).rename_columns(list(names.values())).to_batches()
        assert self._plan is not None
        split = self._plan.rows_of(records, [])
        if self._widen(split.seen):
            split = self._plan.rows_of(records, [])
        there = {(row[0], row[1]) for row in self._landed(split.rows)}
        known = places(split.rows)
        rows = split.rows.filter(pa.array([place not in there for place in known], pa.bool_()))
        new_rows: list[File] = []
        new_dead: list[File] = []
        for target, some, files in (
            (self._plan.rows, rows, new_rows), (self._plan.dead, split.dead, new_dead),
        ):  # fmt: skip
            writer = FileWriter(target, files)
            writer.add(some)
            writer.flush()
        if new_rows:
            counts = Counter(partition for partition, _ in places(rows))
            accounts = {
                p: changed(self.account(p), dead=self.account(p).dead - n)
                for p, n in counts.items()
            }
            self.rows.append(new_rows, self.rows.state.after(accounts))
        if known:
            self.dead.replace(self.dead.schema, new_dead, self.dead.state.after({}))
        return int(rows.num_rows)

    def _landed(self, rows: pa.Table) -> Iterator[tuple[int, int]]:
        least: dict[int, int] = {}
        for partition, offset in places(rows):
            least[partition] = min(offset, least.get(partition, offset))
        if least:
            for batch in self.rows.read(("kafka_partition", "kafka_offset"), least):
                yield from places(batch)

    # -- after -------------------------------------------------------------------------------------

    def compare(self) -> tuple[list[str], int]:
        """Compare what the tables hold with what their commits say; return what is wrong.

        The number is that of rows and dead letters that others deleted since.
        """
        state = self.rows.state
        wrong, gone = [], 0
        for what, table, counted in (
            ("row", self.rows, state.total(lambda a: a.rows)),
            ("dead letter", self.dead, state.total(lambda a: a.dead)),
        ):
            there = table.rows()
            if there > counted:
                why = "was --land-dead killed? Run it again" if what != "row" else "who wrote them?"
                wrong.append(
                    f"{table.where} has {plural(there, what)}, {counted} have landed ({why})"
                )
            gone += max(0, counted - there)
        return wrong, gone


def places(rows: Any) -> list[tuple[int, int]]:
    """Return the partition and the offset of each row."""
    columns = (rows.column(name).to_pylist() for name in ("kafka_partition", "kafka_offset"))
    return list(zip(*columns, strict=True))


def run_tasks(spark: "SparkSession", tasks: Sequence[Task]) -> list[Written]:
    """Run tasks as a Spark job of one partition each."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [pickle.dumps(write(tasks[n])) for n in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], ["written"])

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(work, "written binary").collect()
    return [pickle.loads(row.written) for row in rows]  # noqa: S301 - our own tasks' # nosec B301


def ranges(topic: Topic, batch: Mapping[int, Span], parallelism: int) -> list[OffsetRange]:
    """Return what each task reads: no more than its share, the largest first.

    So no task is left that runs alone at the end for long.
    """
    whole = [OffsetRange(topic.name, topic.id_bytes, p, s.start, s.end) for p, s in batch.items()]
    share = -(-sum(one.size for one in whole) // parallelism)
    return sorted(divided(whole, None, share), key=lambda one: -one.size)


def holes_of(
    topic: str, batch: Mapping[int, Span], written: Sequence[Written]
) -> dict[int, list[Span]]:
    """Return the offsets that gave no record; OttlaError unless the tasks did just the batch."""
    at = {p: span.start for p, span in batch.items()}
    holes: dict[int, list[Span]] = {}
    for one in sorted(written, key=lambda one: (one.wanted.partition, one.wanted.start)):
        wanted = one.wanted
        if wanted.partition not in at:
            raise OttlaError(f"{topic}-{wanted.partition}: rows of a partition not asked for")
        if wanted.start < at[wanted.partition]:
            raise OttlaError(f"{topic}-{wanted.partition}: offset {wanted.start} stands twice")
        if wanted.start > at[wanted.partition]:  # the cluster says whether there were records
            holes.setdefault(wanted.partition, []).append(Span(at[wanted.partition], wanted.start))
        holes.setdefault(wanted.partition, []).extend(one.holes)
        at[wanted.partition] = wanted.end
    for p, span in batch.items():
        if at[p] < span.end:
            holes.setdefault(p, []).append(Span(at[p], span.end))
    return {p: spans for p, spans in holes.items() if spans}


def merged_seen(written: Sequence[Written]) -> pa.DataType:
    """Return the type of what all tasks saw with unknown fields."""
    found = pa.null()
    for one in written:
        found = merged(found, one.seen)
    return settled(found) if pa.types.is_struct(found) else found
