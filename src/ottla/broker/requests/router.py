"""Router: from a frame to its handler and back.

Who may call: `broker.Broker`, which gives `Router.dispatch` to the network servers. Invariants:
what is in the table is what ApiVersions lists; every OttlaError of a handler becomes a response
here or in `answers.answer_later`, once; a request we do not know closes its connection, only an
unknown version of ApiVersions is answered (version 0, error 35). Any other exception is our bug:
it is logged whole and costs one connection, never the server. A request between brokers is
answered with UNKNOWN_SERVER_ERROR instead: its sender would send it again for ever.
Kafka: `KafkaApis.handle` and `RequestContext`.
"""

import asyncio
import logging
import struct
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.broker.metrics.request_times import MASK, RequestTimes
from ottla.broker.quotas.client_quotas import ANONYMOUS, PRODUCER_RATE, REQUEST_PERCENTAGE
from ottla.broker.requests.answers import answer_later, error_answer, hold_back
from ottla.broker.requests.cluster import api_versions
from ottla.broker.requests.control import replica_control, update_metadata
from ottla.broker.requests.large_requests import NOTICEABLE_BYTES, LargeRequests
from ottla.broker.requests.records.fetch import replica_of
from ottla.broker.services import BrokerServices
from ottla.model.errors import OttlaError, WireError
from ottla.model.ports import Buffer
from ottla.model.steps import Driven
from ottla.net.connection import CloseConnection, Connection, Pending
from ottla.wire.codec import APIS, decode_request, decode_request_in_slices
from ottla.wire.headers import RequestHeader, decode_request_header

logger = logging.getLogger(__name__)

PRODUCE = 0
FETCH = 1
API_VERSIONS = 18
BETWEEN_BROKERS = frozenset((4, 5, 6, 7, 27, 56, 67))
"""what no quota of a client holds back"""
LARGE_FRAME_BYTES = 32 * 1024
"""From here on a frame is read in slices: about a thousand partitions."""
_PREFIX = struct.Struct(">hhi")

Outcome = Sequence[Buffer] | Pending | None
Handle = Callable[[BrokerServices, Connection, RequestHeader, Any], Outcome]
Slowly = Callable[[BrokerServices, RequestHeader, Any], Coroutine[Any, Any, Sequence[Buffer]]]
"""Handles one request in slices, so that a large one stalls nobody."""


SLOWLY: Mapping[int, Slowly] = {
    4: replica_control.lead_and_follow,
    5: replica_control.stop,
    6: update_metadata.take_in,
}
"""What grows with the number of partitions."""


@dataclass(frozen=True, slots=True)
class Route:
    """One API as served: its handler, the one for large requests, and the versions it takes."""

    handle: Handle
    slowly: Slowly | None
    min_version: int
    max_version: int


class Router:
    """The table of routes of one server."""

    def __init__(
        self,
        server: BrokerServices,
        handlers: Mapping[int, Handle],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._routes = {
            key: Route(handle, SLOWLY.get(key), APIS[key].min_version, APIS[key].max_version)
            for key, handle in sorted(handlers.items())
        }
        self.times = RequestTimes(monotonic)
        self._large = LargeRequests(server, monotonic)
        self._counts = self.times.of
        server.served = tuple(
            (key, route.min_version, route.max_version) for key, route in self._routes.items()
        )

    def dispatch(self, conn: Connection, frame: memoryview) -> Outcome:
        """Handle one frame; CloseConnection if it deserves no answer."""
        if len(frame) < _PREFIX.size:
            raise WireError(f"a frame of {len(frame)} bytes holds no request header")
        api_key, version, correlation_id = _PREFIX.unpack_from(frame)
        route = self._routes.get(api_key)
        if route is None:
            raise CloseConnection(f"api key {api_key} (version {version}) is not served")
        if not route.min_version <= version <= route.max_version:
            if api_key == API_VERSIONS:
                return api_versions.unsupported(RequestHeader(api_key, 0, correlation_id, None))
            raise CloseConnection(
                f"api key {api_key} is served in versions {route.min_version} to "
                f"{route.max_version}, not {version}"
            )
        count = self._counts[api_key]
        self._counts[api_key] = count + 1
        if count & MASK:
            return self._handle(route, conn, frame)
        started_s = self.times.begin()
        outcome = self._handle(route, conn, frame)
        self.times.end(api_key, started_s, outcome)
        return outcome

    def _handle(self, route: Route, conn: Connection, frame: memoryview) -> Outcome:
        """Read a frame and hand it to its handler."""
        header, pos = decode_request_header(frame)
        size = len(frame)
        if size < NOTICEABLE_BYTES or header.api_key == PRODUCE:
            request = decode_request(header.api_key, header.api_version, frame, pos, rest_ok=True)
            return self._serve(route, conn, header, request, size)
        return self._handle_noticeable(route, conn, header, frame, pos)

    def _handle_noticeable(
        self, route: Route, conn: Connection, header: RequestHeader, frame: memoryview, pos: int
    ) -> Outcome:
        """Do so for a frame that may hold very many elements."""
        size, key, large = len(frame), header.api_key, self._large

        def serve(conn: Connection, header: RequestHeader, request: Any) -> Outcome:
            return self._serve(route, conn, header, request, size)

        if size >= LARGE_FRAME_BYTES:
            if route.slowly is not None:
                work = self._in_slices(route.slowly, header, frame, pos)
                return answer_later(self._server, conn, header, None, work)
            if key == FETCH:
                return large.read_and_serve(conn, header, frame, pos, serve)
            if large.is_read_in_slices(key, header.api_version):
                return large.read_and_handle(conn, header, frame, pos, serve)
        request = decode_request(key, header.api_version, frame, pos, rest_ok=True)
        shape = large.shape(header, request)
        if shape is not None:
            return large.handle(conn, header, request, shape, serve)
        return self._serve(route, conn, header, request, size)

    def _serve(
        self, route: Route, conn: Connection, header: RequestHeader, request: Any, size: int
    ) -> Outcome:
        """Hand a request to its handler."""
        try:
            if self._server.quotas.active:
                return self._counted(route, conn, header, request, size)
            return route.handle(self._server, conn, header, request)
        except (CloseConnection, WireError):
            raise
        except OttlaError as error:
            return error_answer(header, request, error)
        except Exception as error:
            logger.exception(
                "handler failed api_key=%d version=%d peer=%s",
                header.api_key, header.api_version, conn.peer,
            )  # fmt: skip
            return _failed(header, request, error)

    def _counted(
        self, route: Route, conn: Connection, header: RequestHeader, request: Any, size: int
    ) -> Outcome:
        """Handle a request and count it against its client's quotas; brokers have none.

        What the handling took is known too late for this answer: it holds the next one back.
        """
        server, key = self._server, header.api_key
        quotas, clock, client = server.quotas, server.world.clock, header.client_id or ""
        if key in BETWEEN_BROKERS or (key == FETCH and replica_of(header, request) >= 0):
            return route.handle(server, conn, header, request)
        started_s = clock.monotonic()
        wait_ms = quotas.record(REQUEST_PERCENTAGE, ANONYMOUS, client, 0, started_s * 1000)
        if key == PRODUCE:
            over_ms = quotas.record(PRODUCER_RATE, ANONYMOUS, client, size, started_s * 1000)
            wait_ms = max(wait_ms, over_ms)
        hold_back(conn, header, wait_ms)
        try:
            return route.handle(server, conn, header, request)
        finally:
            ended_s = clock.monotonic()
            percent = (ended_s - started_s) * 100
            quotas.record(REQUEST_PERCENTAGE, ANONYMOUS, client, percent, ended_s * 1000)

    async def _in_slices(
        self, slowly: Slowly, header: RequestHeader, frame: memoryview, pos: int
    ) -> Sequence[Buffer]:
        """Read a large frame and handle it, and let others run in between."""
        steps = Driven(
            decode_request_in_slices(header.api_key, header.api_version, frame, pos, rest_ok=True)
        )
        try:
            for _ in steps:
                await asyncio.sleep(0)
        except WireError as error:
            raise CloseConnection(str(error)) from error
        request = steps.result
        try:
            return await slowly(self._server, header, request)
        except OttlaError as error:
            return error_answer(header, request, error)
        except Exception as error:
            logger.exception("handler failed api_key=%d in slices", header.api_key)
            return _failed(header, request, error)


def _failed(header: RequestHeader, request: Any, error: Exception) -> Sequence[Buffer]:
    """Answer a request whose handler has a bug, or raise CloseConnection."""
    if header.api_key in BETWEEN_BROKERS:
        return error_answer(header, request, OttlaError(f"our error: {error!r}"))
    raise CloseConnection(f"our error: {error!r}") from error
