"""Truncations that are to be durable before anything is appended where records were cut.

Who may call: `manager`. Two things are owed after a truncation: the cut file's end, or a power loss
could bring cut records back behind newer ones, and a lower recovery point in the log dir's
checkpoint, or a crash would count as flushed what is written there from now on. After an election
thousands of logs are cut at once. Invariants: a worker waits for the disk, once for all logs that
were cut by then; `settle` returns when nothing is owed of what was cut before it was called. Who
appends without that (`LocalLog.roll`, `Log._lower_recovery_point`) waits for the disk itself.
Kafka: the end of `LogManager.truncateTo`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.log.log import Log
from ottla.model.ports import Workers

Settle = Callable[[Workers, list[Log]], Awaitable[None]]


class Truncations:
    """Logs of one manager that were cut."""

    def __init__(self, settle: Settle) -> None:
        self._settle = settle
        self._cut: dict[Log, None] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, log: Log) -> None:
        """Count a log in: it was cut, or made where one was deleted."""
        self._cut[log] = None

    @property
    def owed(self) -> bool:
        return bool(self._cut) or self._task is not None

    async def settle(self, workers: Workers) -> None:
        """Have a worker make it all durable; what cannot be takes its log dir offline."""
        while self.owed:
            if self._task is None:
                logs = [log for log in self._cut if log.failed is None]
                self._cut.clear()
                loop = asyncio.get_running_loop()
                self._task = loop.create_task(self._run(workers, logs), name="truncations")
            await asyncio.shield(self._task)

    async def _run(self, workers: Workers, logs: list[Log]) -> None:
        try:
            await self._settle(workers, logs)
        finally:
            self._task = None
