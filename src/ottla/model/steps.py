"""Steps: work that may be long, as a generator: it yields where others may run, then returns.

Who may call: whoever drives such a generator. A `for` loop loses what a generator returns; these
keep it.
"""

from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
Y = TypeVar("Y")


class Driven(Generic[Y, T]):
    """A generator for a `for` loop; `result` is what it returned, there when the loop has ended."""

    __slots__ = ("_steps", "result")

    def __init__(self, steps: Generator[Y, None, T]) -> None:
        self._steps = steps
        self.result: T

    def __iter__(self) -> Iterator[Y]:
        self.result = yield from self._steps


def drain(steps: Generator[object, None, T]) -> T:
    """Do it all in one go, here and now."""
    driven = Driven(steps)
    for _ in driven:
        pass
    return driven.result
