"""Filters pushed down: what Spark is told to forget is kept exactly, the rest only narrows."""

import pickle
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

from ottla.pipelines.source.filters import Pushed
from ottla.pipelines.source.ranges import OffsetRange

COMPARED = {
    ds.EqualTo: lambda a, b: a == b,
    ds.EqualNullSafe: lambda a, b: a == b,
    ds.GreaterThan: lambda a, b: a > b,
    ds.GreaterThanOrEqual: lambda a, b: a >= b,
    ds.LessThan: lambda a, b: a < b,
    ds.LessThanOrEqual: lambda a, b: a <= b,
    ds.In: lambda a, b: a in b,
}
TIME = datetime(2026, 1, 1, tzinfo=UTC)
VALUES = {
    "topic": st.sampled_from(["a", "b", "c"]),
    "partition": st.integers(0, 3),
    "offset": st.integers(0, 12),
    "timestamp": st.integers(0, 10).map(lambda n: TIME + timedelta(microseconds=500 * n)),
}


def passes(one, row):
    negated = isinstance(one, ds.Not)
    inner = one.child if negated else one
    return COMPARED[type(inner)](row[inner.attribute[0]], inner.value) != negated


@st.composite
def filters(draw):
    column = draw(st.sampled_from(sorted(VALUES)))
    kind = draw(st.sampled_from(list(COMPARED)))
    value = draw(VALUES[column])
    if kind is ds.In:
        value = (value, draw(VALUES[column]))
    one = kind((column,), value)
    return ds.Not(one) if draw(st.booleans()) else one


def rows():
    # Times rise with offsets by 400 us, but for one that is late and one that is early.
    for topic in "abc":
        for partition in range(4):
            for offset in range(12):
                step = {4: 9, 9: 2}.get(offset, offset)
                # Records have milliseconds.
                at = TIME + timedelta(milliseconds=step * 400 // 1000)
                yield {"topic": topic, "partition": partition, "offset": offset, "timestamp": at}


def scanned(pushed):
    """Return what a reader with these filters gives, as BatchReader applies them."""
    for row in rows():
        whole = OffsetRange(row["topic"], bytes(16), row["partition"], 0, 12)
        if not pushed.reads(whole.topic, whole.partition):
            continue
        part = pushed.narrowed(whole)
        if pushed.earliest_ms is not None:
            bound = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=pushed.earliest_ms)
            late = [r["offset"] for r in rows() if r["timestamp"] >= bound]
            part = part.starting_at(min(late, default=part.end))
        if part.start <= row["offset"] < part.end:
            yield row


@settings(max_examples=400, deadline=None)
@given(st.lists(filters(), max_size=3))
def test_what_is_read_and_then_filtered_by_spark_is_what_passes(found):
    pushed = Pushed()
    left = pushed.push(found)
    assert all(any(one is kept for kept in found) for one in left)
    given_to_spark = [row for row in scanned(pushed) if all(passes(one, row) for one in left)]
    assert given_to_spark == [row for row in rows() if all(passes(one, row) for one in found)]


@pytest.mark.parametrize(
    "one",
    [
        ds.EqualTo(("value",), b"x"),
        ds.EqualTo(("topic",), 5),
        ds.GreaterThan(("offset",), 1.5),
        ds.EqualTo(("offset",), True),
        ds.IsNotNull(("key",)),
        ds.IsNull(("offset",)),
        ds.StringStartsWith(("topic",), "a"),
        ds.GreaterThan(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001 - that is the case
        ds.In(("offset",), ()),
    ],
)
def test_what_is_not_understood_is_given_back_and_changes_nothing(one):
    pushed = Pushed()
    assert pushed.push([one]) == [one]
    assert pushed == Pushed()


def test_partition_topic_and_offset_comparisons_are_kept():
    asked = [
        ds.EqualTo(("topic",), "a"),
        ds.IsNotNull(("topic",)),
        ds.In(("partition",), (1, 2)),
        ds.GreaterThanOrEqual(("offset",), 5),
        ds.LessThan(("offset",), 9),
    ]
    pushed = Pushed()
    assert pushed.push(asked) == []
    assert pickle.loads(pickle.dumps(pushed)) == pushed
    assert pushed.narrowed(OffsetRange("a", bytes(16), 1, 0, 100)).size == 4
