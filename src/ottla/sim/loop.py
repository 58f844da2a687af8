"""A node's event loop: asyncio's interface over the shared scheduler.

Invariants: callbacks run only while the node lives and is not paused; a paused node's callbacks
keep their order; after `kill` nothing of the node ever runs again, not even a `finally`, because
the loop keeps its tasks from being collected until `discard_tasks`. As a real loop it runs what is
ready in turns; what comes up in a turn waits for the next one. A turn takes the time its callbacks
cost, and the node does nothing else before it is over. Only what the product uses of asyncio is
here: the rest raises NotImplementedError, so a socket opened past the ports is found.
"""

import asyncio
import contextvars
import logging
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any, TypeVar

import msgspec

from ottla.sim.scheduler import (
    MAX_STEPS_AT_ONCE,
    LivelockError,
    Scheduler,
    get_running_loop,
    set_running_loop,
)

T = TypeVar("T")
logger = logging.getLogger(__name__)

_PRUNE_EVERY = 256
_LAST_WORDS = 100
NOTED_STALL_S = 0.005
"""Callbacks that take longer are counted one by one."""


class _Handle(msgspec.Struct, eq=False):
    """A callback of one node: in its loop's queue, or as a timer in the scheduler's.

    What asyncio and its users want of a TimerHandle. It is none, because each callback makes one:
    a struct takes a third of the time.
    """

    callback: Callable[..., object]
    args: tuple[object, ...]
    loop: "SimLoop"
    context: contextvars.Context
    at_s: float = 0.0
    """When a timer is due; 0 for others."""
    dropped: bool = False

    def __repr__(self) -> str:
        return f"<callback of {self.loop!r} {self.callback!r}>"

    def fire(self) -> None:
        """Come due: the node runs it at its next turn."""
        loop = self.loop
        if not loop.dead:
            loop.queue.append(self)
            if not loop.due and not loop.paused:
                loop.take_turn()

    def cancel(self) -> None:
        self.dropped = True
        self.callback = _nothing
        self.args = ()

    def cancelled(self) -> bool:
        return self.dropped

    def when(self) -> float:
        return self.at_s

    def name(self) -> str:
        """Return what a person knows the callback by: its function's or its task's."""
        task = getattr(self.callback, "__self__", None)
        if isinstance(task, asyncio.Task):
            return f"task {getattr(task.get_coro(), '__qualname__', '?')}"
        return str(getattr(self.callback, "__qualname__", self.callback))

    def failed(self, error: BaseException) -> None:
        """Give what it raised to the loop's handler, as asyncio has it."""
        message = f"Exception in callback {self.callback!r}"
        self.loop.call_exception_handler({"message": message, "exception": error, "handle": self})


def _nothing() -> None:
    """Do what a cancelled callback does."""


def _close(coroutine: Any) -> None:
    """End a coroutine; one that awaits in its `finally` is cancelled again, within bounds."""
    for _ in range(_LAST_WORDS):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001, S112 - dying words of a dead process
            continue
        return


class SimLoop(asyncio.AbstractEventLoop):
    """One node's loop. `failures` collects what no callback caught."""

    dropped = False
    """As an event of the scheduler (the node's next turn) it is never cancelled."""

    def __init__(self, scheduler: Scheduler, name: str, callback_s: float = 0.0) -> None:
        self.name = name
        self.host = name.partition(".")[0]
        """The node, of which `name` is one incarnation."""
        self.scheduler = scheduler
        self.callback_s = callback_s
        """What a callback costs beyond what it does."""
        self.dead = False
        self.ended_s = 0.0
        """When it was killed, if it was."""
        self.paused = False
        self.failures: list[dict[str, Any]] = []
        self.busy_until_s = 0.0
        self.stalls: list[tuple[float, str]] = []
        """The callbacks that took longer than `NOTED_STALL_S`: how long, and what they were."""
        self.callbacks = 0
        self.queue: deque[_Handle] = deque()
        """What is ready to run, in its order."""
        self.due = False
        """Whether the next turn is queued or under way."""
        self._streak = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = _PRUNE_EVERY
        self._task_number = 0
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
        handle = _Handle(callback, args, self, copy_context() if context is None else context)
        if not self.dead:
            self.queue.append(handle)
            if not self.due and not self.paused:  # `take_turn`, without the call
                self.due = True
                scheduler, when = self.scheduler, self.busy_until_s
                if when <= scheduler.instant:
                    scheduler.ready.append(self)
                else:
                    scheduler.push(when, self)
        return handle  # type: ignore[return-value]  # all of asyncio's Handle that is used

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        when = self.scheduler.now + delay
        context = copy_context() if context is None else context
        handle = _Handle(callback, args, self, context, when)
        if not self.dead:
            self.scheduler.push(when, handle)
        return handle  # type: ignore[return-value]

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        handle = _Handle(callback, args, self, context, when)
        if not self.dead:
            self.scheduler.push(when, handle)
        return handle  # type: ignore[return-value]

    def take_turn(self) -> None:
        """Have the node's next turn come as soon as its present one is over."""
        self.due = True
        scheduler, when = self.scheduler, self.busy_until_s
        if when <= scheduler.instant:
            scheduler.ready.append(self)
        else:
            scheduler.push(when, self)

    def fire(self) -> None:
        """Run one turn: what is ready now, in its order.

        `due` stays set meanwhile: what comes up waits for the end of this turn, which lies as
        far ahead as the turn's callbacks cost, so the node's time never goes back.
        """
        if self.dead or self.paused:
            self.due = False
            return
        queue, scheduler, callback_s = self.queue, self.scheduler, self.callback_s
        now_s = scheduler.now
        if now_s > self.busy_until_s:
            self._streak = 0
        else:
            self._streak += 1
            if self._streak > MAX_STEPS_AT_ONCE:
                raise LivelockError(f"{self.name} is busy without an end at {now_s:.6f} s")
        ran = asked = len(queue)
        if scheduler.running_loop is not self:
            scheduler.running_loop = self
            set_running_loop(self)
        scheduler.spends = True
        try:
            while ran:
                ran -= 1
                handle = queue.popleft()
                if handle.dropped:
                    continue
                began_s = now_s
                scheduler.now = began_s + callback_s
                try:
                    handle.context.run(handle.callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - all that a callback raises ends here
                    handle.failed(error)
                now_s = scheduler.now
                if now_s - began_s > NOTED_STALL_S:
                    self.stalls.append((now_s - began_s, handle.name()))
                if self.dead or self.paused:
                    break
        finally:
            self.due = False
            self.busy_until_s = now_s
            ran = asked - ran
            self.callbacks += ran
            scheduler.now = scheduler.instant  # the other nodes were at work meanwhile
            scheduler.spends = False
            scheduler.steps += ran
        if scheduler.steps > scheduler.limit:
            scheduler.too_many()
        if queue and not self.dead and not self.paused:  # `take_turn`, without the call
            self.due = True
            if now_s <= scheduler.instant:
                scheduler.ready.append(self)
            else:
                scheduler.push(now_s, self)

    # The node's life.

    def pause(self) -> None:
        """Stop the process (SIGSTOP, or a stall): callbacks wait, the kernel goes on."""
        self.paused = True

    def resume(self) -> None:
        """Let the process go on; what was due runs now, in its order."""
        self.paused = False
        if self.queue and not self.due:
            self.take_turn()

    def kill(self) -> None:
        """End the node as kill -9 does: nothing of it runs again."""
        if not self.dead:
            self.ended_s = self.scheduler.now
        self.dead = True
        self.queue.clear()

    def discard_tasks(self) -> None:
        """Let go of a dead node's tasks. Their `finally` blocks run now, on ports long dead."""
        assert self.dead
        tasks, self._tasks = self._tasks, []
        before = get_running_loop()
        set_running_loop(self)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for task in tasks:
                    if not task.done():
                        _close(task.get_coro())
                tasks.clear()
        finally:
            set_running_loop(before)

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
        self._tasks.append(task)
        if len(self._tasks) >= self._prune_at:
            self._tasks = [t for t in self._tasks if not t.done()]
            self._prune_at = len(self._tasks) + _PRUNE_EVERY
        return task

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
        return get_running_loop() is self

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
        logger.error(
            "uncaught exception node=%s error=%s",
            self.name,
            context.get("message"),
            exc_info=exception,
        )

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.dead:
            return
        if self._handler is not None:
            self._handler(self, context)
        else:
            self.default_exception_handler(context)
