"""The in-sync rules, on values."""

import pytest

from ottla.model.errors import ErrorCode
from ottla.replication import isr as rules
from ottla.replication.isr import NEVER, AfterRejection, Follower, IsrState

LAG = 10_000


def follower(broker, end, *, caught_up=NEVER):
    f = Follower(broker)
    f.log_end_offset = end
    f.last_caught_up_ms = caught_up
    return f


def hw(leader_end, followers, maximal, *, now=0, alive=(1, 2, 3)):
    return rules.high_watermark(leader_end, followers, maximal, now, LAG, alive)


def test_r4_the_slowest_member_decides():
    assert hw(10, [follower(2, 7), follower(3, 9)], (1, 2, 3)) == 7
    assert hw(10, [follower(2, 7), follower(3, 9)], (1, 3)) == 9
    assert hw(10, [follower(2, 7), follower(3, 9)], (1,)) == 10


def test_r4_a_member_without_a_fetch_in_this_epoch_holds_it():
    f = follower(2, 8, caught_up=5)
    f.forget(in_isr=True, now_ms=100)
    assert hw(10, [f], (1, 2)) == rules.UNKNOWN_OFFSET


def test_a_follower_about_to_join_is_waited_for():
    near = follower(2, 8, caught_up=50)
    assert hw(10, [near], (1,), now=100) == 8
    assert hw(10, [near], (1,), now=100, alive=()) == 10
    assert hw(10, [near], (1,), now=50 + LAG + 1) == 10


def test_a_follower_that_was_just_refused_is_not_waited_for():
    near = follower(2, 8, caught_up=50)
    near.not_before_ms = 150
    assert hw(10, [near], (1,), now=149) == 10
    assert hw(10, [near], (1,), now=150) == 8
    assert hw(10, [near], (1, 2), now=149) == 8, "a member is waited for whatever happens (R4)"


def test_a_fresh_epoch_does_not_wait_for_outsiders():
    f = Follower(2)
    f.forget(in_isr=False, now_ms=0)
    assert hw(10, [f], (1,), now=0) == 10


def test_r5_both_conditions_are_needed():
    state = IsrState.of((1,))
    assert rules.may_join(follower(2, 10), state, high_watermark=10, epoch_start=10)
    assert not rules.may_join(follower(2, 9), state, high_watermark=10, epoch_start=5)
    assert not rules.may_join(follower(2, 9), state, high_watermark=5, epoch_start=10)
    assert not rules.may_join(follower(2, 10), IsrState.of((1, 2)), 0, 0)
    assert not rules.may_join(follower(2, 10), state.expand(3), 0, 0)


def test_r6_one_change_at_a_time():
    state = IsrState.of((1, 2)).expand(3)
    late = rules.out_of_sync(state, 1, {2: follower(2, 0)}, 10, 1e9, LAG)
    assert late == ()


def test_r7_maximal():
    state = IsrState.of((1, 2))
    grown = state.expand(3)
    assert (grown.committed, grown.maximal, grown.in_flight) == ((1, 2), (1, 2, 3), True)
    less = state.shrink([2])
    assert (less.proposed, less.maximal) == ((1,), (1, 2))
    assert less.back() == state


def test_out_of_sync():
    followers = {2: follower(2, 10), 3: follower(3, 9, caught_up=0), 4: follower(4, 9)}
    state = IsrState.of((1, 2, 3, 4, 5))
    # 5 is a member but no replica any more (KAFKA-9672); 1 is the leader.
    assert rules.out_of_sync(state, 1, followers, 10, LAG, LAG) == (4, 5)
    assert rules.out_of_sync(state, 1, followers, 10, LAG + 1, LAG) == (3, 4, 5)


def test_r13_min_isr_is_capped():
    assert rules.effective_min_isr(3, 2) == 2
    assert rules.effective_min_isr(1, 3) == 1


class TestObserve:
    def test_at_the_end(self):
        f = Follower(2)
        assert f.observe(10, 0, 500, 10, 7)
        assert (f.log_end_offset, f.last_caught_up_ms, f.broker_epoch) == (10, 500, 7)
        assert not f.observe(10, 0, 600, 10, 7)
        assert f.last_caught_up_ms == 600

    def test_at_what_was_the_end_at_the_previous_fetch(self):
        """Under a steady stream a follower never fetches from the very end."""
        f = Follower(2)
        f.observe(5, 0, 100, 10, -1)
        assert f.last_caught_up_ms == NEVER
        f.observe(10, 0, 200, 20, -1)
        assert f.last_caught_up_ms == 100
        f.observe(15, 0, 300, 30, -1)
        assert f.last_caught_up_ms == 100

    def test_r8_an_earlier_incarnation(self):
        f = Follower(2)
        f.observe(10, 0, 500, 10, 7)
        assert f.is_stale(6)
        assert not f.is_stale(7)
        assert not f.is_stale(-1)
        f.forget(in_isr=True, now_ms=0)
        assert f.is_stale(6)

    def test_r8_a_later_incarnation(self):
        f = Follower(2)
        assert not f.registered_again(7)  # it had none before: nothing was observed
        f.observe(10, 0, 500, 10, 7)
        assert f.registered_again(8)
        assert not f.registered_again(7)
        assert not f.registered_again(-1)

    def test_r8_a_broker_that_no_longer_names_its_epoch(self):
        """As a JVM broker in the place of ours: its fetches are not those of the former one."""
        f = Follower(2)
        f.observe(10, 0, 500, 10, 7)
        f.observe(10, 0, 600, 10, -1)
        assert f.broker_epoch == -1

    def test_silent_fetches_count_once_they_matter(self):
        f = Follower(2)
        f.observe(10, 0, 500, 10, -1)
        f.stayed_caught_up(900, 10)
        assert f.last_caught_up_ms == 900
        f.observe(10, 0, 1000, 12, -1)
        assert f.last_caught_up_ms == 900

    def test_caught_up(self):
        f = follower(2, 10, caught_up=0)
        assert f.caught_up(10, 1e9, LAG)
        assert f.caught_up(11, LAG, LAG)
        assert not f.caught_up(11, LAG + 1, LAG)


@pytest.mark.parametrize(
    ("code", "then"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, AfterRejection.BACK),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, AfterRejection.BACK),
        (ErrorCode.INVALID_UPDATE_VERSION, AfterRejection.WAIT),
        (ErrorCode.FENCED_LEADER_EPOCH, AfterRejection.WAIT),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, AfterRejection.WAIT),
        (ErrorCode.UNKNOWN_SERVER_ERROR, AfterRejection.RETRY),
        (ErrorCode.NOT_CONTROLLER, AfterRejection.RETRY),
    ],
)
def test_r6_after_a_rejection(code, then):
    assert rules.after_rejection(code) is then
