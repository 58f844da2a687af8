"""SaslHandshake and SaslAuthenticate: the dispatch of a SASL listener, and both in a wrong state.

Invariants: what may be done when is decided by `security.sasl.authentication`; a failed
authentication is answered after connection.failed.authentication.delay.ms and then closed, so
guessing takes its time. Kafka: `KafkaApis.handleSaslHandshakeRequest`, `Selector` and
`SocketServer.processCompletedReceives`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from ottla.broker.requests.access import Access
from ottla.broker.requests.api import Api, Parts, Quota, Response
from ottla.broker.requests.responses import respond
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ports import Buffer, Clock
from ottla.net.connection import CloseConnection, Connection
from ottla.security.sasl.authentication import (
    FORWARD,
    Authentication,
    Close,
    Refuse,
    RefuseRequest,
    Respond,
    SaslPolicy,
    State,
)
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


class Requests(Protocol):
    """The router, as far as a SASL listener needs it."""

    def dispatch(self, conn: Connection, frame: memoryview) -> Response:
        """Handle a frame."""
        ...

    def error_response(self, frame: memoryview, error: OttlaError) -> Parts | None:
        """Return a small frame's error response; None for one without."""
        ...


class SaslDispatch:
    """What a SASL listener does with frames."""

    def __init__(
        self, policy: SaslPolicy, requests: Requests, clock: Clock, delay_ms: Callable[[], int]
    ) -> None:
        self._policy = policy
        self._requests = requests
        self._clock = clock
        self._delay_ms = delay_ms
        self.authenticated = 0
        self.failed = 0
        self.reauthenticated = 0
        """of `authenticated` those of sessions that go on (KIP-368)"""
        self.failed_again = 0
        """of `failed` the same"""

    def begin(self, now_s: float) -> Authentication:
        """Return the authentication of a new connection."""
        return Authentication(self._policy, now_s)

    def dispatch(self, conn: Connection, frame: memoryview) -> Response:
        """Handle a frame as far as the connection may."""
        authentication = conn.authentication
        assert authentication is not None
        if authentication.state is State.COMPLETE and authentication.expires_s is None:
            return self._requests.dispatch(conn, frame)
        clock = self._clock
        again = authentication.expires_s is not None
        outcome = authentication.receive(frame, clock.monotonic(), clock.wall_ms())
        if outcome is FORWARD:
            response = self._requests.dispatch(conn, frame)
            if authentication.state is not State.COMPLETE and _says_no_error(response):
                authentication.versions_listed()
            return response
        if isinstance(outcome, Respond):
            if outcome.authenticated is not None:
                self.authenticated += 1
                self.reauthenticated += again
                conn.authenticated(outcome.authenticated.principal)
            return outcome.parts
        self.failed += 1
        self.failed_again += again
        if isinstance(outcome, Refuse):
            return self._later(conn, outcome.reason, outcome.parts)
        if isinstance(outcome, RefuseRequest):
            parts = self._requests.error_response(frame, outcome.error)
            return self._later(conn, str(outcome.error), parts)
        assert isinstance(outcome, Close)
        raise CloseConnection(outcome.reason)

    def _later(self, conn: Connection, reason: str, parts: Parts | None) -> Response:
        pending = conn.pending(pipelined=False)

        def finish() -> None:
            if not pending.done:
                pending.complete(parts)
                conn.refuse(reason)

        asyncio.get_running_loop().call_later(self._delay_ms() / 1000, finish)
        return pending


def _says_no_error(response: Response) -> bool:
    """Return whether an ApiVersions response has no error: its code follows the correlation id."""
    if not isinstance(response, list):
        return False
    return b"".join(response)[4:6] == b"\0\0"


# On listeners without SASL, and once a connection is authenticated.


def handshake(
    server: object, conn: Connection, header: RequestHeader, request: SaslHandshakeRequest
) -> list[Buffer]:
    """Handle SaslHandshake where it does not belong."""
    return respond(header, SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def authenticate(
    server: object, conn: Connection, header: RequestHeader, request: SaslAuthenticateRequest
) -> list[Buffer]:
    """Handle SaslAuthenticate where it does not belong."""
    return respond(
        header,
        SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        ),
    )


SASL_HANDSHAKE: Api[SaslHandshakeRequest] = Api(
    SaslHandshakeRequest,
    handshake,
    access=Access(open="it is how a client shows who it is"),
    error=error_response(SaslHandshakeResponse),
    quota=Quota.TIME,
)
SASL_AUTHENTICATE: Api[SaslAuthenticateRequest] = Api(
    SaslAuthenticateRequest,
    authenticate,
    access=Access(open="it is how a client shows who it is"),
    error=error_response(SaslAuthenticateResponse, error_message=""),
)
