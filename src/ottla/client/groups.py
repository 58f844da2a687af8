"""Groups: list, measure and delete groups, of any Kafka.

Invariants: a group is asked for at its coordinator, which is looked for again when it moved. Kafka:
`ConsumerGroupCommand`, as `group_resets` does.
"""

from collections.abc import Sequence

import msgspec

from ottla.client.client import Client
from ottla.client.coordinators import VERSION_OF_ONE_GROUP, at_coordinator, at_each_broker
from ottla.client.error_texts import explained, failure, with_way_out
from ottla.client.group_descriptions import CLASSIC, SHARE, GroupDescription, describe
from ottla.client.offsets import log_offsets
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition, by_topic
from ottla.model.protocol import LATEST
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_delete import OffsetDeleteRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest

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
    readers = {partition: m for m in described.members for partition in m.partitions}
    partitions = {str(tp): tp for tp in offsets}
    for name in readers:
        topic, _, index = name.rpartition("-")
        partitions.setdefault(name, TopicPartition(topic, int(index)))
    ends = await log_offsets(client, partitions.values(), LATEST, problems=problems)
    rows = []
    for name, tp in sorted(partitions.items(), key=lambda item: item[1]):
        offset, end, member = offsets.get(tp), ends.get(tp), readers.get(name)
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
    from ottla.wire.messages.describe_share_group_offsets import (
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
    """Delete groups; return what stood against it for each, None where nothing did."""
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
    """Return what stands against deleting each group, None where nothing does; change nothing."""
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
    """Delete a group's offsets of partitions; return what stood against each, None for nothing."""
    r = OffsetDeleteRequest
    topics = [
        r.OffsetDeleteRequestTopic(
            name=name,
            partitions=[r.OffsetDeleteRequestPartition(partition_index=p) for p in indexes],
        )
        for name, indexes in by_topic(partitions).items()
    ]
    request = r(group_id=group, topics=topics)
    _, response = await at_coordinator(client, group, request, lambda a: a.error_code)
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
