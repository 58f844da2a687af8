"""SCRAM's arithmetic: mechanisms, credentials and their form in ZooKeeper (RFC 5802, RFC 7677).

Invariants: a credential holds no password and nothing a client could authenticate with. A decider.
Kafka: `ScramMechanism`, `ScramFormatter` and `ScramCredentialUtils`.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ottla.model.errors import ServerRefusedError
from ottla.security.sasl.exchange import (
    AuthenticationRefusedError,
    Identity,
    InvalidCredentialsError,
    user,
)

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
"""Kafka's: fewer never authenticate, more are refused when they are set through a broker."""

DEFAULT_ITERATIONS = 4096
SALT_BYTES = 20
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"


class ScramMechanism(Enum):
    """A mechanism, by Kafka's number: its SASL name and its hash."""

    SCRAM_SHA_256 = (1, "SCRAM-SHA-256", "sha256")
    SCRAM_SHA_512 = (2, "SCRAM-SHA-512", "sha512")

    def __init__(self, number: int, sasl_name: str, hash_name: str) -> None:
        self.number = number
        self.sasl_name = sasl_name
        self.hash_name = hash_name

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Return `Hi(password, salt, iterations)`: milliseconds of work, by intent."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)


BY_NAME = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
BY_NUMBER = {mechanism.number: mechanism for mechanism in ScramMechanism}


class ScramCredential(NamedTuple):
    """What a server knows of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def credential_of(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password."""
    client_key = mechanism.mac(salted_password, b"Client Key")
    server_key = mechanism.mac(salted_password, b"Server Key")
    return ScramCredential(salt, mechanism.hash(client_key), server_key, iterations)


def credential_text(credential: ScramCredential) -> str:
    """Return a credential as ZooKeeper holds it below /config/users."""
    salt, stored, server = (
        base64.b64encode(part).decode()
        for part in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """Read what `credential_text` wrote; ValueError without the text, which is a secret."""
    fields = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name in fields:
            raise ValueError("it is no credential: not name=value,...")
        fields[name] = value
    if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("it is no credential: salt, stored_key, server_key and iterations")
    iterations = fields["iterations"]
    if not (iterations.isascii() and iterations.isdigit()):
        raise ValueError("it is no credential: iterations is no number")
    salt, stored, server = (decode64(fields[k]) for k in ("salt", "stored_key", "server_key"))
    return ScramCredential(salt, stored, server, int(iterations))


def decode64(text: str) -> bytes:
    """Decode base64 in its one form; ValueError: bits behind the last byte must be zero."""
    data = base64.b64decode(text) if re.fullmatch(_BASE64, text) else None
    if data is None or encode64(data) != text:
        raise ValueError("it is no base64")
    return data


def encode64(data: bytes) -> str:
    return base64.b64encode(data).decode()


_NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_VALUE = r"[\x01-\x2B\x2D-\x7F]+"
_PRINTABLE = r"[\x21-\x2B\x2D-\x7E]+"
_RESERVED = rf"(?:m={_VALUE},)?"
_EXTENSIONS = rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"

_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>{_RESERVED}n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(
    rf"{_RESERVED}r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})"
    rf"{_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}")

MAX_MESSAGE_BYTES = 4096
"""A longer message is not even looked at: the bound of frames before authentication is 512 KiB."""
_TOKEN_AUTH = "tokenauth"  # noqa: S105 - an extension's name # nosec B105
_MAX_CLIENT_ITERATIONS = 1_000_000
"""A server that asks for more keeps its client busy, no more."""


class TokenOwner(NamedTuple):
    """Whom a delegation token stands for, and until when (wall clock)."""

    owner: str
    expires_ms: int
    credential: ScramCredential


@dataclass(frozen=True, slots=True)
class ScramLookup:
    """Where a server finds credentials: of users, and of delegation tokens by their ids."""

    credential: Callable[[ScramMechanism, str], ScramCredential | None]
    token: Callable[[ScramMechanism, str], TokenOwner | None]
    secret: bytes
    """from which the salts of unknown users are made; known to no one else"""


class ScramServer:
    """The server's side. `nonce`: unpredictable, of 128 bits or more, used once."""

    def __init__(self, mechanism: ScramMechanism, lookup: ScramLookup, nonce: str) -> None:
        self.identity: Identity | None = None
        self._mechanism = mechanism
        self._lookup = lookup
        self._server_nonce = nonce
        self._first: re.Match[str] | None = None
        self._server_first = ""
        self._credential: ScramCredential | None = None
        self._outcome: Identity | None = None
        self._failed = False

    def respond(self, message: bytes, now_ms: int) -> bytes:
        if self._failed or self.identity is not None:
            raise InvalidCredentialsError("a message after the end of the exchange")
        try:
            if self._first is None:
                return self._challenge(message, now_ms)
            return self._verify(message)
        except BaseException:
            self._failed = True
            raise

    def _challenge(self, message: bytes, now_ms: int) -> bytes:
        first = _match(_CLIENT_FIRST, message, "client first message")
        name = unescape(first["name"])
        extensions = _extensions(first["extensions"])
        asked = "" if first["authzid"] is None else unescape(first["authzid"])
        if asked not in ("", name):
            raise AuthenticationRefusedError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        if extensions.get(_TOKEN_AUTH, "").lower() == "true":
            token = self._lookup.token(self._mechanism, name)
            if token is not None and token.expires_ms >= now_ms:
                self._credential = token.credential
                self._outcome = Identity(
                    user(token.owner), token.expires_ms, by_delegation_token=True
                )
        else:
            self._credential = self._lookup.credential(self._mechanism, name)
            self._outcome = Identity(user(name))
        found = self._credential
        if found is not None and found.iterations < MIN_ITERATIONS:
            raise InvalidCredentialsError(
                f"Iterations {found.iterations} is less than the minimum {MIN_ITERATIONS} for "
                f"{self._mechanism.sasl_name}"
            )
        salt = self._salt_of_unknown(name) if found is None else found.salt
        iterations = DEFAULT_ITERATIONS if found is None else found.iterations
        self._first = first
        self._server_first = (
            f"r={first['nonce']}{self._server_nonce},s={encode64(salt)},i={iterations}"
        )
        return self._server_first.encode()

    def _salt_of_unknown(self, name: str) -> bytes:
        """Return the same salt each time; asking twice must not reveal that a user is unknown."""
        return self._mechanism.mac(self._lookup.secret, name.encode())[:20]

    def _verify(self, message: bytes) -> bytes:
        first, mechanism = self._first, self._mechanism
        assert first is not None
        final = _match(_CLIENT_FINAL, message, "client final message")
        if final["nonce"] != first["nonce"] + self._server_nonce:
            raise InvalidCredentialsError("Invalid client nonce in the final client message.")
        if final["channel"] != encode64(first["gs2"].encode()):
            raise InvalidCredentialsError("channel binding is not that of the first message")
        signed = f"{first['bare']},{self._server_first},{final['without_proof']}".encode()
        known = self._credential
        # Made for a known user, too: a clock must not tell the two apart.
        unknown = credential_of(mechanism, self._lookup.secret, b"", MIN_ITERATIONS)
        credential = known or unknown
        try:
            proof = decode64(final["proof"])
        except ValueError:
            raise InvalidCredentialsError("Invalid client credentials") from None
        signature = mechanism.mac(credential.stored_key, signed)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        right = hmac.compare_digest(mechanism.hash(client_key), credential.stored_key)
        if not right or len(proof) != len(signature) or known is None or self._outcome is None:
            raise InvalidCredentialsError("Invalid client credentials")
        self.identity = self._outcome
        return f"v={encode64(mechanism.mac(credential.server_key, signed))}".encode()


class ScramClient:
    """The client's side. `nonce` as the server's; `token_auth`: the name is a token's id."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        name: str,
        password: str,
        nonce: str,
        *,
        token_auth: bool = False,
    ) -> None:
        self.complete = False
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        extensions = f",{_TOKEN_AUTH}=true" if token_auth else ""
        self._bare = f"n={escape(name)},r={nonce}{extensions}"
        self._signature: bytes | None = None
        self._sent = False

    def respond(self, challenge: bytes) -> bytes | None:
        if not self._sent:
            self._sent = True
            return f"n,,{self._bare}".encode()
        try:
            if self._signature is None:
                return self._prove(challenge)
            self._check(challenge)
        except InvalidCredentialsError as error:
            raise ServerRefusedError(str(error)) from None
        return None

    def _prove(self, challenge: bytes) -> bytes:
        mechanism = self._mechanism
        first = _match(_SERVER_FIRST, challenge, "server first message")
        nonce, iterations = first["nonce"], int(first["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ServerRefusedError("the server's nonce does not continue ours: a replay?")
        if not MIN_ITERATIONS <= iterations <= _MAX_CLIENT_ITERATIONS:
            raise ServerRefusedError(
                f"the server asks for {iterations} iterations; {MIN_ITERATIONS} to "
                f"{_MAX_CLIENT_ITERATIONS} are accepted"
            )
        salt = _decoded(first["salt"])
        salted = mechanism.salted_password(self._password, salt, iterations)
        client_key = mechanism.mac(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        signature = mechanism.mac(mechanism.hash(client_key), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = mechanism.mac(mechanism.mac(salted, b"Server Key"), signed)
        return f"{without_proof},p={encode64(proof)}".encode()

    def _check(self, challenge: bytes) -> None:
        final = _match(_SERVER_FINAL, challenge, "server final message")
        if final["error"] is not None:
            raise ServerRefusedError(f"the server refused: {final['error']}")
        assert self._signature is not None
        if not hmac.compare_digest(_decoded(final["signature"]), self._signature):
            raise ServerRefusedError("the server could not prove that it knows the password")
        self.complete = True


def _decoded(text: str) -> bytes:
    """Return what a server sent; ServerRefusedError if it is no base64."""
    try:
        return decode64(text)
    except ValueError as error:
        raise ServerRefusedError(f"the server's message: {error}") from None


def escape(name: str) -> str:
    """Return a name as SCRAM writes it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _match(pattern: re.Pattern[str], message: bytes, what: str) -> re.Match[str]:
    """Return the parts of a message; InvalidCredentialsError if it is none."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise InvalidCredentialsError(f"a SCRAM {what} of more than {MAX_MESSAGE_BYTES} bytes")
    try:
        found = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise InvalidCredentialsError(f"Invalid SCRAM {what} format")
    return found


def _extensions(text: str) -> dict[str, str]:
    """Return the extensions of a message; what is not known is ignored, as Kafka does."""
    parts = (part.partition("=") for part in text.split(",") if part)
    return {name: value for name, _, value in parts}
