"""Exchange: what every SASL mechanism is, seen from its server and from its client.

Invariants: an exchange reads no clock and draws no random numbers; one that failed or is complete
takes nothing more; secrets are in no text. Kafka: `javax.security.sasl.SaslServer` and
`SaslClient`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ottla.model.errors import ErrorCode, OttlaError
from ottla.security.principals import USER_TYPE, Principal


class AuthenticationRefusedError(OttlaError):
    """The client is not who it says; the text is sent to it (`SaslAuthenticationException`)."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class InvalidCredentialsError(AuthenticationRefusedError):
    """As before, but the text stays here: it may tell whether the user exists (`SaslException`)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a completed exchange authenticated."""

    principal: Principal
    expires_ms: int | None = None
    """wall clock, when the credential itself ends: that of a token"""
    by_delegation_token: bool = False


def user(name: str) -> Principal:
    """Return the principal of a user's name."""
    return Principal(USER_TYPE, name)


class ServerExchange(Protocol):
    """The server's side of one authentication."""

    identity: Identity | None
    """set when the exchange is complete"""

    def respond(self, message: bytes, now_ms: int) -> bytes:
        """Take a client's message and return the response; AuthenticationRefusedError."""
        ...


class ClientExchange(Protocol):
    """The client's side of one authentication."""

    complete: bool

    def respond(self, challenge: bytes) -> bytes | None:
        """Take a server's message and return the next one; None when there is none to send.

        The first call has an empty challenge. ServerRefusedError if the server is not to be
        trusted.
        """
        ...


@dataclass(frozen=True, slots=True)
class SaslClient:
    """How a client authenticates. `begin` makes a new exchange, and reads a token file again."""

    mechanism: str
    begin: Callable[[], ClientExchange]
