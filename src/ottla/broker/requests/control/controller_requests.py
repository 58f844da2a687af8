"""Requests of brokers to the controller: AlterPartition, AllocateProducerIds, ControlledShutdown.

These are handed to the controller of this process. Where this broker is not the controller, the
response is NOT_CONTROLLER, and for a ControlledShutdown the code of Kafka's
ControllerMovedException. Kafka: the handlers of the same names in `KafkaApis`.
"""

from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, Parts, Quota
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import NotControllerError
from ottla.net.connection import Connection
from ottla.security.acls import CLUSTER_ACTION
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.control import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)


def require_controller(server: BrokerServices) -> None:
    """Raise NotControllerError unless this broker is the controller at the moment."""
    if not server.controller.is_active:
        raise NotControllerError("This is not the correct controller for this cluster.")


async def alter_partition(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: AlterPartitionRequest,
) -> Parts:
    require_controller(server)

    return respond(header, await server.controller.alter_partition(request))


async def allocate_producer_ids(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: AllocateProducerIdsRequest,
) -> Parts:
    require_controller(server)

    return respond(header, await server.controller.allocate_producer_ids(request))


async def controlled_shutdown(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: ControlledShutdownRequest,
) -> Parts:
    return respond(header, await server.controller.controlled_shutdown(request))


CONTROLLED_SHUTDOWN = Api(
    ControlledShutdownRequest,
    controlled_shutdown,
    access=on_cluster(CLUSTER_ACTION),
    error=error_response(ControlledShutdownResponse),
    quota=Quota.NONE,
)
ALTER_PARTITION = Api(
    AlterPartitionRequest,
    alter_partition,
    access=on_cluster(CLUSTER_ACTION),
    error=error_response(AlterPartitionResponse),
    quota=Quota.NONE,
)
ALLOCATE_PRODUCER_IDS = Api(
    AllocateProducerIdsRequest,
    allocate_producer_ids,
    access=on_cluster(CLUSTER_ACTION),
    error=error_response(AllocateProducerIdsResponse),
    quota=Quota.NONE,
)
