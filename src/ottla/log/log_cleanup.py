"""Log cleanup: retention, expiry of producers, release of idle indexes, for each log in turn.

Invariants: a call takes a few milliseconds, however many logs and segments there are; where a
segment's age must be read from the disk, a worker reads it. Kafka: `LogManager.cleanupLogs`.
"""

import logging
from collections.abc import Callable

from ottla.log.log import MAX_SEGMENTS_AT_ONCE, Log
from ottla.log.results import NotInMemoryError
from ottla.model.errors import OttlaError
from ottla.model.ports import Clock, Workers

_logger = logging.getLogger(__name__)

_SLICE_S = 0.005


class LogCleanup:
    """Cleans up the logs of one manager, all of them once per interval."""

    def __init__(
        self,
        clock: Clock,
        interval_ms: int,
        logs: Callable[[], list[Log]],
        remove_deleted: Callable[[Log], None],
    ) -> None:
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._logs = logs
        self._remove_deleted = remove_deleted
        self._due_s = 0.0
        self._queue: list[Log] = []
        self._to_bring: list[tuple[Log, NotInMemoryError]] = []

    def run(self, now_ms: int) -> bool:
        """Clean up a few logs; return whether more are due already."""
        clock = self._clock
        started_s = clock.monotonic()
        if not self._queue and started_s >= self._due_s:
            self._due_s = started_s + self._interval_s
            self._queue = self._logs()
        while self._queue and clock.monotonic() - started_s < _SLICE_S:
            log = self._queue.pop()
            if log.failed is None:
                self._clean_up(log, now_ms)
        return bool(self._queue)

    def _clean_up(self, log: Log, now_ms: int) -> None:
        try:
            if log.delete_old_segments(now_ms, now=True) >= MAX_SEGMENTS_AT_ONCE:
                self._queue.append(log)  # there may be more
        except NotInMemoryError as place:
            self._to_bring.append((log, place.with_traceback(None)))
        except OttlaError as error:
            _logger.warning("retention failed partition=%s error=%s", log.tp, error)
        log.expire_producers(now_ms)
        log.local.release_idle()
        self._remove_deleted(log)

    async def load_indexes(self, workers: Workers) -> None:
        """Let a worker load the indexes that retention needs; those logs are due again."""
        while self._to_bring:
            log, place = self._to_bring.pop()
            if log.failed is not None:
                continue
            try:
                await workers.run(place.file.prefetch, place.size, place.position)
            except OSError as error:
                if log.failed is None:
                    _logger.warning("retention failed partition=%s error=%s", log.tp, error)
                continue
            self._queue.append(log)
