"""Whose requests a server carries out next: each connection has short slices of the loop's time.

Invariants: requests take `TURN_S` of one round of the loop at most, plus the request in hand; a
connection that sent more than a slice's worth comes after those that did not. ZooKeeper: a thread
per core (`CommitProcessor`'s workers) does this there.
"""

import asyncio
from collections import deque
from typing import Protocol

from ottla.model.ports import Clock

TURN_S = 0.010
SLICE_S = 0.002


class Worker(Protocol):
    """What has requests."""

    def work(self, until_s: float) -> bool:
        """Carry out requests until then; return whether none is left that it can do."""


class Turns:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: float | None = None
        """When this round's time is up; None while there is nothing to do."""
        self._fresh: deque[Worker] = deque()
        self._continuing: deque[Worker] = deque()

    def add(self, worker: Worker) -> None:
        """Let it work now if this round has time left, else in a later one."""
        now_s = self._clock.monotonic()
        if self._until_s is None:
            self._until_s = now_s + TURN_S
            asyncio.get_running_loop().call_soon(self._next_round)
        if self._fresh or now_s >= self._until_s:
            self._fresh.append(worker)
        else:
            self._slice(worker, now_s)

    def _slice(self, worker: Worker, now_s: float) -> None:
        if not worker.work(now_s + SLICE_S):
            self._continuing.append(worker)

    def _next_round(self) -> None:
        if not self._fresh and not self._continuing:
            self._until_s = None
            return
        now_s = self._clock.monotonic()
        self._until_s = until_s = now_s + TURN_S
        asyncio.get_running_loop().call_soon(self._next_round)
        for _ in range(len(self._continuing)):
            self._slice(self._continuing.popleft(), now_s)  # at least one, so that none starves
            now_s = self._clock.monotonic()
            if self._fresh or now_s >= until_s:
                break
        while self._fresh and now_s < until_s:
            self._slice(self._fresh.popleft(), now_s)
            now_s = self._clock.monotonic()
