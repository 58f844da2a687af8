"""One segment: a `.log` file of record batches with its indexes.

Who may call: `log` and `recovery`. Answers to Kafka's `LogSegment` and `FileRecords`. Invariants:
batches lie back to back from 0 to `size`; nothing beyond `size` is ever read; indexes and the
aborted-transaction index are loaded at first use and may be dropped again (`release`) while the
segment is not the active one. Reads from the file check the CRC of every batch they return: a
flipped bit is never served as good (F20).
"""

import contextlib
import struct
from collections.abc import Iterator
from typing import NamedTuple

from google_crc32c import value as crc32c

from ottla.log import aborted as aborted_index
from ottla.log.aborted import AbortedTransaction
from ottla.log.index import MAX_RELATIVE_OFFSET, CorruptIndexError, OffsetIndex, TimeIndex
from ottla.log.results import NotInMemoryError
from ottla.log.validate import (
    BASE,
    BATCH_OVERHEAD,
    CRC_FROM,
    HEADER_SIZE,
    LAST_DELTA,
    LENGTH,
    MAGIC,
    MAX_TS,
    Header,
    crc_matches,
    unpack_header,
)
from ottla.model.errors import CorruptRecordError
from ottla.model.ports import File, Files

_CHUNK = 1 << 20
_FIRST_HEADER_CHUNK = 1 << 13
_HEADER_CHUNK = 1 << 16
_unpack_brief = struct.Struct(">qi4xbI2xi").unpack_from
"""base offset, length, magic, CRC and last offset delta of a batch"""
NO_TIMESTAMP = -1
MOST_AT_ONCE = 4 << 20
"""What one read takes from a file at most: it is checked and copied in one turn of the loop."""


class DiskRead(NamedTuple):
    """Whole batches read from one segment; `too_small` if `max_bytes` holds not even one."""

    data: memoryview
    too_small: bool


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class Segment:
    """A segment and what is known of it in memory."""

    __slots__ = (
        "_aborted",
        "_file",
        "_files",
        "_folder",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offsets",
        "_times",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "first_timestamp",
        "index_changed",
        "index_limit",
        "max_offset",
        "size",
        "unsynced",
        "used",
    )

    def __init__(self, files: Files, folder: str, base_offset: int, created_ms: int) -> None:
        self._files = files
        self._folder = folder
        self._file: File | None = None
        self.base_offset = base_offset
        self.max_offset = base_offset + MAX_RELATIVE_OFFSET
        """the highest offset that may be appended; -1 once the index is full"""
        self.index_limit = MAX_RELATIVE_OFFSET
        self.size = 0
        self.created_ms = created_ms
        self.bytes_since_index = 0
        self.first_timestamp: int | None = None
        self.used = False
        self.unsynced: list[File] = []
        self.index_changed = False
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._aborted: list[AbortedTransaction] | None = None
        self._max_timestamp: int | None = None
        self._max_timestamp_offset = -1

    @classmethod
    def create(cls, files: Files, folder: str, base_offset: int, now_ms: int) -> "Segment":
        """Create an empty segment with its file, whose name keeps where the log goes on."""
        segment = cls.promise(files, folder, base_offset, now_ms)
        file = files.open(segment.path(".log"), create=True)
        if file.size():
            file.truncate(0)
        segment.attach(file)
        return segment

    @classmethod
    def promise(cls, files: Files, folder: str, base_offset: int, now_ms: int) -> "Segment":
        """Describe an empty segment whose file comes with its first batch.

        Only for a log that begins at 0: a folder without segments says the same.
        """
        segment = cls(files, folder, base_offset, now_ms)
        segment._start_empty()
        return segment

    @classmethod
    def open(cls, files: Files, folder: str, base_offset: int, size: int, now_ms: int) -> "Segment":
        """Describe a segment that is there; nothing is read before it is needed."""
        segment = cls(files, folder, base_offset, now_ms)
        segment.size = size
        if size == 0:
            segment._start_empty()
        return segment

    def _start_empty(self) -> None:
        self._offsets = OffsetIndex(self.base_offset)
        self._times = TimeIndex(self.base_offset)
        self._aborted = []
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self.first_timestamp = None
        self.bytes_since_index = 0

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, size={self.size})"

    def path(self, suffix: str) -> str:
        return f"{self._folder}/{file_name(self.base_offset, suffix)}"

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._files.open(self.path(".log"), create=self.size == 0)
        return file

    def attach(self, file: File) -> None:
        """Use this open file from now on."""
        self._file = file

    # Appending -------------------------------------------------------------------------

    def append(
        self, run: memoryview, last_offset: int, max_timestamp: int, index_interval: int
    ) -> None:
        """Write whole batches at the end; OSError leaves `size` as it was.

        `last_offset` and `max_timestamp` are the run's; its index entry points to its start.
        """
        position = self.size
        (self._file or self.file).pwrite((run,), position)
        size = len(run)
        if position == 0:
            self.first_timestamp = max_timestamp
        known = self._max_timestamp
        if known is None:
            known = self.max_timestamp
        if max_timestamp > known:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self.bytes_since_index > index_interval:
            self.offsets.append(last_offset, position)
            if len(self.offsets) >= self.index_limit:
                self.max_offset = -1
            self.times.maybe_append(self.max_timestamp, self._max_timestamp_offset)
            self.bytes_since_index = 0
            self.index_changed = True
        self.bytes_since_index += size
        self.size = position + size

    def append_run(
        self, run: memoryview, headers: list[tuple[int, Header]], index_interval: int
    ) -> None:
        """Write several batches with one call; `headers` has each one's place in `run`."""
        position = self.size
        _ = self.max_timestamp, self.offsets, self.times
        if position == 0:
            self.first_timestamp = headers[0][1][MAX_TS]
        (self._file or self.file).pwrite((run,), position)
        for at, header in headers:
            self.index_batch(position + at, header, index_interval)
        self.size = position + len(run)

    def note_aborted(self, entry: AbortedTransaction) -> None:
        entries = self.aborted
        file = self._files.open(self.path(".txnindex"), create=True)
        file.pwrite((aborted_index.encode((entry,)),), len(entries) * aborted_index.ENTRY_SIZE)
        entries.append(entry)
        self.unsynced.append(file)

    # Indexes ---------------------------------------------------------------------------

    @property
    def offsets(self) -> OffsetIndex:
        if self._offsets is None:
            self._load_indexes()
        assert self._offsets is not None
        self.used = True
        return self._offsets

    @property
    def times(self) -> TimeIndex:
        if self._times is None:
            self._load_indexes()
        assert self._times is not None
        self.used = True
        return self._times

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """Transactions aborted in this segment; CorruptIndexError if the file cannot be one."""
        if self._aborted is None:
            data = b""
            with contextlib.suppress(FileNotFoundError):
                data = self._files.read_bytes(self.path(".txnindex"))
            self._aborted = aborted_index.decode(data, self.base_offset)
        return self._aborted

    @property
    def max_timestamp(self) -> int:
        """The largest batch timestamp, -1 if there is none."""
        if self._max_timestamp is None:
            self._find_max_timestamp()
        assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the batch that holds the largest timestamp."""
        if self._max_timestamp is None:
            self._find_max_timestamp()
        return self._max_timestamp_offset

    def largest_timestamp(self) -> int:
        """Return what retention goes by: records without timestamps count from our opening."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self.created_ms

    def _load_indexes(self) -> None:
        try:
            offsets = OffsetIndex.load(
                self.base_offset, self._files.read_bytes(self.path(".index")), self.size
            )
            times = TimeIndex.load(
                self.base_offset, self._files.read_bytes(self.path(".timeindex"))
            )
        except (FileNotFoundError, CorruptIndexError):
            self.rebuild_indexes()
            return
        self._offsets, self._times = offsets, times
        if not self._times_agree():
            self.rebuild_indexes()

    def _times_agree(self) -> bool:
        """Tell whether the last time index entry is true; retention deletes by what it says."""
        assert self._times is not None
        timestamp, offset = self._times.last()
        if timestamp < 0:
            return True
        try:
            found = self.find(offset)
        except CorruptRecordError:
            return False
        return found is not None and found[1][MAX_TS] == timestamp

    def _find_max_timestamp(self) -> None:
        """Start from the last time index entry, look at the batches behind it."""
        times = self.times
        timestamp, offset = times.last()
        position = self.offsets.lookup(offset)
        with contextlib.suppress(CorruptRecordError):  # who reads there is told
            for _, header in self.headers(position):
                if header[MAX_TS] > timestamp:
                    timestamp = header[MAX_TS]
                    offset = header[BASE] + header[LAST_DELTA]
        self._max_timestamp, self._max_timestamp_offset = timestamp, offset

    def first_batch_timestamp(self) -> int:
        """Return the first batch's timestamp, which segment.ms counts from; -1 if none."""
        if self.first_timestamp is None:
            for _, header in self.headers(0):
                self.first_timestamp = header[MAX_TS]
                break
            else:
                return NO_TIMESTAMP
        return self.first_timestamp

    def rebuild_indexes(self, index_interval: int = 4096) -> None:
        """Build both indexes from the batches' headers, up to the first bad one."""
        self.start_indexes()
        with contextlib.suppress(CorruptRecordError):  # who reads there is told
            for position, header in self.headers(0):
                self.index_batch(position, header, index_interval)
        self.finish_indexes()

    def start_indexes(self) -> None:
        self._offsets = OffsetIndex(self.base_offset)
        self._times = TimeIndex(self.base_offset)
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self.bytes_since_index = 0
        self.index_changed = True

    def index_batch(self, position: int, header: Header, index_interval: int) -> None:
        """Note one batch of a scan that began with `start_indexes`."""
        assert self._offsets is not None
        assert self._times is not None
        assert self._max_timestamp is not None
        last_offset = header[BASE] + header[LAST_DELTA]
        if header[MAX_TS] > self._max_timestamp:
            self._max_timestamp = header[MAX_TS]
            self._max_timestamp_offset = last_offset
        if self.bytes_since_index > index_interval:
            self._offsets.append(last_offset, position)
            if len(self._offsets) >= self.index_limit:
                self.max_offset = -1
            self._times.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self.bytes_since_index = 0
            self.index_changed = True
        self.bytes_since_index += header[LENGTH] + BATCH_OVERHEAD

    def finish_indexes(self) -> None:
        """Give the time index the entry every closed segment ends with."""
        before = len(self.times)
        self.times.maybe_append(self.max_timestamp, self._max_timestamp_offset)
        if len(self.times) != before:
            self.index_changed = True

    def index_files(self) -> list[tuple[str, bytes]]:
        """Return (path, bytes) of the index files to write: whole, as Kafka leaves them.

        Empty if the files there are right.
        """
        if self.size == 0:
            return []
        if self._offsets is not None:
            self.finish_indexes()
        if not self.index_changed and self._has_index_files():
            return []
        files = [
            (self.path(".index"), self.offsets.dump()),
            (self.path(".timeindex"), self.times.dump()),
        ]
        self.index_changed = False
        return files

    def remove_indexes(self) -> None:
        """Remove the index files of a segment that is empty or about to go."""
        self.close_synced()
        for suffix in (".index", ".timeindex", ".txnindex"):
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(self.path(suffix))

    def _has_index_files(self) -> bool:
        return self._files.exists(self.path(".index")) and self._files.exists(
            self.path(".timeindex")
        )

    def release(self) -> None:
        """Drop what can be loaded again, unless it was used since the last call."""
        if self.used:
            self.used = False
        elif self._offsets is not None and not self.index_changed and self.size:
            _ = self.max_timestamp  # kept: retention asks for it again and again
            self._offsets = self._times = None
            self._aborted = None

    # Reading ---------------------------------------------------------------------------

    def headers(self, position: int, end: int | None = None) -> Iterator[tuple[int, Header]]:
        """Yield (position, header) of each batch from `position`, which must begin one."""
        end = self.size if end is None else end
        file = self.file
        chunk = b""
        start = position
        chunk_size = _FIRST_HEADER_CHUNK
        next_offset = -1
        while position < end:
            if position + HEADER_SIZE > start + len(chunk):
                start = position
                chunk = file.pread(min(chunk_size, end - position), position)
                chunk_size = _HEADER_CHUNK
                if len(chunk) < HEADER_SIZE:
                    raise self._corrupt(position, f"{len(chunk)} bytes are no batch")
            header = unpack_header(chunk, position - start)
            size = header[LENGTH] + BATCH_OVERHEAD
            if size < HEADER_SIZE or header[MAGIC] != 2 or position + size > end:
                raise self._corrupt(position, f"size {size}, magic {header[MAGIC]}")
            if header[BASE] < next_offset:
                raise self._corrupt(position, f"offset {header[BASE]} after {next_offset}")
            yield position, header
            next_offset = header[BASE] + header[LAST_DELTA] + 1
            position += size

    def batches(
        self, position: int, end: int | None = None
    ) -> Iterator[tuple[int, Header, memoryview]]:
        """Yield (position, header, batch) from `position`; CorruptRecordError at a bad one."""
        end = self.size if end is None else end
        file = self.file
        chunk = memoryview(b"")
        start = position
        while position < end:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                chunk = memoryview(file.pread(min(_CHUNK, end - position), position))
                start, at = position, 0
                if len(chunk) < HEADER_SIZE:
                    raise self._corrupt(position, f"{len(chunk)} bytes are no batch")
            header = unpack_header(chunk, at)
            size = header[LENGTH] + BATCH_OVERHEAD
            if size < HEADER_SIZE or header[MAGIC] != 2 or position + size > end:
                raise self._corrupt(position, f"size {size}, magic {header[MAGIC]}")
            if at + size > len(chunk):
                chunk = memoryview(file.pread(max(size, min(_CHUNK, end - position)), position))
                start, at = position, 0
            batch = chunk[at : at + size]
            if len(batch) < size or not crc_matches(batch, header):
                raise self._corrupt(position, "the CRC does not match")
            yield position, header, batch
            position += size

    def _corrupt(self, position: int, what: str) -> CorruptRecordError:
        return CorruptRecordError(f"{self.path('.log')} is corrupt at byte {position}: {what}")

    def find(self, offset: int) -> tuple[int, Header] | None:
        """Return (position, header) of the batch that holds `offset` or the next one after it."""
        for again in (False, True):
            if again:
                # An index entry that leads between batches is the index's fault, not the log's.
                self.rebuild_indexes()
            position = self.offsets.lookup(offset)
            try:
                for at, header in self.headers(position):
                    if header[BASE] + header[LAST_DELTA] >= offset:
                        if at == position and header[BASE] > offset and position:
                            raise self._corrupt(at, "the index points beyond the offset")
                        return at, header
                return None
            except CorruptRecordError:
                if again or position == 0:
                    raise
        raise AssertionError

    def read(
        self, offset: int, max_bytes: int, upto_offset: int, min_one: bool, now: bool = False
    ) -> DiskRead | None:
        """Read whole batches from the one holding `offset`, none beginning at `upto_offset`.

        Batches before a bad one are returned; CorruptRecordError if the first is bad, None if
        the segment holds no such batch. One system call for the data unless the first batch is
        larger than `max_bytes`. At most `MOST_AT_ONCE` bytes, or one batch. With `now`,
        NotInMemoryError where that would wait for the disk (the indexes are always waited for).
        """
        max_bytes = min(max_bytes, MOST_AT_ONCE)
        if now and self.size:
            position = self.offsets.lookup(offset)
            size = min(max_bytes + _FIRST_HEADER_CHUNK, self.size - position)
            if not self.file.in_memory(size, position):
                raise NotInMemoryError(self.file, position, size)
        found = self.find(offset)
        if found is None:
            return None
        position, header = found
        size = header[LENGTH] + BATCH_OVERHEAD
        if header[BASE] >= upto_offset:
            return DiskRead(memoryview(b""), too_small=False)
        if size > max_bytes and not min_one:
            return DiskRead(memoryview(b""), too_small=True)
        wanted = max(size, min(max_bytes, self.size - position))
        data = self.file.pread(wanted, position)
        end, problem = _good_batches(data, header[BASE], upto_offset)
        if problem is not None and end == 0:
            raise self._corrupt(position, problem)
        return DiskRead(memoryview(data)[:end], too_small=False)

    def next_offset(self) -> int:
        """Return the offset after the last batch, by reading the file's end."""
        if self.size == 0:
            return self.base_offset
        last = self.base_offset
        _, position = self.offsets.last()
        try:
            for _, header in self.headers(position):
                last = header[BASE] + header[LAST_DELTA] + 1
        except CorruptRecordError:
            if position == 0:
                raise
            self.rebuild_indexes()
            return self.next_offset()
        return last

    # Changing --------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Drop the batch that holds `offset` and all that follow; return where that one began."""
        found = self.find(offset)
        if found is None:
            return offset
        self.cut(found[0])
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)
        # Entries of batches that began before `offset` but were cut cannot be left over: an
        # entry's offset is its batch's last one.
        kept = [e for e in self.aborted if e.last_offset < offset]
        if len(kept) != len(self.aborted):
            self.replace_aborted(kept)
        if self.size == 0:
            self._start_empty()
            self.remove_indexes()
        else:
            self._max_timestamp = None
        self.index_changed = True
        return found[1][BASE]

    def cut(self, size: int) -> None:
        """Shorten the file only; the caller sees to the indexes."""
        self.file.truncate(size)
        self.size = size
        self.bytes_since_index = 0

    def replace_aborted(self, entries: list[AbortedTransaction]) -> None:
        self._aborted = entries
        path = self.path(".txnindex")
        self.close_synced()
        if not entries:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(path)
            return
        file = self._files.open(path, create=True)
        file.truncate(0)
        file.pwrite((aborted_index.encode(entries),), 0)
        self.unsynced.append(file)

    def close(self) -> None:
        """Give back descriptors; nothing is written."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.close_synced()

    def relocate(self, folder: str) -> None:
        """Go on in this folder: the one that the files lie in was given this name."""
        unsynced = bool(self.unsynced)
        self.close()
        self._folder = folder
        if unsynced:
            self.unsynced.append(self._files.open(self.path(".txnindex")))

    def close_synced(self) -> None:
        for file in self.unsynced:
            file.close()
        self.unsynced.clear()

    def mark_deleted(self) -> list[str]:
        """Rename the files so that a start cleans up what we do not; return their new paths."""
        self.close()
        renamed = []
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            path = self.path(suffix)
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(path, path + ".deleted")
                renamed.append(path + ".deleted")
        return renamed


def _good_batches(data: bytes, first_offset: int, upto_offset: int) -> tuple[int, str | None]:
    """Return where the whole, good batches below `upto_offset` end, and what is wrong there."""
    # All a broker does to a cold batch happens here, so nothing is unpacked that is not looked at.
    begin = end = 0
    limit = len(data)
    last_start = limit - HEADER_SIZE
    next_offset = first_offset
    while end <= last_start:
        base, length, magic, crc, last_delta = _unpack_brief(data, end)
        # The base offset lies outside of the checksum; that it goes back can be seen. Then this
        # batch or the one before it is wrong, so neither is served.
        if base < next_offset:
            return begin, f"offset {base} after {next_offset}"
        if base >= upto_offset:
            break
        size = length + BATCH_OVERHEAD
        if size < HEADER_SIZE or magic != 2:
            return end, f"size {size}, magic {magic}"
        after = end + size
        if after > limit:
            break
        if crc32c(data[end + CRC_FROM : after]) != crc:
            return end, "the CRC does not match"
        next_offset = base + last_delta + 1
        begin, end = end, after
    return end, None
