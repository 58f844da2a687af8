"""A client's side of SASL on a connection: authentication, and again before the session ends.

Invariants: SaslHandshake 1 and SaslAuthenticate 1, which every broker since Kafka 2.2 serves;
requests are held while the connection authenticates again, and leave in their order afterwards
(KIP-368); a server that refuses, or cannot prove itself, ends the connection. Kafka:
`SaslClientAuthenticator`.
"""

import asyncio
from typing import Protocol

from ottla.model.errors import ErrorCode, OttlaError, ServerRefusedError
from ottla.security.sasl.exchange import SaslClient
from ottla.wire.messages.security import (
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from ottla.wire.schema import R, Request

VERSION = 1
MOST_MESSAGES = 10
"""No mechanism needs more: a server that goes on for ever is left."""
FIRST_PART, LAST_PART = 0.85, 0.95
"""The part of a session's lifetime after which the client authenticates again (Kafka's)."""


class Peer(Protocol):
    """A connection, as far as authentication needs it."""

    closed: bool

    @property
    def address(self) -> str: ...

    def send(self, message: Request[R], version: int, timeout_s: float) -> "asyncio.Future[R]": ...

    def hold(self) -> None:
        """Hold all requests from now on but those of authentication."""
        ...

    def release(self) -> None:
        """Send what was held."""
        ...

    def end(self, reason: str) -> None:
        """End the connection."""
        ...


async def authenticate(peer: Peer, sasl: SaslClient, timeout_s: float) -> float:
    """Authenticate; return the session's lifetime in seconds, 0 if it does not end.

    ServerRefusedError, ConnectionLostError.
    """
    mechanism = sasl.mechanism
    listed = await peer.send(SaslHandshakeRequest(mechanism=mechanism), VERSION, timeout_s)
    if listed.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise ServerRefusedError(
            f"{peer.address} does not enable SASL mechanism {mechanism}; it enables "
            f"{', '.join(listed.mechanisms)}"
        )
    if listed.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise ServerRefusedError(f"{peer.address} is a listener without SASL")
    if listed.error_code:
        raise ServerRefusedError(f"{peer.address} refused SaslHandshake: {listed.error_code}")
    exchange = sasl.begin()
    token = exchange.respond(b"")
    lifetime_ms = 0
    for _ in range(MOST_MESSAGES):
        if token is None:
            break
        response = await peer.send(SaslAuthenticateRequest(auth_bytes=token), VERSION, timeout_s)
        if response.error_code:
            raise ServerRefusedError(
                f"{peer.address}: {response.error_message or 'authentication failed'}"
            )
        lifetime_ms = response.session_lifetime_ms
        token = exchange.respond(bytes(response.auth_bytes))
    if not exchange.complete:
        raise ServerRefusedError(f"{peer.address}: authentication did not come to its end")
    return lifetime_ms / 1000


async def authenticate_again(
    peer: Peer, sasl: SaslClient, lifetime_s: float, part: float, timeout_s: float
) -> None:
    """Authenticate before each session ends, as long as the connection lives.

    `part`: of the lifetime, from `FIRST_PART` to `LAST_PART`.
    """
    while lifetime_s > 0:
        await asyncio.sleep(lifetime_s * part)
        if peer.closed:
            return
        peer.hold()
        try:
            lifetime_s = await authenticate(peer, sasl, timeout_s)
        except OttlaError as error:
            peer.end(f"not authenticated again: {error}")
            return
        peer.release()
