"""Virtual time: one queue of events for every node, in the order (time, number).

Invariants: nothing runs but from here, one event at a time; two events of one instant run in the
order they were made, so a run is a function of its seed. While a node's callback runs, `now` is
that node's time: it moves on by what the callback costs (`spend`), and falls back to the instant of
the event afterwards, because the other nodes were at work meanwhile. Bounds: a number of steps in
all, and of steps within one instant, beyond which someone spins (`LivelockError`); an empty queue
while someone waits is a `DeadlockError`.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Protocol

# What asyncio exports "to be used by event loops"; there is no other way to be one.
get_running_loop = asyncio._get_running_loop  # noqa: SLF001
set_running_loop = asyncio._set_running_loop  # noqa: SLF001

MAX_STEPS = 50_000_000
MAX_STEPS_AT_ONCE = 500_000


@contextlib.contextmanager
def no_running_loop() -> Iterator[None]:
    """Have asyncio know of no running loop meanwhile."""
    loop = get_running_loop()
    set_running_loop(None)
    try:
        yield
    finally:
        set_running_loop(loop)


class SimulationError(Exception):
    """The simulated system or the simulator did something it must not."""


class DeadlockError(SimulationError):
    """Someone waits and nothing will ever happen again."""


class LivelockError(SimulationError):
    """Events follow each other without time passing, or without an end."""


class Runnable(Protocol):
    """What the queue holds: a kernel event, a node's timer or a node's next turn."""

    dropped: bool
    """Whether it was cancelled: it is left out then, and time does not move for it."""

    def fire(self) -> None: ...


class KernelEvent:
    """Something that happens below the nodes: bytes arrive, a timer of the nemesis."""

    __slots__ = ("_args", "_callback", "dropped")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self.dropped = False

    def fire(self) -> None:
        if self._callback is not None:
            self._callback(*self._args)

    def cancel(self) -> None:
        self.dropped = True
        self._callback = None
        self._args = ()


class Scheduler:
    """The one clock and the one queue of a simulation.

    Events of the present instant wait in a deque, later ones in a heap: what is due at once is
    the most, and a deque keeps its order for nothing.
    """

    def __init__(self, *, max_steps: int = MAX_STEPS) -> None:
        self.now = 0.0
        self.steps = 0
        self.max_steps = max_steps
        self.spends = False
        """Whether a node's callback is running, which takes time."""
        self.instant = 0.0
        """When the present event happens: `now`, but for what its callback has cost."""
        self.ready: deque[Runnable] = deque()
        """What is due at this instant, in its order."""
        self.running_loop: asyncio.AbstractEventLoop | None = None
        """What asyncio takes for the running loop: that of the node whose turn was last.

        To tell asyncio takes a system call, so no turn puts it back; the run of events does.
        """
        self._heap: list[tuple[float, int, Runnable]] = []
        self._number = 0
        self.limit = min(max_steps, MAX_STEPS_AT_ONCE)
        """So many steps there may be by the end of the present instant."""

    def push(self, when: float, event: Runnable) -> None:
        """Queue an event; a time that has passed means now."""
        if when <= self.instant:
            self.ready.append(event)
        else:
            self._number = number = self._number + 1
            now = self.now
            due = when if when > now else now  # noqa: FURB136 - a call less for each event
            heappush(self._heap, (due, number, event))

    def at(self, when: float, callback: Callable[..., object], *args: object) -> KernelEvent:
        """Call at a virtual time, outside every node."""
        event = KernelEvent(callback, args)
        self.push(when, event)
        return event

    def after(self, delay_s: float, callback: Callable[..., object], *args: object) -> KernelEvent:
        """Call after a virtual delay, outside every node."""
        event = KernelEvent(callback, args)
        self.push(self.now + delay_s, event)
        return event

    def spend(self, seconds: float) -> None:
        """Let a node's time pass within its callback; nothing outside of callbacks."""
        if self.spends:
            self.now += seconds

    @contextlib.contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Do something beside the node's loop: its time does not pass by it."""
        before, self.spends = self.spends, False
        try:
            yield
        finally:
            self.spends = before

    def too_many(self) -> None:
        """Raise the LivelockError of an instant, or a run, with more steps than its limit."""
        if self.steps > self.max_steps:
            raise LivelockError(f"more than {self.max_steps} events by {self.now:.6f} s")
        raise LivelockError(f"{MAX_STEPS_AT_ONCE} events at {self.now:.6f} s")

    def next_time(self) -> float | None:
        """Return when the next event is due; None if there is none."""
        ready, heap = self.ready, self._heap
        while ready and ready[0].dropped:
            ready.popleft()
        if ready:
            return self.instant
        while heap and heap[0][2].dropped:
            heappop(heap)
        return heap[0][0] if heap else None

    def step(self) -> None:
        """Run the next event; there has to be one."""
        ran = self._run(float("inf"), iter((False, True)).__next__)
        assert ran, "nothing is queued"

    def _run(self, deadline_s: float, done: Callable[[], bool] | None = None) -> bool:
        """Run events until `done()`, looked at before each; False if none is due by then.

        Those that were cancelled are left out.
        """
        before = self.running_loop = get_running_loop()
        try:
            return self._run_events(deadline_s, done)
        finally:
            if self.running_loop is not before:
                self.running_loop = before
                set_running_loop(before)

    def _run_events(self, deadline_s: float, done: Callable[[], bool] | None) -> bool:
        ready, heap, most = self.ready, self._heap, self.max_steps
        while done is None or not done():
            if ready:
                event = ready.popleft()
                if event.dropped:
                    continue
            elif heap:
                first = heappop(heap)
                when, _, event = first
                if event.dropped:
                    continue
                if when > deadline_s:
                    heappush(heap, first)
                    return False
                self.now = self.instant = when
                limit = self.steps + MAX_STEPS_AT_ONCE
                self.limit = limit if limit < most else most  # noqa: FURB136 - as in `push`
                # What was pushed for an instant before it came goes before what comes up in it.
                while heap and heap[0][0] == when:
                    ready.append(heappop(heap)[2])
            else:
                return False
            self.steps = steps = self.steps + 1
            if steps > self.limit:
                self.too_many()
            event.fire()
        return True

    def run_until(self, done: Callable[[], bool], *, deadline_s: float = float("inf")) -> None:
        """Run until `done()`; DeadlockError if nothing is left, TimeoutError at the deadline."""
        if self._run(deadline_s, done):
            return
        if self.next_time() is None:
            raise DeadlockError(f"nothing left to happen at {self.now:.6f} s")
        self._pass(deadline_s)
        raise TimeoutError(f"not done at {deadline_s:.3f} s of virtual time")

    def run_for(self, seconds: float) -> None:
        """Let virtual time pass."""
        deadline = self.now + seconds
        self._run(deadline)
        self._pass(deadline)

    def _pass(self, until_s: float) -> None:
        """Let time pass in which nothing happens."""
        self.now = self.instant = max(until_s, self.instant)
        self.limit = min(self.max_steps, self.steps + MAX_STEPS_AT_ONCE)

    def statistics(self) -> dict[str, object]:
        queued = len(self._heap) + len(self.ready)
        return {"now_s": self.now, "steps": self.steps, "queued": queued}
