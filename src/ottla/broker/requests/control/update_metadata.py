"""UpdateMetadata: the controller tells this broker about the cluster.

Invariants: a request for an earlier incarnation of this broker (R8) or from an earlier controller
(R10) changes nothing; a large one is taken in slice by slice, while others wait for it, and seen at
once. Kafka: `KafkaApis.handleUpdateMetadataRequest` and `ReplicaManager.maybeUpdateMetadataCache`.
"""

import logging
from collections.abc import Iterator

from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, InSlices, Later, Parts, Quota
from ottla.broker.requests.control.replica_control import refusal
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model import state_changes
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.protocol import LEADER_DURING_DELETE
from ottla.model.time_slices import yield_to_loop
from ottla.net.connection import Connection
from ottla.replication.strays import Assignment, stop_unassigned
from ottla.security.acls import CLUSTER_ACTION
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.control import UpdateMetadataRequest, UpdateMetadataResponse

logger = logging.getLogger(__name__)

LAST_EPOCH = 2**31 - 1
"""Newer than any leader epoch."""


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: UpdateMetadataRequest,
) -> Parts | Later:
    if server.metadata.taking_in.locked():  # a large one of another connection is being taken in
        return take_in(server, conn, header, request)
    code = refusal(server, conn, request)
    if code is ErrorCode.NONE:
        counts = _counts(request)
        for topic in request.topic_states:
            stop_unassigned(server.replicas, _assignments(topic))
        server.metadata.apply(request)
        _log(server, header, request, counts)
    return respond(header, UpdateMetadataResponse(error_code=code))


async def take_in(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: UpdateMetadataRequest
) -> Parts:
    """Take in a large update: what it says is seen all at once, at the end."""
    async with server.metadata.taking_in:
        code = refusal(server, conn, request)
        if code is ErrorCode.NONE:
            counts = _counts(request)
            for topic in request.topic_states:
                stop_unassigned(server.replicas, _assignments(topic))
                await yield_to_loop()
                code = refusal(server, conn, request)  # LeaderAndIsr may have come meanwhile
                if code is not ErrorCode.NONE:
                    return respond(header, UpdateMetadataResponse(error_code=code))
            for _ in server.metadata.apply_in_slices(request):
                await yield_to_loop()
            _log(server, header, request, counts)
    return respond(header, UpdateMetadataResponse(error_code=code))


def _counts(request: UpdateMetadataRequest) -> tuple[int, int] | None:
    """Count what an update adds and deletes, before it is emptied; None where the logger is off."""
    if not request.topic_states or not state_changes.logger.isEnabledFor(logging.INFO):
        return None
    leaders = [p.leader for topic in request.topic_states for p in topic.partition_states]
    deleted = leaders.count(LEADER_DURING_DELETE)
    return len(leaders) - deleted, deleted


def _log(
    server: BrokerServices,
    header: RequestHeader,
    request: UpdateMetadataRequest,
    counts: tuple[int, int] | None,
) -> None:
    """Write Kafka's line into state-change.log, where the logger is on."""
    if counts is None:
        return
    line = (
        f"[Broker id={server.replicas.broker_id}] Add {counts[0]} partitions and "
        f"deleted {counts[1]} partitions from metadata cache in response to UpdateMetadata request "
        f"sent by controller {request.controller_id} epoch {request.controller_epoch} with "
        f"correlation id {header.correlation_id}"
    )
    state_changes.log_lines([line])


def _assignments(topic: UpdateMetadataRequest.UpdateMetadataTopicState) -> Iterator[Assignment]:
    """Return what an update says of a topic's replicas.

    Of a topic on its way out only assigned replicas will hear by StopReplica: others are out now.
    """
    for state in topic.partition_states:
        going = state.leader == LEADER_DURING_DELETE
        tp = TopicPartition(topic.topic_name, state.partition_index)
        epoch = LAST_EPOCH if going else state.leader_epoch
        yield Assignment(tp, bytes(topic.topic_id), epoch, state.replicas)


UPDATE_METADATA = Api(
    UpdateMetadataRequest,
    handle,
    access=on_cluster(CLUSTER_ACTION),
    error=error_response(UpdateMetadataResponse),
    quota=Quota.NONE,
    large=InSlices(take_in),
    control_plane=True,
)
