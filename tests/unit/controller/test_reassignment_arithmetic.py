"""The arithmetic of reassignment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.reassignment import (
    drops_too_many,
    problem_with,
    reassign_to,
)
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
    ("target", "isr", "min_isr", "problem"),
    [
        # Found by the simulator, seed 100043: cancelled while only the new replica was in sync.
        ((2, 4, 0), (3,), 1, "No replica in sync"),
        ((2, 4, 0), (3, 4), 1, None),
        ((3, 4, 1), (3,), 1, None),
        ((5, 4, 1), (3,), 1, "No replica in sync"),
        ((5, 4, 1), (0,), 1, None),
        ((2, 4, 0), (), 1, None),
        # Seed 20001046: 3 had the only copy, since 4 was dead, its disk lost, and not known to be.
        ((2, 4, 0), (3, 4), 2, "fewer than min.insync.replicas=2"),
        ((2, 4, 0), (3, 4, 0), 2, None),
        ((2, 4, 0), (3, 4, 0), 3, "fewer than min.insync.replicas=3"),
        # Nothing in sync is dropped, though too little is in sync.
        ((2, 4, 0), (4,), 2, None),
        ((3, 4, 1), (3,), 2, None),
    ],
)
def test_r14_replicas_in_sync_that_records_need_may_not_be_dropped(target, isr, min_isr, problem):
    moving = reassign_to(ReplicaAssignment((2, 4, 0)), (3, 0, 4))
    found = drops_too_many(reassign_to(moving, target), isr, min_isr)
    assert found is None if problem is None else problem in found


def test_r14_a_topic_of_fewer_replicas_than_min_insync_can_be_cancelled():
    moving = reassign_to(ReplicaAssignment((1,)), (2, 3))
    assert drops_too_many(reassign_to(moving, (1,)), (1, 2), 2) is None
