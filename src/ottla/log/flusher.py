"""Flushes many logs: slowly in the background, and before a clean stop.

Invariants: a flush that was begun is completed, even if its caller is cancelled, and whatever it
fails with: otherwise its files would be neither written nor known to be missing; a clean stop waits
for it (`drain`). Only workers wait for the disk; many small files are made durable by one
`sync_tree` of their log dir instead of thousands of fsyncs; a failure takes only its log dir
offline. Kafka: the flush tasks and the shutdown of `LogManager`.
"""

import asyncio
import errno
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.log.flush_job import FlushJob
from ottla.log.log import Log
from ottla.log.results import is_shortage
from ottla.model.errors import OutOfDescriptorsError, StorageError
from ottla.model.ports import Files, Workers, World
from ottla.model.recent_times import RecentTimes

logger = logging.getLogger(__name__)

_SCAN = 256
"""logs checked per call"""
_FEW = 8
"""up to this many small jobs are synced file by file"""
_STOP_SHARE = 64
"""logs closed between two yields to the event loop"""


@dataclass(slots=True)
class Due:
    """A log and its flush job."""

    log: Log
    job: FlushJob


class Flusher:
    """Flushes the logs of one manager."""

    def __init__(
        self,
        world: World,
        logs: Callable[[], list[Log]],
        dir_failed: Callable[[str, OSError], None],
    ) -> None:
        self.times = RecentTimes()
        """how long the flush of one log took"""
        self._clock, self._files = world.clock, world.files
        self._logs = logs
        self._dir_failed = dir_failed
        self._queue: list[Log] = []
        self._under_way: set[asyncio.Task[int]] = set()

    async def flush_dirty(self, workers: Workers, *, everything: bool) -> int:
        """Flush what is due of the next few hundred logs, or of all; return how many were."""
        dues = self._due(everything)
        first = next(dues, None)
        if first is None:  # as nearly always: twice a second is too often for a task of its own
            return 0
        return await self._to_its_end(self._flush_due(workers, itertools.chain((first,), dues)))

    async def run(self, workers: Workers, log: Log, job: FlushJob) -> int:
        """Have a worker run one job and complete it; return 0 if the log failed."""
        return await self._to_its_end(self._flush(workers, Due(log, job)))

    async def make_truncations_durable(self, workers: Workers, logs: list[Log]) -> None:
        """Make the truncated ends of logs durable."""
        await self._to_its_end(self._sync_small(workers, logs, Log.prepare_truncation))

    async def make_topic_ids_durable(self, workers: Workers, logs: list[Log]) -> None:
        """Make the topic ids of logs durable."""
        await self._to_its_end(self._sync_small(workers, logs, Log.prepare_topic_id))

    async def _sync_small(
        self, workers: Workers, logs: list[Log], prepare: Callable[[Log], FlushJob | None]
    ) -> int:
        by_dir: dict[str, list[Due]] = {}
        for log in logs:
            try:
                job = prepare(log) if log.failed is None else None
            except (StorageError, OutOfDescriptorsError):
                continue
            if job is not None:
                by_dir.setdefault(log.parent_dir, []).append(Due(log, job))
        return sum([await self._flush_small(workers, *item) for item in by_dir.items()])

    async def _to_its_end(self, flush: Coroutine[Any, Any, int]) -> int:
        task = asyncio.get_running_loop().create_task(flush, name="flush")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def drain(self) -> None:
        """Wait until no flush is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _due(self, everything: bool) -> Iterator[Due]:
        if not self._queue or everything:
            self._queue = self._logs()
        turn = len(self._queue) if everything else _SCAN
        for _ in range(min(turn, len(self._queue))):
            if not self._queue:
                break
            log = self._queue.pop()
            if log.failed is not None:  # or deleted
                continue
            job = _job_of(log, everything)
            if job is not None:
                yield Due(log, job)

    async def _flush_due(self, workers: Workers, dues: Iterator[Due]) -> int:
        small: dict[str, list[Due]] = {}
        flushed = 0
        for due in dues:
            if due.job.to_sync:
                flushed += await self._flush(workers, due)
            else:
                small.setdefault(due.log.parent_dir, []).append(due)
        for folder, of_it in small.items():
            flushed += await self._flush_small(workers, folder, of_it)
        return flushed

    async def _flush(self, workers: Workers, due: Due) -> int:
        began_s = self._clock.monotonic()
        error = await _run(workers, due.job.run)
        self.times.note(self._clock.monotonic() - began_s)
        return _complete(due, error)

    async def _flush_small(self, workers: Workers, folder: str, dues: list[Due]) -> int:
        if len(dues) <= _FEW:
            return sum([await self._flush(workers, due) for due in dues])
        error = await _run(workers, _write_files, dues)
        error = error or await _run(workers, _sync_tree, self._files, folder)
        return self._finish(folder, dues, error)

    def _finish(self, folder: str, dues: list[Due], error: OSError | None) -> int:
        if error is not None:
            self._dir_failed(folder, error)
            if is_shortage(error):
                for due in dues:
                    _complete(due, error)
            return 0
        return sum(_complete(due, None) for due in dues)

    # A clean stop ----------------------------------------------------------------------

    async def stop(self, workers: Workers, folder: str) -> None:
        """Flush and close the logs of one dir; a worker waits for the disk."""
        all_dues: list[Due] = []
        error: OSError | None = None
        logs = [log for log in self._logs() if log.parent_dir == folder]
        for start in range(0, len(logs), _STOP_SHARE):
            dues = self._closing(logs[start : start + _STOP_SHARE])
            all_dues += dues
            error = error or await _run(workers, _write_files, dues)
        error = error or await _run(workers, _sync_tree, self._files, folder)
        self._finish(folder, all_dues, error)

    def _closing(self, logs: Iterable[Log]) -> list[Due]:
        dues = []
        for log in logs:
            try:
                job = log.prepare_close()
            except StorageError:
                continue  # its dir is offline by now
            except OutOfDescriptorsError as error:
                self._dir_failed(log.parent_dir, OSError(errno.EMFILE, str(error)))
                continue
            if job is not None:
                dues.append(Due(log, job))
        return dues


async def _run(
    workers: Workers, function: Callable[..., OSError | None], *args: object
) -> OSError | None:
    """Have a worker call it; return the error, whatever went wrong.

    What a job took over is not known to be missing any more: a job that ended in another way would
    let the recovery point pass what is not on the disk.
    """
    try:
        return await workers.run(function, *args)
    except OSError as error:
        return error
    except Exception as error:
        logger.exception("flush failed")
        return OSError(errno.EIO, f"{type(error).__name__}: {error}")


def _job_of(log: Log, everything: bool) -> FlushJob | None:
    state = log.flush_state
    waited = state.unflushed_for_s
    if everything or (waited is not None and waited * 1000 >= log.config.flush_ms):
        return log.prepare_flush()
    if state.has_unflushed_segments() or state.has_unsynced_files():
        return log.prepare_flush(log.local.active.base_offset)
    return None


def _complete(due: Due, error: OSError | None) -> int:
    try:
        due.log.complete_flush(due.job, error)
    except (StorageError, OutOfDescriptorsError):
        return 0  # the log has notified the manager, or is still to be flushed
    return 1


def _write_files(dues: list[Due]) -> OSError | None:
    """Write all small files; return what says that the log dir is bad. A worker may call it."""
    for due in dues:
        try:
            due.job.write()
        except OSError as error:
            return error
    return None


def _sync_tree(files: Files, folder: str) -> OSError | None:
    try:
        files.sync_tree(folder)
    except OSError as error:
        return error
    return None
