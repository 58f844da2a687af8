"""Groups: listed, described, measured and deleted, of any Kafka and of any type.

Invariants: a group is asked for at its coordinator, which is looked for again when it moved, and
described by the request of its type; the types of KIP-848, KIP-932 and KIP-1071 exist on Apache
Kafka from 4.0 on, and their requests are sent only for a group that is not a classic one. Kafka:
`ConsumerGroupCommand`, `DescribeConsumerGroupsHandler` and its siblings.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ottla.client.client import Client
from ottla.client.coordinators import VERSION_OF_ONE_GROUP, at_coordinator, at_each_broker
from ottla.client.error_texts import explained, failure, with_way_out
from ottla.client.offsets import log_offsets
from ottla.model.errors import ErrorCode, OttlaError, UnsupportedVersionError
from ottla.model.ids import Partition, TopicPartition, by_topic
from ottla.model.protocol import LATEST
from ottla.wire.codec import decode_versioned
from ottla.wire.messages.groups import (
    ConsumerProtocolAssignment,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)

if TYPE_CHECKING:
    from ottla.wire.messages.groups import (
        ConsumerGroupDescribeResponse,
        DescribeGroupsResponse,
        ShareGroupDescribeResponse,
        StreamsGroupDescribeResponse,
    )

    _Group = (
        ConsumerGroupDescribeResponse.DescribedGroup | ShareGroupDescribeResponse.DescribedGroup
    )
    _Member = (
        ConsumerGroupDescribeResponse.Member
        | DescribeGroupsResponse.DescribedGroupMember
        | ShareGroupDescribeResponse.Member
        | StreamsGroupDescribeResponse.Member
    )

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
"""Types of groups, as ListGroups names them."""

DEAD = "Dead"
"""DescribeGroups shows this state for a group that does not exist or is not a classic one."""

_OF_ANOTHER_TYPE = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}

WITH_OFFSETS = ("consumer", "share", "streams", "")
"""Protocol types of groups with offsets; empty is a group that only commits."""


class GroupFacts(msgspec.Struct, frozen=True):
    """A group as its coordinator lists it; `state` is empty where the broker does not tell.

    `type` is classic, consumer (KIP-848), share or streams.
    """

    group: str
    type: str
    protocol_type: str
    state: str
    coordinator: int


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


class PartitionLag(Partition, frozen=True):
    """How far a group is in one partition; None where a value is unknown."""

    committed: int | None
    end: int | None
    lag: int | None
    member: str | None
    host: str | None
    client: str | None


class GroupLag(msgspec.Struct, frozen=True):
    """How far a group is behind, in total and in each partition."""

    group: str
    lag: int
    partitions: list[PartitionLag]


class Rated(PartitionLag, frozen=True):
    """How far a group is in one partition, and how fast; None before the second look."""

    read_per_s: float | None = None
    written_per_s: float | None = None


class RatedLag(msgspec.Struct):
    """How far a group is behind, in total and in each partition, and how fast it reads."""

    group: str
    lag: int
    partitions: list[Rated]


def total(rows: Iterable[PartitionLag]) -> int:
    """Return how many records a group is behind, as far as is known."""
    return sum(row.lag or 0 for row in rows)


class Committed(msgspec.Struct, frozen=True):
    """One committed offset."""

    offset: int
    leader_epoch: int
    metadata: str


# --- what there is ------------------------------------------------------------------------------


async def list_groups(client: Client, problems: list[str] | None = None) -> list[GroupFacts]:
    """Return all groups of the cluster, by name.

    What a broker does not tell becomes a line of `problems`; OttlaError for None.
    """
    found: dict[str, GroupFacts] = {}
    request = ListGroupsRequest()
    for broker, response in await at_each_broker(client, request, "groups of broker", problems):
        for group in response.groups:
            found[group.group_id] = GroupFacts(
                group.group_id,
                (group.group_type or CLASSIC).lower(),
                group.protocol_type,
                group.group_state,
                broker,
            )
    return [found[name] for name in sorted(found)]


async def describe(client: Client, group: str) -> GroupDescription:
    """Return a group with its members; OttlaError if it does not exist."""
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


def _member(
    found: "_Member", instance: str | None, partitions: Iterable[TopicPartition]
) -> MemberFacts:
    host = found.client_host.removeprefix("/")
    return MemberFacts(
        found.member_id, instance, found.client_id, host, Partition.all(sorted(partitions))
    )


def _assigned(protocol_type: str, assignment: bytes) -> list[TopicPartition]:
    """Return what a consumer was assigned; nothing if it is not a consumer's assignment."""
    if protocol_type != CONSUMER or not assignment:
        return []
    try:
        said = decode_versioned(ConsumerProtocolAssignment, assignment, newer_ok=True)
    except OttlaError:
        return []
    return [TopicPartition(t.topic, p) for t in said.assigned_partitions for p in t.partitions]


async def _assigned_by_broker(_client: Client, group: "_Group") -> list[MemberFacts]:
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


async def _assigned_tasks(
    client: Client, group: "StreamsGroupDescribeResponse.DescribedGroup"
) -> list[MemberFacts]:
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


async def committed_offsets(client: Client, group: str) -> dict[TopicPartition, Committed]:
    """Return all that a group has committed."""
    request = OffsetFetchRequest(group_id=group, topics=None)
    _, response = await at_coordinator(client, group, request, version=VERSION_OF_ONE_GROUP)
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


async def lag(client: Client, group: str, problems: list[str] | None = None) -> list[PartitionLag]:
    """Return how far a group is in each partition that it reads or has read.

    A leader that does not tell a log's end becomes a line of `problems`; OttlaError for None.
    """
    return await lag_of(client, await describe(client, group), problems)


async def lag_of(
    client: Client, described: GroupDescription, problems: list[str] | None = None
) -> list[PartitionLag]:
    """Return how far a group that was described is, as `lag`."""
    lags: dict[TopicPartition, int | None] = {}
    if described.type == SHARE:
        offsets, lags = await _share_offsets(client, described.group)
    else:
        committed = await committed_offsets(client, described.group)
        offsets = {tp: one.offset for tp, one in committed.items()}
    readers = {
        TopicPartition(p.topic, p.partition): m for m in described.members for p in m.partitions
    }
    partitions = sorted({*offsets, *readers})
    ends = await log_offsets(client, partitions, LATEST, problems=problems)
    rows = []
    for tp in partitions:
        offset, end, member = offsets.get(tp), ends.get(tp), readers.get(tp)
        behind = None if offset is None or end is None else max(0, end - offset)
        rows.append(
            PartitionLag(
                tp.topic,
                tp.partition,
                offset,
                end,
                lags.get(tp, behind),
                None if member is None else member.member,
                None if member is None else member.host,
                None if member is None else member.client,
            )
        )
    return rows


async def _share_offsets(
    client: Client, group: str
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int | None]]:
    """Return where each partition of a share group starts, and its lag as the broker counts it.

    Records above the start may be acknowledged already, so the lag is not what lies above it: None
    where the broker does not tell (before Kafka 4.2).
    """
    from ottla.wire.messages.groups import (
        DescribeShareGroupOffsetsRequest,
    )

    asked = DescribeShareGroupOffsetsRequest.Group(group_id=group, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[asked])
    _, response = await at_coordinator(client, group, request, lambda a: a.groups[0].error_code)
    found = response.groups[0]
    if found.error_code:
        raise failure(f"offsets of group {group}", found.error_code)
    answered = {
        TopicPartition(t.topic_name, p.partition_index): p
        for t in found.topics
        for p in t.partitions
        if not p.error_code and p.start_offset >= 0
    }
    lags = {tp: p.lag if p.lag >= 0 else None for tp, p in answered.items()}
    return {tp: p.start_offset for tp, p in answered.items()}, lags


# --- changes ------------------------------------------------------------------------------------


async def delete(client: Client, groups: Sequence[str]) -> dict[str, str | None]:
    """Delete groups; return why each was not deleted, None if it was."""
    results: dict[str, str | None] = {}
    for group in groups:
        request = DeleteGroupsRequest(groups_names=[group])
        try:
            _, response = await at_coordinator(
                client, group, request, lambda a: a.results[0].error_code
            )
        except OttlaError as error:
            results[group] = str(error)
        else:
            results[group] = _refusal(response.results[0].error_code)
    return results


async def deletable(client: Client, groups: Sequence[str]) -> dict[str, str | None]:
    """Return why each group cannot be deleted, None if it can; change nothing."""
    results: dict[str, str | None] = {}
    for group in groups:
        try:
            code = ErrorCode.NON_EMPTY_GROUP if (await describe(client, group)).members else 0
        except OttlaError as error:
            results[group] = str(error)
        else:
            results[group] = _refusal(code)
    return results


async def forget(
    client: Client, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, str | None]:
    """Delete a group's offsets of partitions; return why each was not, None if it was."""
    r = OffsetDeleteRequest
    topics = [
        r.OffsetDeleteRequestTopic(
            name=name,
            partitions=[r.OffsetDeleteRequestPartition(partition_index=p) for p in indexes],
        )
        for name, indexes in by_topic(partitions).items()
    ]
    request = r(group_id=group, topics=topics)
    _, response = await at_coordinator(client, group, request)
    if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        await refuse_share_group(client, group)
    if response.error_code:
        raise failure(f"offsets of group {group} were not deleted", response.error_code)
    return {
        TopicPartition(t.name, p.partition_index): _refusal(p.error_code)
        for t in response.topics
        for p in t.partitions
    }


async def refuse_share_group(client: Client, group: str) -> GroupDescription:
    """Return the group's description; OttlaError for one whose offsets are not of our requests."""
    found = await describe(client, group)
    if found.type == SHARE:
        raise OttlaError(
            f"group {group} is a share group: change its offsets with Kafka's own tool, "
            "kafka-share-groups.sh (--reset-offsets, --delete-offsets)"
        )
    return found


def _refusal(code: int) -> str | None:
    """Return why something was not done, with the way out where there is one."""
    return with_way_out(explained(code), code) if code else None
