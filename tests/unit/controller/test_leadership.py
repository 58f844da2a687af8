"""Plans for many partitions."""

from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind
from ottla.controller.leadership import (
    needs_unclean_config,
    plan_election,
    plan_epoch_bump,
    plan_isr_removal,
    plan_new,
)
from ottla.model.cluster import (
    BrokerInfo,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.ids import TopicPartition

T = [TopicPartition("t", i) for i in range(4)]


def context(*brokers, epoch=5):
    c = Context(epoch, 0)
    c.set_brokers(BrokerInfo(b, ()) for b in brokers)
    c.add_topic(TopicInfo("t", b"i" * 16, {i: ReplicaAssignment((1, 2, 3)) for i in range(4)}))
    return c


def read(leader, *isr, epoch=2, version=9, controller=5):
    return LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, epoch, isr, version), controller)


def test_new_partitions():
    plan = plan_new(context(2), T[:2])
    assert plan.writes == {tp: LeaderAndIsr(2, 0, (2,)) for tp in T[:2]}
    assert plan.recipients == dict.fromkeys(T[:2], (2,))
    assert str(plan_new(context(9), T[:1]).failures[T[0]]) == "no live replica"


def test_a_plan_decides_from_what_was_read():
    plan = plan_election(
        context(2, 3),
        ElectionKind.OFFLINE,
        T,
        {T[0]: read(1, 1, 2), T[1]: read(1, 1), T[2]: read(1, 1, 2, controller=6)},
        {},
    )
    assert plan.writes == {T[0]: LeaderAndIsr(2, 3, (2,), 9)}
    assert not plan.failures[T[1]].superseded
    assert plan.failures[T[2]].superseded
    assert "does not exist" in str(plan.failures[T[3]])
    assert plan.decisions[T[0]].before == LeaderAndIsr(1, 2, (1, 2), 9)


def test_unclean_election_only_where_the_isr_is_dead():
    c = context(2, 3)
    states = {T[0]: read(1, 1, 2), T[1]: read(1, 1)}
    assert needs_unclean_config(c, T[:1], states) == []
    assert needs_unclean_config(c, T, states) == ["t"]
    plan = plan_election(c, ElectionKind.OFFLINE, T[1:2], states, {"t": True})
    assert plan.writes[T[1]].leader == 2
    assert plan.decisions[T[1]].kind == "unclean"


def test_controlled_shutdown_counts_leaving_brokers_as_there():
    c = context(1, 2, 3)
    c.shutting_down.add(1)
    plan = plan_election(c, ElectionKind.CONTROLLED_SHUTDOWN, T[:1], {T[0]: read(1, 1, 3)}, {})
    assert plan.writes == {T[0]: LeaderAndIsr(3, 3, (3,), 9)}
    assert plan.recipients[T[0]] == (1, 2, 3)


def test_isr_removal():
    plan = plan_isr_removal(
        context(1, 2),
        3,
        T,
        {T[0]: read(1, 1, 3), T[1]: read(3, 3, 1), T[2]: read(3, 3), T[3]: read(1, 1)},
    )
    assert plan.writes == {
        T[0]: LeaderAndIsr(1, 3, (1,), 9),
        T[1]: LeaderAndIsr(-1, 3, (1,), 9),
        T[2]: LeaderAndIsr(-1, 3, (3,), 9),
    }
    assert plan.unchanged == {T[3]: LeaderAndIsr(1, 2, (1,), 9)}


def test_isr_removal_of_a_topic_being_deleted_does_not_mind_a_missing_state():
    c = context(1)
    assert T[0] in plan_isr_removal(c, 3, T[:1], {}).failures
    c.deleting["t"] = None
    assert not plan_isr_removal(c, 3, T[:1], {}).failures


def test_epoch_bump_changes_nothing_else():
    plan = plan_epoch_bump(context(1), T[:1], {T[0]: read(1, 1, 2)})
    assert plan.writes == {T[0]: LeaderAndIsr(1, 3, (1, 2), 9)}


def test_plans_merge():
    c = context(1, 2, 3)
    plan = plan_new(c, T[:2])
    plan.merge(plan_new(c, T[2:]))
    assert list(plan.writes) == T
    assert len(plan.decisions) == 4
