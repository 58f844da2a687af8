"""Masks: which numbered events of a seed's schedule may happen, so that one can be left out alone.

Invariants: every fault and every operation has a name that the seed alone gives it ("7" is the
nemesis' seventh strike, "c7" that of the clients' processes, "a0.7" the seventh operation of
administrator a0), a time of its own and a stream of chance of its own. So leaving one out moves and
changes none of the others.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple


class Mask(NamedTuple):
    """`only` None allows all; `skip` is taken away from that."""

    only: frozenset[str] | None = None
    skip: frozenset[str] = frozenset()

    def allows(self, name: str) -> bool:
        return name not in self.skip and (self.only is None or name in self.only)


ALL = Mask()


def mask_of(only: Iterable[str] | None, skip: Iterable[str] = ()) -> Mask:
    return Mask(None if only is None else frozenset(only), frozenset(skip))


class Operations:
    """When one operator does something, and with what chance.

    `random_of` gives the stream of a purpose, `mean_s` is the mean time between two. `done` gets a
    line of each that was begun: its time and its name.
    """

    def __init__(
        self,
        name: str,
        random_of: Callable[[str], random.Random],
        mean_s: float,
        mask: Mask = ALL,
        done: list[str] | None = None,
    ) -> None:
        self.name = name
        self._random_of = random_of
        self._mean_s = mean_s
        self._mask = mask
        self._done = [] if done is None else done
        self._number = 0

    async def due(self, stopping: Callable[[], bool]) -> AsyncIterator[random.Random]:
        """Yield the chance of each operation when it is due, until it is stopped.

        One that becomes due while another is still at work is dropped: each does one at a time.
        """
        loop = asyncio.get_running_loop()
        times = self._random_of(self.name)
        at_s = loop.time()
        while True:
            self._number += 1
            at_s += times.expovariate(1.0 / self._mean_s)
            late = at_s < loop.time()
            await asyncio.sleep(max(0.0, at_s - loop.time()))
            if stopping():
                return
            name = f"{self.name}.{self._number}"
            if not late and self._mask.allows(name):
                self._done.append(f"{loop.time():.3f} #{name}")
                yield self._random_of(name)

    def note(self, what: str) -> None:
        """Say what the operation now under way is."""
        self._done[-1] += f" {what}"
