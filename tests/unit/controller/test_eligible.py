"""Eligible leader replicas besides the ISR: R13, adr/0007."""

import pytest
from msgspec.structs import replace

from ottla.controller import eligibility
from ottla.controller.broker_epochs import restarted_unseen
from ottla.controller.context import Context
from ottla.controller.elections import ElectionKind, elect
from ottla.model.cluster import (
    RECOVERING,
    BrokerInfo,
    Eligible,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicInfo,
)
from ottla.model.ids import TopicPartition

TP = TopicPartition("t", 0)
ID = b"i" * 16
ASSIGNMENT = ReplicaAssignment((1, 2, 3))


def context(*brokers, whole=(1, 2, 3)):
    c = Context(3, 0)
    c.set_brokers(BrokerInfo(b, (), epoch=100 + b) for b in brokers or (1, 2, 3))
    c.clean_brokers = set(whole)
    c.voiding_brokers = {1, 2, 3}
    c.add_topic(TopicInfo("t", ID, {0: ASSIGNMENT}))
    return c


def after(c, before, isr, min_isr=2, **changes):
    new = replace(before, isr=isr, partition_epoch=before.partition_epoch + 1, **changes)
    found = eligibility.next_eligible(c, TP, before, new, min_isr)
    return None if found is None else found.broker_epochs


def test_a_replica_that_leaves_below_min_isr_is_eligible_with_its_broker_epoch_in_the_isr():
    full = LeaderAndIsr(1, 5, (1, 2, 3), 9)
    assert after(context(), full, (1, 2)) is None
    assert after(context(), full, (1,)) == ((2, 102), (3, 103))
    assert after(context(), replace(full, isr=(1, 2)), (1,)) == ((2, 102),)
    assert after(context(), replace(full, isr=(1, 2)), (1,), min_isr=1) is None
    assert after(context(), full, (1, 2), min_isr=9) == ((3, 103),), "capped at the replicas"


def test_no_replica_is_eligible_after_an_unclean_election():
    before = LeaderAndIsr(1, 5, (1,), 9)
    assert after(context(), before, (3,), leader=3, recovery_state=RECOVERING) is None


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({}, True),
        ({"partition_epoch": 8}, False),  # somebody wrote the state without us
    ],
)
def test_an_eligible_replica_stays_so_while_the_record_is_valid(changes, stays):
    c = context()
    record = Eligible(ID, 9, 2, ((2, 102), (3, 103)), znode_version=4)
    c.eligible[TP] = replace(record, **changes)
    found = after(c, LeaderAndIsr(1, 5, (1,), 9), (1,), leader_epoch=6)
    assert found == (((2, 102), (3, 103)) if stays else None)


def test_f11_a_member_that_crashed_is_not_noted_unless_it_joined_since():
    """It was in the ISR before it crashed and stayed in it: it may have lost records."""
    c = context(whole=(1, 3))
    before = LeaderAndIsr(1, 5, (1, 2), 9)
    assert after(c, before, (1,)) is None
    eligibility.note_isr(c, TP, (1,), (1, 2))
    assert after(c, before, (1,)) == ((2, 102),)
    eligibility.note_isr(c, TP, (1, 2), (1,))
    assert not eligibility.has_complete_log(c, 2, TP)
    eligibility.note_isr(c, TP, (1,), (1, 2))
    c.remove_broker(2)
    c.add_broker(BrokerInfo(2, (), epoch=500))
    assert not eligibility.has_complete_log(c, 2, TP), "that was another registration"


def test_f17_a_member_whose_log_dir_failed_is_not_eligible():
    c = context()
    c.offline_dirs[2] = {TP}
    assert after(c, LeaderAndIsr(1, 5, (1, 2), 9), (1,)) is None


def test_eligible_replicas_of_a_record():
    c = context()
    c.eligible[TP] = Eligible(ID, 9, 2, ((2, 102), (3, 103)), znode_version=4)
    state = LeaderAndIsr(-1, 6, (1,), 9)
    assert eligibility.eligible_for(c, TP, state) == (2, 3)
    assert eligibility.eligible_for(c, TP, replace(state, partition_epoch=10)) == ()
    c.remove_broker(2)
    assert eligibility.eligible_for(c, TP, state) == (2, 3), "it may come back whole"
    c.add_broker(BrokerInfo(2, (), epoch=500))
    assert eligibility.eligible_for(c, TP, state) == (3,), "it crashed"
    c.clean_brokers.add(2)
    assert eligibility.eligible_for(c, TP, state) == (2, 3)
    c.set_assignment(TP, ReplicaAssignment((1, 2)))
    assert eligibility.eligible_for(c, TP, state) == (2,)


def test_none_is_noted_under_a_leader_that_does_not_void_records():
    c = context()
    c.voiding_brokers = {2, 3}  # 1 is a JVM broker
    full = LeaderAndIsr(1, 5, (1, 2, 3), 9)
    assert after(c, full, (1,)) is None
    assert after(c, full, (2,), leader=2) is None, "1 may have acknowledged without 3 before"
    c.remove_broker(1)
    assert after(c, full, (1,), leader=-1) == ((2, 102), (3, 103))


def test_what_is_derived_from_a_record_is_written_over_that_one():
    c = context()
    before = LeaderAndIsr(1, 5, (1,), 9)
    c.eligible[TP] = Eligible(ID, 9, 2, ((2, 102),), znode_version=4)
    new = replace(before, leader_epoch=6, partition_epoch=10)
    assert eligibility.next_eligible(c, TP, before, new, 2).znode_version == 4
    c.eligible[TP] = Eligible(ID, 8, 2, ((2, 102),), znode_version=4)
    before = replace(before, isr=(1, 3))
    assert eligibility.next_eligible(c, TP, before, new, 2).znode_version == -1


def test_an_election_rests_on_a_record_where_an_eligible_replica_wins():
    c = context()
    c.eligible[TP] = Eligible(ID, 9, 2, ((2, 102),), znode_version=4)
    before = LeaderAndIsr(-1, 6, (1,), 9)
    assert eligibility.record_behind(c, TP, before, replace(before, leader=2, isr=(2,))) == 4
    assert eligibility.record_behind(c, TP, before, replace(before, leader=1)) is None
    assert eligibility.record_behind(c, TP, before, replace(before, leader=3, isr=(3,))) is None


def held(state, online, kind=ElectionKind.OFFLINE, **known):
    return elect(kind, ASSIGNMENT, state, set(online).__contains__, **known)


LAST = LeaderAndIsr(-1, 6, (1,), 9)


def test_an_eligible_replica_leads_where_the_isr_is_gone():
    outcome = held(LAST, (2, 3), eligible=(3,))
    assert (outcome.state.leader, outcome.state.isr) == (3, (3,))
    assert outcome.state.recovery_state == 0
    assert dict(outcome.rejected) == {1: "offline", 2: "not in the ISR"}


def test_a_live_isr_comes_first_and_a_crashed_one_last():
    assert held(LAST, (1, 2), eligible=(2,)).state.leader == 1
    assert held(LAST, (1, 2), eligible=(2,), crashed=(1,)).state.leader == 2
    assert held(LAST, (1, 3), eligible=(2,), crashed=(1,)).state is None, "2 is waited for"
    assert held(LAST, (1, 3), crashed=(1,)).state.leader == 1, "nobody has more"


def test_an_unclean_election_does_not_wait_for_an_eligible_replica_that_is_away():
    unclean = ElectionKind.UNCLEAN
    ends = {1: (5, 10), 3: (5, 12)}
    assert held(LAST, (1, 3), unclean, eligible=(2,), crashed=(1,), ends=ends).state.leader == 3
    assert held(LAST, (2, 3), unclean, eligible=(2,), ends=ends).state.leader == 2


@pytest.mark.parametrize(
    ("ends", "leader"),
    [
        ({2: (5, 10), 3: (5, 11)}, 3),
        ({2: (6, 10), 3: (5, 11)}, 2),
        ({2: (5, 11), 3: (5, 11)}, 2),
        ({3: (-1, 0)}, 3),
        ({}, 2),
    ],
)
def test_f43_the_longest_log_leads(ends, leader):
    outcome = held(LAST, (2, 3), ElectionKind.UNCLEAN, ends=ends)
    assert (outcome.state.leader, outcome.state.isr) == (leader, (leader,))
    assert outcome.state.recovery_state == RECOVERING
    assert held(LAST, (2, 3), ends=ends).state is None, "only where it is allowed"


def test_f5_the_last_member_that_crashed_unseen_is_hidden_where_others_have_all():
    c = context(whole=(2, 3))
    c.leadership[TP] = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 5, (1,), 9), 3)
    assert restarted_unseen(c, {TP: 50}) == [], "nobody is known to have more"
    c.eligible[TP] = Eligible(ID, 9, 2, ((2, 102),), znode_version=4)
    assert [r.broker for r in restarted_unseen(c, {TP: 50})] == [1]
    assert restarted_unseen(c, {TP: 150}) == [], "it did not restart"
    c.clean_brokers.add(1)
    assert restarted_unseen(c, {TP: 50}) == [], "it kept what it had"
