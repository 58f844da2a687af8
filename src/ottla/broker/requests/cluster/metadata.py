"""Metadata: brokers, controller, topics; and topics that come into being by being asked for.

Invariants: a request about known topics is answered at once from encoded blobs; only one that
creates topics waits. Kafka: `KafkaApis.handleTopicMetadataRequest` and `AutoTopicCreationManager`.
"""

from collections.abc import Sequence
from types import CoroutineType
from typing import NamedTuple, cast

from ottla.broker.authorization.request_authorizer import allowed, authorized_operations
from ottla.broker.metadata.metadata_blobs import (
    EncodedTopic,
    assemble,
    describe_topic,
    encode_topic,
    is_internal,
)
from ottla.broker.requests.access import Access, Need
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import (
    ELEMENT_BYTES,
    Steps,
    respond,
    respond_in_steps,
    respond_with_body,
)
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, InvalidRequestError
from ottla.model.ids import ZERO_UUID, topic_name_problem
from ottla.net.connection import CloseConnection, Connection
from ottla.security.acls import CLUSTER, CREATE, DESCRIBE, TOPIC
from ottla.wire.apis import ApiKey
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from ottla.wire.portions import in_portions

FIRST_VERSION_BY_ID = 12
UNKNOWN_OPERATIONS = -(2**31)


PATIENCE_S = 1.0
"""How long a client waits for a broker that was just started, before it is sent elsewhere."""


BROKERS, CONTROLLERS = 1, 2


def cluster_operations(server: BrokerServices, conn: Connection, header: RequestHeader) -> int:
    """Return what a client may do with the cluster, 0 if it may not know."""
    if not allowed(server.authorizer, conn, header.api_key, DESCRIBE):
        return 0
    return authorized_operations(server.authorizer, conn, CLUSTER)


def describe_cluster(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: DescribeClusterRequest,
) -> Parts:
    """Return the live brokers of the asking client's listener, and the controller.

    Kafka: `KafkaApis.handleDescribeCluster` and `AuthHelper.computeDescribeClusterResponse`
    (KIP-700, KIP-919).
    """
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
    brokers = [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
        )
        for broker, endpoint in snapshot.addresses(conn.listener)
    ]
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
    describe_cluster,
    access=Access(handler=(Need(DESCRIBE, note="to be shown authorized operations"),)),
    error=error_response(DescribeClusterResponse),
    large_response=True,
)


class _Question(NamedTuple):
    """What is asked for: names, ids that name nothing, and what has to be created first.

    Only of names that the client may know; of the others their part of the response.
    """

    names: list[str]
    unknown_ids: list[bytes]
    missing: list[str]
    creates: bool
    denied: list[MetadataResponse.MetadataResponseTopic]


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: MetadataRequest,
) -> Parts | Later:
    if server.metadata.ready:
        question = _question(server, conn, header, request)
        if not question.creates:
            errors = _reasons(question.missing)
            steps = _response(server, conn, header, request, question, errors)
            return respond_in_steps(server, conn, header, steps)
    return _wait(server, conn, header, request)


async def _wait(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: MetadataRequest
) -> Parts:
    """Respond once a controller has sent us the cluster, and missing topics were created.

    A JVM broker that has received no UpdateMetadata lists no brokers, and one that was only sent
    the live brokers calls every topic unknown, which some clients take for the truth; ours waits a
    little and then sends the client elsewhere.
    """
    if not await server.metadata.wait_ready(PATIENCE_S):
        raise CloseConnection(
            "this broker has got no metadata of the cluster from a controller yet"
        )
    question = _question(server, conn, header, request)
    if question.creates:
        charge = server.mutation_quotas.quota(conn.principal.name, header).charge
        errors = await server.topic_creation.auto_create(question.missing, charge)
    else:
        errors = _reasons(question.missing)
    steps = _response(server, conn, header, request, question, errors)
    outcome = respond_in_steps(server, conn, header, steps)
    return await outcome if isinstance(outcome, CoroutineType) else cast("Parts", outcome)


def _question(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: MetadataRequest
) -> _Question:
    version, asked = header.api_version, request.topics
    names, unknown_ids = _asked_names(server, request, version)
    if asked is None or (version == 0 and not asked):
        every = list(server.metadata.snapshot.topics)
        names = _known_to(server, conn, every, log_denied=False)
        return _Question(names, unknown_ids, [], creates=False, denied=[])
    denied: list[MetadataResponse.MetadataResponseTopic] = []
    if server.authorizer is not None:
        known = dict.fromkeys(_known_to(server, conn, names, log_denied=True))
        by_id = any(bytes(topic.topic_id) != ZERO_UUID for topic in asked)
        denied = [_denied(server, name, by_id=by_id) for name in names if name not in known]
        names = list(known)
    missing = [n for n in names if not server.metadata.contains(n)]
    may_create = request.allow_auto_topic_creation and server.config.flag(
        "auto.create.topics.enable"
    )
    if may_create and missing and server.authorizer is not None:
        refused = set(missing).difference(_creatable(server, conn, missing))
        missing = [n for n in missing if n not in refused]
        names = [n for n in names if n not in refused]
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        denied += [_failed(name, ZERO_UUID, code) for name in sorted(refused)]
    creates = bool(missing) and may_create
    return _Question(names, unknown_ids, missing, creates=creates, denied=denied)


def _known_to(
    server: BrokerServices, conn: Connection, names: list[str], *, log_denied: bool
) -> list[str]:
    """Return those of the topics that the client may know of."""
    authorizer, key = server.authorizer, ApiKey.METADATA
    if authorizer is None:
        return names
    return [
        name
        for name in names
        if authorizer.allows(conn, key, DESCRIBE, TOPIC, name, log_denied=log_denied)
    ]


def _creatable(server: BrokerServices, conn: Connection, names: list[str]) -> list[str]:
    """Return those of the topics that the client may create by asking for them."""
    authorizer, key = server.authorizer, ApiKey.METADATA
    if allowed(authorizer, conn, key, CREATE, log_denied=False):
        return names
    return [n for n in names if allowed(authorizer, conn, key, CREATE, TOPIC, n)]


def _denied(
    server: BrokerServices, name: str, *, by_id: bool
) -> MetadataResponse.MetadataResponseTopic:
    """Return what the client gets of a topic that it may not know of: what it knew already."""
    state = server.metadata.snapshot.topics.get(name) if by_id else None
    return MetadataResponse.MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=None if by_id else name,
        topic_id=ZERO_UUID if state is None else state.topic_id,
    )


def _reasons(missing: Sequence[str]) -> dict[str, ErrorCode]:
    return {
        name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_name_problem(name) is None
        else ErrorCode.INVALID_TOPIC_EXCEPTION
        for name in missing
    }


def _asked_names(
    server: BrokerServices, request: MetadataRequest, version: int
) -> tuple[list[str], list[bytes]]:
    """Return the names asked for, each once, and the ids that name nothing we know."""
    names: dict[str, None] = {}
    by_id: dict[str, None] = {}
    unknown: dict[bytes, None] = {}
    for topic in request.topics or ():
        topic_id = bytes(topic.topic_id)
        if version < FIRST_VERSION_BY_ID:
            if topic.name is None:
                raise InvalidRequestError(f"Topic name can not be null for version {version}")
            if topic_id != ZERO_UUID:
                raise InvalidRequestError(
                    f"Topic IDs are not supported in requests for version {version}"
                )
        if topic_id != ZERO_UUID:
            name = server.metadata.topic_name(topic_id)
            if name is None:
                unknown[topic_id] = None
            else:
                by_id[name] = None
        elif topic.name is not None:
            names[topic.name] = None
    # One id in the request and the JVM looks at ids only.
    return list(by_id if by_id or unknown else names), list(unknown)


def _failed(
    name: str | None, topic_id: bytes, error: int
) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id,
        is_internal=name is not None and is_internal(name),
    )


def _response(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: MetadataRequest,
    question: _Question,
    errors: dict[str, ErrorCode],
) -> Steps:
    version = header.api_version
    listener = conn.listener
    blobs = [
        encode_topic(_failed(None, i, ErrorCode.UNKNOWN_TOPIC_ID), version)
        for i in question.unknown_ids
    ]
    blobs += [encode_topic(topic, version) for topic in question.denied]
    with_operations = version >= 8 and request.include_topic_authorized_operations
    for name in question.names:
        blob = None
        if name not in errors:
            blob = (
                _with_operations(server, conn, name, version)
                if with_operations
                else server.blobs.topic(name, listener, version)
            )
        if blob is None:
            code = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            failed = _failed(name, ZERO_UUID, code)
            if with_operations:
                failed.topic_authorized_operations = authorized_operations(
                    server.authorizer, conn, TOPIC, name
                )
            blob = encode_topic(failed, version)
        blobs.append(blob)
        yield ELEMENT_BYTES + len(blob.data)
    head = _head(server, conn, header, request)
    head.throttle_time_ms = header.throttle_ms
    if header.errors is not None:
        tally = header.errors.tally(header.api_key)
        for topic in blobs:
            for error, count in topic.errors:
                tally[error] += count
    return respond_with_body(header, assemble(head, version, blobs))


def _with_operations(
    server: BrokerServices, conn: Connection, name: str, version: int
) -> EncodedTopic | None:
    snapshot = server.metadata.snapshot
    state = snapshot.topics.get(name)
    if state is None:
        return None
    topic = describe_topic(snapshot, state, conn.listener, version)
    topic.topic_authorized_operations = authorized_operations(server.authorizer, conn, TOPIC, name)
    return encode_topic(topic, version)


def _head(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: MetadataRequest
) -> MetadataResponse:
    """Return the response without its topics."""
    snapshot = server.metadata.snapshot
    brokers = [
        MetadataResponse.MetadataResponseBroker(
            node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
        )
        for broker, endpoint in snapshot.addresses(conn.listener)
    ]
    wanted = 8 <= header.api_version <= 10 and request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=brokers,
        cluster_id=server.cluster_id,
        controller_id=snapshot.controller_id,
        cluster_authorized_operations=cluster_operations(server, conn, header)
        if wanted
        else UNKNOWN_OPERATIONS,
    )


def _known_by(topic: MetadataRequest.MetadataRequestTopic) -> object:
    """Return what a topic is looked for by: its id, if there is one."""
    return topic.topic_id if topic.topic_id != ZERO_UUID else topic.name


def _error(
    request: MetadataRequest, _version: int, code: int, _message: str | None
) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponse.MetadataResponseTopic(
                error_code=code, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in request.topics or ()
        ]
    )


METADATA = Api(
    MetadataRequest,
    handle,
    access=Access(
        handler=(
            Need(DESCRIBE, TOPIC, "name"),
            Need(CREATE, note="a topic is created by asking for it, or:"),
            Need(CREATE, TOPIC, "name", "a topic is created by asking for it"),
            Need(DESCRIBE, note="to be shown authorized operations of the cluster"),
        )
    ),
    error=_error,
    large=in_portions("topics", "topics", once=_known_by),
    large_response=True,
)
