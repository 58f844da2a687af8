"""The picture of lag: lines in its bounds, broken where nobody looked, and a table that agrees."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.lag_history import (
    COLUMNS,
    LARGEST,
    MOST_TOPICS,
    SIDE,
    SPANS_S,
    TABLE_ROWS,
    Point,
    draw,
)

NOW = 1_000_000.0
NO_TOPICS = (None,) * MOST_TOPICS


def point(before_s, lag, joined=True, topics=NO_TOPICS):
    return Point(NOW - before_s, joined, True, lag, 0, lag, topics)


def picture(*points, topics=NO_TOPICS, now_s=NOW):
    return draw(points, topics, now_s, lambda at_s: f"{NOW - at_s:g}")


def spots(path):
    """Return the lines of a path as lists of (x, y)."""
    return [
        [tuple(map(int, spot.split())) for spot in part.removesuffix("h0").split("L")]
        for part in path.split("M")[1:]
    ]


def test_a_line_and_its_scale():
    found = picture(point(300, 0), point(150, 50), point(0, 100))
    (line,) = found.lines
    assert (line.kind, line.topic, line.now) == ("total", None, 100)
    assert spots(line.path) == [[(0, 1000), (500, 500), (1000, 0)]]
    assert found.scale == (100, 50, 0)
    assert found.times == ("300", "150", "0")
    assert (found.now, found.least, found.most, found.gaps) == (100, 0, 100, 0)
    assert picture() is None
    assert picture(point(4000, 1)) is None


@pytest.mark.parametrize(
    ("most", "top"),
    [(0, 2), (1, 2), (3, 4), (5, 6), (7, 10), (10, 10), (11, 20), (61, 100), (1001, 2000),
     (LARGEST, 10**19)],
)  # fmt: skip
def test_the_scale_ends_at_a_round_number(most, top):
    assert picture(point(0, most)).scale == (top, top // 2, 0)


def test_a_gap_is_no_line_and_a_point_alone_is_a_dot():
    found = picture(
        point(290, 1), point(280, 2), point(100, 3, joined=False), point(50, 4, joined=False),
        point(40, 2),
    )  # fmt: skip
    (line,) = found.lines
    first, second, third = spots(line.path)
    assert (len(first), len(second), len(third)) == (2, 1, 2)
    assert re.search(r"M\d+ 250h0M", line.path), "a dot"
    assert found.gaps == 2
    assert found.rows[-1].lags == (2,)
    assert [row.lags for row in found.rows].count((None,)) == TABLE_ROWS - 3


@pytest.mark.parametrize("span_s", SPANS_S)
def test_so_much_time_as_there_are_points_of(span_s):
    found = picture(point(span_s - 1, 1), point(0, 1))
    assert found.minutes == span_s / 60
    (line,) = found.lines
    assert spots(line.path)[0][0][0] < SIDE / 100
    assert spots(line.path)[0][-1][0] == SIDE


def test_lines_of_topics_where_there_are_several():
    both = picture(
        point(10, 5, topics=(2, None, 3, None, None)),
        point(5, 5, topics=(None, None, 3, None, None)),
        point(0, 9, topics=(4, None, 5, None, None)), topics=("a", None, "b", None, None),
    )  # fmt: skip
    assert [(line.kind, line.topic, line.now) for line in both.lines] == [
        ("total", None, 9), ("topic-1", "a", 4), ("topic-3", "b", 5),
    ]  # fmt: skip
    assert [len(spots(line.path)) for line in both.lines] == [1, 2, 1]
    assert both.rows[0].lags == (9, 4, 5)
    one = picture(point(0, 5, topics=(5, *NO_TOPICS[1:])), topics=("a", *NO_TOPICS[1:]))
    assert [line.kind for line in one.lines] == ["total"], "it would be the same line twice"


def test_it_is_the_same_picture_until_there_may_be_a_point():
    points = [point(20, 1), point(10, 2)]
    assert picture(*points, now_s=NOW + 0.1) == picture(*points, now_s=NOW + 5)
    assert picture(*points, now_s=NOW + 5.1) != picture(*points, now_s=NOW + 5)


def test_a_peak_of_a_moment_is_seen_in_an_hour():
    points = [point(3600 - 5 * n, 1000 if n == 333 else 1) for n in range(721)]
    found = picture(*points)
    (line,) = found.lines
    (part,) = spots(line.path)
    assert len(part) <= COLUMNS + 1
    assert [y for _, y in part].count(0) == 1
    assert [row.lags for row in found.rows].count((1000,)) == 1
    assert len(line.path) < 12_000


@given(
    st.lists(st.tuples(st.integers(1, 900), st.booleans(), st.integers(0, LARGEST)), max_size=60)
)
def test_whatever_there_is_lies_in_the_picture(steps):
    at, points = 0.0, []
    for step, is_joined, lag in steps:
        at += step
        points.append(point(-at, lag, joined=is_joined))
    rng = random.Random(7)
    found = picture(*points, now_s=NOW + at + rng.random() * 10)
    if not points:
        assert found is None
        return
    (line,) = found.lines
    assert re.fullmatch(r"(M\d+ \d+((L\d+ \d+)+|h0)?)+", line.path)
    for part in spots(line.path):
        assert all(0 <= x <= SIDE and 0 <= y <= SIDE for x, y in part)
        assert [x for x, _ in part] == sorted(x for x, _ in part)
    seen = [p for p in points if p.at_s >= NOW + at + 10 - 3600]
    assert found.most >= max((p.lag for p in seen), default=0)
    assert max(row.lags[0] or 0 for row in found.rows) == found.most
