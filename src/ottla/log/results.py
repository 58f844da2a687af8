"""The results of a log's operations, for replication.

All are plain tuples, since each append and each read makes one. Kafka: `LogAppendInfo`,
`FetchDataInfo` and `TimestampAndOffset`.
"""

import errno
from typing import NamedTuple, Protocol

from ottla.model.errors import OttlaError
from ottla.model.ports import Buffer

_SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE))


class UnreadFormatError(OSError):
    """A log holds records of a format that is not read here (R21).

    An OSError, because everything that reads a log takes it offline for one. This one says nothing
    about the disk: only its partition goes offline, and no file of it is changed.
    """


def is_shortage(error: OSError) -> bool:
    """Whether descriptors ran out (F45): nothing was done, and the disk is as good as before.

    Anything else that a write, an fsync or a rename raises may mean lost data (F17, F18).
    """
    return error.errno in _SHORTAGES


class AppendInfo(NamedTuple):
    """What an append did. For a duplicate the offsets are those of the batch it repeats."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool
    bytes: int
    count: int  # type: ignore[assignment]


class LogRead(NamedTuple):
    """Whole batches from the one that holds `start_offset` on.

    `first_batch_incomplete` tells that there is data but `max_bytes` holds not one batch of it,
    `from_file` that it was read and checked just now.
    """

    parts: list[Buffer]
    size: int
    start_offset: int
    first_batch_incomplete: bool
    from_file: bool = False


class DiskRead(NamedTuple):
    """Whole batches read from one segment; `too_small` if `max_bytes` holds not even one."""

    data: memoryview
    too_small: bool


class Prefetchable(Protocol):
    """Something a worker can read from the disk: a file, or a segment whose indexes come first."""

    def prefetch(self, size: int, position: int, /) -> None:
        """Read these bytes into memory; a worker calls it."""
        ...


class NotInMemoryError(Exception):
    """A read that must not block needs the disk: `size` bytes of `file` at `position`."""

    def __init__(self, file: Prefetchable, position: int, size: int) -> None:
        super().__init__(f"{size} bytes at {position} are on the disk only")
        self.file = file
        self.position = position
        self.size = size


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch that wrote it."""

    timestamp: int
    offset: int
    leader_epoch: int


class UnexpectedOffsetError(OttlaError):
    """A follower was given batches that begin before its log end; nothing was appended."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset
