"""Flushing many logs: the slow background kind, and the one before a clean stop.

Who may call: `manager`. Invariants: the disk is waited for in a worker; many small files are made
durable by one `sync_tree` of their log dir instead of thousands of fsyncs; a failure takes exactly
its log dir offline. Answers to the flush tasks and the shutdown of Kafka's `LogManager`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ottla.log.flush import FlushJob
from ottla.log.log import Log
from ottla.model.errors import StorageError
from ottla.model.ports import Files, Workers

_SCAN = 256
"""logs looked at per call"""
_FEW = 8
"""up to so many small jobs are synced file by file"""
_STOP_SHARE = 64
"""logs closed between two looks at the event loop"""


@dataclass(slots=True)
class Due:
    """A log with what is to be made durable of it."""

    log: Log
    job: FlushJob


class Flusher:
    """Flushes the logs of one manager."""

    def __init__(
        self,
        files: Files,
        logs: Callable[[], list[Log]],
        dir_failed: Callable[[str, OSError], None],
    ) -> None:
        self._files = files
        self._logs = logs
        self._dir_failed = dir_failed
        self._queue: list[Log] = []

    async def flush_dirty(self, workers: Workers, *, everything: bool) -> int:
        """Flush what is due of the next few hundred logs, or of all; return how many were."""
        if not self._queue or everything:
            self._queue = self._logs()
        turn = len(self._queue) if everything else _SCAN
        small: dict[str, list[Due]] = {}
        flushed = 0
        for _ in range(min(turn, len(self._queue))):
            if not self._queue:
                break
            log = self._queue.pop()
            if log.failed is not None:  # or deleted
                continue
            job = _job_of(log, everything)
            if job is None:
                continue
            if job.to_sync:
                flushed += await self._flush(workers, Due(log, job))
            else:
                small.setdefault(log.parent_dir, []).append(Due(log, job))
        for folder, dues in small.items():
            flushed += await self._flush_small(workers, folder, dues)
        return flushed

    async def _flush(self, workers: Workers, due: Due) -> int:
        error: OSError | None = None
        try:
            await workers.run(due.job.run)
        except OSError as failure:
            error = failure
        return _complete(due, error)

    async def _flush_small(self, workers: Workers, folder: str, dues: list[Due]) -> int:
        if len(dues) <= _FEW:
            return sum([await self._flush(workers, due) for due in dues])
        error = await workers.run(_write_files, dues)
        error = error or await workers.run(_sync_tree, self._files, folder)
        return self._finish(folder, dues, error)

    def _finish(self, folder: str, dues: list[Due], error: OSError | None) -> int:
        if error is not None:
            self._dir_failed(folder, error)
            return 0
        return sum(_complete(due, None) for due in dues)

    # A clean stop ----------------------------------------------------------------------

    def stop(self, folder: str) -> None:
        """Flush and close the logs of one dir, here and now."""
        dues = _closing(self._logs_in(folder))
        error = _write_files(dues) or _sync_tree(self._files, folder)
        self._finish(folder, dues, error)

    async def stop_with(self, workers: Workers, folder: str) -> None:
        """As `stop`, with a worker waiting for the disk and the loop free in between."""
        all_dues: list[Due] = []
        error: OSError | None = None
        logs = self._logs_in(folder)
        for start in range(0, len(logs), _STOP_SHARE):
            dues = _closing(logs[start : start + _STOP_SHARE])
            all_dues += dues
            error = error or await workers.run(_write_files, dues)
        error = error or await workers.run(_sync_tree, self._files, folder)
        self._finish(folder, all_dues, error)

    def _logs_in(self, folder: str) -> list[Log]:
        return [log for log in self._logs() if log.parent_dir == folder]


def _job_of(log: Log, everything: bool) -> FlushJob | None:
    waited = log.unflushed_for_s
    if everything or (waited is not None and waited * 1000 >= log.config.flush_ms):
        return log.prepare_flush()
    if log.has_unflushed_segments() or log.has_unsynced_files():
        return log.prepare_flush(log.active_base_offset)
    return None


def _closing(logs: Iterable[Log]) -> list[Due]:
    dues = []
    for log in logs:
        try:
            job = log.prepare_close()
        except StorageError:
            continue  # its dir is offline by now
        if job is not None:
            dues.append(Due(log, job))
    return dues


def _complete(due: Due, error: OSError | None) -> int:
    try:
        due.log.complete_flush(due.job, error)
    except StorageError:
        return 0  # the log told the manager already
    return 1


def _write_files(dues: list[Due]) -> OSError | None:
    """Write all small files; return what says that the log dir is bad. A worker may call it."""
    for due in dues:
        try:
            due.job.write()
        except FileNotFoundError as error:
            # A log that was deleted meanwhile fails first and loses its folder then: that is no
            # sign of a bad disk, and the others have to be written all the same.
            if due.log.failed is None:
                return error
        except OSError as error:
            return error
    return None


def _sync_tree(files: Files, folder: str) -> OSError | None:
    try:
        files.sync_tree(folder)
    except OSError as error:
        return error
    return None
