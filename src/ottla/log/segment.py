"""One segment: a `.log` file of record batches with its indexes.

Kafka: `LogSegment` and `FileRecords`. Invariants: batches lie back to back from 0 to `size`, among
them entries of format 0 and 1, each with a header as if it were a batch (`wire.message_sets`);
nothing beyond `size` is ever read; indexes and the aborted-transaction index are loaded at first
use and may be dropped again (`release`) while the segment is not the active one. Reads from the
file check the CRC of every batch they return: a flipped bit is never served as good (F20).
"""

import contextlib
from collections.abc import Iterator

from google_crc32c import extend
from google_crc32c import value as crc32c

from ottla.log.aborted import AbortedFile
from ottla.log.index import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY,
    CorruptIndexError,
    OffsetIndex,
    TimeIndex,
)
from ottla.log.results import DiskRead, NotInMemoryError
from ottla.log.slices import AHEAD, Reader, Steps
from ottla.model.errors import CorruptRecordError
from ottla.model.ports import File, Files
from ottla.model.protocol import NO_TIMESTAMP
from ottla.model.steps import drain
from ottla.wire.batch_header import (
    BASE_OFFSET,
    CRC,
    CRC_START,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LEAST_LENGTH,
    LENGTH,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAGIC_V2,
    MAX_TIMESTAMP,
    START_BYTES,
    Header,
    crc_matches,
    unpack_check,
    unpack_header,
    unpack_start,
)
from ottla.wire.message_sets import OLD_MAGICS, old_entry

_CHUNK = 1 << 20
_FIRST_HEADER_CHUNK = 1 << 13
_HEADER_CHUNK = 1 << 16
_PIECE = 1 << 20
_SLICE = 1500
"""so many headers between two yields"""
MOST_AT_ONCE = 4 << 20
"""Bytes per read at most: they are checked and copied in one callback."""


class Segment(AbortedFile):
    """A segment and what is known of it in memory."""

    __slots__ = (
        "_file",
        "_index_is_true",
        "_loader",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offsets",
        "_times",
        "bytes_since_index",
        "created_ms",
        "first_timestamp",
        "index_changed",
        "index_limit",
        "max_offset",
        "size",
        "used",
    )

    def __init__(self, files: Files, folder: str, base_offset: int, created_ms: int) -> None:
        super().__init__(files, folder, base_offset)
        self._file: File | None = None
        self.max_offset = base_offset + MAX_RELATIVE_OFFSET
        """the highest offset that may be appended; -1 once the index is full"""
        self.index_limit = MAX_RELATIVE_OFFSET
        self.size = 0
        self.created_ms = created_ms
        self.bytes_since_index = 0
        self.first_timestamp: int | None = None
        self.used = False
        self.index_changed = False
        self._loader: IndexLoader | None = None
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._index_is_true = False
        """whether the index was built from the batches, so that it cannot be wrong"""
        self._max_timestamp: int | None = None
        self._max_timestamp_offset = -1

    @classmethod
    def create(cls, files: Files, folder: str, base_offset: int, now_ms: int) -> "Segment":
        """Create an empty segment with its file, whose name says where the log continues."""
        segment = cls.create_lazily(files, folder, base_offset, now_ms)
        file = files.open(segment.path(".log"), create=True)
        if file.size():
            file.truncate(0)
        segment.attach(file)
        return segment

    @classmethod
    def create_lazily(cls, files: Files, folder: str, base_offset: int, now_ms: int) -> "Segment":
        """Return an empty segment whose file is created with its first batch.

        Only for a log that begins at 0: a folder without segments means the same.
        """
        segment = cls(files, folder, base_offset, now_ms)
        segment._start_empty()
        return segment

    @classmethod
    def open(cls, files: Files, folder: str, base_offset: int, size: int, now_ms: int) -> "Segment":
        """Return a segment of an existing file; nothing is read before it is needed."""
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
            self.first_timestamp = headers[0][1][MAX_TIMESTAMP]
        (self._file or self.file).pwrite((run,), position)
        for at, header in headers:
            self.index_batch(position + at, header, index_interval)
        self.size = position + len(run)

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

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether the largest timestamp is known without reading anything."""
        return self._max_timestamp is not None

    def adopt_max_timestamp(self, probe: "Segment") -> None:
        """Set the largest timestamp that a worker found in a probe, unless it is known."""
        if self._max_timestamp is None and probe.size == self.size:
            self._max_timestamp = probe.max_timestamp
            self._max_timestamp_offset = probe.max_timestamp_offset

    def largest_timestamp(self, *, now: bool = False) -> int:
        """Return the timestamp for retention; without one, the time when the segment was opened.

        NotInMemoryError with `now`, where the indexes have to be loaded for it.
        """
        if now and self._max_timestamp is None:
            self.need_indexes(self.base_offset, 0)
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
        self._offsets, self._times, self._index_is_true = offsets, times, False
        if not self._times_agree():
            self.rebuild_indexes()

    def need_indexes(self, offset: int, size: int, *, rebuild: bool = False) -> None:
        """Raise NotInMemoryError unless the indexes are loaded: a worker is to load them.

        And to read `size` bytes from the batch that holds `offset` on, once it knows where.
        """
        if rebuild:
            self._loader = self._offsets = self._times = None
        if self._offsets is not None or not self.size:
            return
        loader = self._loader
        if loader is None or loader.size != self.size:
            loader = self._loader = IndexLoader(self.probe(), self.file, rebuild=rebuild)
        if loader.loaded is None:
            raise NotInMemoryError(loader, offset, size)
        self._adopt(loader.loaded)

    def probe(self) -> "Segment":
        """Return this segment as it is now, for a worker to read through a file of its own."""
        probe = Segment.open(
            self._files, self._folder, self.base_offset, self.size, self.created_ms
        )
        if self._offsets is not None and self._times is not None:
            probe.set_indexes(self._offsets.copy(), self._times.copy(), true=self._index_is_true)
        return probe

    def _adopt(self, loaded: "Segment") -> None:
        """Take the indexes that a worker loaded of this segment, which did not change since."""
        self._loader = None
        self._offsets, self._times = loaded.offsets, loaded.times
        self._max_timestamp = loaded.max_timestamp
        self._max_timestamp_offset = loaded.max_timestamp_offset
        self._index_is_true = loaded._index_is_true  # noqa: SLF001
        self.set_aborted(loaded._aborted)  # noqa: SLF001
        self.bytes_since_index = loaded.bytes_since_index
        self.index_changed = self.index_changed or loaded.index_changed
        self.used = True

    def load_all(self) -> None:
        """Load the indexes and find the largest timestamp."""
        _ = self.offsets, self.times, self.max_timestamp
        with contextlib.suppress(CorruptIndexError):  # rebuilt by the next use
            _ = self.aborted

    def _times_agree(self) -> bool:
        """Return whether the last time index entry matches its batch; retention relies on it."""
        assert self._times is not None
        timestamp, offset = self._times.last()
        if timestamp < 0:
            return True
        try:
            found = self.find(offset)
        except CorruptRecordError:
            return False
        return found is not None and found[1][MAX_TIMESTAMP] == timestamp

    def _find_max_timestamp(self) -> None:
        """Start from the last time index entry, look at the batches behind it."""
        times = self.times
        timestamp, offset = times.last()
        position = self.offsets.lookup(offset)
        with contextlib.suppress(CorruptRecordError):  # a read there gets the error
            for _, header in self.headers(position):
                if header[MAX_TIMESTAMP] > timestamp:
                    timestamp = header[MAX_TIMESTAMP]
                    offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        self._max_timestamp, self._max_timestamp_offset = timestamp, offset

    def first_batch_timestamp(self) -> int:
        """Return the first batch's timestamp, which segment.ms counts from; -1 if none."""
        if self.first_timestamp is None:
            for _, header in self.headers(0):
                self.first_timestamp = header[MAX_TIMESTAMP]
                break
            else:
                return NO_TIMESTAMP
        return self.first_timestamp

    def rebuild_indexes(self, index_interval: int = 4096) -> None:
        """Build both indexes from the batches' headers.

        Beyond bytes that are no batch it goes on where the index known so far leads to a good one.
        """
        drain(self.rebuilding_indexes(index_interval))

    def rebuilding_indexes(self, index_interval: int = 4096) -> Steps[None]:
        """As `rebuild_indexes`, in slices."""
        known = self._offsets
        self.start_indexes()
        self._index_is_true = True
        reader = Reader(self.file, 0, self.size)
        next_look = 0
        left = _SLICE
        place: int | None = 0
        while place is not None:
            try:
                for position, header in self.headers(place):
                    self.index_batch(position, header, index_interval)
                    place = position + header[LENGTH] + LOG_OVERHEAD
                    left -= 1
                    if not left or position >= next_look:
                        left = _SLICE
                        next_look = position + AHEAD // 2
                        yield reader.missing(position, _CHUNK)
                break
            except CorruptRecordError:  # a read there gets the error
                found = None if known is None else self.resume(known, place)
                place = None if found is None else found[0]
                self.bytes_since_index = index_interval + 1  # so that this place stays known
        self.finish_indexes()

    def resume(self, index: OffsetIndex, position: int) -> tuple[int, Header] | None:
        """Return the first good batch beyond `position` that the index leads to, and its position.

        Never by searching for bytes that look like a batch: a record may contain such bytes.
        """
        for offset, at in index.after(position):
            try:
                for _, header, _ in self.batches(at):
                    if self.base_offset <= header[BASE_OFFSET] <= offset:
                        return at, header
                    break
            except CorruptRecordError:
                continue
        return None

    def set_indexes(self, offsets: OffsetIndex, times: TimeIndex, *, true: bool) -> None:
        """Set the indexes; `true`: they were built from the batches."""
        self._offsets, self._times, self._index_is_true = offsets, times, true

    def settle_indexes(self, max_timestamp: int, its_offset: int, unindexed: int) -> None:
        """Set the largest timestamp that a check found, and its offset."""
        self._max_timestamp, self._max_timestamp_offset = max_timestamp, its_offset
        self.bytes_since_index = unindexed
        if len(self.offsets) >= self.index_limit:
            self.max_offset = -1

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
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        if header[MAX_TIMESTAMP] > self._max_timestamp:
            self._max_timestamp = header[MAX_TIMESTAMP]
            self._max_timestamp_offset = last_offset
        if self.bytes_since_index > index_interval:
            self._offsets.append(last_offset, position)
            if len(self._offsets) >= self.index_limit:
                self.max_offset = -1
            self._times.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self.bytes_since_index = 0
            self.index_changed = True
        self.bytes_since_index += header[LENGTH] + LOG_OVERHEAD

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
            self._aborted = None if self._aborted else self._aborted

    # Reading ---------------------------------------------------------------------------

    def headers(self, position: int, end: int | None = None) -> Iterator[tuple[int, Header]]:
        """Yield (position, header) of each batch from `position`, which must begin one."""
        end = self.size if end is None else end
        file = self.file
        chunk = b""
        start = position
        chunk_size = _FIRST_HEADER_CHUNK
        next_offset = -1
        upper = self.base_offset + MAX_RELATIVE_OFFSET
        while position < end:
            if position + HEADER_BYTES > start + len(chunk):
                start = position
                chunk = file.pread(min(chunk_size, end - position), position)
                chunk_size = _HEADER_CHUNK
            whole = len(chunk) >= HEADER_BYTES
            header = unpack_header(chunk, position - start) if whole else NO_HEADER
            size = header[LENGTH] + LOG_OVERHEAD
            if size < HEADER_BYTES or header[MAGIC] != MAGIC_V2 or position + size > end:
                found = old_entry_at(file, position, end)
                if found is None:
                    raise self._corrupt(position, no_batch(header, chunk))
                header = found[0]
                size = header[LENGTH] + LOG_OVERHEAD
            if not next_offset <= header[BASE_OFFSET] <= upper:
                raise self._corrupt(position, f"offset {header[BASE_OFFSET]} after {next_offset}")
            yield position, header
            next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
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
            if at + HEADER_BYTES > len(chunk):
                chunk = memoryview(file.pread(min(_CHUNK, end - position), position))
                start, at = position, 0
            header = unpack_header(chunk, at) if len(chunk) >= HEADER_BYTES else NO_HEADER
            size = header[LENGTH] + LOG_OVERHEAD
            if size < HEADER_BYTES or header[MAGIC] != MAGIC_V2 or position + size > end:
                found = old_entry_at(file, position, end)
                if found is None:
                    raise self._corrupt(position, no_batch(header, chunk))
                yield position, *found
                position += len(found[1])
                continue
            if at + size > len(chunk):
                chunk = memoryview(file.pread(max(size, min(_CHUNK, end - position)), position))
                start, at = position, 0
            batch = chunk[at : at + size]
            if len(batch) < size or not crc_matches(batch, header[CRC]):
                raise self._corrupt(position, "the CRC does not match")
            yield position, header, batch
            position += size

    def _corrupt(self, position: int, what: str) -> CorruptRecordError:
        return CorruptRecordError(f"{self.path('.log')} is corrupt at byte {position}: {what}")

    def find(self, offset: int, *, now: bool = False) -> tuple[int, Header] | None:
        """Return (position, header) of the batch that holds `offset` or the next one after it.

        NotInMemoryError with `now`, where the indexes have to be built again.
        """
        position = self.offsets.lookup(offset)
        try:
            return self._find(offset, position)
        except CorruptRecordError:
            if position == 0 or self._index_is_true:
                raise
        # An index entry that leads between batches is the index's fault, not the log's.
        if now:
            self.need_indexes(offset, _FIRST_HEADER_CHUNK, rebuild=True)
        self.rebuild_indexes()
        return self._find(offset, self.offsets.lookup(offset))

    def _find(self, offset: int, position: int) -> tuple[int, Header] | None:
        place = position
        try:
            for at, header in self.headers(position):
                if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] >= offset:
                    if at == position and header[BASE_OFFSET] > offset and position:
                        raise self._corrupt(at, "the index points beyond the offset")
                    return at, header
                place = at + header[LENGTH] + LOG_OVERHEAD
        except CorruptRecordError:
            found = self.resume(self.offsets, place)
            if found is None or found[1][BASE_OFFSET] > offset:
                raise
            return self._find(offset, found[0])
        return None

    def read(
        self, offset: int, max_bytes: int, upto_offset: int, min_one: bool, now: bool = False
    ) -> DiskRead | None:
        """Read whole batches from the one holding `offset`, none beginning at `upto_offset`.

        Batches before a bad one are returned; CorruptRecordError if the first is bad, None if
        the segment holds no such batch. One system call for the data unless the first batch is
        larger than `max_bytes`. At most `MOST_AT_ONCE` bytes, or one batch. With `now`,
        NotInMemoryError where that would wait for the disk, be it for the indexes.
        """
        max_bytes = min(max_bytes, MOST_AT_ONCE)
        if now and self.size:
            self.need_indexes(offset, max_bytes + _FIRST_HEADER_CHUNK)
            position = self.offsets.lookup(offset)
            size = min(max_bytes + _FIRST_HEADER_CHUNK, self.size - position)
            if not self.file.in_memory(size, position):
                raise NotInMemoryError(self.file, position, size)
        found = self.find(offset, now=now)
        if found is None:
            return None
        position, header = found
        size = header[LENGTH] + LOG_OVERHEAD
        if header[BASE_OFFSET] >= upto_offset:
            return DiskRead(memoryview(b""), too_small=False)
        if size > max_bytes and not min_one:
            return DiskRead(memoryview(b""), too_small=True)
        wanted = max(size, min(max_bytes, self.size - position))
        data = self.file.pread(wanted, position)
        end, problem = good_batches(data, header[BASE_OFFSET], upto_offset)
        if problem is not None and end == 0:
            raise self._corrupt(position, problem)
        return DiskRead(memoryview(data)[:end], too_small=False)

    def finding_end(self) -> Steps[int]:
        """Return the offset after the last batch, by reading the file's end.

        CorruptRecordError if the batches do not lead there.
        """
        for start in {self._last_indexed(): None, 0: None}:
            left = _SLICE
            end = self.base_offset
            try:
                for _, header in self.headers(start):
                    end = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
                    left -= 1
                    if not left:
                        left = _SLICE
                        yield None
            except CorruptRecordError:
                if not start:
                    raise
            else:
                return end
        raise AssertionError

    def _last_indexed(self) -> int:
        """Return the position in the index file's last entry, 0 if there is none to believe."""
        if self._offsets is not None:
            return self._offsets.last()[1]
        path = self.path(".index")
        try:
            file = self._files.open(path)
        except FileNotFoundError:
            return 0
        try:
            size = file.size()
            entry = file.pread(OFFSET_ENTRY, max(0, size - OFFSET_ENTRY))
        finally:
            file.close()
        if size % OFFSET_ENTRY or len(entry) < OFFSET_ENTRY:
            return 0
        position = int.from_bytes(entry[4:], "big", signed=True)
        return position if 0 <= position < self.size else 0

    # Changing --------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Drop the batch that holds `offset` and all that follow; return where that one began."""
        found = self.find(offset)
        if found is None:
            return offset
        self.cut(found[0])
        began = found[1][BASE_OFFSET]
        if found[1][MAGIC] in OLD_MAGICS:  # of a wrapper only the last offset is known
            began = drain(self.finding_end()) if self.size else self.base_offset
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
        if len(self.offsets) < self.index_limit:
            self.max_offset = self.base_offset + MAX_RELATIVE_OFFSET
        self.index_changed = True
        return began

    def cut(self, size: int) -> None:
        """Truncate the file only; the caller truncates the indexes."""
        self.file.truncate(size)
        self.size = size
        self._loader = None
        self.bytes_since_index = 0

    def close(self) -> None:
        """Close the descriptors; nothing is written."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.close_synced()

    def relocate(self, folder: str) -> None:
        """Use this path from now on: the folder was renamed to it."""
        self._folder = folder
        if self._file is not None:
            self._file.moved(self.path(".log"))
        for file in self.unsynced:
            file.moved(self.path(".txnindex"))

    def mark_deleted(self) -> list[str]:
        """Rename the files to .deleted, so that a start removes them; return their new paths."""
        self.close()
        renamed = []
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            path = self.path(suffix)
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(path, path + ".deleted")
                renamed.append(path + ".deleted")
        return renamed


class IndexLoader:
    """Loads the indexes of one segment, and prefetches the records to be read through them.

    In a worker, so that no read on the event loop waits for the disk: the indexes of a large
    segment are megabytes, and where they are missing or wrong all its batches are looked at.
    The worker touches a segment object and a descriptor of its own (`Segment.probe`); the event
    loop takes over what it found, unless the segment changed since.
    """

    def __init__(self, probe: Segment, file: File, *, rebuild: bool) -> None:
        self.size = probe.size
        self.loaded: Segment | None = None
        """`probe`, once the worker has loaded it"""
        self.rebuild = rebuild
        self._probe = probe
        self._file = file
        self._turn = file.worker_lock()

    def prefetch(self, size: int, offset: int) -> None:
        """Load the indexes, then read `size` bytes from the batch that holds `offset` on.

        A worker calls it; OSError and what else goes wrong is found again by the next read.
        """
        with self._turn:
            if self.loaded is None:
                self._load()
        assert self.loaded is not None
        position = self._probe.offsets.lookup(offset)
        self._file.prefetch(min(size, self.size - position), position)

    def _load(self) -> None:
        reader = self._file.reader()
        if reader is None:
            raise FileNotFoundError(f"{self._file.path} was closed meanwhile")
        try:
            self._probe.attach(reader)
            if self.rebuild:
                _ = self._probe.offsets  # what it is built again with the help of
                self._probe.rebuild_indexes()
            self._probe.load_all()
        finally:
            self._probe.close()
        self.loaded = self._probe


# Which bytes of a file are whole batches with the right CRC (F20), entries of format 0 or 1, which
# are served as they are, or entries of a format that is not known here, which a start keeps (R21).

NO_HEADER: Header = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""Stands for bytes that are too few for a batch's header: its magic is no batch's."""


def no_batch(header: Header, chunk: bytes | memoryview) -> str:
    """Return what is wrong where no batch begins."""
    if header is NO_HEADER:
        return f"{len(chunk)} bytes are no batch"
    return f"size {header[LENGTH] + LOG_OVERHEAD}, magic {header[MAGIC]}"


def good_batches(data: bytes, first_offset: int, upto_offset: int) -> tuple[int, str | None]:
    """Return where the whole, good batches below `upto_offset` end, and what is wrong there."""
    # All a broker does to a cold batch happens here, so nothing is unpacked that is not looked at.
    begin = end = 0
    limit = len(data)
    last_start = limit - HEADER_BYTES
    next_offset = first_offset
    while end < limit:
        base, length, magic, crc, last_delta = (
            unpack_check(data, end) if end <= last_start else (0, 0, 0, 0, 0)
        )
        size = length + LOG_OVERHEAD
        if size < HEADER_BYTES or magic != MAGIC_V2:
            old = old_entry(data, end)
            if old is None:
                return end, f"size {size}, magic {magic}" if end <= last_start else None
            if old[BASE_OFFSET] >= upto_offset:
                break
            if old[BASE_OFFSET] < next_offset:
                return begin, f"offset {old[BASE_OFFSET]} after {next_offset}"
            next_offset = old[BASE_OFFSET] + 1
            begin, end = end, end + old[LENGTH] + LOG_OVERHEAD
            continue
        if base >= upto_offset:
            break
        after = end + size
        if after > limit and base >= next_offset:
            break
        if after <= limit and crc32c(data[end + CRC_START : after]) != crc:
            return end, "the CRC does not match"
        # The base offset lies outside of the checksum; that it goes back can be seen. Then this
        # batch or the one before it is wrong, so neither is served.
        if base < next_offset:
            return begin, f"offset {base} after {next_offset}"
        next_offset = base + last_delta + 1
        begin, end = end, after
    return end, None


def old_entry_at(file: File, position: int, end: int) -> tuple[Header, memoryview] | None:
    """Return the entry of format 0 or 1 at `position` with its header, None if none is there.

    Its CRC is checked: a batch whose magic was flipped must not pass for one.
    """
    start = file.pread(START_BYTES, position)
    if len(start) < START_BYTES or start[MAGIC_AT] not in OLD_MAGICS:
        return None
    _, length, _, _ = unpack_start(start, 0)
    if not LEAST_LENGTH <= length <= end - position - LOG_OVERHEAD:
        return None
    entry = memoryview(file.pread(length + LOG_OVERHEAD, position))
    header = old_entry(entry)
    return None if header is None else (header, entry)


def later_format(file: File, position: int, end: int, base_offset: int) -> int | None:
    """Return the magic of an entry that no version known here has written, None if there is none.

    Its checksum is not known yet, so it is one if its base offset fits the segment, its length the
    file, and the offset of what follows its own. A write that a power loss tore within these
    fields is followed by what lay there before. But where the CRC of format 2 is right, one bit of
    the magic was flipped, which that CRC does not cover.
    """
    start = file.pread(HEADER_BYTES, position)
    if len(start) < START_BYTES:
        return None
    base, length, _, magic = unpack_start(start, 0)
    after = position + LOG_OVERHEAD + length
    if magic == MAGIC_V2 or magic in OLD_MAGICS or length < LEAST_LENGTH or after > end:
        return None
    if not 0 <= base - base_offset <= MAX_RELATIVE_OFFSET:
        return None
    if end - after >= START_BYTES:
        next_base = unpack_start(file.pread(START_BYTES, after), 0)[0]
        if not base < next_base <= base_offset + MAX_RELATIVE_OFFSET:
            return None
    if after - position < HEADER_BYTES:
        return int(magic)
    found = 0
    for at in range(position + CRC_START, after, _PIECE):
        found = extend(found, file.pread(min(_PIECE, after - at), at))
    _, _, _, crc, _ = unpack_check(start, 0)
    return None if found == crc else int(magic)
