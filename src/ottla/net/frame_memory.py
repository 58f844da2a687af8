"""Frame memory: a bound on all partly received requests of a broker (R19, F47).

Invariants: memory is charged as bytes arrive, never for an announced size; small frames and
requests between brokers have a reserved part that large frames of clients cannot take; one frame at
a time may exceed the bound, so that frames which wait for each other's memory cannot deadlock;
while any frame waits, connections that send too slowly are closed. Kafka: `SimpleMemoryPool`.
"""

from heapq import heapify, heappop, heappush
from typing import Protocol

SMALL_FRAME_BYTES = 1_048_576
CONTROL_BYTES = 16_777_216
"""On top of the bound, for LeaderAndIsr, StopReplica and UpdateMetadata and for the listeners that
only brokers use."""
GRACE_S = 0.5
"""A frame's speed is measured over this time at least."""
LEAST_BYTES_PER_S = 262_144
"""A frame that comes more slowly than this is closed while others wait for memory."""


class Holder(Protocol):
    """What the pool needs of a connection."""

    def memory_granted(self, size: int) -> bool:
        """Take `size` more bytes; return False if they are not needed any more."""
        ...

    def frame_progress(self) -> int | None:
        """Return the bytes received of the current frame; None if the peer waits for us."""
        ...

    def close_slow_frame(self, reason: str) -> None: ...


class FrameMemory:
    """The pool of one broker, shared by its listeners."""

    def __init__(self, cap_bytes: int) -> None:
        self.cap_bytes = cap_bytes
        self.used_bytes = 0
        self.control_bytes = 0
        self._holders: dict[Holder, int] = {}
        self._waiting: list[tuple[int, int, Holder, int, bool]] = []
        """a heap of (bytes missing, number, holder, bytes wanted now, large)"""
        self._number = 0
        self._beyond: Holder | None = None
        """the one that may exceed the bound, until its frame is complete"""
        self._beyond_bytes = 0
        """the bytes it took above the bound: others need not wait for them"""
        self.closed_total = 0
        self._seen: dict[Holder, tuple[float, int]] = {}
        """while others wait: the bytes received of each frame, and when"""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self, holder: Holder, size: int, *, missing: int, large: bool, control: bool) -> bool:
        """Take `size` bytes now, or queue: `memory_granted` notifies the holder.

        `missing` is how many bytes of the frame are still to come: few go first.
        """
        if control and self.control_bytes + size <= CONTROL_BYTES:
            self.control_bytes += size
            return True
        if holder is self._beyond or (
            (not large or not self._waiting) and self._has(size, large=large)
        ):
            self._charge(holder, size)
            return True
        if self._beyond is None:
            self._let_pass(holder)
            self._charge(holder, size)
            return True
        self._number += 1
        heappush(self._waiting, (missing, self._number, holder, size, large))
        return False

    def _has(self, size: int, *, large: bool) -> bool:
        bound = self.cap_bytes - (self.cap_bytes // 4 if large else 0)
        return self.used_bytes - self._beyond_bytes + size <= bound

    def _charge(self, holder: Holder, size: int) -> None:
        self.used_bytes += size
        self._holders[holder] = self._holders.get(holder, 0) + size
        if holder is self._beyond:
            self._beyond_bytes += size

    def _let_pass(self, holder: Holder | None) -> None:
        self._beyond = holder
        self._beyond_bytes = 0

    def give_back(self, holder: Holder, size: int, control: int, *, complete: bool) -> None:
        """Return what a holder has: `size` bytes of the pool, `control` of the other part.

        `complete` tells that no frame of it is under way any more.
        """
        self.control_bytes -= control
        self.used_bytes -= size
        left = self._holders.get(holder, 0) - size
        assert left >= 0 <= self.used_bytes
        assert self.control_bytes >= 0
        if left:
            self._holders[holder] = left
        else:
            self._holders.pop(holder, None)
        if complete and holder is self._beyond:
            self._let_pass(None)
        self._serve()

    def leave(self, holder: Holder) -> None:
        """Remove a waiting holder, which has given back all it had."""
        self._waiting = [entry for entry in self._waiting if entry[2] is not holder]
        heapify(self._waiting)
        if holder is self._beyond:
            self._let_pass(None)
        self._serve()

    def _serve(self) -> None:
        """Grant what fits; the first in the queue gets its memory in any case."""
        waiting = self._waiting
        while waiting:
            _, _, holder, size, large = waiting[0]
            if not self._has(size, large=large):
                if self._beyond is not None:
                    return
                self._let_pass(holder)
            heappop(waiting)
            if holder.memory_granted(size):
                self._charge(holder, size)
            elif holder is self._beyond:
                self._let_pass(None)

    def sweep(self, now: float) -> None:
        """Close the frames that come too slowly if others wait; called a few times a second."""
        if not self._waiting:
            self._seen = {}
            return
        slow: list[tuple[float, Holder]] = []
        seen, self._seen = self._seen, {}
        for holder in self._holders:
            came = holder.frame_progress()
            if came is None:
                continue
            then, before = seen.get(holder, (now, came))
            if now - then < GRACE_S or came < before:
                self._seen[holder] = (then, before) if came >= before else (now, came)
                continue
            self._seen[holder] = now, came
            rate = (came - before) / (now - then)
            if rate < LEAST_BYTES_PER_S:
                slow.append((rate, holder))
        for rate, holder in slow:
            self.closed_total += 1
            holder.close_slow_frame(
                f"request came with {rate:.0f} bytes/s while others waited for its memory"
            )
