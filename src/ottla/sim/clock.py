"""A node's clocks and workers over virtual time.

Invariants: `monotonic` is virtual time plus a node's own start and never jumps; `wall_ms` does when
the nemesis says so (fault F23). Work handed to the workers runs later. Where workers interleave, a
call runs in a greenlet of its own, which stands for a thread: it stops before each file operation,
and the loop and other calls run meanwhile, by seed. So a crash may come between any two operations
of a call.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

try:
    import greenlet
except ImportError:  # only calls that interleave need it
    greenlet = None

from ottla.model.time_slices import SLICE_S
from ottla.sim.files import DiedError, SimFiles
from ottla.sim.loop import SimLoop
from ottla.sim.scheduler import Scheduler, no_running_loop

T = TypeVar("T")

EPOCH_MS = 1_767_225_600_000
"""Virtual time 0 on every wall clock: 2026-01-01."""

WORKER_S = 0.001
"""How long a worker's call waits on average before it begins, and between its operations."""
AT_ONCE_CHANCE = 0.5
"""How often a call's next operation follows without anything in between."""
THREADS = 4


class SimClock:
    """Two clocks of one node."""

    def __init__(self, scheduler: Scheduler, boot_s: float, slice_s: float = SLICE_S) -> None:
        self.slice_s = slice_s
        self._scheduler = scheduler
        self._boot_s = boot_s
        self.wall_offset_ms = 0

    def monotonic(self) -> float:
        return self._scheduler.now + self._boot_s

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self._scheduler.now * 1000) + self.wall_offset_ms


class NoThreadError(RuntimeError):
    """What a real process gets is a RuntimeError; this one is known to be a fault."""


class SimWorkers:
    """The workers of one incarnation of a node. `interleave`: calls stop at file operations."""

    def __init__(
        self,
        rng: random.Random,
        mean_s: float = WORKER_S,
        files: SimFiles | None = None,
        *,
        interleave: bool = False,
    ) -> None:
        if interleave and greenlet is None:
            raise RuntimeError("workers' calls interleave by the package greenlet; install it")
        self._random = rng
        self._files = files
        self.mean_s = mean_s
        self.interleave = interleave and files is not None
        self.calls: dict[_Call, None] = {}
        """Those that have begun and not ended."""
        self._waiting: list[_Call] = []
        self.refuses = False
        """Whether no thread can be started, as under a limit of processes (F55)."""

    async def run(self, function: Callable[..., T], *args: object) -> T:
        if self.refuses:
            raise NoThreadError("can't start new thread")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        done: asyncio.Future[T] = loop.create_future()
        call = _Call(self, loop, done, function, args)
        loop.call_later(self._random.expovariate(1.0 / self.mean_s), self._begin, call)
        return await done

    def _begin(self, call: "_Call") -> None:
        if not self.interleave:
            call.run_at_once()
        elif len(self.calls) < THREADS:
            self.calls[call] = None
            call.go_on()
        else:
            self._waiting.append(call)

    def ended(self, call: "_Call") -> None:
        """Let the next call that waits begin."""
        self.calls.pop(call, None)
        if self._waiting and len(self.calls) < THREADS:
            following = self._waiting.pop(0)
            self.calls[following] = None
            following.go_on()

    def pause_s(self) -> float:
        """Return how long a call stops before its next operation; 0 where it does not."""
        if self._random.random() < AT_ONCE_CHANCE:
            return 0.0
        return self._random.expovariate(1.0 / self.mean_s)

    def kill(self) -> None:
        """End every call where it stands, as the process's end does."""
        self._waiting.clear()
        for call in list(self.calls):
            call.kill()
        self.calls.clear()

    @property
    def files(self) -> SimFiles:
        assert self._files is not None
        return self._files


def _tell(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


class _Call:
    """One worker's call, in a greenlet that runs only while everything else stands still."""

    def __init__(
        self,
        workers: SimWorkers,
        loop: SimLoop,
        done: asyncio.Future[Any],
        function: Callable[..., Any],
        args: tuple[object, ...],
    ) -> None:
        self._workers = workers
        self._loop = loop
        self._done = done
        self._function = function
        self._args = args
        self._greenlet: Any = None
        self.mutexes = 0
        self._killed = False
        self._wait_s = 0.0
        self._outcome: Callable[[], object] | None = None
        self._died = False

    def _work(self) -> None:
        """Call the function and note how it ended, for the caller."""
        done = self._done
        try:
            result = self._function(*self._args)
        except DiedError:
            self._died = True
        except BaseException as error:  # noqa: BLE001 - as an executor: all go to the caller
            self._outcome = partial(_tell, done, None, error)
        else:
            self._outcome = partial(_tell, done, result, None)

    def run_at_once(self) -> None:
        """Do all of it now; it is not the loop's time that passes."""
        with self._loop.scheduler.elsewhere():
            self._work()
        if self._outcome is not None:
            self._outcome()

    def go_on(self) -> None:
        """Let the call run up to where it stops next; called by the loop."""
        files = self._workers.files
        self._switch(files)
        if self._died:
            self._workers.ended(self)
            files.ended()
        elif self._outcome is not None:
            self._workers.ended(self)
            self._outcome()
        else:
            self._loop.call_later(self._wait_s, self.go_on)

    def _switch(self, files: SimFiles) -> None:
        """Run the call until it stops or ends."""
        scheduler = self._loop.scheduler
        files.job = self
        before, scheduler.spends = scheduler.spends, False  # not the loop's time passes
        try:
            if self._greenlet is None:
                work = partial(contextvars.copy_context().run, self._work)
                self._greenlet = greenlet.greenlet(work)
            self._run()
        finally:
            scheduler.spends = before
        files.job = None

    def _run(self) -> None:
        """Give the turn to the greenlet, which has no event loop, as a worker's thread has none."""
        self._greenlet.parent = greenlet.getcurrent()
        with no_running_loop():
            self._greenlet.switch()

    def hand_over(self, cost_s: float) -> None:
        """Stop before a file operation (called by the call's function)."""
        if self._killed:
            return
        pause_s = self._workers.pause_s()
        if pause_s <= 0.0 or self.mutexes:
            return
        self._stop(pause_s + cost_s)

    def wait(self) -> None:
        """Let others run for a while: what this call needs is taken."""
        if self._killed:
            raise DiedError("the process has ended")
        self._stop(self._workers.mean_s)

    def _stop(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._greenlet.parent.switch()
        if self._killed:
            raise DiedError("the process has ended")

    def kill(self) -> None:
        """End the call where it stands (its process is dead, so nothing it does has effects)."""
        self._killed = True
        if self._greenlet:  # it has begun and not ended
            self._run()
