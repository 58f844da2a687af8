"""Elections of each kind, by example and by property."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.elections import ElectionKind, elect, initial
from ottla.model.cluster import RECOVERING, LeaderAndIsr, ReplicaAssignment

K = ElectionKind
A123 = ReplicaAssignment((1, 2, 3))


def state(leader, *isr, epoch=5, recovery=0):
    return LeaderAndIsr(leader, epoch, isr, 7, recovery)


def online(*brokers):
    return lambda broker: broker in brokers


def test_the_first_live_replica_leads_a_new_partition():
    outcome = initial(A123, online(2, 3))
    assert outcome.state == LeaderAndIsr(2, 0, (2, 3))
    assert outcome.recipients == (2, 3)
    assert (1, "offline") in outcome.rejected


def test_a_new_partition_without_live_replicas_has_no_leader():
    assert initial(A123, online()).state is None


def test_offline_takes_the_first_live_isr_member_in_assignment_order():
    outcome = elect(K.OFFLINE, A123, state(1, 3, 2, 1), online(2, 3))
    assert outcome.state == LeaderAndIsr(2, 6, (3, 2), 7)
    assert dict(outcome.rejected) == {1: "offline", 3: "later in the assignment"}


def test_offline_without_live_isr_elects_none():
    outcome = elect(K.OFFLINE, A123, state(1, 1), online(2, 3))
    assert outcome.state is None
    assert dict(outcome.rejected) == {
        1: "offline",
        2: "not in the ISR",
        3: "not in the ISR",
    }


def test_unclean_prefers_the_isr_and_else_marks_the_state():
    clean = elect(K.UNCLEAN, A123, state(1, 1, 3), online(2, 3))
    assert clean.state is not None
    assert (clean.state.leader, clean.state.recovery_state) == (3, 0)
    outcome = elect(K.UNCLEAN, A123, state(1, 1), online(2, 3))
    assert outcome.state == LeaderAndIsr(2, 6, (2,), 7, RECOVERING)


def test_a_clean_election_keeps_recovering():
    outcome = elect(K.OFFLINE, A123, state(1, 2, recovery=RECOVERING), online(2))
    assert outcome.state is not None
    assert outcome.state.recovery_state == RECOVERING


def test_reassignment_elects_within_the_target_and_keeps_the_isr():
    assignment = ReplicaAssignment((4, 5, 1, 2), (4, 5), (1, 2))
    outcome = elect(K.REASSIGNMENT, assignment, state(1, 1, 2, 5), online(1, 2, 4, 5))
    assert outcome.state == LeaderAndIsr(5, 6, (1, 2, 5), 7)
    assert outcome.recipients == (4, 5)
    assert elect(K.REASSIGNMENT, assignment, state(1, 1, 2), online(1, 2, 4, 5)).state is None


def test_preferred_is_the_first_replica_or_none():
    outcome = elect(K.PREFERRED, A123, state(2, 2, 1), online(1, 2, 3))
    assert outcome.state == LeaderAndIsr(1, 6, (2, 1), 7)
    assert elect(K.PREFERRED, A123, state(2, 2, 3), online(1, 2, 3)).state is None
    assert elect(K.PREFERRED, A123, state(2, 2, 1), online(2, 3)).state is None
    assert elect(K.PREFERRED, ReplicaAssignment(()), state(2, 2), online(2)).state is None


def test_controlled_shutdown_leaves_out_all_brokers_that_shut_down():
    outcome = elect(
        K.CONTROLLED_SHUTDOWN,
        A123,
        state(1, 1, 2, 3),
        online(1, 2, 3),
        shutting_down={1, 2}.__contains__,
    )
    assert outcome.state == LeaderAndIsr(3, 6, (3,), 7)
    assert outcome.recipients == (1, 2, 3)
    assert dict(outcome.rejected) == {1: "shutting down", 2: "shutting down"}
    last = elect(
        K.CONTROLLED_SHUTDOWN, A123, state(1, 1), online(1, 2), shutting_down={1}.__contains__
    )
    assert last.state is None


BROKERS = st.lists(st.integers(0, 6), unique=True, min_size=1, max_size=5)


@given(replicas=BROKERS, isr=BROKERS, live=BROKERS, leaving=BROKERS, kind=st.sampled_from(list(K)))
def test_the_laws_of_elections(replicas, isr, live, leaving, kind):
    before = LeaderAndIsr(isr[0], 3, tuple(isr), 9)
    outcome = elect(
        kind,
        ReplicaAssignment(tuple(replicas)),
        before,
        set(live).__contains__,
        shutting_down=set(leaving).__contains__,
    )
    named = {broker for broker, _ in outcome.rejected}
    assert len(named) == len(outcome.rejected)
    after = outcome.state
    if after is None:
        assert named == set(replicas)
        return
    assert named == set(replicas) - {after.leader}
    assert after.leader in live
    assert after.leader in replicas
    assert after.leader in after.isr
    assert after.leader_epoch == 4
    assert after.partition_epoch == 9
    if kind is not K.UNCLEAN:
        assert after.leader in isr
        assert set(after.isr) <= set(isr)
    if kind is K.CONTROLLED_SHUTDOWN:
        assert not set(after.isr) & set(leaving)
    if kind is K.OFFLINE:
        assert set(after.isr) == set(isr) & set(live)
    assert (after.recovery_state == RECOVERING) == (after.leader not in isr)
