"""Tasks: the coroutines of one server, kept so that none is lost and all end with it.

Who may call: the broker room. Invariants: every task that fails is logged once with its name; after
`close` none runs. Handlers that wait for ZooKeeper or a peer run here (one per connection at most,
because the connection dispatches nothing else until such a response is complete).
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)


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
        """Run a coroutine to its end; its result is for whoever holds the task."""
        assert not self._closed, "a closed server starts nothing"
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running[task] = None
        task.add_done_callback(self._finished)
        return task

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
