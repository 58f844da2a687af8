"""Slices: work that may be long is a generator, so that whoever drives it can let others run.

Who may call: this room, which yields; `broker.broker`, which drives a start. Invariants: between
two yields lie a few milliseconds at most, whatever the size of a log (F19); what only the disk has
is named before it is read, so that a worker can wait for it.
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
"""Yields None where others may run, a range where a worker may read ahead; then returns."""

AHEAD = 4 << 20
"""So many bytes are looked for in memory at once."""


class Reader:
    """Reads a file from front to back in pieces; says what has to be waited for before that."""

    __slots__ = ("_end", "_file", "_looked_to")

    def __init__(self, file: File, position: int, end: int) -> None:
        self._file = file
        self._looked_to = position
        self._end = end

    def missing(self, position: int, size: int) -> ColdRange | None:
        """Return what of the next `AHEAD` bytes is to be brought before `read`, None if nothing.

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
