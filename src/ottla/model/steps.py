"""Steps: long work as a generator, which yields where other tasks may run, then returns a result.

Who may call: whatever runs such a generator. A `for` loop loses a generator's return value; these
keep it.
"""

from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
Y = TypeVar("Y")


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
