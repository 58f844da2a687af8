"""DescribeCluster: the live brokers of the asking client's listener, and the controller.

Kafka: `KafkaApis.handleDescribeCluster` and `AuthHelper.computeDescribeClusterResponse` (KIP-700,
KIP-919).
"""

from ottla.broker.authorization.request_authorizer import allowed, authorized_operations
from ottla.broker.requests.access import Access, Need
from ottla.broker.requests.api import Api, Parts
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode
from ottla.net.connection import Connection
from ottla.security.acls import CLUSTER, DESCRIBE
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2
UNKNOWN_OPERATIONS = -(2**31)


def cluster_operations(server: BrokerServices, conn: Connection, header: RequestHeader) -> int:
    """Return what a client may do with the cluster, 0 if it may not know."""
    if not allowed(server.authorizer, conn, header.api_key, DESCRIBE):
        return 0
    return authorized_operations(server.authorizer, conn, CLUSTER)


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DescribeClusterRequest,
) -> Parts:
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        response = DescribeClusterResponse(
            error_code=ErrorCode.INVALID_REQUEST if header.api_version == 0 else code,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an "
            "endpoint of type CONTROLLER"
            if known
            else f"Unsupported endpoint type {request.endpoint_type}",
        )
        return respond(header, response)
    snapshot = server.metadata.snapshot
    brokers = []
    for broker in snapshot.brokers.values():
        endpoint = snapshot.endpoint(broker.id, conn.listener)
        if endpoint is not None:
            brokers.append(
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=broker.id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                )
            )
    known_ids = {b.broker_id for b in brokers}
    wanted = request.include_cluster_authorized_operations
    response = DescribeClusterResponse(
        cluster_id=server.cluster_id,
        controller_id=snapshot.controller_id if snapshot.controller_id in known_ids else -1,
        brokers=brokers,
        cluster_authorized_operations=cluster_operations(server, conn, header)
        if wanted
        else UNKNOWN_OPERATIONS,
    )
    return respond(header, response)


DESCRIBE_CLUSTER = Api(
    DescribeClusterRequest,
    handle,
    access=Access(handler=(Need(DESCRIBE, note="to be shown authorized operations"),)),
    error=error_response(DescribeClusterResponse),
    large_response=True,
)
