"""What one group has committed: stable, on its way into the log, or inside a transaction.

A decider. Who may call: `group`, `groups` and `group_coordinator`. Invariants: an offset is
visible once its record is committed in the log; the record further along in the log wins, whatever
the order in which the appends are acknowledged; an offset of a transaction becomes visible with
the commit marker, or never. Kafka: the offsets of `GroupMetadata` (KIP-211 for their
expiry, KIP-447 for `require_stable`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.model.ids import TopicPartition


class Commit(NamedTuple):
    """A committed offset. Times are milliseconds since 1970; -1 stands for "none"."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1


class Recorded(NamedTuple):
    """A commit and the base offset of the batch it stands in."""

    commit: Commit
    at: int


Pending = dict[TopicPartition, tuple[Commit, ...]]
"""Commits whose append is under way, in the order they were made: hardly ever more than one."""


class OpenOffsets:
    """The offsets in one open transaction: those in the log, and those on their way into it."""

    __slots__ = ("pending", "recorded")

    def __init__(self) -> None:
        self.recorded: dict[TopicPartition, Recorded] = {}
        self.pending: Pending = {}


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("committed", "in_transactions", "pending")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Recorded] = {}
        self.pending: Pending = {}
        self.in_transactions: dict[int, OpenOffsets] = {}
        """by producer id"""

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
        return tp in self.pending or any(
            tp in t.recorded or tp in t.pending for t in self.in_transactions.values()
        )

    # --- plain commits --------------------------------------------------------------------------

    def prepare(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """Note commits whose append begins."""
        _add(self.pending, commits)

    def appended(self, commits: Mapping[TopicPartition, Commit], at: int) -> None:
        """Make commits visible: their batch at base offset `at` is committed."""
        for tp, commit in commits.items():
            if _take(self.pending, tp, commit):
                self._show(tp, Recorded(commit, at))

    def failed(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """Forget commits whose append failed."""
        for tp, commit in commits.items():
            _take(self.pending, tp, commit)

    def _show(self, tp: TopicPartition, recorded: Recorded) -> None:
        known = self.committed.get(tp)
        if known is None or known.at < recorded.at:
            self.committed[tp] = recorded

    # --- commits of a transaction -----------------------------------------------------------------

    def prepare_in_transaction(
        self, producer_id: int, commits: Mapping[TopicPartition, Commit]
    ) -> None:
        """Note commits of an open transaction whose append begins."""
        _add(self._in_transaction(producer_id).pending, commits)

    def appended_in_transaction(
        self, producer_id: int, commits: Mapping[TopicPartition, Commit], at: int
    ) -> None:
        """Note that they are in the log; they stay invisible."""
        found = self.in_transactions.get(producer_id)
        if found is not None:
            for tp, commit in commits.items():
                if _take(found.pending, tp, commit):
                    found.recorded[tp] = Recorded(commit, at)

    def failed_in_transaction(
        self, producer_id: int, commits: Mapping[TopicPartition, Commit]
    ) -> None:
        """Forget commits of a transaction whose append failed."""
        found = self.in_transactions.get(producer_id)
        if found is None:
            return
        for tp, commit in commits.items():
            _take(found.pending, tp, commit)
        if not found.pending and not found.recorded:
            del self.in_transactions[producer_id]

    def restore_in_transaction(
        self, producer_id: int, tp: TopicPartition, recorded: Recorded
    ) -> None:
        """Take in what was read of a transaction that is still open."""
        self._in_transaction(producer_id).recorded[tp] = recorded

    def _in_transaction(self, producer_id: int) -> OpenOffsets:
        found = self.in_transactions.get(producer_id)
        if found is None:
            found = self.in_transactions[producer_id] = OpenOffsets()
        return found

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Make a transaction's offsets visible, or forget them: its marker is in the log."""
        found = self.in_transactions.pop(producer_id, None)
        if found is not None and committed:
            for tp, recorded in found.recorded.items():
                self._show(tp, recorded)

    # --- removal ----------------------------------------------------------------------------------

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget partitions; return those that may stand in the log: each needs a tombstone."""
        removed = []
        for tp in partitions:
            pending = self.pending.pop(tp, None)
            for found in self.in_transactions.values():
                found.recorded.pop(tp, None)
                found.pending.pop(tp, None)
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


def _add(pending: Pending, commits: Mapping[TopicPartition, Commit]) -> None:
    for tp, commit in commits.items():
        pending[tp] = (*pending.get(tp, ()), commit)


def _take(pending: Pending, tp: TopicPartition, commit: Commit) -> bool:
    """Take out one commit whose append has ended; False if it was removed meanwhile."""
    found = pending.get(tp, ())
    if commit not in found:
        return False
    if len(found) == 1:
        del pending[tp]
    else:
        at = found.index(commit)
        pending[tp] = found[:at] + found[at + 1 :]
    return True
