"""Whatever elections happened, a follower's log becomes its leader's; nothing common is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.epochs import EpochCache
from ottla.model.errors import OffsetOutOfRangeError
from ottla.replication.truncation import (
    EpochEnd,
    Restart,
    divergence,
    restart_point,
    truncation_point,
)

BROKERS = 3


class Replica:
    """A log as (epoch, number) per offset, with the product's own epoch cache."""

    def __init__(self):
        self.records = []
        self.epochs = EpochCache()

    @property
    def end(self):
        return len(self.records)

    def lead(self, epoch):
        self.epochs.assign(epoch, self.end)

    def append(self, epoch, number):
        self.records.append((epoch, number))
        self.epochs.assign(epoch, self.end - 1) if self.epochs.latest < epoch else None

    def truncate(self, offset):
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)

    def end_of(self, epoch):
        return self.epochs.end_offset_for(epoch, self.end)


def follow_once(leader, follower):
    """One fetch of one record; True when there is nothing more to do."""
    if follower.epochs.latest >= 0:
        last = follower.epochs.latest
        try:
            found = divergence(last, follower.end, *leader.end_of(last), 0)
        except OffsetOutOfRangeError:
            what, offset = restart_point(follower.end, 0, leader.end)
            assert what is Restart.TRUNCATE
            follower.truncate(offset)
            return False
        if found is not None:
            own = EpochEnd(*follower.end_of(found.epoch))
            point = truncation_point(found, own, follower.end, 0)
            before = (follower.end, follower.epochs.entries)
            follower.truncate(point.offset)
            assert (follower.end, follower.epochs.entries) != before, "it would ask for ever"
            return False
    if follower.end < leader.end:
        follower.append(*leader.records[follower.end])
        return False
    return True


def common_prefix(one, two):
    length = 0
    for a, b in zip(one.records, two.records, strict=False):
        if a != b:
            break
        length += 1
    return length


def follow(leader, follower, steps=None):
    common = common_prefix(leader, follower)
    unclean = leader.end < common
    for _ in range(10_000 if steps is None else steps):
        if follow_once(leader, follower):
            assert follower.records == leader.records
            break
        assert unclean or common_prefix(leader, follower) >= common, "a common record was cut"
    else:
        assert steps is not None, "it never ends"


history = st.lists(
    st.tuples(
        st.integers(0, BROKERS - 1),  # who leads
        st.integers(0, 3),  # how many records it writes
        st.lists(st.tuples(st.integers(0, BROKERS - 1), st.integers(0, 5)), max_size=3),
    ),
    min_size=1,
    max_size=12,
)


@given(history)
def test_followers_become_equal_to_their_leader(turns):
    """Any leader (unclean ones too), any writes, followers that get any part of the way."""
    replicas = [Replica() for _ in range(BROKERS)]
    number = 0
    for epoch, (leader, writes, fetches) in enumerate(turns):
        replicas[leader].lead(epoch)
        for _ in range(writes):
            number += 1
            replicas[leader].append(epoch, number)
        for follower, steps in fetches:
            if follower != leader:
                follow(replicas[leader], replicas[follower], steps)
    leader = replicas[turns[-1][0]]
    for follower in replicas:
        if follower is not leader:
            follow(leader, follower)


def test_the_check_can_fail():
    """A follower that cut to the leader's end only (before KIP-279) keeps a foreign record."""
    leader, follower = Replica(), Replica()
    for replica in (leader, follower):
        replica.lead(0)
        replica.append(0, 1)
    follower.lead(1)
    follower.append(1, 2)
    leader.lead(2)
    leader.append(2, 3)
    leader.append(2, 4)
    follower.truncate(min(follower.end, leader.end))
    follower.append(*leader.records[2])
    with pytest.raises(AssertionError):
        follow(leader, follower)
