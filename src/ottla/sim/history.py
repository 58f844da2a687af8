"""History: what the simulated clients tried, which responses they got, and when.

Invariants: a write is noted before its first byte leaves; an operation without a response stays
open, which means "perhaps"; values are unique, so a record found in a log names the write it came
from.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ottla.model.ids import TopicPartition

GAP_S = 1.0
"""Shorter times without an acknowledged write do not count as unavailability."""


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
    """The producer can never learn the outcome: the records may be there or not."""

    @property
    def acked(self) -> bool:
        return self.completed_s is not None and self.failed is None

    def acknowledged(self, offset: int, at_s: float) -> None:
        self.offset, self.completed_s = offset, at_s


@dataclass(slots=True)
class Read:
    """One record as one consumer was given it."""

    process: str
    tp: TopicPartition
    offset: int
    value: bytes
    at_s: float


class Stable(NamedTuple):
    """How far the leader of a partition reported to a read_committed reader that all is decided."""

    last_stable_offset: int
    high_watermark: int
    at_s: float


@dataclass(slots=True)
class Init:
    """One InitProducerId of a transactional id; without a response `completed_s` is None."""

    process: str
    transactional_id: str
    invoked_s: float
    completed_s: float | None = None
    producer_id: int = -1
    epoch: int = -1


@dataclass(slots=True)
class Transaction:
    """One transaction as its producer saw it. `outcome` is None where it never learnt it."""

    process: str
    transactional_id: str
    number: int
    began_s: float
    values: list[bytes] = field(default_factory=list)
    commit: bool | None = None
    """what it asked for at the end; None if it never came to that"""
    end_invoked_s: float | None = None
    ended_s: float | None = None
    outcome: bool | None = None
    """True: committed, False: aborted"""


class Assigned(NamedTuple):
    """What one member was given in one generation. `owner` is its instance id where it has one."""

    group: str
    generation: int
    owner: str
    partitions: tuple[TopicPartition, ...]
    at_s: float
    process: str = ""
    leader: str = ""
    """The member that led the generation: a coordinator that was replaced, and does not know it
    yet, may begin one of the same number. It is never stored."""


class Claimed(NamedTuple):
    """What a cooperative member said it owned as it joined a generation (KIP-429)."""

    group: str
    generation: int
    owner: str
    process: str
    partitions: tuple[TopicPartition, ...]
    leader: str = ""
    at_s: float = 0.0
    """When it asked to join: before the generation began, so before anyone was given a share."""


class Taken(NamedTuple):
    """Records of one partition, from `offset` on, given to an application as a member's share."""

    group: str
    process: str
    generation: int
    """the last of which the process had an assignment"""
    tp: TopicPartition
    offset: int
    at_s: float


@dataclass(slots=True)
class Commit:
    """An offset that a group committed, or tried to: then `completed_s` is None."""

    group: str
    tp: TopicPartition
    offset: int
    generation: int
    invoked_s: float
    completed_s: float | None = None


class Fetched(NamedTuple):
    """What a member received as committed (-1 for nothing), with stable offsets asked for.

    It is of some moment between `invoked_s`, when it began to ask, and `answered_s`.
    """

    group: str
    tp: TopicPartition
    offset: int
    invoked_s: float
    answered_s: float
    process: str
    broker: int


class Fenced(NamedTuple):
    """A transactional producer was fenced by another, or that its transaction ended.

    `began_s` is when the transaction under way began, or None.
    """

    process: str
    transactional_id: str
    began_s: float | None
    at_s: float


@dataclass(slots=True)
class History:
    """Everything the clients did, in the order it happened."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Responses that no client should ever get."""

    unclean_topics: set[str] = field(default_factory=set)
    """Topics that may lose what they acknowledged: unclean elections are allowed there."""

    stables: dict[TopicPartition, list[Stable]] = field(default_factory=dict)
    inits: list[Init] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    fenced: list[Fenced] = field(default_factory=list)
    assigned: list[Assigned] = field(default_factory=list)
    claimed: list[Claimed] = field(default_factory=list)
    committed_readers: set[str] = field(default_factory=set)
    """which processes read with read_committed"""
    commits: list[Commit] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    consumed: dict[str, set[tuple[TopicPartition, int]]] = field(default_factory=dict)
    """group -> the records that any member was given"""

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

    def coordination_statistics(self) -> dict[str, int]:
        return {
            "transactions": len(self.transactions),
            "committed": sum(t.outcome is True for t in self.transactions),
            "aborted": sum(t.outcome is False for t in self.transactions),
            "inits": len(self.inits),
            "generations": len({(a.group, a.generation) for a in self.assigned}),
            "handovers": self.handovers(),
            "commits": sum(c.completed_s is not None for c in self.commits),
        }

    def handovers(self) -> int:
        """Return how often a partition was given to another process than the one before."""
        last: dict[tuple[str, TopicPartition], str] = {}
        count = 0
        for given in self.assigned:
            for tp in given.partitions:
                count += last.get((given.group, tp), given.process) != given.process
                last[given.group, tp] = given.process
        return count

    def gaps_s(self, start_s: float, end_s: float) -> list[float]:
        """Return, sorted, how long partitions acknowledged no write (acks=all), over a second.

        Transactions write when there is something to copy: their pauses say nothing.
        """
        found = []
        transactional = {t.process for t in self.transactions}
        for tp in sorted({w.tp for w in self.writes if w.process not in transactional}):
            times = [
                w.completed_s
                for w in self.writes
                if w.tp == tp and w.acks == -1 and w.acked and w.completed_s is not None
            ]
            marks = [start_s, *sorted(t for t in times if start_s < t < end_s), end_s]
            found += [b - a for a, b in pairwise(marks) if b - a > GAP_S]
        return sorted(found)
