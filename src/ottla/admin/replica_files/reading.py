"""Batches of a segment file, with the checksum each one has and the one it ought to have.

Invariants: files are read in pieces of 4 MiB at most, a larger batch through its checksum only;
every byte up to `end` belongs to a batch or to a `Damage`. Beyond bytes that are not a batch,
reading continues only where the offset index points to a whole one, since a record may contain
something that looks like a batch. No memory maps: a live broker that cuts a mapped file would end
this process. Kafka: `DefaultRecordBatch`, `LogSegment.recover`.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from ottla.wire.batch_header import (
    BASE_OFFSET,
    CRC,
    CRC_START,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_V2,
    RECORD_COUNT,
    Header,
    unpack_header,
)

PIECE = 4 << 20
CHECKSUM, HEADER, TORN, ZEROS, OLD_FORMAT, GONE = (
    "checksum", "header", "torn", "zeros", "old format", "gone",
)  # fmt: skip
"""Kinds of damage: a whole batch that fails its checksum; bytes that are not a batch; a batch that
the end of the file cuts off; zeros up to the end, as preallocated files have; a batch of message
format 0 or 1; the file ended earlier than when it was listed."""


class Damage(NamedTuple):
    """Bytes that cannot be trusted. `offset` is the base offset the header claims, -1 if none."""

    kind: str
    position: int
    size: int
    offset: int
    reason: str


class Batch(NamedTuple):
    """A whole batch: its offsets, leader epoch, bytes, checksums, and where it lies."""

    base: int
    last: int
    epoch: int
    size: int
    crc: int
    computed: int
    position: int
    records: int

    @property
    def content(self) -> tuple[int, int, int, int]:
        """All that replicas agree on but the epoch."""
        return self.last, self.size, self.crc, self.computed


def _batch(header: Header, computed: int, position: int) -> Batch:
    base = header[BASE_OFFSET]
    return Batch(
        base,
        base + header[LAST_OFFSET_DELTA],
        header[LEADER_EPOCH],
        header[LENGTH] + LOG_OVERHEAD,
        header[CRC],
        computed,
        position,
        header[RECORD_COUNT],
    )


def _is_header(header: Header) -> bool:
    return (
        header[MAGIC] == MAGIC_V2
        and header[LENGTH] + LOG_OVERHEAD >= HEADER_BYTES
        and header[BASE_OFFSET] >= 0
        and header[LAST_OFFSET_DELTA] >= 0
    )


class SegmentReader:
    """Reads the batches of one file from `start` to `end`, both places of batches."""

    def __init__(self, path: str, end: int, start: int = 0) -> None:
        self.path = path
        self._start = start
        self._end = end
        self._file = -1
        self._index: list[int] | None = None

    def items(self) -> Iterator[Batch | Damage]:
        """Yield what was read in its order; OSError if the file cannot be.

        A batch that fails its checksum comes twice: as damage, then as a batch.
        """
        self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            position = self._start
            while position < self._end:
                data = self._read(position, PIECE)
                at = 0
                while at < len(data) or not data:
                    batches, at, cut_off = _good(data, at, position)
                    yield from batches
                    if cut_off and at:
                        break
                    for one in self._trouble(position + at, data[at : at + HEADER_BYTES]):
                        yield one
                        at = one.position + one.size - position
                position += at
        finally:
            os.close(self._file)

    def _read(self, position: int, size: int) -> bytes:
        return os.pread(self._file, min(size, self._end - position), position)

    def _trouble(self, position: int, head: bytes) -> list[Batch | Damage]:
        """Return what one batch is that is large, bad or cut off."""
        left = self._end - position
        if len(head) < HEADER_BYTES:
            if len(head) < left:
                reason = f"the file has {left - len(head)} bytes less than when it was listed"
                return [Damage(GONE, position, left, -1, reason)]
            kind = TORN if head.strip(b"\0") else ZEROS
            reason = f"the file ends {HEADER_BYTES - left} bytes before its last header does"
            return [Damage(kind, position, left, -1, reason)]
        header = unpack_header(head)
        base, length, magic = header[BASE_OFFSET], header[LENGTH], header[MAGIC]
        size = length + LOG_OVERHEAD
        if magic in (0, 1) and length > 0:
            reason = f"message format {magic}, which is not read"
            return [Damage(OLD_FORMAT, position, left, base, reason)]
        if not _is_header(header):
            reason = f"no batch: offset {base}, length {length}, magic {magic}"
            return [self._beyond(Damage(HEADER, position, left, -1, reason))]
        if size > left:
            reason = f"a batch of {size:,} bytes in the last {left:,} of the file"
            return [self._beyond(Damage(TORN, position, left, base, reason))]
        found = self._checksum(position + CRC_START, position + size)
        if found is None:
            return [Damage(GONE, position, left, base, "the file was cut")]
        batch = _batch(header, found, position)
        if found == batch.crc:
            return [batch]
        reason = f"checksum {found:08x}, its header says {batch.crc:08x}"
        damage = Damage(CHECKSUM, position, size, base, reason)
        # Of a bad batch the length may be what is bad.
        if not self._goes_on(position + size, batch.last + 1):
            return [self._beyond(damage)]
        return [damage, batch]

    def _checksum(self, start: int, end: int) -> int | None:
        """Return the CRC-32C of bytes of the file, a piece at a time; None if they are gone."""
        checksum = 0
        for at in range(start, end, PIECE):
            size = min(PIECE, end - at)
            data = self._read(at, size)
            if len(data) < size:
                return None
            checksum = int(extend_crc32c(checksum, data))
        return checksum

    def _goes_on(self, position: int, next_offset: int) -> bool:
        """Return whether something that follows a batch ending before `next_offset` begins here."""
        if position == self._end:
            return True
        head = self._read(position, HEADER_BYTES)
        if len(head) == HEADER_BYTES:
            header = unpack_header(head)
            if _is_header(header) and header[BASE_OFFSET] == next_offset:
                return True
        return self._good_at(position)

    def _good_at(self, position: int) -> bool:
        """Return whether a whole batch with the right checksum begins here."""
        head = self._read(position, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return False
        header = unpack_header(head)
        end = position + header[LENGTH] + LOG_OVERHEAD
        if not _is_header(header) or end > self._end:
            return False
        return bool(self._checksum(position + CRC_START, end) == header[CRC])

    def _beyond(self, damage: Damage) -> Damage:
        """Return damage up to the next place where the index knows a good batch, or to the end."""
        if damage.kind == HEADER and self._only_zeros(damage.position):
            return damage._replace(kind=ZEROS, reason="zeros up to the end of the file")
        if self._index is None:
            self._index = index_positions(self.path)
        for at in self._index[bisect_right(self._index, damage.position) :]:
            if at < self._end and self._good_at(at):
                if damage.kind == TORN:  # so it was no torn end, but a length that is wrong
                    damage = damage._replace(kind=HEADER)
                return damage._replace(size=at - damage.position)
        return damage._replace(size=self._end - damage.position)

    def _only_zeros(self, position: int) -> bool:
        for at in range(position, self._end, PIECE):
            data = self._read(at, PIECE)
            if data.count(0) != len(data):
                return False
        return True


def _good(data: bytes, at: int, origin: int) -> tuple[list[Batch], int, bool]:
    """Return good batches from `at` on, where they end, and whether `data` merely ends there.

    `origin` is where `data` begins in the file.
    """
    # All a scan does per batch happens here.
    limit = len(data)
    found: list[Batch] = []
    while at + HEADER_BYTES <= limit:
        header = unpack_header(data, at)
        if not _is_header(header):
            return found, at, False
        end = at + header[LENGTH] + LOG_OVERHEAD
        if end > limit:
            return found, at, True
        computed = crc32c(data[at + CRC_START : end])
        if computed != header[CRC]:
            return found, at, False
        found.append(_batch(header, computed, origin + at))
        at = end
    return found, at, True


def index_positions(path: str) -> list[int]:
    """Return where batches begin by a segment's offset index, in order; empty without one.

    Entries of 8 bytes, relative offset and position, big-endian; zeros follow in an active one.
    """
    try:
        data = Path(path).with_suffix(".index").read_bytes()
    except OSError:
        return []
    positions = {int.from_bytes(data[at + 4 : at + 8]) for at in range(0, len(data) - 7, 8)}
    return sorted(positions - {0})
