"""States: the life of a partition and of a replica, one transition table each.

A decider. Who may call: the controller's other parts; documentation draws its diagrams from these
tables. Answers to Kafka's `PartitionState` and `ReplicaState`.

A partition is `NonExistentPartition` until a topic names it, `NewPartition` while it has replicas
and no leader yet, `OnlinePartition` while a live broker leads it, `OfflinePartition` while its
leader is dead and nobody could be elected. A replica follows its own line: new, online, offline;
and when its topic is deleted through started to successful and out of the world, with
`ReplicaDeletionIneligible` as the waiting room for replicas whose broker cannot answer.

A move not in the table is refused with the subject's history, because the question after an
illegal move is always how the subject came to be where it is.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from ottla.model.ids import TopicPartition

HISTORY_LENGTH = 6


class PartitionState(Enum):
    """Names as Kafka's state-change log writes them."""

    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"
    NON_EXISTENT = "NonExistentPartition"


class ReplicaState(Enum):
    """Names as Kafka's state-change log writes them."""

    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


class PartitionReplica(NamedTuple):
    """One partition's copy on one broker."""

    partition: TopicPartition
    broker: int

    def __str__(self) -> str:
        return f"{self.partition} on {self.broker}"


# Target state -> the states it may be entered from.
PARTITION_MOVES: Mapping[PartitionState, frozenset[PartitionState]] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset(
        {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}
    ),
    PartitionState.OFFLINE: frozenset(
        {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}
    ),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}

REPLICA_MOVES: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: frozenset(
        {
            ReplicaState.NEW,
            ReplicaState.ONLINE,
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_INELIGIBLE,
        }
    ),
    ReplicaState.OFFLINE: frozenset(
        {
            ReplicaState.NEW,
            ReplicaState.ONLINE,
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_INELIGIBLE,
        }
    ),
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset(
        {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}
    ),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}

Subject = TypeVar("Subject", bound=Hashable)
State = TypeVar("State", bound=Enum)


class Move(NamedTuple):
    """One step of a subject's history; `cause` is the id of the event that led to it."""

    cause: int
    before: str
    after: str


class InvalidTransition(Exception):  # noqa: N818 - a name for the fact, not for the blame
    """A subject was asked to go where its state does not lead. Carries how it came there."""

    def __init__(self, subject: object, before: str, after: str, history: tuple[Move, ...]) -> None:
        self.subject, self.before, self.after, self.history = subject, before, after, history
        told = "; ".join(f"#{m.cause} {m.before} -> {m.after}" for m in history) or "none"
        super().__init__(f"{subject}: {before} -> {after} is no legal move (history: {told})")


class Machine(Generic[Subject, State]):
    """The states of many subjects of one kind."""

    def __init__(self, table: Mapping[State, frozenset[State]], nowhere: State) -> None:
        self._table = table
        self._nowhere = nowhere
        self._states: dict[Subject, State] = {}
        self._history: dict[Subject, tuple[Move, ...]] = {}

    def __getitem__(self, subject: Subject) -> State:
        """Return the state of a subject; the start state for one never heard of."""
        return self._states.get(subject, self._nowhere)

    def __len__(self) -> int:
        return len(self._states)

    def items(self) -> Iterator[tuple[Subject, State]]:
        return iter(self._states.items())

    def history(self, subject: Subject) -> tuple[Move, ...]:
        return self._history.get(subject, ())

    def begin(self, subject: Subject, state: State, cause: int = 0) -> None:
        """Put a subject where a failover found it, whatever it was before."""
        self._states[subject] = state
        self._history[subject] = (Move(cause, "found", state.value),)

    def may(self, subject: Subject, target: State) -> bool:
        return self[subject] in self._table[target]

    def check(self, subject: Subject, target: State) -> None:
        """Raise InvalidTransition unless the subject may move to `target`."""
        before = self[subject]
        if before not in self._table[target]:
            raise InvalidTransition(subject, before.value, target.value, self.history(subject))

    def move(self, subject: Subject, target: State, cause: int) -> State:
        """Move a subject and return where it was; InvalidTransition if it may not."""
        before = self._states.get(subject, self._nowhere)
        if before not in self._table[target]:
            raise InvalidTransition(subject, before.value, target.value, self.history(subject))
        self._states[subject] = target
        step = Move(cause, before.value, target.value)
        self._history[subject] = (*self._history.get(subject, ())[1 - HISTORY_LENGTH :], step)
        return before

    def forget(self, subject: Subject) -> None:
        self._states.pop(subject, None)
        self._history.pop(subject, None)

    def among(self, subjects: Iterable[Subject], *states: State) -> list[Subject]:
        """Return those of `subjects` that are in one of `states`, in their order."""
        return [s for s in subjects if self._states.get(s, self._nowhere) in states]

    def all_in(self, *states: State) -> list[Subject]:
        """Return every subject in one of `states`, in the order they were first seen."""
        return [s for s, state in self._states.items() if state in states]


def partition_machine() -> "Machine[TopicPartition, PartitionState]":
    return Machine(PARTITION_MOVES, PartitionState.NON_EXISTENT)


def replica_machine() -> "Machine[PartitionReplica, ReplicaState]":
    return Machine(REPLICA_MOVES, ReplicaState.NON_EXISTENT)
