"""JoinGroup and rebalances (the cases of Kafka's GroupCoordinatorTest with their meanings)."""

from struct import pack

import pytest

from ottla.model.errors import ErrorCode as E
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.groups import ConsumerProtocolSubscription

from .conftest import GROUP, RANGE, Desk, subscription


def test_join_group_session_timeout_too_small_or_large(desk):
    assert desk.join(session_ms=5_999).error is E.INVALID_SESSION_TIMEOUT
    assert desk.join(session_ms=1_800_001).error is E.INVALID_SESSION_TIMEOUT
    assert desk.join(session_ms=6_000).waiting


def test_join_group_unknown_consumer_new_group(desk):
    assert desk.join("nobody").error is E.UNKNOWN_MEMBER_ID
    assert GROUP not in desk.groups.groups


def test_valid_join_group(desk):
    request = desk.join()
    desk.run(3_000)
    result = request.result
    assert result.error is E.NONE
    assert result.member_id == "client-1"
    assert result.generation == 1
    assert result.leader == "client-1"
    assert result.protocol_type == "consumer"
    assert result.protocol == "range"
    assert result.members == (("client-1", None, RANGE[0][1]),)


def test_only_the_leader_learns_of_the_members(desk):
    first, second = desk.join(), desk.join()
    desk.run(60_000)
    assert len(first.result.members) == 2
    assert second.result.members == ()
    assert second.result.leader == first.result.member_id


def test_join_group_inconsistent_protocol_type(quick):
    quick.stable()
    refused = quick.join(protocol_type="connect")
    assert refused.error is E.INCONSISTENT_GROUP_PROTOCOL
    assert (refused.result.protocol_type, refused.result.protocol) == (None, None)


def test_join_group_with_empty_protocol_type_or_no_protocol(desk):
    assert desk.join(protocol_type="").error is E.INCONSISTENT_GROUP_PROTOCOL
    assert desk.join(protocols=()).error is E.INCONSISTENT_GROUP_PROTOCOL


def test_join_group_inconsistent_group_protocol(desk):
    desk.join(protocols=[("range", b"")])
    assert desk.join(protocols=[("roundrobin", b"")]).error is E.INCONSISTENT_GROUP_PROTOCOL


def test_join_group_second_join_inconsistent_protocol(quick):
    first = quick.join(protocols=[("range", b"")], id_required=True)
    assert first.error is E.MEMBER_ID_REQUIRED
    again = quick.join(first.result.member_id, protocols=[])
    assert again.error is E.INCONSISTENT_GROUP_PROTOCOL
    assert quick.join(first.result.member_id).waiting


def test_join_group_unknown_consumer_existing_group(quick):
    quick.stable()
    assert quick.join("nobody").error is E.UNKNOWN_MEMBER_ID


# --- KIP-394 ------------------------------------------------------------------------------------


def test_a_new_member_is_sent_back_with_an_id(desk):
    first = desk.join(id_required=True)
    assert first.error is E.MEMBER_ID_REQUIRED
    assert desk.state() == "Empty"
    second = desk.join(first.result.member_id, id_required=True)
    desk.run(3_000)
    assert second.result.member_id == first.result.member_id
    assert second.error is E.NONE


def test_join_group_completion_when_pending_member_joins(quick):
    (leader,) = quick.stable()
    pending = quick.join(id_required=True).result.member_id
    assert quick.state() == "Stable"
    rejoined = quick.join(leader)
    assert rejoined.waiting
    joined = quick.join(pending)
    assert rejoined.result.generation == joined.result.generation == 2


def test_join_group_completion_when_pending_member_times_out(quick):
    (leader,) = quick.stable()
    quick.join(id_required=True, session_ms=10_000)
    rejoined = quick.join(leader)
    quick.run(9_999)
    assert rejoined.waiting
    quick.run(1)
    assert rejoined.result.generation == 2
    assert len(rejoined.result.members) == 1


def test_pending_member_leaves_group(quick):
    (leader,) = quick.stable()
    pending = quick.join(id_required=True).result.member_id
    rejoined = quick.join(leader)
    assert rejoined.waiting
    assert quick.leave(pending) == [E.NONE]
    assert rejoined.error is E.NONE
    assert quick.join(pending).error is E.UNKNOWN_MEMBER_ID


# --- group.initial.rebalance.delay.ms (KIP-134) -------------------------------------------------


def test_should_delay_initial_rebalance_on_empty_group(desk):
    request = desk.join()
    desk.run(2_999)
    assert request.waiting
    desk.run(1)
    assert request.error is E.NONE


def test_should_reset_rebalance_delay_when_new_member_joins_in_initial_rebalance(desk):
    first = desk.join()
    desk.run(2_000)
    second = desk.join()
    desk.run(1_000)
    assert first.waiting
    desk.run(2_999)
    assert first.waiting
    assert second.waiting
    desk.run(1)
    assert first.result.generation == second.result.generation == 1
    assert len(first.result.members) == 2


def test_should_delay_rebalance_up_to_rebalance_timeout(desk):
    requests = [desk.join(rebalance_ms=8_000)]
    for _ in range(3):
        desk.run(2_000)
        requests.append(desk.join(rebalance_ms=8_000))
        assert requests[0].waiting
    desk.run(2_000)
    assert [t.error for t in requests] == [E.NONE] * 4


def test_a_later_rebalance_of_a_group_with_members_knows_no_delay(desk):
    (leader,) = desk.stable()
    rejoined = desk.join(leader)
    assert rejoined.result.generation == 2


# --- group.max.size (KIP-389) -------------------------------------------------------------------


@pytest.mark.parametrize("id_required", [False, True])
def test_dynamic_members_join_group_with_max_size(id_required):
    desk = Desk(max_size=2, initial_rebalance_delay_ms=0)
    ids = desk.stable(2)
    assert desk.join(id_required=id_required).error is E.GROUP_MAX_SIZE_REACHED
    assert desk.state() == "Stable"
    assert [desk.heartbeat(m) for m in ids] == [E.NONE, E.NONE]


def test_static_members_join_group_with_max_size():
    desk = Desk(max_size=2, initial_rebalance_delay_ms=0)
    desk.static_pair()
    assert desk.join(instance="third").error is E.GROUP_MAX_SIZE_REACHED
    # Kafka counts one that comes back without its id too.
    assert desk.join(instance="F").error is E.GROUP_MAX_SIZE_REACHED
    assert desk.join(desk.group().static_members["F"], instance="F").error is E.NONE


def test_members_can_rejoin_with_max_size_while_rebalancing():
    desk = Desk(max_size=2, initial_rebalance_delay_ms=0)
    leader, follower = desk.stable(2)
    waiting = desk.join(leader)
    assert desk.state() == "PreparingRebalance"
    assert desk.join(follower).result.generation == waiting.result.generation == 2


def test_last_joining_members_are_kicked_out_when_rejoining_with_max_size():
    desk = Desk(max_size=3, initial_rebalance_delay_ms=0)
    ids = desk.stable(3)
    desk.groups.settings = type(desk.groups.settings)(max_size=2)
    requests = [desk.join(m) for m in ids]
    assert requests[2].error is E.GROUP_MAX_SIZE_REACHED
    assert requests[0].result.generation == requests[1].result.generation == 2
    assert ids[2] not in desk.group().members


# --- members that are late ------------------------------------------------------------------------


def test_new_member_join_expiration(quick):
    (first,) = quick.stable(session_ms=1_000_000, rebalance_ms=1_000_000)
    second = quick.join(session_ms=305_000, rebalance_ms=1_000_000)
    quick.heartbeat(first)
    quick.run(299_999)
    assert second.waiting
    quick.run(1)
    assert second.error is E.UNKNOWN_MEMBER_ID
    assert list(quick.group().members) == [first]


def test_new_member_failure_after_join_group_completion(quick):
    first = quick.join()
    quick.run(0)
    member = first.result.member_id
    assert quick.state() == "CompletingRebalance"
    quick.run(10_000)
    assert member not in quick.group().members
    assert quick.state() == "Empty"


def test_rebalance_completes_before_member_joins(quick):
    leader, follower = quick.stable(2, session_ms=100_000)
    waiting = quick.join(leader, session_ms=100_000)
    assert quick.heartbeat(follower) is E.REBALANCE_IN_PROGRESS
    quick.run(60_000)
    assert waiting.result.generation == 2
    assert list(quick.group().members) == [leader]
    assert quick.heartbeat(follower, 1) is E.UNKNOWN_MEMBER_ID
    assert quick.join(follower).error is E.UNKNOWN_MEMBER_ID


def test_session_timeout_during_rebalance(quick):
    leader, follower = quick.stable(2)
    waiting = quick.join(leader)
    quick.run(10_000)
    assert waiting.result.generation == 2
    assert follower not in quick.group().members


def test_second_member_partially_join_and_timeout(quick):
    (leader,) = quick.stable(session_ms=30_000)
    quick.join(id_required=True, session_ms=10_000)
    assert quick.heartbeat(leader) is E.NONE
    quick.run(10_000)
    assert quick.state() == "Stable"
    assert quick.heartbeat(leader) is E.NONE


def test_join_group_from_unchanged_follower_does_not_rebalance(quick):
    leader, follower = quick.stable(2)
    again = quick.join(follower)
    assert again.result.generation == 1
    assert again.result.leader == leader
    assert again.result.members == ()
    assert quick.state() == "Stable"


def test_join_group_from_unchanged_leader_should_rebalance(quick):
    leader, _ = quick.stable(2)
    again = quick.join(leader)
    assert again.waiting
    assert quick.state() == "PreparingRebalance"


def test_a_changed_follower_does_rebalance(quick):
    _, follower = quick.stable(2)
    again = quick.join(follower, protocols=[("range", subscription("u"))])
    assert again.waiting
    assert quick.state() == "PreparingRebalance"


def test_join_again_while_completing_gets_the_same_generation(quick):
    first, second = quick.join(), quick.join()
    quick.run(0)
    leader = first.result.member_id
    again = quick.join(leader)
    assert again.result == first.result
    assert quick.join(second.result.member_id).result == second.result
    changed = quick.join(second.result.member_id, protocols=[("range", b"new")])
    assert changed.waiting
    assert quick.state() == "PreparingRebalance"


def test_a_join_sent_anew_releases_the_one_before(quick):
    leader, _ = quick.stable(2)
    first = quick.join(leader)
    second = quick.join(leader)
    assert first.error is E.REBALANCE_IN_PROGRESS
    assert second.waiting


def test_generation_id_increments_on_rebalance(quick):
    (leader,) = quick.stable()
    for generation in (2, 3, 4):
        result = quick.join(leader).result
        assert result.generation == generation
        quick.sync(leader, generation, {leader: b"x"})


def test_a_group_that_all_left_is_stored_as_empty(quick):
    (leader,) = quick.stable()
    quick.stored.clear()
    assert quick.leave(leader) == [E.NONE]
    assert quick.state() == "Empty"
    assert quick.stored == [("EMPTY_GENERATION", 2, E.NONE)]
    assert quick.group().protocol is None


def test_subscribed_topics_follow_the_generation(quick):
    quick.stable(protocols=[("range", subscription("t", "u"))])
    assert quick.group().subscribed_topics == {"t", "u"}
    quick.leave(*quick.group().members)
    assert quick.group().subscribed_topics == frozenset()


def test_topics_of_an_unreadable_subscription_are_unknown(quick, caplog):
    quick.stable(protocols=[("range", b"\x00")])
    assert quick.group().subscribed_topics is None
    assert quick.group().is_subscribed_to("anything")
    (line,) = [line for line in caplog.messages if line.startswith("subscription")]
    assert line.startswith("subscription not understood group=g protocol=range error=")


def version_0_as(version, *topics, user_data=None):
    """Return what some clients write: the number of a version, and the fields of version 0."""
    raw = pack(">hi", version, len(topics))
    for topic in topics:
        raw += pack(">h", len(topic)) + topic.encode()
    return raw + (pack(">i", -1) if user_data is None else pack(">i", len(user_data)) + user_data)


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (version_0_as(3, "t", "u", user_data=b'{"__faust": {}}'), {"t", "u"}),  # faust-streaming
        (version_0_as(1, "t"), {"t"}),  # @platformatic/kafka
        (version_0_as(0, "t"), {"t"}),
        (version_0_as(99, "t") + b"of a later version", {"t"}),
        (encode_versioned(ConsumerProtocolSubscription(topics=["t"], rack_id="r"), 3), {"t"}),
        (version_0_as(1, "t")[:-1], None),
        (pack(">hi", 0, 2**31 - 1) + bytes(100_000), None),
    ],
)
def test_of_a_subscription_only_the_fields_of_version_0_count(quick, metadata, topics):
    """As Kafka's GroupMetadata.computeSubscribedTopics reads it."""
    quick.stable(protocols=[("range", metadata)])
    assert quick.group().subscribed_topics == topics


def test_subscriptions_of_too_many_topics_are_not_read(quick):
    """F32: they are opaque to the request's own limits, and read on the event loop."""
    many = version_0_as(0, *["t"] * 60_000)
    quick.stable(2, protocols=[("range", many)])
    assert quick.group().subscribed_topics is None


def test_a_group_of_another_kind_subscribes_to_nothing_we_know(quick):
    quick.stable(protocol_type="connect", protocols=[("x", subscription("t"))])
    assert quick.group().subscribed_topics is None


# --- unloading ----------------------------------------------------------------------------------


def test_unloading_sends_everybody_to_the_new_coordinator(quick):
    leader, follower = quick.stable(2)
    waiting = quick.join(leader)
    quick.unload()
    assert waiting.error is E.NOT_COORDINATOR
    assert quick.groups.groups == {}
    quick.run(1_000_000)
    assert quick.heartbeat(follower, 1) is E.UNKNOWN_MEMBER_ID


def test_unloading_completes_requests_that_wait_for_an_assignment(quick):
    first, second = quick.join(), quick.join()
    quick.run(0)
    waiting = quick.sync(second.result.member_id)
    assert waiting.waiting
    quick.unload()
    assert waiting.error is E.NOT_COORDINATOR
    assert first.error is E.NONE


def test_a_loaded_group_that_is_too_large_rebalances():
    desk = Desk(initial_rebalance_delay_ms=0)
    ids = desk.stable(3)
    group = desk.group()
    other = Desk(max_size=2)
    other.groups.load(group, other.now)
    assert other.state() == "PreparingRebalance"
    assert other.heartbeat(ids[0]) is E.REBALANCE_IN_PROGRESS
