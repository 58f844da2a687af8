"""The committed offsets of one group: visible, being appended, or part of a transaction.

A decider. Invariants: an offset is visible once its record is committed in the log; the record
further along in the log wins, whatever the order in which the appends are acknowledged; an offset
of a transaction becomes visible with the commit marker, or never. Kafka: the offsets of
`GroupMetadata` (KIP-211 for their expiry, KIP-447 for `require_stable`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.coordinators.group_memory import GroupMemory, text_bytes
from ottla.model.ids import TopicPartition


class Commit(NamedTuple):
    """A committed offset. Times are milliseconds since 1970; -1 means none."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1


class AppendedCommit(NamedTuple):
    """A commit and the base offset of its batch in the log."""

    commit: Commit
    base_offset: int


Pending = dict[TopicPartition, tuple[Commit, ...]]
"""Commits that are being appended, in their order; rarely more than one of a partition."""


@dataclass(slots=True, eq=False)
class TransactionOffsets:
    """The offsets of one open transaction: those in the log, and those being appended."""

    appended: dict[TopicPartition, AppendedCommit] = field(default_factory=dict)
    pending: Pending = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class GroupOffsets:
    """The offsets of one group."""

    committed: dict[TopicPartition, AppendedCommit] = field(default_factory=dict)
    pending: Pending = field(default_factory=dict)
    in_transactions: dict[int, TransactionOffsets] = field(default_factory=dict)
    """by producer id"""
    text_bytes: int = 0
    """of the metadata of what is committed"""
    memory: GroupMemory | None = None
    """where that counts, while the group is served"""

    def __len__(self) -> int:
        return len(self.committed)

    @property
    def any(self) -> bool:
        return bool(self.committed or self.pending or self.in_transactions)

    def get(self, tp: TopicPartition) -> Commit | None:
        found = self.committed.get(tp)
        return None if found is None else found.commit

    def unstable(self, tp: TopicPartition) -> bool:
        """Return whether a newer offset may become visible (UNSTABLE_OFFSET_COMMIT)."""
        return tp in self.pending or any(
            tp in t.appended or tp in t.pending for t in self.in_transactions.values()
        )

    # --- plain commits --------------------------------------------------------------------------

    def prepare(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """Note commits that are being appended (Kafka: prepareOffsetCommit)."""
        _add(self.pending, commits)

    def appended(self, commits: Mapping[TopicPartition, Commit], base_offset: int) -> None:
        """Make commits visible: their batch at `base_offset` is committed."""
        for tp, commit in commits.items():
            if _take(self.pending, tp, commit):
                self._make_visible(tp, AppendedCommit(commit, base_offset))

    def failed(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """Drop commits whose append failed."""
        for tp, commit in commits.items():
            _take(self.pending, tp, commit)

    def _make_visible(self, tp: TopicPartition, commit: AppendedCommit) -> None:
        known = self.committed.get(tp)
        if known is None or known.base_offset < commit.base_offset:
            self.keep(tp, commit)

    def keep(self, tp: TopicPartition, commit: AppendedCommit) -> None:
        """Make a commit that is in the log the partition's, whatever was there."""
        self._count(tp, -1)
        self.committed[tp] = commit
        self._count(tp, 1)

    def _count(self, tp: TopicPartition, change: int) -> None:
        commit = self.get(tp)
        if commit is not None and commit.metadata:
            size = change * text_bytes(len(commit.metadata))
            self.text_bytes += size
            if self.memory is not None:
                self.memory.texts += size

    # --- commits of a transaction -----------------------------------------------------------------

    def prepare_in_transaction(
        self, producer_id: int, commits: Mapping[TopicPartition, Commit]
    ) -> None:
        """Note commits of an open transaction that are being appended."""
        _add(self._in_transaction(producer_id).pending, commits)

    def appended_in_transaction(
        self, producer_id: int, commits: Mapping[TopicPartition, Commit], base_offset: int
    ) -> None:
        """Note that they are in the log; they stay invisible."""
        found = self.in_transactions.get(producer_id)
        if found is not None:
            for tp, commit in commits.items():
                if _take(found.pending, tp, commit):
                    found.appended[tp] = AppendedCommit(commit, base_offset)

    def failed_in_transaction(
        self, producer_id: int, commits: Mapping[TopicPartition, Commit]
    ) -> None:
        """Drop commits of a transaction whose append failed."""
        found = self.in_transactions.get(producer_id)
        if found is None:
            return
        for tp, commit in commits.items():
            _take(found.pending, tp, commit)
        if not found.pending and not found.appended:
            del self.in_transactions[producer_id]

    def restore_in_transaction(
        self, producer_id: int, tp: TopicPartition, commit: AppendedCommit
    ) -> None:
        """Add an offset that was read from the log, of a transaction that is still open."""
        self._in_transaction(producer_id).appended[tp] = commit

    def _in_transaction(self, producer_id: int) -> TransactionOffsets:
        found = self.in_transactions.get(producer_id)
        if found is None:
            found = self.in_transactions[producer_id] = TransactionOffsets()
        return found

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Make a transaction's offsets visible, or drop them: its marker is in the log."""
        found = self.in_transactions.pop(producer_id, None)
        if found is not None and committed:
            for tp, commit in found.appended.items():
                self._make_visible(tp, commit)

    # --- removal ----------------------------------------------------------------------------------

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Remove partitions; return those that may be in the log: each needs a tombstone."""
        removed = []
        for tp in partitions:
            pending = self.pending.pop(tp, None)
            for found in self.in_transactions.values():
                found.appended.pop(tp, None)
                found.pending.pop(tp, None)
            self._count(tp, -1)
            if self.committed.pop(tp, None) is not None or pending is not None:
                removed.append(tp)
        return removed

    def expired(
        self,
        wall_ms: int,
        retention_ms: int,
        base_ms: Callable[[Commit], int],
        kept_topics: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Return the partitions whose retention is over, counted from `base_ms` of each commit.

        A commit with an expiry time of its own (before OffsetCommit 5) expires at that time.
        """
        found = []
        for tp, (commit, _) in self.committed.items():
            if tp.topic in kept_topics or tp in self.pending:
                continue
            if commit.expire_timestamp >= 0:
                over = wall_ms >= commit.expire_timestamp
            else:
                over = wall_ms - base_ms(commit) >= retention_ms
            if over:
                found.append(tp)
        return found


def _add(pending: Pending, commits: Mapping[TopicPartition, Commit]) -> None:
    for tp, commit in commits.items():
        pending[tp] = (*pending.get(tp, ()), commit)


def _take(pending: Pending, tp: TopicPartition, commit: Commit) -> bool:
    """Remove one commit whose append has ended; False if it was removed meanwhile."""
    found = pending.get(tp, ())
    if commit not in found:
        return False
    if len(found) == 1:
        del pending[tp]
    else:
        index = found.index(commit)
        pending[tp] = found[:index] + found[index + 1 :]
    return True
