"""Response memory: a bound on all responses that clients have not read yet (R19, F47).

Invariants: bytes are counted from the creation of a response until the system has sent them; the
fuller the pool, the smaller the next responses; when it is full, requests with large responses
(`limits.FrameRules`) wait; the connections that read nothing for longest are closed first, and only
while the pool is too full. Kafka has no such bound: its responses come from files by sendfile.
"""

import asyncio
from typing import Protocol

LEAST_ROOM_BYTES = 65_536
STALLED_S = 2.0
"""A connection that read something within this time is not closed."""


class ResponseOwner(Protocol):
    """What the pool needs of a connection."""

    def stalled_s(self, now: float) -> float:
        """Return for how many seconds the peer has read nothing of its responses."""
        ...

    def close_slow_reader(self, reason: str) -> None: ...

    def responses_fit(self) -> None:
        """Dispatch requests again."""
        ...


class ResponseMemory:
    """The pool of one broker, shared by its listeners."""

    def __init__(self, cap_bytes: int) -> None:
        self.cap_bytes = cap_bytes
        self.used_bytes = 0
        self.full = False
        self.closed_total = 0
        self.building = asyncio.Lock()
        """whose holder builds a large response: one at a time"""
        self._takers: dict[ResponseOwner, int] = {}
        self._waiting: dict[ResponseOwner, None] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def room(self) -> int:
        """Return the largest response to build now: a quarter of what is free in one half."""
        left = self.cap_bytes // 2 - self.used_bytes
        return max(left // 4, LEAST_ROOM_BYTES)

    def settle(self, taker: ResponseOwner, size: int) -> None:
        """Set the bytes of a connection that wait to be sent."""
        takers = self._takers
        self.used_bytes += size - takers.get(taker, 0)
        if size:
            takers[taker] = size
        else:
            takers.pop(taker, None)
        # The rest is for responses that are larger than they should be: one batch always goes.
        if self.used_bytes >= self.cap_bytes * 3 // 4:
            self.full = True
        elif self.full:
            self.full = False
            waiting, self._waiting = self._waiting, {}
            for waiter in waiting:
                waiter.responses_fit()

    def of(self, taker: ResponseOwner) -> int:
        """Return the bytes that are counted for a connection."""
        return self._takers.get(taker, 0)

    def wait(self, taker: ResponseOwner) -> None:
        """Call a connection's `responses_fit` when the pool is no longer full."""
        self._waiting[taker] = None

    def leave(self, taker: ResponseOwner) -> None:
        """Remove a closed connection."""
        self._waiting.pop(taker, None)
        self.settle(taker, 0)

    def sweep(self, now: float) -> None:
        """Close the connections that read nothing for longest if the pool is too full."""
        if self.used_bytes <= self.cap_bytes // 2:
            return
        stalled = [(taker.stalled_s(now), taker) for taker in self._takers]
        stalled.sort(key=lambda entry: entry[0], reverse=True)
        for seconds, taker in stalled:
            if seconds < STALLED_S or self.used_bytes <= self.cap_bytes // 3:
                return
            self.closed_total += 1
            taker.close_slow_reader(
                f"took nothing of {self.of(taker)} bytes for {seconds:.0f} s while "
                f"{self.used_bytes} bytes of responses waited in all"
            )
