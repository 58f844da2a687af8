"""One row per segment: what a whole file holds, small enough to compare replicas by it.

Invariants: size grows with offsets / `GRID`, not with batches; lists of oddities have a bound and
say how many there were. A batch's digest covers its place in the log, its leader epoch and its
bytes (by their checksum, the stored one and the computed one); digests of a grid cell are added up,
so that they do not depend on how a replica cuts its log into files.
"""

from bisect import bisect_left
from typing import Any

import msgspec
import numpy as np

from ottla.pipelines.segments.folders import Segment
from ottla.pipelines.segments.headers import headers_of
from ottla.pipelines.segments.reading import Piece, SegmentReader

GRID = 4096
"""Offsets per cell. A cell is what is read again to find the first batch that differs."""
MOST = 100
"""So many oddities of a kind are reported of a segment."""
MOST_RUNS = 10_000

Array = np.ndarray[Any, Any]


class Oddity(msgspec.Struct, frozen=True, array_like=True):
    """Something at an offset and a place of the file; `other` is what was to be there."""

    offset: int
    other: int
    position: int


class Bad(msgspec.Struct, frozen=True, array_like=True):
    """Damage, as `reading.Damage`."""

    kind: str
    position: int
    size: int
    offset: int
    reason: str


class Facts(msgspec.Struct, array_like=True):
    """What a segment holds. Offsets -1: there is no batch.

    `gaps`: batches that do not begin where the one before ended; `doubled`: that begin before
    that; `epochs_back`: with a lower epoch than the one before (`other`). `epochs`: leader epoch,
    first offset and the one after the last of each run of batches. `holes_upto`: the offset below
    which batches have fewer records than offsets, so that the cleaner was there. `cells`, `sums`,
    `places`: arrays of 64-bit numbers: cell, digest, position of its first batch.
    """

    first_offset: int = -1
    end_offset: int = -1
    batches: int = 0
    records: int = 0
    max_timestamp: int = -1
    holes_upto: int = 0
    gap_count: int = 0
    doubled_count: int = 0
    gaps: list[Oddity] = []
    doubled: list[Oddity] = []
    epochs_back: list[Oddity] = []
    epochs: list[tuple[int, int, int]] = []
    bad: list[Bad] = []
    bad_count: int = 0
    bad_bytes: int = 0
    cells: bytes = b""
    sums: bytes = b""
    places: bytes = b""
    contents: int = 0
    vanished: bool = False


class Summary:
    """Adds up the pieces of one segment."""

    def __init__(self) -> None:
        self.facts = Facts()
        self._epoch = -1
        self._unread_upto = -1
        self._cells: list[Array] = []
        self._sums: list[Array] = []
        self._places: list[Array] = []

    def add(self, piece: Piece) -> None:
        """Take the next piece in order."""
        before = self.facts.end_offset
        ends = self._add_batches(piece) if piece.positions else np.empty(0, np.int64)
        self._add_damage(piece, ends, before)

    def _add_damage(self, piece: Piece, ends: Array, before: int) -> None:
        facts = self.facts
        for one in piece.damage:
            at = bisect_left(piece.positions, one.position)
            is_batch = piece.positions[at : at + 1] == [one.position]
            facts.bad_count += 1
            facts.bad_bytes += one.size
            if len(facts.bad) < MOST:
                after = int(ends[at - 1]) if at else before
                offset = one.offset if one.offset >= 0 else after
                facts.bad.append(Bad(*one._replace(offset=offset)))
            if not is_batch:
                self._unread_upto = one.position + one.size

    def _add_batches(self, piece: Piece) -> Array:
        """Return where each batch's offsets end."""
        facts = self.facts
        heads = headers_of(piece)
        places = np.array(piece.positions, np.int64)
        base = heads["base_offset"].astype(np.int64)
        ends: Array = base + heads["last_offset_delta"] + 1
        self._look_at_order(base, ends, places, self._behind_unread(piece, places))
        self._look_at_epochs(heads["partition_leader_epoch"].astype(np.int64), base, ends, places)
        self._add_digests(heads, base, places, piece.checksums)
        count = heads["count"].astype(np.int64)
        good = heads["crc"] == np.array(piece.checksums, np.uint32)
        holed = good & (count != ends - base)
        if holed.any():
            facts.holes_upto = max(facts.holes_upto, int(ends[holed].max()))
        facts.batches += len(base)
        facts.records += int(count[good].sum())
        facts.max_timestamp = max(facts.max_timestamp, int(heads["max_timestamp"].max()))
        return ends

    def _behind_unread(self, piece: Piece, places: Array) -> Array:
        """Return which batches lie behind unreadable bytes, and so follow nothing that is known."""
        rows = set(piece.positions) if piece.damage else set()
        unread = [d.position + d.size for d in piece.damage if d.position not in rows]
        found: Array = np.isin(places, [*unread, self._unread_upto])
        return found

    def _look_at_order(self, base: Array, ends: Array, places: Array, behind: Array) -> None:
        facts = self.facts
        if facts.first_offset < 0:
            facts.first_offset = int(base[0])
            facts.end_offset = int(base[0])
        expected = np.concatenate(([facts.end_offset], ends[:-1]))
        expected = np.where(behind, np.maximum(expected, base), expected)
        _note(facts.gaps, base > expected, base, expected, places)
        _note(facts.doubled, base < expected, base, expected, places)
        facts.gap_count += int((base > expected).sum())
        facts.doubled_count += int((base < expected).sum())
        facts.end_offset = int(ends[-1])

    def _look_at_epochs(self, epochs: Array, base: Array, ends: Array, places: Array) -> None:
        facts = self.facts
        before = np.concatenate(([self._epoch], epochs[:-1]))
        _note(facts.epochs_back, epochs < before, base, before, places)
        starts = np.flatnonzero(epochs != before)
        upto = [int(end) for end in ends[[*(starts[1:] - 1), -1]]]
        if len(starts) == 0 or starts[0] > 0:  # the run goes on that the last piece ended with
            until = int(ends[starts[0] - 1]) if len(starts) else upto[0]
            if facts.epochs and facts.epochs[-1][0] == self._epoch:
                facts.epochs[-1] = (*facts.epochs[-1][:2], until)
        room = MOST_RUNS - len(facts.epochs)
        facts.epochs += [
            (int(epochs[at]), int(base[at]), end)
            for at, end in zip(starts[:room], upto, strict=False)
        ]
        self._epoch = int(epochs[-1])

    def _add_digests(self, heads: Array, base: Array, places: Array, checksums: list[int]) -> None:
        digests = digests_of(heads, base, checksums)
        cells = base // GRID
        starts = np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1])))
        sums = np.add.reduceat(digests, starts)
        self.facts.contents = (self.facts.contents + int(digests.sum())) & (1 << 63) - 1
        self._cells.append(cells[starts])
        self._sums.append(sums)
        self._places.append(places[starts])

    def result(self) -> Facts:
        """Return what was found, with the cells in order, each once."""
        facts = self.facts
        if self._cells:
            cells, sums, places = merged(
                np.concatenate(self._cells),
                np.concatenate(self._sums),
                np.concatenate(self._places),
            )
            facts.cells, facts.sums = cells.tobytes(), sums.tobytes()
            facts.places = places.tobytes()
        return facts


def summarize(segment: Segment) -> Facts:
    """Read a whole segment; one that was deleted since it was listed has `vanished` set."""
    summary = Summary()
    try:
        for piece in SegmentReader(segment.path, segment.size).pieces():
            summary.add(piece)
    except FileNotFoundError:
        return Facts(vanished=True)
    return summary.result()


def _note(found: list[Oddity], which: Array, offsets: Array, others: Array, places: Array) -> None:
    found += [
        Oddity(int(offsets[at]), int(others[at]), int(places[at]))
        for at in np.flatnonzero(which)[: MOST - len(found)]
    ]


def digests_of(heads: Array, base: Array, checksums: list[int]) -> Array:
    """Return a 64-bit digest per batch: of its offsets, size, epoch and both checksums."""
    stored = heads["crc"].astype(np.uint64)
    computed = np.array(checksums, np.uint64)
    high = np.uint64(32)
    ends = heads["last_offset_delta"].astype(np.uint32).astype(np.uint64) << high
    sizes = heads["length"].astype(np.uint32).astype(np.uint64)
    epochs = heads["partition_leader_epoch"].astype(np.uint32).astype(np.uint64) << high
    digest = _mixed(base.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    digest = _mixed(digest ^ (ends | sizes))
    digest = _mixed(digest ^ (epochs | stored))
    return _mixed(digest ^ computed)


def _mixed(x: Array) -> Array:
    """Return the finalizer of splitmix64 of each number."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = x ^ (x >> np.uint64(31))
    return mixed


def merged(cells: Array, sums: Array, places: Array) -> tuple[Array, Array, Array]:
    """Return each cell once, in order, with the sum of its digests and its first place."""
    if len(cells) == 0:
        return cells, sums, places
    order = np.argsort(cells, kind="stable")
    cells, sums, places = cells[order], sums[order], places[order]
    starts = np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1])))
    return cells[starts], np.add.reduceat(sums, starts), np.minimum.reduceat(places, starts)
