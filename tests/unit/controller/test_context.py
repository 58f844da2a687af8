"""What the controller knows, and what it makes of it."""

from ottla.controller.broker_epochs import compare
from ottla.controller.context import Context
from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model.cluster import (
    BrokerInfo,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = b"i" * 16


def context(*brokers):
    c = Context(3, 4)
    c.set_brokers(BrokerInfo(b, (), epoch=10 + b) for b in brokers)
    c.add_topic(TopicInfo("t", ID, {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((3,))}))
    c.leadership[T0] = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1, 2)), 3)
    c.leadership[T1] = LeaderIsrAndControllerEpoch(LeaderAndIsr(3, 0, (3,)), 3)
    return c


def test_shutting_down_brokers_are_there_but_not_live():
    c = context(2, 1)
    c.shutting_down.add(1)
    assert c.live_or_shutting_down == [1, 2]
    assert c.live == [2]
    assert not c.is_online(1, T0)
    assert c.is_online(1, T0, or_shutting_down=True)


def test_a_replica_on_a_broken_folder_is_offline():
    c = context(1, 2, 3)
    c.offline_dirs[2] = {T0}
    assert not c.is_online(2, T0)
    assert c.is_online(2, T1)


def test_offline_leaders_are_found_and_deletion_hides_them():
    c = context(2)
    assert c.partitions_with_offline_leader() == [T0, T1]
    c.deleting["t"] = None
    assert c.partitions_with_offline_leader() == []
    assert c.stop_epoch(T0) == -2


def test_led_by_leaves_out_partitions_with_one_replica():
    c = context(1, 2, 3)
    assert c.led_by(1) == [T0]
    assert c.led_by(3) == []


def test_stop_epochs():
    c = context(1)
    assert c.stop_epoch(T0) == 0
    assert c.stop_epoch(TopicPartition("x", 0)) == -1


def test_a_removed_topic_leaves_nothing():
    c = context(1, 2, 3)
    c.partition_states.begin(T0, PartitionState.ONLINE)
    c.replica_states.begin(PartitionReplica(T0, 1), ReplicaState.ONLINE)
    c.offline_dirs[1] = {T0}
    c.reassigning[T0] = None
    c.remove_topic("t")
    assert c.topics == []
    assert not c.leadership
    assert not c.topic_names
    assert not c.reassigning
    assert c.offline_dirs == {1: set()}
    assert len(c.partition_states) == len(c.replica_states) == 0


def test_brokers_compare_by_epoch():
    c = context(1, 2, 3)
    change = compare(
        c,
        [
            BrokerInfo(4, (), epoch=50),
            BrokerInfo(2, (), epoch=51),
            BrokerInfo(1, (), epoch=11),
        ],
    )
    assert [b.id for b in change.new] == [4]
    assert [b.id for b in change.bounced] == [2]
    assert change.dead == (3,)


def test_figures():
    c = context(2, 3)
    c.partition_states.begin(T0, PartitionState.OFFLINE)
    c.leadership[T0] = LeaderIsrAndControllerEpoch(LeaderAndIsr(2, 1, (2,)), 3)
    figures = c.statistics()
    assert figures["offline_partitions"] == 1
    assert figures["preferred_replica_imbalance"] == 1
    assert figures["partitions"] == 2


def test_assignments_are_replaced_and_unknown_ones_are_empty():
    c = context(1, 2, 3)
    new = ReplicaAssignment((4, 1, 2), (4,), (1,))
    c.set_assignment(T0, new)
    assert c.assignment(T0) == new
    assert c.assignment(T0).target == (4, 2)
    assert c.assignment(TopicPartition("t", 7)) == ReplicaAssignment(())
    assert c.assignment(TopicPartition("x", 0)) == ReplicaAssignment(())
    assert c.partitions_of("x") == []
    assert {tp: c.assignment(tp).replicas for tp in c.partitions_of("t")} == {
        T0: (4, 1, 2),
        T1: (3,),
    }


def test_imbalance_counts_leaders_that_are_not_preferred():
    c = Context(3, 4)
    tps = [TopicPartition(name, 0) for name in "abc"]
    for tp in tps:
        c.add_topic(TopicInfo(tp.topic, ID, {0: ReplicaAssignment((1, 2, 3))}))

    def led(tp, leader):
        c.leadership[tp] = LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, 0, (1, 2, 3)), 0)
        return imbalance()

    def imbalance():
        return c.statistics()["preferred_replica_imbalance"]

    assert imbalance() == 0
    assert [led(tps[0], 1), led(tps[1], 2), led(tps[2], 3)] == [0, 1, 2]
    c.set_assignment(tps[0], ReplicaAssignment((2, 3, 1)))
    c.set_assignment(tps[1], ReplicaAssignment((2, 3, 1)))
    assert imbalance() == 2
    c.deleting["c"] = None
    assert imbalance() == 1
    assert led(tps[2], 1) == 1
    assert led(tps[2], -1) == 1, "all partitions of a topic on its way out go offline"
    c.deleting["a"] = None
    assert imbalance() == 0
    for tp in tps:
        c.remove_topic(tp.topic)
    assert imbalance() == 0


def test_a_topic_being_deleted_needs_leaders_while_it_is_reassigned():
    c = Context(3, 4)
    c.add_topic(TopicInfo("t", ID, {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((1,))}))
    for tp in (T0, T1):
        c.leadership[tp] = LeaderIsrAndControllerEpoch(LeaderAndIsr(-1, 0, (1,)), 0)
        c.partition_states.begin(tp, PartitionState.OFFLINE)
    c.deleting["t"] = None
    assert c.waiting_for_leader() == []
    assert c.partitions_with_offline_leader() == []
    c.reassigning[T1] = None
    assert c.waiting_for_leader() == [T1]
    assert c.partitions_with_offline_leader() == [T1]
