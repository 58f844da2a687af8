"""Answer memory: what all answers that clients have not taken yet may hold together (R19, F47).

Who may call: `net.connection` counts, `net.server` sweeps, handlers of large answers ask for room.
Invariants: bytes are counted from the moment an answer is there until the system took them; the
fuller it is, the smaller the answers that are read for anybody; when it is full, requests with
large answers (`limits.FrameRules`) wait; those who took nothing for longest are closed first, and
only while there is too much. Kafka has no such bound: its answers come from files by sendfile.
"""

from typing import Protocol

LEAST_ROOM_BYTES = 65_536
STALLED_S = 2.0
"""Whoever took something within so long a time is not closed for others' sake."""


class Taker(Protocol):
    """A connection, as far as its answers are concerned."""

    def stalled_s(self, now: float) -> float:
        """Return for how long the peer has taken nothing of what waits for it."""
        ...

    def close_slow_reader(self, reason: str) -> None: ...

    def room_for_answers(self) -> None:
        """Hear that requests may go on."""
        ...


class AnswerMemory:
    """The pool of one broker, shared by its listeners."""

    def __init__(self, cap_bytes: int) -> None:
        self.cap_bytes = cap_bytes
        self.used_bytes = 0
        self.full = False
        self.closed_total = 0
        self._takers: dict[Taker, int] = {}
        self._waiting: dict[Taker, None] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def room(self) -> int:
        """Return how large an answer may be just now: a quarter of what is left of one half."""
        left = self.cap_bytes // 2 - self.used_bytes
        return max(left // 4, LEAST_ROOM_BYTES)

    def settle(self, taker: Taker, size: int) -> None:
        """Note that `size` bytes wait for a taker."""
        takers = self._takers
        self.used_bytes += size - takers.get(taker, 0)
        if size:
            takers[taker] = size
        else:
            takers.pop(taker, None)
        # The rest is for answers that are larger than they should be: one batch always goes.
        if self.used_bytes >= self.cap_bytes * 3 // 4:
            self.full = True
        elif self.full:
            self.full = False
            waiting, self._waiting = self._waiting, {}
            for waiter in waiting:
                waiter.room_for_answers()

    def of(self, taker: Taker) -> int:
        """Return what is counted for a taker."""
        return self._takers.get(taker, 0)

    def wait(self, taker: Taker) -> None:
        """Have a taker told when it is no longer full."""
        self._waiting[taker] = None

    def leave(self, taker: Taker) -> None:
        """Forget a taker that is gone."""
        self._waiting.pop(taker, None)
        self.settle(taker, 0)

    def sweep(self, now: float) -> None:
        """Close those who took nothing for longest if too much waits; once a second or so."""
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
                f"{self.used_bytes} bytes of answers waited in all"
            )
