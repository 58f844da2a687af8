"""Truncations that must be durable before anything is appended where records were cut.

Who may call: `manager`. A truncation needs two fsyncs: of the cut file, or a power loss could bring
cut records back behind newer ones; and of the log dir's checkpoint with the lower recovery point,
or a crash would count new records there as flushed. An election cuts thousands of logs at once.
Invariants: a worker waits for the disk, once for all logs that were cut by then; `make_durable`
returns when all truncations before the call are durable. An append without it (`LocalLog.roll`,
`Log._lower_recovery_point`) waits for the disk itself.
Kafka: the end of `LogManager.truncateTo`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.log.log import Log
from ottla.model.ports import Workers

MakeDurable = Callable[[Workers, list[Log]], Awaitable[None]]


class Truncations:
    """The truncated logs of one manager."""

    def __init__(self, make_durable: MakeDurable) -> None:
        self._make_durable = make_durable
        self._cut: dict[Log, None] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, log: Log) -> None:
        """Add a log that was cut, or created where one was deleted."""
        self._cut[log] = None

    @property
    def has_pending(self) -> bool:
        return bool(self._cut) or self._task is not None

    async def make_durable(self, workers: Workers) -> None:
        """Let a worker make all truncations durable; an error takes the log dir offline."""
        while self.has_pending:
            if self._task is None:
                logs = [log for log in self._cut if log.failed is None]
                self._cut.clear()
                loop = asyncio.get_running_loop()
                self._task = loop.create_task(self._run(workers, logs), name="truncations")
            await asyncio.shield(self._task)

    async def _run(self, workers: Workers, logs: list[Log]) -> None:
        try:
            await self._make_durable(workers, logs)
        finally:
            self._task = None
