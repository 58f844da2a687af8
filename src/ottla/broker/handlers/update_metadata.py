"""UpdateMetadata: the controller tells this broker about the cluster.

Who may call: the router. Invariants: a request for an earlier incarnation of this broker (R8) or
from an earlier controller (R10) changes nothing. Answers to
`KafkaApis.handleUpdateMetadataRequest` and `ReplicaManager.maybeUpdateMetadataCache`.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.answers import answer
from ottla.model.errors import ErrorCode
from ottla.model.ports import Buffer
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices
    from ottla.net.connection import Connection

logger = logging.getLogger(__name__)


def handle(
    server: "BrokerServices",
    conn: "Connection",  # noqa: ARG001
    header: RequestHeader,
    request: UpdateMetadataRequest,
) -> Sequence[Buffer]:
    if server.is_stale(request.broker_epoch):
        logger.info(
            "UpdateMetadata stale broker_epoch=%d ours=%d controller=%d",
            request.broker_epoch,
            server.broker_epoch,
            request.controller_id,
        )
        return answer(header, UpdateMetadataResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    if not server.accept_controller_epoch(request.controller_epoch):
        logger.info(
            "UpdateMetadata from an old controller=%d epoch=%d",
            request.controller_id,
            request.controller_epoch,
        )
        return answer(header, UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH))
    server.metadata.apply(request)
    return answer(header, UpdateMetadataResponse())
