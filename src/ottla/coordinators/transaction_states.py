"""The eight states of a transactional id, and where each may lead.

A decider. Who may call: this room; documentation draws its diagram from the table. Kafka:
`TransactionState`; names and numbers are those on the wire and in `__transaction_state`.
"""

from enum import IntEnum

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
