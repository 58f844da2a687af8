"""Upkeep: what every log needs now and then: retention, expiry of producers, idle indexes dropped.

Who may call: `manager`. Invariants: a call takes a few milliseconds, however many logs and segments
there are; what has to be read from a disk to know how old a segment is, a worker reads. Kafka:
`LogManager.cleanupLogs`.
"""

import logging
from collections.abc import Callable

from ottla.log.log import MOST_DELETED, Log
from ottla.log.results import NotInMemoryError
from ottla.model.errors import OttlaError
from ottla.model.ports import Clock, Workers

_logger = logging.getLogger(__name__)

_SLICE_S = 0.005


class Upkeep:
    """Looks after the logs of one manager, all of them once per interval."""

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
        """Look after a few logs; return whether more are due already."""
        clock = self._clock
        started_s = clock.monotonic()
        if not self._queue and started_s >= self._due_s:
            self._due_s = started_s + self._interval_s
            self._queue = self._logs()
        while self._queue and clock.monotonic() - started_s < _SLICE_S:
            log = self._queue.pop()
            if log.failed is None:
                self._look_after(log, now_ms)
        return bool(self._queue)

    def _look_after(self, log: Log, now_ms: int) -> None:
        try:
            if log.delete_old_segments(now_ms, now=True) >= MOST_DELETED:
                self._queue.append(log)  # there may be more
        except NotInMemoryError as place:
            self._to_bring.append((log, place.with_traceback(None)))
        except OttlaError as error:
            _logger.warning("retention failed tp=%s error=%s", log.tp, error)
        log.expire_producers(now_ms)
        log.release_idle()
        self._remove_deleted(log)

    async def bring_indexes(self, workers: Workers) -> None:
        """Have a worker load the indexes that retention waits for; those logs are due again."""
        while self._to_bring:
            log, place = self._to_bring.pop()
            if log.failed is not None:
                continue
            try:
                await workers.run(place.file.bring, place.size, place.position)
            except OSError as error:
                if log.failed is None:
                    _logger.warning("retention failed tp=%s error=%s", log.tp, error)
                continue
            self._queue.append(log)
