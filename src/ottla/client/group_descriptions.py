"""Descriptions of groups: state, members and what each member reads, whatever the group's type.

Invariants: a group is described by the request of its type; the types of KIP-848, KIP-932 and
KIP-1071 exist on Apache Kafka from 4.0 on, and their requests are sent only for a group that is not
a classic one. Kafka: `DescribeConsumerGroupsHandler` and its siblings of Kafka's admin client.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from ottla.client.client import Client
from ottla.client.coordinators import at_coordinator
from ottla.client.error_texts import failure
from ottla.model.errors import ErrorCode, OttlaError, UnsupportedVersionError
from ottla.model.ids import Partition, TopicPartition
from ottla.wire.codec import decode_versioned
from ottla.wire.messages.groups import ConsumerProtocolAssignment, DescribeGroupsRequest

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
"""Types of groups, as ListGroups names them."""

DEAD = "Dead"
"""The state in which DescribeGroups shows a group that there is not, or not as a classic one."""

_OF_ANOTHER_TYPE = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}


class MemberFacts(msgspec.Struct, frozen=True):
    """A member and what it reads."""

    member: str
    instance: str | None
    client: str
    host: str
    partitions: list[Partition]


class GroupDescription(msgspec.Struct, frozen=True):
    """A group with its members. `protocol` is its assignor."""

    group: str
    type: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: list[MemberFacts]


async def describe(client: Client, group: str) -> GroupDescription:
    """Return a group with its members; OttlaError if there is none of that name."""
    request = DescribeGroupsRequest(groups=[group])
    node, response = await at_coordinator(client, group, request, lambda a: a.groups[0].error_code)
    found = response.groups[0]
    if found.error_code and found.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        raise failure(f"group {group}", found.error_code)
    if found.error_code or found.group_state == DEAD:
        return await _of_a_new_type(client, group)
    members = [
        _member(m, m.group_instance_id, _assigned(found.protocol_type, m.member_assignment))
        for m in found.members
    ]
    return GroupDescription(
        group,
        CLASSIC,
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        node,
        members,
    )


_Members = Callable[[Client, Any], Awaitable[list[MemberFacts]]]


def _new_types() -> tuple[tuple[Callable[..., Any], str, _Members], ...]:
    """Return the request of each new type, its name, and what reads the members."""
    from ottla.wire.messages.groups import (
        ConsumerGroupDescribeRequest,
        ShareGroupDescribeRequest,
        StreamsGroupDescribeRequest,
    )

    return (
        (ConsumerGroupDescribeRequest, CONSUMER, _assigned_by_broker),
        (ShareGroupDescribeRequest, SHARE, _assigned_by_broker),
        (StreamsGroupDescribeRequest, STREAMS, _assigned_tasks),
    )


async def _of_a_new_type(client: Client, group: str) -> GroupDescription:
    for request, type_, members_of in _new_types():
        asking = request(group_ids=[group])
        try:
            node, response = await at_coordinator(
                client, group, asking, lambda a: a.groups[0].error_code
            )
        except UnsupportedVersionError:
            continue
        found = response.groups[0]
        if found.error_code in _OF_ANOTHER_TYPE:
            continue
        if found.error_code:
            raise failure(f"group {group}", found.error_code)
        members = await members_of(client, found)
        assignor = getattr(found, "assignor_name", "")
        return GroupDescription(group, type_, found.group_state, type_, assignor, node, members)
    raise OttlaError(
        f"there is no group {group}; `ottla groups list` shows those there are",
        ErrorCode.GROUP_ID_NOT_FOUND,
    )


def _member(found: Any, instance: str | None, partitions: Iterable[TopicPartition]) -> MemberFacts:
    host = found.client_host.removeprefix("/")
    return MemberFacts(
        found.member_id, instance, found.client_id, host, Partition.all(sorted(partitions))
    )


def _assigned(protocol_type: str, assignment: bytes) -> list[TopicPartition]:
    """Return what a consumer was assigned; nothing for what is no consumer's assignment."""
    if protocol_type != CONSUMER or not assignment:
        return []
    try:
        said = decode_versioned(ConsumerProtocolAssignment, assignment, newer_ok=True)
    except OttlaError:
        return []
    return [TopicPartition(t.topic, p) for t in said.assigned_partitions for p in t.partitions]


async def _assigned_by_broker(client: Client, group: Any) -> list[MemberFacts]:  # noqa: ARG001 - as below
    """Return the members of a consumer group or share group."""
    return [
        _member(
            m,
            getattr(m, "instance_id", None),
            [
                TopicPartition(t.topic_name, p)
                for t in m.assignment.topic_partitions
                for p in t.partitions
            ],
        )
        for m in group.members
    ]


async def _assigned_tasks(client: Client, group: Any) -> list[MemberFacts]:
    """Return the members of a streams group, with the partitions that their active tasks read.

    A task N reads partition N of each source topic of its subtopology that has as many.
    """
    subtopologies = (group.topology.subtopologies if group.topology else None) or []
    sources = {
        s.subtopology_id: [*s.source_topics, *(t.name for t in s.repartition_source_topics)]
        for s in subtopologies
    }
    names = {name for topics in sources.values() for name in topics}
    counts: dict[str, int] = {}
    if names:
        response = await client.metadata(sorted(names))
        counts = {t.name or "": len(t.partitions) for t in response.topics}
    return [
        _member(
            m,
            m.instance_id,
            [
                TopicPartition(topic, p)
                for task in m.assignment.active_tasks
                for topic in sources.get(task.subtopology_id, ())
                for p in task.partitions
                if p < counts.get(topic, 0)
            ],
        )
        for m in group.members
    ]
