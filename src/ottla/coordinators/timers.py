"""Timers: one heap for the deadlines of all members of all groups.

A decider: time is an argument. Invariants: a timer, which is known by its key, has at most one
valid entry in the heap, at or before its deadline; moving a deadline further away, which every
heartbeat does, does not change the heap. Kafka: the timing wheel under `DelayedHeartbeat`,
`DelayedJoin` and `DelayedSync`.
"""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Now(NamedTuple):
    """The two clocks: milliseconds for durations, milliseconds since 1970 for what is written."""

    mono_ms: float
    wall_ms: int


@dataclass(slots=True, eq=False)
class _Timer:
    due_ms: float | None = None
    """None: cancelled"""
    queued_ms: float | None = None
    """its place in the heap"""


MOST_CANCELLED = 64
"""Cancelled timers that are kept in any case: most are set again."""


class Timers(Generic[Key]):
    """Keys and when they expire, in milliseconds of the monotonic clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Key]] = []
        self._timers: dict[Key, _Timer] = {}
        self._count = 0
        self._cancelled = 0

    def set(self, key: Key, due_ms: float) -> None:
        """Let `key` expire at `due_ms`, and not at the time it was set to before."""
        timer = self._timers.get(key)
        if timer is None:
            timer = self._timers[key] = _Timer()
        elif timer.due_ms is None:
            self._cancelled -= 1
        timer.due_ms = due_ms
        queued_ms = timer.queued_ms
        if queued_ms is None or due_ms < queued_ms:
            self._push(key, timer, due_ms)

    def cancel(self, key: Key) -> None:
        """Do not let `key` expire; nothing happens if it is not set."""
        timer = self._timers.get(key)
        if timer is not None and timer.due_ms is not None:
            timer.due_ms = None
            self._cancelled += 1
            if self._cancelled > max(MOST_CANCELLED, len(self._timers) // 2):
                self._forget_cancelled()

    def _forget_cancelled(self) -> None:
        """Drop what is cancelled: its keys, which clients named, would stay until it were due."""
        self._timers = {k: t for k, t in self._timers.items() if t.due_ms is not None}
        timers = self._timers
        self._heap = [
            entry
            for entry in self._heap
            if (timer := timers.get(entry[2])) is not None and timer.queued_ms == entry[0]
        ]
        heapq.heapify(self._heap)
        self._cancelled = 0

    def _push(self, key: Key, timer: _Timer, due_ms: float) -> None:
        timer.queued_ms = due_ms
        self._count += 1
        heapq.heappush(self._heap, (due_ms, self._count, key))

    @property
    def next_ms(self) -> float | None:
        """When to call `pop` again; it may find nothing then. None: no timer is set."""
        return self._heap[0][0] if self._heap else None

    def pop(self, now_ms: float) -> Key | None:
        """Return a key that has expired, None if none has."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(heap)
            timer = self._timers.get(key)
            if timer is None or queued_ms != timer.queued_ms:
                continue  # it was set to an earlier time since, which has an entry of its own
            timer.queued_ms = None
            due_ms = timer.due_ms
            if due_ms is not None and due_ms > now_ms:
                self._push(key, timer, due_ms)
                continue
            del self._timers[key]
            if due_ms is not None:
                return key
            self._cancelled -= 1
        return None

    def __len__(self) -> int:
        return len(self._heap)
