"""Offsets of a log: its beginning, its end, the first one of a time; deletion of what precedes one.

Kafka: `GetOffsetShell`, `OffsetFetcher`, `DeleteRecordsCommand`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.client.client import Client, Patience
from ottla.client.coordinators import Asked, at_each_leader
from ottla.client.error_texts import explained, failure
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import NO_EPOCH, Partition, TopicPartition, by_topic
from ottla.model.protocol import (
    CONSUMER,
    DEBUGGING_CONSUMER,
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    UNKNOWN_OFFSET,
)
from ottla.wire.messages.records import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

AT_ONCE = 2_000
"""Partitions in one request."""


class Place(NamedTuple):
    """One of these is set. `before_end` counts records back from the end of each partition."""

    offset: int | None = None
    before_end: int | None = None
    timestamp: int | None = None
    """a time, or EARLIEST or LATEST"""


BEGINNING, END = Place(timestamp=EARLIEST), Place(timestamp=LATEST)


class LogOffset(NamedTuple):
    """What a leader says of a time: -1 as offset where no record is as late."""

    offset: int
    leader_epoch: int


async def ask_offsets(
    client: Client,
    asked: Mapping[TopicPartition, int],
    isolation: int = READ_UNCOMMITTED,
    *,
    epochs_checked: bool = False,
) -> tuple[
    dict[TopicPartition, LogOffset], dict[TopicPartition, OttlaError], Asked[ListOffsetsResponse]
]:
    """Ask each leader once for the offset of each partition at a time, EARLIEST or LATEST.

    Return what is known, what leaders refused, and how it went. `epochs_checked`: a leader of
    another epoch than the newest one that the client has seen is to refuse.
    """

    def request(some: list[TopicPartition]) -> ListOffsetsRequest:
        epochs = client.leader_epoch if epochs_checked else None
        return _request({tp: asked[tp] for tp in some}, isolation, CONSUMER, epochs)

    went = await at_each_leader(client, asked, request, at_once=AT_ONCE)
    found: dict[TopicPartition, LogOffset] = {}
    refused: dict[TopicPartition, OttlaError] = {}
    for response in went.responses:
        _take(response, found, refused)
    return found, refused, went


async def offsets_at(
    client: Client,
    broker: int,
    asked: Mapping[TopicPartition, int],
    *,
    replica_id: int = DEBUGGING_CONSUMER,
    timeout_s: float | None = None,
) -> tuple[dict[TopicPartition, LogOffset], dict[TopicPartition, OttlaError]]:
    """Return what one broker, be it a leader or not, says of times, and what it refused.

    LATEST is the end of its log; for CONSUMER, which only leaders respond to, the high watermark.
    """
    request = _request(asked, READ_UNCOMMITTED, replica_id)
    found: dict[TopicPartition, LogOffset] = {}
    refused: dict[TopicPartition, OttlaError] = {}
    _take(await client.call(request, broker, timeout_s=timeout_s), found, refused)
    return found, refused


def _take(
    response: ListOffsetsResponse,
    found: dict[TopicPartition, LogOffset],
    refused: dict[TopicPartition, OttlaError],
) -> None:
    for topic in response.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if p.error_code:
                refused[tp] = failure(f"offsets of {tp}", p.error_code)
            else:
                found[tp] = LogOffset(p.offset, p.leader_epoch)


async def log_offsets(
    client: Client,
    partitions: Iterable[TopicPartition],
    timestamp: int,
    *,
    isolation: int = READ_UNCOMMITTED,
    problems: list[str] | None = None,
) -> dict[TopicPartition, int]:
    """Return the offset for a time, EARLIEST or LATEST of each partition that has a leader.

    A time after the last record stands for the end, as it does for Kafka's tool. What a leader does
    not tell becomes a line of `problems`; OttlaError for None.
    """
    wanted = list(partitions)
    if not wanted:
        return {}
    await client.metadata(list(dict.fromkeys(tp.topic for tp in wanted)))
    told, _, went = await ask_offsets(client, dict.fromkeys(wanted, timestamp), isolation)
    went.note("offsets", problems)
    found = {tp: one.offset for tp, one in told.items()}
    if timestamp >= 0:
        late = [tp for tp, offset in found.items() if offset == UNKNOWN_OFFSET]
        found |= await log_offsets(client, late, LATEST, isolation=isolation, problems=problems)
    return found


async def all_offsets(
    client: Client,
    asked: Mapping[TopicPartition, int],
    patience: Patience,
    isolation: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, LogOffset]:
    """Return what `ask_offsets` finds of all partitions; one without a leader is waited for."""
    found: dict[TopicPartition, LogOffset] = {}
    with client.waiting() as wait:
        while left := {tp: at for tp, at in asked.items() if tp not in found}:
            told, refused, went = await ask_offsets(client, left, isolation, epochs_checked=True)
            found |= told
            if told:
                patience.renew()
            missing = left.keys() - found.keys()
            if missing:
                errors = [*went.leaderless.values(), *went.failed.values(), *refused.values()]
                lacks = f"the leader of {min(missing)} returned no offset"
                problem = next(iter(errors), OttlaError(lacks, ErrorCode.LEADER_NOT_AVAILABLE))
                wait.text = str(problem)
                await patience.wait(problem)
                await client.refresh({tp.topic for tp in missing})
    return found


def _request(
    asked: Mapping[TopicPartition, int],
    isolation: int,
    replica_id: int,
    epoch_of: Callable[[str, int], int] | None = None,
) -> ListOffsetsRequest:
    r = ListOffsetsRequest
    topics = [
        r.ListOffsetsTopic(
            name=name,
            partitions=[
                r.ListOffsetsPartition(
                    partition_index=p,
                    current_leader_epoch=NO_EPOCH if epoch_of is None else epoch_of(name, p),
                    timestamp=asked[TopicPartition(name, p)],
                )
                for p in indexes
            ],
        )
        for name, indexes in by_topic(asked).items()
    ]
    return r(replica_id=replica_id, isolation_level=isolation, topics=topics)


DELETION_TIMEOUT_MS = 30_000
HIGH_WATERMARK = -1
"""As offset: the high watermark, so all that is acknowledged."""


class Deleted(Partition, frozen=True):
    """What became of one partition: its first offset now, or the reason why not."""

    first_offset: int | None
    problem: str | None


async def delete_up_to(client: Client, offsets: Mapping[TopicPartition, int]) -> list[Deleted]:
    """Delete the records before each offset, HIGH_WATERMARK being all; ask each leader once."""
    await client.metadata(list(dict.fromkeys(tp.topic for tp in offsets)))
    timeout_s = DELETION_TIMEOUT_MS / 1000 + 5

    def request(some: list[TopicPartition]) -> DeleteRecordsRequest:
        return _request_of_record_deletion({tp: offsets[tp] for tp in some})

    asked = await at_each_leader(client, offsets, request, timeout_s=timeout_s)
    asked.note("records", None)
    found = [Deleted(*tp, None, str(error)) for tp, error in asked.leaderless.items()]
    found += [
        Deleted(
            topic.name,
            p.partition_index,
            None if p.error_code else p.low_watermark,
            explained(p.error_code) if p.error_code else None,
        )
        for response in asked.responses
        for topic in response.topics
        for p in topic.partitions
    ]
    return sorted(found, key=lambda d: (d.topic, d.partition))


def _request_of_record_deletion(offsets: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
    r = DeleteRecordsRequest
    topics = [
        r.DeleteRecordsTopic(
            name=name,
            partitions=[
                r.DeleteRecordsPartition(partition_index=p, offset=offsets[TopicPartition(name, p)])
                for p in indexes
            ],
        )
        for name, indexes in by_topic(offsets).items()
    ]
    return r(topics=topics, timeout_ms=DELETION_TIMEOUT_MS)
