"""LeaderAndIsr and StopReplica: the controller tells this broker what to lead, follow and delete.

Who may call: the router. Invariants: a request for an earlier incarnation of this broker changes
nothing (R8), one of an earlier controller neither (R10; checked again when its turn comes); always
answered, since the controller sends the next one only then (PROTOCOL 6.2). The work is done in
slices by `replication.control`.

Answers to `KafkaApis.handleLeaderAndIsrRequest` and `handleStopReplicaRequest`.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.answers import answer, answer_later
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.ports import Buffer
from ottla.replication.control import (
    apply_leader_and_isr,
    apply_stop_replica,
    leader_and_isr_error,
)
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices
    from ottla.net.connection import Connection, Pending

logger = logging.getLogger(__name__)


def _refusal(
    server: "BrokerServices", request: LeaderAndIsrRequest | StopReplicaRequest
) -> ErrorCode:
    """Return why a control request is not for us, NONE if it is."""
    if server.is_stale(request.broker_epoch):
        code = ErrorCode.STALE_BROKER_EPOCH
    elif not server.accept_controller_epoch(request.controller_epoch):
        code = ErrorCode.STALE_CONTROLLER_EPOCH
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
        server.broker_epoch,
    )
    return code


def leader_and_isr(
    server: "BrokerServices",
    conn: "Connection",
    header: RequestHeader,
    request: LeaderAndIsrRequest,
) -> "Sequence[Buffer] | Pending":
    code = _refusal(server, request)
    if code is not ErrorCode.NONE:
        return answer(header, leader_and_isr_error(request, header.api_version, code))
    return answer_later(server, conn, header, request, _apply(server, header, request))


async def lead_and_follow(
    server: "BrokerServices", header: RequestHeader, request: LeaderAndIsrRequest
) -> list[Buffer]:
    """Do the same for a request that was read in slices."""
    code = _refusal(server, request)
    if code is not ErrorCode.NONE:
        return answer(header, leader_and_isr_error(request, header.api_version, code))
    return await _apply(server, header, request)


async def _apply(
    server: "BrokerServices", header: RequestHeader, request: LeaderAndIsrRequest
) -> list[Buffer]:
    await server.topic_configs.refresh(_new_here(server, request))
    response = await apply_leader_and_isr(
        server.replicas, request, header.api_version, header.correlation_id
    )
    return answer(header, response)


def _new_here(server: "BrokerServices", request: LeaderAndIsrRequest) -> list[str]:
    """Return the topics of which a first log will be created: their settings are read just now."""
    logs = server.replicas.logs
    named = [(s.topic_name, s.partition_index) for s in request.ungrouped_partition_states]
    named += [
        (t.topic_name, s.partition_index) for t in request.topic_states for s in t.partition_states
    ]
    return list(dict.fromkeys(t for t, p in named if logs.get(TopicPartition(t, p)) is None))


def stop_replica(
    server: "BrokerServices",
    conn: "Connection",
    header: RequestHeader,
    request: StopReplicaRequest,
) -> "Sequence[Buffer] | Pending":
    code = _refusal(server, request)
    if code is not ErrorCode.NONE:
        return answer(header, StopReplicaResponse(error_code=code))

    async def work() -> list[Buffer]:
        return answer(
            header, await apply_stop_replica(server.replicas, request, header.api_version)
        )

    return answer_later(server, conn, header, request, work())
