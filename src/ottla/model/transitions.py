"""Transition tables: which state of a state machine may follow which.

A decider. Who may call: every room that has a state machine. A table maps each target state to the
states it may be entered from; documentation draws its diagrams from the same tables. Kafka: the
`validPreviousStates` of `GroupState`, `TransactionState`, `PartitionState` and `ReplicaState`.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)

TransitionTable = Mapping[State, Collection[State]]
"""Target state -> the states it may be entered from; a target that is left out has none."""


class IllegalTransitionError(Exception):
    """A state machine was asked for a transition that its table does not have: a bug of ours.

    `subject` says what the state belongs to, such as `group g`.
    """

    before: Enum | str
    after: Enum | str

    def __init__(self, subject: object, before: Enum, after: Enum) -> None:
        self.subject, self.before, self.after = subject, before, after
        super().__init__(f"{subject}: {_name(before)} -> {_name(after)} is no legal transition")


def is_legal(table: TransitionTable[State], before: State, after: State) -> bool:
    """Return whether the table has this transition."""
    return before in table.get(after, ())


def check_transition(
    table: TransitionTable[State], subject: object, before: State, after: State
) -> None:
    """Raise IllegalTransitionError unless the table has this transition."""
    if before not in table.get(after, ()):
        raise IllegalTransitionError(subject, before, after)


def _name(state: Enum) -> str:
    """Return the name an operator knows: the value where that is a text, as Kafka's logs have."""
    return state.value if isinstance(state.value, str) else state.name
