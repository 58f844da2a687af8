"""SyncGroup, Heartbeat, LeaveGroup, commits' permission (Kafka's GroupCoordinatorTest)."""

import pytest

from ottla.coordinators.group import Group, GroupState
from ottla.model.errors import ErrorCode as E

from .conftest import GROUP


def completing(desk, count=2, **join):
    """Make a group that waits for its assignment; return the ids, the leader first."""
    requests = [desk.join(**join) for _ in range(count)]
    desk.run(0)
    return [t.result.member_id for t in requests]


def dead(desk):
    desk.groups.groups[GROUP] = group = Group(GROUP, 0)
    group.state = GroupState.DEAD


# --- SyncGroup ----------------------------------------------------------------------------------


def test_sync_group_from_unknown_group(quick):
    assert quick.sync("nobody", 1).error is E.UNKNOWN_MEMBER_ID


def test_sync_group_from_unknown_member(quick):
    quick.stable()
    assert quick.sync("nobody").error is E.UNKNOWN_MEMBER_ID


def test_sync_group_from_illegal_generation(quick):
    (leader,) = completing(quick, 1)
    assert quick.sync(leader, 2, {leader: b""}).error is E.ILLEGAL_GENERATION


def test_sync_dead_group(quick):
    dead(quick)
    assert quick.sync("m", 1).error is E.COORDINATOR_NOT_AVAILABLE


def test_sync_group_empty_assignment(quick):
    (leader,) = completing(quick, 1)
    result = quick.sync(leader).result
    assert (result.error, result.assignment) == (E.NONE, b"")


def test_sync_group_follower_after_leader(quick):
    leader, follower = completing(quick)
    assert quick.sync(leader, assignment={leader: b"l", follower: b"f"}).result.assignment == b"l"
    assert quick.sync(follower).result.assignment == b"f"


def test_sync_group_leader_after_follower(quick):
    leader, follower = completing(quick)
    waiting = quick.sync(follower)
    assert waiting.waiting
    assert quick.sync(leader, assignment={leader: b"l", follower: b"f"}).result.assignment == b"l"
    assert waiting.result.assignment == b"f"
    assert waiting.result.protocol == "range"


def test_an_assignment_goes_out_only_when_it_is_in_the_log(quick):
    leader, follower = completing(quick)
    quick.holding = True
    waiting = [quick.sync(follower), quick.sync(leader, assignment={leader: b"l"})]
    assert all(t.waiting for t in waiting)
    assert quick.state() == "CompletingRebalance"
    quick.release()
    assert [t.result.assignment for t in waiting] == [b"", b"l"]
    assert quick.state() == "Stable"


def test_an_assignment_that_could_not_be_stored_makes_all_join_anew(quick):
    leader, follower = completing(quick)
    quick.holding = True
    waiting = [quick.sync(follower), quick.sync(leader, assignment={leader: b"l"})]
    quick.release(E.NOT_COORDINATOR)
    assert [t.error for t in waiting] == [E.NOT_COORDINATOR] * 2
    assert quick.state() == "PreparingRebalance"


def test_an_assignment_of_a_former_generation_reaches_no_member(quick):
    leader, follower = completing(quick)
    quick.holding = True
    waiting = quick.sync(leader, assignment={leader: b"old", follower: b"old"})
    quick.leave(follower)
    assert waiting.error is E.REBALANCE_IN_PROGRESS
    rejoined = quick.join(leader)
    assert rejoined.result.generation == 2
    quick.release()
    assert quick.state() == "CompletingRebalance"
    assert quick.group().members[leader].assignment == b""
    quick.holding = False
    assert quick.sync(leader, assignment={leader: b"new"}).result.assignment == b"new"


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (None, None, E.NONE),
        ("consumer", "range", E.NONE),
        ("consumer", None, E.NONE),
        ("connect", "range", E.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "roundrobin", E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_sync_group_checks_protocol_type_and_name(quick, kind, name, error):
    (leader,) = completing(quick, 1)
    assert quick.sync(leader, protocol_type=kind, protocol=name).error is error


def test_a_stable_group_repeats_the_assignment(quick):
    leader, follower = quick.stable(2)
    assert quick.sync(follower).result.assignment == follower.encode()
    assert quick.sync(leader, assignment={leader: b"new"}).result.assignment == leader.encode()


def test_sync_while_preparing_gets_rebalance_in_progress(quick):
    leader, follower = quick.stable(2)
    quick.join(leader)
    assert quick.sync(follower).error is E.REBALANCE_IN_PROGRESS


def test_a_sync_sent_anew_releases_the_one_before(quick):
    _, follower = completing(quick)
    first, second = quick.sync(follower), quick.sync(follower)
    assert first.error is E.REBALANCE_IN_PROGRESS
    assert second.waiting


def test_leader_failure_in_sync_group(quick):
    leader, follower = completing(quick)
    waiting = quick.sync(follower)
    quick.run(10_000)
    assert waiting.error is E.REBALANCE_IN_PROGRESS
    assert leader not in quick.group().members
    assert quick.join(follower).result.leader == follower


def test_rebalance_times_out_when_sync_is_not_received_from_followers(quick):
    ids = completing(quick, 3, session_ms=200_000, rebalance_ms=20_000)
    quick.sync(ids[0], assignment=dict.fromkeys(ids, b"x"))
    assert quick.state() == "Stable"
    quick.run(20_000)
    assert quick.state() == "PreparingRebalance"
    assert list(quick.group().members) == [ids[0]]
    assert quick.heartbeat(ids[1], 1) is E.UNKNOWN_MEMBER_ID


def test_rebalance_times_out_when_sync_is_not_received_from_the_leader(quick):
    ids = completing(quick, 3, session_ms=200_000, rebalance_ms=20_000)
    waiting = [quick.sync(m) for m in ids[1:]]
    quick.run(20_000)
    assert [t.error for t in waiting] == [E.REBALANCE_IN_PROGRESS] * 2
    assert sorted(quick.group().members) == sorted(ids[1:])
    assert quick.group().leader in ids[1:]


def test_rebalance_does_not_time_out_when_all_syncs_are_received(quick):
    ids = completing(quick, 3, session_ms=200_000, rebalance_ms=20_000)
    for m in ids[1:]:
        quick.sync(m)
    quick.sync(ids[0], assignment=dict.fromkeys(ids, b"x"))
    quick.run(100_000)
    assert quick.state() == "Stable"


# --- Heartbeat ----------------------------------------------------------------------------------


def test_heartbeat_unknown_group_dead_group_empty_group(quick):
    assert quick.heartbeat("m", 1) is E.UNKNOWN_MEMBER_ID
    dead(quick)
    assert quick.heartbeat("m", 1) is E.COORDINATOR_NOT_AVAILABLE
    quick.groups.groups[GROUP] = Group(GROUP, 0)
    assert quick.heartbeat("m", 0) is E.UNKNOWN_MEMBER_ID


def test_valid_heartbeat_and_bad_ones(quick):
    (leader,) = quick.stable()
    assert quick.heartbeat(leader) is E.NONE
    assert quick.heartbeat(leader, 2) is E.ILLEGAL_GENERATION
    assert quick.heartbeat("nobody") is E.UNKNOWN_MEMBER_ID


def test_heartbeat_during_rebalance(quick):
    leader, follower = quick.stable(2)
    quick.join(leader)
    assert quick.heartbeat(follower) is E.REBALANCE_IN_PROGRESS


def test_heartbeat_while_completing_is_a_normal_one(quick):
    leader, _ = completing(quick)
    assert quick.heartbeat(leader) is E.NONE


def test_session_timeout(quick):
    (leader,) = quick.stable()
    quick.run(9_999)
    assert quick.state() == "Stable"
    quick.run(1)
    assert quick.state() == "Empty"
    assert quick.heartbeat(leader) is E.UNKNOWN_MEMBER_ID


def test_heartbeat_and_commit_maintain_the_session(quick):
    (leader,) = quick.stable()
    for _ in range(5):
        quick.run(6_000)
        assert quick.heartbeat(leader) is E.NONE
        quick.run(6_000)
        assert quick.commit(1, leader) is E.NONE
    assert quick.state() == "Stable"
    assert len(quick.timers) <= 3


def test_a_session_ends_one_timeout_after_the_last_heartbeat(quick):
    """Heartbeats set no timer: the one that expires meanwhile is set again."""
    (leader,) = quick.stable()
    for wait_ms in (1, 6_000, 9_999, 3):
        quick.run(wait_ms)
        assert quick.heartbeat(leader) is E.NONE
    quick.run(9_999)
    assert quick.state() == "Stable"
    quick.run(1)
    assert quick.state() == "Empty"


def test_thousands_of_heartbeats_cost_no_heap(quick):
    ids = quick.stable(200, session_ms=1_000_000)
    before = len(quick.timers)
    for _ in range(50):
        quick.run(1_000)
        assert all(quick.heartbeat(m) is E.NONE for m in ids)
    assert len(quick.timers) <= before


def test_a_rebalance_does_not_end_the_session_of_a_member_that_waits(quick):
    leader, follower = quick.stable(2, rebalance_ms=60_000)
    waiting = quick.join(leader)
    for _ in range(6):
        quick.run(9_000)
        quick.heartbeat(follower)
    assert waiting.waiting
    assert quick.join(follower).error is E.NONE
    assert waiting.error is E.NONE


# --- LeaveGroup ---------------------------------------------------------------------------------


def test_leave_group_unknown_group_dead_group_unknown_member(quick):
    assert quick.leave("m") == [E.UNKNOWN_MEMBER_ID]
    dead(quick)
    assert quick.leave("m") is E.COORDINATOR_NOT_AVAILABLE
    del quick.groups.groups[GROUP]
    quick.stable()
    assert quick.leave("nobody") == [E.UNKNOWN_MEMBER_ID]


def test_valid_leave_group(quick):
    leader, follower = quick.stable(2)
    assert quick.leave(leader) == [E.NONE]
    assert quick.state() == "PreparingRebalance"
    assert quick.join(follower).result.leader == follower


def test_leaving_while_joining_completes_the_join(quick):
    leader, _ = quick.stable(2)
    waiting = quick.join(leader)
    assert quick.leave(leader) == [E.NONE]
    assert waiting.error is E.UNKNOWN_MEMBER_ID


def test_leaving_while_syncing_completes_the_sync(quick):
    leader, follower = completing(quick)
    waiting = quick.sync(follower)
    assert quick.leave(follower) == [E.NONE]
    assert waiting.error is E.UNKNOWN_MEMBER_ID
    assert quick.join(leader).result.generation == 2


def test_batch_leave(quick):
    leader, follower = quick.stable(2)
    pending = quick.join(id_required=True).result.member_id
    codes = quick.leave(follower, "nobody", pending, ("", "no-instance"))
    assert codes == [E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE, E.UNKNOWN_MEMBER_ID]
    assert list(quick.group().members) == [leader]
    assert not quick.group().pending_members


# --- valid commits -----------------------------------------------------------------------------


def test_commit_offset_from_unknown_group(quick):
    assert quick.commit(1, "m") is E.ILLEGAL_GENERATION
    assert GROUP not in quick.groups.groups


def test_commit_offset_with_default_generation(quick):
    assert quick.commit() is E.NONE
    assert quick.state() == "Empty"
    # An administrator may name anything for an empty group.
    assert quick.commit(-1, "whoever", "instance") is E.NONE


def test_commit_offsets_of_a_group_with_members(quick):
    (leader,) = quick.stable()
    assert quick.commit() is E.UNKNOWN_MEMBER_ID
    assert quick.commit(1, leader) is E.NONE
    assert quick.commit(2, leader) is E.ILLEGAL_GENERATION
    assert quick.commit(1, "nobody") is E.UNKNOWN_MEMBER_ID
    quick.leave(leader)
    assert quick.commit() is E.NONE
    assert quick.commit(2, leader) is E.UNKNOWN_MEMBER_ID


def test_commit_offset_in_completing_rebalance(quick):
    leader, _ = completing(quick)
    assert quick.commit(1, leader) is E.REBALANCE_IN_PROGRESS
    assert quick.commit(1, "nobody") is E.UNKNOWN_MEMBER_ID
    assert quick.commit(2, leader) is E.ILLEGAL_GENERATION


def test_commit_offset_while_preparing(quick):
    leader, follower = quick.stable(2)
    quick.join(leader)
    assert quick.commit(1, follower) is E.NONE


def test_offset_commit_dead_group(quick):
    dead(quick)
    assert quick.commit(1, "m") is E.COORDINATOR_NOT_AVAILABLE
    assert quick.commit() is E.COORDINATOR_NOT_AVAILABLE


def test_transactional_commits(quick):
    assert quick.commit(transactional=True) is E.NONE
    assert quick.state() == "Empty"
    (leader,) = quick.stable()
    # Before version 3 the request names neither member nor generation.
    assert quick.commit(transactional=True) is E.NONE
    assert quick.commit(1, leader, transactional=True) is E.NONE
    assert quick.commit(1, "nobody", transactional=True) is E.UNKNOWN_MEMBER_ID
    assert quick.commit(5, leader, transactional=True) is E.ILLEGAL_GENERATION
    fenced = quick.commit(1, leader, "instance", transactional=True)
    assert fenced is E.UNKNOWN_MEMBER_ID
