"""The fence of the controller's requests to a broker: broker epoch, controller epoch, connection.

Invariants: a request for an earlier registration of this broker changes nothing (R8), one of an
earlier controller neither (R10), and one that was overtaken by those of a later connection neither.
Kafka: `KafkaApis.isBrokerEpochStale` and the checks of the controller epoch in `ReplicaManager`.
"""

import logging

from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode
from ottla.net.connection import CloseConnection, Connection
from ottla.wire.messages.control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)

logger = logging.getLogger(__name__)


def refusal(
    server: BrokerServices,
    conn: Connection,
    request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest,
) -> ErrorCode:
    """Return why a request of a controller is refused, NONE if it is not; log it.

    CloseConnection for one by a former connection: no controller waits for its response, and one
    that does would connect again and send it again.
    """
    if server.is_stale(request.broker_epoch):
        code = ErrorCode.STALE_BROKER_EPOCH
    elif not server.accept_controller_epoch(request.controller_epoch):
        code = ErrorCode.STALE_CONTROLLER_EPOCH
    elif not server.control_connection.accept(conn, request.controller_epoch):
        raise CloseConnection(
            f"the controller has sent requests by a later connection than {conn.id}"
        )
    else:
        return ErrorCode.NONE
    logger.info(
        "control request refused api_key=%d error=%s controller=%d controller_epoch=%d "
        "broker_epoch=%d ours=%d",
        request.API_KEY,
        code.name,
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        server.session.broker_epoch,
    )
    return code
