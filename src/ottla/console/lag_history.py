"""The lag of groups over time, for an hour, while any browser looks; its trend and its picture.

Pure: times come in. Invariants: a point is at least EVERY_S after the one before; points older than
KEPT_S, groups beyond MOST_GROUPS and topics beyond MOST_TOPICS of a group are forgotten, so all of
it takes no more than MOST_BYTES; a point says whether anyone looked since the one before, and
whether its offsets can be compared with it.
"""

import math
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.admin.top.group_progress import Progress

EVERY_S = 5.0
KEPT_S = 3600.0
MOST_GROUPS = 500
MOST_TOPICS = 5
"""Of a group: those with the highest peaks."""
LONGEST_NAME = 1000
"""A group with a longer name has no page."""
MOST_BYTES = 33_554_432
"""What all points take at most: each is WIDTH numbers of 8 bytes."""
GAP_S = 15.0
"""Between points of a group that no look has, only its page."""

POINTS = int(KEPT_S / EVERY_S)
AT, LAG, COMMITTED, END, TOPICS = range(5)
WIDTH = TOPICS + MOST_TOPICS
JOINED, SAME = 1, 2
FLAG_BITS = 2
UNKNOWN = -1
LARGEST = (1 << 63) - 1


class Point(NamedTuple):
    """A group at one moment; `topics` is the lag of each topic that has a line, as far as known."""

    at_s: float
    joined: bool
    """Whether the cluster was watched since the point before."""
    same: bool
    """Whether it sums the same partitions as the point before, and no offset was moved back."""
    lag: int
    committed: int
    end: int
    topics: tuple[int | None, ...]


class _Series:
    """The points of one group, WIDTH numbers each, the oldest first."""

    __slots__ = ("names", "partitions", "rows", "watched")

    def __init__(self) -> None:
        self.rows = array("q")
        self.names: list[str | None] = [None] * MOST_TOPICS
        self.partitions = 0
        self.watched = False

    def at_ms(self, index: int) -> int:
        return self.rows[index * WIDTH + AT] >> FLAG_BITS

    def __len__(self) -> int:
        return len(self.rows) // WIDTH


class LagHistory:
    """What was seen of all groups."""

    def __init__(self) -> None:
        self._series: OrderedDict[str, _Series] = OrderedDict()
        """The one whose newest point is the oldest first."""
        self._looked: set[str] = set()

    def __len__(self) -> int:
        return len(self._series)

    def take(self, groups: Mapping[str, Progress], now_s: float) -> None:
        """Take what one look saw of the groups whose lag is known."""
        for name in self._looked - groups.keys():
            if name in self._series:
                self._series[name].watched = False
        self._looked = set(groups)
        for name, progress in groups.items():
            self.add(name, progress)
        while self._series:
            oldest = next(iter(self._series.values()))
            if oldest.at_ms(len(oldest) - 1) >= (now_s - KEPT_S) * 1000:
                break
            self._series.popitem(last=False)

    def add(self, name: str, progress: Progress) -> None:
        """Take what was seen of one group; nothing is kept so soon after the point before."""
        if len(name) > LONGEST_NAME:
            return
        series = self._series.setdefault(name, _Series())
        at_ms = round(progress.at_s * 1000)
        flags = 0
        if len(series):
            since_ms = at_ms - series.at_ms(len(series) - 1)
            if since_ms < EVERY_S * 1000:
                return
            in_looks = name in self._looked
            if series.watched and (in_looks or since_ms <= GAP_S * 1000):
                flags |= JOINED
            last = series.rows[-WIDTH:]
            forward = progress.committed >= last[COMMITTED] and progress.end >= last[END]
            if series.partitions == progress.partitions and forward:
                flags |= SAME
        _name_topics(series, progress.topics)
        lags = [UNKNOWN if n is None else progress.topics.get(n, UNKNOWN) for n in series.names]
        numbers = (progress.lag, progress.committed, progress.end, *lags)
        series.rows.append(at_ms << FLAG_BITS | flags)
        series.rows.extend(max(UNKNOWN, min(number, LARGEST)) for number in numbers)
        series.partitions, series.watched = progress.partitions, True
        old = max(0, len(series) - POINTS)
        while series.at_ms(old) < at_ms - KEPT_S * 1000:
            old += 1
        del series.rows[: old * WIDTH]
        self._series.move_to_end(name)
        if len(self._series) > MOST_GROUPS:
            self._series.popitem(last=False)

    def interrupt(self) -> None:
        """Note that the cluster is not watched: what comes next does not follow on."""
        for series in self._series.values():
            series.watched = False

    def topics(self, name: str) -> tuple[str | None, ...]:
        """Return the topics of a group that have a line; None where there is none."""
        series = self._series.get(name)
        return (None,) * MOST_TOPICS if series is None else tuple(series.names)

    def points(self, name: str, since_s: float) -> list[Point]:
        """Return the points of a group from a moment on, the oldest first."""
        series = self._series.get(name)
        if series is None:
            return []
        first = len(series)
        while first and series.at_ms(first - 1) >= since_s * 1000:
            first -= 1
        return [_point(series, index) for index in range(first, len(series))]


def _point(series: _Series, index: int) -> Point:
    row = series.rows[index * WIDTH : (index + 1) * WIDTH]
    return Point(
        (row[AT] >> FLAG_BITS) / 1000,
        bool(row[AT] & JOINED),
        bool(row[AT] & SAME),
        row[LAG],
        row[COMMITTED],
        row[END],
        tuple(None if lag == UNKNOWN else lag for lag in row[TOPICS:]),
    )


def _name_topics(series: _Series, topics: Mapping[str, int]) -> None:
    """Give lines to topics without one: free ones, and those of topics with a lower peak."""
    without = sorted(topics.keys() - set(series.names), key=lambda name: (-topics[name], name))
    if not without:
        return
    peaks = [
        UNKNOWN if name is None else max(series.rows[TOPICS + line :: WIDTH], default=UNKNOWN)
        for line, name in enumerate(series.names)
    ]
    for name in without:
        line = peaks.index(min(peaks))
        if topics[name] <= peaks[line]:
            return
        for index in range(TOPICS + line, len(series.rows), WIDTH):
            series.rows[index] = UNKNOWN  # was another topic's
        series.names[line], peaks[line] = name, topics[name]


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
