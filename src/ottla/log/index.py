"""A segment's two indexes: offset to file position, timestamp to offset.

Kafka: `OffsetIndex` and `TimeIndex`; the bytes are theirs (PROTOCOL section 7.2). Invariants:
entries live in arrays in memory; the files hold no zero tail and are written as a whole when the
segment stops being the active one or the log closes cleanly. After an unclean stop the indexes of
unflushed segments are worthless and are built again, so nothing is lost by not writing an entry at
a time. An index that cannot be right is refused (`CorruptIndexError`) and its segment builds it
again.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from operator import le, lt

OFFSET_ENTRY = 8
TIME_ENTRY = 12
MAX_RELATIVE_OFFSET = 2**31 - 1


class CorruptIndexError(Exception):
    """The bytes are no index of this segment; never leaves the room."""


class OffsetIndex:
    """(relative offset, position): the last offset of a batch and where that batch begins."""

    __slots__ = ("base_offset", "offsets", "positions")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def copy(self) -> "OffsetIndex":
        """Return a copy for a worker; a megabyte is copied in a tenth of a millisecond."""
        index = OffsetIndex(self.base_offset)
        index.offsets, index.positions = self.offsets[:], self.positions[:]
        return index

    def append(self, offset: int, position: int) -> None:
        self.offsets.append(offset - self.base_offset)
        self.positions.append(position)

    def lookup(self, offset: int) -> int:
        """Return a file position at or before the batch that holds `offset`."""
        index = bisect_right(self.offsets, offset - self.base_offset)
        return self.positions[index - 1] if index else 0

    def position_before(self, position: int) -> int:
        """Return the nearest known file position of a batch before `position`, at least 0."""
        index = bisect_left(self.positions, position)
        return self.positions[index - 1] if index else 0

    def beyond(self, first: int, size: int) -> int | None:
        """Return the offset of an entry at least `size` bytes behind the batch that holds `first`.

        The nearest that is known to be so far on, None if there is none. Kafka:
        `fetchUpperBoundOffset`, which gets the position of the batch.
        """
        after = bisect_right(self.offsets, first - self.base_offset)
        if after == len(self.offsets):
            return None
        # The batch begins at or before the next entry's.
        index = bisect_left(self.positions, self.positions[after] + size, after)
        if index == len(self.offsets):
            return None
        return self.base_offset + self.offsets[index]

    def last(self) -> tuple[int, int]:
        """Return the newest (offset, position), or (base offset, 0)."""
        if not self.offsets:
            return self.base_offset, 0
        return self.base_offset + self.offsets[-1], self.positions[-1]

    def after(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield the entries that lead beyond `position`, as (offset, position)."""
        for index in range(bisect_right(self.positions, position), len(self.positions)):
            yield self.base_offset + self.offsets[index], self.positions[index]

    def truncate_to(self, offset: int) -> None:
        """Drop entries at or beyond `offset`."""
        index = bisect_left(self.offsets, offset - self.base_offset)
        del self.offsets[index:], self.positions[index:]

    def dump(self) -> bytes:
        out = array("i", bytes(OFFSET_ENTRY * len(self.offsets)))
        out[0::2] = self.offsets
        out[1::2] = self.positions
        out.byteswap()
        return out.tobytes()

    @classmethod
    def load(cls, base_offset: int, data: bytes, log_size: int) -> "OffsetIndex":
        """Read an index file; CorruptIndexError unless it can be one of a log of `log_size`."""
        if len(data) % OFFSET_ENTRY:
            raise CorruptIndexError(f"{len(data)} bytes are not a whole number of entries")
        raw = array("i")
        raw.frombytes(data)
        raw.byteswap()
        index = cls(base_offset)
        index.offsets = raw[0::2]
        index.positions = raw[1::2]
        if index.offsets:
            if index.offsets[0] < 0 or index.positions[0] < 0:
                raise CorruptIndexError("a negative entry")
            if index.positions[-1] >= log_size:
                raise CorruptIndexError(f"points beyond the log's {log_size} bytes")
            for column in (index.offsets, index.positions):
                if not all(map(lt, column, islice(column, 1, None))):
                    raise CorruptIndexError("entries do not increase")
        return index


class TimeIndex:
    """(timestamp, relative offset): the largest timestamp so far and the batch that holds it."""

    __slots__ = ("base_offset", "offsets", "timestamps")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def copy(self) -> "TimeIndex":
        """Return one of its own, for a worker."""
        index = TimeIndex(self.base_offset)
        index.timestamps, index.offsets = self.timestamps[:], self.offsets[:]
        return index

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if it is newer than the last one; it may never go back."""
        if self.timestamps and timestamp <= self.timestamps[-1]:
            return
        if timestamp < 0:
            return
        self.timestamps.append(timestamp)
        self.offsets.append(offset - self.base_offset)

    def last(self) -> tuple[int, int]:
        """Return the newest (timestamp, offset), or (-1, base offset)."""
        if not self.offsets:
            return -1, self.base_offset
        return self.timestamps[-1], self.base_offset + self.offsets[-1]

    def lookup(self, timestamp: int) -> int:
        """Return an offset before which no record is as young as `timestamp`."""
        index = bisect_left(self.timestamps, timestamp)
        return self.base_offset + (self.offsets[index - 1] if index else 0)

    def truncate_to(self, offset: int) -> None:
        """Drop entries at or beyond `offset`."""
        index = bisect_left(self.offsets, offset - self.base_offset)
        del self.offsets[index:], self.timestamps[index:]

    def dump(self) -> bytes:
        # Big-endian int64 columns as two int32 words each, so that slices do the interleaving.
        times = array("q", self.timestamps)
        times.byteswap()
        words = array("i", times.tobytes())
        offsets = array("i", self.offsets)
        offsets.byteswap()
        out = array("i", bytes(TIME_ENTRY * len(offsets)))
        out[0::3] = words[0::2]
        out[1::3] = words[1::2]
        out[2::3] = offsets
        return out.tobytes()

    @classmethod
    def load(cls, base_offset: int, data: bytes) -> "TimeIndex":
        """Read an index file; CorruptIndexError unless it can be one."""
        if len(data) % TIME_ENTRY:
            raise CorruptIndexError(f"{len(data)} bytes are not a whole number of entries")
        raw = array("i", data)
        words = array("i", bytes(2 * 4 * (len(raw) // 3)))
        words[0::2] = raw[0::3]
        words[1::2] = raw[1::3]
        index = cls(base_offset)
        index.timestamps = array("q", words.tobytes())
        index.timestamps.byteswap()
        index.offsets = raw[2::3]
        index.offsets.byteswap()
        for column in (index.offsets, index.timestamps):
            if column and column[0] < 0:
                raise CorruptIndexError("a negative entry")
            if not all(map(le, column, islice(column, 1, None))):
                raise CorruptIndexError("entries go back")
        return index
