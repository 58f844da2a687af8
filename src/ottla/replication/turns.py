"""Turns: how whatever grows with the number of partitions shares the event loop.

Who may call: the loops and control requests of this room. Invariants: between `over` and the end of
`next` everything else that is ready runs, so state read before must be read again.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Generic, TypeVar

from ottla.model.ports import Clock

T = TypeVar("T")

SLICE_S = 0.008
"""No more than this in one go; a callback of 20 ms would already be felt by producers."""


class Turn:
    """A share of the event loop: `over` when it is used up, `next` lets the others run."""

    __slots__ = ("_clock", "_until_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = clock.monotonic() + SLICE_S

    @property
    def over(self) -> bool:
        return self._clock.monotonic() >= self._until_s

    async def next(self) -> None:
        await asyncio.sleep(0)
        self._until_s = self._clock.monotonic() + SLICE_S


class InTurns(Generic[T]):
    """Items one after another, for `async for`: others run in between when a share is used up."""

    __slots__ = ("_items", "_turn")

    def __init__(self, items: Iterable[T], clock: Clock) -> None:
        self._items = iter(items)
        self._turn = Turn(clock)

    def __aiter__(self) -> "InTurns[T]":
        return self

    async def __anext__(self) -> T:
        for item in self._items:
            if self._turn.over:
                await self._turn.next()
            return item
        raise StopAsyncIteration


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until an event is set, but no longer than so long; None: for as long as it takes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
