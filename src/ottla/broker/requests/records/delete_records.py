"""DeleteRecords: everything before an offset goes, on the leader at once and then on the followers.

Invariants: nothing at or above the high watermark is deleted; the response is the lowest log start
among the live replicas once none is below what was asked for. Kafka:
`KafkaApis.handleDeleteRecordsRequest`, `ReplicaManager.deleteRecords` and `DelayedDeleteRecords`
(KIP-107).
"""

import asyncio

from ottla.broker.metadata.metadata_blobs import is_internal
from ottla.broker.requests.access import Access, Need, each_named
from ottla.broker.requests.api import Api, Parts
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import (
    ErrorCode,
    InvalidTopicError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OttlaError,
    PolicyViolationError,
)
from ottla.model.protocol import UNKNOWN_OFFSET
from ottla.net.connection import Connection
from ottla.replication.partition import Partition
from ottla.security.acls import DELETE, TOPIC
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.wire.portions import CHANGES_BY_PARTITION

HIGH_WATERMARK = -1
POLL_S = 0.02
"""Followers report their log starts with their fetches; here it has no effect."""

Result = DeleteRecordsResponse.DeleteRecordsPartitionResult


async def handle(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: DeleteRecordsRequest
) -> Parts:
    r = DeleteRecordsResponse
    waiting: list[tuple[Partition, int, Result]] = []
    topics = [
        r.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _delete(server, topic.name, p.partition_index, p.offset, waiting)
                for p in topic.partitions
            ],
        )
        for topic in request.topics
        if topic.partitions
    ]
    await _see_through(waiting, request.timeout_ms)
    return respond(header, r(topics=topics))


def _delete(
    server: BrokerServices,
    topic: str,
    index: int,
    offset: int,
    waiting: list[tuple[Partition, int, Result]],
) -> Result:
    """Raise the leader's log start; note in `waiting` what the followers have to do yet."""
    result = Result(partition_index=index, low_watermark=UNKNOWN_OFFSET)
    try:
        if is_internal(topic):
            raise InvalidTopicError(f"Cannot delete records of internal topic {topic}")
        partition = server.replicas.hosted(topic, index)
        log = partition.log
        if not partition.state.is_leader or log is None:
            raise NotLeaderError(f"{partition.tp} is not led here")
        if not log.config.delete:
            raise PolicyViolationError(f"Records of {partition.tp} are kept by its cleanup.policy")
        target = log.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= target <= log.high_watermark:
            raise OffsetOutOfRangeError(
                f"{partition.tp}: {target} is not within 0 to {log.high_watermark}"
            )
        partition.delete_records_before(target)
    except OttlaError as error:
        result.error_code = error.code
    else:
        result.low_watermark = partition.low_watermark()
        result.error_code = ErrorCode.REQUEST_TIMED_OUT
        waiting.append((partition, target, result))
    return result


async def _see_through(waiting: list[tuple[Partition, int, Result]], timeout_ms: int) -> None:
    """Wait for the followers; settle the results of those partitions that are done in time."""
    try:
        async with asyncio.timeout(max(0, timeout_ms) / 1000):
            while waiting := [w for w in waiting if not _settled(*w)]:  # noqa: ASYNC110 - see POLL_S
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        pass


def _settled(partition: Partition, target: int, result: Result) -> bool:
    if not partition.state.is_leader or partition.log is None:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return True
    result.low_watermark = partition.low_watermark()
    if result.low_watermark < target:
        return False
    result.error_code = ErrorCode.NONE
    return True


DELETE_RECORDS = Api(
    DeleteRecordsRequest,
    handle,
    access=Access(each=each_named(Need(DELETE, TOPIC, "name"))),
    error=error_response(
        DeleteRecordsResponse,
        "topics.partitions",
        low_watermark=UNKNOWN_OFFSET,
    ),
    large=CHANGES_BY_PARTITION,
)
