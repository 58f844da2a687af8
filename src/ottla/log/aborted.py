"""A segment's aborted transactions: Kafka's `.txnindex`, for read_committed consumers.

Kafka: `TransactionIndex` and `AbortedTxn`. Invariants: the file is created with its first entry;
entries are in the order of their markers; bytes that cannot be an index raise `CorruptIndexError`
and the segment builds it again; what was written stays in `unsynced` until a flush made it durable.
"""

import contextlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla.log.index import CorruptIndexError
from ottla.model.ports import File, Files

ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = ENTRY.size
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction; `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode(data: bytes, base_offset: int) -> list[AbortedTransaction]:
    """Read an index file; CorruptIndexError unless it can be one."""
    if len(data) % ENTRY_SIZE:
        raise CorruptIndexError(f"{len(data)} bytes are not a whole number of entries")
    entries = []
    for version, *fields in ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptIndexError(f"an entry of version {version}")
        entry = AbortedTransaction(*fields)
        if entry.last_offset < base_offset:
            raise CorruptIndexError(f"offset {entry.last_offset} lies before the segment")
        entries.append(entry)
    return entries


def overlapping(
    entries: Iterable[AbortedTransaction], first: int, upper: int
) -> tuple[list[AbortedTransaction], bool]:
    """Return transactions with records in [first, upper), and whether no later one can follow."""
    found = []
    for entry in entries:
        if entry.last_offset >= first and entry.first_offset < upper:
            found.append(entry)
        if entry.last_stable_offset >= upper:
            return found, True
    return found, False


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class AbortedFile:
    """The `.txnindex` of the segment that begins at `base_offset`; `Segment` inherits from it."""

    __slots__ = ("_aborted", "_files", "_folder", "base_offset", "unsynced")

    def __init__(self, files: Files, folder: str, base_offset: int) -> None:
        self._files = files
        self._folder = folder
        self.base_offset = base_offset
        self.unsynced: list[File] = []
        self._aborted: list[AbortedTransaction] | None = None

    def path(self, suffix: str) -> str:
        return f"{self._folder}/{file_name(self.base_offset, suffix)}"

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """Transactions aborted in this segment; CorruptIndexError if the file cannot be one."""
        if self._aborted is None:
            data = b""
            with contextlib.suppress(FileNotFoundError):
                data = self._files.read_bytes(self.path(".txnindex"))
            self._aborted = decode(data, self.base_offset)
        return self._aborted

    def set_aborted(self, entries: list[AbortedTransaction] | None) -> None:
        """Set the entries that a worker read, or none without a file; ignored if already read."""
        self._aborted = entries if self._aborted is None else self._aborted

    def append_aborted(self, entry: AbortedTransaction) -> None:
        entries = self.aborted
        self.open_aborted()
        file = self.unsynced[-1]
        file.pwrite((encode((entry,)),), len(entries) * ENTRY_SIZE)
        entries.append(entry)

    def open_aborted(self) -> None:
        """Read the index and open its file, so that `append_aborted` cannot fail to open it."""
        _ = self.aborted
        if not self.unsynced:
            self.unsynced.append(self._files.open(self.path(".txnindex"), create=True))

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
        file.pwrite((encode(entries),), 0)
        self.unsynced.append(file)

    def restore_unsynced(self, files: list[File]) -> None:
        """Count files of this segment that a flush did not sync as unsynced again."""
        self.unsynced += [f for f in files if f.path == self.path(".txnindex")]

    def close_synced(self) -> None:
        for file in self.unsynced:
            file.close()
        self.unsynced.clear()
