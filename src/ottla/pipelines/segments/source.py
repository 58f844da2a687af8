"""`format("ottla-segments")`: segment files as rows per record, per batch or per file.

Invariants: one task per segment, small ones together up to `taskBytes`; what is wrong with a file
is an error, a row or left out, as `damaged` says, and never unseen by default. Options:

- `path` (of `load`): `[BROKER=]FOLDER[,…]`; a log dir, a partition's folder, a file, or a folder
  above them. Without a broker's id, meta.properties is asked.
- `mode`: `records` (default; the columns of Spark's Kafka connector, and where each record lies),
  `batches` (`batches.SCHEMA`), `segments` (`SEGMENTS_SCHEMA`)
- `topics`, `partitions`: only these, as `a,b` and `0,1`
- `damaged`: `fail` (default), `report` (a row with the column `damage`), `skip`
- `includeHeaders`: `true` for the column `headers`, as in the connector
- `taskBytes`: see above [134217728]
A schema given with `.schema(…)` chooses columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ottla.model.errors import CorruptRecordError, OttlaError
from ottla.pipelines.segments import batches, records
from ottla.pipelines.segments.folders import (
    TASK_BYTES,
    Segment,
    Wanted,
    parse_places,
    portions,
    segments_in,
)
from ottla.pipelines.segments.reading import Piece, SegmentReader
from ottla.pipelines.segments.summary import Facts, summarize

NAME = "ottla-segments"
FAIL, REPORT, SKIP = "fail", "report", "skip"
RECORDS, BATCHES, SEGMENTS = "records", "batches", "segments"

SEGMENTS_SCHEMA = (
    "broker int, topic string, partition int, folder string, file string, segment long, "
    "size long, batches long, records long, first_offset long, end_offset long, "
    "max_timestamp long, damaged long, contents long, facts binary"
)
"""`end_offset`: the one after the last; `damaged`: how many places; `contents`: a digest
of all batches, equal where segments are; `facts`: `summary.Facts`."""


class SegmentsSource(DataSource):  # type: ignore[misc]
    """The data source; see the module's docstring for its options."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        mode = _one_of(self.options, "mode", (RECORDS, BATCHES, SEGMENTS))
        if mode == RECORDS:
            return records.schema(with_headers=_flag(self.options, "includeHeaders"))
        return batches.SCHEMA if mode == BATCHES else SEGMENTS_SCHEMA

    def reader(self, schema: Any) -> "SegmentsReader":
        return SegmentsReader(dict(self.options), tuple(schema.names))


class Task(InputPartition):  # type: ignore[misc]
    """Some segments, read one after the other."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        super().__init__(None)
        self.segments = segments


class SegmentsReader(DataSourceReader):  # type: ignore[misc]
    """Plans tasks, and reads one."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self._mode = _one_of(options, "mode", (RECORDS, BATCHES, SEGMENTS))
        self._damaged = _one_of(options, "damaged", (FAIL, REPORT, SKIP))
        self._places = parse_places(_paths(options))
        self._wanted = Wanted(
            frozenset(_list(options, "topics")), frozenset(_numbers(options, "partitions"))
        )
        self._task_bytes = max([TASK_BYTES, *_numbers(options, "taskBytes")][-1], 1)
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """List the files; OttlaError if there is none."""
        found = [s for place in self._places for s in segments_in(place, self._wanted)]
        if not found:
            folders = ", ".join(place.path for place in self._places)
            raise OttlaError(
                f"no segment files of what is wanted in {folders}; a log dir holds folders such as "
                "topic-0 with files such as 00000000000000000000.log"
            )
        return list(tasks_of(found, self._task_bytes))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        for segment in partition.segments:
            for table in self._tables(segment):
                yield from table.select(self._columns).to_batches()

    def _tables(self, segment: Segment) -> Iterator[pa.Table]:
        if self._mode == SEGMENTS:
            yield segment_row(segment, summarize(segment))
            return
        reader = SegmentReader(segment.path, segment.size)
        if self._mode == RECORDS:
            yield from records.record_rows(segment, reader, self._columns, self._damaged)
            return
        for piece in reader.pieces():
            table = batches.batch_rows(segment, self._allowed(segment, piece))
            if self._damaged == SKIP:
                table = table.filter(pc.is_null(table["damage"]))
            yield table

    def _allowed(self, segment: Segment, piece: Piece) -> Piece:
        if piece.damage and self._damaged == FAIL:
            raise_damage(segment, piece)
        return piece


def raise_damage(segment: Segment, piece: Piece) -> None:
    """Raise CorruptRecordError that tells the first damage of a piece, and the way out."""
    first = piece.damage[0]
    raise CorruptRecordError(
        f"{segment.path}, position {first.position}: {batches.said_of(first)}; "
        "option damaged=report tells all of it, damaged=skip leaves it out"
    )


def tasks_of(segments: Sequence[Segment], task_bytes: int) -> Iterator[Task]:
    """Yield one task per large segment, and small ones together up to `task_bytes`."""
    for portion in portions(segments, task_bytes):
        yield Task(portion)


_FACTS = msgspec.msgpack.Encoder()


def segment_row(segment: Segment, facts: Facts) -> pa.Table:
    """Return a segment's row of `SEGMENTS_SCHEMA`."""
    values = {
        "broker": pa.array([segment.broker], pa.int32()),
        "topic": [segment.topic],
        "partition": pa.array([segment.partition], pa.int32()),
        "folder": [segment.log_dir],
        "file": [segment.path],
        "segment": [segment.base_offset],
        "size": [segment.size],
        "batches": [facts.batches],
        "records": [facts.records],
        "first_offset": [facts.first_offset],
        "end_offset": [facts.end_offset],
        "max_timestamp": [facts.max_timestamp],
        "damaged": [facts.bad_count],
        "contents": [facts.contents],
        "facts": pa.array([_FACTS.encode(facts)], pa.binary()),
    }
    return pa.table(values)


def _get(options: Mapping[str, str], name: str) -> str:
    """Return an option whatever its case, as Spark takes them; "" without it."""
    found = {key.lower(): value for key, value in options.items()}
    return str(found.get(name.lower(), ""))


def _one_of(options: Mapping[str, str], name: str, known: Sequence[str]) -> str:
    """Return an option; the first of those known without it."""
    text = _get(options, name).strip().lower() or known[0]
    if text not in known:
        raise OttlaError(f"option {name}={text}: write one of {', '.join(known)}")
    return text


def _flag(options: Mapping[str, str], name: str) -> bool:
    return _one_of(options, name, ("false", "true")) == "true"


def _list(options: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in _get(options, name).split(",") if part.strip()]


def _numbers(options: Mapping[str, str], name: str) -> list[int]:
    try:
        return [int(part) for part in _list(options, name)]
    except ValueError:
        raise OttlaError(f"option {name}={_get(options, name)}: write whole numbers") from None


def _paths(options: Mapping[str, str]) -> str:
    """Return what `load` was given: one text, or several as JSON."""
    several = _get(options, "paths")
    return ",".join(msgspec.json.decode(several)) if several else _get(options, "path")
