"""Batches of a segment file, with the checksum each one has and the one it ought to have.

Invariants: files are read in pieces of 4 MiB at most, a larger batch through its checksum only;
every byte up to `end` belongs to a batch that is returned or to a `Damage`; beyond bytes that are
no batch it goes on only where the offset index leads to a whole one, since a record may well
contain something that looks like a batch. No memory maps: a file that a live broker cuts meanwhile
would end this process. Kafka: `DefaultRecordBatch`, `LogSegment.recover`.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from ottla.pipelines.segments.folders import index_positions
from ottla.wire.batch_header import CRC_START, HEADER_BYTES, LOG_OVERHEAD, MAGIC_V2, unpack_check

PIECE = 4 << 20
CRC, HEADER, TORN, ZEROS, OLD_FORMAT, GONE = (
    "checksum", "header", "torn", "zeros", "old format", "gone",
)  # fmt: skip
"""Kinds of damage: a whole batch that fails its checksum; bytes that are no batch; a batch that the
end of the file cuts off; zeros up to the end, as preallocated files have; a batch of message format
0 or 1; the file ended earlier than when it was listed."""


class Damage(NamedTuple):
    """Bytes that cannot be trusted. `offset` is the base offset the header claims, -1 if none."""

    kind: str
    position: int
    size: int
    offset: int
    reason: str


class Piece(NamedTuple):
    """Whole batches in order: where they begin, their headers, their checksums; and damage.

    Batches that fail their checksum are in both.
    """

    positions: list[int]
    headers: list[bytes]
    checksums: list[int]
    damage: list[Damage]


class SegmentReader:
    """Reads the batches of one file from `start` to `end`, both places of batches."""

    def __init__(self, path: str, end: int, start: int = 0) -> None:
        self.path = path
        self._start = start
        self._end = end
        self._file = -1
        self._index: list[int] | None = None

    def pieces(self) -> Iterator[Piece]:
        """Yield what was read; OSError if the file cannot be."""
        self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            position = self._start
            while position < self._end:
                piece, position = self._piece(position)
                yield piece
        finally:
            os.close(self._file)

    def _read(self, position: int, size: int) -> bytes:
        return os.pread(self._file, min(size, self._end - position), position)

    def _piece(self, position: int) -> tuple[Piece, int]:
        """Return what lies in the next bytes, and where to go on."""
        data = self._read(position, PIECE)
        piece = Piece([], [], [], [])
        at = 0
        while True:
            at, cut_off = _walk(data, at, position, piece)
            if cut_off and at:
                return piece, position + at
            head = data[at : at + HEADER_BYTES]
            at = self._trouble(piece, position + at, head) - position
            if at >= len(data):
                return piece, position + at

    def _trouble(self, piece: Piece, position: int, head: bytes) -> int:
        """Take one batch that is large, bad or cut off; return where to go on."""
        left = self._end - position
        if len(head) < HEADER_BYTES:
            if len(head) < left:
                reason = f"the file has {left - len(head)} bytes less than when it was listed"
                return self._damaged(piece, Damage(GONE, position, left, -1, reason))
            kind = TORN if head.strip(b"\0") else ZEROS
            reason = f"the file ends {HEADER_BYTES - left} bytes before its last header does"
            return self._damaged(piece, Damage(kind, position, left, -1, reason))
        base, length, magic, stored, last_delta = unpack_check(head)
        size: int = length + LOG_OVERHEAD
        if magic in (0, 1) and length > 0:
            reason = f"message format {magic}, which is not read"
            return self._damaged(piece, Damage(OLD_FORMAT, position, left, base, reason))
        if magic != MAGIC_V2 or size < HEADER_BYTES or base < 0 or last_delta < 0:
            reason = f"no batch: offset {base}, length {length}, magic {magic}"
            return self._beyond(piece, Damage(HEADER, position, left, -1, reason))
        if size > left:
            reason = f"a batch of {size:,} bytes in the last {left:,} of the file"
            return self._beyond(piece, Damage(TORN, position, left, base, reason))
        found = self._checksum(position + CRC_START, position + size)
        if found is None:
            return self._damaged(piece, Damage(GONE, position, left, base, "the file was cut"))
        if found != stored:
            damage = Damage(
                CRC, position, size, base, f"checksum {found:08x}, its header says {stored:08x}"
            )
            # Of a bad batch the length may be what is bad.
            if not self._goes_on(position + size, base + last_delta + 1):
                return self._beyond(piece, damage)
            piece.damage.append(damage)
        piece.positions.append(position)
        piece.headers.append(head)
        piece.checksums.append(found)
        return position + size

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
        if len(head) < HEADER_BYTES:
            return False
        base, length, magic, _, last_delta = unpack_check(head)
        plausible = magic == MAGIC_V2 and length + LOG_OVERHEAD >= HEADER_BYTES
        if plausible and base == next_offset and last_delta >= 0:
            return True
        return self._good_at(position)

    def _good_at(self, position: int) -> bool:
        """Return whether a whole batch with the right checksum begins here."""
        head = self._read(position, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return False
        base, length, magic, stored, last_delta = unpack_check(head)
        size = length + LOG_OVERHEAD
        if magic != MAGIC_V2 or size < HEADER_BYTES or base < 0 or last_delta < 0:
            return False
        if position + size > self._end:
            return False
        return bool(self._checksum(position + CRC_START, position + size) == stored)

    def _beyond(self, piece: Piece, damage: Damage) -> int:
        """Note damage up to the next place where the index knows a good batch, or up to the end."""
        if self._index is None:
            self._index = index_positions(self.path)
        if damage.kind == HEADER and self._only_zeros(damage.position):
            left = self._end - damage.position
            damage = Damage(ZEROS, damage.position, left, -1, "zeros up to the end of the file")
            return self._damaged(piece, damage)
        for at in self._index[bisect_right(self._index, damage.position) :]:
            if at < self._end and self._good_at(at):
                if damage.kind == TORN:  # so it was no torn end, but a length that is wrong
                    damage = damage._replace(kind=HEADER)
                return self._damaged(piece, damage._replace(size=at - damage.position))
        return self._damaged(piece, damage._replace(size=self._end - damage.position))

    def _only_zeros(self, position: int) -> bool:
        for at in range(position, self._end, PIECE):
            data = self._read(at, PIECE)
            if data.count(0) != len(data):
                return False
        return True

    @staticmethod
    def _damaged(piece: Piece, damage: Damage) -> int:
        piece.damage.append(damage)
        return damage.position + damage.size


def _walk(data: bytes, at: int, origin: int, piece: Piece) -> tuple[int, bool]:
    """Take good batches from `at` on; return where they end, and whether `data` merely ends there.

    `origin` is where `data` begins in the file.
    """
    # All a scan does per batch happens here.
    limit = len(data)
    last_start = limit - HEADER_BYTES
    add_position = piece.positions.append
    add_header = piece.headers.append
    add_checksum = piece.checksums.append
    while at <= last_start:
        base, length, magic, stored, last_delta = unpack_check(data, at)
        size = length + LOG_OVERHEAD
        if magic != MAGIC_V2 or size < HEADER_BYTES or base < 0 or last_delta < 0:
            return at, False
        end = at + size
        if end > limit:
            return at, True
        found = crc32c(data[at + CRC_START : end])
        if found != stored:
            return at, False
        add_position(origin + at)
        add_header(data[at : at + HEADER_BYTES])
        add_checksum(found)
        at = end
    return at, True
