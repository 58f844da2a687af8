"""Router: from a frame to its handler and back.

Invariants: what is in the table is what ApiVersions lists; every OttlaError of a handler becomes a
response here or in `responses.respond_later`, once; a request we do not know closes its connection,
only an unknown version of ApiVersions is answered (version 0, error 35). Any other exception is our
bug: it is logged whole and costs one connection, never the server. A request between brokers is
answered with UNKNOWN_SERVER_ERROR instead: its sender would retry it endlessly. Kafka:
`KafkaApis.handle` and `RequestContext`.
"""

import logging
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from types import CoroutineType
from typing import Any

from ottla.broker.authorization.request_authorizer import RequestAuthorizer, allowed
from ottla.broker.quotas.client_quotas import (
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
)
from ottla.broker.requests.api import (
    AnyApi,
    HandleInSlices,
    InSlices,
    Later,
    Parts,
    Quota,
    ReadInSlices,
    Response,
)
from ottla.broker.requests.error_counts import ErrorCounts
from ottla.broker.requests.guards import guarded, guarded_in_slices
from ottla.broker.requests.large_requests import NOTICEABLE_BYTES, LargeRequests
from ottla.broker.requests.request_log import RequestLog
from ottla.broker.requests.request_times import MASK, VERSION_BITS, RequestTimes
from ottla.broker.requests.responses import error_response, hold_back, respond_later
from ottla.broker.services import BrokerServices
from ottla.model.errors import OttlaError, WireError
from ottla.model.steps import Driven
from ottla.model.time_slices import yield_to_loop
from ottla.net.connection import CloseConnection, Connection
from ottla.net.limits import FrameRules
from ottla.security.acls import CLUSTER_ACTION
from ottla.security.principals import ANONYMOUS
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode_request, decode_request_in_slices
from ottla.wire.headers import RequestHeader, decode_request_header
from ottla.wire.portions import InPortions, is_to_be_cut
from ottla.wire.schema import Message

logger = logging.getLogger(__name__)

BEFORE_ANY_REQUEST = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
OF_FOLLOWERS = (ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH)
OF_BROKERS = 4
"""Versions of AddPartitionsToTxn from here on are sent by brokers."""
MOST_TRIED_BYTES = 262_144
LARGE_FRAME_BYTES = 32 * 1024
"""From here on a frame is read in slices: about a thousand partitions."""
_PREFIX = struct.Struct(">hhi")


class _Route:
    """An entry, with what every request asks of it at hand."""

    __slots__ = ("api", "handle", "large", "max_version", "min_version")

    def __init__(self, api: AnyApi, authorizer: RequestAuthorizer | None = None) -> None:
        self.api = api
        self.handle = guarded(api, authorizer)
        self.large = api.large
        if isinstance(api.large, InSlices):
            self.large = InSlices(guarded_in_slices(api, api.large.handle, authorizer))
        self.min_version = api.min_version
        self.max_version = api.max_version


class Router:
    """The table of APIs of one server."""

    def __init__(
        self,
        server: BrokerServices,
        apis: Iterable[AnyApi],
        monotonic: Callable[[], float] = time.monotonic,
        log: RequestLog | None = None,
    ) -> None:
        self._server = server
        routes = {int(api.key): _Route(api, server.authorizer) for api in apis}
        self._routes = dict(sorted(routes.items()))
        self.frame_rules = _frame_rules([route.api for route in self._routes.values()])
        self.times = RequestTimes(monotonic)
        self.times.each = log
        self.errors = ErrorCounts()
        self._mask = MASK if log is None else 0
        self._large = LargeRequests(server, monotonic)
        self._counts = self.times.of
        server.served = tuple(
            (key, route.min_version, route.max_version) for key, route in self._routes.items()
        )

    def dispatch(self, conn: Connection, frame: memoryview) -> Response:
        """Handle one frame; CloseConnection if it deserves no response."""
        if len(frame) < _PREFIX.size:
            raise WireError(f"a frame of {len(frame)} bytes holds no request header")
        api_key, version, correlation_id = _PREFIX.unpack_from(frame)
        route = self._routes.get(api_key)
        if route is None:
            raise CloseConnection(f"api key {api_key} (version {version}) is not served")
        if not route.min_version <= version <= route.max_version:
            respond_unsupported = route.api.respond_unsupported
            if respond_unsupported is not None:
                oldest = RequestHeader(api_key, 0, correlation_id, None, errors=self.errors)
                return respond_unsupported(oldest)
            raise CloseConnection(
                f"api key {api_key} is served in versions {route.min_version} to "
                f"{route.max_version}, not {version}"
            )
        slot = api_key << VERSION_BITS | version
        count = self._counts[slot]
        self._counts[slot] = count + 1
        if count & self._mask:
            return self._handle(route, conn, frame)
        timed = self.times.begin(api_key, conn, frame)
        outcome = self._handle(route, conn, frame)
        self.times.returned(timed, conn)
        return outcome

    def error_response(self, frame: memoryview, error: OttlaError) -> Parts | None:
        """Return how a frame's API says an error; None where it has no response, or is large.

        WireError for a frame that is no request.
        """
        header, pos = decode_request_header(frame)
        header.errors = self.errors
        route = self._routes.get(header.api_key)
        if route is None:
            return None
        if not route.min_version <= header.api_version <= route.max_version:
            if route.api.respond_unsupported is None:
                return None
            oldest = RequestHeader(header.api_key, 0, header.correlation_id, header.client_id)
            oldest.errors = self.errors
            return error_response(route.api, oldest, None, error)
        if len(frame) >= NOTICEABLE_BYTES:
            return None
        request = decode_request(header.api_key, header.api_version, frame, pos, rest_ok=True)
        return error_response(route.api, header, request, error)

    def is_of_broker(self, conn: Connection, frame: memoryview) -> bool | None:
        """Return whether a broker sent a frame, by its sender and its API; None: not known yet.

        WireError for what is none.
        """
        api_key, version, _ = _PREFIX.unpack_from(frame)
        route = self._routes.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            return False
        if api_key in BEFORE_ANY_REQUEST:
            return None
        if not allowed(self._server.authorizer, conn, api_key, CLUSTER_ACTION, log_denied=False):
            return False
        return conn.principal is not ANONYMOUS or _may_be_of_broker(route.api, frame)

    def _handle(self, route: _Route, conn: Connection, frame: memoryview) -> Response:
        """Read a frame and hand it to its handler."""
        header, pos = decode_request_header(frame)
        header.errors = self.errors
        size = len(frame)
        if size < NOTICEABLE_BYTES or route.large is None:
            request = decode_request(header.api_key, header.api_version, frame, pos, rest_ok=True)
            return self._serve(route, conn, header, request, size)
        return self._handle_noticeable(route, conn, header, frame, pos)

    def _handle_noticeable(
        self,
        route: _Route,
        conn: Connection,
        header: RequestHeader,
        frame: memoryview,
        pos: int,
    ) -> Response:
        """Do so for a frame that may hold very many elements."""
        size, large, rule = len(frame), self._large, route.large

        def serve(conn: Connection, header: RequestHeader, request: Message) -> Response:
            return self._serve(route, conn, header, request, size)

        shape = rule.shape(header.api_version) if isinstance(rule, InPortions) else None
        if size >= LARGE_FRAME_BYTES:
            if isinstance(rule, InSlices):
                work = self._in_slices(route.api, rule.handle, conn, header, frame, pos)
                return respond_later(self._server, route.api, conn, header, None, work)
            if isinstance(rule, ReadInSlices):
                return large.read_and_serve(conn, header, frame, pos, serve)
            if shape is not None:
                return large.read_and_handle(route.api, conn, header, frame, pos, shape, serve)
        request = decode_request(header.api_key, header.api_version, frame, pos, rest_ok=True)
        if shape is not None and is_to_be_cut(request, shape):
            return large.handle(route.api, conn, header, request, shape, serve)
        return self._serve(route, conn, header, request, size)

    def _serve(
        self,
        route: _Route,
        conn: Connection,
        header: RequestHeader,
        request: Message,
        size: int,
    ) -> Response:
        """Hand a request to its handler."""
        outcome: Any  # Response | Later; a check of the exact type is quicker than isinstance
        try:
            if self._server.quotas.active:
                outcome = self._counted(route, conn, header, request, size)
            else:
                outcome = route.handle(self._server, conn, header, request)
            if type(outcome) is not CoroutineType:
                responded: Response = outcome
                return responded
        except (CloseConnection, WireError):
            raise
        except OttlaError as error:
            return error_response(route.api, header, request, error)
        except Exception as error:
            logger.exception(
                "handler failed api_key=%d version=%d peer=%s",
                header.api_key,
                header.api_version,
                conn.peer,
            )
            return _failed(route.api, header, request, error)
        return respond_later(self._server, route.api, conn, header, request, outcome)

    def _counted(
        self,
        route: _Route,
        conn: Connection,
        header: RequestHeader,
        request: Message,
        size: int,
    ) -> Response | Later:
        """Handle a request and count it against its client's quotas; brokers have none.

        What the handling took is known too late for this response: it holds the next one back.
        """
        server, api = self._server, route.api
        quotas, clock = server.quotas, server.world.clock
        user, client = conn.principal.name, header.client_id or ""
        from_broker = api.is_from_broker
        if api.quota is Quota.NONE or (from_broker is not None and from_broker(header, request)):
            return route.handle(server, conn, header, request)
        started_s = clock.monotonic()
        wait_ms = quotas.record(REQUEST_PERCENTAGE, user, client, 0, started_s * 1000)
        if api.quota is Quota.TIME_AND_BYTES:
            over_ms = quotas.record(PRODUCER_RATE, user, client, size, started_s * 1000)
            wait_ms = max(wait_ms, over_ms)
        hold_back(conn, header, wait_ms)
        try:
            return route.handle(server, conn, header, request)
        finally:
            ended_s = clock.monotonic()
            percent = (ended_s - started_s) * 100
            quotas.record(REQUEST_PERCENTAGE, user, client, percent, ended_s * 1000)

    async def _in_slices(
        self,
        api: AnyApi,
        handle: HandleInSlices[Any],
        conn: Connection,
        header: RequestHeader,
        frame: memoryview,
        pos: int,
    ) -> Parts:
        """Read a large frame and handle it, and let others run in between."""
        steps = Driven(
            decode_request_in_slices(header.api_key, header.api_version, frame, pos, rest_ok=True)
        )
        try:
            for _ in steps:
                await yield_to_loop()
        except WireError as error:
            raise CloseConnection(str(error)) from error
        request = steps.result
        try:
            return await handle(self._server, conn, header, request)
        except CloseConnection:
            raise
        except OttlaError as error:
            return error_response(api, header, request, error)
        except Exception as error:
            logger.exception("handler failed api_key=%d in slices", header.api_key)
            return _failed(api, header, request, error)


def _may_be_of_broker(api: AnyApi, frame: memoryview) -> bool:
    """Return whether a request looks as if a broker had sent it; WireError."""
    if api.between_brokers:
        return True
    header, pos = decode_request_header(frame)
    if api.key == ApiKey.ADD_PARTITIONS_TO_TXN:
        return header.api_version >= OF_BROKERS
    if api.key not in OF_FOLLOWERS or len(frame) > MOST_TRIED_BYTES:
        return False
    request = decode_request(header.api_key, header.api_version, frame, pos, rest_ok=True)
    return request.replica_id >= 0 or (
        api.is_from_broker is not None and api.is_from_broker(header, request)
    )


def _frame_rules(apis: Sequence[AnyApi]) -> FrameRules:
    """Return what the connections have to know of requests before they are read."""

    def keys(of: Callable[[AnyApi], bool]) -> frozenset[bytes]:
        return frozenset(int(api.key).to_bytes(2, "big") for api in apis if of(api))

    return FrameRules(
        pipelined=next(iter(keys(lambda api: api.pipelined)), b""),
        control_plane=keys(lambda api: api.control_plane),
        large_responses=keys(lambda api: api.large_response),
    )


def _failed(api: AnyApi, header: RequestHeader, request: Message, error: Exception) -> Parts:
    """Respond to a request whose handler has a bug, or raise CloseConnection."""
    if api.between_brokers:
        return error_response(api, header, request, OttlaError(f"our error: {error!r}"))
    raise CloseConnection(f"our error: {error!r}") from error
