"""The arithmetic of reassignment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.reassignment_arithmetic import problem_with, reassign_to, strands
from ottla.model.cluster import ReplicaAssignment

BROKERS = st.lists(st.integers(0, 8), unique=True, min_size=1, max_size=4).map(tuple)


def test_the_example_of_the_documents():
    moving = reassign_to(ReplicaAssignment((1, 2, 3)), (4, 5, 6))
    assert moving == ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert moving.target == (4, 5, 6)
    assert moving.original == (1, 2, 3)


@given(original=BROKERS, first=BROKERS, second=BROKERS)
def test_a_new_target_replaces_the_old_one(original, first, second):
    moving = reassign_to(reassign_to(ReplicaAssignment(original), first), second)
    assert moving.target == second
    assert set(moving.original) == set(original)
    assert set(moving.adding) == set(second) - set(original)
    assert set(moving.removing) == set(original) - set(second)
    back = reassign_to(moving, moving.original)
    assert not back.being_reassigned
    assert set(back.replicas) == set(original)


@pytest.mark.parametrize(
    ("target", "word"), [((), "Empty"), ((1, 1), "Duplicate"), ((-1,), "Invalid"), ((7,), "alive")]
)
def test_targets_that_are_refused(target, word):
    problem = problem_with(ReplicaAssignment((1, 2)), target, {1, 3}.__contains__)
    assert problem is not None
    assert word in problem


def test_replicas_already_there_may_be_dead():
    assert problem_with(ReplicaAssignment((1, 2)), (2, 3), {3}.__contains__) is None


@pytest.mark.parametrize(
    ("target", "isr", "expected"),
    [
        # Found by the simulator, seed 100043: cancelled while only the new replica was in sync.
        ((2, 4, 0), (3,), True),
        ((2, 4, 0), (3, 4), False),
        ((3, 4, 1), (3,), False),
        ((5, 4, 1), (3,), True),
        ((5, 4, 1), (0,), False),
        ((2, 4, 0), (), False),
    ],
)
def test_the_last_replica_in_sync_may_not_be_dropped(target, isr, expected):
    moving = reassign_to(ReplicaAssignment((2, 4, 0)), (3, 0, 4))
    assert strands(reassign_to(moving, target), isr) is expected
