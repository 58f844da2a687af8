"""Virtual time: one heap of events for every node, in the order (time, number).

Who may call: the sim room only. Invariants: nothing runs but from here, one event at a time; time
moves only between events; two events of one instant run in the order they were made, so a run is
a function of its seed. Bounds: a number of steps in all, and of steps within one instant, beyond
which somebody spins (`LivelockError`); an empty heap while somebody waits is a `DeadlockError`.
"""

import heapq
from collections.abc import Callable
from typing import Protocol

MAX_STEPS = 50_000_000
MAX_STEPS_AT_ONCE = 500_000


class SimulationError(Exception):
    """The simulated system or the simulator did something it must not."""


class DeadlockError(SimulationError):
    """Somebody waits and nothing will ever happen again."""


class LivelockError(SimulationError):
    """Events follow each other without time passing, or without an end."""


class Runnable(Protocol):
    """What the heap holds: a kernel event or a node's callback."""

    def fire(self) -> None: ...

    def is_cancelled(self) -> bool: ...


class KernelEvent:
    """Something that happens below the nodes: bytes arrive, a timer of the nemesis."""

    __slots__ = ("_args", "_callback")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args

    def fire(self) -> None:
        if self._callback is not None:
            self._callback(*self._args)

    def cancel(self) -> None:
        self._callback = None
        self._args = ()

    def is_cancelled(self) -> bool:
        return self._callback is None


class Scheduler:
    """The one clock and the one queue of a simulation."""

    def __init__(self, *, max_steps: int = MAX_STEPS) -> None:
        self.now = 0.0
        self.steps = 0
        self.max_steps = max_steps
        self._heap: list[tuple[float, int, Runnable]] = []
        self._number = 0
        self._steps_at_once = 0

    def push(self, when: float, event: Runnable) -> None:
        """Queue an event; a time that has passed means now."""
        self._number += 1
        heapq.heappush(self._heap, (max(when, self.now), self._number, event))

    def at(self, when: float, callback: Callable[..., object], *args: object) -> KernelEvent:
        """Call at a virtual time, outside every node."""
        event = KernelEvent(callback, args)
        self.push(when, event)
        return event

    def after(self, delay_s: float, callback: Callable[..., object], *args: object) -> KernelEvent:
        """Call after a virtual delay, outside every node."""
        return self.at(self.now + delay_s, callback, *args)

    def next_time(self) -> float | None:
        """Return when the next event is due; None if there is none."""
        heap = self._heap
        while heap and heap[0][2].is_cancelled():
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def step(self) -> None:
        """Run the next event; there has to be one."""
        when, _, event = heapq.heappop(self._heap)
        if when > self.now:
            self.now = when
            self._steps_at_once = 0
        self.steps += 1
        self._steps_at_once += 1
        if self._steps_at_once > MAX_STEPS_AT_ONCE:
            raise LivelockError(
                f"{MAX_STEPS_AT_ONCE} events at {self.now:.6f} s; the last was {event!r}"
            )
        if self.steps > self.max_steps:
            raise LivelockError(f"more than {self.max_steps} events by {self.now:.6f} s")
        event.fire()

    def run_until(self, done: Callable[[], bool], *, deadline_s: float = float("inf")) -> None:
        """Run until `done()`; DeadlockError if nothing is left, TimeoutError at the deadline."""
        while not done():
            when = self.next_time()
            if when is None:
                raise DeadlockError(f"nothing left to happen at {self.now:.6f} s")
            if when > deadline_s:
                self.now = max(self.now, deadline_s)
                raise TimeoutError(f"not done at {deadline_s:.3f} s of virtual time")
            self.step()

    def run_for(self, seconds: float) -> None:
        """Let virtual time pass."""
        deadline = self.now + seconds
        while (when := self.next_time()) is not None and when <= deadline:
            self.step()
        self.now = max(self.now, deadline)
        self._steps_at_once = 0

    def statistics(self) -> dict[str, object]:
        return {"now_s": self.now, "steps": self.steps, "queued": len(self._heap)}
