"""Which offsets a task reads, and how many a micro-batch takes. Decides; touches nothing.

Invariants: the ranges of a plan cover exactly what was asked for and do not overlap; the same
offsets give the same ranges. Spark: `KafkaOffsetRangeCalculator` and
`KafkaMicroBatchStream.rateLimit`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from ottla.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of a partition of the topic that bears this id (zeros: unknown)."""

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def starting_at(self, offset: int) -> "OffsetRange":
        """Return the part of it from an offset on."""
        start = max(self.start, offset)
        return replace(self, start=start, end=max(start, self.end))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def divided(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Return ranges of at most `max_records` offsets, and about `min_partitions` of them.

    Empty ones are dropped. Each is divided in proportion to its part of all offsets.
    """
    wanted = [r for r in ranges if r.size]
    total = sum(r.size for r in wanted)
    found = []
    for one in wanted:
        parts = 1
        if max_records is not None:
            parts = -(-one.size // max_records)
        if min_partitions is not None and min_partitions > len(wanted):
            parts = max(parts, round(one.size / total * min_partitions))
        found += _parts(one, min(parts, one.size))
    return found


def _parts(one: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [one.start + one.size * n // count for n in range(count + 1)]
    return [replace(one, start=start, end=end) for start, end in pairwise(bounds)]


def gathered(ranges: Iterable[OffsetRange], most: int) -> list[tuple[OffsetRange, ...]]:
    """Return ranges that are neighbours together, as long as they have `most` offsets at most."""
    found: list[tuple[OffsetRange, ...]] = []
    size = 0
    for one in ranges:
        size += one.size
        if found and size <= most:
            found[-1] += (one,)
        else:
            found.append((one,))
            size = one.size
    return found


def limited(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Return ends that are at most `most` offsets after the starts in all, shared by backlog.

    Every partition with something to read gets at least one offset, so that none starves. One
    whose end lies before its start keeps its end.
    """
    backlog = {tp: end - starts[tp] for tp, end in ends.items() if end > starts[tp]}
    total = sum(backlog.values())
    if total <= most:
        return dict(ends)
    shares = {tp: max(1, most * size // total) for tp, size in backlog.items()}
    if sum(shares.values()) > most:  # shares below one were rounded up: one for each comes first
        left, more = max(0, most - len(backlog)), max(1, total - len(backlog))
        shares = {tp: 1 + left * (size - 1) // more for tp, size in backlog.items()}
    return {tp: starts[tp] + shares[tp] if tp in backlog else end for tp, end in ends.items()}
