"""Steps: long work as a generator, which yields where other tasks may run, then returns a result.

A `for` loop loses a generator's return value; these keep it.
"""

import types
from collections.abc import Generator, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
Y = TypeVar("Y")

SLICE = 200
"""Subjects, such as partitions, that one step of long work takes."""


class Driven(Generic[Y, T]):
    """A generator for a `for` loop; `result` is its return value, once the loop has ended."""

    __slots__ = ("_steps", "result")

    def __init__(self, steps: Generator[Y, None, T]) -> None:
        self._steps = steps
        self.result: T

    def __iter__(self) -> Iterator[Y]:
        self.result = yield from self._steps


def drain(steps: Generator[object, None, T]) -> T:
    """Run a generator to its end in this call; return its result."""
    driven = Driven(steps)
    for _ in driven:
        pass
    return driven.result


@types.coroutine
def yield_to_loop() -> Generator[None, None, None]:
    """Let everything else that is ready run now: `asyncio.sleep(0)`, without its two coroutines.

    For places where the yield must not depend on a clock, so that a simulated run can be repeated.
    """
    yield


def slices(items: Sequence[T], size: int = SLICE) -> Iterator[Sequence[T]]:
    """Yield `items` in sequences of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
