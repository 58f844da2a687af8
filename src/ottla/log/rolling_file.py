"""Rolling log file: lines are written without blocking, and with a bound on memory and disk.

Invariants: a line is queued at once and written later, a slice in one write, so that no decision
waits for a disk; memory is bounded by dropping the newest lines, and a `dropped` line says how
many; the disk is bounded by what is kept of `predecessors`; a file that is too long is renamed
between two lines, and `rotated` is called so that the new file can begin with a snapshot; a line
torn by a kill stays a line of its own; after a disk error no more lines are written, and the writer
goes on.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from ottla.log.predecessors import Keep, Predecessors
from ottla.model.ports import File, Files

logger = logging.getLogger(__name__)

MAX_QUEUED_LINES = 100_000
SLICE_BYTES = 64 * 1024
SLICE_PAUSE_S = 0.01
KEEP = Keep()


class RollingFile:
    """Lines to one file and its predecessors, a slice at a time."""

    def __init__(
        self,
        files: Files,
        path: str,
        wall_ms: Callable[[], int],
        keep: Keep = KEEP,
        rotated: Callable[[], None] = lambda: None,
        missing: Callable[[int], bytes] = lambda n: b'{"kind":"dropped","lines":%d}\n' % n,
    ) -> None:
        """`rotated` is called for a new file; `missing` makes the line for so many dropped ones."""
        self._files = files
        self._path = path
        self._rotated = rotated
        self._missing = missing
        self._file: File | None = None
        self._size = 0
        self._lines: deque[bytes] = deque()
        self._timer: asyncio.Handle | None = None
        self._broken = False
        self._predecessors = Predecessors(files, path, keep, wall_ms)
        self.max_bytes = keep.file_bytes
        self.dropped = 0
        self._dropped_since = 0

    def write(self, line: bytes) -> None:
        """Queue a line, its newline included. Never raises, never waits."""
        if self._broken:
            return
        if len(self._lines) >= MAX_QUEUED_LINES:
            self.dropped += 1
            self._dropped_since += 1
            return
        if self._dropped_since:
            self._lines.append(self._missing(self._dropped_since))
            self._dropped_since = 0
        self._lines.append(line)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SLICE_PAUSE_S, self._slice)

    def _slice(self) -> None:
        self._timer = None
        self._write_some()
        if self._lines:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SLICE_PAUSE_S, self._slice)

    def _write_some(self) -> None:
        parts = []
        size = 0
        while self._lines and size < SLICE_BYTES:
            line = self._lines.popleft()
            parts.append(line)
            size += len(line)
        try:
            if self._size + size > self.max_bytes:
                self._rotate()
            if self._file is None:
                self._file, self._size = self._open()
            self._file.pwrite(parts, self._size)
            self._size += size
        except OSError as error:
            logger.error("no more lines path=%s error=%s", self._path, error)  # noqa: TRY400
            self._broken = True
            self._lines.clear()

    def _open(self) -> tuple[File, int]:
        """Open at the end, which is the end of a line."""
        file = self._files.open(self._path, create=True)
        self._predecessors.tidy(self.max_bytes)
        size = file.size()
        if size and file.pread(1, size - 1) != b"\n":
            size += file.pwrite([b"\n"], size)
        return file, size

    def _rotate(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._predecessors.set_aside()
        self._size = 0
        self._rotated()

    def close(self) -> None:
        """Write what is queued and close."""
        self._predecessors.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._lines and not self._broken:
            self._write_some()
        if self._file is not None:
            self._file.close()
            self._file = None
