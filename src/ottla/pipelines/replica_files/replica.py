"""One replica as its files have it, and what is known of its partition besides.

Pure: no files are read here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ottla.model.ids import TopicPartition
from ottla.pipelines.segments.summary import Facts, merged


class SegmentFacts(NamedTuple):
    """A segment of a replica: the base offset in its name, its file and size, what it holds."""

    base_offset: int
    path: str
    size: int
    facts: Facts


@dataclass(frozen=True)
class Replica:
    """A replica. Offsets are None where no checkpoint has them.

    `high_watermark`, `log_start`, `cleaned`: by the checkpoints of its log dir; `checkpoint`:
    (epoch, start offset) of leader-epoch-checkpoint; `topic_id`: of partition.metadata.
    """

    tp: TopicPartition
    broker: int | None
    folder: str
    segments: Sequence[SegmentFacts] = ()
    topic_id: str | None = None
    checkpoint: Sequence[tuple[int, int]] | None = None
    checkpoint_problem: str = ""
    high_watermark: int | None = None
    log_start: int | None = None
    cleaned: int | None = None

    def __str__(self) -> str:
        return self.folder if self.broker is None else f"broker {self.broker}"

    @property
    def known_broker(self) -> int:
        return -1 if self.broker is None else self.broker

    @cached_property
    def start(self) -> int:
        """The first offset that the log has."""
        first = self.segments[0].base_offset if self.segments else 0
        return max(first, self.log_start or 0)

    @cached_property
    def end(self) -> int:
        """The offset after the last one that a batch has."""
        ends = [s.facts.end_offset for s in self.segments if s.facts.batches]
        names = [s.base_offset for s in self.segments[-1:]]
        return max([0, *ends, *names])

    @cached_property
    def holes_upto(self) -> int:
        """Below this offset the cleaner was in this log."""
        return max([self.cleaned or 0, *(s.facts.holes_upto for s in self.segments)])

    @cached_property
    def cells(self) -> tuple[Any, Any]:
        """Numbers of cells in order, and the digest of each."""
        cells = [np.frombuffer(s.facts.cells, np.int64) for s in self.segments]
        sums = [np.frombuffer(s.facts.sums, np.uint64) for s in self.segments]
        if not cells:
            return np.empty(0, np.int64), np.empty(0, np.uint64)
        found = np.concatenate(cells)
        numbers, digests, _ = merged(found, np.concatenate(sums), np.zeros(len(found), np.int64))
        return numbers, digests

    def places_of(self, cell: int) -> list[tuple[SegmentFacts, int]]:
        """Return the segments with batches of a cell, and where the first of them lies."""
        found = []
        for segment in self.segments:
            cells = np.frombuffer(segment.facts.cells, np.int64)
            at = int(np.searchsorted(cells, cell))
            if at < len(cells) and cells[at] == cell:
                found.append((segment, int(np.frombuffer(segment.facts.places, np.int64)[at])))
        return found


@dataclass(frozen=True)
class Truth:
    """What a running cluster says of a partition."""

    high_watermark: int | None = None
    leader: int = -1
    isr: frozenset[int] = field(default_factory=frozenset)
    replicas: frozenset[int] = field(default_factory=frozenset)
    topic_id: str | None = None


class Batch(NamedTuple):
    """A batch as far as replicas have to agree on it, then where it lies."""

    base: int
    last: int
    epoch: int
    size: int
    crc: int
    computed: int
    position: int
    path: str

    @property
    def content(self) -> tuple[int, int, int, int]:
        """All that replicas agree on but the epoch."""
        return self.last, self.size, self.crc, self.computed
