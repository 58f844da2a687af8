"""InitProducerId: a number for an idempotent producer; number and epoch for a transactional one.

Kafka: `KafkaApis.handleInitProducerIdRequest`.
"""

from ottla.broker.requests.access import ERRORS, MESSAGES, Access, Asking, Need
from ottla.broker.requests.api import Api, Later, Response
from ottla.broker.requests.responses import PendingResult, respond
from ottla.broker.services import BrokerServices
from ottla.coordinators.requests import InitResult, ProducerIdAndEpoch
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ports import Buffer
from ottla.model.protocol import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.net.connection import Connection, Pending
from ottla.security.acls import (
    CLUSTER,
    CLUSTER_NAME,
    IDEMPOTENT_WRITE,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

FIRST_VERSION_WITH_FENCED = 4


def _respond(header: RequestHeader, producer_id: int) -> list[Buffer]:
    return respond(header, InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


def _check_access(asking: Asking, _header: RequestHeader, request: InitProducerIdRequest) -> None:
    """Raise the error of a client that may not have a producer id."""
    name = request.transactional_id
    if name is not None:
        if not asking.may(WRITE, TRANSACTIONAL_ID, name):
            raise OttlaError(MESSAGES[TRANSACTIONAL_ID], ERRORS[TRANSACTIONAL_ID])
    elif not asking.may_quietly(IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME) and not asking.may_any(
        WRITE, TOPIC
    ):
        raise OttlaError(MESSAGES[CLUSTER], ERRORS[CLUSTER])


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: InitProducerIdRequest,
) -> Response | Later:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        refusal = InitProducerIdResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
        )
        return respond(header, refusal)
    if request.transactional_id is not None:
        return _transactional(server, conn, header, request)
    producer_id = server.producer_ids.take()
    if producer_id is not None:
        return _respond(header, producer_id)

    async def wait() -> list[Buffer]:
        return _respond(header, await server.producer_ids.next())

    return wait()


def _transactional(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: InitProducerIdRequest,
) -> Pending:
    pending = PendingInitProducerId(conn, header)
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    server.transactions.init_producer_id(
        request.transactional_id or "",
        request.transaction_timeout_ms,
        expected,
        pending,
    )
    return pending


class PendingInitProducerId(PendingResult[InitResult]):
    __slots__ = ()

    def response(self, result: InitResult) -> InitProducerIdResponse:
        error, producer_id, epoch = result
        older = self.header.api_version < FIRST_VERSION_WITH_FENCED
        if error is ErrorCode.PRODUCER_FENCED and older:
            error = ErrorCode.INVALID_PRODUCER_EPOCH  # all that older producers know of it
        return InitProducerIdResponse(
            error_code=error, producer_id=producer_id, producer_epoch=epoch
        )


INIT_PRODUCER_ID = Api(
    InitProducerIdRequest,
    handle,
    access=Access(
        check=_check_access,
        checked=(
            Need(WRITE, TRANSACTIONAL_ID, "transactional_id", "it names one"),
            Need(IDEMPOTENT_WRITE, note="it names no transactional id, or of any topic:"),
            Need(WRITE, TOPIC, note="the same; without it CLUSTER_AUTHORIZATION_FAILED"),
        ),
    ),
    error=error_response(
        InitProducerIdResponse, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    ),
)
