"""A node's event loop: asyncio's interface over the shared scheduler.

Who may call: `world` makes one per incarnation of a node; product code sees it as the running
loop. Invariants: callbacks run only while the node lives and is not paused; a paused node's
callbacks keep their order; after `kill` nothing of the node ever runs again, not even a `finally`,
because the loop keeps its tasks from being collected until `bury`. Only what the product uses of
asyncio is here: the rest raises NotImplementedError, so a socket opened past the ports is found.
"""

import asyncio
import contextvars
import logging
import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from ottla.sim.scheduler import Scheduler

T = TypeVar("T")
logger = logging.getLogger(__name__)

_PRUNE_EVERY = 256
_LAST_WORDS = 100


class _Handle(asyncio.TimerHandle):
    """A callback of one node in the shared heap."""

    __slots__ = ()

    def fire(self) -> None:
        self._loop.run_handle(self)  # type: ignore[attr-defined]

    def is_cancelled(self) -> bool:
        return self._cancelled


def _close(coroutine: Any) -> None:
    """End a coroutine; one that awaits in its `finally` is told again, within bounds."""
    for _ in range(_LAST_WORDS):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001, S112 - dying words of a dead process
            continue
        return


class SimLoop(asyncio.AbstractEventLoop):
    """One node's loop. `failures` collects what no callback caught."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        self.scheduler = scheduler
        self.dead = False
        self.paused = False
        self.failures: list[dict[str, Any]] = []
        self._backlog: list[_Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = _PRUNE_EVERY
        self._task_number = 0
        self._running = False
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    def __repr__(self) -> str:
        return f"<SimLoop {self.name}>"

    # Scheduling.

    def time(self) -> float:
        return self.scheduler.now

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self._queue(self.scheduler.now, callback, args, context)

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self._queue(self.scheduler.now + delay, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self._queue(when, callback, args, context)

    def _queue(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: contextvars.Context | None,
    ) -> _Handle:
        handle = _Handle(when, callback, args, self, context)
        if not self.dead:
            self.scheduler.push(when, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Part of asyncio's contract with TimerHandle; the heap drops cancelled ones itself."""

    def run_handle(self, handle: _Handle) -> None:
        """Run one callback as this node, or keep it while the node is paused."""
        if self.dead:
            return
        if self.paused:
            self._backlog.append(handle)
            return
        before = asyncio._get_running_loop()  # noqa: SLF001 - a loop is what may call these
        asyncio._set_running_loop(self)  # noqa: SLF001
        self._running = True
        try:
            handle._run()  # noqa: SLF001
        finally:
            self._running = False
            asyncio._set_running_loop(before)  # noqa: SLF001

    # The node's life.

    def pause(self) -> None:
        """Stop the process (SIGSTOP, or a stall): callbacks wait, the kernel goes on."""
        self.paused = True

    def resume(self) -> None:
        """Let the process go on; what was due runs now, in its order."""
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for handle in backlog:
            self.scheduler.push(self.scheduler.now, handle)

    def kill(self) -> None:
        """End the node as kill -9 does: nothing of it runs again."""
        self.dead = True
        self._backlog.clear()
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001

    def bury(self) -> None:
        """Let go of a dead node's tasks. Their `finally` blocks run now, on ports long dead."""
        assert self.dead
        tasks, self._tasks = self._tasks, []
        before = asyncio._get_running_loop()  # noqa: SLF001
        asyncio._set_running_loop(self)  # noqa: SLF001
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for task in tasks:
                    if not task.done():
                        _close(task.get_coro())
                tasks.clear()
        finally:
            asyncio._set_running_loop(before)  # noqa: SLF001

    # Tasks and futures.

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        self._task_number += 1
        label = name or f"{self.name}-{self._task_number}"
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=label, context=context)
        if self.dead:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
        self._tasks.append(task)
        if len(self._tasks) >= self._prune_at:
            self._tasks = [t for t in self._tasks if not t.done()]
            self._prune_at = len(self._tasks) + _PRUNE_EVERY
        return task

    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that wait for something, oldest first (what a deadlock shows)."""
        return [t for t in self._tasks if not t.done()]

    def run_until_complete(self, future: Any) -> Any:
        """Run the whole simulation until this node's future or coroutine is done."""
        task = asyncio.ensure_future(future, loop=self)
        self.scheduler.run_until(lambda: task.done() or self.dead)
        return task.result()

    def run_in_executor(
        self, executor: object, func: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        raise NotImplementedError("use world.workers")

    # What asyncio asks of a loop.

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self.dead

    def stop(self) -> None:
        raise NotImplementedError("a node's main returns instead")

    def close(self) -> None:
        self.kill()

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self) -> None:
        pass

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        self._handler = handler

    def get_exception_handler(
        self,
    ) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        return self._handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)
        exception = context.get("exception")
        logger.error("node=%s uncaught: %s", self.name, context.get("message"), exc_info=exception)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.dead:
            return
        if self._handler is not None:
            self._handler(self, context)
        else:
            self.default_exception_handler(context)
