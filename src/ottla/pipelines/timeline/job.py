"""Job: the rules for all partitions and brokers, on Spark.

Who may call: `command`, tests. Invariants: files are read once for all results but the table of
events, which is made only if it is asked for. A task that reads holds a block of lines and HELD
rows, one that judges a bucket of rows (`packed.OF_BUCKET`); the driver holds what is per broker:
names of files, clocks, deaths, and times at which brokers wrote (`gathered.SIGNS`).
"""

import itertools
import pickle
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ottla.pipelines.timeline import clocks
from ottla.pipelines.timeline.facts import Brokers
from ottla.pipelines.timeline.files import Files
from ottla.pipelines.timeline.findings import Acted, Finding, stale_controllers
from ottla.pipelines.timeline.history import history
from ottla.pipelines.timeline.read import Reading, Wanted, events_of, sources

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ottla.pipelines.timeline.gathered import Gathered
    from ottla.pipelines.timeline.partition_facts import Agreed
    from ottla.pipelines.timeline.rows import Rows, Texts

HELD = 250_000
"""Rows that a task which reads holds at most before it packs them: 25 MB."""
_PACKED = "bucket int, piece binary"
_LEADS = "controller int, broker int, ms long, gathered binary"
_GATHERED_BUCKET = -1
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
    packed: "DataFrame"
    """What the rules look at, packed."""
    result: "DataFrame"
    of_brokers: list[Finding]
    """Findings about no single partition."""
    shifts: dict[int, int]
    files: list[dict[str, Any]]
    lines: int
    unread: int
    dropped: int

    def table(self, what: str) -> "DataFrame":
        """Return `states`, `terms`, `gaps` or `findings` of all partitions."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

        rows = self.result.where(f.col("what") == what)
        body = f.from_json("body", BODIES[what]).alias("body")
        return rows.select("topic", "partition", body).select("topic", "partition", "body.*")

    def close(self) -> None:
        self.result.unpersist()
        self.packed.unpersist()


def timeline(spark: "SparkSession", files: Files, wanted: Wanted, overlap_ms: int) -> Timeline:
    """Read the files and apply the rules."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    from ottla.pipelines.timeline.gathered import signs  # noqa: PLC0415 - an extra
    from ottla.pipelines.timeline.partition_facts import Agreed  # noqa: PLC0415 - an extra

    packed = _packed(spark, files, wanted).persist()
    leads, gathered = _leads(packed)
    found = _files(gathered)
    numbers = {row["file"]: number for number, row in enumerate(found)}
    shifts = clocks.shifts(leads)
    last_ms = max((row["last_ms"] or 0 for row in found), default=0)
    brokers = Brokers(gone=_gone(gathered, shifts), last_ms=last_ms)
    agreed = Agreed(shifts, numbers, wanted.topic, wanted.partitions)
    times = {b: some.tolist() for b, some in signs(gathered.times(), shifts).items()}
    result = packed.mapInArrow(_Rules(times, brokers, overlap_ms, agreed), RESULT).persist()
    events = events_of(spark, files, wanted)
    return Timeline(
        events.withColumn("at_ms", f.col("time_ms") + _looked_up(shifts, f.col("broker"), 0)),
        packed,
        result,
        stale_controllers(_acted(gathered, numbers)),
        shifts,
        found,
        sum(row["lines"] for row in found),
        sum(row["unread"] for row in found),
        sum(row["dropped"] or 0 for row in found),
    )


def _looked_up(known: Mapping[Any, int], key: Any, otherwise: int) -> Any:
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    if not known:
        return f.lit(otherwise)
    pairs = f.create_map(*[f.lit(item) for pair in known.items() for item in pair])
    return f.coalesce(f.try_element_at(pairs, key), f.lit(otherwise))


def _packed(spark: "SparkSession", files: Files, wanted: Wanted) -> "DataFrame":
    """Return pieces by bucket, those of a bucket one after the other in one task."""
    from ottla.pipelines.timeline.packed import buckets_for  # noqa: PLC0415 - an extra
    from ottla.pipelines.timeline.reading import size_of  # noqa: PLC0415 - an extra

    buckets = buckets_for(size_of([*files.logs, *files.journals]))
    tables = [
        table.mapInArrow(_Packing(reading, buckets), _PACKED)
        for table, reading in sources(spark, files, wanted)
    ]
    table = tables[0] if len(tables) == 1 else tables[0].unionByName(tables[1])
    tasks = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return table.repartition(tasks, "bucket").sortWithinPartitions("bucket")


def _leads(packed: "DataFrame") -> tuple[list[clocks.Lead], "Gathered"]:
    """Return by how much brokers acted before what they acted on was decided; and the rest."""
    from ottla.pipelines.timeline.gathered import Gathered  # noqa: PLC0415 - an extra

    gathered = Gathered()
    most: dict[tuple[int, int], int] = {}
    for row in packed.mapInArrow(_leading, _LEADS).collect():
        if row["gathered"] is not None:
            gathered = pickle.loads(row["gathered"])  # noqa: S301 - of our own tasks
        else:
            key = row["controller"], row["broker"]
            most[key] = max(most.get(key, row["ms"]), row["ms"])
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


class _Packing:
    """Lines to pieces, as Spark's Python workers run it."""

    def __init__(self, reading: Reading, buckets: int) -> None:
        self._reading = reading
        self._buckets = buckets

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        from ottla.pipelines.timeline import packed  # noqa: PLC0415 - an extra
        from ottla.pipelines.timeline.gathered import Gathered, named  # noqa: PLC0415 - an extra

        gathered = Gathered()
        held: list[Rows] = []
        count = 0
        texts = None
        wanted = self._reading.wanted
        for texts, block in self._reading.blocks(batches):
            rows = wanted.in_time(block.rows)
            if not len(rows):
                continue
            gathered.add(rows, named(rows, texts))
            topic = None if wanted.topic is None else texts.find(wanted.topic)
            held.append(packed.ruled(rows, topic, wanted.partitions))
            count += len(held[-1])
            if count >= HELD:
                yield _pieces(held, texts, self._buckets)
                held, count = [], 0
        if texts is not None and count:
            yield _pieces(held, texts, self._buckets)
        if gathered.files:
            yield _to_arrow([(_GATHERED_BUCKET, pickle.dumps(gathered))], _PACKED)


def _pieces(held: Sequence["Rows"], texts: "Texts", buckets: int) -> "pa.RecordBatch":
    import numpy as np  # noqa: PLC0415 - an extra

    from ottla.pipelines.timeline.packed import pieces  # noqa: PLC0415 - an extra

    return _to_arrow(list(pieces(np.concatenate(held), texts, buckets)), _PACKED)


def _leading(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Turn pieces into leads, and all that was gathered into one row."""
    from ottla.pipelines.timeline.gathered import Gathered  # noqa: PLC0415 - an extra
    from ottla.pipelines.timeline.packed import unpacked  # noqa: PLC0415 - an extra
    from ottla.pipelines.timeline.partition_facts import leads  # noqa: PLC0415 - an extra

    most: dict[tuple[int, int], int] = {}
    for bucket, some in _buckets(batches):
        if bucket == _GATHERED_BUCKET:
            gathered = Gathered()
            for one in some:
                gathered.merge(pickle.loads(one))  # noqa: S301 - of our own tasks
            yield _to_arrow([(None, None, None, pickle.dumps(gathered))], _LEADS)
            continue
        for key, ms in leads(*unpacked(some)).items():
            most[key] = max(most.get(key, ms), ms)
    yield _to_arrow([(*key, ms, None) for key, ms in most.items()], _LEADS)


def _buckets(batches: Iterable["pa.RecordBatch"]) -> Iterator[tuple[int, Iterator[bytes]]]:
    rows = (row for batch in batches for row in zip(*map(_values, batch.columns), strict=True))
    for bucket, group in itertools.groupby(rows, key=lambda row: row[0]):
        yield bucket, (piece for _, piece in group)


def _values(column: "pa.Array") -> Iterator[Any]:
    return (value.as_py() for value in column)


class _Rules:
    """The rules, as Spark's Python workers run them: pieces to results."""

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

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        from ottla.pipelines.timeline.packed import unpacked  # noqa: PLC0415 - an extra
        from ottla.pipelines.timeline.partition_facts import (  # noqa: PLC0415 - an extra
            by_partition,
        )

        brokers = Brokers(self._sign, self._gone, self._last_ms)
        encode = msgspec.json.Encoder().encode
        held: list[tuple[str, int, str, bytes]] = []
        for bucket, some in _buckets(batches):
            if bucket == _GATHERED_BUCKET:
                continue
            for topic, partition, facts in by_partition(*unpacked(some), self._agreed):
                told = history(facts, brokers, self._overlap_ms)
                for what in BODIES:
                    held += [(topic, partition, what, encode(one)) for one in getattr(told, what)]
                if len(held) >= _RESULTS:
                    yield _to_arrow(held, RESULT)
                    held = []
        if held:
            yield _to_arrow(held, RESULT)


def _to_arrow(rows: Sequence[tuple[Any, ...]], schema: str) -> "pa.RecordBatch":
    import pyarrow as pa  # noqa: PLC0415 - an extra

    types = {"int": pa.int32(), "long": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    fields = [field.split() for field in schema.split(", ")]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrays = [pa.array(c, types[kind]) for c, (_, kind) in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in fields])
