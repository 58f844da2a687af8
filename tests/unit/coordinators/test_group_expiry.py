"""When a group's offsets expire (KIP-211; Kafka's GroupMetadataManagerTest)."""

from ottla.coordinators.group import Group
from ottla.coordinators.offsets import Commit
from ottla.model.ids import TopicPartition

from .conftest import subscription

RETENTION = 1_000
T, U = TopicPartition("t", 0), TopicPartition("u", 0)


def commit(group, tp, at, **more):
    one = Commit(5, -1, "", at)._replace(**more)
    group.offsets.prepare({tp: one})
    group.offsets.appended({tp: one}, at)


def test_of_a_group_that_only_keeps_offsets_they_expire_by_commit():
    group = Group("g", 0)
    commit(group, T, 100)
    commit(group, U, 500)
    assert group.expired_offsets(1_099, RETENTION) == []
    assert group.expired_offsets(1_100, RETENTION) == [T]
    assert group.expired_offsets(1_500, RETENTION) == [T, U]


def test_of_an_empty_group_they_expire_by_when_it_became_empty(quick):
    (member,) = quick.stable()
    group = quick.group()
    commit(group, T, 100)
    quick.run(50_000)
    assert group.state.value == "Empty"
    left = group.state_timestamp
    assert member not in group.members
    assert group.expired_offsets(left + RETENTION - 1, RETENTION) == []
    assert group.expired_offsets(left + RETENTION, RETENTION) == [T]
    group.state_timestamp = -1  # from a record of before version 2
    assert group.expired_offsets(1_100, RETENTION) == [T]


def test_of_an_active_group_only_topics_without_a_subscription_expire(quick):
    quick.stable(protocols=[("range", subscription("t"))])
    group = quick.group()
    commit(group, T, 100)
    commit(group, U, 100)
    assert group.expired_offsets(10**15, RETENTION) == [U]
    quick.join(group.leader)
    assert group.state.value == "CompletingRebalance"
    assert group.expired_offsets(10**15, RETENTION) == []


def test_of_an_active_group_that_is_no_consumer_or_is_not_understood_nothing_expires(quick):
    quick.stable(protocol_type="connect", protocols=[("x", b"")])
    commit(quick.group(), T, 100)
    assert quick.group().expired_offsets(10**15, RETENTION) == []
    quick.stable(group="h", protocols=[("range", b"\0")])
    commit(quick.group("h"), T, 100)
    assert quick.group("h").expired_offsets(10**15, RETENTION) == []


def test_a_time_of_its_own_goes_before(quick):
    quick.stable(protocols=[("range", subscription("t"))])
    group = quick.group()
    commit(group, U, 100, expire_timestamp=10**14)
    assert group.expired_offsets(10**14 - 1, RETENTION) == []
    assert group.expired_offsets(10**14, RETENTION) == [U]
