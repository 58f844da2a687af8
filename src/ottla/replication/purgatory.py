"""Purgatory: answers that must wait, the one timer that ends their wait, and the ready queue.

Who may call: `fetching` and `producing` park here; `partition` says what moved. Invariants:
- an operation completes exactly once: satisfied, expired, or dropped with its connection
- nothing completes inside the step that made it possible: it is queued, and the queue is drained
  at the end of the same turn of the loop. So a step is never re-entered, and ten appends of one
  turn wake a follower once
- one heap, one timer, whatever the number of operations; entries of finished operations are
  swept out before they outnumber the others

Kafka: `DelayedOperationPurgatory` and its timing wheel.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable

from ottla.model.ports import Clock

logger = logging.getLogger(__name__)

SWEEP_FROM = 1024

AT_ONCE = 256
"""Operations completed in one turn of the loop; the rest follow in the next."""


class Parked:
    """An operation in waiting. Subclasses say how it is tried and how it ends."""

    __slots__ = ("done", "fail", "parked", "purgatory", "queued")

    def __init__(self, purgatory: "Purgatory") -> None:
        self.purgatory = purgatory
        self.done = False
        self.queued = False
        self.parked = False
        self.fail: Callable[[str], None] | None = None
        """closes the connection of whoever waits; set by the handler that parks this"""

    def attempt(self) -> None:
        """Answer if that is possible now; else stay parked. Called from the ready queue."""
        raise NotImplementedError

    def expire(self) -> None:
        """Answer with whatever there is: the wait is over."""
        raise NotImplementedError

    def abort(self, reason: str) -> None:
        """Tell whoever waits that there will be no answer: something here is broken."""
        if self.fail is not None:
            self.fail(reason)

    def reconsider(self) -> None:
        """Queue this for an attempt at the end of the turn."""
        if not self.queued and not self.done:
            self.queued = True
            self.purgatory.enqueue(self)

    def finish(self) -> None:
        """Mark the end; every way out passes here, once."""
        assert not self.done
        self.done = True
        if self.parked:
            self.purgatory.live -= 1


class Purgatory:
    """The ready queue and the expiry heap of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: list[Parked] = []
        self._scheduled = False
        self._heap: list[tuple[float, int, Parked]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self.live = 0
        self.parked_total = 0
        self.expired_total = 0

    def park(self, operation: Parked, wait_ms: float) -> None:
        """Keep an operation for at most `wait_ms`."""
        assert not operation.done
        operation.parked = True
        self.live += 1
        self.parked_total += 1
        deadline_s = self._clock.monotonic() + wait_ms / 1000
        heapq.heappush(self._heap, (deadline_s, next(self._order), operation))
        if len(self._heap) > SWEEP_FROM and len(self._heap) > 2 * self.live:
            self._sweep()
        if self._timer is None or deadline_s < self._timer_at_s:
            self._arm(deadline_s)

    def enqueue(self, operation: Parked) -> None:
        self._ready.append(operation)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        ready = self._ready[:AT_ONCE]
        del self._ready[:AT_ONCE]
        for operation in ready:
            operation.queued = False
            if not operation.done:
                self._guard(operation, operation.attempt)
        self._scheduled = bool(self._ready)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._drain)

    def _arm(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = deadline_s
        delay_s = max(0.0, deadline_s - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic()
        heap = self._heap
        left = AT_ONCE
        while heap and left and (heap[0][2].done or heap[0][0] <= now_s):
            operation = heapq.heappop(heap)[2]
            if not operation.done:
                left -= 1
                self.expired_total += 1
                self._guard(operation, operation.expire)
        if heap:
            self._arm(heap[0][0])

    def _guard(self, operation: Parked, step: Callable[[], None]) -> None:
        """Run one operation's step; a failure ends that operation, not the others (a loop root)."""
        try:
            step()
        except Exception:
            logger.exception("parked operation failed operation=%r", operation)
            if not operation.done:
                operation.finish()
            # Also if the answer was lost in its making: without an end to it the client would wait
            # for its own time limit, and with it all that it asked on this connection since.
            operation.abort("internal error")

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].done]
        heapq.heapify(self._heap)

    def close(self) -> None:
        """Stop the timer. What is parked stays unanswered; its connections are closing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()

    def count(self, kind: type[Parked]) -> tuple[int, int]:
        """Return how many operations of a kind wait, and how many are still in the heap."""
        found = [entry[2].done for entry in self._heap if isinstance(entry[2], kind)]
        return found.count(False), len(found)

    def statistics(self) -> dict[str, int]:
        return {
            "parked": self.live,
            "parked_total": self.parked_total,
            "expired_total": self.expired_total,
        }
