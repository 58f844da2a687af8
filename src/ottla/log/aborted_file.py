"""The file of a segment's aborted transactions: read at first use, appended to, rewritten.

Who may call: `segment`, which inherits from it. Kafka: the file handling of `TransactionIndex`.
Invariants: the file is created with its first entry; what was written to it stays in `unsynced`
until a flush made it durable.
"""

import contextlib

from ottla.log import aborted as aborted_index
from ottla.log.aborted import AbortedTransaction
from ottla.model.ports import File, Files


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class AbortedFile:
    """The `.txnindex` of the segment that begins at `base_offset`."""

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
            self._aborted = aborted_index.decode(data, self.base_offset)
        return self._aborted

    def set_aborted(self, entries: list[AbortedTransaction] | None) -> None:
        """Set the entries that a worker read, or none without a file; ignored if already read."""
        self._aborted = entries if self._aborted is None else self._aborted

    def append_aborted(self, entry: AbortedTransaction) -> None:
        entries = self.aborted
        self.open_aborted()
        file = self.unsynced[-1]
        file.pwrite((aborted_index.encode((entry,)),), len(entries) * aborted_index.ENTRY_SIZE)
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
        file.pwrite((aborted_index.encode(entries),), 0)
        self.unsynced.append(file)

    def restore_unsynced(self, files: list[File]) -> None:
        """Count files of this segment that a flush did not sync as unsynced again."""
        self.unsynced += [f for f in files if f.path == self.path(".txnindex")]

    def close_synced(self) -> None:
        for file in self.unsynced:
            file.close()
        self.unsynced.clear()
