"""A cleaned segment while it is written: `.log.cleaned` with its indexes.

Who may call: `cleaner`. Kafka: `UnifiedLog.createNewCleanedSegment` and what `Cleaner` writes
into it. Invariants: no reader sees these files before they are durable and renamed by
`LocalLog.replace_segments`; a start removes what a crash leaves of them.
"""

import contextlib

from ottla.log import aborted as aborted_index
from ottla.log.aborted import AbortedTransaction
from ottla.log.segment import Segment
from ottla.model.ports import Buffer, Files
from ottla.wire.batch_header import Header, unpack_header

CLEANED = ".cleaned"
_INDEXES = (".index", ".timeindex", ".txnindex")
_RUN_BYTES = 1 << 18


class CleanedSegment:
    """Takes batches in order; `finish`, then `make_durable` in a worker."""

    def __init__(
        self, files: Files, folder: str, base_offset: int, created_ms: int, index_interval: int
    ) -> None:
        self._files = files
        self._interval = index_interval
        self._segment = Segment.create_lazily(files, folder, base_offset, created_ms)
        self._file = files.open(self._path(".log"), create=True)
        self._file.truncate(0)
        self._segment.attach(self._file)
        self._parts: list[Buffer] = []
        self._headers: list[tuple[int, Header]] = []
        self._waiting = 0
        self._indexes: list[tuple[str, bytes]] = []
        self.suffixes: list[str] = []
        """suffixes of the files written, known after `finish`; `.log` first"""

    @property
    def size(self) -> int:
        return self._segment.size + self._waiting

    def _path(self, suffix: str) -> str:
        return self._segment.path(suffix) + CLEANED

    def add(self, batch: Buffer) -> None:
        """Take one batch; OSError if a full run cannot be written."""
        self._headers.append((self._waiting, unpack_header(batch, 0)))
        self._parts.append(batch)
        self._waiting += len(batch)
        if self._waiting >= _RUN_BYTES:
            self._write()

    def _write(self) -> None:
        if self._parts:
            run = memoryview(b"".join(self._parts))
            self._segment.append_run(run, self._headers, self._interval)
            self._parts, self._headers, self._waiting = [], [], 0

    def finish(self, aborted: list[AbortedTransaction]) -> None:
        """Write the buffered batches; `make_durable` writes the indexes."""
        self._write()
        self._segment.finish_indexes()
        self._indexes = [
            (".index", self._segment.offsets.dump()),
            (".timeindex", self._segment.times.dump()),
        ]
        if aborted:
            self._indexes.append((".txnindex", aborted_index.encode(aborted)))
        self.suffixes = [".log", *(suffix for suffix, _ in self._indexes)]

    def make_durable(self) -> None:
        """Write the indexes and sync everything; a worker may call it."""
        self._file.fsync()
        for suffix, data in self._indexes:
            self._files.write_atomic(self._path(suffix), data)

    def close(self) -> None:
        self._segment.close()

    def discard(self) -> None:
        """Remove everything: the cleaning was aborted."""
        self.close()
        for suffix in (".log", *_INDEXES):
            with contextlib.suppress(OSError):
                self._files.remove(self._path(suffix))
