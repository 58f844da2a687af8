"""Plan: what a decider wants written, what it could not decide, and why.

A decider's output. Invariants: a plan names each partition at most once; `writes` hold the
partition epoch they were decided from, so that the store can compare and swap; a decision carries
all its inputs, so that it can be replayed alone.
"""

import msgspec

from ottla.model.cluster import LeaderAndIsr
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition


class Decision(msgspec.Struct, frozen=True):
    """One partition's decision with everything that led to it.

    `online` are the replicas that counted as live; `eligible`, `crashed` and `ends` (broker, leader
    epoch, end) is what was known of those outside the ISR, or in it by an earlier registration
    only; `broker` is whom it is about: who left the ISR, or who `asked` for which state by
    AlterPartition of which `version`. Of the members asked for, `stale` are those named by the
    epoch of an earlier registration, `unsure` those named without an epoch that had an earlier
    registration in the same partition epoch.
    """

    partition: TopicPartition
    kind: str
    rule: str
    """A `Rule`, or why a leader's proposal was refused."""
    before: LeaderAndIsr | None
    after: LeaderAndIsr | None
    replicas: tuple[int, ...]
    rejected: tuple[tuple[int, str], ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    online: tuple[int, ...] = ()
    shutting_down: tuple[int, ...] = ()
    broker: int | None = None
    asked: LeaderAndIsr | None = None
    version: int | None = None
    eligible: tuple[int, ...] = ()
    crashed: tuple[int, ...] = ()
    ends: tuple[tuple[int, int, int], ...] = ()
    stale: tuple[int, ...] = ()
    unsure: tuple[int, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """Why nothing could be decided or written.

    `superseded`: a newer controller wrote the state; `error`: the code of a write that failed.
    """

    reason: str
    superseded: bool = False
    error: ErrorCode | None = None

    def __str__(self) -> str:
        return self.reason


class Plan(msgspec.Struct):
    """Decisions about many partitions."""

    writes: dict[TopicPartition, LeaderAndIsr] = msgspec.field(default_factory=dict)
    unchanged: dict[TopicPartition, LeaderAndIsr] = msgspec.field(default_factory=dict)
    recipients: dict[TopicPartition, tuple[int, ...]] = msgspec.field(default_factory=dict)
    failures: dict[TopicPartition, Failure] = msgspec.field(default_factory=dict)
    decisions: dict[TopicPartition, Decision] = msgspec.field(default_factory=dict)
    newcomers: dict[TopicPartition, dict[int, int]] = msgspec.field(default_factory=dict)
    """broker epochs of those whom a write lets into an ISR"""

    def merge(self, other: "Plan") -> None:
        """Take over another slice's decisions."""
        self.writes.update(other.writes)
        self.unchanged.update(other.unchanged)
        self.recipients.update(other.recipients)
        self.failures.update(other.failures)
        self.newcomers.update(other.newcomers)
        self.decisions.update(other.decisions)
