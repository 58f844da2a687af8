"""Fetch: records for consumers and for followers.

Invariants: nothing is answered while a parked fetch waits, and then exactly once; records are
handed on as the log gave them, never copied. Which partitions are read and answered is for
`replication.fetching` to decide; here a request becomes a `PendingFetch`, and what was found
becomes bytes. An incremental response without partitions is not even encoded.

Kafka: `KafkaApis.handleFetchRequest`.
"""

import struct
from collections.abc import Iterable, Sequence

from ottla.broker.authorization.request_authorizer import RequestAuthorizer, allowed
from ottla.broker.quotas.client_quotas import CONSUMER_RATE
from ottla.broker.requests.access import Access, Need
from ottla.broker.requests.api import Api, ReadInSlices
from ottla.broker.requests.records.leader_hints import name_leader
from ottla.broker.requests.responses import count_no_error, hold_back, respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, InvalidTopicError, OttlaError
from ottla.model.ids import MAX_TOPIC_NAME_LENGTH, ZERO_UUID
from ottla.model.ports import Buffer
from ottla.model.protocol import (
    CONSUMER,
    FUTURE_LOCAL_REPLICA,
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from ottla.net.connection import CloseConnection, Connection, Pending
from ottla.replication.fetch_session import FetchEntry, FetchSession
from ottla.replication.fetching import READ_LOG_END, DelayedFetch, FetchParameters
from ottla.replication.inter_broker import COMPLETE_LOG_QUERY
from ottla.security.acls import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, READ, TOPIC
from ottla.wire.apis import ApiKey
from ottla.wire.codec import encode_response
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader, response_header
from ottla.wire.messages.records import FetchRequest, FetchResponse
from ottla.wire.schema import Message

WITH_TOPIC_IDS = 13
WITH_REPLICA_STATE = 15
WITH_NODE_ENDPOINTS = 16
FLEXIBLE = 12
WITH_RACK = 11
WITH_SESSIONS = 7

MOST_UNKNOWN = 10_000
"""How many more partitions than this broker has a fetch session may name. Each is looked at in one
go, and costs ten microseconds and some memory; Kafka has no limit."""

# Body of a response without partitions: throttle time, error, session id, no topics.
_NOTHING_NEW = struct.Struct(">ihiBB")
_NOTHING_NEW_OLD = struct.Struct(">ihii")


def handle(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: FetchRequest
) -> Sequence[Buffer] | Pending:
    version = header.api_version
    if version >= WITH_REPLICA_STATE:
        replica_id = request.replica_state.replica_id
        replica_epoch = request.replica_state.replica_epoch
    else:
        replica_id = request.replica_id
        replica_epoch = -1
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise OttlaError("no such isolation level", ErrorCode.UNKNOWN_SERVER_ERROR)
    replicas = server.replicas
    follows = replica_id >= 0 and _is_broker(server.authorizer, conn)
    session = replicas.sessions.open(
        request.session_id,
        request.session_epoch if version >= WITH_SESSIONS else -1,
        is_follower=follows,
        uses_topic_ids=version >= WITH_TOPIC_IDS,
        now_ms=replicas.now_ms(),
    )
    counted = server.quotas.active and replica_id < 0
    if follows:
        conn.serves_broker()
    if isinstance(session, ErrorCode):
        failure = FetchResponse(error_code=session)
        if counted and _withhold(server, conn, header, encode_response(failure, version)):
            failure.error_code = ErrorCode.NONE
        return respond(header, failure)
    session.replica_id = replica_id
    named = len(session) + sum(len(topic.partitions) for topic in request.topics)
    if named > MOST_UNKNOWN + 2 * len(replicas.partitions):
        raise CloseConnection(f"a fetch of {named} partitions; {len(replicas.partitions)} are here")
    _update(server, session, request, version)
    if server.authorizer is not None:
        _authorize(server.authorizer, conn, session)
    counts_rack = version >= WITH_RACK and replica_id < 0 and replicas.rack_aware
    most_bytes = _most_bytes(server, conn, header, request, replica_id)
    asked = FetchParameters(
        version,
        replica_id,
        replica_epoch,
        request.max_wait_ms,
        request.min_bytes,
        most_bytes,
        READ_LOG_END if replica_id != CONSUMER else request.isolation_level,
        (request.rack_id, conn.listener) if counts_rack else None,
        replica_id == FUTURE_LOCAL_REPLICA and request.rack_id == COMPLETE_LOG_QUERY,
    )
    fetch = PendingFetch(server, conn, header, session, asked, counted=counted)
    return fetch.respond() if replicas.fetches.start(fetch) else fetch


class PendingFetch(DelayedFetch):
    """The response to one request, at once or later."""

    __slots__ = ("_counted", "_header", "_server")

    def __init__(
        self,
        server: BrokerServices,
        conn: Connection,
        header: RequestHeader,
        session: FetchSession,
        asked: FetchParameters,
        *,
        counted: bool,
    ) -> None:
        """Prepare; if `counted`, what is sent counts against a quota of the client."""
        super().__init__(conn, server.replicas.fetches, session, asked)
        self._counted = counted
        self._server = server
        self._header = header

    def room(self) -> int | None:
        """Return what a consumer may be sent: less where many do not take their responses."""
        return self.connection.max_response_bytes() if self.parameters.replica_id < 0 else None

    def withholds(self) -> bool:
        server, header = self._server, self._header
        if not self._counted:
            return False
        response = _response(server, self.connection, header.api_version, self)
        body = encode_response(response, header.api_version)
        return _withhold(server, self.connection, header, body)

    def respond(self) -> Sequence[Buffer]:
        return _respond(self._server, self.connection, self._header, self)


def _authorize(authorizer: RequestAuthorizer, conn: Connection, session: FetchSession) -> None:
    """Note in a session of what its client gets nothing; of all of it, if that may have changed.

    Asked again for every request only where the client, its address or the ACLs are others than at
    the last one, and for topics that it named since.
    """
    client = (conn.principal, conn.peer[0], authorizer.acls.generation)
    entries: Iterable[FetchEntry] = session.dirty
    if session.authorized_for != client:
        session.authorized_for = client
        session.topics_allowed.clear()
        entries = list(session.entries.values())
    known = session.topics_allowed
    for entry in entries:
        topic = (
            entry.topic or ""
        )  # nameless: unknown to consumers, none of their business to others
        may = known.get(topic)
        if may is None:
            may = known[topic] = _may_fetch(authorizer, conn, session, topic)
        entry.denied = not may
        if not may:
            session.dirty.setdefault(entry, None)


def _is_broker(authorizer: RequestAuthorizer | None, conn: Connection) -> bool:
    """Return whether one that says it is a broker may be one; the denial is logged later."""
    return allowed(authorizer, conn, ApiKey.FETCH, CLUSTER_ACTION, log_denied=False)


def _may_fetch(
    authorizer: RequestAuthorizer, conn: Connection, session: FetchSession, topic: str
) -> bool:
    """Return whether a client may fetch a topic: a follower needs the cluster's (CVE-2018-1288)."""
    if session.replica_id >= 0 or session.replica_id == FUTURE_LOCAL_REPLICA:
        return authorizer.allows(conn, ApiKey.FETCH, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    return not topic or authorizer.allows(conn, ApiKey.FETCH, READ, TOPIC, topic)


def is_from_follower(header: RequestHeader, request: FetchRequest) -> bool:
    if header.api_version >= WITH_REPLICA_STATE:
        return request.replica_state.replica_id >= 0
    return request.replica_id >= 0


def _most_bytes(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: FetchRequest,
    replica_id: int,
) -> int:
    """Return how much one response may hold: what the client and we want, and its quota bears."""
    most = 2**31 - 1
    if header.api_version >= 3:
        most = min(request.max_bytes, server.replicas.fetch_max_bytes)
    quotas = server.quotas
    if replica_id < 0 and quotas.active:
        user, client = conn.principal.name, header.client_id or ""
        most = int(min(most, quotas.at_once(CONSUMER_RATE, user, client)))
    return most


def _withhold(
    server: BrokerServices, conn: Connection, header: RequestHeader, body: Sequence[Buffer]
) -> bool:
    """Count what a consumer would be sent against its quota; True if it must wait instead.

    What is not sent does not count. One that its share of the broker's time holds back gets
    nothing either (KIP-219).
    """
    quotas, user, client = server.quotas, conn.principal.name, header.client_id or ""
    size = 4 + sum(map(len, body))
    now_ms = server.world.clock.monotonic() * 1000
    wait_ms = quotas.record(CONSUMER_RATE, user, client, size, now_ms)
    hold_back(conn, header, wait_ms)
    if header.throttle_ms:
        quotas.take_back(CONSUMER_RATE, user, client, size, now_ms)
    return header.throttle_ms > 0


def _update(
    server: BrokerServices, session: FetchSession, request: FetchRequest, version: int
) -> None:
    """Take the request's partitions into the session."""
    by_id = version >= WITH_TOPIC_IDS
    for topic in request.topics:
        topic_id = bytes(topic.topic_id) if by_id else ZERO_UUID
        name = _topic_name(server, topic_id) if by_id else topic.topic
        if name is not None and len(name) > MAX_TOPIC_NAME_LENGTH:
            raise InvalidTopicError("a name that no topic can have")
        for item in topic.partitions:
            entry = session.entry(name, topic_id, item.partition)
            entry.fetch_offset = item.fetch_offset
            entry.log_start_offset = item.log_start_offset
            entry.max_bytes = item.partition_max_bytes
            entry.leader_epoch = item.current_leader_epoch
            entry.last_fetched_epoch = item.last_fetched_epoch
    for gone in request.forgotten_topics_data:
        topic_id = bytes(gone.topic_id) if by_id else ZERO_UUID
        for index in gone.partitions:
            session.forget(gone.topic, topic_id, index)
    if by_id and session.unnamed:
        for entry in session.dirty:
            if entry.topic is None:
                entry.topic = _topic_name(server, entry.topic_id)


def _topic_name(server: BrokerServices, topic_id: bytes) -> str | None:
    return server.metadata.topic_name(topic_id) or server.replicas.topic_name(topic_id)


def _respond(
    server: BrokerServices, conn: Connection, header: RequestHeader, fetch: PendingFetch
) -> list[Buffer]:
    version = header.api_version
    if not fetch.overtaken and not fetch.found.responses and version >= WITH_SESSIONS:
        count_no_error(header)
        head = response_header(header.api_key, version, header.correlation_id)
        if version >= FLEXIBLE:
            return [head + _NOTHING_NEW.pack(header.throttle_ms, 0, fetch.session_id, 1, 0)]
        return [head + _NOTHING_NEW_OLD.pack(header.throttle_ms, 0, fetch.session_id, 0)]
    return respond(header, _response(server, conn, version, fetch))


def _response(
    server: BrokerServices,
    conn: Connection,
    version: int,
    fetch: PendingFetch,
) -> FetchResponse:
    response = FetchResponse(session_id=fetch.session_id)
    if fetch.overtaken:
        response.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return response
    last: FetchResponse.FetchableTopicResponse | None = None
    for entry, data in fetch.found.responses:
        if last is None or last.topic_id != entry.topic_id or last.topic != (entry.topic or ""):
            last = FetchResponse.FetchableTopicResponse(
                topic=entry.topic or "", topic_id=entry.topic_id
            )
            response.responses.append(last)
        last.partitions.append(data)
        if (
            data.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
            and version >= WITH_NODE_ENDPOINTS
            and entry.topic is not None
        ):
            name_leader(
                server,
                conn.listener,
                (entry.topic, entry.index),
                data.current_leader,
                response.node_endpoints,
                FetchResponse.NodeEndpoint,
            )
    return response


_error_of_each = error_response(
    FetchResponse, "topics.partitions", "responses.partitions", high_watermark=-1
)


def _error(request: FetchRequest, version: int, code: int, message: str | None) -> Message:
    if version >= WITH_TOPIC_IDS:
        return FetchResponse(error_code=code)
    response = _error_of_each(request, version, code, message)
    assert isinstance(response, FetchResponse)
    response.error_code = code if version >= WITH_SESSIONS else ErrorCode.NONE
    return response


FETCH = Api(
    FetchRequest,
    handle,
    access=Access(
        handler=(
            Need(READ, TOPIC, "topic", "a consumer fetches"),
            Need(CLUSTER_ACTION, note="a follower fetches; without it TOPIC_AUTHORIZATION_FAILED"),
        )
    ),
    error=_error,
    large=ReadInSlices(),
    is_from_broker=is_from_follower,
    large_response=True,
)
