"""A task: the records of one range of offsets, as Arrow batches.

Invariants: every offset of the range is read once or reported as skipped; memory is bounded by the
fetch size and the Arrow batch size, whatever the range (docs/PIPELINES.md has the figure);
connections end with the iterator.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.pipelines.record_arrow import ArrowDecoder
from ottla.pipelines.source.cluster import Cluster
from ottla.pipelines.source.fetching import PartitionFetcher
from ottla.pipelines.source.options import SourceOptions
from ottla.pipelines.source.ranges import OffsetRange
from ottla.wire.records import Aborted

if TYPE_CHECKING:
    import pyarrow as pa


def scan(
    options: SourceOptions, wanted: OffsetRange, columns: Sequence[str]
) -> "Iterator[pa.RecordBatch]":
    """Yield the records of a range; OttlaError if they cannot be had."""
    decoder = ArrowDecoder(wanted.topic, wanted.partition, columns)
    with Cluster(options) as cluster:
        for fetched in PartitionFetcher(cluster, wanted):
            aborted = Aborted(fetched.aborted) if options.read_committed else None
            yield from decoder.decode(
                fetched.records, first=fetched.first, end=wanted.end, aborted=aborted
            )
