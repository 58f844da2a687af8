"""A task: the records of ranges of offsets, as Arrow batches.

Invariants: every offset of the range is read once or reported as skipped; memory is bounded by the
fetch size and the Arrow batch size, whatever the range (docs/PIPELINES.md has the figure);
the
connections of a task that read everything are lent to the next one of its worker.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.pipelines.record_arrow import ArrowDecoder
from ottla.pipelines.source.cluster import lent
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
    return scan_all(options, [wanted], columns)


def scan_all(
    options: SourceOptions, ranges: Iterable[OffsetRange], columns: Sequence[str]
) -> "Iterator[pa.RecordBatch]":
    """Yield the records of ranges, one after the other; OttlaError if they cannot be had."""
    with lent(options) as cluster:
        for wanted in ranges:
            decoder = ArrowDecoder(wanted.topic, wanted.partition, columns)
            for fetched in PartitionFetcher(cluster, wanted):
                aborted = Aborted(fetched.aborted) if options.read_committed else None
                yield from decoder.decode(
                    fetched.records, first=fetched.first, end=wanted.end, aborted=aborted
                )
