"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit: the life of a transaction.

Invariants: partitions that do not exist never reach the coordinator, and one of them refuses all
others of its request; older producers get errors that they know. AddPartitionsToTxn from version 4
on comes from brokers, in batches (KIP-890). Requests that come late are refused
(`producer_connections`). Kafka: the handlers of the same names in `KafkaApis`.
"""

from collections.abc import Collection, Mapping, Sequence

from ottla.broker.requests.access import ERRORS, Access, Asking, Need, each_named
from ottla.broker.requests.api import Api, Response
from ottla.broker.requests.responses import PendingResult, by_topic, respond
from ottla.broker.services import BrokerServices
from ottla.coordinators.coordinator_log import Producer
from ottla.coordinators.group_coordinator import COMMIT_ERRORS
from ottla.coordinators.offsets import Commit
from ottla.coordinators.requests import ProducerIdAndEpoch
from ottla.log.producers import TRUSTED
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, TopicPartition
from ottla.net.connection import CloseConnection, Connection, Pending
from ottla.security.acls import (
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from ottla.wire.apis import ApiKey
from ottla.wire.error_responses import by_version, error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from ottla.wire.portions import CHANGES_BY_PARTITION, in_portions

FIRST_VERSION_OF_BROKERS = 4
FIRST_VERSION_WITH_FENCED = 2
FIRST_COMMIT_WITH_LOADING = 2
FIRST_COMMIT_WITH_ABORTABLE = 4
OFFSETS_SEQUENCE = 0
"""The sequence of every batch of offsets in a transaction; it is not checked."""

TRANSACTION, OFFSETS = "transaction", "offsets"
"""What goes to the coordinator of the transaction, and to that of the group."""

MOST_PARTITIONS = 5_000
"""How many one AddPartitionsToTxn may name; it cannot be split: all are added, or none."""

Codes = Mapping[TopicPartition, ErrorCode]


def _known_to(version: int, error: ErrorCode) -> ErrorCode:
    """Return an error that a producer of this version knows."""
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


# --- AddPartitionsToTxn -------------------------------------------------------------------------


def add_partitions(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: AddPartitionsToTxnRequest,
) -> Response:
    transactions = request.transactions
    of_producer = header.api_version < FIRST_VERSION_OF_BROKERS
    if of_producer:
        transactions = [
            AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                verify_only=False,
                topics=request.v3_and_below_topics,
            )
        ]
    if not transactions:
        return respond(header, AddPartitionsToTxnResponse())
    if sum(len(topic.partitions) for t in transactions for topic in t.topics) > MOST_PARTITIONS:
        raise CloseConnection(f"more than {MOST_PARTITIONS} partitions are added to transactions")
    if of_producer:
        server.producer_connections.check(
            conn,
            TRANSACTION,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
    pending = PendingAddPartitions(conn, header, len({t.transactional_id for t in transactions}))
    for transaction in transactions:
        refused = _unwritable(server, conn, transaction) if of_producer else frozenset()
        _add(server, transaction, pending, refused)
    return pending


class PendingAddPartitions(PendingResult[Mapping[str, Codes]]):
    """The response when there are the results of all transactions."""

    __slots__ = ("_count", "_results")

    def __init__(self, conn: Connection, header: RequestHeader, count: int) -> None:
        super().__init__(conn, header)
        self._count = count
        self._results: dict[str, Codes] = {}

    def add(self, transactional_id: str, codes: Codes) -> None:
        self._results[transactional_id] = codes
        if len(self._results) == self._count:
            self.on_result(self._results)

    def response(self, result: Mapping[str, Codes]) -> AddPartitionsToTxnResponse:
        return _added(self.header.api_version, result)


class _OneAdded:
    """One transaction of a request, whose partitions are being added."""

    __slots__ = ("_name", "_partitions", "_pending")

    def __init__(
        self, pending: PendingAddPartitions, name: str, partitions: Sequence[TopicPartition]
    ) -> None:
        self._pending = pending
        self._name = name
        self._partitions = partitions

    def on_result(self, result: ErrorCode) -> None:
        code = _known_to(self._pending.header.api_version, result)
        self._pending.add(self._name, dict.fromkeys(self._partitions, code))


def _add(
    server: BrokerServices,
    transaction: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction,
    pending: PendingAddPartitions,
    refused: Collection[str],
) -> None:
    name = transaction.transactional_id
    partitions = [
        TopicPartition(t.name, index) for t in transaction.topics for index in t.partitions
    ]
    errors = {tp: _error_of(server, tp, refused) for tp in partitions}
    if any(errors.values()):
        other = ErrorCode.OPERATION_NOT_ATTEMPTED
        pending.add(name, {tp: code or other for tp, code in errors.items()})
        return
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    coordinator = server.transactions
    if transaction.verify_only:
        pending.add(name, coordinator.verify_partitions(name, producer, partitions))
        return
    coordinator.add_partitions(name, producer, partitions, _OneAdded(pending, name, partitions))


def _error_of(server: BrokerServices, tp: TopicPartition, refused: Collection[str]) -> ErrorCode:
    """Return why a partition cannot be part of a transaction, NONE if it can."""
    if tp.topic in refused:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if server.metadata.partition(*tp) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _unwritable(
    server: BrokerServices,
    conn: Connection,
    transaction: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction,
) -> frozenset[str]:
    """Return the topics of a request that its producer may not write to.

    Internal topics are among them as soon as there is an authorizer, as in Kafka.
    """
    authorizer = server.authorizer
    if authorizer is None:
        return frozenset()
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    return frozenset(
        topic.name
        for topic in transaction.topics
        if topic.name in INTERNAL_TOPICS
        or not authorizer.allows(conn, key, WRITE, TOPIC, topic.name)
    )


def _check_adding(
    asking: Asking, header: RequestHeader, request: AddPartitionsToTxnRequest
) -> None:
    """Raise the error of who may not use the transactional id, or is no broker."""
    if header.api_version >= FIRST_VERSION_OF_BROKERS:
        needed = (CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    else:
        needed = (WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    if not asking.may(*needed):
        raise OttlaError("", ERRORS[needed[1]])


def _added(version: int, results: Mapping[str, Codes]) -> AddPartitionsToTxnResponse:
    r = AddPartitionsToTxnResponse

    def topics(codes: Codes) -> list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
        return [
            r.AddPartitionsToTxnTopicResult(
                name=topic,
                results_by_partition=[
                    r.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                    for index, code in partitions
                ],
            )
            for topic, partitions in by_topic(codes.items()).items()
        ]

    if version < FIRST_VERSION_OF_BROKERS:
        return r(results_by_topic_v3_and_below=[t for c in results.values() for t in topics(c)])
    return r(
        results_by_transaction=[
            r.AddPartitionsToTxnResult(transactional_id=name, topic_results=topics(codes))
            for name, codes in results.items()
        ]
    )


# --- AddOffsetsToTxn and EndTxn -----------------------------------------------------------------


def add_offsets(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: AddOffsetsToTxnRequest,
) -> Pending:
    """Make the partition in which a group's offsets are kept part of the transaction."""
    server.producer_connections.check(
        conn, TRANSACTION, request.transactional_id, request.producer_id, request.producer_epoch
    )
    pending = PendingAddOffsets(conn, header)
    index = server.groups.log.partition_for(request.group_id)
    server.transactions.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [TopicPartition(GROUP_METADATA_TOPIC, index)],
        pending,
    )
    return pending


class PendingAddOffsets(PendingResult[ErrorCode]):
    __slots__ = ()

    def response(self, result: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=_known_to(self.header.api_version, result))


def end_txn(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: EndTxnRequest,
) -> Pending:
    server.producer_connections.check(
        conn, TRANSACTION, request.transactional_id, request.producer_id, request.producer_epoch
    )
    pending = PendingEndTxn(conn, header)
    server.transactions.end(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        pending,
        committed=request.committed,
    )
    return pending


class PendingEndTxn(PendingResult[ErrorCode]):
    __slots__ = ()

    def response(self, result: ErrorCode) -> EndTxnResponse:
        return EndTxnResponse(error_code=_known_to(self.header.api_version, result))


# --- TxnOffsetCommit ----------------------------------------------------------------------------


def txn_offset_commit(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: TxnOffsetCommitRequest,
) -> Response:
    server.producer_connections.check(
        conn, OFFSETS, request.transactional_id, request.producer_id, request.producer_epoch
    )
    results: dict[TopicPartition, ErrorCode] = {}
    commits: dict[TopicPartition, Commit] = {}
    now_ms = server.world.clock.wall_ms()
    for topic in request.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if server.metadata.partition(*tp) is None:
                results[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                commits[tp] = Commit(
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.committed_metadata or "",
                    now_ms,
                )
    if not commits:
        return respond(header, _committed(results, header.api_version))
    pending = PendingTxnOffsetCommit(server, conn, header, request, commits, results)
    pending.start()
    return pending


class PendingTxnOffsetCommit(PendingResult[Codes]):
    """The response when the offsets are in the log; `refused` are those that were not written."""

    __slots__ = ("_commits", "_guard", "_refused", "_request", "_server")

    def __init__(
        self,
        server: BrokerServices,
        conn: Connection,
        header: RequestHeader,
        request: TxnOffsetCommitRequest,
        commits: Mapping[TopicPartition, Commit],
        refused: Codes,
    ) -> None:
        super().__init__(conn, header)
        self._server = server
        self._request = request
        self._commits = commits
        self._refused = refused
        self._guard: object = TRUSTED

    @property
    def _partition(self) -> TopicPartition:
        """Where the group's offsets are kept."""
        log = self._server.groups.log
        return TopicPartition(GROUP_METADATA_TOPIC, log.partition_for(self._request.group_id))

    def start(self) -> None:
        """Have the group's partition verified as part of the transaction, then write the offsets.

        A guard of None stands for a transaction that has offsets there already.
        """
        server, request = self._server, self._request
        error = server.groups.validate_group_status(request.group_id)
        if error is not ErrorCode.NONE:
            self._fail_all(error)
            return
        verifier = server.verifier
        if verifier.enabled:
            try:
                log = server.replicas.hosted(*self._partition).local_log(leader_only=True)
            except OttlaError:
                self._fail_all(ErrorCode.NOT_COORDINATOR)
                return
            self._guard = log.producers.begin_verification(
                request.producer_id,
                request.producer_epoch,
                OFFSETS_SEQUENCE,
                server.world.clock.wall_ms(),
            )
            if self._guard is not None:
                errors = verifier.verify(
                    request.transactional_id,
                    ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
                    [self._partition],
                    self,
                    knows_abortable=self.header.api_version >= FIRST_COMMIT_WITH_ABORTABLE,
                )
                if errors is not None:
                    self.on_verified(errors)
                return
        self._write()

    def on_verified(self, errors: Codes) -> None:
        failure = errors.get(self._partition)
        if failure is not None:
            self._fail_all(COMMIT_ERRORS.get(failure, failure))
        else:
            self._write()

    def _write(self) -> None:
        request = self._request
        self._server.groups.commit(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            self._commits,
            self,
            producer=Producer(request.producer_id, request.producer_epoch),
            guard=self._guard,
        )

    def _fail_all(self, error: ErrorCode) -> None:
        self.on_result(dict.fromkeys(self._commits, error))

    def response(self, result: Codes) -> TxnOffsetCommitResponse:
        return _committed({**self._refused, **result}, self.header.api_version)


def _committed(results: Codes, version: int) -> TxnOffsetCommitResponse:
    r = TxnOffsetCommitResponse
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if version < FIRST_COMMIT_WITH_LOADING:  # the first transactional producers treat it as fatal
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        results = {tp: unavailable if c is loading else c for tp, c in results.items()}
    return r(
        topics=[
            r.TxnOffsetCommitResponseTopic(
                name=topic,
                partitions=[
                    r.TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in partitions
                ],
            )
            for topic, partitions in by_topic(results.items()).items()
        ]
    )


# --- how they are served ------------------------------------------------------------------------

_WRITES = (Need(WRITE, TRANSACTIONAL_ID, "transactional_id"),)
_READS_GROUP = (Need(READ, GROUP, "group_id"),)

ADD_PARTITIONS_TO_TXN = Api(
    AddPartitionsToTxnRequest,
    add_partitions,
    access=Access(
        check=_check_adding,
        checked=(
            Need(WRITE, TRANSACTIONAL_ID, "v3_and_below_transactional_id", "versions of producers"),
            Need(CLUSTER_ACTION, note="versions of brokers, from 4 on"),
        ),
        handler=(Need(WRITE, TOPIC, "name", "versions of producers; internal topics always fail"),),
    ),
    error=by_version(
        FIRST_VERSION_OF_BROKERS,
        error_response(AddPartitionsToTxnResponse),
        error_response(
            AddPartitionsToTxnResponse,
            "v3_and_below_topics.partitions",
            "results_by_topic_v3_and_below.results_by_partition",
        ),
    ),
    large=in_portions(
        "transactions", "results_by_transaction", unique=1, since=FIRST_VERSION_OF_BROKERS
    ),
)
ADD_OFFSETS_TO_TXN = Api(
    AddOffsetsToTxnRequest,
    add_offsets,
    access=Access(whole=(_WRITES, _READS_GROUP)),
    error=error_response(AddOffsetsToTxnResponse),
)
END_TXN = Api(
    EndTxnRequest, end_txn, access=Access(whole=(_WRITES,)), error=error_response(EndTxnResponse)
)
TXN_OFFSET_COMMIT = Api(
    TxnOffsetCommitRequest,
    txn_offset_commit,
    access=Access(whole=(_WRITES, _READS_GROUP), each=each_named(Need(READ, TOPIC, "name"))),
    error=error_response(TxnOffsetCommitResponse, "topics.partitions"),
    large=CHANGES_BY_PARTITION,
)
