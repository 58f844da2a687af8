"""Timers: one heap for the deadlines of all members of all groups.

A decider: time is an argument. Who may call: the coordinators. Invariants: a timer is in the heap
at most once at a time it counts, at or before its deadline; moving a deadline further away, which
every heartbeat does, touches one attribute and not the heap. Kafka: timing wheel under
`DelayedHeartbeat`, `DelayedJoin` and `DelayedSync`.
"""

import heapq
from collections.abc import Callable
from typing import NamedTuple


class Now(NamedTuple):
    """The two clocks: milliseconds for durations, milliseconds since 1970 for what is written."""

    mono_ms: float
    wall_ms: int


class Timer:
    """One deadline and what it means."""

    __slots__ = ("due_ms", "queued_ms", "ring")

    def __init__(self, ring: Callable[[Now], None]) -> None:
        self.ring = ring
        self.due_ms: float | None = None
        self.queued_ms: float | None = None  # its place in the heap

    def cancel(self) -> None:
        self.due_ms = None


class Timers:
    """The heap."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0

    def set(self, timer: Timer, due_ms: float) -> None:
        """Let `timer` ring at `due_ms`, and no more at the time it was set to before."""
        timer.due_ms = due_ms
        queued_ms = timer.queued_ms
        if queued_ms is None or due_ms < queued_ms:
            self._push(timer, due_ms)

    def _push(self, timer: Timer, due_ms: float) -> None:
        timer.queued_ms = due_ms
        self._count += 1
        heapq.heappush(self._heap, (due_ms, self._count, timer))

    @property
    def next_ms(self) -> float | None:
        """When to look again; there may be nothing to ring then. None: nothing is set."""
        return self._heap[0][0] if self._heap else None

    def pop(self, now_ms: float) -> Timer | None:
        """Return a timer that is due, None if none is."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            queued_ms, _, timer = heapq.heappop(heap)
            if queued_ms != timer.queued_ms:
                continue  # it was set to an earlier time since, and stands in the heap for that
            timer.queued_ms = None
            due_ms = timer.due_ms
            if due_ms is None:
                continue
            if due_ms > now_ms:
                self._push(timer, due_ms)
                continue
            timer.due_ms = None
            return timer
        return None

    def __len__(self) -> int:
        return len(self._heap)
