"""History: what the simulated clients tried, what they were told, and when.

Who may call: `clients` write it, `checkers` read it. Invariants: a write is noted before its
first byte leaves; an operation without an answer stays open, which means "perhaps"; values are
unique, so a record found in a log names the write it came from.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from ottla.model.ids import TopicPartition

GAP_S = 1.0
"""Shorter times without an acknowledged write are no unavailability worth counting."""


@dataclass(slots=True)
class Write:
    """One batch of one producer. `offset` is that of its first record once acknowledged."""

    process: str
    tp: TopicPartition
    values: tuple[bytes, ...]
    acks: int
    invoked_s: float
    number: int
    completed_s: float | None = None
    offset: int = -1
    failed: str | None = None
    """A final refusal that says nothing was appended; None while open or acknowledged."""

    abandoned: bool = False
    """The producer cannot learn the outcome any more: perhaps, for ever."""

    @property
    def acked(self) -> bool:
        return self.completed_s is not None and self.failed is None


@dataclass(slots=True)
class Read:
    """One record as one consumer was given it."""

    process: str
    tp: TopicPartition
    offset: int
    value: bytes
    at_s: float


@dataclass(slots=True)
class History:
    """Everything the clients did, in the order it happened."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Answers that no client should ever get."""

    frail: set[str] = field(default_factory=set)
    """Topics that may lose what they acknowledged: unclean elections are allowed there."""

    def invoke(
        self, process: str, tp: TopicPartition, values: tuple[bytes, ...], acks: int, now: float
    ) -> Write:
        """Note that a batch is about to be sent."""
        write = Write(process, tp, values, acks, now, len(self.writes))
        self.writes.append(write)
        return write

    def statistics(self) -> dict[str, int]:
        return {
            "writes": len(self.writes),
            "acked": sum(w.acked for w in self.writes),
            "refused": sum(w.failed is not None for w in self.writes),
            "abandoned": sum(w.abandoned for w in self.writes),
            "open": sum(w.completed_s is None and not w.abandoned for w in self.writes),
            "reads": len(self.reads),
        }

    def gaps_s(self, start_s: float, end_s: float) -> list[float]:
        """Return, sorted, how long partitions acknowledged no write (acks=all), over a second."""
        found = []
        for tp in sorted({w.tp for w in self.writes}):
            times = [
                w.completed_s
                for w in self.writes
                if w.tp == tp and w.acks == -1 and w.acked and w.completed_s is not None
            ]
            marks = [start_s, *sorted(t for t in times if start_s < t < end_s), end_s]
            found += [b - a for a, b in pairwise(marks) if b - a > GAP_S]
        return sorted(found)
