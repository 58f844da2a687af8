"""Produce: a client's batches into the logs of the partitions we lead. The hottest path there is.

Invariants: with acks 0 and 1 the response is complete when this returns; with acks=all the
`ProduceCall` waits for what is not replicated yet. With acks 0 an error closes the connection,
since there is no other way to say it. A successful response for one partition is not encoded but
patched: its bytes differ from the last one's in four fields. A request whose batches take long to
check is answered later (`_later`), and nothing of its connection passes it.

Kafka: `KafkaApis.handleProduceRequest` and `ReplicaManager.appendRecords`. What transactional
batches need before is in `begin_transactional`.
"""

import asyncio
import functools
import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.broker.batch_checks import (
    APPEND_STEPS,
    INLINE_BYTES,
    INLINE_RECORDS_BYTES,
    INLINE_STEPS,
    LIGHT_BYTES,
)
from ottla.broker.requests.access import Access, Asking, Need, each_named
from ottla.broker.requests.api import Api, Quota
from ottla.broker.requests.records.leader_hints import name_leader
from ottla.broker.requests.responses import count_no_error, respond
from ottla.broker.services import BrokerServices
from ottla.coordinators.requests import PartitionErrors, ProducerIdAndEpoch
from ottla.log.log import AppendInfo
from ottla.log.producers import TRUSTED, Guard
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
    HEADER_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    Header,
    unpack_producer,
)
from ottla.wire.codec import encode_response
from ottla.wire.compression import ZSTD
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader, response_header
from ottla.wire.messages.records import ProduceRequest, ProduceResponse
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


RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class UnverifiedError(OttlaError):
    """A batch that the coordinator did not verify; it was not appended."""


@dataclass(slots=True)
class Verified:
    """What may be appended: guards of partitions that were verified, errors of others."""

    guards: dict[TopicPartition, Guard] = field(default_factory=dict)
    errors: dict[TopicPartition, OttlaError] = field(default_factory=dict)

    def guard(self, tp: TopicPartition) -> Guard | None:
        """Return the guard to append with; raises the error of a partition that was refused."""
        error = self.errors.get(tp)
        if error is not None:
            raise error
        return self.guards.get(tp)

    def refuse(self, errors: PartitionErrors) -> None:
        """Note which partitions the coordinator did not find in the transaction, and why."""
        for tp, code in errors.items():
            self.errors[tp] = _as_produce_error(code)


def is_transactional(records: memoryview) -> bool:
    """Whether a batch, whose header is there at least up to its attributes, belongs to one."""
    return bool(records[FLAGS_AT] & TRANSACTIONAL_FLAG)


def check_access(asking: Asking, _header: RequestHeader, request: ProduceRequest) -> None:
    """Raise the error of who may not write in this transaction: batches say that they are of one.

    It is the batch that counts, not the id that the request names (CVE-2018-17196).
    """
    if not _has_transactional(request):
        return
    name = request.transactional_id
    if name is None or not asking.may(WRITE, TRANSACTIONAL_ID, name):
        if request.acks == 0:
            raise CloseConnection("not authorized to write in a transaction")
        raise OttlaError("", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _has_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for item in topic.partition_data:
            records = item.records
            if records is not None and len(records) > FLAGS_AT and is_transactional(records):
                return True
    return False


def begin_transactional(
    server: BrokerServices, request: ProduceRequest
) -> tuple[Verified, ProducerIdAndEpoch | None]:
    """Return what is to be verified, by its guards, and whose transaction that is.

    No producer: none of the batches belongs to a transaction.
    """
    found = Verified()
    producers: dict[tuple[int, int], None] = {}
    batches: dict[TopicPartition, int] = {}
    for topic in request.topic_data:
        for item in topic.partition_data:
            records = item.records
            if records is None or len(records) < HEADER_BYTES or not is_transactional(records):
                continue
            producer_id, epoch, sequence = unpack_producer(records)
            if producer_id < 0:
                # Marked as transactional, but without a producer: Kafka appends it unverified.
                continue
            producers[producer_id, epoch] = None
            batches[TopicPartition(topic.name, item.index)] = sequence
    if not batches:
        return found, None
    if len(producers) > 1:
        raise OttlaError(
            "Transactional records contained more than one producer ID",
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        )
    producer = ProducerIdAndEpoch(*next(iter(producers)))
    now_ms = server.world.clock.wall_ms()
    for tp, sequence in batches.items():
        try:
            log = server.replicas.hosted(*tp).local_log(leader_only=True)
        except OttlaError as error:
            found.errors[tp] = error
            continue
        guard = log.producers.begin_verification(*producer, sequence, now_ms)
        if guard is not None:
            found.guards[tp] = guard
    return found, producer


def _as_produce_error(code: ErrorCode) -> UnverifiedError:
    """Return the producer's error; only translated ones have a message, as in Kafka."""
    if code in RETRIED:
        return UnverifiedError(
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            f"{code.name}",
            ErrorCode.NOT_ENOUGH_REPLICAS,
        )
    if code is ErrorCode.INVALID_TXN_STATE:
        return UnverifiedError("Partition was not added to the transaction", code)
    return UnverifiedError("", code)


def handle(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: ProduceRequest
) -> Sequence[Buffer] | Pending | None:
    call = ProduceCall(server, conn, header, request)
    if request.transactional_id is not None and server.verifier.enabled:
        return call.verify(request)
    return call.append_all()


class ProduceCall(DelayedProduce):
    """One request: its batches, which are appended in their order, and what became of them.

    It is returned as the response if that comes later.
    """

    __slots__ = (
        "_acks",
        "_awaited",
        "_header",
        "_named",
        "_server",
        "_timeout_ms",
        "_todo",
        "_verified",
    )

    results: list[PartitionResult]

    def __init__(
        self,
        server: BrokerServices,
        conn: Connection,
        header: RequestHeader,
        request: ProduceRequest,
    ) -> None:
        super().__init__(conn, server.replicas, [], pipelined=True)
        self._server = server
        self._header = header
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._named = request.transactional_id is not None
        self._verified: Verified | None = None
        """what is part of the transaction, None if that was not asked"""
        # Of a partition named twice the later batch counts, as with Kafka, which keeps a map.
        self._todo = [
            (topic.name, item)
            for topic in request.topic_data
            for item in {item.index: item for item in topic.partition_data}.values()
        ]
        """the batches to append; the first `len(results)` of them are done"""
        self._awaited: list[tuple[int, Partition]] = []
        """place in `results` and partition of what is not replicated yet"""

    # A transaction ---------------------------------------------------------------------

    def verify(self, request: ProduceRequest) -> Sequence[Buffer] | Pending | None:
        """Append once it is known what belongs to the producer's transaction."""
        server = self._server
        found, producer = begin_transactional(server, request)
        self._verified = found
        if producer is not None and found.guards:
            errors = server.verifier.verify(
                request.transactional_id or "",
                producer,
                list(found.guards),
                self,
                knows_abortable=self._header.api_version >= FIRST_VERSION_WITH_ABORTABLE,
            )
            if errors is None:
                self.pipelined = False  # what the producer sends next must not be appended first
                return self
            found.refuse(errors)
        return self.append_all()

    def on_verified(self, errors: PartitionErrors) -> None:
        """Append what is part of the transaction."""
        assert self._verified is not None
        self._verified.refuse(errors)
        try:
            self.settle(self.append_all())
        except CloseConnection as decision:
            self.fail(str(decision))

    # Appending -------------------------------------------------------------------------

    def append_all(self) -> Sequence[Buffer] | Pending | None:
        """Append every batch; return the response, or this if it comes later."""
        todo = self._todo
        if len(todo) == 1 and self._next_is_light():  # as nearly always
            self._append_next(UNLIMITED)
            return self._finish()
        size = sum(len(item.records) for _, item in todo if item.records is not None)
        if size > INLINE_RECORDS_BYTES:
            return self._later()
        effort = Effort(INLINE_BYTES, INLINE_STEPS)
        try:
            for _ in todo:
                effort.step(APPEND_STEPS)
                self._append_next(effort)
        except EffortExceededError:
            return self._later()
        return self._finish()

    def _next_is_light(self) -> bool:
        if len(self.results) == len(self._todo):
            return False
        records = self._todo[len(self.results)][1].records
        return records is None or (
            len(records) <= LIGHT_BYTES
            and not (len(records) > FLAGS_AT and records[FLAGS_AT] & CODEC_MASK)
        )

    def _append_next(
        self, effort: Effort, checked: tuple[memoryview, Header] | None = None
    ) -> None:
        """Append the next batch and note the result; `checked` came of checking it elsewhere.

        EffortExceededError, and nothing done, if it takes more than `effort` to check it.
        """
        name, item = self._todo[len(self.results)]
        acks, result = self._acks, PartitionResult(name, item.index)
        if acks not in (ACKS_ALL, 1, 0):
            self.results.append(result.failed(ErrorCode.INVALID_REQUIRED_ACKS))
            return
        try:
            partition = self._partition(name, item.index)
            records = self._batch_of(item.records) if checked is None else checked[0]
            guard: object = TRUSTED
            if records[FLAGS_AT] & TRANSACTIONAL_FLAG:
                guard = self._guard(name, item.index)
            now_ms = self._server.replicas.clock.wall_ms()
            info = partition.append_as_leader(records, acks, now_ms, CLIENT, guard, effort, checked)
        except EffortExceededError:
            raise
        except OttlaError as error:
            self._refuse(error)
            return
        result.info = info
        log = partition.log
        if acks == ACKS_ALL and log is not None and log.high_watermark <= info.last_offset:
            self._awaited.append((len(self.results), partition))
        self.results.append(result)

    def _partition(self, topic: str, index: int) -> Partition:
        """Return the partition, if clients may write to it and it is here."""
        if topic in INTERNAL_TOPICS and self._header.client_id != ADMIN_CLIENT_ID:
            raise OttlaError(f"{topic} is internal", ErrorCode.INVALID_TOPIC_EXCEPTION)
        return self._server.replicas.hosted(topic, index)

    def _batch_of(self, records: memoryview | None) -> memoryview:
        """Return a partition's one batch, of a format and codec that the version may carry."""
        if records is None:
            raise InvalidRecordError("")
        version = self._header.api_version
        if version < FIRST_VERSION_OF_ONE_BATCH:
            if len(records) <= FLAGS_AT:
                raise InvalidRecordError("a produce request needs one record batch per partition")
            if records[MAGIC_AT] < MAGIC_V2:
                raise UnsupportedFormatError("record formats 0 and 1 are not served")
        records = one_batch(records)
        if version < FIRST_VERSION_WITH_ZSTD and records[FLAGS_AT] & CODEC_MASK == ZSTD:
            raise OttlaError("", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return records

    def _guard(self, topic: str, index: int) -> object:
        """Return what to append a transaction's batch with; raise if it may not be appended."""
        if not self._named:  # a transaction without an id: no one may write that
            raise OttlaError("", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if self._verified is not None:  # asked for, even if that was switched off meanwhile
            return self._verified.guard(TopicPartition(topic, index))
        return None if self._server.verifier.enabled else TRUSTED

    def _refuse(self, error: OttlaError) -> None:
        """Note that the next batch is not taken."""
        name, item = self._todo[len(self.results)]
        code = error.code
        size = 0 if item.records is None else len(item.records)
        counts = self._server.replicas.topic_counts
        counts.refused(name, code, size, expected=code in WITHOUT_LOG_START)
        result = PartitionResult(name, item.index).failed(code, str(error), error.record_errors)
        result.unverified = isinstance(error, UnverifiedError)
        self.results.append(result)

    # What takes long -------------------------------------------------------------------

    def _later(self) -> Pending:
        """Go on in a task of its own, in which a worker checks what is left."""
        self.pipelined = False
        self._server.tasks.start(self._go_on(), "large-produce")
        return self

    async def _go_on(self) -> None:
        server, checks = self._server, self._server.batch_checks
        effort = checks.effort()
        try:
            while len(self.results) < len(self._todo):
                if self.done and self._acks:
                    return  # its client is gone and will send it again
                if self._next_is_light():
                    await self._append_light()
                    continue
                name, item = self._todo[len(self.results)]
                try:
                    partition = self._partition(name, item.index)
                    records = self._batch_of(item.records)
                    log = partition.local_log(leader_only=True)
                    now_ms = server.replicas.clock.wall_ms()
                    checked = await checks.check(records, log.rules, now_ms, effort)
                except OttlaError as error:
                    self._refuse(error)
                else:
                    self._append_next(UNLIMITED, checked)
            self.unblock_next()
            self.settle(self._finish())
        except CloseConnection as decision:
            self.fail(str(decision))
        except asyncio.CancelledError:
            self.fail("the server is shutting down")
            raise
        except Exception as error:
            logger.exception("large produce failed peer=%s", self.connection.peer)
            self.fail(f"our error: {error!r}")

    async def _append_light(self) -> None:
        """Append the next batches on the loop, a few milliseconds of it, one request at a time."""
        async with self._server.batch_checks.on_the_loop:
            time_slice = TimeSlice(self._server.world.clock)
            while self._next_is_light() and not time_slice.over:
                self._append_next(UNLIMITED)
            await time_slice.next()

    # The response ----------------------------------------------------------------------

    def _finish(self) -> Sequence[Buffer] | Pending | None:
        """Return the response, or this if it waits for the in-sync replicas."""
        if self._acks == 0:
            wrong = [r for r in self.results if r.code is not ErrorCode.NONE]
            if wrong:
                raise CloseConnection(f"produce with acks=0 failed: {wrong[0]} {wrong[0].message}")
            return None
        if self._awaited:
            awaited, self._awaited = self._awaited, []
            self._todo = []  # keep no frame in memory meanwhile
            self.wait(awaited, self._timeout_ms)
            return self
        return self.respond()

    def respond(self) -> list[Buffer]:
        header, results = self._header, self.results
        if len(results) == 1 and results[0].code is ErrorCode.NONE:
            result = results[0]
            assert result.info is not None
            return _patched(header, result.topic, result.index, result.info)
        response = ProduceResponse()
        topics: dict[str, ProduceResponse.TopicProduceResponse] = {}
        for result in results:
            topic = topics.get(result.topic)
            if topic is None:
                topic = topics[result.topic] = ProduceResponse.TopicProduceResponse(
                    name=result.topic
                )
                response.responses.append(topic)
            topic.partition_responses.append(self._partition_response(result, response))
        return respond(header, response)

    def _partition_response(
        self, result: PartitionResult, response: ProduceResponse
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
                tp = TopicPartition(result.topic, result.index)
                partition = self._server.replicas.partitions.get(tp)
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
            and self._header.api_version >= FIRST_VERSION_WITH_LEADER
        ):
            name_leader(
                self._server,
                self.connection.listener,
                (result.topic, result.index),
                item.current_leader,
                response.node_endpoints,
                ProduceResponse.NodeEndpoint,
            )
        return item


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


PRODUCE = Api(
    ProduceRequest,
    handle,
    access=Access(
        check=check_access,
        checked=(Need(WRITE, TRANSACTIONAL_ID, "transactional_id", "a batch is transactional"),),
        each=each_named(Need(WRITE, TOPIC, "name"), "topic_data", "responses"),
    ),
    error=error_response(
        ProduceResponse,
        "topic_data.partition_data",
        "responses.partition_responses",
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
    ),
    quota=Quota.TIME_AND_BYTES,
    pipelined=True,
)
