"""What one group has committed: stable, on its way into the log, or inside a transaction.

A decider. Who may call: `group`, `groups` and `group_coordinator`. Invariants: an offset is
visible once its record is committed in the log; the record further along in the log wins, whatever
the order in which the appends are acknowledged; an offset of a transaction becomes visible with
the commit marker, or never. Answers to the offsets of Kafka's `GroupMetadata` (KIP-211 for their
expiry, KIP-447 for `require_stable`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.model.ids import TopicPartition

NOT_APPENDED = -1


class Commit(NamedTuple):
    """A committed offset. Times are milliseconds since 1970; -1 stands for "none"."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1


class Recorded(NamedTuple):
    """A commit and the base offset of the batch it stands in, NOT_APPENDED if that is open."""

    commit: Commit
    at: int


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("committed", "in_transactions", "pending")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Recorded] = {}
        self.pending: dict[TopicPartition, Commit] = {}
        self.in_transactions: dict[int, dict[TopicPartition, Recorded]] = {}
        """producer id -> what its transaction will commit"""

    def __len__(self) -> int:
        return len(self.committed)

    @property
    def any(self) -> bool:
        return bool(self.committed or self.pending or self.in_transactions)

    def get(self, tp: TopicPartition) -> Commit | None:
        found = self.committed.get(tp)
        return None if found is None else found.commit

    def unstable(self, tp: TopicPartition) -> bool:
        """Tell whether a newer offset may be on its way (UNSTABLE_OFFSET_COMMIT)."""
        return tp in self.pending or any(tp in t for t in self.in_transactions.values())

    # --- plain commits --------------------------------------------------------------------------

    def prepare(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """Note commits whose append begins."""
        self.pending.update(commits)

    def appended(self, commits: Mapping[TopicPartition, Commit], at: int) -> None:
        """Make commits visible: their batch at base offset `at` is committed."""
        for tp, commit in commits.items():
            if tp in self.pending:  # else deleted meanwhile
                known = self.committed.get(tp)
                if known is None or known.at < at:
                    self.committed[tp] = Recorded(commit, at)
            self._settle(tp, commit)

    def failed(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """Forget commits whose append failed."""
        for tp, commit in commits.items():
            self._settle(tp, commit)

    def _settle(self, tp: TopicPartition, commit: Commit) -> None:
        if self.pending.get(tp) == commit:  # else a later commit is on its way
            del self.pending[tp]

    # --- commits of a transaction -----------------------------------------------------------------

    def prepare_in_transaction(
        self, producer_id: int, commits: Mapping[TopicPartition, Commit]
    ) -> None:
        """Note commits of an open transaction whose append begins."""
        waiting = self.in_transactions.setdefault(producer_id, {})
        for tp, commit in commits.items():
            waiting[tp] = Recorded(commit, NOT_APPENDED)

    def appended_in_transaction(
        self, producer_id: int, commits: Mapping[TopicPartition, Commit], at: int
    ) -> None:
        """Note that they are in the log; they stay invisible."""
        waiting = self.in_transactions.get(producer_id, {})
        for tp, commit in commits.items():
            if tp in waiting and waiting[tp].commit == commit:
                waiting[tp] = Recorded(commit, at)

    def failed_in_transaction(
        self, producer_id: int, commits: Mapping[TopicPartition, Commit]
    ) -> None:
        """Forget commits of a transaction whose append failed."""
        waiting = self.in_transactions.get(producer_id)
        if waiting is None:
            return
        for tp in commits:
            waiting.pop(tp, None)
        if not waiting:
            del self.in_transactions[producer_id]

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Make a transaction's offsets visible, or forget them: its marker is in the log."""
        for tp, recorded in self.in_transactions.pop(producer_id, {}).items():
            if committed and recorded.at != NOT_APPENDED:
                known = self.committed.get(tp)
                if known is None or known.at < recorded.at:
                    self.committed[tp] = recorded

    # --- removal ----------------------------------------------------------------------------------

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget partitions; return those that were committed, each of which needs a tombstone."""
        removed = []
        for tp in partitions:
            self.pending.pop(tp, None)
            for waiting in self.in_transactions.values():
                waiting.pop(tp, None)
            if self.committed.pop(tp, None) is not None:
                removed.append(tp)
        return removed

    def expired(
        self,
        wall_ms: int,
        retention_ms: int,
        base_ms: Callable[[Commit], int],
        kept_topics: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Return what has outlived its retention, counted from `base_ms` of each commit.

        A commit that came with an expiry time of its own (before OffsetCommit 5) goes by that.
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
