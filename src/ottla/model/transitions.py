"""Transitions: which state may follow which, of one subject or of many that keep their history.

A decider. Every state machine is checked here. A table maps each target state to the
states it may be entered from; documentation draws its diagrams from the same tables. Kafka: the
`validPreviousStates` of `GroupState`, `TransactionState`, `PartitionState` and `ReplicaState`.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

Subject = TypeVar("Subject", bound=Hashable)
State = TypeVar("State", bound=Enum)

HISTORY_LENGTH = 6

TransitionTable = Mapping[State, Collection[State]]
"""Target state -> the states it may be entered from; a target that is left out has none."""


class Transition(NamedTuple):
    """One step of a subject's history; `cause` is the id of the event that led to it."""

    cause: int
    before: str
    after: str


class IllegalTransitionError(Exception):
    """A state machine was asked for a transition that its table does not have: a bug of ours.

    `subject` says what the state belongs to, such as `group g`; `history`, where one is kept, tells
    how it came to be in its state.
    """

    def __init__(
        self,
        subject: object,
        before: Enum,
        after: Enum,
        history: tuple[Transition, ...] | None = None,
    ) -> None:
        self.subject, self.before, self.after = subject, before, after
        self.history = history or ()
        text = f"{subject}: {_name(before)} -> {_name(after)} is "
        if history is None:
            super().__init__(f"{text}no legal transition")
            return
        steps = "; ".join(f"#{m.cause} {m.before} -> {m.after}" for m in history) or "none"
        super().__init__(f"{text}not legal (history: {steps})")


def is_legal(table: TransitionTable[State], before: State, after: State) -> bool:
    """Return whether the table has this transition."""
    return before in table.get(after, ())


def check_transition(
    table: TransitionTable[State],
    subject: object,
    before: State,
    after: State,
    history: tuple[Transition, ...] | None = None,
) -> None:
    """Raise IllegalTransitionError unless the table has this transition."""
    if not is_legal(table, before, after):
        raise IllegalTransitionError(subject, before, after, history)


def _name(state: Enum) -> str:
    """Return the name an operator knows: the value where that is a text, as Kafka's logs have."""
    return state.value if isinstance(state.value, str) else state.name


class _Position(NamedTuple):
    """A subject's state and history; one object for all subjects with the same ones."""

    state: Any
    history: tuple[Transition, ...]


class Machine(Generic[Subject, State]):
    """The states of many subjects of one kind.

    Thousands of subjects take the same step one after another, as in a controller failover: the
    last step is kept and given to the next subject that comes from the same position.
    """

    def __init__(self, table: TransitionTable[State], nowhere: State) -> None:
        self._table = table
        self._nowhere = nowhere
        self._start = _Position(nowhere, ())
        self._positions: dict[Subject, _Position] = {}
        self._found: tuple[State, int, _Position] | None = None
        self._step: tuple[_Position, State, int, _Position] | None = None

    def __getitem__(self, subject: Subject) -> State:
        """Return the state of a subject; the start state for an unknown one."""
        state: State = self._positions.get(subject, self._start).state
        return state

    def __len__(self) -> int:
        return len(self._positions)

    def items(self) -> Iterator[tuple[Subject, State]]:
        return ((subject, position.state) for subject, position in self._positions.items())

    def history(self, subject: Subject) -> tuple[Transition, ...]:
        return self._positions.get(subject, self._start).history

    def begin(self, subject: Subject, state: State, cause: int = 0) -> None:
        """Set the state in which a subject was found, whatever it was before."""
        found = self._found
        if found is None or found[0] is not state or found[1] != cause:
            position = _Position(state, (Transition(cause, "found", state.value),))
            found = self._found = (state, cause, position)
        self._positions[subject] = found[2]

    def may(self, subject: Subject, target: State) -> bool:
        return is_legal(self._table, self[subject], target)

    def check(self, subject: Subject, target: State) -> None:
        """Raise IllegalTransitionError unless the subject may change to `target`."""
        position = self._positions.get(subject, self._start)
        check_transition(self._table, subject, position.state, target, position.history)

    def legal(
        self, subjects: Iterable[Subject], target: State
    ) -> tuple[list[Subject], list[IllegalTransitionError]]:
        """Return the subjects that may change to `target`, and the errors of the others."""
        positions, start, sources = self._positions, self._start, self._table[target]
        legal, refused = [], []
        for subject in subjects:
            position = positions.get(subject, start)
            if position.state in sources:
                legal.append(subject)
            else:
                refused.append(
                    IllegalTransitionError(subject, position.state, target, position.history)
                )
        return legal, refused

    def change(self, subject: Subject, target: State, cause: int) -> State:
        """Change a subject's state and return the one before. IllegalTransitionError."""
        position = self._positions.get(subject, self._start)
        last = self._step
        if last is None or last[0] is not position or last[1] is not target or last[2] != cause:
            check_transition(self._table, subject, position.state, target, position.history)
            step = Transition(cause, position.state.value, target.value)
            history = (*position.history[1 - HISTORY_LENGTH :], step)
            last = self._step = (position, target, cause, _Position(target, history))
        self._positions[subject] = last[3]
        before: State = position.state
        return before

    def forget(self, subject: Subject) -> None:
        self._positions.pop(subject, None)

    def reorder(self, subject: Subject) -> None:
        """Put a subject last in the order of `all_in`."""
        if subject in self._positions:
            self._positions[subject] = self._positions.pop(subject)

    def among(self, subjects: Iterable[Subject], *states: State) -> list[Subject]:
        """Return those of `subjects` that are in one of `states`, in their order."""
        return [s for s in subjects if self._positions.get(s, self._start).state in states]

    def all_in(self, *states: State) -> list[Subject]:
        """Return every subject in one of `states`, in the order they were first seen."""
        return [s for s, position in self._positions.items() if position.state in states]
