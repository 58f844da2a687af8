"""DescribeProducers, DescribeTransactions, ListTransactions: what operators look for (KIP-664).

Invariants: answered from memory, at once. Kafka: the handlers of the same names in `KafkaApis` and
`Partition.activeProducerState`.
"""

from collections.abc import Generator

from ottla.broker.authorization.request_authorizer import allowed
from ottla.broker.requests.access import Access, ForEach, Need, each_named
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import ELEMENT_BYTES, STEP, Steps, respond_in_steps
from ottla.broker.services import BrokerServices
from ottla.log.log import Log
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import topic_name_problem
from ottla.model.protocol import UNKNOWN_OFFSET
from ottla.net.connection import Connection
from ottla.security.acls import DESCRIBE, READ, TOPIC, TRANSACTIONAL_ID
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.wire.portions import in_portions, itself

_READ = Need(READ, TOPIC, "name")


def _need_of_producers(topic: DescribeProducersRequest.TopicRequest) -> Need | None:
    """Return the need of a topic; what has no topic's name gets another error first."""
    return None if topic_name_problem(topic.name) else _READ


def describe_producers(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DescribeProducersRequest,
) -> Parts | Later:
    return respond_in_steps(server, conn, header, _described_producers(server, request))


def _described_producers(server: BrokerServices, request: DescribeProducersRequest) -> Steps:
    """Describe each partition once, however often it is named."""
    r = DescribeProducersResponse
    topics = []
    described: set[tuple[str, int]] = set()
    for topic in request.topics:
        error, message = ErrorCode.NONE, None
        problem = topic_name_problem(topic.name)
        if problem:
            error, message = ErrorCode.INVALID_TOPIC_EXCEPTION, problem
        elif not server.metadata.contains(topic.name):
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            message = "This server does not host this topic-partition."
        partitions = []
        for index in dict.fromkeys(topic.partition_indexes):
            if (topic.name, index) in described:
                continue
            described.add((topic.name, index))
            responded = r.PartitionResponse(
                partition_index=index, error_code=error, error_message=message
            )
            if error is ErrorCode.NONE:
                try:
                    log = server.replicas.hosted(topic.name, index).local_log(leader_only=False)
                    responded.active_producers = yield from _producers(log)
                except OttlaError as failure:
                    responded.error_code = failure.code
            partitions.append(responded)
            yield ELEMENT_BYTES
        topics.append(r.TopicResponse(name=topic.name, partitions=partitions))
        yield ELEMENT_BYTES
    return r(topics=topics)


def _producers(log: Log) -> Generator[int, None, list[DescribeProducersResponse.ProducerState]]:
    found = []
    for number, p in enumerate(list(log.producers.producers.values()), 1):
        found.append(
            DescribeProducersResponse.ProducerState(
                producer_id=p.id,
                producer_epoch=p.epoch,
                last_sequence=p.last_sequence,
                last_timestamp=p.last_timestamp,
                coordinator_epoch=p.coordinator_epoch,
                current_txn_start_offset=UNKNOWN_OFFSET if p.txn_first is None else p.txn_first,
            )
        )
        if not number % STEP:
            yield STEP * ELEMENT_BYTES
    return found


def describe_transactions(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DescribeTransactionsRequest,
) -> Parts | Later:
    return respond_in_steps(
        server, conn, header, _described_transactions(server, conn, header, request)
    )


def _described_transactions(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DescribeTransactionsRequest,
) -> Steps:
    """Describe each transactional id once, however often it is named."""
    r = DescribeTransactionsResponse
    states = []
    for name in dict.fromkeys(request.transactional_ids):
        error, found = server.transactions.describe(name)
        state = r.TransactionState(error_code=error, transactional_id=name)
        if found is not None:
            topics: dict[str, list[int]] = {}
            for topic, index in sorted(found.partitions):
                if topic in topics or allowed(
                    server.authorizer, conn, header.api_key, DESCRIBE, TOPIC, topic
                ):
                    topics.setdefault(topic, []).append(index)
            state.producer_id = found.producer_id
            state.producer_epoch = found.epoch
            state.transaction_state = found.state.label
            state.transaction_timeout_ms = found.timeout_ms
            state.transaction_start_time_ms = found.start_ms
            state.topics = [r.TopicData(topic=t, partitions=ids) for t, ids in topics.items()]
            yield ELEMENT_BYTES * len(topics) + 8 * len(found.partitions)
        states.append(state)
        yield ELEMENT_BYTES
    return r(transaction_states=states)


def list_transactions(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: ListTransactionsRequest,
) -> Parts | Later:
    return respond_in_steps(
        server, conn, header, _listed_transactions(server, conn, header, request)
    )


def _listed_transactions(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: ListTransactionsRequest,
) -> Steps:
    r = ListTransactionsResponse
    error, found, unknown = server.transactions.select(
        set(request.producer_id_filters), list(request.state_filters), request.duration_filter
    )
    states = []
    for number, t in enumerate(found, 1):
        if allowed(
            server.authorizer, conn, header.api_key, DESCRIBE, TRANSACTIONAL_ID, t.transactional_id
        ):
            states.append(
                r.TransactionState(
                    transactional_id=t.transactional_id,
                    producer_id=t.producer_id,
                    transaction_state=t.state.label,
                )
            )
        if not number % STEP:
            yield STEP * ELEMENT_BYTES
    return r(error_code=error, unknown_state_filters=unknown, transaction_states=states)


DESCRIBE_PRODUCERS = Api(
    DescribeProducersRequest,
    describe_producers,
    access=Access(
        each=ForEach("topics", "topics", _need_of_producers, (_READ,), with_message=True)
    ),
    error=error_response(
        DescribeProducersResponse, "topics.partition_indexes", "topics.partitions"
    ),
    large=in_portions("topics.partition_indexes", "topics.partitions", once=itself),
    large_response=True,
)
DESCRIBE_TRANSACTIONS = Api(
    DescribeTransactionsRequest,
    describe_transactions,
    access=Access(
        each=each_named(
            Need(DESCRIBE, TRANSACTIONAL_ID), "transactional_ids", "transaction_states"
        ),
        handler=(Need(DESCRIBE, TOPIC, "topic", "of each topic shown"),),
    ),
    error=error_response(DescribeTransactionsResponse, "transactional_ids", "transaction_states"),
    large=in_portions("transactional_ids", "transaction_states", once=itself),
    large_response=True,
)
LIST_TRANSACTIONS = Api(
    ListTransactionsRequest,
    list_transactions,
    access=Access(
        handler=(Need(DESCRIBE, TRANSACTIONAL_ID, "transactional_id", "of each one shown"),)
    ),
    error=error_response(ListTransactionsResponse),
    large_response=True,
)
