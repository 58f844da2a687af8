"""Requests only the controller answers: AlterPartition, AllocateProducerIds, ControlledShutdown.

Who may call: the router. These are handed to the controller of this process. Not the controller, it
answers NOT_CONTROLLER, by itself or here, and a ControlledShutdown with the code of Kafka's
ControllerMovedException. Kafka: the handlers of the same names
in `KafkaApis`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.requests.answers import answer, answer_later
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ports import Buffer
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.alter_partition import AlterPartitionRequest
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices
    from ottla.net.connection import Connection, Pending


class NotControllerError(OttlaError):
    """This broker is not the controller; clients ask Metadata who is and go there."""

    code = ErrorCode.NOT_CONTROLLER


def require_controller(server: "BrokerServices") -> None:
    """Raise NotControllerError unless this broker is the controller at the moment."""
    if not server.controller.is_active:
        raise NotControllerError("This is not the correct controller for this cluster.")


def alter_partition(
    server: "BrokerServices",
    conn: "Connection",
    header: RequestHeader,
    request: AlterPartitionRequest,
) -> "Sequence[Buffer] | Pending":
    require_controller(server)

    async def work() -> list[Buffer]:
        return answer(header, await server.controller.alter_partition(request))

    return answer_later(server, conn, header, request, work())


def allocate_producer_ids(
    server: "BrokerServices",
    conn: "Connection",
    header: RequestHeader,
    request: AllocateProducerIdsRequest,
) -> "Sequence[Buffer] | Pending":
    require_controller(server)

    async def work() -> list[Buffer]:
        return answer(header, await server.controller.allocate_producer_ids(request))

    return answer_later(server, conn, header, request, work())


def controlled_shutdown(
    server: "BrokerServices",
    conn: "Connection",
    header: RequestHeader,
    request: ControlledShutdownRequest,
) -> "Pending":
    async def work() -> list[Buffer]:
        return answer(header, await server.controller.controlled_shutdown(request))

    return answer_later(server, conn, header, request, work())
