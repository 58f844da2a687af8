"""FindCoordinator: which broker keeps a group (or a transactional id).

Invariants: answered from the metadata cache, so it may name a broker that has just lost the
partition: that one responds with NOT_COORDINATOR. Asking creates the internal topic. Kafka:
`KafkaApis.handleFindCoordinatorRequest`.
"""

from ottla.broker.authorization.request_authorizer import allowed
from ottla.broker.requests.access import ERRORS, Access, Need
from ottla.broker.requests.access import MESSAGES as OF_DENIALS
from ottla.broker.requests.api import Api, Parts
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.cluster import Endpoint
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_LEADER
from ottla.net.connection import Connection
from ottla.security.acls import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, DESCRIBE, TRANSACTIONAL_ID
from ottla.security.acls import GROUP as OF_GROUP
from ottla.wire.error_responses import by_version, error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.portions import in_portions

FIRST_VERSION_WITH_MANY = 4
FIRST_VERSION_WITH_SHARE = 6
GROUP, TRANSACTION, SHARE = 0, 1, 2
NO_BROKER = -1
MESSAGES = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    **{ERRORS[kind]: text for kind, text in OF_DENIALS.items()},
}
_NEEDS = {
    GROUP: (DESCRIBE, OF_GROUP),
    TRANSACTION: (DESCRIBE, TRANSACTIONAL_ID),
    SHARE: (CLUSTER_ACTION, CLUSTER),
}
"""What a client needs, and of what, to find a coordinator of a kind."""


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: FindCoordinatorRequest,
) -> Parts:
    many = header.api_version >= FIRST_VERSION_WITH_MANY
    found = []
    for key in request.coordinator_keys if many else [request.key]:
        error, node_id, endpoint = _find(server, conn, header, request.key_type, key)
        found.append((key, error, node_id, endpoint.host, endpoint.port))
    if many:
        one = FindCoordinatorResponse.Coordinator
        coordinators = [
            one(key=key, node_id=node, host=host, port=port, error_code=error, error_message="")
            for key, error, node, host, port in found
        ]
        return respond(header, FindCoordinatorResponse(coordinators=coordinators))
    _, error, node, host, port = found[0]
    response = FindCoordinatorResponse(
        error_code=error,
        error_message="NONE" if error is ErrorCode.NONE else MESSAGES.get(error, error.name),
        node_id=node,
        host=host,
        port=port,
    )
    return respond(header, response)


def _find(
    server: BrokerServices, conn: Connection, header: RequestHeader, key_type: int, key: str
) -> tuple[ErrorCode, int, Endpoint]:
    nowhere = Endpoint("", NO_BROKER)
    if key_type not in (GROUP, TRANSACTION, SHARE) or (
        key_type == SHARE and header.api_version < FIRST_VERSION_WITH_SHARE
    ):
        return ErrorCode.INVALID_REQUEST, NO_BROKER, nowhere
    operation, resource_type = _NEEDS[key_type]
    name = CLUSTER_NAME if resource_type == CLUSTER else key
    if not allowed(server.authorizer, conn, header.api_key, operation, resource_type, name):
        return ERRORS[resource_type], NO_BROKER, nowhere
    unavailable = (ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_BROKER, nowhere)
    log = server.coordination.logs.get(key_type)
    if log is None:
        return unavailable
    if not server.metadata.contains(log.topic):
        charge = server.mutation_quotas.quota(conn.principal.name, header).charge
        server.coordination.create([log.topic], charge)
        return unavailable
    partition = server.metadata.partition(log.topic, log.partition_for(key))
    if partition is None or partition.leader == NO_LEADER:
        return unavailable
    endpoint = server.metadata.endpoint(partition.leader, conn.listener)
    if endpoint is None:
        return unavailable
    return ErrorCode.NONE, partition.leader, endpoint


FIND_COORDINATOR = Api(
    FindCoordinatorRequest,
    handle,
    access=Access(
        handler=(
            Need(DESCRIBE, OF_GROUP, "key", "of a group"),
            Need(DESCRIBE, TRANSACTIONAL_ID, "key", "of a transaction"),
            Need(CLUSTER_ACTION, note="of a share group"),
        )
    ),
    error=by_version(
        FIRST_VERSION_WITH_MANY,
        error_response(
            FindCoordinatorResponse,
            "coordinator_keys",
            "coordinators",
            node_id=NO_BROKER,
            port=NO_BROKER,
        ),
        error_response(FindCoordinatorResponse, node_id=NO_BROKER, host="", port=NO_BROKER),
    ),
    large=in_portions("coordinator_keys", "coordinators", since=FIRST_VERSION_WITH_MANY),
)
