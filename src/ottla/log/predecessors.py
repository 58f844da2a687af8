"""Predecessors: full log files set aside, compressed, and deleted by size and age.

Invariants: a file set aside is named by its moment (UTC, `path.20261124113000123`), so that names
sort in the order of time; it is compressed in small steps of the event loop, into a file of another
name that is renamed when it is whole, so nothing is lost by a kill; after a disk error nothing more
is compressed, and lines are still written.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from ottla.model.config import BrokerConfig
from ottla.model.journal_schema import GZIP, SET_ASIDE
from ottla.model.ports import File, Files

logger = logging.getLogger(__name__)

STEP_BYTES = 64 * 1024
STEP_PAUSE_S = 0.01
UNFINISHED = ".gz.tmp"
_GZIP_FORM = 31
"""zlib's window size for the gzip format."""
_STAMP_DIGITS = 17


class Keep(msgspec.Struct, frozen=True):
    """How much of one log is kept.

    A file of `file_bytes` is set aside; of all together `total_bytes` are kept, and for `age_ms`
    (-1: whatever their age); `compress`: files set aside become `.gz`.
    """

    file_bytes: int = 16 * 1024 * 1024
    total_bytes: int = 128 * 1024 * 1024
    age_ms: int = -1
    compress: bool = True


def keep_of(config: BrokerConfig) -> Keep:
    """Return what a broker's settings say."""
    return Keep(
        config.integer("ottla.application.logs.file.bytes"),
        config.integer("ottla.application.logs.retention.bytes"),
        config.integer("ottla.application.logs.retention.ms"),
        config.text("ottla.application.logs.compression.type") == "gzip",
    )


class Predecessors:
    """The files set aside of one log."""

    def __init__(self, files: Files, path: str, keep: Keep, wall_ms: Callable[[], int]) -> None:
        self._files = files
        self._path = path
        self._keep = keep
        self._wall_ms = wall_ms
        self._timer: asyncio.Handle | None = None
        self._compression: _Compression | None = None
        self._broken = False

    def set_aside(self) -> None:
        """Rename the log, if it is there, to one of its predecessors. OSError if it fails."""
        if self._files.exists(self._path):
            newest = max((_number(name) for name in self._names()), default=0)
            stamp = max(int(_stamp(self._wall_ms())), newest + 1)
            self._files.rename(self._path, f"{self._path}.{stamp}")

    def tidy(self, file_bytes: int = 0) -> None:
        """Delete what is not kept, then compress, a step at a time.

        `file_bytes`: how large the log itself may become.
        """
        if self._broken:
            return
        try:
            self._delete(max(file_bytes, self._keep.file_bytes))
        except OSError as error:
            self._fail(error)
            return
        if self._keep.compress and self._timer is None:
            self._next()

    def close(self) -> None:
        """Stop compressing; what is half done is begun again by the next process."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._compression is not None:
            self._compression.close()
            self._compression = None

    # --- inside -----------------------------------------------------------------------------

    def _names(self) -> list[str]:
        """Return the names of the files set aside, oldest first."""
        folder, _, base = self._path.rpartition("/")
        found = (
            name
            for name in self._files.listdir(folder or ".")
            if name.startswith(base) and SET_ASIDE.fullmatch(name, len(base))
        )
        return sorted(found, key=_number)

    def _paths(self) -> list[str]:
        folder, slash, _ = self._path.rpartition("/")
        return [f"{folder}{slash}{name}" for name in self._names()]

    def _delete(self, file_bytes: int) -> None:
        paths = self._paths()
        left = max(self._keep.total_bytes - file_bytes, 0)
        oldest_ms = self._wall_ms() - self._keep.age_ms
        kept = True
        for newer, path in enumerate(reversed(paths)):
            left -= self._files.size(path)
            set_aside_ms = _moment(path)
            aged = self._keep.age_ms >= 0 and set_aside_ms is not None and set_aside_ms < oldest_ms
            # The newest one stays: without it there may be no line before this moment.
            kept = kept and ((left >= 0 and not aged) or newer == 0)
            if not kept:
                if self._compression is not None and self._compression.source == path:
                    self.close()
                    self._files.remove(path + UNFINISHED)
                self._files.remove(path)

    def _next(self) -> None:
        """Begin to compress the oldest file that is not."""
        try:
            paths = self._paths()
            for path in paths:
                if not path.endswith(GZIP):
                    if f"{path}{GZIP}" in paths:  # a kill came between the last two steps
                        self._files.remove(path)
                        continue
                    loop = asyncio.get_running_loop()
                    self._compression = _Compression(self._files, path)
                    self._timer = loop.call_later(STEP_PAUSE_S, self._step)
                    return
        except OSError as error:
            self._fail(error)
        except RuntimeError:  # no event loop any more: the next process compresses it
            self.close()

    def _step(self) -> None:
        self._timer = None
        compression = self._compression
        if compression is None:
            return
        try:
            if compression.step():
                self._compression = None
                self._next()
                return
        except OSError as error:
            self._fail(error)
            return
        self._timer = asyncio.get_running_loop().call_later(STEP_PAUSE_S, self._step)

    def _fail(self, error: Exception) -> None:
        self._broken = True
        self.close()
        logger.error("logs are not tidied any more path=%s error=%s", self._path, error)


class _Compression:
    """One file on its way to its compressed form."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.source = path
        self._source: File = files.open(path)
        if files.exists(path + UNFINISHED):
            files.remove(path + UNFINISHED)
        self._target: File = files.open(path + UNFINISHED, create=True)
        self._compressor = zlib.compressobj(wbits=_GZIP_FORM)
        self._read = self._written = 0

    def step(self) -> bool:
        """Compress some more bytes; return whether the file is done."""
        data = bytes(self._source.pread(STEP_BYTES, self._read))
        self._read += len(data)
        packed = self._compressor.compress(data) if data else self._compressor.flush()
        if packed:
            self._written += self._target.pwrite([packed], self._written)
        if data:
            return False
        self.close()
        self._files.rename(self.source + UNFINISHED, self.source + GZIP)
        self._files.remove(self.source)
        return True

    def close(self) -> None:
        self._source.close()
        self._target.close()


def _stamp(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y%m%d%H%M%S") + f"{ms % 1000:03}"


def _number(path: str) -> int:
    found = SET_ASIDE.search(path)
    return int(found[1]) if found else 0


def _moment(path: str) -> int | None:
    """Return when a file was set aside, ms since 1970; None if its name does not say."""
    digits = str(_number(path))
    if len(digits) != _STAMP_DIGITS:
        return None
    try:
        second = datetime.strptime(digits[:-3], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(second.timestamp()) * 1000 + int(digits[-3:])
