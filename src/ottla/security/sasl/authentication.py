"""Authentication: what a SASL listener does with each frame of a connection, and until when.

Invariants: before it is complete nothing reaches a handler but ApiVersions, once; after a failure
nothing does; a session past its lifetime gets nothing but a new handshake (KIP-368);
reauthentication changes neither mechanism nor principal. A decider: time is an argument, exchanges
come from `SaslPolicy`. Kafka: `SaslServerAuthenticator`, whose states and texts these are, and
`KafkaChannel`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from struct import Struct

from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ports import Buffer
from ottla.security.principals import ANONYMOUS, Principal
from ottla.security.sasl.exchange import (
    AuthenticationRefusedError,
    Identity,
    InvalidCredentialsError,
    ServerExchange,
)
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode_request, encode_response
from ottla.wire.headers import RequestHeader, decode_request_header, response_header
from ottla.wire.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

_PREFIX = Struct(">hhi")
_HANDSHAKE, _AUTHENTICATE = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE
_KEYS = frozenset(map(int, ApiKey))
LEAST_REAUTHENTICATION_S = 1.0
"""A connection that authenticates again sooner is refused."""


class State(Enum):
    """Kafka's states. INITIAL: nothing came yet."""

    INITIAL = auto()
    HANDSHAKE_OR_VERSIONS_REQUEST = auto()
    HANDSHAKE_REQUEST = auto()
    AUTHENTICATE = auto()
    REAUTH_BAD_MECHANISM = auto()
    COMPLETE = auto()
    FAILED = auto()


_BEFORE_HANDSHAKE = (
    State.INITIAL,
    State.HANDSHAKE_OR_VERSIONS_REQUEST,
    State.HANDSHAKE_REQUEST,
)


@dataclass(frozen=True, slots=True)
class Forward:
    """The frame is for the router."""


@dataclass(frozen=True, slots=True)
class Respond:
    """Send this. `authenticated`: and the connection is the identity's from now on."""

    parts: Sequence[Buffer]
    authenticated: Identity | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Send this, if anything, after the delay of failed authentications, then close."""

    reason: str
    parts: Sequence[Buffer] | None = None


@dataclass(frozen=True, slots=True)
class RefuseRequest:
    """Send the error response of the frame's own API after the delay, then close."""

    error: OttlaError


@dataclass(frozen=True, slots=True)
class Close:
    """Close at once, without a response."""

    reason: str


Outcome = Forward | Respond | Refuse | RefuseRequest | Close
FORWARD = Forward()


@dataclass(frozen=True, slots=True)
class SaslPolicy:
    """How a listener authenticates: mechanisms in the order of the settings."""

    exchanges: Mapping[str, Callable[[], ServerExchange]]
    max_reauth_ms: Mapping[str, int]
    """connections.max.reauth.ms by mechanism; 0: sessions do not end"""
    max_receive_bytes: int
    deadline_s: float
    """within which a connection must be authenticated (ours)"""

    @property
    def mechanisms(self) -> list[str]:
        return list(self.exchanges)


class Authentication:
    """One connection's. `principal` is ANONYMOUS until it is complete."""

    __slots__ = (
        "_exchange",
        "_last_reauthentication_s",
        "_mechanism",
        "_policy",
        "_previous_mechanism",
        "_with_headers",
        "expires_s",
        "identity",
        "since_s",
        "state",
    )

    def __init__(self, policy: SaslPolicy, now_s: float) -> None:
        self.state = State.INITIAL
        self.identity: Identity | None = None
        """whom the last completed authentication authenticated"""
        self.expires_s: float | None = None
        """when the session ends (monotonic clock); None: never"""
        self._policy = policy
        self.since_s = now_s
        """from when on the time to authenticate counts"""
        self._mechanism = ""
        self._previous_mechanism = ""
        self._exchange: ServerExchange | None = None
        self._with_headers = False
        self._last_reauthentication_s: float | None = None

    @property
    def principal(self) -> Principal:
        return ANONYMOUS if self.identity is None else self.identity.principal

    def overdue(self, now_s: float) -> str | None:
        """Return why the connection must be closed, or None."""
        if self.state is State.COMPLETE or now_s - self.since_s < self._policy.deadline_s:
            return None
        return f"not authenticated within {self._policy.deadline_s:g} s"

    def versions_listed(self) -> None:
        """Note that ApiVersions was answered without an error: a handshake must come next."""
        if self.state is State.HANDSHAKE_OR_VERSIONS_REQUEST:
            self.state = State.HANDSHAKE_REQUEST

    def receive(self, frame: memoryview, now_s: float, now_ms: int) -> Outcome:
        """Decide about a frame. WireError for one that is no request where one must come."""
        if self.state is State.COMPLETE:
            key = int.from_bytes(frame[:2], "big", signed=True)
            if key != _HANDSHAKE or not self._begin_reauthentication(now_s):
                if self.expires_s is not None and now_s > self.expires_s:
                    self.state = State.FAILED
                    return Close("the session is past its lifetime (connections.max.reauth.ms)")
                return FORWARD
            return self._handshake(frame)
        if self.state in _BEFORE_HANDSHAKE:
            return self._before_handshake(frame)
        if self.state is State.AUTHENTICATE:
            return self._authenticate(frame, now_s, now_ms)
        if self.state is State.REAUTH_BAD_MECHANISM:
            self.state = State.FAILED
            return Refuse(
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self._previous_mechanism}'"
            )
        return Close("a frame after a failed authentication")

    # Handshake.

    def _before_handshake(self, frame: memoryview) -> Outcome:
        if len(frame) < _PREFIX.size:
            return self._no_request()
        key, _version, _ = _PREFIX.unpack_from(frame)
        if key not in _KEYS:
            return self._no_request()
        if self.state is State.INITIAL:
            self.state = State.HANDSHAKE_OR_VERSIONS_REQUEST
        if key == _HANDSHAKE:
            return self._handshake(frame)
        if key != ApiKey.API_VERSIONS:
            self.state = State.FAILED
            return Refuse(
                f"Unexpected Kafka request of type {ApiKey(key).name} during SASL handshake."
            )
        if self.state is State.HANDSHAKE_REQUEST:
            self.state = State.FAILED
            return Close("ApiVersions for the second time before authentication")
        return FORWARD

    def _no_request(self) -> Outcome:
        """Refuse what is no Kafka request: to Kafka it may be a token of GSSAPI, without header."""
        initial, self.state = self.state is State.INITIAL, State.FAILED
        if initial:
            return Refuse("the first frame is no Kafka request, and GSSAPI is not served")
        return Close("a frame that is no Kafka request before authentication")

    def _handshake(self, frame: memoryview) -> Outcome:
        state, self.state = self.state, State.FAILED  # whatever is raised below
        header, pos = decode_request_header(frame)
        version = header.api_version
        if not 0 <= version <= SaslHandshakeRequest.MAX_VERSION:
            return Close(f"SaslHandshake {version} is not served")
        request: SaslHandshakeRequest = decode_request(
            _HANDSHAKE, version, frame, pos, rest_ok=True
        )
        mechanisms = self._policy.mechanisms
        wanted = request.mechanism
        if wanted not in self._policy.exchanges:
            if state is State.COMPLETE:
                return Refuse(f"Unsupported SASL mechanism {wanted[:50]} during re-authentication")
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            response = SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)
            return Refuse(f"Unsupported SASL mechanism {wanted[:50]}", _encode(header, response))
        previous = self._mechanism
        self._mechanism = wanted
        self._with_headers = version >= 1
        if state is State.COMPLETE and wanted != previous:
            self._previous_mechanism = previous
            self.state = State.REAUTH_BAD_MECHANISM
        else:
            self._exchange = self._policy.exchanges[wanted]()
            self.state = State.AUTHENTICATE
        return Respond(_encode(header, SaslHandshakeResponse(mechanisms=mechanisms)))

    def _begin_reauthentication(self, now_s: float) -> bool:
        """Return whether a handshake may begin; otherwise it is a request in the wrong state."""
        last = self._last_reauthentication_s
        if self.expires_s is None or (last is not None and now_s - last < LEAST_REAUTHENTICATION_S):
            return False
        self._last_reauthentication_s = self.since_s = now_s
        return True

    # Tokens.

    def _authenticate(self, frame: memoryview, now_s: float, now_ms: int) -> Outcome:
        self.state = State.FAILED  # unless it ends well
        if not self._with_headers:
            return self._raw_token(frame, now_s, now_ms)
        if len(frame) < _PREFIX.size:
            return Close("a frame that is no Kafka request during authentication")
        key, version, _ = _PREFIX.unpack_from(frame)
        if key != _AUTHENTICATE:
            if key not in _KEYS:
                return Close(f"api key {key} during authentication")
            return RefuseRequest(
                OttlaError(
                    f"Unexpected Kafka request of type {ApiKey(key).name} during SASL "
                    "authentication.",
                    ErrorCode.ILLEGAL_SASL_STATE,
                )
            )
        if not 0 <= version <= SaslAuthenticateRequest.MAX_VERSION:
            return Close(f"SaslAuthenticate {version} is not served")
        header, pos = decode_request_header(frame)
        request: SaslAuthenticateRequest = decode_request(key, version, frame, pos, rest_ok=True)
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        try:
            token, done = self._step(bytes(request.auth_bytes), now_ms)
        except InvalidCredentialsError as error:
            response = SaslAuthenticateResponse(error_code=code, error_message=self._no_details())
            return Refuse(f"{self._no_details()}: {error}", _encode(header, response))
        except AuthenticationRefusedError as error:
            response = SaslAuthenticateResponse(error_code=code, error_message=str(error))
            return Refuse(str(error), _encode(header, response))
        lifetime_ms = 0 if done is None else self._complete(done, now_s, now_ms)
        response = SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)
        return Respond(_encode(header, response), done)

    def _raw_token(self, frame: memoryview, now_s: float, now_ms: int) -> Outcome:
        """Take a token without a request around it, as after SaslHandshake 0."""
        try:
            token, done = self._step(bytes(frame), now_ms)
        except AuthenticationRefusedError as error:
            return Refuse(f"{self._no_details()}: {error}")
        if done is not None:
            self._complete(done, now_s, now_ms)
        return Respond([token], done)

    def _step(self, token: bytes, now_ms: int) -> tuple[bytes, Identity | None]:
        exchange, before = self._exchange, self.identity
        assert exchange is not None
        response = exchange.respond(token, now_ms)
        done = exchange.identity
        if done is not None and before is not None and done.principal != before.principal:
            raise AuthenticationRefusedError(
                "Cannot change principals during re-authentication from "
                f"{before.principal.type}.{before.principal.name}: "
                f"{done.principal.type}.{done.principal.name}"
            )
        if done is None:
            self.state = State.AUTHENTICATE
        return response, done

    def _complete(self, done: Identity, now_s: float, now_ms: int) -> int:
        """Begin a session; return its lifetime in ms, 0 if it does not end."""
        self.state = State.COMPLETE
        self.identity = done
        self._exchange = None
        most_ms = self._policy.max_reauth_ms.get(self._mechanism, 0)
        bounds = [most_ms] if most_ms > 0 else []
        if done.expires_ms is not None:
            bounds.append(done.expires_ms - now_ms)
        if not bounds:
            self.expires_s = None
            return 0
        lifetime_ms = max(0, min(bounds))
        self.expires_s = now_s + lifetime_ms / 1000
        return lifetime_ms

    def _no_details(self) -> str:
        again = "authentication" if self.identity is None else "re-authentication"
        return (
            f"Authentication failed during {again} due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )


def _encode(
    header: RequestHeader, response: SaslHandshakeResponse | SaslAuthenticateResponse
) -> list[Buffer]:
    version = header.api_version
    head = response_header(header.api_key, version, header.correlation_id)
    return [head, *encode_response(response, version)]
