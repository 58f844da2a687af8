"""Timers on the event loop: one timer of the loop for the deadlines of all keys.

Invariants: what a timer's expiry sets or cancels counts in the same turn; a turn has a bounded
number of expiries.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Generic

from ottla.coordinators.timers import Key, Now, Timers
from ottla.model.ports import Clock

logger = logging.getLogger(__name__)

MAX_EXPIRED_PER_TURN = 256
"""Timers that expire in one turn of the event loop."""

ROUNDING_MS = 0.1
"""A timer that is due within this has expired: the event loop cannot tell the difference."""


def now_of(clock: Clock) -> Now:
    return Now(clock.monotonic() * 1000, clock.wall_ms())


class LoopTimers(Generic[Key]):
    """Keys and when they expire; `expired` is called with each key and the time."""

    def __init__(self, clock: Clock, expired: Callable[[Key, Now], None]) -> None:
        self._clock = clock
        self._expired = expired
        self._timers: Timers[Key] = Timers()
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0.0
        self._closed = False

    def __len__(self) -> int:
        return len(self._timers)

    def set(self, key: Key, due_ms: float) -> None:
        """Let `key` expire at `due_ms` of the monotonic clock, and not when set before."""
        self._timers.set(key, due_ms)
        self._schedule()

    def cancel(self, key: Key) -> None:
        """Do not let `key` expire; nothing happens if it is not set."""
        self._timers.cancel(key)

    def _schedule(self) -> None:
        due_ms = self._timers.next_ms
        if due_ms is None or self._closed:
            return
        if self._handle is not None:
            if self._at_ms <= due_ms:
                return
            self._handle.cancel()
        self._at_ms = due_ms
        delay_s = max(0.0, due_ms / 1000 - self._clock.monotonic())
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._turn)

    def _turn(self) -> None:
        """Let timers expire that are due. A loop root."""
        now = now_of(self._clock)
        if 0 < self._at_ms - now.mono_ms < ROUNDING_MS:
            # The deadline is kept in milliseconds, the loop's clock counts seconds: rounded, it can
            # be just before the deadline, and the delay that is left too small to move it.
            now = now._replace(mono_ms=self._at_ms)
        try:
            for _ in range(MAX_EXPIRED_PER_TURN):
                key = self._timers.pop(now.mono_ms)
                if key is None:
                    break
                self._expired(key, now)
        except Exception:
            logger.exception("a timer failed")
        self._handle = None
        self._schedule()

    def close(self) -> None:
        """Let nothing expire any more."""
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()
