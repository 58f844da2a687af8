"""One replica as its files have it, and what is known of its partition besides.

Pure: no files are read here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ottla.admin.replica_files.summary import MASK, Facts
from ottla.model.ids import TopicPartition


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
    def cells(self) -> dict[int, int]:
        """The digest of each cell that has a batch."""
        found: dict[int, int] = {}
        for segment in self.segments:
            for number, cell in segment.facts.cells.items():
                found[number] = (found.get(number, 0) + cell.digest) & MASK
        return found


@dataclass(frozen=True)
class Truth:
    """What a running cluster says of a partition."""

    high_watermark: int | None = None
    leader: int = -1
    isr: frozenset[int] = field(default_factory=frozenset)
    replicas: frozenset[int] = field(default_factory=frozenset)
    topic_id: str | None = None
