"""A batch read: planned once on the driver, then a task for each range of offsets.

Invariants: what is read is fixed when it is planned: later records and later leaders change
nothing. Spark: `KafkaRelation` and `KafkaBatch`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ottla.model.errors import ConfigError
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.filters import Pushed
from ottla.pipelines.source.options import Bound, SourceOptions
from ottla.pipelines.source.planning import edges, planned
from ottla.pipelines.source.ranges import OffsetRange, divided
from ottla.pipelines.source.scan import scan_all

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):  # type: ignore[misc]
    """What one task reads: ranges, one after the other; none for nothing at all."""

    def __init__(self, *ranges: OffsetRange) -> None:
        super().__init__(ranges)


class _PushFilters:
    """Spark's `pushFilters`, in a form that works whether or not pushdown is switched on.

    Where `spark.sql.python.filterPushdown.enabled` is false, which it is by default, Spark refuses
    a reader whose `pushFilters` is not the base class's own, going by `__func__`. No one calls it
    then, so it may as well look like the base class's.
    """

    def __init__(self, pushed: Pushed) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._pushed = pushed

    def __call__(self, filters: Iterable[Filter]) -> list[Filter]:
        return self._pushed.push(filters)


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Reads what the options name, from start to end."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        starting = options.starting or Bound(offset=EARLIEST)
        if starting.offset == LATEST or _names(starting, LATEST):
            raise ConfigError("option startingOffsets: a batch cannot start at latest")
        if options.max_offsets_per_trigger is not None:
            raise ConfigError("option maxOffsetsPerTrigger is for streams; leave it out")
        if options.min_offsets_per_trigger is not None:
            raise ConfigError("option minOffsetsPerTrigger is for streams; leave it out")
        self._options = options
        self._starting = starting
        self._columns = tuple(columns)
        self._pushed = Pushed()
        self.pushFilters = _PushFilters(self._pushed)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with Cluster(options) as cluster:
            topics = cluster.topics(options.subscription)
            ranges = planned(cluster, topics, self._starting, options.ending)
            ranges = self._narrowed(cluster, ranges)
        parts = divided(ranges, options.min_partitions, options.max_records_per_partition)
        # Of no partitions Spark would make one of its own.
        return [RangePartition(part) for part in parts] or [RangePartition()]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return scan_all(self._options, partition.value, self._columns)

    def _narrowed(self, cluster: Cluster, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Apply the filters that were pushed down."""
        pushed = self._pushed
        kept = [pushed.narrowed(r) for r in ranges if pushed.reads(r.topic, r.partition)]
        if pushed.earliest_ms is None:
            return kept
        found = edges(cluster, {r.tp: pushed.earliest_ms for r in kept})
        # Where no record is that late nothing is read.
        return [r.starting_at(found[r.tp] if found[r.tp] >= 0 else r.end) for r in kept]


def _names(bound: Bound, offset: int) -> bool:
    offsets = bound.offsets or {}
    return any(offset in inner.values() for inner in offsets.values())
