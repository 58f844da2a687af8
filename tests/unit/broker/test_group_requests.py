"""Groups and offsets as simulated brokers serve them, in every version of their requests."""

import asyncio
from struct import pack

import pytest

from ottla.model.errors import ErrorCode as E
from ottla.net.peer import PeerConnection
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.cluster import ApiVersionsRequest
from ottla.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolSubscription,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ShareGroupHeartbeatRequest,
    SyncGroupRequest,
)
from ottla.wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "3",
    "group_initial_rebalance_delay_ms": "0",
    "auto_create_topics_enable": "false",
}

SUBSCRIPTION = encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 1)


class Client:
    """Sends requests as a member would; `at` is the coordinator once `find` knows it."""

    def __init__(self, scene, number=0, group="g"):
        self.scene, self.at, self.group = scene, number, group

    def find(self, version=4):
        many = {"coordinator_keys": [self.group]} if version >= 4 else {"key": self.group}
        for _ in range(50):
            answer = self.scene.ask(self.at, FindCoordinatorRequest(**many), version)
            one = answer.coordinators[0] if version >= 4 else answer
            if one.error_code == E.NONE:
                self.at = one.node_id
                return one
            assert one.error_code == E.COORDINATOR_NOT_AVAILABLE
            self.scene.simulation.run_for(0.2)
        raise AssertionError("no coordinator")

    def join(self, version=5, member_id="", metadata=SUBSCRIPTION, **more):
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)]
        request = JoinGroupRequest(
            group_id=self.group, session_timeout_ms=10_000, rebalance_timeout_ms=20_000,
            member_id=member_id, protocol_type="consumer", protocols=protocols, **more,
        )  # fmt: skip
        answer = self.scene.ask(self.at, request, version)
        if answer.error_code == E.MEMBER_ID_REQUIRED:
            return self.join(version, answer.member_id, metadata, **more)
        return answer

    def sync(self, joined, version=3, assignment=b"mine"):
        one = SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=joined.member_id, assignment=assignment
        )
        request = SyncGroupRequest(
            group_id=self.group, generation_id=joined.generation_id, member_id=joined.member_id,
            protocol_type="consumer", protocol_name="range", assignments=[one],
        )  # fmt: skip
        return self.scene.ask(self.at, request, version)

    def heartbeat(self, joined, version=3):
        request = HeartbeatRequest(
            group_id=self.group, generation_id=joined.generation_id, member_id=joined.member_id
        )
        return self.scene.ask(self.at, request, version).error_code

    def commit(self, offsets, version=8, generation=-1, member_id="", **more):
        r = OffsetCommitRequest
        extra = {k: v for k, v in more.items() if k != "metadata"}
        topics = [
            r.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    r.OffsetCommitRequestPartition(
                        partition_index=p, committed_offset=o,
                        committed_metadata=more.get("metadata"),
                    )
                ],
            )
            for (topic, p), o in offsets.items()
        ]  # fmt: skip
        request = r(
            group_id=self.group, generation_id_or_member_epoch=generation, member_id=member_id,
            topics=topics, **extra,
        )  # fmt: skip
        answer = self.scene.ask(self.at, request, version)
        return [p.error_code for t in answer.topics for p in t.partitions]

    def fetch(self, partitions=(("t", 0),), version=7):
        r = OffsetFetchRequest
        if version >= 8:
            topics = partitions and [
                r.OffsetFetchRequestTopics(name=t, partition_indexes=[p]) for t, p in partitions
            ]
            group = r.OffsetFetchRequestGroup(group_id=self.group, topics=topics)
            answer = self.scene.ask(self.at, r(groups=[group]), version).groups[0]
        else:
            topics = partitions and [
                r.OffsetFetchRequestTopic(name=t, partition_indexes=[p]) for t, p in partitions
            ]
            answer = self.scene.ask(self.at, r(group_id=self.group, topics=topics), version)
        assert version < 2 or answer.error_code == E.NONE, answer.error_code
        return {
            (t.name, p.partition_index): p.committed_offset if p.error_code == 0 else p.error_code
            for t in answer.topics
            for p in t.partitions
        }

    def describe(self):
        (group,) = self.scene.ask(self.at, DescribeGroupsRequest(groups=[self.group]), 5).groups
        return group


def create(scene, name="t", partitions=2, replicas=1):
    r = CreateTopicsRequest
    topic = r.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    answer = scene.ask(0, r(topics=[topic], timeout_ms=10_000), 5)
    assert [t.error_code for t in answer.topics] == [E.NONE]


@pytest.fixture
def one(scene):
    scene.up(0, **SETTINGS)
    create(scene)
    return scene


def test_find_coordinator(one):
    for version in range(7):
        found = Client(one).find(version)
        assert (found.node_id, found.host, found.port) == (0, "b0", 9092)
    topic = one.brokers["b0"].services.metadata.snapshot.topics["__consumer_offsets"]
    assert len(topic.partitions) == 3
    config = one.brokers["b0"].services.topic_configs.get("__consumer_offsets")
    assert config.compact
    assert config.segment_bytes == 104857600


def test_find_coordinator_of_other_kinds(one):
    def ask(version, kind):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
        (found,) = one.ask(0, request, version).coordinators
        return found.error_code, found.node_id, found.host, found.port

    assert ask(6, 2) == (E.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
    assert ask(5, 2) == (E.INVALID_REQUEST, -1, "", -1)
    assert ask(6, 9) == (E.INVALID_REQUEST, -1, "", -1)


def test_a_member_comes_and_goes(one):
    versions = [(0, 0, 0, 0), (3, 2, 2, 2), (5, 3, 3, 3), (9, 5, 4, 5)]
    for number, (join, sync, heartbeat, leave) in enumerate(versions):
        client = Client(one, group=f"g{number}")
        client.find()
        joined = client.join(join)
        assert (joined.error_code, joined.generation_id) == (E.NONE, 1)
        assert joined.leader == joined.member_id == joined.members[0].member_id
        assert joined.protocol_name == "range"
        assert client.sync(joined, sync).assignment == b"mine"
        assert client.heartbeat(joined, heartbeat) == E.NONE
        assert client.commit({("t", 0): 5}, 6, 1, joined.member_id) == [E.NONE]
        group = client.describe()
        assert (group.group_state, group.protocol_data) == ("Stable", "range")
        assert group.members[0].client_host.startswith("/")
        assert group.members[0].member_assignment == b"mine"
        many = leave >= 3
        member = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
        who = {"members": [member]} if many else {"member_id": joined.member_id}
        request = LeaveGroupRequest(group_id=client.group, **who)
        left = one.ask(0, request, leave)
        assert left.error_code == E.NONE
        assert [m.error_code for m in left.members] == [E.NONE] * many
        again = one.ask(0, request, leave)
        assert again.error_code == (E.NONE if many else E.UNKNOWN_MEMBER_ID)
        assert client.describe().group_state == "Empty"


def test_errors_of_membership(one):
    client = Client(one)
    client.find()
    assert client.join(9, member_id="nobody").error_code == E.UNKNOWN_MEMBER_ID
    assert client.join(4, member_id="nobody").protocol_name == ""
    client.group = ""
    assert client.join(5).error_code == E.INVALID_GROUP_ID
    joined = client.join(5)
    assert client.heartbeat(joined) == E.INVALID_GROUP_ID
    client.group = "g"
    without = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
    assert one.ask(0, without, 5).error_code == E.INCONSISTENT_GROUP_PROTOCOL


def test_offset_commit_and_fetch(one):
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    for version in range(10):
        client = Client(one, group=f"v{version}")
        client.find()
        assert client.commit({("t", 0): 7}, version) == [E.NONE]
        assert client.commit({("t", 9): 1, ("u", 0): 1}, version) == [unknown, unknown]
        both = client.commit({("t", 1): 3, ("u", 0): 1}, version)
        assert sorted(both) == [E.NONE, unknown]
        assert client.fetch((("t", 0), ("t", 1)), version) == {("t", 0): 7, ("t", 1): 3}
        if version:
            assert client.fetch((("u", 0),), version) == {("u", 0): -1}
        if version >= 2:
            assert client.fetch(None, version) == {("t", 0): 7, ("t", 1): 3}


def test_a_long_group_gets_no_znodes(one):
    """ZooKeeper never forgets them."""
    for size, version, code in ((249, 0, E.NONE), (250, 0, E.INVALID_GROUP_ID), (250, 1, E.NONE)):
        client = Client(one, group="g" * size)
        client.find()
        assert client.commit({("t", 0): 5}, version) == [code]


def test_version_0_uses_znodes(one):
    client = Client(one)
    client.find()
    assert client.commit({("t", 0): 7}, 0) == [E.NONE]
    assert one.znode("/consumers/g/offsets/t/0").data == b"7"
    assert client.fetch((("u", 0),), 0) == {("u", 0): E.UNKNOWN_TOPIC_OR_PARTITION}
    assert client.commit({("t", 0): 8}, 0) == [E.NONE]
    assert client.fetch((("t", 0),), 0) == {("t", 0): 8}
    assert client.fetch((("t", 0),), 1) == {("t", 0): -1}


def test_metadata_of_a_commit(one):
    client = Client(one)
    client.find()
    assert client.commit({("t", 0): 7}, metadata="x" * 4096) == [E.NONE]
    assert client.commit({("t", 0): 8}, metadata="x" * 4097) == [E.OFFSET_METADATA_TOO_LARGE]
    assert client.fetch() == {("t", 0): 7}


def test_a_group_of_many_fetched_at_once(one):
    for name, offset in (("g", 1), ("h", 2)):
        client = Client(one, group=name)
        client.find()
        client.commit({("t", 0): offset})
    r = OffsetFetchRequest
    groups = [r.OffsetFetchRequestGroup(group_id=n, topics=None) for n in ("g", "h", "nobody")]
    found = one.ask(0, r(groups=groups), 9).groups
    assert [(g.group_id, [t.partitions[0].committed_offset for t in g.topics]) for g in found] == [
        ("g", [1]), ("h", [2]), ("nobody", []),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("request_of_none", "version", "answer"),
    [
        (OffsetFetchRequest(groups=[]), 8, OffsetFetchResponse()),
        (OffsetFetchRequest(groups=[]), 9, OffsetFetchResponse()),
        (AddPartitionsToTxnRequest(transactions=[]), 4, AddPartitionsToTxnResponse()),
        (FindCoordinatorRequest(coordinator_keys=[]), 4, FindCoordinatorResponse()),
        (DescribeGroupsRequest(groups=[]), 5, DescribeGroupsResponse()),
        (DeleteGroupsRequest(groups_names=[]), 2, DeleteGroupsResponse()),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, int) else f"v{v}",
)
def test_a_request_for_nothing_is_answered_at_once(one, request_of_none, version, answer):
    """Kafka never answers the first two: all that follows on that connection would wait."""
    client = one.simulation.node("client")

    async def go():
        peer = await PeerConnection.open(client.world, "b0", 9092, "t", timeout_s=5)
        try:
            asked = [peer.send(request_of_none, version, 1.0)]
            asked.append(peer.send(ListGroupsRequest(), 4, 1.0))
            return await asyncio.gather(*asked)
        finally:
            peer.close()

    found, behind = client.call(go())
    assert found == answer
    assert behind.error_code == E.NONE


@pytest.mark.parametrize(
    ("heartbeat", "versions"),
    [(ConsumerGroupHeartbeatRequest, (0, 1)), (ShareGroupHeartbeatRequest, (1, 1))],
)
def test_the_new_protocols_are_listed_and_refused_at_once(one, heartbeat, versions):
    """librdkafka asks again for ever for what ApiVersions does not list, and reports nothing."""
    listed = one.ask(0, ApiVersionsRequest(), 0).api_keys
    low, high = next(
        (k.min_version, k.max_version) for k in listed if k.api_key == heartbeat.API_KEY
    )
    assert (low, high) == versions
    for version in range(low, high + 1):
        answer = one.ask(0, heartbeat(group_id="g", member_id="m"), version)
        assert answer.error_code == E.UNSUPPORTED_VERSION
        assert answer.error_message == "only the classic group protocol is served"
    assert one.ask(0, ListGroupsRequest(), 5).groups == []


def test_administration(one):
    client = Client(one)
    client.find()
    joined = client.join()
    client.sync(joined)
    Client(one, group="empty").commit({("t", 0): 1})

    def listed(version=4, **filters):
        found = one.ask(0, ListGroupsRequest(**filters), version)
        assert found.error_code == E.NONE
        return {g.group_id: (g.protocol_type, g.group_state, g.group_type) for g in found.groups}

    assert listed(5) == {
        "g": ("consumer", "Stable", "classic"),
        "empty": ("", "Empty", "classic"),
    }
    assert set(listed(0)) == {"g", "empty"}
    assert set(listed(4, states_filter=["stable"])) == {"g"}
    assert set(listed(5, types_filter=["Classic"])) == {"g", "empty"}
    assert listed(5, types_filter=["consumer"]) == {}
    request = DescribeGroupsRequest(groups=["nobody"], include_authorized_operations=True)
    (nobody,) = one.ask(0, request, 5).groups
    assert (nobody.error_code, nobody.group_state) == (E.NONE, "Dead")
    assert nobody.authorized_operations == (1 << 3) + (1 << 6) + (1 << 8)
    for version in range(3):
        names = ["g", "empty", "nobody"]
        deleted = one.ask(0, DeleteGroupsRequest(groups_names=names), version).results
        assert [r.error_code for r in deleted] == [
            E.NON_EMPTY_GROUP, E.NONE if version == 0 else E.GROUP_ID_NOT_FOUND,
            E.GROUP_ID_NOT_FOUND,
        ]  # fmt: skip


# As faust-streaming writes it: the number of version 3, and no field after those of version 0.
OF_FAUST = pack(">hih1si", 3, 1, 1, b"t", 13) + b'{"__faust":1}'


@pytest.mark.parametrize("metadata", [SUBSCRIPTION, OF_FAUST], ids=["whole", "version-0-fields"])
def test_offset_delete(one, metadata):
    client = Client(one)
    client.find()

    def delete(group, *partitions):
        r = OffsetDeleteRequest
        topics = [
            r.OffsetDeleteRequestTopic(
                name=t, partitions=[r.OffsetDeleteRequestPartition(partition_index=p)]
            )
            for t, p in partitions
        ]
        answer = one.ask(0, r(group_id=group, topics=topics), 0)
        return answer.error_code, [p.error_code for t in answer.topics for p in t.partitions]

    assert delete("nobody", ("t", 0)) == (E.GROUP_ID_NOT_FOUND, [])
    client.commit({("t", 0): 1, ("t", 1): 2})
    assert delete("g", ("t", 0), ("u", 0)) == (E.NONE, [E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE])
    assert client.fetch(None) == {("t", 1): 2}
    joined = client.join(metadata=metadata)
    client.sync(joined)
    create(one, "v")
    assert delete("g", ("t", 1)) == (E.NONE, [E.GROUP_SUBSCRIBED_TO_TOPIC])
    assert delete("g", ("v", 0)) == (E.NONE, [E.NONE])
    assert client.fetch(None) == {("t", 1): 2}


def test_offsets_of_a_deleted_topic_go(one):
    client = Client(one)
    client.find()
    create(one, "gone")
    client.commit({("t", 0): 1, ("gone", 0): 2})
    one.ask(0, DeleteTopicsRequest(topic_names=["gone"], timeout_ms=10_000), 4)
    one.wait(lambda: ("gone", 0) not in client.fetch(None))
    assert client.fetch(None) == {("t", 0): 1}


def test_offsets_expire_and_the_group_with_them(scene):
    scene.up(
        0, **SETTINGS, offsets_retention_minutes="1", offsets_retention_check_interval_ms="10000"
    )
    create(scene)
    client = Client(scene)
    client.find()
    client.commit({("t", 0): 1})
    scene.simulation.run_for(50)
    assert client.fetch() == {("t", 0): 1}
    client.commit({("t", 1): 1})
    scene.simulation.run_for(21)
    assert client.fetch((("t", 0), ("t", 1))) == {("t", 0): -1, ("t", 1): 1}
    scene.simulation.run_for(60)
    assert client.describe().group_state == "Dead"


def test_a_clock_that_jumps_forward_deletes_nothing_young(scene):
    """F23: neither committed offsets nor records, and both still go when their time has come."""
    scene.up(
        0, **SETTINGS, offsets_retention_minutes="2", offsets_retention_check_interval_ms="1000",
        log_retention_ms="120000", log_retention_check_interval_ms="1000",
        log_message_timestamp_type="LogAppendTime",
    )  # fmt: skip
    create(scene)
    client = Client(scene)
    client.find()
    client.commit({("t", 0): 1})
    scene.produce("t")
    log = scene.brokers["b0"].services.replicas.hosted("t", 0).log
    scene.simulation.node("b0").jump_wall_clock(3_600_000)
    scene.simulation.run_for(60)
    assert client.fetch() == {("t", 0): 1}
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)
    # It follows the jump by a tenth of what passes: an hour is caught up with after ten.
    scene.simulation.run_for(120)
    assert client.fetch() == {("t", 0): -1}
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


def test_groups_and_offsets_survive_a_restart(one):
    client = Client(one)
    client.find()
    joined = client.join()
    client.sync(joined)
    client.commit({("t", 0): 42}, 6, 1, joined.member_id)
    Client(one, group="deleted").commit({("t", 0): 1})
    one.ask(0, DeleteGroupsRequest(groups_names=["deleted"]), 2)
    one.simulation.node("b0").crash()
    one.wait(lambda: not one.simulation.node("b0").up)
    one.boot(0, **SETTINGS)
    one.wait(lambda: one.heard("b0"))
    client.find()
    one.simulation.run_for(1)
    assert client.fetch() == {("t", 0): 42}
    group = client.describe()
    assert (group.group_state, group.members[0].member_id) == ("Stable", joined.member_id)
    assert client.heartbeat(joined) == E.NONE
    client.group = "deleted"
    assert client.describe().group_state == "Dead"
    one.simulation.run_for(15)
    client.group = "g"
    assert client.describe().group_state == "Empty"


def test_another_broker_takes_over(scene):
    settings = SETTINGS | {"offsets_topic_replication_factor": "2"}
    for number in (0, 1):
        scene.up(number, **settings)
    create(scene, replicas=2)
    client = Client(scene)
    client.find()
    first = client.at
    joined = client.join()
    client.sync(joined)
    assert client.commit({("t", 0): 42}, 6, 1, joined.member_id) == [E.NONE]
    other = Client(scene, 1 - first)
    assert other.heartbeat(joined) == E.NOT_COORDINATOR
    scene.simulation.node(f"b{first}").crash()
    scene.wait(lambda: other.heartbeat(joined) == E.NONE)
    assert other.fetch() == {("t", 0): 42}
    assert other.describe().members[0].member_assignment == b"mine"


def test_a_commit_below_min_isr_is_refused_as_unavailable(one):
    client = Client(one)
    client.find()
    client.commit({("t", 0): 1})
    broker = one.brokers["b0"]
    for partition in broker.services.replicas.partitions.values():
        if partition.tp.topic == "__consumer_offsets":
            followers = partition.state.followers
            followers[7] = next(iter(followers.values()), None) or object()
            partition.log.config = type(partition.log.config)(
                **{f: getattr(partition.log.config, f) for f in partition.log.config.__slots__}
                | {"min_insync_replicas": 2}
            )
    assert client.commit({("t", 0): 2}) == [E.COORDINATOR_NOT_AVAILABLE]
    assert client.fetch() == {("t", 0): 1}
