"""The lag of a group over time as lines of an SVG, and the same in a table.

Pure. Invariants: a line is broken where no browser looked, and where a lag is not known; it has
COLUMNS + 1 points at most, each the highest of its part of the time; no value of a cluster is in a
path but as a number.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ottla.console.lag_history import EVERY_S, KEPT_S, Point

SPANS_S = (300.0, 900.0, 1800.0, KEPT_S)
"""So much time is shown: the first one that has all points."""
SIDE = 1000
"""Width and height, in units of its own: the page stretches it."""
COLUMNS = 250
TABLE_ROWS = 12
TOPS = (1, 2, 4, 6, 10)
"""The scale ends at one of these times a power of ten: half of it is a whole number, too."""
LEAST_TOP = 2
TOTAL = "total"


class Line(NamedTuple):
    """One line. `kind` is its class in the style sheet; `topic` is None for the total."""

    kind: str
    topic: str | None
    path: str
    now: int | None


class Row(NamedTuple):
    """The highest lag of each line in one part of the time; None where nothing is known."""

    begins: str
    lags: tuple[int | None, ...]


class Picture(NamedTuple):
    """What a template draws. `times` stand below it, `scale` beside it, from above."""

    lines: list[Line]
    scale: tuple[int, int, int]
    times: tuple[str, str, str]
    minutes: int
    row_s: float
    rows: list[Row]
    now: int
    least: int
    most: int
    gaps: int


def draw(
    points: Sequence[Point],
    topics: Sequence[str | None],
    now_s: float,
    clock: Callable[[float], str],
) -> Picture | None:
    """Return the picture of points until now, None if there are none; `clock` writes a moment."""
    # In steps, so that the picture is another one no more often than there are points.
    end_s = math.ceil(now_s / EVERY_S) * EVERY_S
    points = [p for p in points if end_s - KEPT_S <= p.at_s <= end_s]
    if not points:
        return None
    span_s = next(s for s in SPANS_S if points[0].at_s >= end_s - s)
    begin_s = end_s - span_s
    named = sorted(
        ((line, name) for line, name in enumerate(topics) if name is not None),
        key=lambda item: item[1],
    )
    if len(named) == 1:
        named = []  # it would be the total's line
    lags: list[list[int | None]] = [[p.lag for p in points]]
    lags += [[p.topics[line] for p in points] for line, _ in named]
    most = max(p.lag for p in points)
    top = _top(max((lag for of_line in lags for lag in of_line if lag is not None), default=0))
    kinds = [TOTAL, *(f"topic-{line + 1}" for line, _ in named)]
    names = [None, *(name for _, name in named)]
    part_s = span_s / TABLE_ROWS
    return Picture(
        [
            Line(kind, name, _path(points, of_line, begin_s, span_s, top), of_line[-1])
            for kind, name, of_line in zip(kinds, names, lags, strict=True)
        ],
        (top, top // 2, 0),
        (clock(begin_s), clock(begin_s + span_s / 2), clock(end_s)),
        round(span_s / 60),
        part_s,
        [
            Row(clock(begin_s + part * part_s), _highest(points, lags, begin_s, part, part_s))
            for part in reversed(range(TABLE_ROWS))
        ],
        points[-1].lag,
        min(p.lag for p in points),
        most,
        sum(not p.joined for p in points[1:]),
    )


def _top(most: int) -> int:
    most = max(most, LEAST_TOP)
    power: int = 10 ** max(0, len(str(most)) - 1)
    return next(top * power for top in TOPS if most <= top * power)


def _path(
    points: Sequence[Point], lags: Sequence[int | None], begin_s: float, span_s: float, top: int
) -> str:
    parts = []
    for part in _unbroken(points, lags):
        columns: dict[int, tuple[float, int]] = {}
        for at_s, lag in part:
            column = int((at_s - begin_s) / span_s * COLUMNS)
            known = columns.get(column)
            if known is None or lag >= known[1]:
                columns[column] = (at_s, lag)
        spots = [
            f"{round((at_s - begin_s) / span_s * SIDE)} {SIDE - round(lag / top * SIDE)}"
            for at_s, lag in columns.values()
        ]
        parts.append(f"M{'L'.join(spots)}" + ("h0" if len(spots) == 1 else ""))  # h0: a dot
    return "".join(parts)


def _unbroken(
    points: Sequence[Point], lags: Sequence[int | None]
) -> Iterator[list[tuple[float, int]]]:
    part: list[tuple[float, int]] = []
    for point, lag in zip(points, lags, strict=True):
        if part and (lag is None or not point.joined):
            yield part
            part = []
        if lag is not None:
            part.append((point.at_s, lag))
    if part:
        yield part


def _highest(
    points: Sequence[Point],
    lags: Sequence[Sequence[int | None]],
    begin_s: float,
    part: int,
    part_s: float,
) -> tuple[int | None, ...]:
    inside = [
        index
        for index, p in enumerate(points)
        if part == min(TABLE_ROWS - 1, int((p.at_s - begin_s) / part_s))
    ]
    return tuple(
        max((lag for i in inside if (lag := of_line[i]) is not None), default=None)
        for of_line in lags
    )
