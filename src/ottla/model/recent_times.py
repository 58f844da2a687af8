"""Recent times: how often something happened, and how long it took the last times.

Pure. Invariant: the memory is bounded; noting one costs an addition and a float.
"""

from collections import deque

KEPT = 256
"""Times kept: percentiles are of these."""


class RecentTimes:
    """A count, and the last times in milliseconds."""

    __slots__ = ("_kept", "count")

    def __init__(self) -> None:
        self.count = 0
        self._kept: deque[float] = deque(maxlen=KEPT)

    def note(self, seconds: float) -> None:
        """Note that it happened once more, and took so long."""
        self.count += 1
        self._kept.append(round(seconds * 1000, 3))

    def times(self) -> list[float]:
        """Return the last times in ms, sorted."""
        return sorted(self._kept)
