"""ZooKeeper's transaction log, `version-2/log.<zxid>`: written in batches, read with suspicion.

A file is a header, then for each transaction its Adler-32 (8 bytes), its length (4), the
transaction (`transactions`) and a `B`; zeros follow, taken in advance. It appears under its name
once its header is durable: a ZooKeeper refuses one without. One fsync is under way at a time, and
nothing is written meanwhile: so whatever a power loss can tear is in one batch. A ZooKeeper takes a
transaction without its `B` for the end, but refuses a wrong checksum: one longer than a page, of
which a power loss may keep both ends alone, gets its `B` in a second fsync. Each transaction of
ours ends in four bytes more, which ZooKeeper does not read: how far into its batch it begins. By
them a torn batch (cut off) can be distinguished from damage to what was acknowledged (refused).
ZooKeeper: `FileTxnLog`, `FilePadding`, `SyncRequestProcessor`.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import adler32

from ottla.model.errors import WireError
from ottla.model.ports import File, Files
from ottla.zookeeper import jute, transactions
from ottla.zookeeper.transactions import Transaction

FILE_HEADER = struct.Struct(">4siq")
LOG_MAGIC, SNAPSHOT_MAGIC, FORMAT = b"ZKLG", b"ZKSN", 2
PREALLOCATED_BYTES = 4 << 20
PADDING_AHEAD_BYTES = 4096
SCRATCH = "ottla-log.tmp"
PAGE_BYTES = 4096
"""What a disk writes whole or not at all."""
_FRAME = struct.Struct(">qi")
_END = b"B"


class DamagedFileError(Exception):
    """A file is not what was written: path, position and what is wrong, in one line."""


class MissingTransactionsError(DamagedFileError):
    """Transactions cannot be read that were acknowledged; what precedes them can be used."""


class Entry(NamedTuple):
    """A valid entry at `position`; its batch began at `batch_start`."""

    transaction: Transaction
    position: int
    end: int
    batch_start: int


def name_of(zxid: int) -> str:
    return f"log.{zxid:x}"


def zxid_of(name: str, prefix: str) -> int | None:
    """Return the zxid in a file's name, None if it is no such file."""
    kind, _, number = name.partition(".")
    try:
        return int(number, 16) if kind == prefix else None
    except ValueError:
        return None


def numbered(files: Files, folder: str, prefix: str) -> list[tuple[int, str]]:
    """Return zxid and path of the files of one kind, oldest first."""
    found = [(zxid_of(name, prefix), f"{folder}/{name}") for name in files.listdir(folder)]
    return sorted((zxid, path) for zxid, path in found if zxid is not None)


def _entry_at(data: bytes, position: int) -> Entry | None:
    """Return the entry at a position, None if there is no valid one."""
    if position + _FRAME.size > len(data):
        return None
    checksum, size = _FRAME.unpack_from(data, position)
    start = position + _FRAME.size
    end = start + size + 1
    if size < transactions.HEADER.size or end > len(data) or data[end - 1 : end] != _END:
        return None
    body = data[start : end - 1]
    if adler32(body) != checksum:
        return None
    try:
        transaction, known = transactions.decode(body)
    except WireError as error:
        raise DamagedFileError(f"position {position}: {error}") from None
    ours = len(body) - known == jute.INT.size
    into_batch = jute.INT.unpack_from(body, known)[0] if ours else 0
    return Entry(transaction, position, end, position - into_batch)


class LogFile(NamedTuple):
    """What a log file holds. `torn`: something unfinished follows its end.

    `damage`: what is wrong where something acknowledged follows it.
    """

    entries: list[Entry]
    end: int
    torn: bool
    damage: str | None = None


def read(data: bytes, path: str) -> LogFile:
    """Read all valid entries up to a damage; DamagedFileError where one cannot be decoded."""
    position = FILE_HEADER.size
    broken_header = len(data) < position or data[:4] != LOG_MAGIC
    entries: list[Entry] = []
    try:
        while not broken_header and (entry := _entry_at(data, position)) is not None:
            entries.append(entry)
            position = entry.end
        if not broken_header and len(data.rstrip(b"\0")) <= position:
            return LogFile(entries, position, torn=False)
        for later in _later_entries(data, position):
            if later.batch_start > position:
                damage = (
                    f"{path}: damage at position {position}, before the valid zxid "
                    f"{later.transaction.zxid:#x} at {later.position}"
                )
                return LogFile(entries, position, torn=False, damage=damage)
    except DamagedFileError as error:
        raise DamagedFileError(f"{path}: {error}; restore it from a copy") from None
    return LogFile(entries, position, torn=True)


def _later_entries(data: bytes, position: int) -> Iterator[Entry]:
    """Yield whatever is a valid entry after a place that is not one."""
    last = len(data.rstrip(b"\0"))
    while (position := data.find(b"\0\0\0\0", position + 1, last)) >= 0:  # a checksum's upper half
        entry = _entry_at(data, position)
        if entry is not None:
            yield entry
            position = entry.end - 1


class LogWriter:
    """Appends batches to the newest file. `begin_file` and `sync` may run in a worker.

    Nothing but `append` meanwhile.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._file: File | None = None
        self._position = self._allocated = 0
        self._batch: list[bytes] = []
        self._batch_bytes = 0
        self._long: list[tuple[int, int]] = []
        """The `B` of each long transaction: its place in the batch's parts, and in its bytes."""
        self._missing: list[int] = []
        """Where these are still to be written."""
        self._first_zxid = 0

    def append(self, transaction: Transaction) -> None:
        """Add to the batch that the next `write` takes."""
        body = transactions.encode(transaction) + jute.INT.pack(self._batch_bytes)
        if not self._batch:
            self._first_zxid = transaction.zxid
        self._batch += [_FRAME.pack(adler32(body), len(body)), body, _END]
        size = _FRAME.size + len(body) + 1
        self._batch_bytes += size
        if size > PAGE_BYTES:
            self._long.append((len(self._batch) - 1, self._batch_bytes - 1))

    @property
    def needs_file(self) -> bool:
        """Whether `begin_file` has to come before the next `write`."""
        return self._file is None

    def begin_file(self) -> None:
        """Make the file that begins with the batch, durable but for the batch."""
        scratch, path = (f"{self._folder}/{n}" for n in (SCRATCH, name_of(self._first_zxid)))
        file = self._files.open(scratch, create=True)
        file.truncate(0)
        file.pwrite([FILE_HEADER.pack(LOG_MAGIC, FORMAT, 0)], 0)
        file.truncate(PREALLOCATED_BYTES)
        file.fsync()
        self._files.rename(scratch, path)
        file.moved(path)
        self._files.fsync_dir(self._folder)
        self._position, self._allocated = FILE_HEADER.size, PREALLOCATED_BYTES
        self._file = file

    def write(self) -> int:
        """Write the batch; return its bytes. It is durable after `sync`."""
        assert self._file is not None, "begin_file comes first"
        parts, size = self._batch, self._batch_bytes
        self._batch, self._batch_bytes = [], 0
        end = self._position + size
        if end + PADDING_AHEAD_BYTES >= self._allocated:
            self._allocated = (end // PREALLOCATED_BYTES + 1) * PREALLOCATED_BYTES
            self._file.truncate(self._allocated)
        for index, _ in self._long:
            parts[index] = b"\0"
        self._missing = [self._position + into_batch for _, into_batch in self._long]
        self._long.clear()
        self._file.pwrite(parts, self._position)
        self._position = end
        return size

    def sync(self) -> None:
        """Make what was written durable; OSError ends all trust in this file."""
        assert self._file is not None, "nothing was written"
        self._file.fsync()
        if self._missing:
            for position in self._missing:
                self._file.pwrite([_END], position)
            self._missing.clear()
            self._file.fsync()

    def roll(self) -> None:
        """Let the next batch begin a new file; only while no fsync is under way."""
        if self._file is not None:
            self._file.close()
            self._file = None
