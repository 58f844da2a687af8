"""Slices: long work is a generator, so that its caller can yield to the event loop.

Invariants: a few milliseconds at most between two yields, whatever the size of a log (F19); bytes
that are not in memory are yielded as a range before they are read, so that a worker can read them.
"""

from collections.abc import Generator
from typing import NamedTuple, TypeVar

from ottla.model.ports import File

T = TypeVar("T")


class ColdRange(NamedTuple):
    """Bytes of a file that are about to be read, and are not in memory."""

    file: File
    position: int
    size: int


Steps = Generator[ColdRange | None, None, T]
"""Yields None to let others run, or a range that a worker may read ahead; then returns T."""

AHEAD = 4 << 20
"""Bytes that are looked for in memory at once."""


class Reader:
    """Reads a file from front to back in pieces; tells before each which bytes are on disk only."""

    __slots__ = ("_end", "_file", "_looked_to")

    def __init__(self, file: File, position: int, end: int) -> None:
        self._file = file
        self._looked_to = position
        self._end = end

    def missing(self, position: int, size: int) -> ColdRange | None:
        """Return which of the next `AHEAD` bytes to prefetch before `read`, None if none.

        Asked once per range: what is still not there after that is waited for in `read`.
        """
        if min(position + size, self._end) <= self._looked_to:
            return None
        ahead = min(max(AHEAD, size), self._end - position)
        self._looked_to = position + ahead
        if self._file.in_memory(ahead, position):
            return None
        return ColdRange(self._file, position, ahead)

    def read(self, position: int, size: int) -> bytes:
        return self._file.pread(min(size, self._end - position), position)
