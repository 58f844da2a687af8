"""Job: the rules for all partitions and brokers, on Spark.

Invariants: files are read once for all results but the table of events, which is made only if it is
asked for. What tasks hand on are Python's own objects, a piece per bucket: Spark has nothing to
compute with rows, and planning queries would take seconds. A task that reads holds a block of lines
and HELD rows, one that judges a bucket of rows (`packed.OF_BUCKET`); the driver holds what is per
broker: names of files, clocks, deaths, and times at which brokers wrote (`gathered.SIGNS`).
"""

import itertools
import pickle  # of what our own tasks return # nosec B403
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ottla.pipelines.timeline import clocks, read
from ottla.pipelines.timeline.facts import Brokers
from ottla.pipelines.timeline.files import Files
from ottla.pipelines.timeline.findings import Acted, Finding, stale_controllers
from ottla.pipelines.timeline.history import history
from ottla.pipelines.timeline.read import Reading, Wanted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

    from ottla.pipelines.timeline.gathered import Gathered
    from ottla.pipelines.timeline.packed import Table
    from ottla.pipelines.timeline.partition_facts import Agreed
    from ottla.pipelines.timeline.rows import Numbers, Rows, Texts

HELD = 250_000
"""Rows that a task which reads holds at most before it packs them: 25 MB."""
_GATHERED_BUCKET = -1
_PIECE = "bucket int, piece binary"
_RESULTS = 5000
RESULT = "topic string, partition int, what string, body string"
BODIES = {
    "states": "life int, leader_epoch int, leader int, isr string, version int, time_ms long, "
    "controller_epoch int",
    "terms": "life int, leader int, first_epoch int, last_epoch int, began_ms long, "
    "ended_from_ms long, ended_to_ms long, how string, own_word boolean, topic_id string, "
    "offset long",
    "gaps": "life int, after int, next int, start_from_ms long, start_to_ms long, end_ms long, "
    "least_ms long, most_ms long, how string",
    "findings": "kind string, level string, time_ms long, broker int, text string",
}
"""What a partition's history holds, and its columns behind `topic` and `partition`."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """What was made of the logs; tables are Spark's, and stay on the executors."""

    events: "DataFrame"
    """`events.Event` with `file`, `block`, `line`; `at_ms` is the time with clocks agreed.

    Lines that were not read are not in it. Each use reads the files again.
    """
    judged: "RDD[Judged]"
    """What the rules found, packed."""
    spark: "SparkSession"
    of_brokers: list[Finding]
    """Findings about no single partition."""
    shifts: dict[int, int]
    files: list[dict[str, Any]]
    lines: int
    unread: int
    dropped: int

    @property
    def result(self) -> "DataFrame":
        """The histories of all partitions: RESULT, one row for each of `BODIES`."""
        packed = self.judged.map(_body)
        return self.spark.createDataFrame(packed, "piece binary").mapInArrow(_rows, RESULT)

    def counts(self) -> Counter[str]:
        """Return how many there are of each of `BODIES`, and of `partitions`."""
        return sum(self.judged.map(_counts).collect(), Counter())

    def table(self, what: str) -> "DataFrame":
        """Return `states`, `terms`, `gaps` or `findings` of all partitions."""
        from pyspark.sql import functions as f

        rows = self.result.where(f.col("what") == what)
        body = f.from_json("body", BODIES[what]).alias("body")
        return rows.select("topic", "partition", body).select("topic", "partition", "body.*")

    def close(self) -> None:
        self.judged.unpersist()


Judged = tuple[dict[str, int], bytes]
"""Some partitions: counts, and the rows of RESULT as Arrow has them."""


def timeline(spark: "SparkSession", files: Files, wanted: Wanted, overlap_ms: int) -> Timeline:
    """Read the files and apply the rules."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    from ottla.pipelines.timeline.gathered import signs
    from ottla.pipelines.timeline.partition_facts import Agreed

    pieces = _pieces(spark, files, wanted)
    leads, gathered = _leads(pieces)
    found = _files(gathered)
    numbers = {row["file"]: number for number, row in enumerate(found)}
    shifts = clocks.shifts(leads)
    last_ms = max((row["last_ms"] or 0 for row in found), default=0)
    brokers = Brokers(gone=_gone(gathered, shifts), last_ms=last_ms)
    agreed = Agreed(shifts, numbers, wanted.topic, wanted.partitions)
    times = {b: some.tolist() for b, some in signs(gathered.times(), shifts).items()}
    rules = _Rules(times, brokers, overlap_ms, agreed)
    events = read.events_of(spark, files, wanted)
    return Timeline(
        events.withColumn("at_ms", f.col("time_ms") + _looked_up(shifts, f.col("broker"), 0)),
        pieces.mapPartitions(rules).persist(StorageLevel.MEMORY_AND_DISK),
        spark,
        stale_controllers(_acted(gathered, numbers)),
        shifts,
        found,
        sum(row["lines"] for row in found),
        sum(row["unread"] for row in found),
        sum(row["dropped"] or 0 for row in found),
    )


def _looked_up(known: Mapping[Any, int], key: Any, otherwise: int) -> Any:
    from pyspark.sql import functions as f

    if not known:
        return f.lit(otherwise)
    pairs = f.create_map(*[f.lit(item) for pair in known.items() for item in pair])
    return f.coalesce(f.try_element_at(pairs, key), f.lit(otherwise))


def _pieces(spark: "SparkSession", files: Files, wanted: Wanted) -> "RDD[Piece]":
    """Return pieces, all of a bucket in one task; what was gathered is with the first of them.

    The pieces stay with those that read, until this is let go of: so files are read once.
    """
    from ottla.pipelines.timeline.packed import buckets_for

    context = spark.sparkContext
    buckets = buckets_for(read.size_of(spark, files), context.defaultParallelism)
    plain, others = read.plain_and_others(files)
    found: list[RDD[Piece]] = []
    if plain or not others:
        parts = read.splits_of(spark, plain)
        numbers = context.parallelize(range(len(parts)), max(len(parts), 1))
        found.append(numbers.mapPartitions(_Packing(Reading(wanted, parts), buckets)))
    if others:
        packing = _Packing(Reading(wanted), buckets)
        table = read.lines_of(spark, others).mapInArrow(packing.in_arrow, _PIECE)
        found.append(table.rdd.map(tuple))
    whole = found[0] if len(found) == 1 else context.union(found)
    return whole.partitionBy(buckets, _task_of)


def _task_of(bucket: int) -> int:
    return max(bucket, 0)


def _leads(pieces: "RDD[Piece]") -> tuple[list[clocks.Lead], "Gathered"]:
    """Return by how much brokers acted before what they acted on was decided; and the rest."""
    from ottla.pipelines.timeline.gathered import Gathered

    gathered = Gathered()
    most: dict[tuple[int, int], int] = {}
    for reported, some in pieces.mapPartitions(_leading).collect():
        for one in some:
            gathered.merge(pickle.loads(one))  # noqa: S301 - of our own tasks # nosec B301
        for key, ms in reported.items():
            most[key] = max(most.get(key, ms), ms)
    return [clocks.Lead(*key, ms) for key, ms in most.items()], gathered


def _files(gathered: "Gathered") -> list[dict[str, Any]]:
    """Return the files, the one that begins first being the first."""
    rows = [
        {**asdict(one), "file": name, "brokers": sorted(one.brokers)}
        for name, one in gathered.files.items()
    ]
    return sorted(rows, key=lambda r: (r["first_ms"] or 0, r["file"]))


def _gone(gathered: "Gathered", shifts: Mapping[int, int]) -> dict[int, list[int]]:
    gone: dict[int, list[int]] = {}
    for about, broker, time_ms in gathered.gone:
        gone.setdefault(about, []).append(time_ms + shifts.get(broker, 0))
    return {broker: sorted(times) for broker, times in gone.items()}


def _acted(gathered: "Gathered", numbers: Mapping[str, int]) -> list[Acted]:
    return [
        Acted(broker, numbers[file], epoch, first[:2], first[2], last[:2], last[2])
        for (broker, file, epoch), (first, last) in gathered.acted.items()
    ]


Piece = tuple[int, bytes]
"""A bucket, and some of its rows; or _GATHERED_BUCKET, and what a task gathered."""


class _Packing:
    """Lines to pieces, as Spark's Python workers run it."""

    def __init__(self, reading: Reading, buckets: int) -> None:
        self._reading = reading
        self._buckets = buckets

    def __call__(self, given: Iterator[Any]) -> Iterator[Piece]:
        import numpy as np

        from ottla.pipelines.timeline import packed
        from ottla.pipelines.timeline.gathered import Gathered, named

        gathered = Gathered()
        held: list[Rows] = []
        count = 0
        texts = None
        wanted = self._reading.wanted
        for texts, block in self._reading.blocks(given):
            rows = wanted.in_time(block.rows)
            if not len(rows):
                continue
            gathered.add(rows, named(rows, texts))
            topic = None if wanted.topic is None else texts.find(wanted.topic)
            held.append(packed.ruled(rows, topic, wanted.partitions))
            count += len(held[-1])
            if count >= HELD:
                yield from packed.pieces(np.concatenate(held), texts, self._buckets)
                held, count = [], 0
        if texts is not None and count:
            yield from packed.pieces(np.concatenate(held), texts, self._buckets)
        if gathered.files:
            yield _GATHERED_BUCKET, pickle.dumps(gathered)

    def in_arrow(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """Do so with lines that Spark reads."""
        import pyarrow as pa

        for bucket, piece in self(batches):
            columns = [pa.array([bucket], pa.int32()), pa.array([piece], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["bucket", "piece"])


def _leading(pieces: Iterable[Piece]) -> Iterator[tuple[dict[tuple[int, int], int], list[bytes]]]:
    """Turn a bucket's pieces into leads; what was gathered is handed on."""
    from ottla.pipelines.timeline.packed import unpacked
    from ottla.pipelines.timeline.partition_facts import leads

    gathered: list[bytes] = []
    some = list(_of_bucket(pieces, gathered))
    yield leads(*unpacked(some)) if some else {}, gathered


def _of_bucket(pieces: Iterable[Piece], gathered: list[bytes]) -> Iterator[bytes]:
    for bucket, piece in pieces:
        if bucket == _GATHERED_BUCKET:
            gathered.append(piece)
        else:
            yield piece


class _Rules:
    """The rules, as Spark's Python workers run them: a bucket's pieces to results."""

    def __init__(
        self, signs: dict[int, list[int]], brokers: Brokers, overlap_ms: int, agreed: "Agreed"
    ) -> None:
        self._signs = signs
        self._gone = brokers.gone
        self._last_ms = brokers.last_ms
        self._overlap_ms = overlap_ms
        self._agreed = agreed

    def _sign(self, broker: int, before: int) -> int | None:
        times = self._signs.get(broker, [])
        place = bisect_left(times, before)
        return times[place - 1] if place else None

    def __call__(self, pieces: Iterable[Piece]) -> Iterator[Judged]:
        from ottla.pipelines.timeline.columns import reported
        from ottla.pipelines.timeline.packed import unpacked
        from ottla.pipelines.timeline.partition_facts import (
            by_partition,
            ordered,
        )

        some = list(_of_bucket(pieces, []))
        if not some:
            return
        unordered, texts = unpacked(some)
        rows, ends = ordered(unordered, texts, self._agreed)
        found = reported(rows, ends, texts, self._gone, self._overlap_ms)
        names = _names(rows, ends, texts)
        held = _Results()
        for what in ("states", "terms", "gaps"):
            of, several = getattr(found, what)
            held.add(what, (names[at] for at in of.tolist()), several)
        held.partitions = int((~found.odd).sum())
        brokers = Brokers(self._sign, self._gone, self._last_ms)
        for topic, partition, facts in by_partition(rows, ends, texts, found.odd):
            one = history(facts, brokers, self._overlap_ms)
            for what in BODIES:
                held.add(what, itertools.repeat((topic, partition)), getattr(one, what))
            held.partitions += 1
            if len(held.bodies) >= _RESULTS:
                yield held.taken()
        if held.partitions:
            yield held.taken()


def _names(rows: "Table", ends: "Numbers", texts: "Texts") -> list[tuple[str, int]]:
    """Return what the partitions are called."""
    first = rows[ends[:-1]]
    topics = (texts.names[topic] for topic in first["topic"].tolist())
    return list(zip(topics, first["partition"].tolist(), strict=True))


class _Results:
    """Rows of RESULT on their way to Arrow."""

    def __init__(self) -> None:
        self.partitions = 0
        self.names: list[tuple[str, int]] = []
        self.kinds: list[str] = []
        self.bodies: list[bytes] = []
        self._encode = msgspec.json.Encoder().encode

    def add(self, what: str, names: Iterable[tuple[str, int]], several: Iterable[Any]) -> None:
        before = len(self.bodies)
        self.bodies += map(self._encode, several)
        count = len(self.bodies) - before
        self.names += itertools.islice(names, count)
        self.kinds += [what] * count

    def taken(self) -> Judged:
        """Return what is held, and hold nothing more."""
        import pyarrow as pa

        arrays = [
            pa.array([topic for topic, _ in self.names], pa.string()),
            pa.array([partition for _, partition in self.names], pa.int32()),
            pa.array(self.kinds, pa.string()),
            pa.array(self.bodies, pa.string()),
        ]
        names = [field.split()[0] for field in RESULT.split(", ")]
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        counts = {**Counter(self.kinds), "partitions": self.partitions}
        self.partitions = 0
        for some in (self.names, self.kinds, self.bodies):
            some.clear()
        return counts, sink.getvalue().to_pybytes()


def _counts(judged: Judged) -> Counter[str]:
    return Counter(judged[0])


def _body(judged: Judged) -> tuple[bytes]:
    return (judged[1],)


def _rows(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Unpack what `_judged` has packed, as Spark's Python workers run it."""
    import pyarrow as pa

    for batch in batches:
        for piece in batch.column(0):
            yield from pa.ipc.open_stream(piece.as_buffer())
