"""Time slices: how long work shares the event loop with everything else.

Invariants: everything else that is ready runs before `next` or a `checkpoint` that returns True
ends, so state that was read before must be read again; a slice is measured on the monotonic clock.

Work that also has synchronous callers is a generator (`model.steps`): `run_in_time_slices` runs
one on the event loop, `steps.drain` runs one in a single call.
"""

import asyncio
import contextlib
from collections.abc import Generator, Iterable
from typing import Generic, TypeVar

from ottla.model.ports import Clock
from ottla.model.steps import yield_to_loop as yield_to_loop  # noqa: PLC0414 - kept for its many users

T = TypeVar("T")

SLICE_S = 0.008
"""The length of a time slice by a real clock; producers would notice a callback of 20 ms."""


class TimeSlice:
    """A slice of the event loop's time, from its creation on."""

    __slots__ = ("_clock", "_until_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = clock.monotonic() + clock.slice_s

    @property
    def over(self) -> bool:
        """Whether the time is used up."""
        return self._clock.monotonic() >= self._until_s

    def restart(self) -> None:
        """Begin a new slice: the caller has just waited for something else."""
        self._until_s = self._clock.monotonic() + self._clock.slice_s

    async def next(self) -> None:
        """Let everything else that is ready run, then begin a new slice."""
        await yield_to_loop()
        self.restart()

    async def checkpoint(self) -> bool:
        """Do what `next` does if the slice is over; return whether it was."""
        if not self.over:
            return False
        await self.next()
        return True


class InTimeSlices(Generic[T]):
    """Wraps items for `async for`; yields to the loop whenever a time slice is over."""

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


async def run_in_time_slices(steps: Generator[object, None, T], clock: Clock) -> T:
    """Run a generator to its end and return what it returns; others run between time slices."""
    time_slice = TimeSlice(clock)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await time_slice.checkpoint()


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until an event is set, but no longer than so many seconds; None: without a limit."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def end_tasks(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel tasks and wait until they have ended; None stands for one that never began."""
    begun = [task for task in tasks if task is not None]
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
