"""Where times stand on a line of text: long calm stretches are shortened, no change disappears.

A decider. Between two changes there are columns in proportion to the logarithm of the time between
them.
"""

import bisect
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

SHORTEST_MS = 20
"""A stretch of this length counts as one; the logarithm of shorter ones would be negative."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Columns 0 to width - 1 for times from the first to the last."""

    times: tuple[int, ...]
    places: tuple[float, ...]
    width: int

    @staticmethod
    def over(times: Iterable[int], width: int) -> "Axis":
        """Return the axis of these times, ms since 1970; at least one."""
        known = sorted(set(times))
        places = [0.0]
        for before, after in itertools.pairwise(known):
            places.append(places[-1] + 1 + math.log2(1 + (after - before) / SHORTEST_MS))
        scale = (width - 1) / places[-1] if places[-1] else 0.0
        return Axis(tuple(known), tuple(place * scale for place in places), width)

    def column(self, ts: int) -> int:
        """Return a time's column; one outside the axis gets the nearest."""
        at = bisect.bisect_right(self.times, ts) - 1
        if at < 0:
            return 0
        if at == len(self.times) - 1:
            return int(self.places[-1])
        share = (ts - self.times[at]) / (self.times[at + 1] - self.times[at])
        return int(self.places[at] + share * (self.places[at + 1] - self.places[at]))
