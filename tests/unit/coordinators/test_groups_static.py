"""Static members (KIP-345, KIP-814)."""

from ottla.model.errors import ErrorCode as E

from .conftest import RANGE, Desk


def test_a_static_member_comes_back_without_a_rebalance(quick):
    leader, follower = quick.static_pair()
    back = quick.join(instance="F")
    assert back.error is E.NONE
    assert back.result.generation == 1
    assert back.result.leader == leader
    assert back.result.members == ()
    assert quick.state() == "Stable"
    new = back.result.member_id
    assert new != follower
    assert quick.sync(new, instance="F").result.assignment == b"f"
    assert quick.stored[-1][0] == "STATIC_MEMBER"


def test_the_old_id_is_fenced(quick):
    _, follower = quick.static_pair()
    quick.join(instance="F")
    assert quick.heartbeat(follower, instance="F") is E.FENCED_INSTANCE_ID
    assert quick.sync(follower, instance="F").error is E.FENCED_INSTANCE_ID
    assert quick.join(follower, instance="F").error is E.FENCED_INSTANCE_ID
    assert quick.commit(1, follower, "F") is E.FENCED_INSTANCE_ID
    assert quick.commit(1, follower, "F", transactional=True) is E.FENCED_INSTANCE_ID
    assert quick.leave((follower, "F")) == [E.FENCED_INSTANCE_ID]
    assert quick.heartbeat(follower) is E.UNKNOWN_MEMBER_ID


def test_a_static_leader_that_returns_leads_only_where_it_can_skip_the_assignment(quick):
    leader, _ = quick.static_pair()
    back = quick.join(instance="L")
    assert back.result.leader == leader
    assert back.result.members == ()
    assert quick.group().leader == back.result.member_id
    again = quick.join(instance="L", may_skip=True)
    assert again.result.leader == again.result.member_id
    assert again.result.skip_assignment
    assert len(again.result.members) == 2
    assert not quick.join(instance="F", may_skip=True).result.skip_assignment


def test_coming_back_with_other_assignors_rebalances(quick):
    quick.static_pair(protocols=[*RANGE, ("roundrobin", b"")])
    back = quick.join(instance="F", protocols=[("roundrobin", b"")])
    assert back.waiting
    assert quick.state() == "PreparingRebalance"


def test_coming_back_while_completing_rebalances(quick):
    requests = [quick.join(instance=name) for name in ("L", "F")]
    quick.run(0)
    waiting = quick.sync(requests[1].result.member_id, instance="F")
    back = quick.join(instance="F")
    assert waiting.error is E.FENCED_INSTANCE_ID
    assert back.waiting
    assert quick.state() == "PreparingRebalance"
    joined = quick.join(requests[0].result.member_id, instance="L")
    assert back.result.generation == joined.result.generation == 2


def test_coming_back_while_joining_fences_the_join_before(desk):
    first = desk.join(instance="L")
    second = desk.join(instance="L")
    assert first.error is E.FENCED_INSTANCE_ID
    desk.run_until_answered([second])
    assert second.error is E.NONE
    assert len(desk.group().members) == 1


def test_a_return_that_could_not_be_stored_changes_nothing(quick):
    leader, follower = quick.static_pair()
    quick.holding = True
    back = quick.join(instance="F")
    assert back.waiting
    quick.release(E.NOT_COORDINATOR)
    assert back.error is E.NOT_COORDINATOR
    assert back.result.member_id == ""
    assert quick.heartbeat(follower, instance="F") is E.NONE
    assert set(quick.group().members) == {leader, follower}


def test_a_return_is_completed_by_the_rebalance_that_overtakes_it(quick):
    leader, _ = quick.static_pair()
    quick.holding = True
    back = quick.join(instance="F")
    quick.join(leader, instance="L")
    assert back.result.generation == 2
    quick.release()
    assert len(back.answers) == 1


def test_a_return_written_while_a_rebalance_waits_is_completed_by_that(quick):
    quick.static_pair()
    quick.holding = True
    back = quick.join(instance="F")
    quick.join()
    quick.release()
    assert back.waiting
    joined = quick.join(quick.group().static_members["L"], instance="L")
    assert back.result.generation == joined.result.generation == 2


def test_unknown_instance_with_a_member_id(quick):
    leader, _ = quick.static_pair()
    assert quick.join(leader, instance="other").error is E.UNKNOWN_MEMBER_ID
    assert quick.heartbeat(leader, instance="other") is E.UNKNOWN_MEMBER_ID


def test_each_return_has_an_id_of_its_own(desk):
    ids = {desk.join(instance="L").answers or desk.group().static_members["L"] for _ in range(5)}
    assert len(ids) == 5


def test_static_members_leave_by_instance(quick):
    quick.static_pair()
    assert quick.leave(("", "F"), ("", "nobody")) == [E.NONE, E.UNKNOWN_MEMBER_ID]
    assert list(quick.group().static_members) == ["L"]
    assert quick.state() == "PreparingRebalance"


def test_static_members_need_no_id_first(desk):
    assert desk.join(instance="L", id_required=True).waiting


def test_a_static_follower_that_does_not_rejoin_keeps_its_place(quick):
    leader, follower = quick.static_pair(session_ms=200_000)
    back = quick.join(leader, instance="L", session_ms=200_000)
    quick.run(60_000)
    assert back.result.generation == 2
    assert set(quick.group().members) == {leader, follower}


def test_a_static_leader_that_does_not_rejoin_hands_over(quick):
    leader, follower = quick.static_pair(session_ms=200_000)
    changed = (("range", b"changed"),)
    back = quick.join(follower, instance="F", protocols=changed, session_ms=200_000)
    quick.run(60_000)
    assert back.result.leader == follower
    assert leader in quick.group().members


def test_a_rebalance_that_no_static_member_comes_to_is_looked_at_again():
    desk = Desk(initial_rebalance_delay_ms=0)
    leader, follower = desk.static_pair(session_ms=30_000, rebalance_ms=10_000)
    desk.join(instance="third", session_ms=30_000, rebalance_ms=10_000)
    assert desk.state() == "PreparingRebalance"
    third = desk.group().static_members["third"]
    desk.leave((third, "third"))
    desk.run(9_999)
    assert desk.state() == "PreparingRebalance"
    assert set(desk.group().members) == {leader, follower}
    desk.run(30_000)
    assert desk.state() == "Empty"


def test_no_timeout_of_a_client_makes_us_look_without_end(quick):
    quick.static_pair(session_ms=30_000)
    for member in quick.group().members.values():
        member.rebalance_timeout_ms = 0
    quick.join(instance="third", session_ms=30_000, rebalance_ms=0)
    quick.leave(("", "third"))
    assert quick.run(1_000) < 100


def test_the_session_of_a_member_with_a_new_id_ends_too(quick):
    leader, _ = quick.static_pair(session_ms=10_000)
    quick.join(instance="F")
    quick.run(6_000)
    assert quick.heartbeat(leader, instance="L") is E.NONE
    quick.run(4_000)
    assert "F" not in quick.group().static_members
    assert "L" in quick.group().static_members
