"""Filters that spare reading: on topic, partition, offset, and times from below.

Invariants: a filter that is not given back to Spark is kept exactly; one that is given back may
have narrowed what is read, never beyond what it lets through. Spark: `SupportsPushDownFilters`.
"""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import datasource as spark

from ottla.pipelines.source.ranges import OffsetRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = {"topic", "partition", "offset", "timestamp", "timestampType"}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    spark.EqualTo: operator.eq,
    spark.EqualNullSafe: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
    spark.In: lambda found, values: found in values,
}


@dataclass
class Pushed:
    """What was pushed down: all of it has to hold."""

    topics: list[tuple[type, bool, Any]] = field(default_factory=list)
    partitions: list[tuple[type, bool, Any]] = field(default_factory=list)
    first_offset: int = 0
    end_offset: int | None = None
    earliest_ms: int | None = None

    def push(self, filters: Iterable[spark.Filter]) -> list[spark.Filter]:
        """Keep what can be kept; return the filters that Spark has to apply as well."""
        return [one for one in filters if not self._keeps(one)]

    def reads(self, topic: str, partition: int) -> bool:
        """Return whether a partition can have rows that pass."""
        return all(_holds(test, topic) for test in self.topics) and all(
            _holds(test, partition) for test in self.partitions
        )

    def narrowed(self, one: OffsetRange) -> OffsetRange:
        """Return the part of a range that can have rows that pass."""
        start = max(one.start, self.first_offset)
        end = one.end if self.end_offset is None else min(one.end, self.end_offset)
        return OffsetRange(one.topic, one.topic_id, one.partition, start, max(start, end))

    def _keeps(self, one: spark.Filter) -> bool:
        """Take a filter in; tell whether Spark may forget it."""
        negated = isinstance(one, spark.Not)
        inner: Any = one.child if isinstance(one, spark.Not) else one
        column = ".".join(getattr(inner, "attribute", ()))
        if isinstance(inner, spark.IsNotNull):
            return column in _NEVER_NULL and not negated
        if type(inner) not in _COMPARISONS or not _comparable(inner, column):
            return False
        test = (type(inner), negated, inner.value)
        if column == "topic":
            self.topics.append(test)
            return True
        if column == "partition":
            self.partitions.append(test)
            return True
        if column == "offset":
            return not negated and self._bound_offsets(type(inner), inner.value)
        if not negated:
            self._bound_times(type(inner), inner.value)
        return False

    def _bound_offsets(self, kind: type, value: Any) -> bool:
        if kind is spark.In:  # narrows, but does not say all
            self._between(min(value), max(value) + 1)
            return False
        if kind in (spark.EqualTo, spark.EqualNullSafe):
            self._between(value, value + 1)
        elif kind is spark.GreaterThan:
            self._between(value + 1, None)
        elif kind is spark.GreaterThanOrEqual:
            self._between(value, None)
        elif kind is spark.LessThan:
            self._between(0, value)
        else:
            self._between(0, value + 1)
        return True

    def _between(self, first: int, end: int | None) -> None:
        self.first_offset = max(self.first_offset, first)
        if end is not None:
            self.end_offset = end if self.end_offset is None else min(self.end_offset, end)

    def _bound_times(self, kind: type, value: Any) -> None:
        """Spare what lies before the first late record: times need not rise with offsets."""
        if kind in (spark.LessThan, spark.LessThanOrEqual):
            return
        least = min(value) if kind is spark.In else value
        if least.tzinfo is None:  # a TIMESTAMP_NTZ compares by the session's zone: not ours to know
            return
        milliseconds = (least - _EPOCH) // timedelta(milliseconds=1)
        self.earliest_ms = max(milliseconds, self.earliest_ms or 0)


def _comparable(one: Any, column: str) -> bool:
    """Return whether a filter compares with values of the column's own type."""
    values = one.value if isinstance(one, spark.In) else (one.value,)
    types = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
    return column in types and bool(values) and all(type(v) is types[column] for v in values)


def _holds(test: tuple[type, bool, Any], found: Any) -> bool:
    kind, negated, value = test
    return _COMPARISONS[kind](found, value) != negated
