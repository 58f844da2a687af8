"""OAUTHBEARER: a bearer token in one message (RFC 7628, KIP-255).

Invariants: what a token says counts only after `validate` accepted it; no token is in any text. A
decider. Kafka: `OAuthBearerSaslServer`, `OAuthBearerClientInitialResponse` and
`OAuthBearerSaslClient`.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from ottla.model.errors import ServerRefusedError
from ottla.security.sasl.exchange import (
    AuthenticationRefusedError,
    Identity,
    InvalidCredentialsError,
    user,
)

OAUTHBEARER = "OAUTHBEARER"

_NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)")
_KVSEP = b"\x01"
MAX_TOKEN_CHARACTERS = 32_768
MAX_MESSAGE_BYTES = MAX_TOKEN_CHARACTERS + 4096
"""A longer message is not even looked at."""
_INVALID = "Invalid OAUTHBEARER client first message"


class BearerToken(NamedTuple):
    """What a valid token says: its principal's name and its end (wall clock)."""

    name: str
    expires_ms: int


class RefusedToken(NamedTuple):
    """Why a token is refused, in RFC 7628's words, and the scope that was missing."""

    status: str = "invalid_token"
    scope: str | None = None


Validate = Callable[[str, int], "BearerToken | RefusedToken"]
"""(token, wall clock in ms) -> what it says, or why it does not count."""


class OAuthBearerServer:
    """The server's side."""

    def __init__(self, validate: Validate) -> None:
        self.identity: Identity | None = None
        self._validate = validate
        self._refused: str | None = None

    def respond(self, message: bytes, now_ms: int) -> bytes:
        if self._refused is not None:
            if message == _KVSEP:
                raise AuthenticationRefusedError(self._refused)
            self._refused = None
        authorization_id, token = _parse(message)
        found = self._validate(token, now_ms)
        if isinstance(found, RefusedToken):
            scope = "" if found.scope is None else f',"scope":"{found.scope}"'
            self._refused = f'{{"status":"{found.status}"{scope}}}'
            return self._refused.encode()
        if authorization_id not in ("", found.name):
            raise AuthenticationRefusedError(
                "Authentication failed: Client requested an authorization id "
                f"({authorization_id}) that is different from the token's principal name "
                f"({found.name})"
            )
        self.identity = Identity(user(found.name), found.expires_ms)
        return b""


def _parse(message: bytes) -> tuple[str, str]:
    """Return (authorization id, token); InvalidCredentialsError."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise InvalidCredentialsError(f"{_INVALID}: more than {MAX_MESSAGE_BYTES} bytes")
    try:
        found = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise InvalidCredentialsError(_INVALID)
    pairs = dict(part.split("=", 1) for part in found["pairs"].split("\x01") if part)
    auth = pairs.get("auth")
    if auth is None:
        raise InvalidCredentialsError(f"{_INVALID}: 'auth' not specified")
    bearer = _AUTH.fullmatch(auth)
    if bearer is None:
        raise InvalidCredentialsError(f"{_INVALID}: invalid 'auth' format")
    if bearer["scheme"].lower() != "bearer":
        raise InvalidCredentialsError("Invalid scheme in OAUTHBEARER client first message")
    authorization_id = found["authzid"] or ""
    return authorization_id.replace("=2C", ",").replace("=3D", "="), bearer["token"]


class OAuthBearerClient:
    """The client's side."""

    def __init__(self, token: str) -> None:
        self.complete = False
        self._message = b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
        self._sent = False
        self._refused = ""

    def respond(self, challenge: bytes) -> bytes | None:
        if not self._sent:
            self._sent = True
            return self._message
        if not challenge:
            self.complete = True
            return None
        if self._refused:
            raise ServerRefusedError(f"OAUTHBEARER: the server refused: {self._refused}")
        self._refused = challenge.decode(errors="replace")[:500]
        return _KVSEP
