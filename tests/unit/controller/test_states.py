"""The transition tables are Kafka's, and the error of an illegal change has the history."""

import importlib.util
import itertools
from pathlib import Path

import pytest

from ottla.controller.states import (
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    PartitionReplica,
    PartitionState,
    ReplicaState,
    partition_machine,
    replica_machine,
)
from ottla.model.ids import TopicPartition
from ottla.model.transitions import HISTORY_LENGTH, IllegalTransitionError

P = PartitionState
R = ReplicaState
TP = TopicPartition("t", 0)
REPLICA = PartitionReplica(TP, 1)


def test_partition_moves_are_kafkas():
    legal = {(b, a) for a, befores in PARTITION_TRANSITIONS.items() for b in befores}
    assert legal == {
        (P.NON_EXISTENT, P.NEW),
        *itertools.product((P.NEW, P.ONLINE, P.OFFLINE), (P.ONLINE, P.OFFLINE)),
        (P.OFFLINE, P.NON_EXISTENT),
    }


def test_replica_moves_are_kafkas():
    legal = {(b, a) for a, befores in REPLICA_TRANSITIONS.items() for b in befores}
    there = (R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE)
    assert legal == {
        (R.NON_EXISTENT, R.NEW),
        *itertools.product(there, (R.ONLINE, R.OFFLINE)),
        (R.OFFLINE, R.DELETION_STARTED),
        (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
        (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
        (R.OFFLINE, R.DELETION_INELIGIBLE),
        (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
    }


def test_every_state_is_in_its_table():
    assert set(PARTITION_TRANSITIONS) == set(PartitionState)
    assert set(REPLICA_TRANSITIONS) == set(ReplicaState)


def test_a_refused_move_changes_nothing_and_carries_the_history():
    machine = partition_machine()
    machine.change(TP, P.NEW, 3)
    machine.change(TP, P.ONLINE, 4)
    with pytest.raises(IllegalTransitionError) as refused:
        machine.change(TP, P.NON_EXISTENT, 5)
    assert machine[TP] is P.ONLINE
    assert [(m.cause, m.after) for m in refused.value.history] == [
        (3, "NewPartition"),
        (4, "OnlinePartition"),
    ]
    assert "#4 NewPartition -> OnlinePartition" in str(refused.value)
    assert not machine.may(TP, P.NEW)


def test_history_is_bounded():
    machine = replica_machine()
    machine.begin(REPLICA, R.ONLINE, 1)
    for cause in range(20):
        machine.change(REPLICA, R.ONLINE, cause)
    assert len(machine.history(REPLICA)) == HISTORY_LENGTH
    assert machine.history(REPLICA)[-1].cause == 19


def test_subjects_are_found_in_order_and_forgotten():
    machine = partition_machine()
    tps = [TopicPartition("t", i) for i in (2, 0, 1)]
    for tp in tps:
        machine.change(tp, P.NEW, 1)
    machine.change(tps[1], P.OFFLINE, 2)
    assert machine.all_in(P.NEW) == [tps[0], tps[2]]
    assert machine.among(tps, P.OFFLINE, P.NEW) == tps
    machine.forget(tps[0])
    assert machine[tps[0]] is P.NON_EXISTENT
    assert len(machine) == 2


def test_the_drawn_diagrams_are_those_of_the_tables():
    docs = Path(__file__).parents[3] / "docs"
    spec = importlib.util.spec_from_file_location("draw_states", docs / "draw_states.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (docs / "STATES.md").read_text() == module.page()


def test_subjects_that_came_the_same_way_share_their_history_and_others_do_not():
    machine = partition_machine()
    subjects = [TopicPartition("t", n) for n in range(4)]
    for tp in subjects[:3]:
        machine.begin(tp, PartitionState.ONLINE, 1)
    machine.begin(subjects[3], PartitionState.OFFLINE, 1)
    for tp in subjects:
        machine.change(tp, PartitionState.ONLINE, 2)
    machine.change(subjects[1], PartitionState.OFFLINE, 3)
    assert machine.history(subjects[0]) is machine.history(subjects[2])
    assert [m.before for m in machine.history(subjects[3])] == ["found", "OfflinePartition"]
    assert [m.cause for m in machine.history(subjects[1])] == [1, 2, 3]
    assert [m.cause for m in machine.history(subjects[0])] == [1, 2]
    assert machine[subjects[1]] is PartitionState.OFFLINE
    assert machine[subjects[0]] is PartitionState.ONLINE


def test_legal_divides_and_has_the_history_of_the_refused():
    machine = partition_machine()
    good, bad = TopicPartition("t", 0), TopicPartition("t", 1)
    machine.begin(good, PartitionState.OFFLINE, 1)
    legal, refused = machine.legal([good, bad], PartitionState.ONLINE)
    assert legal == [good]
    (problem,) = refused
    assert (problem.subject, problem.before) == (bad, PartitionState.NON_EXISTENT)
