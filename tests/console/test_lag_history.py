"""The history of lag: what is kept and how much of it, where it has gaps, and where it goes."""

import tracemalloc
from itertools import pairwise

import pytest

from ottla.admin.top.group_progress import Progress, progress_of
from ottla.client.groups import PartitionLag
from ottla.console.lag_history import (
    EVERY_S,
    GAP_S,
    KEPT_S,
    LARGEST,
    LONGEST_NAME,
    MOST_BYTES,
    MOST_GROUPS,
    MOST_TOPICS,
    POINTS,
    RATE_S,
    LagHistory,
    trend_of,
)

T0 = 1_000_000.0


def progress(at_s, lag=10, committed=100, end=None, partitions=1, topics=None):
    end = committed + lag if end is None else end
    return Progress(at_s, lag, committed, end, partitions, {"t": lag} if topics is None else topics)


def lags(history, name="g", since_s=0.0):
    return [point.lag for point in history.points(name, since_s)]


def joined(history, name="g"):
    return [point.joined for point in history.points(name, 0.0)]


# --- what one look says -----------------------------------------------------------------------


def row(topic, partition, committed, end, lag):
    return PartitionLag(topic, partition, committed, end, lag, None, None, None)


def test_a_look_is_summed_over_the_partitions_whose_lag_is_known():
    rows = [row("a", 0, 5, 9, 4), row("a", 1, 7, 7, 0), row("b", 0, None, 100, None)]
    found = progress_of([*rows, row("b", 1, 1, 3, 2), row("c", 0, 4, None, None)], T0)
    assert found[:4] == (T0, 6, 13, 19)
    assert found.topics == {"a": 4, "b": 2}
    assert progress_of(rows, T0).partitions != found.partitions
    assert progress_of([*rows, row("b", 1, 2, 3, 1)], T0).partitions == found.partitions
    assert progress_of([row("b", 0, None, 100, None)], T0) is None
    assert progress_of([], T0) is None


# --- what is kept -----------------------------------------------------------------------------


def test_points_have_a_least_distance_and_an_age():
    history = LagHistory()
    for number in range(3000):
        history.add("g", progress(T0 + number * 2.0, lag=number))
    points = history.points("g", 0.0)
    assert points[-1].at_s == T0 + 5994.0
    assert points[0].at_s >= points[-1].at_s - KEPT_S
    assert {b.at_s - a.at_s for a, b in pairwise(points)} == {6.0}
    assert len(points) == KEPT_S // 6 + 1
    assert lags(history, since_s=T0 + 5982.0) == [2991, 2994, 2997]
    for number in range(POINTS + 10):
        history.add("h", progress(T0 + number * EVERY_S))
    assert len(history.points("h", 0.0)) == POINTS
    history.add("h", progress(T0))
    assert len(history.points("h", 0.0)) == POINTS, "an older one comes too late"


def test_groups_are_bounded_and_the_ones_not_seen_any_more_go_first():
    history = LagHistory()
    for number in range(MOST_GROUPS):
        history.add(f"g{number}", progress(T0 + number))
    history.add("g0", progress(T0 + 600))
    history.add("new", progress(T0 + 601))
    assert len(history) == MOST_GROUPS
    assert lags(history, "g0") == [10, 10]
    assert lags(history, "g1") == []
    assert lags(history, "new") == [10]
    history.add("x" * (LONGEST_NAME + 1), progress(T0 + 602))
    assert lags(history, "x" * (LONGEST_NAME + 1)) == []
    history.take({"new": progress(T0 + KEPT_S + 610)}, T0 + KEPT_S + 610)
    assert len(history) == 1, "the others have no point of the last hour"


def test_all_of_it_takes_no_more_than_its_bound():
    """The worst there may be: all points, all topics, names with 4 bytes a character.

    A part of the groups is measured: tracemalloc takes its time, and each group takes the same.
    """
    history = LagHistory()
    part = MOST_GROUPS // 25
    tracemalloc.start()
    try:
        for number in range(part):
            name = f"{number:04}" + "\U0001f40d" * (LONGEST_NAME - 4)
            topics = {f"{number} {t} ".ljust(249, "x"): LARGEST for t in range(MOST_TOPICS)}
            for at in range(POINTS + 20):
                found = progress(T0 + at * EVERY_S, LARGEST, LARGEST, LARGEST, topics=topics)
                history.add(name, found)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(history) == part
    assert len(history.points(name, 0.0)) == POINTS
    assert 0.8 * MOST_BYTES < size * MOST_GROUPS / part <= MOST_BYTES


def test_numbers_that_no_cluster_has_are_cut():
    history = LagHistory()
    history.add("g", progress(T0, lag=1 << 70, committed=1 << 80, end=-(1 << 90)))
    (point,) = history.points("g", 0.0)
    assert (point.lag, point.committed, point.end) == (LARGEST, LARGEST, -1)


def test_the_topics_with_the_highest_peaks_have_lines():
    history = LagHistory()
    few = {f"t{n}": n for n in range(4)}
    history.add("g", progress(T0, topics=few))
    assert {name for name in history.topics("g") if name} == set(few)
    many = {f"t{n}": n for n in range(10)}
    history.add("g", progress(T0 + 10, topics=many))
    assert set(history.topics("g")) == {"t5", "t6", "t7", "t8", "t9"}
    history.add("g", progress(T0 + 20, topics={**many, "t5": 0, "t4": 5}))
    assert set(history.topics("g")) == {"t5", "t6", "t7", "t8", "t9"}, "no higher than t5 was"
    history.add("g", progress(T0 + 30, topics={**many, "t1": 100}))
    assert set(history.topics("g")) == {"t1", "t6", "t7", "t8", "t9"}
    line = history.topics("g").index("t1")
    found = [point.topics[line] for point in history.points("g", 0.0)]
    assert found == [None, None, None, 100], "what t5 had is not t1's"
    line = history.topics("g").index("t9")
    assert [point.topics[line] for point in history.points("g", 0.0)] == [None, 9, 9, 9]
    assert history.topics("missing") == (None,) * MOST_TOPICS


# --- gaps -------------------------------------------------------------------------------------


def test_points_are_joined_as_long_as_looks_follow_each_other():
    history = LagHistory()
    history.take({"g": progress(T0), "h": progress(T0)}, T0)
    history.take({"g": progress(T0 + 60)}, T0 + 60)  # of a cluster where a look takes long
    history.take({"g": progress(T0 + 120), "h": progress(T0 + 120)}, T0 + 120)
    assert joined(history) == [False, True, True]
    assert joined(history, "h") == [False, False], "one look did not have it"
    history.interrupt()
    history.take({"g": progress(T0 + 126)}, T0 + 126)
    history.take({}, T0 + 132)
    history.take({"g": progress(T0 + 138)}, T0 + 138)
    assert joined(history) == [False, True, True, False, False]


def test_a_group_that_no_look_has_is_joined_while_its_page_is_open():
    history = LagHistory()
    for at_s in (T0, T0 + GAP_S, T0 + 2 * GAP_S + 0.001):
        history.add("g", progress(at_s))
    assert joined(history) == [False, True, False]


# --- where it goes ----------------------------------------------------------------------------


def trend(*rows, partitions=1):
    """Return the trend of points of (seconds, committed, end)."""
    history = LagHistory()
    for at_s, committed, end in rows:
        history.add("g", progress(T0 + at_s, max(0, end - committed), committed, end, partitions))
    return trend_of(history.points("g", 0.0))


def steady(consumed, produced, lag, seconds=60, every=6):
    return [
        (at, round(at * consumed), round(at * produced + lag - seconds * (produced - consumed)))
        for at in range(0, seconds + 1, every)
    ]


@pytest.mark.parametrize(
    ("consumed", "produced", "lag", "text"),
    [
        (100, 0, 500, "caught up in 5 s"),
        (100, 50, 30_000, "caught up in 10 min"),
        (100, 50, 50 * 7200, "caught up in 2 h"),
        (10, 0, 10_000_000, "caught up in more than 48 h"),
        (0, 1234, 100_000, "grows by 1,234/s"),
        (10, 14.5, 100_000, "grows by 4.5/s"),
        (0, 0.05, 100_000, "grows by less than 0.1/s"),
        (0, 0, 100, "stays"),
        (100, 100, 50, "stays"),
        (100, 105, 5_000, "stays"),  # as if a commit had not come yet
        (100, 95, 5_000, "stays"),
        (100, 120, 5_000, "grows by 20/s"),
        (100, 100, 0, "no lag"),
    ],
)
def test_the_trend_of_steady_rates(consumed, produced, lag, text):
    found = trend(*steady(consumed, produced, lag))
    assert found.consumed == pytest.approx(consumed)
    assert found.produced == pytest.approx(produced)
    assert found.text == text


def test_rates_need_two_points_that_can_be_compared():
    assert trend() is None
    assert trend((0, 0, 10)) is None
    assert trend((0, 0, 10), (6, 6, 10)) is None, "too short"
    assert trend((0, 0, 10), (60, 60, 80))[:2] == (1.0, 70 / 60)
    assert trend((0, 0, 10), (RATE_S + 1, 60, 80)) is None, "too long ago"
    old = [(0, 0, 0), (60, 6000, 6000)]
    new = [(RATE_S + at, 6000 + at, 6000 + 2 * at) for at in (30, 60, 90, 120)]
    assert trend(*old, *new)[:2] == (1.0, 2.0), "what was before does not count"


def test_offsets_that_were_moved_back_and_other_partitions_begin_anew():
    rows = [(0, 1000, 1000), (12, 1012, 1012), (24, 0, 1024)]
    assert trend(*rows) is None
    found = trend(*rows, (36, 120, 1036), (48, 240, 1048))
    assert found[:2] == (10.0, 1.0)
    history = LagHistory()
    history.add("g", progress(T0, 0, 100, 100, partitions=1))
    history.add("g", progress(T0 + 30, 0, 5000, 5000, partitions=2))
    assert trend_of(history.points("g", 0.0)) is None
    history.add("g", progress(T0 + 60, 0, 5030, 5060, partitions=2))
    assert trend_of(history.points("g", 0.0))[:2] == (1.0, 2.0)
