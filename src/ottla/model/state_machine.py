"""State machine: the states of many subjects, each change checked against a transition table.

A decider. Who may call: everyone who keeps many subjects of one kind in states, such as the
controller's partitions and replicas; `transitions` has the tables' format. A change that is not in
the table is refused with the subject's history, which tells how it came to be in its state.
"""

from collections.abc import Hashable, Iterable, Iterator
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.model.transitions import IllegalTransitionError, TransitionTable

HISTORY_LENGTH = 6

Subject = TypeVar("Subject", bound=Hashable)
State = TypeVar("State", bound=Enum)


class Transition(NamedTuple):
    """One step of a subject's history; `cause` is the id of the event that led to it."""

    cause: int
    before: str
    after: str


class InvalidTransition(IllegalTransitionError):  # noqa: N818 - a name for the fact
    """A transition that the table does not have; carries the subject's history."""

    def __init__(
        self, subject: object, before: str, after: str, history: tuple[Transition, ...]
    ) -> None:
        self.subject, self.history = subject, history
        self.before, self.after = before, after
        steps = "; ".join(f"#{m.cause} {m.before} -> {m.after}" for m in history) or "none"
        Exception.__init__(self, f"{subject}: {before} -> {after} is not legal (history: {steps})")


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
        return self[subject] in self._table[target]

    def check(self, subject: Subject, target: State) -> None:
        """Raise InvalidTransition unless the subject may change to `target`."""
        self._check(subject, self._positions.get(subject, self._start), target)

    def _check(self, subject: Subject, position: _Position, target: State) -> None:
        if position.state not in self._table[target]:
            raise InvalidTransition(subject, position.state.value, target.value, position.history)

    def legal(
        self, subjects: Iterable[Subject], target: State
    ) -> tuple[list[Subject], list[InvalidTransition]]:
        """Return the subjects that may change to `target`, and the errors of the others."""
        positions, start, sources = self._positions, self._start, self._table[target]
        legal, refused = [], []
        for subject in subjects:
            position = positions.get(subject, start)
            if position.state in sources:
                legal.append(subject)
            else:
                before = position.state.value
                refused.append(InvalidTransition(subject, before, target.value, position.history))
        return legal, refused

    def change(self, subject: Subject, target: State, cause: int) -> State:
        """Change a subject's state and return the one before; InvalidTransition if it may not."""
        position = self._positions.get(subject, self._start)
        last = self._step
        if last is None or last[0] is not position or last[1] is not target or last[2] != cause:
            self._check(subject, position, target)
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
