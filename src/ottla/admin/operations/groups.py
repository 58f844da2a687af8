"""Groups: list, describe, measure and delete consumer groups, of any Kafka.

Who may call: the command line. Invariants: a group is asked for at its coordinator, which is looked
for again when it moved. Kafka: `ConsumerGroupCommand`, as `group_resets` does.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ottla.admin.error_texts import explained, with_way_out
from ottla.admin.operations.coordinators import VERSION_OF_ONE_GROUP, at_coordinator, at_each_broker
from ottla.admin.operations.offsets import log_offsets
from ottla.admin.session import failure
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.protocol import LATEST
from ottla.net.client import Client
from ottla.wire.codec import decode_versioned
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_delete import OffsetDeleteRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest

CONSUMER = "consumer"


class GroupFacts(msgspec.Struct, frozen=True):
    """A group as its coordinator lists it; `state` is empty where the broker does not tell."""

    group: str
    protocol_type: str
    state: str
    coordinator: int


class MemberFacts(msgspec.Struct, frozen=True):
    """A member and what it reads, as `topic-0`."""

    member: str
    instance: str | None
    client: str
    host: str
    partitions: list[str]


class GroupDescription(msgspec.Struct, frozen=True):
    """A group with its members. `protocol` is its assignor."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: list[MemberFacts]


class PartitionLag(msgspec.Struct, frozen=True):
    """How far a group is in one partition; None where there is nothing to tell."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None
    host: str | None
    client: str | None


class Committed(msgspec.Struct, frozen=True):
    """One committed offset."""

    offset: int
    leader_epoch: int
    metadata: str


# --- what there is ------------------------------------------------------------------------------


async def list_groups(client: Client) -> list[GroupFacts]:
    """Return all groups of the cluster, by name."""
    found: dict[str, GroupFacts] = {}
    for broker, response in await at_each_broker(client, ListGroupsRequest(), "groups of broker"):
        for group in response.groups:
            found[group.group_id] = GroupFacts(
                group.group_id, group.protocol_type, group.group_state, broker
            )
    return [found[name] for name in sorted(found)]


async def describe(client: Client, group: str) -> GroupDescription:
    """Return a group with its members; OttlaError if there is none of that name."""
    request = DescribeGroupsRequest(groups=[group])
    node, response = await at_coordinator(client, group, request, lambda a: a.groups[0].error_code)
    found = response.groups[0]
    if found.error_code:
        raise failure(f"group {group}", found.error_code)
    if found.group_state == "Dead":
        raise OttlaError(
            f"there is no group {group}; `ottla groups list` shows those there are",
            ErrorCode.GROUP_ID_NOT_FOUND,
        )
    members = [
        MemberFacts(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host.removeprefix("/"),
            [str(tp) for tp in _assigned(found.protocol_type, m.member_assignment)],
        )
        for m in found.members
    ]
    return GroupDescription(
        group, found.group_state, found.protocol_type, found.protocol_data, node, members
    )


def _assigned(protocol_type: str, assignment: bytes) -> list[TopicPartition]:
    """Return what a consumer was assigned; nothing for what is no consumer's assignment."""
    if protocol_type != CONSUMER or not assignment:
        return []
    try:
        said = decode_versioned(ConsumerProtocolAssignment, assignment, newer_ok=True)
    except OttlaError:
        return []
    return sorted(
        TopicPartition(t.topic, p) for t in said.assigned_partitions for p in t.partitions
    )


async def committed_offsets(client: Client, group: str) -> dict[TopicPartition, Committed]:
    """Return all that a group has committed."""
    request = OffsetFetchRequest(group_id=group, topics=None)
    _, response = await at_coordinator(
        client, group, request, lambda a: a.error_code, version=VERSION_OF_ONE_GROUP
    )
    if response.error_code:
        raise failure(f"offsets of group {group}", response.error_code)
    found = {
        TopicPartition(t.name, p.partition_index): Committed(
            p.committed_offset, p.committed_leader_epoch, p.metadata or ""
        )
        for t in response.topics
        for p in t.partitions
        if not p.error_code and p.committed_offset >= 0
    }
    return dict(sorted(found.items()))


async def lag(client: Client, group: str) -> list[PartitionLag]:
    """Return how far a group is in each partition that it reads or has read."""
    return await lag_of(client, await describe(client, group))


async def lag_of(client: Client, described: GroupDescription) -> list[PartitionLag]:
    """Return how far a group that was described is, as `lag`."""
    offsets = await committed_offsets(client, described.group)
    readers = {partition: m for m in described.members for partition in m.partitions}
    partitions = {str(tp): tp for tp in offsets}
    for name in readers:
        topic, _, index = name.rpartition("-")
        partitions.setdefault(name, TopicPartition(topic, int(index)))
    ends = await log_offsets(client, partitions.values(), LATEST)
    rows = []
    for name, tp in sorted(partitions.items(), key=lambda item: item[1]):
        committed, end, member = offsets.get(tp), ends.get(tp), readers.get(name)
        behind = None if committed is None or end is None else max(0, end - committed.offset)
        rows.append(
            PartitionLag(
                tp.topic,
                tp.partition,
                None if committed is None else committed.offset,
                end,
                behind,
                None if member is None else member.member,
                None if member is None else member.host,
                None if member is None else member.client,
            )
        )
    return rows


# --- changes ------------------------------------------------------------------------------------


async def delete(client: Client, groups: Sequence[str]) -> dict[str, str | None]:
    """Delete groups; return what stood against it for each, None where nothing did."""
    results: dict[str, str | None] = {}
    for group in groups:
        request = DeleteGroupsRequest(groups_names=[group])
        _, response = await at_coordinator(
            client, group, request, lambda a: a.results[0].error_code
        )
        results[group] = _refusal(response.results[0].error_code)
    return results


async def deletable(client: Client, groups: Sequence[str]) -> dict[str, str | None]:
    """Return what stands against deleting each group, None where nothing does; change nothing."""
    results: dict[str, str | None] = {}
    known = {g.group: g for g in await list_groups(client)}
    for group in groups:
        code = ErrorCode.NONE
        if group not in known:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif (await describe(client, group)).members:
            code = ErrorCode.NON_EMPTY_GROUP
        results[group] = _refusal(code)
    return results


async def forget(
    client: Client, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, str | None]:
    """Delete a group's offsets of partitions; return what stood against each, None for nothing."""
    r = OffsetDeleteRequest
    topics: dict[str, list[Any]] = {}
    for topic, partition in partitions:
        one = r.OffsetDeleteRequestPartition(partition_index=partition)
        topics.setdefault(topic, []).append(one)
    request = r(
        group_id=group,
        topics=[r.OffsetDeleteRequestTopic(name=n, partitions=ps) for n, ps in topics.items()],
    )
    _, response = await at_coordinator(client, group, request, lambda a: a.error_code)
    if response.error_code:
        raise failure(f"offsets of group {group} were not deleted", response.error_code)
    return {
        TopicPartition(t.name, p.partition_index): _refusal(p.error_code)
        for t in response.topics
        for p in t.partitions
    }


def _refusal(code: int) -> str | None:
    """Return why something was not done, with the way out where there is one."""
    return with_way_out(explained(code), code) if code else None
