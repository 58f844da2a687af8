"""Resets: a group's offsets moved to the ends, an offset, a time or what a file says.

Invariants: offsets are only ever moved within what the log holds, and what had to be moved there is
reported; a group with members is refused, also while nothing is changed yet. Kafka:
`--reset-offsets` of Kafka's `ConsumerGroupCommand`, whose files these are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from ottla.client.client import Client
from ottla.client.coordinators import at_coordinator
from ottla.client.error_texts import failure
from ottla.client.groups import Committed, committed_offsets, refuse_share_group
from ottla.client.offsets import log_offsets
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import Partition, TopicPartition, by_topic
from ottla.model.protocol import EARLIEST, LATEST, NO_GENERATION
from ottla.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchResponse,
)
from ottla.wire.messages.transactions import TxnOffsetCommitResponse

T = TypeVar("T")


class Target(msgspec.Struct, frozen=True):
    """Where to: exactly one of these is set.

    `timestamp` is milliseconds since 1970. `current` is where the group is, or the end where it
    never was. `offsets` come from a file.
    """

    earliest: bool = False
    latest: bool = False
    current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    timestamp: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None


class Move(Partition, frozen=True):
    """Where a group's offset of one partition is, was asked to be, and is to be."""

    current: int | None
    asked: int
    new: int


class Reset(msgspec.Struct):
    """A reset of a group's offsets, and whether it was made."""

    group: str
    executed: bool
    partitions: list[Move]


async def plan_reset(
    client: Client,
    group: str,
    partitions: Sequence[TopicPartition] | None,
    target: Target,
) -> list[Move]:
    """Work out a reset of these partitions, of all with an offset for None; changes nothing."""
    await _refuse(client, group)
    offsets = await committed_offsets(client, group)
    if target.offsets is not None:
        partitions = list(target.offsets)
    chosen = sorted(offsets) if partitions is None else list(partitions)
    starts = await log_offsets(client, chosen, EARLIEST)
    ends = await log_offsets(client, chosen, LATEST)
    missing = [str(tp) for tp in chosen if tp not in starts or tp not in ends]
    if missing:
        raise OttlaError(f"no such partitions, or they have no leader: {', '.join(missing)}")
    if target.timestamp is not None:
        wanted = await log_offsets(client, chosen, target.timestamp)
    else:
        wanted = {tp: _wanted(target, tp, offsets, starts, ends) for tp in chosen}
    return [
        Move(
            tp.topic,
            tp.partition,
            offsets[tp].offset if tp in offsets else None,
            wanted[tp],
            min(max(wanted[tp], starts[tp]), ends[tp]),
        )
        for tp in chosen
    ]


async def _refuse(client: Client, group: str) -> None:
    """Raise OttlaError for a group with members, or a share group; an unknown one is fine."""
    try:
        found = await refuse_share_group(client, group)
    except OttlaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if found.members or found.state not in ("Empty", "Dead"):
        raise _has_members(group)


def _has_members(group: str) -> OttlaError:
    return OttlaError(f"group {group} has members: stop them first, or they would overwrite it")


def _wanted(
    target: Target,
    tp: TopicPartition,
    offsets: Mapping[TopicPartition, Committed],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> int:
    if target.earliest:
        return starts[tp]
    if target.latest:
        return ends[tp]
    if target.offsets is not None:
        return target.offsets[tp]
    if target.to_offset is not None:
        return target.to_offset
    if target.current:
        return offsets[tp].offset if tp in offsets else ends[tp]
    assert target.shift_by is not None
    if tp not in offsets:
        raise OttlaError(f"{tp} has no offset to shift: choose another target for it")
    return offsets[tp].offset + target.shift_by


async def reset(client: Client, group: str, moves: Sequence[Move]) -> None:
    """Commit a plan for a group without members."""
    await commit(client, group, {TopicPartition(m.topic, m.partition): m.new for m in moves})


async def commit(client: Client, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group without being a member; OttlaError if it has members."""
    request = commit_request(group, offsets)
    _, response = await at_coordinator(client, group, request, worst_code)
    code = worst_code(response)
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        raise _has_members(group)
    if code:
        raise failure(f"offsets of group {group} were not committed", code)


def commit_request(
    group: str,
    offsets: Mapping[TopicPartition, int],
    generation: int = NO_GENERATION,
    member: str = "",
    instance: str | None = None,
) -> OffsetCommitRequest:
    """Return the request that commits these offsets, for a member or for nobody."""
    r = OffsetCommitRequest
    return r(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=offsets_by_topic(
            r.OffsetCommitRequestTopic, r.OffsetCommitRequestPartition, offsets
        ),
    )


def offsets_by_topic(
    topic: Callable[..., T], partition: Callable[..., object], offsets: Mapping[TopicPartition, int]
) -> list[T]:
    """Return the topics of a request that commits offsets: of the group's own, or a transaction's.

    `topic` and `partition` are the request's own structs, which have the same fields in both.
    """
    return [
        topic(
            name=name,
            partitions=[
                partition(
                    partition_index=p,
                    committed_offset=offsets[TopicPartition(name, p)],
                    committed_metadata="",
                )
                for p in indexes
            ],
        )
        for name, indexes in by_topic(offsets).items()
    ]


def worst_code(
    response: OffsetCommitResponse | OffsetFetchResponse | TxnOffsetCommitResponse,
) -> int:
    """Return the first error of a partition in a response about offsets; 0 if there is none."""
    return next((p.error_code for t in response.topics for p in t.partitions if p.error_code), 0)
