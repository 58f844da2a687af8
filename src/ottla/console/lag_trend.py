"""Where the lag of a group goes: records consumed and produced per second, and when it is gone.

Pure. Invariants: rates are differences of two points that sum the same partitions, LEAST_S apart at
least; what commits alone can explain is not a trend.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.console.lag_history import Point

RATE_S = 120.0
"""Rates are of the newest points no further apart than this."""
LEAST_S = 10.0
COMMIT_S = 5.0
"""Between two commits of a consumer (auto.commit.interval.ms): offsets go on in such steps."""
LEAST_SHOWN = 0.1
MINUTE_S, HOUR_S = 60, 3600
LONGEST_H = 48


class Trend(NamedTuple):
    """Records per second by offsets, and in a few words what becomes of the lag."""

    consumed: float
    produced: float
    text: str


def trend_of(points: Sequence[Point]) -> Trend | None:
    """Return the trend of the newest points, None where they do not tell it."""
    if not points:
        return None
    last = len(points) - 1
    first = last
    while first and points[first].same and points[last].at_s - points[first - 1].at_s <= RATE_S:
        first -= 1
    newest, oldest = points[last], points[first]
    seconds = newest.at_s - oldest.at_s
    if seconds < LEAST_S:
        return None
    consumed = (newest.committed - oldest.committed) / seconds
    produced = (newest.end - oldest.end) / seconds
    return Trend(consumed, produced, _text(newest.lag, consumed, produced, seconds))


def _text(lag: int, consumed: float, produced: float, seconds: float) -> str:
    if not lag:
        return "no lag"
    grows = produced - consumed
    if not grows or abs(grows) * seconds <= consumed * COMMIT_S:
        return "stays"
    if grows > 0:
        if grows < LEAST_SHOWN:
            return f"grows by less than {LEAST_SHOWN}/s"
        return f"grows by {grows:,.0f}/s" if grows >= 10 else f"grows by {grows:.1f}/s"
    left_s = lag / -grows
    if left_s < MINUTE_S:
        return f"caught up in {max(1, round(left_s))} s"
    if left_s < HOUR_S:
        return f"caught up in {round(left_s / MINUTE_S)} min"
    if left_s < LONGEST_H * HOUR_S:
        return f"caught up in {round(left_s / HOUR_S)} h"
    return f"caught up in more than {LONGEST_H} h"
