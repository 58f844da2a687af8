"""InitProducerId: a number for an idempotent producer.

Who may call: the router. Transactional producers are sent away with COORDINATOR_NOT_AVAILABLE,
which they retry, until transactions are served. Answers to
`KafkaApis.handleInitProducerIdRequest`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.answers import answer, answer_later
from ottla.model.errors import ErrorCode
from ottla.model.ports import Buffer
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices
    from ottla.net.connection import Connection, Pending

NONE = -1


def _answer(header: RequestHeader, producer_id: int) -> list[Buffer]:
    return answer(header, InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


def handle(
    server: "BrokerServices",
    conn: "Connection",
    header: RequestHeader,
    request: InitProducerIdRequest,
) -> "Sequence[Buffer] | Pending":
    error = None
    if request.transactional_id is not None:
        empty = not request.transactional_id
        error = ErrorCode.INVALID_REQUEST if empty else ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif (request.producer_id == NONE) != (request.producer_epoch == NONE):
        error = ErrorCode.INVALID_REQUEST
    if error is not None:
        response = InitProducerIdResponse(error_code=error, producer_id=NONE, producer_epoch=NONE)
        return answer(header, response)
    producer_id = server.producer_ids.take()
    if producer_id is not None:
        return _answer(header, producer_id)

    async def wait() -> list[Buffer]:
        return _answer(header, await server.producer_ids.next())

    return answer_later(server, conn, header, request, wait())
