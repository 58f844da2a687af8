"""ListOffsets: the earliest, the latest, the first after a time.

Invariants: consumers see offsets below the high watermark (or the last stable offset) only; a
leader whose high watermark has not yet reached the start of its epoch does not claim to know the
latest offset (OFFSET_NOT_AVAILABLE, LEADER_NOT_AVAILABLE before version 5); what needs a look into
batches is looked up by workers (F46).

Kafka: `KafkaApis.handleListOffsetRequest` and `Partition.fetchOffsetForTimestamp`.
"""

from ottla.broker.requests.access import Access, Need, each_named
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.log.log import Log, TimestampOffset
from ottla.log.time_search import find_by_timestamp, find_max_timestamp
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import NO_EPOCH
from ottla.model.protocol import (
    CONSUMER,
    DEBUGGING_CONSUMER,
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    OF_MAX_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from ottla.net.connection import Connection
from ottla.replication.partition import Partition
from ottla.security.acls import CLUSTER_ACTION, DESCRIBE, TOPIC
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.records import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from ottla.wire.portions import BY_PARTITION, in_portions

LOWEST_VERSION = {LATEST: 1, EARLIEST: 1, OF_MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The version from which a negative timestamp is understood."""

Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch; -1s where there is none."""

NOTHING: Found = (-1, -1, -1)


EpochEndOffset = OffsetForLeaderEpochResponse.EpochEndOffset


def offsets_for_epochs(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: OffsetForLeaderEpochRequest,
) -> Parts:
    """Return where epochs ended in this leader's logs.

    Only a leader responds, and only to a client that names its current epoch or none (R3). Kafka:
    `KafkaApis.handleOffsetForLeaderEpochRequest` (KIP-101, KIP-320).
    """
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        responses = []
        for item in topic.partitions:
            try:
                epoch, end = server.replicas.last_offset_for_epoch(
                    topic.topic, item.partition, item.current_leader_epoch, item.leader_epoch
                )
            except OttlaError as error:
                responses.append(
                    EpochEndOffset(
                        partition=item.partition,
                        error_code=error.code,
                        leader_epoch=-1,
                        end_offset=-1,
                    )
                )
            else:
                responses.append(
                    EpochEndOffset(partition=item.partition, leader_epoch=epoch, end_offset=end)
                )
        response.topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=responses
            )
        )
    return respond(header, response)


OFFSET_FOR_LEADER_EPOCH = Api(
    OffsetForLeaderEpochRequest,
    offsets_for_epochs,
    access=Access(
        each=each_named(
            Need(DESCRIBE, TOPIC, "topic"), unless=Need(CLUSTER_ACTION, note="or of each topic:")
        )
    ),
    error=error_response(
        OffsetForLeaderEpochResponse,
        "topics.partitions",
        leader_epoch=-1,
        end_offset=-1,
    ),
    large=BY_PARTITION,
    large_response=True,
)


def handle(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: ListOffsetsRequest
) -> Parts | Later:
    by_time = any(
        item.timestamp >= 0 or item.timestamp == OF_MAX_TIMESTAMP
        for topic in request.topics
        for item in topic.partitions
    )
    work = _respond(server, header, request)
    if by_time:
        return work
    try:
        work.send(None)
    except StopIteration as end:
        parts: Parts = end.value
        return parts
    raise AssertionError("a lookup that needs no batches waits")


async def _respond(
    server: BrokerServices, header: RequestHeader, request: ListOffsetsRequest
) -> Parts:
    version = header.api_version
    response = ListOffsetsResponse()
    twice = _named_twice(request)
    for topic in request.topics:
        responses = []
        for item in topic.partitions:
            if (topic.name, item.partition_index) in twice and version > 0:
                responses.append(_failed(item, ErrorCode.INVALID_REQUEST))
                continue
            try:
                responses.append(await _lookup(server, request, version, topic.name, item))
            except OttlaError as error:
                responses.append(_failed(item, _code(error, version)))
        response.topics.append(
            ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=responses)
        )
    return respond(header, response)


def _named_twice(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for item in topic.partitions:
            key = (topic.name, item.partition_index)
            (twice if key in seen else seen).add(key)
    return twice


def _code(error: OttlaError, version: int) -> ErrorCode:
    if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return error.code


def _failed(
    item: ListOffsetsRequest.ListOffsetsPartition, code: ErrorCode
) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    return ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=item.partition_index, error_code=code, timestamp=-1, offset=-1
    )


async def _lookup(
    server: BrokerServices,
    request: ListOffsetsRequest,
    version: int,
    topic: str,
    item: ListOffsetsRequest.ListOffsetsPartition,
) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise OttlaError("no such isolation level", ErrorCode.UNKNOWN_SERVER_ERROR)
    timestamp = item.timestamp
    if timestamp < 0 and version < LOWEST_VERSION.get(timestamp, 2**15) and version > 0:
        return _failed(item, ErrorCode.UNSUPPORTED_VERSION)
    if version == 0:
        if timestamp < EARLIEST:
            return _failed(item, ErrorCode.UNSUPPORTED_VERSION)
        if timestamp >= server.world.clock.wall_ms():
            timestamp = LATEST
    partition, log = _log(server, request, version, topic, item)
    found: TimestampOffset | None = None
    if timestamp >= 0 or timestamp == OF_MAX_TIMESTAMP:
        search = find_by_timestamp(log, timestamp) if timestamp >= 0 else find_max_timestamp(log)
        found = await server.replicas.disk_reads.search(search)
        partition, now = _log(server, request, version, topic, item)
        if now is not log:
            raise OttlaError(
                f"{partition.tp} has another log by now", ErrorCode.OFFSET_NOT_AVAILABLE
            )
    if version == 0:
        is_consumer = request.replica_id == CONSUMER
        offsets = _old_style(log, timestamp, found, item.max_num_offsets, is_consumer)
        return ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=item.partition_index, old_style_offsets=offsets
        )
    bound: int | None = None
    if request.replica_id == CONSUMER:
        committed = request.isolation_level == READ_COMMITTED
        bound = log.last_stable_offset if committed else log.high_watermark
    found_at, offset, epoch = _offset(partition, log, timestamp, found, bound)
    return ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=item.partition_index,
        timestamp=found_at,
        offset=offset,
        leader_epoch=epoch if version >= 4 else -1,
    )


def _log(
    server: BrokerServices,
    request: ListOffsetsRequest,
    version: int,
    topic: str,
    item: ListOffsetsRequest.ListOffsetsPartition,
) -> tuple[Partition, Log]:
    """Return the partition asked for, and its log if it may be asked here."""
    partition = server.replicas.hosted(topic, item.partition_index)
    log = partition.local_log(
        item.current_leader_epoch if version >= 4 else NO_EPOCH,
        leader_only=request.replica_id != DEBUGGING_CONSUMER,
    )
    return partition, log


def _offset(
    partition: Partition, log: Log, timestamp: int, found: TimestampOffset | None, bound: int | None
) -> Found:
    """Return the response; `bound` is a consumer's upper limit, None for a replica.

    `found` is the record that a lookup by time found.
    """
    start = partition.state.epoch_start
    behind = bound is not None and start is not None and log.high_watermark < start
    limit = log.log_end_offset if bound is None else bound
    if timestamp == LATEST:
        if behind:
            raise _not_available(partition, log)
        return -1, limit, partition.state.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, _epoch_at(log, log.log_start_offset)
    if timestamp == LATEST_TIERED:
        return -1, -1, -1
    if found is not None and found.offset < limit:
        return found.timestamp, found.offset, found.leader_epoch
    if behind:
        raise _not_available(partition, log)
    return NOTHING


def _epoch_at(log: Log, offset: int) -> int:
    """Return the leader epoch that starts at or before an offset, if it still covers it."""
    return log.epochs.epoch_of(offset)


def _not_available(partition: Partition, log: Log) -> OttlaError:
    return OttlaError(
        f"{partition.tp}: high watermark {log.high_watermark} is below the start "
        f"{partition.state.epoch_start} of this leader's epoch",
        ErrorCode.OFFSET_NOT_AVAILABLE,
    )


def _old_style(
    log: Log, timestamp: int, found: TimestampOffset | None, limit: int, is_consumer: bool
) -> list[int]:
    """Version 0: segment starts, youngest first, and the log end in front for "latest"."""
    starts = [
        max(s.base_offset, log.log_start_offset)
        for s in log.segments
        if s.size or s is log.segments[0]
    ]
    if timestamp == LATEST:
        offsets = [log.log_end_offset, *reversed(starts)]
    elif timestamp == EARLIEST:
        offsets = starts[:1]
    else:
        # Kafka goes by the files' times, which are none of the records' business.
        upto = log.log_end_offset if found is None else found.offset
        offsets = [s for s in reversed(starts) if s < upto] if log.log_end_offset else []
    if is_consumer and any(o > log.high_watermark for o in offsets):
        offsets = [log.high_watermark, *(o for o in offsets if o <= log.high_watermark)]
    unique = list(dict.fromkeys(offsets))
    return unique[:limit]


LIST_OFFSETS = Api(
    ListOffsetsRequest,
    handle,
    access=Access(each=each_named(Need(DESCRIBE, TOPIC, "name"))),
    error=error_response(ListOffsetsResponse, "topics.partitions", timestamp=-1, offset=-1),
    large=in_portions("topics.partitions", "topics.partitions", unique=1),
)
