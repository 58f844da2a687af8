"""The lag of groups over time: one number of each look, for an hour, while any browser looks.

Pure: times come in. Invariants: a point is at least EVERY_S after the one before; points older than
KEPT_S, groups beyond MOST_GROUPS and topics beyond MOST_TOPICS of a group are forgotten, so all of
it takes no more than MOST_BYTES; a point says whether anyone looked since the one before, and
whether its offsets can be compared with it.
"""

from array import array
from collections import OrderedDict
from collections.abc import Mapping
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
