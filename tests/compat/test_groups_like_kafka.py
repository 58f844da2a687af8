"""Every request of groups in every version, right and wrong, asked of Kafka 3.9 and of us.

The answers must be equal, but for what is random or an address, and so must be what stands in
`__consumer_offsets` afterwards. Both begin empty and are asked the
same questions in the same order over an own minimal client.
"""

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from ottla.log.files import OsFiles
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.groups import (
    ConsumerProtocolSubscription,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    GroupMetadataKey,
    GroupMetadataValue,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitValue,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.records import iter_batches, iter_records

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(400)]

SETTINGS = {
    "offsets_topic_num_partitions": "3",
    "offsets_topic_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "0",
    "group_max_size": "3",
    "auto_create_topics_enable": "false",
}
MEMBER = re.compile(r"[\w-]+?-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
COORDINATOR_NOT_AVAILABLE = 15
TOPIC_ALREADY_EXISTS = 36


class Asker:
    """Asks one broker and writes down what it says, random parts replaced."""

    def __init__(self, port):
        self.port = port
        self.peers = {}
        self.lines = []
        self.members = {}

    async def peer(self, name):
        if name not in self.peers:
            world = real_world(OsFiles())
            self.peers[name] = await PeerConnection.open(
                world, "127.0.0.1", self.port, "asker", timeout_s=10
            )
        return self.peers[name]

    async def send(self, request, version, who="a"):
        answer = await (await self.peer(who)).send(request, version, 30)
        if MEMBER.fullmatch(getattr(answer, "member_id", "")):
            self.name(answer.member_id)  # in the order they were given out
        return answer

    async def ask(self, what, request, version, who="a"):
        answer = await self.send(request, version, who)
        self.note(f"{what} v{version}", answer)
        return answer

    def note(self, what, answer):
        text = json.dumps(self.plain(answer), sort_keys=True)
        # Not within a longer number: -2147483648 has the port 14748 in it.
        text = re.sub(rf"(?<!\d){self.port}(?!\d)", "PORT", text)
        self.lines.append(f"{what}: {text}")

    def name(self, member_id):
        if member_id not in self.members:
            self.members[member_id] = f"<{member_id[:-37]} {len(self.members)}>"
        return self.members[member_id]

    def plain(self, value):
        if isinstance(value, msgspec.Struct):
            return {name: self.plain(getattr(value, name)) for name in value.__struct_fields__}
        if isinstance(value, list):
            items = [self.plain(item) for item in value]
            # Kafka keeps these in hash maps.
            return sorted(items, key=lambda i: json.dumps(i, sort_keys=True))
        if isinstance(value, (bytes, memoryview)):
            return value.hex()
        if isinstance(value, str):
            return MEMBER.sub(lambda m: self.name(m.group()), value)
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def join(group="g", member_id="", instance=None, protocols=("range",), kind="consumer", **more):
    metadata = encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 1)
    one = JoinGroupRequest.JoinGroupRequestProtocol
    values = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000} | more
    return JoinGroupRequest(
        group_id=group, member_id=member_id, group_instance_id=instance, protocol_type=kind,
        protocols=[one(name=p, metadata=metadata) for p in protocols], **values,
    )  # fmt: skip


def sync(joined, group="g", assignments=None, **more):
    one = SyncGroupRequest.SyncGroupRequestAssignment
    values = {
        "generation_id": joined.generation_id, "member_id": joined.member_id,
        "protocol_type": "consumer", "protocol_name": "range",
    } | more  # fmt: skip
    return SyncGroupRequest(
        group_id=group,
        assignments=[one(member_id=m, assignment=a) for m, a in (assignments or {}).items()],
        **values,
    )


def heartbeat(joined, group="g", **more):
    values = {"generation_id": joined.generation_id, "member_id": joined.member_id} | more
    return HeartbeatRequest(group_id=group, **values)


def leave(*members, group="g"):
    one = LeaveGroupRequest.MemberIdentity
    return LeaveGroupRequest(
        group_id=group,
        members=[one(member_id=m, group_instance_id=i, reason="asked") for m, i in members],
    )


def commit(offsets, group="g", generation=-1, member_id="", metadata="m", **more):
    r = OffsetCommitRequest
    return r(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id,
        topics=[
            r.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    r.OffsetCommitRequestPartition(
                        partition_index=p, committed_offset=o, committed_metadata=metadata
                    )
                ],
            )
            for (topic, p), o in offsets.items()
        ], **more,
    )  # fmt: skip


def fetch(partitions, version, groups=("g",)):
    r = OffsetFetchRequest
    if version < 8:
        topics = None if partitions is None else [
            r.OffsetFetchRequestTopic(name=t, partition_indexes=[p]) for t, p in partitions
        ]  # fmt: skip
        return r(group_id=groups[0], topics=topics)
    topics = None if partitions is None else [
        r.OffsetFetchRequestTopics(name=t, partition_indexes=[p]) for t, p in partitions
    ]  # fmt: skip
    return r(groups=[r.OffsetFetchRequestGroup(group_id=g, topics=topics) for g in groups])


def describe(*groups, version=5):
    return DescribeGroupsRequest(groups=list(groups), include_authorized_operations=version >= 3)


async def script(asker):
    topics = [CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=1)]
    created = CreateTopicsRequest(topics=topics, timeout_ms=10_000)
    while (await asker.send(created, 5)).topics[0].error_code not in (0, TOPIC_ALREADY_EXISTS):
        await asyncio.sleep(0.2)  # there is no controller yet
    await finding(asker)
    await membership(asker)
    await statics(asker)
    await crowds(asker)
    await offsets(asker)
    await administration(asker)


async def finding(asker):
    first = FindCoordinatorRequest(coordinator_keys=["g"])
    await asker.ask("first find", first, 4)
    while (await asker.send(first, 4)).coordinators[0].error_code == COORDINATOR_NOT_AVAILABLE:
        await asyncio.sleep(0.2)
    # The JVM loads its partitions a moment after it says that it leads them.
    while (await asker.send(heartbeat_of_nobody(), 0)).error_code in (14, 15, 16):
        await asyncio.sleep(0.2)
    for version in range(4):
        await asker.ask("find", FindCoordinatorRequest(key="g"), version)
    for version in (4, 5, 6):
        many = FindCoordinatorRequest(coordinator_keys=["g", "", "h"])
        await asker.ask("find many", many, version)
        share = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:t:0"])
        await asker.ask("find share", share, version)


def heartbeat_of_nobody():
    return HeartbeatRequest(group_id="nobody", generation_id=1, member_id="m")


async def membership(asker):
    for version in range(10):
        group = f"join{version}"
        await asker.ask("join of a stranger", join(group, "stranger"), version)
        await asker.ask("short session", join(group, session_timeout_ms=1), version)
        await asker.ask("long session", join(group, session_timeout_ms=10**9), version)
        await asker.ask("no group id", join(""), version)
        await asker.ask("no protocols", join(group, protocols=()), version)
        await asker.ask("no protocol type", join(group, kind=""), version)
        joined = await asker.ask("join", join(group), version)
        if joined.error_code:
            joined = await asker.ask("join again", join(group, joined.member_id), version)
        await asker.ask("another protocol", join(group, protocols=("other",)), version)
        await asker.ask("another type", join(group, kind="connect"), version)
        await asker.ask("describe completing", describe(group), 5)
        await asker.ask(
            "commit while completing",
            commit({("t", 0): 1}, group, joined.generation_id, joined.member_id), 8,
        )  # fmt: skip
        v = min(version, 5)
        await asker.ask("sync, bad generation", sync(joined, group, generation_id=77), v)
        await asker.ask("sync of a stranger", sync(joined, group, member_id="stranger"), v)
        await asker.ask("sync, no group", sync(joined, "nowhere"), v)
        await asker.ask("sync, no group id", sync(joined, ""), v)
        if version >= 5:
            await asker.ask("sync, other protocol", sync(joined, group, protocol_name="x"), 5)
            await asker.ask("sync, no protocol", sync(joined, group, protocol_name=None), 5)
        mine = {joined.member_id: b"mine", "stranger": b"x"}
        await asker.ask("sync", sync(joined, group, mine), v)
        await asker.ask("sync twice", sync(joined, group, {joined.member_id: b"new"}), v)
        h = min(version, 4)
        await asker.ask("heartbeat", heartbeat(joined, group), h)
        await asker.ask("heartbeat, bad generation", heartbeat(joined, group, generation_id=9), h)
        await asker.ask("heartbeat of a stranger", heartbeat(joined, group, member_id="x"), h)
        await asker.ask("heartbeat, no group", heartbeat(joined, "nowhere"), h)
        await asker.ask("heartbeat, no group id", heartbeat(joined, ""), h)
        for d in range(6):
            await asker.ask("describe", describe(group, "nowhere", "", version=d), d)
        v = min(version, 5)
        if v >= 3:
            gone = ("", "no instance"), ("stranger", None), (joined.member_id, None)
            await asker.ask("leave", leave(*gone, group=group), v)
            await asker.ask("leave, no group", leave(("m", None), group="nowhere"), v)
            await asker.ask("leave, no group id", leave(("m", None), group=""), v)
        else:
            for member in ("stranger", joined.member_id, joined.member_id):
                request = LeaveGroupRequest(group_id=group, member_id=member)
                await asker.ask("leave", request, v)
            await asker.ask("leave, no group", LeaveGroupRequest(group_id="x", member_id="m"), v)
        await asker.ask("heartbeat after", heartbeat(joined, group), h)
        await asker.ask("describe after", describe(group), 5)


async def statics(asker):
    for version in (5, 8, 9):
        group = f"static{version}"
        first = await asker.ask("static join", join(group, instance="i"), version)
        mine = {first.member_id: b"mine"}
        await asker.ask("static sync", sync(first, group, mine, group_instance_id="i"), 5)
        second = await asker.ask("static return", join(group, instance="i"), version)
        assert second.member_id != first.member_id
        # The answer does not say which generation; it is the one of before.
        fenced = heartbeat(first, group, group_instance_id="i")
        await asker.ask("fenced heartbeat", fenced, 4)
        await asker.ask("fenced join", join(group, first.member_id, "i"), version)
        await asker.ask("fenced sync", sync(first, group, group_instance_id="i"), 5)
        await asker.ask(
            "fenced commit",
            commit(
                {("t", 0): 1}, group, first.generation_id, first.member_id, group_instance_id="i"
            ), 8,
        )  # fmt: skip
        await asker.ask("fenced leave", leave((first.member_id, "i"), group=group), 5)
        await asker.ask("unknown instance", join(group, second.member_id, "j"), version)
        await asker.ask("heartbeat", heartbeat(second, group, group_instance_id="i"), 4)
        await asker.ask("sync", sync(second, group, group_instance_id="i"), 5)
        await asker.ask("describe", describe(group), 5)
        await asker.ask("leave by instance", leave(("", "i"), group=group), 5)


async def crowds(asker):
    """Three members at once on three connections, one too many, a rebalance among them."""
    group = "crowd"
    first = await asker.send(join(group), 3, "a")
    await asker.send(sync(first, group, {first.member_id: b"1"}), 3, "a")
    second = asyncio.ensure_future(asker.send(join(group), 3, "b"))
    while (await asker.send(heartbeat(first, group), 3, "a")).error_code == 0:
        await asyncio.sleep(0.02)
    await asker.ask("heartbeat while preparing", heartbeat(first, group), 3)
    await asker.ask("sync while preparing", sync(first, group), 3)
    await asker.ask("describe while preparing", describe(group), 5)
    request = commit({("t", 0): 5}, group, first.generation_id, first.member_id)
    await asker.ask("commit while preparing", request, 8)
    again = await asker.ask("rejoin", join(group, first.member_id), 3)
    asker.note("second", await second)
    joined = await second
    waiting = asyncio.ensure_future(asker.send(sync(joined, group), 3, "b"))
    await asyncio.sleep(0.1)
    given = {first.member_id: b"1", joined.member_id: b"2"}
    await asker.ask("leader's sync", sync(again, group, given), 3)
    asker.note("follower's sync", await waiting)
    unchanged = await asker.ask("unchanged follower", join(group, joined.member_id), 3, "b")
    assert unchanged.error_code == 0
    third = asyncio.ensure_future(asker.send(join(group), 3, "c"))
    while (await asker.send(heartbeat(again, group), 3, "a")).error_code == 0:
        await asyncio.sleep(0.02)
    rejoined = [
        asyncio.ensure_future(asker.send(join(group, j.member_id), 3, who))
        for j, who in ((again, "a"), (joined, "b"))
    ]
    found = [await one for one in (*rejoined, third)]
    assert [f.error_code for f in found] == [0, 0, 0]
    await asker.ask("too many", join(group), 3, "d")
    await asker.ask("too many, with an id", join(group), 5, "d")
    await asker.ask("list", ListGroupsRequest(states_filter=["CompletingRebalance"]), 4)
    everybody = [(f.member_id, None) for f in found]
    await asker.ask("all leave", leave(*everybody, group=group), 3)


async def offsets(asker):
    for version in range(10):
        group = f"o{version}"
        await asker.ask("fetch nothing", fetch([("t", 0)], version, (group,)), version)
        both = {("t", 0): 7, ("t", 1): 8, ("t", 5): 1, ("none", 0): 1}
        await asker.ask("commit", commit(both, group), version)
        await asker.ask("only unknown", commit({("none", 0): 1}, group), version)
        long = commit({("t", 0): 9}, group, metadata="x" * 4097)
        await asker.ask("long metadata", long, version)
        await asker.ask("null metadata", commit({("t", 1): 9}, group, metadata=None), version)
        some = [("t", 0), ("t", 1), ("t", 5), ("none", 3)]
        await asker.ask("fetch", fetch(some, version, (group,)), version)
        if version >= 2:
            await asker.ask("fetch all", fetch(None, version, (group,)), version)
        if version >= 8:
            await asker.ask("fetch many", fetch(None, version, (group, "nowhere", "")), version)
        if version >= 1:
            for generation, member in ((1, "m"), (-1, "m"), (0, "")):
                request = commit({("t", 0): 3}, f"{group}x", generation, member)
                await asker.ask(f"commit as {generation} {member}", request, version)
            await asker.ask("no group id", commit({("t", 0): 3}, ""), version)


async def administration(asker):
    member = await asker.send(join("admin"), 3)
    await asker.send(sync(member, "admin", {member.member_id: b"x"}), 3)
    for version in range(6):
        await asker.ask("list", ListGroupsRequest(), version)
    for states in (["stable"], ["Empty"], ["nonsense"]):
        await asker.ask(f"list {states}", ListGroupsRequest(states_filter=states), 4)
    for types in (["classic"], ["CONSUMER"], ["nonsense"]):
        await asker.ask(f"list {types}", ListGroupsRequest(types_filter=types), 5)

    def delete_offsets(group, *partitions):
        r = OffsetDeleteRequest
        one = r.OffsetDeleteRequestPartition
        topics = [
            r.OffsetDeleteRequestTopic(name=t, partitions=[one(partition_index=p)])
            for t, p in partitions
        ]
        return r(group_id=group, topics=topics)

    await asker.ask("offset delete", delete_offsets("o5", ("t", 0), ("none", 0)), 0)
    await asker.ask("of nobody", delete_offsets("nowhere", ("t", 0)), 0)
    await asker.ask("no group id", delete_offsets("", ("t", 0)), 0)
    await asker.ask("subscribed", delete_offsets("admin", ("t", 0), ("none", 0)), 0)
    await asker.ask("fetch after", fetch(None, 5, ("o5",)), 5)
    for version in range(3):
        names = [f"o{version + 1}", "admin", "nowhere", "", f"o{version + 1}"]
        await asker.ask("delete", DeleteGroupsRequest(groups_names=names), version)
    await asker.ask("list", ListGroupsRequest(), 5)
    # Else its session ends while one of the two brokers stops: that is a record, too.
    await asker.ask("the last leaves", leave((member.member_id, None), group="admin"), 3)


async def transcript(port):
    asker = Asker(port)
    try:
        await asyncio.wait_for(script(asker), 180)
    finally:
        for peer in asker.peers.values():
            peer.close()
    return asker


def records(asker, folder):
    """Return what stands in the groups' log: a line for each batch, times replaced."""
    lines = []
    for index in range(3):
        data = memoryview((folder / f"__consumer_offsets-{index}" / f"{0:020}.log").read_bytes())
        for pos, batch in iter_batches(data):
            found = sorted(describe_record(asker, r) for r in iter_records(data, pos))
            facts = (batch.attributes, batch.producer_id, batch.producer_epoch)
            lines.append(f"{index} {facts} {found}")
    return lines


def describe_record(asker, record):
    kind = int.from_bytes(record.key[:2], "big")
    key = decode_versioned(GroupMetadataKey if kind == 2 else OffsetCommitKey, record.key)
    text = f"key v{kind} {asker.plain(key)}"
    if record.value is not None:
        version = int.from_bytes(record.value[:2], "big")
        cls = GroupMetadataValue if kind == 2 else OffsetCommitValue
        value = asker.plain(decode_versioned(cls, record.value))
        text += f" value v{version} {value}"
    return re.sub(r"'(\w*timestamp)': \d+", r"'\1': NOW", text)


def test_the_same_answers_and_the_same_records(tmp_path, kafka_tools):
    from support.cluster import OttlaCluster
    from support.kafka39 import Kafka39Cluster

    def told(cluster):
        with cluster:
            asker = asyncio.run(transcript(cluster.ports[0]))
        return asker.lines, records(asker, cluster.data(0))

    both = (
        Kafka39Cluster(tmp_path / "kafka", brokers=1, heap_mb=320, **SETTINGS),
        OttlaCluster(tmp_path / "ours", brokers=1, zookeeper_server="java", **SETTINGS),
    )
    with ThreadPoolExecutor(2) as at_once:  # most of it is waiting
        (theirs, their_records), (ours, our_records) = at_once.map(told, both)
    different = [(a, b) for a, b in zip(theirs, ours, strict=False) if a != b]
    for a, b in different[:20]:
        print(f"kafka {a}\nottla {b}\n")
    assert not different, f"{len(different)} of {len(theirs)} answers differ"
    assert len(theirs) == len(ours) > 500
    for a, b in zip(their_records, our_records, strict=False):
        assert a == b
    assert len(their_records) == len(our_records) > 50
