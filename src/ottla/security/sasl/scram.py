"""SCRAM's arithmetic: mechanisms, credentials and their form in ZooKeeper (RFC 5802, RFC 7677).

Invariants: a credential holds no password and nothing a client could authenticate with. A decider.
Kafka: `ScramMechanism`, `ScramFormatter` and `ScramCredentialUtils`.
"""

import base64
import hashlib
import hmac
import re
from enum import Enum
from typing import NamedTuple

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
"""Kafka's: fewer never authenticate, more are refused when they are set through a broker."""

DEFAULT_ITERATIONS = 4096
SALT_BYTES = 20
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?")


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
    data = base64.b64decode(text) if _BASE64.fullmatch(text) else None
    if data is None or encode64(data) != text:
        raise ValueError("it is no base64")
    return data


def encode64(data: bytes) -> str:
    return base64.b64encode(data).decode()
