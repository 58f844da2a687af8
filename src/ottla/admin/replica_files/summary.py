"""What one segment holds, small enough to compare replicas by it.

Invariants: size grows with offsets / `GRID`, not with batches; lists of oddities have a bound and
say how many there were. A batch's digest covers its place in the log, its leader epoch and its
bytes (by their checksum, the stored one and the computed one); digests of a grid cell are added up,
so that they do not depend on how a replica cuts its log into files.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.admin.replica_files.folders import Segment
from ottla.admin.replica_files.reading import Batch, Damage, SegmentReader

GRID = 4096
"""Offsets per cell. A cell is what is read again to find the first batch that differs."""
MOST = 100
"""So many oddities of a kind are reported of a segment."""
MOST_RUNS = 10_000
MASK = (1 << 64) - 1


class Oddity(NamedTuple):
    """Something at an offset and a place of the file; `other` is what was to be there."""

    offset: int
    other: int
    position: int


class Cell(NamedTuple):
    """The sum of the digests of a cell's batches, and where the first of them lies."""

    digest: int
    position: int


@dataclass(slots=True)
class Facts:
    """What a segment holds. Offsets -1: there is no batch.

    `gaps`: batches that do not begin where the one before ended; `doubled`: that begin before
    that; `epochs_back`: with a lower epoch than the one before (`other`). `epochs`: leader epoch,
    first offset and the one after the last of each run of batches. `holes_upto`: the offset below
    which batches have fewer records than offsets, so that the cleaner was there. `contents`: the
    digests of all batches.
    """

    first_offset: int = -1
    end_offset: int = -1
    batches: int = 0
    records: int = 0
    holes_upto: int = 0
    gap_count: int = 0
    doubled_count: int = 0
    gaps: list[Oddity] = field(default_factory=list)
    doubled: list[Oddity] = field(default_factory=list)
    epochs_back: list[Oddity] = field(default_factory=list)
    epochs: list[tuple[int, int, int]] = field(default_factory=list)
    bad: list[Damage] = field(default_factory=list)
    bad_count: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)
    contents: int = 0
    vanished: bool = False

    def damaged(self, damage: Damage) -> None:
        """Take bytes that cannot be trusted; they stand where the batches before them end."""
        self.bad_count += 1
        if len(self.bad) < MOST:
            offset = damage.offset if damage.offset >= 0 else self.end_offset
            self.bad.append(damage._replace(offset=offset))

    def add(self, batch: Batch, *, behind_unread: bool) -> None:
        """Take the next batch; `behind_unread`: it follows nothing that is known."""
        base, end = batch.base, batch.last + 1
        if not self.batches:
            self.first_offset = self.end_offset = base
        expected, before = self.end_offset, self.epochs[-1][0] if self.epochs else -1
        if base > expected and not behind_unread:
            self.gap_count += 1
            _note(self.gaps, Oddity(base, expected, batch.position))
        elif base < expected:
            self.doubled_count += 1
            _note(self.doubled, Oddity(base, expected, batch.position))
        if batch.epoch < before:
            _note(self.epochs_back, Oddity(base, before, batch.position))
        if batch.epoch == before:
            self.epochs[-1] = before, self.epochs[-1][1], end
        elif len(self.epochs) < MOST_RUNS:
            self.epochs.append((batch.epoch, base, end))
        if batch.crc == batch.computed:
            self.records += batch.records
            if batch.records != end - base:
                self.holes_upto = max(self.holes_upto, end)
        # Of whole numbers the hash is the same in every process.
        digest = hash((base, batch.epoch, *batch.content))
        number = base // GRID
        added, place = self.cells.get(number, (0, batch.position))
        self.cells[number] = Cell((added + digest) & MASK, place)
        self.contents = (self.contents + digest) & MASK
        self.batches += 1
        self.end_offset = end


def _note(found: list[Oddity], oddity: Oddity) -> None:
    if len(found) < MOST:
        found.append(oddity)


def summarize(segment: Segment) -> Facts:
    """Read a whole segment; one that was deleted since it was listed has `vanished` set."""
    facts = Facts()
    unread: Damage | None = None
    try:
        for item in SegmentReader(segment.path, segment.size).items():
            if isinstance(item, Damage):
                facts.damaged(item)
                unread = item
            else:
                # One that fails its checksum is damage and a batch: what follows it is known.
                behind = unread is not None and item.position == unread.position + unread.size
                facts.add(item, behind_unread=behind)
                unread = None
    except FileNotFoundError:
        return Facts(vanished=True)
    return facts
