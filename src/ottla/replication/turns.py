"""Turns: how whatever grows with the number of partitions shares the event loop.

Who may call: the loops and control requests of this room. Invariants: between `over` and the end of
`next` everything else that is ready runs, so state read before must be read again.
"""

import asyncio

from ottla.model.ports import Clock

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
