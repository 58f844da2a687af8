"""The decider of one partition, by the rules of RELIABILITY.md, and what it asks of its port."""

from types import SimpleNamespace

import pytest

from ottla.model.cluster import LeaderAndIsr, LeadershipUpdate
from ottla.model.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderError,
    UnknownLeaderEpochError,
)
from ottla.model.ids import TopicPartition
from ottla.replication.isr import IsrState
from ottla.replication.partition import Partition
from ottla.replication.partition_state import INELIGIBLE_PAUSE_MS, HostedPartitionState

TP = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
LAG_MS = 10_000
ALL = (1, 2, 3)


def update(leader, epoch, *, isr=(1, 2, 3), replicas=(1, 2, 3), partition_epoch=None):
    partition_epoch = epoch if partition_epoch is None else partition_epoch
    return LeadershipUpdate(
        TP,
        leader,
        epoch,
        tuple(isr),
        partition_epoch,
        tuple(replicas),
        controller_epoch=1,
        topic_id=TOPIC_ID,
    )


def log(end, high_watermark=0, *, start=0, min_isr=1):
    return SimpleNamespace(
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=high_watermark,
        config=SimpleNamespace(min_insync_replicas=min_isr),
    )


class Port:
    """Notes what was asked of it since the last look: (name, arguments ...)."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        return lambda *values: self.asked.append((name, *values))


def asked(state, name=None):
    """Return what was asked since the last look; with a name, the arguments of these calls only."""
    found, state.port.asked = state.port.asked, []
    return found if name is None else [values for what, *values in found if what == name]


def proposed(state):
    """Return the proposals since the last look: (proposal, change, broker epochs)."""
    return [change for (change,) in asked(state, "propose_isr")]


def moved(state):
    """Return where the high watermark went since the last look."""
    return [offset for (offset,) in asked(state, "advance_high_watermark")]


def broker(broker_id=1):
    return HostedPartitionState(TP, broker_id, LAG_MS, Port())


def leader(*, end=10, high_watermark=10, epoch=0, now_ms=0, isr=(1, 2, 3), replicas=(1, 2, 3)):
    """Return a state of broker 1 that leads from offset `end` on."""
    state = broker()
    state.become_leader(
        update(1, epoch, isr=isr, replicas=replicas), log(end, high_watermark), now_ms, ALL
    )
    asked(state)
    return state


def fetch(state, follower, offset, log, *, now_ms=1, broker_epoch=20, alive=ALL, propose=True):
    known = state.follower(follower, state.leader_epoch)
    state.fetched(known, (offset, 0), broker_epoch, log, now_ms, alive, may_propose=propose)


# --- leadership ---------------------------------------------------------------------------------


def test_a_new_leader_starts_its_epoch_where_its_log_ends():
    state = broker()
    state.become_leader(update(1, 3), log(7, 5), 0, ALL)
    # Followers have to be heard in this epoch before the high watermark moves (R4).
    assert asked(state) == [("start_epoch", 3, 7), ("wake_fetches",)]
    assert (state.is_leader, state.leader, state.leader_epoch, state.epoch_start) == (True, 1, 3, 7)
    assert state.topic_id == TOPIC_ID
    assert sorted(state.followers) == [2, 3]


def test_a_leader_alone_commits_its_log_at_once():
    alone = update(1, 0, isr=[1], replicas=[1])
    state = broker()
    state.become_leader(alone, log(7, 5), 0, ALL)
    assert moved(state) == [7]


def test_r13_a_leader_has_it_proven_that_none_outside_its_isr_may_be_elected():
    state = broker()
    lead = update(1, 0, isr=[1], replicas=[1, 2])
    state.become_leader(lead, log(7, 5), 0, ALL)
    assert asked(state)[-1] == ("prove_isr",)
    state.proven_epoch = state.partition_epoch
    state.raise_high_watermark(log(7, 5), 0, ALL)
    assert asked(state) == [("advance_high_watermark", 7)]
    state.become_leader(lead, log(8, 7), 0, ALL)
    assert moved(state) == [8], "it was sent the same once more"
    for change in (
        {"partition_epoch": 1},
        {"partition_epoch": 1, "replicas": [1, 3]},
    ):
        later = update(1, 0, **{"isr": [1], "replicas": [1, 2], **change})
        state.become_leader(later, log(9, 8), 0, ALL)
        assert asked(state, "prove_isr")
        state.proven_epoch = state.partition_epoch
    state.become_follower(update(2, 1, isr=[1, 2], replicas=[1, 2], partition_epoch=2))
    assert state.proven_epoch != state.partition_epoch
    whole = update(1, 2, isr=[1, 2], replicas=[1, 2], partition_epoch=3)
    state.become_leader(whole, log(9, 8), 0, ALL)
    assert not asked(state, "prove_isr"), "none is outside"


def test_r4_each_epoch_forgets_what_followers_had():
    """Kafka 3.9 keeps it when the same broker is elected again."""
    state = leader()
    fetch(state, 2, 10, log(10, 10))
    state.become_leader(update(1, 1), log(12, 10), 5, ALL)
    assert state.followers[2].log_end_offset == -1
    assert state.epoch_start == 12


def test_the_same_epoch_with_other_replicas_keeps_what_followers_had():
    state = leader()
    fetch(state, 2, 10, log(10, 10))
    later = update(1, 0, replicas=[1, 2, 4], isr=[1, 2], partition_epoch=1)
    state.become_leader(later, log(12, 10), 5, ALL)
    assert not asked(state, "start_epoch")
    assert state.epoch_start == 10
    assert state.followers[2].log_end_offset == 10
    assert sorted(state.followers) == [2, 4]


def test_an_update_older_than_what_is_known_is_outdated():
    """A higher leader epoch with an older partition epoch comes from a state already overtaken."""
    state = leader(epoch=1)
    assert state.outdates(update(2, 9, partition_epoch=0), "follower")
    assert not state.outdates(update(2, 9, partition_epoch=1), "follower")


def test_a_follower_has_no_isr_and_fails_the_waiters():
    state = leader()
    state.become_follower(update(2, 1))
    assert asked(state) == [
        ("wake_fetches",),
        ("fail_produces", ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]
    assert (state.leader, state.is_leader, state.epoch_start) == (2, False, None)
    assert (state.followers, state.isr) == ({}, IsrState.of(()))


def test_the_leader_epoch_never_goes_back():
    state = leader(epoch=4)
    state.become_follower(update(2, 3, partition_epoch=5))
    assert state.leader_epoch == 4


def test_a_partition_that_stops_fails_the_waiters_with_its_reason():
    state = leader()
    state.stop(ErrorCode.KAFKA_STORAGE_ERROR)
    assert asked(state, "fail_produces") == [[ErrorCode.KAFKA_STORAGE_ERROR]]
    assert not state.is_leader
    assert state.leader == -1


def test_stop_replica_leaves_the_produces_of_a_leader_waiting():
    """It leads until LeaderAndIsr names another; a follower waits for no other replica."""
    state = leader()
    state.release_waiting()
    assert asked(state) == [("wake_fetches",)]
    state.become_follower(update(2, 1))
    asked(state)
    state.release_waiting()
    assert asked(state, "fail_produces")


# --- checks -------------------------------------------------------------------------------------


def test_r3_epochs_are_compared():
    state = leader(epoch=4)
    state.check_epoch(-1)
    state.check_epoch(4)
    with pytest.raises(FencedLeaderEpochError):
        state.check_epoch(3)
    with pytest.raises(UnknownLeaderEpochError):
        state.check_epoch(5)


def test_a_replica_that_is_about_to_lead_serves_no_reader():
    state = broker()
    state.await_leadership(update(1, 2))
    assert (state.leader, state.is_leader, state.leader_epoch) == (1, False, 2)
    for leader_only in (True, False):
        with pytest.raises(NotLeaderError):
            state.check_readable(leader_only=leader_only)
    state.become_follower(update(2, 3))
    state.check_readable(leader_only=False)
    with pytest.raises(NotLeaderError):
        state.check_readable(leader_only=True)


def test_a_replica_that_is_none_is_refused():
    state = leader(epoch=4)
    with pytest.raises(NotLeaderError):
        state.follower(9, -1)
    with pytest.raises(UnknownLeaderEpochError):
        state.follower(9, 4)  # it may know of an assignment that we have not heard of


def test_r13_acks_all_needs_min_insync_replicas():
    state = leader(isr=[1], epoch=6)
    assert state.epoch_to_append(1, 2) == 6
    assert state.epoch_to_append(-1, 1) == 6
    with pytest.raises(NotEnoughReplicasError):
        state.epoch_to_append(-1, 2)
    alone = leader(isr=[1], replicas=[1])
    assert alone.epoch_to_append(-1, 2) == 0, "capped at the number of replicas"
    with pytest.raises(NotLeaderError):
        broker().epoch_to_append(1, 1)


# --- the high watermark -------------------------------------------------------------------------


def test_r4_the_high_watermark_waits_for_the_last_member():
    state = leader()
    assert state.waits_for_followers
    fetch(state, 2, 12, log(12, 10))
    assert asked(state) == []
    fetch(state, 3, 11, log(12, 10))
    assert asked(state) == [("advance_high_watermark", 11)]
    fetch(state, 3, 11, log(12, 11))
    assert asked(state) == [], "nothing new"


def test_r13_the_high_watermark_stands_still_below_min_insync_replicas():
    state = leader(isr=[1], replicas=[1, 2])
    state.raise_high_watermark(log(12, 10, min_isr=2), 0, ())
    assert asked(state) == []
    state.raise_high_watermark(log(12, 10), 0, ())
    assert asked(state) == [("prove_isr",)]
    state.proven_epoch = state.partition_epoch
    state.raise_high_watermark(log(12, 10), 0, ())
    assert asked(state) == [("advance_high_watermark", 12)]


def test_f43_a_leader_knows_what_it_did_not_acknowledge():
    state = broker()
    assert state.acknowledged_below(log(12, 3)) == 12, "an earlier process left it"
    state.become_leader(update(1, 0), log(7, 5), 0, ALL)
    assert state.acknowledged_below(log(12, 5)) == 7, "what it appended is its own"
    assert state.acknowledged_below(log(12, 10)) == 10
    state.become_leader(update(1, 1, partition_epoch=1), log(12, 10), 0, ALL)
    state.become_follower(update(2, 2, partition_epoch=2))
    assert state.acknowledged_below(log(12, 10)) == 10, "in every epoch that it led"
    assert state.acknowledged_below(log(6, 6)) == 6, "never more than there is"


def test_r7_until_the_controller_agrees_a_leaving_member_counts():
    state = leader()
    for follower in (2, 3):
        fetch(state, follower, 10, log(10, 10))
    state.shrink_isr(log(12, 10), LAG_MS + 2)
    ((proposal, change, _),) = proposed(state)
    assert change.isr == (1,)
    assert state.isr.maximal == (1, 2, 3)
    state.raise_high_watermark(log(12, 10), LAG_MS + 2, ())
    assert asked(state) == []
    written = LeaderAndIsr(1, 0, (1,), 1)
    state.isr_change_accepted(proposal, written, log(12, 10), 0, ())
    assert asked(state) == [("notify_followers",), ("prove_isr",)]
    assert (state.isr, state.partition_epoch) == (IsrState.of((1,)), 1)


@pytest.mark.parametrize("alive", [(2,), ()])
def test_the_high_watermark_does_not_wait_for_a_dead_outsider(alive):
    """One outside the ISR that caught up is waited for, unless the cluster takes it for dead."""
    state = leader(isr=[1], replicas=[1, 2], end=0, high_watermark=0)
    state.proven_epoch = state.partition_epoch
    fetch(state, 2, 1, log(1, 1), alive=alive, propose=False)
    state.raise_high_watermark(log(2, 1), 2, alive)
    assert moved(state) == ([] if alive else [2])


def test_how_a_produce_ends_when_its_offset_is_reached():
    state = leader(isr=[1, 2])
    assert state.code_when_replicated(2) is ErrorCode.NONE
    assert state.code_when_replicated(3) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


# --- the ISR ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "alive", "propose", "joins"),
    [
        (10, ALL, True, True),
        (9, ALL, True, False),  # R5
        (10, (1, 3), True, False),  # R9
        (10, ALL, False, False),  # without a ZooKeeper session
    ],
)
def test_r5_r9_conditions_to_join_the_isr(offset, alive, propose, joins):
    state = leader(isr=[1, 3])
    fetch(state, 2, offset, log(12, 10), alive=alive, propose=propose)
    assert [change.isr for _, change, _ in proposed(state)] == ([(1, 3, 2)] if joins else [])
    assert state.isr.maximal == ((1, 3, 2) if joins else (1, 3))


def test_r5_the_start_of_the_epoch_must_be_reached():
    state = leader(isr=[1, 3], end=15, high_watermark=10)
    fetch(state, 2, 14, log(15, 10))
    assert not proposed(state)
    fetch(state, 2, 15, log(15, 10))
    assert proposed(state)


def test_r8_members_are_proposed_with_the_broker_epochs_they_fetched_with():
    state = leader(isr=[1, 3])
    fetch(state, 2, 10, log(10, 10), broker_epoch=77)
    ((_, change, broker_epochs),) = proposed(state)
    assert broker_epochs == ((1, None), (3, -1), (2, 77))
    assert change == LeaderAndIsr(1, 0, (1, 3, 2), 0)


def test_r8_a_former_registration_is_refused_and_a_later_one_starts_over():
    state = leader()
    fetch(state, 2, 10, log(12, 10), broker_epoch=20)
    with pytest.raises(NotLeaderError):
        fetch(state, 2, 12, log(12, 10), broker_epoch=19)
    assert state.followers[2].log_end_offset == 10
    before = state.followers[2].last_caught_up_ms
    fetch(state, 2, 4, log(12, 10), now_ms=500, broker_epoch=21)
    assert state.followers[2].log_end_offset == 4
    assert state.followers[2].last_caught_up_ms == 500 != before


def joining(state):
    """Let broker 2 catch up; return the proposal to take it into the ISR."""
    fetch(state, 2, 10, log(10, 10))
    ((proposal, _, _),) = proposed(state)
    return proposal


def test_r6_one_change_at_a_time():
    state = leader(isr=[1])
    proposal = joining(state)
    fetch(state, 3, 10, log(10, 10))
    state.shrink_isr(log(99, 10), 1e9)
    assert not proposed(state)
    assert state.isr is proposal


def test_r6_after_a_conflict_the_next_update_is_awaited():
    state = leader(isr=[1])
    proposal = joining(state)
    for code, again in (
        (ErrorCode.INVALID_UPDATE_VERSION, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
    ):
        assert state.isr_change_rejected(proposal, code, log(10, 10), 5, ALL) is again
        assert state.isr is proposal, "either may be in force (R7)"


def test_an_ineligible_replica_is_not_proposed_again_at_once():
    state = leader(isr=[1])
    state.proven_epoch = state.partition_epoch
    proposal = joining(state)
    code = ErrorCode.INELIGIBLE_REPLICA
    assert not state.isr_change_rejected(proposal, code, log(12, 10), 5, ALL)
    # It shuts down, and is alive for us as yet: producers do not wait for it.
    assert moved(state) == [12]
    assert state.isr == IsrState.of((1,))
    fetch(state, 2, 12, log(12, 12), now_ms=4 + INELIGIBLE_PAUSE_MS)
    assert not proposed(state)
    fetch(state, 2, 12, log(12, 12), now_ms=5 + INELIGIBLE_PAUSE_MS)
    assert proposed(state)


def test_a_response_to_a_proposal_of_a_former_epoch_changes_nothing():
    state = leader(isr=[1])
    proposal = joining(state)
    state.become_leader(update(1, 1, isr=[1]), log(10, 10), 2, ALL)
    now = state.isr
    asked(state)
    written = LeaderAndIsr(1, 0, (1, 2), 1)
    state.isr_change_accepted(proposal, written, log(12, 10), 3, ALL)
    code = ErrorCode.INELIGIBLE_REPLICA
    assert not state.isr_change_rejected(proposal, code, log(12, 10), 3, ALL)
    assert asked(state) == []
    assert state.isr is now


def test_a_response_to_a_proposal_that_was_given_up_changes_nothing():
    """Also within one leader epoch: the response to a request that was sent twice may come late."""
    state = leader(isr=[1])
    proposal = joining(state)
    code = ErrorCode.INELIGIBLE_REPLICA
    state.isr_change_rejected(proposal, code, log(10, 10), 5, ())
    asked(state)
    written = LeaderAndIsr(1, 0, (1, 2), 1)
    state.isr_change_accepted(proposal, written, log(12, 10), 6, ())
    assert asked(state) == []
    assert state.isr == IsrState.of((1,))


def test_a_written_state_of_another_epoch_is_not_taken_over():
    state = leader(isr=[1], epoch=4)
    proposal = joining(state)
    written = LeaderAndIsr(1, 5, (1, 2), 6)
    state.isr_change_accepted(proposal, written, log(12, 10), 3, ALL)
    assert asked(state) == []
    assert state.isr is proposal


def test_a_follower_with_nothing_to_hear_stays_in_the_isr():
    """Its fetches name the partition no more; that it fetches at all is what counts."""
    state = leader()
    for follower in (2, 3):
        fetch(state, follower, 10, log(10, 10))
    later = 5 * LAG_MS
    state.note_idle_fetches(2, later, 10)
    state.note_idle_fetches(3, later, 12)  # it had not all of that: no credit
    state.shrink_isr(log(13, 10), later + 1)
    ((_, change, _),) = proposed(state)
    assert change.isr == (1, 2)


def test_the_low_watermark_counts_live_replicas():
    state = leader()
    for follower, start in ((2, 4), (3, 2)):
        known = state.follower(follower, 0)
        state.fetched(known, (10, start), 20, log(10, 10), 1, ALL, may_propose=True)
    assert state.low_watermark(5, ALL) == 2
    assert state.low_watermark(5, (1, 2)) == 4
    assert state.low_watermark(1, ALL) == 1


# --- following ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader_has", "expected"),
    [
        ((8, 0), [("advance_high_watermark", 8)]),
        ((12, 0), [("advance_high_watermark", 10)]),  # never beyond what is in the log
        ((4, 0), []),  # a leader elected a moment ago may know less
        ((9, 3), [("advance_high_watermark", 9), ("advance_log_start", 3)]),
        ((5, 2), []),
    ],
)
def test_r11_what_a_follower_takes_over(leader_has, expected):
    state = broker(2)
    state.become_follower(update(1, 0))
    asked(state)
    state.adopt(*leader_has, log(10, 5, start=2))
    assert asked(state) == expected


def test_the_partition_does_what_is_decided():
    """One append by a leader without followers: the log's high watermark moves in that step."""

    class Log:
        log_start_offset, log_end_offset, high_watermark = 0, 5, 5
        config = SimpleNamespace(min_insync_replicas=1)
        epochs = ()

        def assign_epoch_start(self, epoch, offset):
            self.epochs = (epoch, offset)

        def append_as_leader(self, records, epoch, *_, **__):
            self.log_end_offset += 1
            return SimpleNamespace(epoch=epoch, count=1, bytes=70)

        def set_high_watermark(self, offset):
            self.high_watermark = offset

    host = SimpleNamespace(
        broker_id=1, lag_ms=LAG_MS, may_propose=True, alive=ALL, now_ms=lambda: 0.0
    )
    partition, log = Partition(TP, host), Log()
    assert partition.make_leader(update(1, 2, isr=[1], replicas=[1]), log)
    assert log.epochs == (2, 5)
    assert partition.append_as_leader(memoryview(b""), -1, 0).epoch == 2
    assert (partition.counts.messages_in, partition.counts.bytes_in) == (1, 70)
    assert log.high_watermark == 6
