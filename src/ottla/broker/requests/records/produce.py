"""Produce: a client's batches into the logs of the partitions we lead. The hottest path there is.

Invariants: with acks 0 and 1 the response is complete when this returns; with acks=all one
`PendingProduce` waits for what is not replicated yet. With acks 0 an error closes the connection,
since there is no other way to say it. A successful response for one partition is not encoded but
patched: its bytes differ from the last one's in four fields. A request whose batches take long to
check is answered later (`Progress.later`), and nothing of its connection passes it.

Kafka: `KafkaApis.handleProduceRequest` and `ReplicaManager.appendRecords`. What transactional
batches need before is in `transactional_produce`.
"""

import asyncio
import functools
import logging
import struct
from collections.abc import Sequence

from ottla.broker.requests.access import Access, Need, each_named
from ottla.broker.requests.api import Api, Quota
from ottla.broker.requests.error_bodies import NONE, Each, for_each
from ottla.broker.requests.records import transactional_produce
from ottla.broker.requests.records.batch_checks import (
    APPEND_STEPS,
    INLINE_BYTES,
    INLINE_RECORDS_BYTES,
    INLINE_STEPS,
    LIGHT_BYTES,
)
from ottla.broker.requests.records.leader_hints import name_leader
from ottla.broker.requests.records.server import RecordsServer
from ottla.broker.requests.records.transactional_produce import UnverifiedError, Verified
from ottla.broker.requests.responses import count_no_error, respond
from ottla.coordinators.requests import PartitionErrors
from ottla.log.log import AppendInfo
from ottla.log.producers import TRUSTED
from ottla.log.validate import CLIENT, one_batch
from ottla.model.errors import (
    ErrorCode,
    InvalidRecordError,
    OttlaError,
    UnsupportedFormatError,
)
from ottla.model.ids import INTERNAL_TOPICS, TopicPartition
from ottla.model.ports import Buffer
from ottla.model.protocol import ACKS_ALL
from ottla.model.time_slices import TimeSlice
from ottla.net.connection import CloseConnection, Connection, Pending
from ottla.replication.delayed_produce import DelayedProduce, PartitionResult
from ottla.replication.partition import Partition
from ottla.security.acls import TOPIC, TRANSACTIONAL_ID, WRITE
from ottla.wire.batch_header import (
    CODEC_MASK,
    FLAGS_AT,
    MAGIC_AT,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    Header,
)
from ottla.wire.codec import encode_response
from ottla.wire.compression import ZSTD
from ottla.wire.headers import RequestHeader, response_header
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.record_check import UNLIMITED, Effort, EffortExceededError

logger = logging.getLogger(__name__)

ADMIN_CLIENT_ID = "__admin_client"
FIRST_VERSION_OF_ONE_BATCH = 3
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_LEADER = 10
FIRST_VERSION_WITH_ABORTABLE = 11

# Of these Kafka does not tell the log start; after the others a producer may want to know it.
# These it does not count as failed requests either.
WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)

# error code, base offset, log append time and, from version 5 on, log start offset
_RESULT = struct.Struct(">hqqq")
_OLD_RESULT = struct.Struct(">hqq")
_MARK = 0x0102030405060708
TEMPLATES = 8192
"""Responses kept of so many partitions and versions together, a few hundred bytes each."""


def handle(
    server: RecordsServer, conn: Connection, header: RequestHeader, request: ProduceRequest
) -> Sequence[Buffer] | Pending | None:
    if request.transactional_id is not None and server.verifier.enabled:
        return _verified(server, conn, header, request)
    return _append_all(server, conn, header, request, None, None)


def _append_all(
    server: RecordsServer,
    conn: Connection,
    header: RequestHeader,
    request: ProduceRequest,
    verified: Verified | None,
    pending: "PendingProduce | None",
) -> Sequence[Buffer] | Pending | None:
    """Append every batch; `pending` is the response where a part was checked before."""
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1 and request.acks in (1, ACKS_ALL):
        return _one(server, conn, header, request, verified, pending)
    return _many(server, conn, header, request, verified, pending)


def _verified(
    server: RecordsServer, conn: Connection, header: RequestHeader, request: ProduceRequest
) -> Sequence[Buffer] | Pending | None:
    """Append once it is known what belongs to the producer's transaction."""
    found, producer = transactional_produce.begin(server, request)
    if producer is not None and found.guards:
        pending = PendingProduce(server, conn, header, pipelined=False)
        pending.verifying = request, found
        errors = server.verifier.verify(
            request.transactional_id or "",
            producer,
            list(found.guards),
            pending,
            knows_abortable=header.api_version >= FIRST_VERSION_WITH_ABORTABLE,
        )
        if errors is None:
            return pending
        found.refuse(errors)
    return _append_all(server, conn, header, request, found, None)


def hosted(server: RecordsServer, header: RequestHeader, topic: str, index: int) -> Partition:
    """Return the partition, if clients may write to it and it is here."""
    if topic in INTERNAL_TOPICS and header.client_id != ADMIN_CLIENT_ID:
        raise OttlaError(f"{topic} is internal", ErrorCode.INVALID_TOPIC_EXCEPTION)
    return server.replicas.hosted(topic, index)


def batch_of(version: int, records: memoryview | None) -> memoryview:
    """Return the one batch for a partition, of a format and codec that the version may carry."""
    if records is None:
        raise InvalidRecordError("")
    if version < FIRST_VERSION_OF_ONE_BATCH:
        if len(records) <= FLAGS_AT:
            raise InvalidRecordError("a produce request needs one record batch per partition")
        if records[MAGIC_AT] < MAGIC_V2:
            raise UnsupportedFormatError("record formats 0 and 1 are not served")
    records = one_batch(records)
    if version < FIRST_VERSION_WITH_ZSTD and records[FLAGS_AT] & CODEC_MASK == ZSTD:
        raise OttlaError("", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return records


def append(
    server: RecordsServer,
    header: RequestHeader,
    topic: str,
    item: ProduceRequest.PartitionProduceData,
    acks: int,
    verified: Verified | None,
    *,
    named: bool,
    effort: Effort,
    checked: tuple[memoryview, Header] | None = None,
) -> tuple[Partition, AppendInfo]:
    """Append one partition's batch; raises what is wrong with it, or with us.

    EffortExceededError, and nothing done, if it takes more than `effort` to check the batch.
    `checked` is what came of checking it elsewhere.
    """
    partition = hosted(server, header, topic, item.index)
    records = batch_of(header.api_version, item.records) if checked is None else checked[0]
    now_ms = server.replicas.clock.wall_ms()
    guard: object = TRUSTED
    if records[FLAGS_AT] & TRANSACTIONAL_FLAG:
        if not named:  # a transaction without an id: no one may write that
            raise OttlaError("", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if verified is not None:  # asked for, even if that was switched off meanwhile
            guard = verified.guard(TopicPartition(topic, item.index))
        elif server.verifier.enabled:
            guard = None
    return partition, partition.append_as_leader(
        records, acks, now_ms, CLIENT, guard, effort, checked
    )


def _one(
    server: RecordsServer,
    conn: Connection,
    header: RequestHeader,
    request: ProduceRequest,
    verified: Verified | None,
    pending: "PendingProduce | None",
) -> Sequence[Buffer] | Pending:
    """Serve the usual request: one partition, with a response."""
    topic = request.topic_data[0]
    item = topic.partition_data[0]
    records = item.records
    effort = UNLIMITED
    if records is not None and (len(records) > LIGHT_BYTES or _is_compressed(records)):
        if len(records) > INLINE_RECORDS_BYTES:
            return Progress(server, conn, header, request, verified, pending).later()
        effort = Effort(INLINE_BYTES, INLINE_STEPS)
    try:
        partition, info = append(
            server,
            header,
            topic.name,
            item,
            request.acks,
            verified,
            named=request.transactional_id is not None,
            effort=effort,
        )
    except EffortExceededError:
        return Progress(server, conn, header, request, verified, pending).later()
    except OttlaError as error:
        result = _refused(server, topic.name, item, error)
        return encoded(server, conn, header, (result,))
    log = partition.log
    if request.acks == ACKS_ALL and log is not None and log.high_watermark <= info.last_offset:
        result = PartitionResult(topic.name, item.index)
        result.info = info
        if pending is None:
            pending = PendingProduce(server, conn, header, pipelined=True)
        pending.results = (result,)
        pending.wait(((0, partition),), request.timeout_ms)
        return pending
    return _patched(header, topic.name, item.index, info)


def _refused(
    server: RecordsServer,
    topic: str,
    item: ProduceRequest.PartitionProduceData,
    error: OttlaError,
) -> PartitionResult:
    code = error.code
    size = 0 if item.records is None else len(item.records)
    server.replicas.topic_counts.refused(topic, code, size, expected=code in WITHOUT_LOG_START)
    result = PartitionResult(topic, item.index).failed(code, str(error), error.record_errors)
    result.unverified = isinstance(error, UnverifiedError)
    return result


class PendingProduce(DelayedProduce):
    """The response to one request, when it comes later."""

    __slots__ = ("_header", "_server", "verifying")

    def __init__(
        self,
        server: RecordsServer,
        conn: Connection,
        header: RequestHeader,
        *,
        pipelined: bool,
    ) -> None:
        """Not `pipelined`: what the producer sends after it must not be appended first."""
        super().__init__(conn, server.replicas, pipelined=pipelined)
        self._server = server
        self._header = header
        self.verifying: tuple[ProduceRequest, Verified] | None = None
        """The request, and what is known so far, while another broker is asked about it."""

    def on_verified(self, errors: PartitionErrors) -> None:
        """Append what is part of the transaction."""
        assert self.verifying is not None
        (request, found), self.verifying = self.verifying, None
        found.refuse(errors)
        server, conn, header = self._server, self.connection, self._header
        try:
            self.settle(_append_all(server, conn, header, request, found, self))
        except CloseConnection as decision:
            self.fail(str(decision))

    def respond(self) -> Sequence[Buffer]:
        results = self.results
        if len(results) == 1 and results[0].code is ErrorCode.NONE:
            result = results[0]
            assert result.info is not None
            return _patched(self._header, result.topic, result.index, result.info)
        return encoded(self._server, self.connection, self._header, results)


def _patched(header: RequestHeader, topic: str, index: int, info: AppendInfo) -> list[Buffer]:
    """Return the response of one partition without an error, from its template."""
    version = header.api_version
    count_no_error(header)
    if header.throttle_ms:
        before, after = _encode_template(topic, index, version, header.throttle_ms)
    else:
        before, after = _template(topic, index, version)
    if version >= 5:
        middle = _RESULT.pack(0, info.first_offset, info.log_append_time, info.log_start_offset)
    elif version >= 2:
        middle = _OLD_RESULT.pack(0, info.first_offset, info.log_append_time)
    else:
        middle = _OLD_RESULT.pack(0, info.first_offset, 0)[:10]
    head = response_header(0, version, header.correlation_id)
    return [b"".join((head, before, middle, after))]


def _encode_template(topic: str, index: int, version: int, throttle_ms: int) -> tuple[bytes, bytes]:
    """Encode a response once and cut it around the fields that change."""
    marked = ProduceResponse(
        throttle_time_ms=throttle_ms,
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=topic,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(
                        index=index,
                        error_code=0,
                        base_offset=_MARK,
                        log_append_time_ms=_MARK,
                        log_start_offset=_MARK,
                    )
                ],
            )
        ],
    )
    whole = b"".join(encode_response(marked, version))
    mark = struct.pack(">q", _MARK)
    first = whole.index(mark)
    last = whole.rindex(mark)
    # A topic's name comes first and might hold the mark too, but never so many of them in a row.
    count = 1 + (version >= 2) + (version >= 5)
    first = whole.index(mark * count, first)
    assert last == first + 8 * (count - 1)
    return whole[: first - 2], whole[last + 8 :]


@functools.lru_cache(maxsize=TEMPLATES)
def _template(topic: str, index: int, version: int) -> tuple[bytes, bytes]:
    """Return the template of a response without a throttle time."""
    return _encode_template(topic, index, version, 0)


def _is_compressed(records: memoryview) -> bool:
    return len(records) > FLAGS_AT and bool(records[FLAGS_AT] & CODEC_MASK)


class Progress:
    """A request of which some partitions' batches were appended, and others were not yet."""

    __slots__ = (
        "conn", "done", "header", "pending", "request", "results", "server", "todo", "verified",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        server: RecordsServer,
        conn: Connection,
        header: RequestHeader,
        request: ProduceRequest,
        verified: Verified | None,
        pending: "PendingProduce | None",
    ) -> None:
        self.server = server
        self.conn = conn
        self.header = header
        self.request = request
        self.verified = verified
        self.pending = pending
        self.results: list[PartitionResult] = []
        self.waiting: list[tuple[int, Partition]] = []
        """Place in `results` and partition of what is not replicated yet."""
        # Of a partition named twice the later batch counts, as with Kafka, which keeps a map.
        self.todo = [
            (topic.name, item)
            for topic in request.topic_data
            for item in {item.index: item for item in topic.partition_data}.values()
        ]
        self.done = 0

    def append_one(self, effort: Effort, checked: tuple[memoryview, Header] | None = None) -> None:
        """Append the next partition's batch and note the result; EffortExceededError: it stays."""
        name, item = self.todo[self.done]
        request, result = self.request, PartitionResult(name, item.index)
        if request.acks not in (0, 1, ACKS_ALL):
            self.note(result.failed(ErrorCode.INVALID_REQUIRED_ACKS))
            return
        try:
            partition, info = append(
                self.server,
                self.header,
                name,
                item,
                request.acks,
                self.verified,
                named=request.transactional_id is not None,
                effort=effort,
                checked=checked,
            )
        except EffortExceededError:
            raise
        except OttlaError as error:
            self.refused(error)
            return
        result.info = info
        log = partition.log
        if request.acks == ACKS_ALL and log is not None and log.high_watermark <= info.last_offset:
            self.waiting.append((len(self.results), partition))
        self.note(result)

    def refused(self, error: OttlaError) -> None:
        """Note that the next partition's batch is not taken."""
        name, item = self.todo[self.done]
        self.note(_refused(self.server, name, item, error))

    def note(self, result: PartitionResult) -> None:
        self.results.append(result)
        self.done += 1

    def later(self) -> Pending:
        """Go on in a task of its own, in which a worker checks what is left."""
        pending = self.pending
        if pending is None:
            pending = self.pending = self._respond_later(pipelined=False)
        self.server.tasks.start(self._go_on(pending), "large-produce")
        return pending

    def _respond_later(self, *, pipelined: bool) -> PendingProduce:
        return PendingProduce(self.server, self.conn, self.header, pipelined=pipelined)

    async def _go_on(self, pending: PendingProduce) -> None:
        server, checks = self.server, self.server.batch_checks
        effort = checks.effort()
        try:
            while self.done < len(self.todo):
                if pending.done and self.request.acks:
                    return  # its client is gone and will send it again
                if self._next_is_light():
                    await self._append_light()
                    continue
                name, item = self.todo[self.done]
                try:
                    partition = hosted(server, self.header, name, item.index)
                    records = batch_of(self.header.api_version, item.records)
                    log = partition.local_log(leader_only=True)
                    now_ms = server.replicas.clock.wall_ms()
                    checked = await checks.check(records, log.rules, now_ms, effort)
                except OttlaError as error:
                    self.refused(error)
                else:
                    self.append_one(UNLIMITED, checked)
            pending.unblock_next()
            pending.settle(self.finish())
        except CloseConnection as decision:
            pending.fail(str(decision))
        except asyncio.CancelledError:
            pending.fail("the server is shutting down")
            raise
        except Exception as error:
            logger.exception("large produce failed peer=%s", self.conn.peer)
            pending.fail(f"our error: {error!r}")

    def _next_is_light(self) -> bool:
        if self.done == len(self.todo):
            return False
        records = self.todo[self.done][1].records
        return records is None or (len(records) <= LIGHT_BYTES and not _is_compressed(records))

    async def _append_light(self) -> None:
        """Append the next batches on the loop, a few milliseconds of it, one request at a time."""
        async with self.server.batch_checks.on_the_loop:
            time_slice = TimeSlice(self.server.world.clock)
            while self._next_is_light() and not time_slice.over:
                self.append_one(UNLIMITED)
            await time_slice.next()

    def finish(self) -> Sequence[Buffer] | Pending | None:
        """Return the response, or what it waits for."""
        results, request = self.results, self.request
        if request.acks == 0:
            wrong = [r for r in results if r.code is not ErrorCode.NONE]
            if wrong:
                raise CloseConnection(f"produce with acks=0 failed: {wrong[0]} {wrong[0].message}")
            return None
        if self.waiting:
            pending = self.pending or self._respond_later(pipelined=True)
            pending.results = results
            pending.wait(self.waiting, request.timeout_ms)
            return pending
        return encoded(self.server, self.conn, self.header, results)


def _many(
    server: RecordsServer,
    conn: Connection,
    header: RequestHeader,
    request: ProduceRequest,
    verified: Verified | None,
    pending: "PendingProduce | None",
) -> Sequence[Buffer] | Pending | None:
    progress = Progress(server, conn, header, request, verified, pending)
    size = sum(len(item.records) for _, item in progress.todo if item.records is not None)
    if size > INLINE_RECORDS_BYTES:
        return progress.later()
    effort = Effort(INLINE_BYTES, INLINE_STEPS)
    try:
        for _ in progress.todo:
            effort.step(APPEND_STEPS)
            progress.append_one(effort)
    except EffortExceededError:
        return progress.later()
    return progress.finish()


def encoded(
    server: RecordsServer,
    conn: Connection,
    header: RequestHeader,
    results: Sequence[PartitionResult],
) -> list[Buffer]:
    """Return the response that says what became of each partition's batch."""
    return respond(header, _response(server, conn, header, results))


def _response(
    server: RecordsServer,
    conn: Connection,
    header: RequestHeader,
    results: Sequence[PartitionResult],
) -> ProduceResponse:
    response = ProduceResponse()
    topics: dict[str, ProduceResponse.TopicProduceResponse] = {}
    for result in results:
        topic = topics.get(result.topic)
        if topic is None:
            topic = topics[result.topic] = ProduceResponse.TopicProduceResponse(name=result.topic)
            response.responses.append(topic)
        topic.partition_responses.append(
            _partition_response(server, conn, header, result, response)
        )
    return response


def _partition_response(
    server: RecordsServer,
    conn: Connection,
    header: RequestHeader,
    result: PartitionResult,
    response: ProduceResponse,
) -> ProduceResponse.PartitionProduceResponse:
    item = ProduceResponse.PartitionProduceResponse(
        index=result.index, error_code=result.code, base_offset=-1
    )
    info = result.info
    if info is not None:
        # Also with an error that came after the append, as Kafka does: the records are there.
        item.base_offset = info.first_offset
        item.log_append_time_ms = info.log_append_time
        item.log_start_offset = info.log_start_offset
    elif result.unverified:
        item.error_message = result.message or None
    else:
        if result.code not in WITHOUT_LOG_START and result.message:
            partition = server.replicas.partitions.get((result.topic, result.index))  # type: ignore[call-overload]
            if partition is not None and partition.log is not None:
                item.log_start_offset = partition.log.log_start_offset
        if result.code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP):
            item.error_message = result.message or None
            item.record_errors = [
                ProduceResponse.BatchIndexAndErrorMessage(
                    batch_index=index, batch_index_error_message=why
                )
                for index, why in result.record_errors
            ]
    if (
        result.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        and header.api_version >= FIRST_VERSION_WITH_LEADER
    ):
        name_leader(
            server,
            conn.listener,
            (result.topic, result.index),
            item.current_leader,
            response.node_endpoints,
            ProduceResponse.NodeEndpoint,
        )
    return item


PRODUCE = Api(
    ProduceRequest,
    handle,
    access=Access(
        check=transactional_produce.check_access,
        checked=(Need(WRITE, TRANSACTIONAL_ID, "transactional_id", "a batch is transactional"),),
        each=each_named(Need(WRITE, TOPIC, "name"), "topic_data", "responses"),
    ),
    error=for_each(
        ProduceResponse,
        Each(
            "responses",
            ProduceResponse.TopicProduceResponse,
            "topic_data",
            {"name": "name"},
            Each(
                "partition_responses",
                ProduceResponse.PartitionProduceResponse,
                "partition_data",
                {"index": "index"},
                message=True,
                base_offset=NONE,
                log_append_time_ms=NONE,
                log_start_offset=NONE,
            ),
        ),
    ),
    quota=Quota.TIME_AND_BYTES,
    pipelined=True,
)
