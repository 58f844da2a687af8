"""Removal of deleted files and folders, in small steps by a worker.

Removing a file takes time in proportion to its size: for a partition of many gigabytes the event
loop would stand still for seconds. Invariants: one step at a time, of a bounded number of files and
bytes (`Files.remove_some`), so that a stop waits for one step at most; the next start finds by name
what is left, and removes it. Kafka: `LogManager.deleteLogs` and the delayed deletion of segments in
Kafka's `LocalLog`.
"""

import heapq
from collections.abc import Callable

from ottla.log.disk_errors import is_shortage
from ottla.model.ports import Clock, Files, Workers

_RETRY_S = 1.0
"""How soon to try again where descriptors ran out."""


class Removals:
    """The queue of files and folders to remove, each with its time."""

    def __init__(self, files: Files, clock: Clock, failed: Callable[[str, OSError], None]) -> None:
        self._files = files
        self._clock = clock
        self._failed = failed
        """called with the path that could not be removed, and the error"""
        self._queue: list[tuple[float, int, str]] = []
        """a heap of (when, order of arrival, path)"""
        self._arrivals = 0
        self._current: str | None = None
        """the path that a worker is removing; changed by `relocate`"""

    def __len__(self) -> int:
        return len(self._queue) + (self._current is not None)

    def add(self, path: str, delay_s: float) -> None:
        """Remove a file, or a folder with its contents, after `delay_s`."""
        self._push(self._clock.monotonic() + delay_s, path)

    def _push(self, due_s: float, path: str) -> None:
        self._arrivals += 1
        heapq.heappush(self._queue, (due_s, self._arrivals, path))

    def relocate(self, old: str, new: str) -> None:
        """Folder `old` was renamed to `new`: change the paths of queued files below it."""

        def moved(path: str) -> str:
            return new + path[len(old) :] if path.startswith(f"{old}/") else path

        self._queue = [(due_s, order, moved(path)) for due_s, order, path in self._queue]
        if self._current is not None:
            self._current = moved(self._current)

    async def run_due(self, workers: Workers) -> int:
        """Remove what is due by now; return how many files and folders that were."""
        removed = 0
        while self._current is None and self._queue:
            due_s, _, path = self._queue[0]
            if due_s > self._clock.monotonic():
                break
            heapq.heappop(self._queue)
            self._current = path
            try:
                done = await workers.run(self._files.remove_some, path)
            except OSError as error:
                done = not is_shortage(error)
                if done:
                    self._failed(path, error)
                else:
                    due_s = self._clock.monotonic() + _RETRY_S
            finally:
                after, self._current = self._current, None
                if after != path:
                    self._push(due_s, after)  # renamed amid the step
            if done:
                removed += 1
            elif after == path:
                self._push(due_s, path)
        return removed
