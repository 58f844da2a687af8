"""PLAIN: a user name and a password in one message (RFC 4616).

Invariants: passwords are compared in constant time; an unknown user costs what a wrong password
costs, and both get the same text. A decider. Kafka: `PlainSaslServer` and
`PlainServerCallbackHandler`.
"""

import hmac
from collections.abc import Mapping

from ottla.model.errors import ServerRefusedError
from ottla.security.sasl.exchange import (
    AuthenticationRefusedError,
    Identity,
    user,
)

PLAIN = "PLAIN"
_NOT_A_PASSWORD = b"\0"
"""Equal to no password that a client can send."""


class PlainServer:
    """The server's side. `passwords`: by user name."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.identity: Identity | None = None
        self._passwords = passwords

    def respond(self, message: bytes, now_ms: int) -> bytes:
        del now_ms
        tokens = message.decode("utf-8", errors="replace").split("\0", 3)
        if len(tokens) != 3:
            raise AuthenticationRefusedError(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}"
            )
        authorization_id, name, password = tokens
        if not name:
            raise AuthenticationRefusedError("Authentication failed: username not specified")
        if not password:
            raise AuthenticationRefusedError("Authentication failed: password not specified")
        expected = self._passwords.get(name)
        right = _NOT_A_PASSWORD if expected is None else expected.encode()
        if not hmac.compare_digest(right, password.encode()):
            raise AuthenticationRefusedError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise AuthenticationRefusedError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.identity = Identity(user(name))
        return b""


class PlainClient:
    """The client's side."""

    def __init__(self, name: str, password: str) -> None:
        self.complete = False
        self._message = f"\0{name}\0{password}".encode()
        self._sent = False

    def respond(self, challenge: bytes) -> bytes | None:
        if not self._sent:
            self._sent = True
            return self._message
        if challenge:
            raise ServerRefusedError("PLAIN: the server sent a challenge, which it never does")
        self.complete = True
        return None
