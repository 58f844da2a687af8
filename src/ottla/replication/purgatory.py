"""Purgatory: operations that must wait, the one timer that ends their wait, and the ready queue.

Invariants:
- an operation completes exactly once: satisfied, expired, or dropped with its connection
- nothing completes inside the step that made it possible: it is queued, and the queue is drained
  at the end of the same iteration of the loop. So a step is never re-entered, and ten appends of
  one iteration wake a follower once
- one heap, one timer, whatever the number of operations; entries of operations that are done are
  removed whenever the heap has grown to twice what was left the last time

Kafka: `DelayedOperationPurgatory` and its timing wheel.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from typing import Protocol

from ottla.model.ports import Clock

logger = logging.getLogger(__name__)

SWEEP_FROM = 1024

AT_ONCE = 256
"""Operations completed in one iteration of the loop; the rest follow in the next."""


class DelayedOperation(Protocol):
    """An operation that waits. It is `done` once it completed, failed, or its client is gone."""

    done: bool

    def attempt(self) -> None:
        """Complete if that is possible now; else go on waiting. Called from the ready queue."""
        ...

    def expire(self) -> None:
        """Complete with whatever there is: the time is over."""
        ...

    def fail(self, reason: str) -> None:
        """End without a response: something here is broken. Does nothing when this is done."""
        ...


class Purgatory:
    """The ready queue and the expiry heap of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: dict[DelayedOperation, None] = {}
        self._scheduled = False
        self._heap: list[tuple[float, int, DelayedOperation]] = []
        self._sweep_at = SWEEP_FROM
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self.parked_total = 0
        self.expired_total = 0

    def park(self, operation: DelayedOperation, wait_ms: float) -> None:
        """Keep an operation for at most `wait_ms`."""
        assert not operation.done
        self.parked_total += 1
        deadline_s = self._clock.monotonic() + wait_ms / 1000
        heapq.heappush(self._heap, (deadline_s, next(self._order), operation))
        if len(self._heap) > self._sweep_at:
            self._sweep()
        if self._timer is None or deadline_s < self._timer_at_s:
            self._arm(deadline_s)

    def enqueue(self, operation: DelayedOperation) -> None:
        """Have an operation attempted at the end of this iteration of the loop, once."""
        if operation.done:
            return
        self._ready[operation] = None
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        for operation in tuple(itertools.islice(self._ready, AT_ONCE)):
            del self._ready[operation]
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

    def _guard(self, operation: DelayedOperation, step: Callable[[], None]) -> None:
        """Run one operation's step; a failure ends that operation, not the others (a loop root)."""
        try:
            step()
        except Exception:
            logger.exception("parked operation failed operation=%r", operation)
            # Without an end to it the client would wait for its own time limit, and with it all
            # that it asked on this connection since.
            operation.fail("internal error")

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].done]
        heapq.heapify(self._heap)
        self._sweep_at = max(SWEEP_FROM, 2 * len(self._heap))

    def close(self) -> None:
        """Stop the timer. What is parked stays unanswered; its connections are closing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()

    @property
    def live(self) -> int:
        """How many operations wait."""
        return sum(not entry[2].done for entry in self._heap)

    def count(self, kind: type) -> tuple[int, int]:
        """Return how many operations of a kind wait, and how many are still in the heap."""
        found = [entry[2].done for entry in self._heap if isinstance(entry[2], kind)]
        return found.count(False), len(found)

    def statistics(self) -> dict[str, int]:
        return {
            "parked": self.live,
            "parked_total": self.parked_total,
            "expired_total": self.expired_total,
        }
