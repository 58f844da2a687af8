"""Transition tables: what is legal, and what the error says."""

from enum import Enum, IntEnum

import pytest

from ottla.model.transitions import IllegalTransitionError, check_transition, is_legal


class Door(Enum):
    OPEN = "Open"
    CLOSED = "Closed"
    LOCKED = "Locked"


class Level(IntEnum):
    LOW = 0
    HIGH = 1


TABLE = {Door.OPEN: {Door.CLOSED}, Door.CLOSED: {Door.OPEN, Door.LOCKED}}


def test_a_transition_is_legal_if_the_target_names_the_source():
    legal = {(a, b) for a in Door for b in Door if is_legal(TABLE, a, b)}
    assert legal == {
        (Door.CLOSED, Door.OPEN), (Door.OPEN, Door.CLOSED), (Door.LOCKED, Door.CLOSED)
    }  # fmt: skip
    for before in Door:
        for after in Door:
            if (before, after) in legal:
                check_transition(TABLE, "door", before, after)
            else:
                with pytest.raises(IllegalTransitionError):
                    check_transition(TABLE, "door", before, after)


def test_the_error_names_the_subject_and_both_states():
    with pytest.raises(IllegalTransitionError) as caught:
        check_transition(TABLE, "front door", Door.OPEN, Door.LOCKED)
    error = caught.value
    assert (error.subject, error.before, error.after) == ("front door", Door.OPEN, Door.LOCKED)
    assert str(error) == "front door: Open -> Locked is no legal transition"


def test_states_with_numbers_are_shown_by_name():
    with pytest.raises(IllegalTransitionError, match="LOW -> HIGH"):
        check_transition({Level.LOW: (Level.HIGH,)}, "tide", Level.LOW, Level.HIGH)
