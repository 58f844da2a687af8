"""Brokers that restarted while there was no controller (R8, F11)."""

import pytest

from ottla.controller.broker_epochs import restarted_unseen
from ottla.controller.context import Context
from ottla.controller.states import PartitionReplica
from ottla.model.cluster import (
    BrokerInfo,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.ids import TopicPartition

TP = TopicPartition("t", 0)


def context(epochs, isr, leader):
    context = Context(epoch=2)
    context.set_brokers(BrokerInfo(b, (), epoch=epoch) for b, epoch in epochs.items())
    context.add_topic(TopicInfo("t", b"i" * 16, {0: ReplicaAssignment((1, 2, 3))}))
    state = LeaderAndIsr(leader, 7, isr)
    context.leadership[TP] = LeaderIsrAndControllerEpoch(state, 1)
    return context


@pytest.mark.parametrize(
    ("epochs", "isr", "expected"),
    [
        ({1: 10, 2: 11, 3: 12}, (1, 2, 3), []),
        ({1: 60, 2: 11, 3: 12}, (1, 2, 3), [1]),
        ({1: 60, 2: 11, 3: 61}, (1, 2, 3), [1, 3]),
        # No broker is known to have stayed up: none is better than another.
        ({1: 60, 2: 61, 3: 62}, (1, 2, 3), []),
        ({1: 60}, (1,), []),
        # The others of the ISR are gone, or the one that lived on is not in it.
        ({1: 60}, (1, 2), []),
        ({1: 60, 2: 11}, (1,), []),
        # Not in the ISR: nothing to lose.
        ({1: 60, 2: 11, 3: 12}, (2, 3), []),
    ],
)
def test_members_that_restarted_since_their_state_was_written(epochs, isr, expected):
    found = restarted_unseen(context(epochs, isr, isr[0]), {TP: 50})
    assert found == [PartitionReplica(TP, b) for b in expected]


def test_topics_on_their_way_out_are_left_alone():
    there = context({1: 60, 2: 11, 3: 12}, (1, 2, 3), 1)
    there.deleting["t"] = None
    assert restarted_unseen(there, {TP: 50}) == []
