"""The process's own log, by --log-file: a line is written at once, a full file is set aside.

Who may call: `process`. Invariants: what is kept of full files is `log.predecessors`'; a file that
cannot be renamed grows on, and lines are still written.
"""

import logging
import time

from ottla.log.predecessors import Keep, Predecessors
from ottla.model.ports import Files


def wall_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class ProcessLogHandler(logging.FileHandler):
    """Appends to a file of bounded size."""

    def __init__(self, files: Files, path: str) -> None:
        super().__init__(path, encoding="utf-8")
        self._files = files
        self._path = path
        self._largest = Keep().file_bytes
        self._predecessors = Predecessors(files, path, Keep(), wall_ms)

    def keep(self, keep: Keep) -> None:
        """Take the settings, which are read after the log was opened."""
        self._largest = keep.file_bytes
        self._predecessors = Predecessors(self._files, self._path, keep, wall_ms)

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if self.stream is not None and self.stream.tell() >= self._largest:
            self._set_aside()

    def _set_aside(self) -> None:
        if self.stream is not None:
            self.stream.close()
        try:
            self._predecessors.set_aside()
        except OSError:
            self._largest *= 2  # it is tried again when the file is so large
        self.stream = self._open()
        self._predecessors.tidy()
