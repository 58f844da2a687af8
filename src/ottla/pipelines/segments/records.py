"""One row per record of segment files: the connector's columns, and where each record lies.

Invariants: records come in the file's order, also of transactions that were aborted or are open
(read_uncommitted); markers make no rows. What is unpacked at a time is bounded; a batch of more
than 100 MiB, packed or unpacked, is damage. Decoding: `record_arrow`.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.model.errors import CorruptRecordError, OttlaError
from ottla.pipelines.record_arrow import COLUMNS, TYPES, ArrowDecoder
from ottla.pipelines.segments.batches import said_of
from ottla.pipelines.segments.folders import Segment
from ottla.pipelines.segments.headers import headers_of
from ottla.pipelines.segments.reading import Damage, Piece, SegmentReader
from ottla.wire.batch_header import LOG_OVERHEAD
from ottla.wire.records import DEFAULT_MAX_DECOMPRESSED_BYTES

UNREADABLE = "records"
"""A kind of damage: the checksum is right, but what is in the batch are no records."""
MOST_BYTES = DEFAULT_MAX_DECOMPRESSED_BYTES
"""A batch of more, packed or unpacked, is not read."""

_SQL = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "long",
    "timestamp": "timestamp", "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}  # fmt: skip
_PLACE = {
    "broker": (pa.int32(), "int"),
    "file": (pa.string(), "string"),
    "position": (pa.int64(), "long"),
    "leader_epoch": (pa.int32(), "int"),
    "damage": (pa.string(), "string"),
}
"""Where a record lies: its broker, its file, its batch's place in that and its batch's epoch; what
is wrong there, with damaged=report."""


def schema(*, with_headers: bool) -> str:
    """Return Spark's schema of the rows."""
    names = [*COLUMNS, *(["headers"] if with_headers else [])]
    return ", ".join(
        [*(f"{name} {_SQL[name]}" for name in names), *(f"{n} {s}" for n, (_, s) in _PLACE.items())]
    )


def record_rows(
    segment: Segment, reader: SegmentReader, columns: Sequence[str], damaged: str
) -> Iterator[pa.Table]:
    """Yield the records of a file; `damaged`: fail (CorruptRecordError), report or skip."""
    file = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for piece in reader.pieces():
            yield from _PieceRows(segment, file, piece, columns, damaged).rows()
    finally:
        os.close(file)


class _PieceRows:
    """The records of the good batches of a piece, and a row for each damage."""

    def __init__(
        self, segment: Segment, file: int, piece: Piece, columns: Sequence[str], damaged: str
    ) -> None:
        self._segment = segment
        self._file = file
        self._damaged = damaged
        self._columns = columns
        self._damage = {d.position: d for d in piece.damage}
        heads = headers_of(piece)
        self._places = np.array(piece.positions, np.int64)
        self._bases = heads["base_offset"].astype(np.int64)
        self._ends = self._bases + heads["last_offset_delta"] + 1
        self._sizes = heads["length"].astype(np.int64) + LOG_OVERHEAD
        self._epochs = heads["partition_leader_epoch"].astype(np.int32)

    def rows(self) -> Iterator[pa.Table]:
        for first, end in self._runs():
            yield from self._run(first, end)
        for damage in self._damage.values():
            yield from self._report(damage)

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of good batches that lie back to back, with offsets that rise."""
        count = len(self._places)
        if not count:
            return
        breaks = (self._places[1:] != self._places[:-1] + self._sizes[:-1]) | (
            self._bases[1:] < self._ends[:-1]
        )
        bad = np.isin(self._places, [*self._damage])
        starts = np.flatnonzero(np.concatenate(([True], breaks | bad[1:] | bad[:-1])))
        for first, end in zip(starts, [*starts[1:], count], strict=True):
            if not bad[first]:
                yield int(first), int(end)

    def _run(self, first: int, end: int) -> Iterator[pa.Table]:
        """Decode batches together; where one is bad, go on one at a time."""
        reached = -1
        try:
            for table in self._decoded(first, end):
                reached = int(table["offset"][-1].as_py()) if table.num_rows else reached
                yield self._placed(table, first, end)
            return
        except OttlaError as error:
            if end - first == 1:
                place = int(self._places[first])
                base, size = int(self._bases[first]), int(self._sizes[first])
                yield from self._report(Damage(UNREADABLE, place, size, base, str(error)))
                return
        for at in range(first, end):
            if self._bases[at] > reached:
                yield from self._run(at, at + 1)

    def _decoded(self, first: int, end: int) -> Iterator[pa.Table]:
        at = int(self._places[first])
        size = int(self._places[end - 1] + self._sizes[end - 1]) - at
        if end - first == 1 and size > MOST_BYTES:
            raise OttlaError(f"a batch of {size:,} bytes; at most {MOST_BYTES:,} are unpacked")
        wanted = [name for name in self._columns if name in TYPES and name != "offset"]
        decoder = ArrowDecoder(
            self._segment.topic,
            self._segment.partition,
            [*wanted, "offset"],
            max_decompressed=MOST_BYTES,
        )
        for batch in decoder.decode(os.pread(self._file, size, at)):
            yield pa.Table.from_batches([batch])

    def _placed(self, table: pa.Table, first: int, end: int) -> pa.Table:
        """Add where each record lies."""
        offsets = table["offset"].to_numpy()
        of_batch = first + np.searchsorted(self._bases[first:end], offsets, side="right") - 1
        count = table.num_rows
        values: dict[str, Any] = {name: table[name] for name in table.column_names}
        values["broker"] = pa.repeat(pa.scalar(self._segment.broker, pa.int32()), count)
        values["file"] = pa.repeat(pa.scalar(self._segment.path), count)
        values["position"] = self._places[of_batch]
        values["leader_epoch"] = self._epochs[of_batch]
        values["damage"] = pa.nulls(count, pa.string())
        return pa.table({name: values[name] for name in self._columns})

    def _report(self, damage: Damage) -> Iterator[pa.Table]:
        if self._damaged == "skip":
            return
        if self._damaged == "fail":
            raise CorruptRecordError(
                f"{self._segment.path}, position {damage.position}: {said_of(damage)}; option "
                "damaged=report tells all of it, damaged=skip leaves it out"
            )
        known: dict[str, Any] = {
            "topic": self._segment.topic,
            "partition": self._segment.partition,
            "offset": damage.offset if damage.offset >= 0 else None,
            "broker": self._segment.broker,
            "file": self._segment.path,
            "position": damage.position,
            "damage": said_of(damage),
        }
        kinds = TYPES | {name: kind for name, (kind, _) in _PLACE.items()}
        yield pa.table({name: pa.array([known.get(name)], kinds[name]) for name in self._columns})
