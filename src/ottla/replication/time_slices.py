"""Time slices: how work that grows with the number of partitions shares the event loop.

Who may call: coroutines of this room and of the rooms above. Invariants: whatever else is ready
runs between `over` and the end of `next`, so state that was read before must be read again.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Generic, TypeVar

from ottla.model.ports import Clock

T = TypeVar("T")

SLICE_S = 0.008
"""The length of a time slice; producers would already notice a callback of 20 ms."""


class TimeSlice:
    """A slice of the event loop's time. `next` yields to the loop and begins another slice."""

    __slots__ = ("_clock", "_until_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = clock.monotonic() + SLICE_S

    @property
    def over(self) -> bool:
        """Whether the time is used up."""
        return self._clock.monotonic() >= self._until_s

    async def next(self) -> None:
        """Let everything else that is ready run, then begin a new slice."""
        await asyncio.sleep(0)
        self._until_s = self._clock.monotonic() + SLICE_S


class InTimeSlices(Generic[T]):
    """The same items, for `async for`; yields to the loop whenever a time slice is over."""

    __slots__ = ("_items", "_time_slice")

    def __init__(self, items: Iterable[T], clock: Clock) -> None:
        self._items = iter(items)
        self._time_slice = TimeSlice(clock)

    def __aiter__(self) -> "InTimeSlices[T]":
        return self

    async def __anext__(self) -> T:
        for item in self._items:
            if self._time_slice.over:
                await self._time_slice.next()
            return item
        raise StopAsyncIteration


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until an event is set, but no longer than so many seconds; None: without a limit."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
