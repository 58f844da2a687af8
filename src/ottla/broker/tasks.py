"""Tasks: the coroutines of one server, kept so that none is lost and all end with it.

Invariants: every task that fails is logged with its name; one that `keep` started starts again;
after `close` none runs. Handlers that wait for ZooKeeper or a peer run here (one per connection at
most, because the connection dispatches nothing else until such a response is complete).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)

RESTART_S = 1.0
MAX_RESTART_S = 30.0


class Tasks:
    """Coroutines in flight. A loop root: what escapes one is logged, never raised."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[Any], None] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._running)

    @property
    def closed(self) -> bool:
        return self._closed

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Run a coroutine to its end; its result is for the holder of the task."""
        assert not self._closed, "a closed server starts nothing"
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running[task] = None
        task.add_done_callback(self._finished)
        return task

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run a loop of the server for as long as the server lives, whatever it fails with."""
        self.start(_kept(work, name), name)

    def _finished(self, task: "asyncio.Task[Any]") -> None:
        self._running.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.error("task failed task=%s", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel whatever still runs and wait for it."""
        self._closed = True
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _kept(work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    now, pause_s = asyncio.get_running_loop().time, RESTART_S
    while True:
        began_s = now()
        try:
            await work()
        except Exception:
            if now() - began_s > MAX_RESTART_S:
                pause_s = RESTART_S
            logger.exception("task failed, starts again task=%s retry_s=%.0f", name, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_RESTART_S)
        else:
            return
