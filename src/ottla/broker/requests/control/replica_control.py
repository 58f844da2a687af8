"""LeaderAndIsr and StopReplica: the controller tells this broker what to lead, follow and delete.

Invariants: a request for an earlier incarnation of this broker changes nothing (R8), one of an
earlier controller neither (R10; checked again when its turn comes); always answered, since the
controller sends the next one only then (PROTOCOL 6.2). The work is done in slices by
`replication.control`.

Kafka: `KafkaApis.handleLeaderAndIsrRequest` and `handleStopReplicaRequest`.
"""

import logging

from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, InSlices, Later, Parts, Quota
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.net.connection import CloseConnection, Connection
from ottla.replication.control import (
    apply_leader_and_isr,
    apply_stop_replica,
    leader_and_isr_error,
)
from ottla.replication.strays import put_strays_aside
from ottla.security.acls import CLUSTER_ACTION
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
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


def leader_and_isr(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: LeaderAndIsrRequest,
) -> Parts | Later:
    code = refusal(server, conn, request)
    if code is not ErrorCode.NONE:
        return respond(header, leader_and_isr_error(request, header.api_version, code))
    return _apply(server, header, request)


async def lead_and_follow(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: LeaderAndIsrRequest
) -> Parts:
    """Do the same for a request that was read in slices."""
    code = refusal(server, conn, request)
    if code is not ErrorCode.NONE:
        return respond(header, leader_and_isr_error(request, header.api_version, code))
    return await _apply(server, header, request)


async def _apply(
    server: BrokerServices, header: RequestHeader, request: LeaderAndIsrRequest
) -> Parts:
    await server.topic_configs.refresh(_new_here(server, request))
    response = await apply_leader_and_isr(
        server.replicas, request, header.api_version, header.correlation_id
    )
    rest = await _without_strays(server, request, response)
    if rest.topic_states:
        _amend(response, await apply_leader_and_isr(server.replicas, rest, header.api_version))
    return respond(header, response)


async def _without_strays(
    server: BrokerServices, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
) -> LeaderAndIsrRequest:
    """Put what we have of former topics aside; return the part of the request that it blocked.

    Only where ZooKeeper, too, has the name under the id of the request, and had it from the topic's
    creation on (R15). An id that a controller gave later, to a topic whose znode had lost its own
    (KAFKA-14190), says nothing about our records: then the partition is refused, as in Kafka.
    """
    rest = LeaderAndIsrRequest(
        controller_id=request.controller_id,
        is_kraft_controller=request.is_kraft_controller,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        type=request.type,
        live_leaders=request.live_leaders,
    )
    for topic, result in zip(request.topic_states, response.topics, strict=False):
        refused = {
            p.partition_index
            for p in result.partition_errors
            if p.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
        }
        if not refused:
            continue
        if not await _was_created_as(server, topic.topic_name, bytes(topic.topic_id)):
            continue
        strays = [TopicPartition(topic.topic_name, p) for p in sorted(refused)]
        await put_strays_aside(server.replicas, strays, bytes(topic.topic_id))
        rest.topic_states.append(
            LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partition_states=[
                    s for s in topic.partition_states if s.partition_index in refused
                ],
            )
        )
    return rest


async def _was_created_as(server: BrokerServices, topic: str, topic_id: bytes) -> bool:
    try:
        return await server.session.store.topic_ids.was_created_as(topic, topic_id)
    except OttlaError as error:
        logger.info("topic id not requested topic=%s error=%s", topic, error)
        return False


def _amend(response: LeaderAndIsrResponse, later: LeaderAndIsrResponse) -> None:
    """Put later results in the place of earlier ones."""
    codes = {
        (bytes(topic.topic_id), p.partition_index): p.error_code
        for topic in later.topics
        for p in topic.partition_errors
    }
    for topic in response.topics:
        for p in topic.partition_errors:
            key = (bytes(topic.topic_id), p.partition_index)
            p.error_code = codes.get(key, p.error_code)


def _new_here(server: BrokerServices, request: LeaderAndIsrRequest) -> list[str]:
    """Return the topics of which a first log will be created: their settings are read just now."""
    logs = server.replicas.logs
    named = [(s.topic_name, s.partition_index) for s in request.ungrouped_partition_states]
    named += [
        (t.topic_name, s.partition_index) for t in request.topic_states for s in t.partition_states
    ]
    return list(dict.fromkeys(t for t, p in named if logs.get(TopicPartition(t, p)) is None))


def stop_replica(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: StopReplicaRequest,
) -> Parts | Later:
    code = refusal(server, conn, request)
    if code is not ErrorCode.NONE:
        return respond(header, StopReplicaResponse(error_code=code))
    return _stop(server, header, request)


async def stop(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: StopReplicaRequest
) -> Parts:
    """Do the same for a request that was read in slices."""
    code = refusal(server, conn, request)
    if code is not ErrorCode.NONE:
        return respond(header, StopReplicaResponse(error_code=code))
    return await _stop(server, header, request)


async def _stop(
    server: BrokerServices, header: RequestHeader, request: StopReplicaRequest
) -> Parts:
    return respond(header, await apply_stop_replica(server.replicas, request, header.api_version))


LEADER_AND_ISR = Api(
    LeaderAndIsrRequest,
    leader_and_isr,
    access=on_cluster(CLUSTER_ACTION),
    error=error_response(LeaderAndIsrResponse),
    quota=Quota.NONE,
    large=InSlices(lead_and_follow),
    control_plane=True,
)
STOP_REPLICA = Api(
    StopReplicaRequest,
    stop_replica,
    access=on_cluster(CLUSTER_ACTION),
    error=error_response(StopReplicaResponse),
    quota=Quota.NONE,
    large=InSlices(stop),
    control_plane=True,
)
