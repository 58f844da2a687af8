"""The table of a group's states, and what a group is by itself (Kafka's GroupMetadataTest)."""

import itertools

import pytest

from ottla.coordinators.group import GROUP_TRANSITIONS, Group, GroupState, Member
from ottla.coordinators.timers import Now
from ottla.model.transitions import IllegalTransitionError

S = GroupState
NOW = Now(0.0, 1000)
LEGAL = {
    (S.EMPTY, S.PREPARING_REBALANCE),
    (S.STABLE, S.PREPARING_REBALANCE),
    (S.COMPLETING_REBALANCE, S.PREPARING_REBALANCE),
    (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE),
    (S.PREPARING_REBALANCE, S.EMPTY),
    (S.COMPLETING_REBALANCE, S.STABLE),
    *((state, S.DEAD) for state in S),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(S, S)), ids=str)
def test_only_what_the_table_has_is_legal(before, after):
    group = Group("g", 0)
    group.state = before
    if (before, after) in LEGAL:
        group.transition_to(after, NOW)
        assert (group.state, group.state_timestamp) == (after, 1000)
    else:
        with pytest.raises(IllegalTransitionError):
            group.transition_to(after, NOW)
    assert (before in GROUP_TRANSITIONS[after]) == ((before, after) in LEGAL)


def member(name, *protocols, instance=None):
    offered = [(p, p.encode()) for p in protocols]
    return Member(name, instance, "c", "/h", 60_000, 10_000, offered)


def group_of(*members):
    group = Group("g", 0)
    for one in members:
        group.add(one, "consumer", None)
    return group


def test_select_protocol():
    group = group_of(member("a", "range", "roundrobin"))
    assert group.select_protocol() == "range"
    group.add(member("b", "roundrobin", "range"), "consumer", None)
    assert group.select_protocol() in ("range", "roundrobin")
    group.add(member("c", "roundrobin", "range"), "consumer", None)
    assert group.select_protocol() == "roundrobin"


def test_select_protocol_chooses_what_all_offer():
    group = group_of(member("a", "range", "roundrobin"), member("b", "roundrobin", "blah"))
    assert group.select_protocol() == "roundrobin"


def test_supports_protocols():
    group = Group("g", 0)
    offer = [("range", b""), ("roundrobin", b"")]
    assert group.supports_protocols("consumer", offer)
    assert not group.supports_protocols("", offer)
    assert not group.supports_protocols("consumer", [])
    first = member("a", "range", "roundrobin")
    group.transition_to(S.PREPARING_REBALANCE, NOW)
    group.add(first, "consumer", None)
    assert group.supports_protocols("consumer", [("roundrobin", b"")])
    assert group.supports_protocols("consumer", [("foo", b""), ("range", b"")])
    assert not group.supports_protocols("connect", [("range", b"")])
    assert not group.supports_protocols("consumer", [("foo", b"")])
    group.add(member("b", "roundrobin"), "consumer", None)
    assert not group.supports_protocols("consumer", [("range", b"")])
    group.update(first, [("sticky", b"")], 1, 1, None)
    assert not group.supports_protocols("consumer", [("sticky", b""), ("roundrobin", b"")])
    group.remove("b")
    assert group.supports_protocols("consumer", [("sticky", b"")])


def test_the_leader_is_always_a_member():
    group = group_of(member("a", "range"), member("b", "range"))
    assert group.leader == "a"
    group.remove("a")
    assert group.leader == "b"
    group.remove("b")
    assert group.leader is None


def test_replacing_a_static_member_keeps_its_place():
    group = group_of(member("a", "range", instance="i"), member("b", "range"))
    group.replace_static_member("i", "a", "c")
    assert group.leader == "c"
    assert group.static_members == {"i": "c"}
    assert set(group.members) == {"b", "c"}
    assert group.select_protocol() == "range"
    with pytest.raises(KeyError):
        group.replace_static_member("i", "a", "d")


def test_a_group_instance_belongs_to_one_member():
    group = group_of(member("a", "range", instance="i"))
    with pytest.raises(AssertionError):
        group.add(member("b", "range", instance="i"), "consumer", None)


def test_waiting_joins_are_counted():
    group = group_of(member("a", "range"))
    assert not group.all_joined
    one = group.members["a"]
    group.set_join_request(one, 0)
    assert group.all_joined
    group.set_join_request(one, 1)
    assert group.all_joined
    assert group.awaiting_join == 1
    group.set_join_request(one, None)
    assert group.awaiting_join == 0
    group.add(member("b", "range"), "consumer", 2)
    group.remove("b")
    assert group.awaiting_join == 0
