"""States: the life of a partition and of a replica, one transition table each.

A decider. Who may call: the controller's other parts; documentation draws its diagrams from these
tables. Kafka: `PartitionState` and `ReplicaState`.

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
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.model.ids import TopicPartition

HISTORY_LENGTH = 6


class PartitionState(Enum):
    """Names as Kafka's state-change log writes them."""

    __hash__ = object.__hash__  # Enum's own is a call of Python, for every look at a table

    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"
    NON_EXISTENT = "NonExistentPartition"


class ReplicaState(Enum):
    """Names as Kafka's state-change log writes them."""

    __hash__ = object.__hash__

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


class _Place(NamedTuple):
    """Where a subject is and how it came there; one object for all that came the same way."""

    state: Any
    history: tuple[Move, ...]


class Machine(Generic[Subject, State]):
    """The states of many subjects of one kind.

    Thousands of subjects take the same step one after another, as in a failover: the last step is
    kept and given to the next subject that comes from the same place.
    """

    def __init__(self, table: Mapping[State, frozenset[State]], nowhere: State) -> None:
        self._table = table
        self._nowhere = nowhere
        self._start = _Place(nowhere, ())
        self._places: dict[Subject, _Place] = {}
        self._found: tuple[State, int, _Place] | None = None
        self._step: tuple[_Place, State, int, _Place] | None = None

    def __getitem__(self, subject: Subject) -> State:
        """Return the state of a subject; the start state for one never heard of."""
        state: State = self._places.get(subject, self._start).state
        return state

    def __len__(self) -> int:
        return len(self._places)

    def items(self) -> Iterator[tuple[Subject, State]]:
        return ((subject, place.state) for subject, place in self._places.items())

    def history(self, subject: Subject) -> tuple[Move, ...]:
        return self._places.get(subject, self._start).history

    def begin(self, subject: Subject, state: State, cause: int = 0) -> None:
        """Put a subject where a failover found it, whatever it was before."""
        found = self._found
        if found is None or found[0] is not state or found[1] != cause:
            place = _Place(state, (Move(cause, "found", state.value),))
            found = self._found = (state, cause, place)
        self._places[subject] = found[2]

    def may(self, subject: Subject, target: State) -> bool:
        return self[subject] in self._table[target]

    def check(self, subject: Subject, target: State) -> None:
        """Raise InvalidTransition unless the subject may move to `target`."""
        self._check(subject, self._places.get(subject, self._start), target)

    def _check(self, subject: Subject, place: _Place, target: State) -> None:
        if place.state not in self._table[target]:
            raise InvalidTransition(subject, place.state.value, target.value, place.history)

    def legal(
        self, subjects: Iterable[Subject], target: State
    ) -> tuple[list[Subject], list[InvalidTransition]]:
        """Return those that may move to `target`, and why the others may not."""
        places, start, sources = self._places, self._start, self._table[target]
        legal, refused = [], []
        for subject in subjects:
            place = places.get(subject, start)
            if place.state in sources:
                legal.append(subject)
            else:
                before = place.state.value
                refused.append(InvalidTransition(subject, before, target.value, place.history))
        return legal, refused

    def move(self, subject: Subject, target: State, cause: int) -> State:
        """Move a subject and return where it was; InvalidTransition if it may not."""
        place = self._places.get(subject, self._start)
        step = self._step
        if step is None or step[0] is not place or step[1] is not target or step[2] != cause:
            self._check(subject, place, target)
            move = Move(cause, place.state.value, target.value)
            history = (*place.history[1 - HISTORY_LENGTH :], move)
            step = self._step = (place, target, cause, _Place(target, history))
        self._places[subject] = step[3]
        before: State = place.state
        return before

    def forget(self, subject: Subject) -> None:
        self._places.pop(subject, None)

    def among(self, subjects: Iterable[Subject], *states: State) -> list[Subject]:
        """Return those of `subjects` that are in one of `states`, in their order."""
        return [s for s in subjects if self._places.get(s, self._start).state in states]

    def all_in(self, *states: State) -> list[Subject]:
        """Return every subject in one of `states`, in the order they were first seen."""
        return [s for s, place in self._places.items() if place.state in states]


def partition_machine() -> "Machine[TopicPartition, PartitionState]":
    return Machine(PARTITION_MOVES, PartitionState.NON_EXISTENT)


def replica_machine() -> "Machine[PartitionReplica, ReplicaState]":
    return Machine(REPLICA_MOVES, ReplicaState.NON_EXISTENT)
