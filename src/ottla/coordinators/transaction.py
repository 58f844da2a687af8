"""One transactional id: its producer, its state, and the next state while that is being written.

A decider. `TRANSACTION_TRANSITIONS` has where each state may lead; docs/STATES.md draws it.
Invariants: at most one
`Transition` is pending; the state changes only when its record is committed (`complete`); the epoch
that a client gets is never 2^15-1, so that a producer can always be fenced with one more. Kafka:
`TransactionMetadata`, `TxnTransitMetadata` and `TransactionState`, whose names and numbers are
those on the wire and in `__transaction_state`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ottla.coordinators.timers import Now
from ottla.model.errors import ProducerFencedError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from ottla.model.transitions import TransitionTable, check_transition


class TransactionState(IntEnum):
    """The value is the number in the log."""

    EMPTY = 0
    """no transaction yet with this producer epoch"""

    ONGOING = 1
    """partitions were added"""

    PREPARE_COMMIT = 2
    """decided: to be committed; markers are on their way"""

    PREPARE_ABORT = 3
    """decided: to be aborted; markers are on their way"""

    COMPLETE_COMMIT = 4
    """every partition has its commit marker"""

    COMPLETE_ABORT = 5
    """every partition has its abort marker"""

    DEAD = 6
    """expired; its tombstone is on its way"""

    PREPARE_EPOCH_FENCE = 7
    """the epoch is raised to fence the producer; passes into PREPARE_ABORT at once"""

    @property
    def label(self) -> str:
        """The name DescribeTransactions and ListTransactions show, such as `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


S = TransactionState

# Target state -> the states it may be entered from.
TRANSACTION_TRANSITIONS: TransitionTable[TransactionState] = {
    S.EMPTY: frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.ONGOING: frozenset({S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.PREPARE_COMMIT: frozenset({S.ONGOING}),
    S.PREPARE_ABORT: frozenset({S.ONGOING, S.PREPARE_EPOCH_FENCE}),
    S.COMPLETE_COMMIT: frozenset({S.PREPARE_COMMIT}),
    S.COMPLETE_ABORT: frozenset({S.PREPARE_ABORT}),
    S.DEAD: frozenset({S.EMPTY, S.COMPLETE_ABORT, S.COMPLETE_COMMIT}),
    S.PREPARE_EPOCH_FENCE: frozenset({S.ONGOING}),
}

MAY_EXPIRE = frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT})
ENDING = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})


def check_transaction_transition(
    transactional_id: str, before: TransactionState, after: TransactionState
) -> None:
    """Raise IllegalTransitionError unless the table has the transition."""
    check_transition(TRANSACTION_TRANSITIONS, f"transactional id {transactional_id}", before, after)


MAX_EPOCH = 2**15 - 1


class IllegalTransactionStateError(Exception):
    """A transactional id was asked for what its state or epoch does not allow: a bug of ours."""


def is_exhausted(epoch: int) -> bool:
    """Whether a producer id has no further epoch for a client; the last one is for fencing."""
    return epoch >= MAX_EPOCH - 1


class Transition(NamedTuple):
    """The next state of a transactional id, as it is written to the log."""

    state: TransactionState
    producer_id: int
    epoch: int
    last_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    update_ms: int


@dataclass(slots=True, eq=False)
class Transaction:
    """A transactional id. Times are milliseconds since 1970, NO_TIMESTAMP for none."""

    transactional_id: str
    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int = 0
    state: TransactionState = S.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    start_ms: int = NO_TIMESTAMP
    update_ms: int = NO_TIMESTAMP
    last_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_PRODUCER_EPOCH
    pending: TransactionState | None = None
    start_mono_ms: float = 0.0
    """when the open transaction began, or was loaded, by this process's monotonic clock"""
    fence_failed: bool = False
    """the epoch was raised to fence the producer, but not written: it is not raised again"""

    @property
    def exhausted(self) -> bool:
        return is_exhausted(self.epoch)

    # --- what to write ----------------------------------------------------------------------------

    def prepare_fence(self) -> Transition:
        """Raise the epoch, so that the open transaction can be aborted."""
        if self.epoch == MAX_EPOCH:
            raise IllegalTransactionStateError(
                f"{self.transactional_id}: no epoch left to fence with"
            )
        epoch = self.epoch if self.fence_failed else self.epoch + 1
        return self._prepare(
            S.PREPARE_EPOCH_FENCE,
            epoch=epoch,
            last_epoch=NO_PRODUCER_EPOCH,
            update_ms=self.update_ms,
        )

    def prepare_next_epoch(self, timeout_ms: int, expected: int | None, now_ms: int) -> Transition:
        """Give the producer its next epoch; ProducerFencedError if it is not the newest (KIP-360).

        `expected` is the epoch the producer has already, None for one that starts.
        """
        if self.exhausted:
            raise IllegalTransactionStateError(f"{self.transactional_id}: no epoch left")
        epoch, last_epoch = self.epoch + 1, NO_PRODUCER_EPOCH
        if expected is not None:
            if self.epoch in (NO_PRODUCER_EPOCH, expected):
                last_epoch = self.epoch
            elif expected == self.last_epoch:
                epoch, last_epoch = self.epoch, self.last_epoch  # our response was lost
            else:
                raise ProducerFencedError(
                    f"epoch {expected}; ours is {self.epoch}, the last {self.last_epoch}"
                )
        return self._prepare_empty(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def prepare_next_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keep_last_epoch: bool
    ) -> Transition:
        """Give the producer another producer id: this one has no epochs left."""
        last_epoch = self.epoch if keep_last_epoch else NO_PRODUCER_EPOCH
        return self._prepare_empty(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def _prepare_empty(
        self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transition:
        return self._prepare(
            S.EMPTY,
            producer_id=producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            update_ms=now_ms,
        )

    def prepare_add_partitions(self, partitions: Iterable[TopicPartition], now: Now) -> Transition:
        """Add partitions; the first begin the transaction."""
        start_ms = self.start_ms
        if self.state is not S.ONGOING:
            start_ms, self.start_mono_ms = now.wall_ms, now.mono_ms
        all_partitions = frozenset(self.partitions).union(partitions)
        return self._prepare(
            S.ONGOING, partitions=all_partitions, start_ms=start_ms, update_ms=now.wall_ms
        )

    def prepare_end(self, *, committed: bool, now_ms: int) -> Transition:
        """Decide that the transaction is committed or aborted."""
        return self._prepare(S.PREPARE_COMMIT if committed else S.PREPARE_ABORT, update_ms=now_ms)

    def prepare_complete(self, now_ms: int) -> Transition:
        """Prepare the end, which is written when every partition has its marker."""
        state = S.COMPLETE_COMMIT if self.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT
        self.fence_failed = False
        return self._prepare(state, partitions=frozenset(), update_ms=now_ms)

    def prepare_dead(self) -> Transition:
        """Prepare the removal of the id."""
        return self._prepare(S.DEAD, partitions=frozenset(), update_ms=self.update_ms)

    def _prepare(
        self,
        state: TransactionState,
        *,
        update_ms: int,
        producer_id: int | None = None,
        epoch: int | None = None,
        last_epoch: int | None = None,
        timeout_ms: int | None = None,
        partitions: frozenset[TopicPartition] | None = None,
        start_ms: int | None = None,
    ) -> Transition:
        if self.pending is not None:
            raise IllegalTransactionStateError(
                f"{self.transactional_id}: {state.label} while {self.pending.label} is pending"
            )
        check_transaction_transition(self.transactional_id, self.state, state)
        self.pending = state
        return Transition(
            state,
            self.producer_id if producer_id is None else producer_id,
            self.epoch if epoch is None else epoch,
            self.last_epoch if last_epoch is None else last_epoch,
            self.timeout_ms if timeout_ms is None else timeout_ms,
            frozenset(self.partitions) if partitions is None else partitions,
            self.start_ms if start_ms is None else start_ms,
            update_ms,
        )

    # --- what was written -------------------------------------------------------------------------

    def complete(self, to: Transition) -> None:
        """Become what was written; IllegalTransactionStateError if it was not prepared."""
        if self.pending is not to.state or not self._is_valid(to):
            raise IllegalTransactionStateError(f"{self} cannot become {to}")
        if to.state is S.EMPTY:
            self.last_producer_id, self.producer_id = self.producer_id, to.producer_id
            self.epoch, self.last_epoch = to.epoch, to.last_epoch
            self.timeout_ms = to.timeout_ms
        elif to.state is S.ONGOING:
            self.partitions.update(to.partitions)
        elif to.state not in ENDING:
            self.partitions.clear()
        self.start_ms = to.start_ms
        self.update_ms = to.update_ms
        self.state = to.state
        self.pending = None

    def _is_valid(self, to: Transition) -> bool:
        same = to.epoch == self.epoch and to.producer_id == self.producer_id
        if to.state is S.EMPTY:
            renewed = to.epoch == 0 and to.producer_id != self.producer_id
            return not to.partitions and (same or renewed or to.epoch == self.epoch + 1)
        if not same or to.timeout_ms != self.timeout_ms:
            return False
        if to.state is S.ONGOING:
            return self.partitions <= to.partitions
        if to.state in ENDING:
            return self.partitions == to.partitions and self.start_ms == to.start_ms
        return to.state in MAY_EXPIRE
