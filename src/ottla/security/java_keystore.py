"""Java keystores: the format JKS, read without Java.

Pure: bytes in, values out; nothing is written in this format. A reader of our own, since the format
is small and no library that reads it is kept (the last release of pyjks is of 2020, and it brings
ciphers of its own for formats that are not needed here). Java: `sun.security.provider.JavaKeyStore`
and `KeyProtector`.
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass, field

from ottla.model.errors import WireError

MAGIC = b"\xfe\xed\xfe\xed"
PRIVATE_KEY, TRUSTED = 1, 2
WHITENER = b"Mighty Aphrodite"
"""Hashed behind the password for the checksum of the whole store."""
SALT_BYTES = DIGEST_BYTES = 20


class WrongPasswordError(WireError):
    """The checksum does not fit: another password, or a damaged file."""


@dataclass(slots=True)
class JavaKeystore:
    """What a store holds: the first key in PKCS#8, its chain, and trusted certificates, in DER."""

    key: bytes | None = None
    chain: list[bytes] = field(default_factory=list)
    trusted: list[bytes] = field(default_factory=list)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        found = self.data[self.position : self.position + count]
        if count < 0 or len(found) < count:
            raise WireError("the keystore ends too early")
        self.position += count
        return found

    def number(self, form: str) -> int:
        (value,) = struct.unpack(f">{form}", self.take(struct.calcsize(f">{form}")))
        return int(value)

    def text(self) -> str:
        return self.take(self.number("H")).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2 and self.text() != "X.509":
            raise WireError("the keystore has a certificate that is not X.509")
        return self.take(self.number("I"))


def read_java_keystore(data: bytes, password: str | None, key_password: str | None) -> JavaKeystore:
    """Read a store. Without `password` its integrity is not checked, as in Java.

    WrongPasswordError, and WireError for what is no such store.
    """
    reader = _Reader(data)
    if reader.take(4) != MAGIC:
        raise WireError("no JKS keystore")
    version = reader.number("I")
    if version not in (1, 2):
        raise WireError(f"a JKS keystore of version {version}")
    if password is not None:
        digest = hashlib.sha1(_utf16(password) + WHITENER + data[:-DIGEST_BYTES])  # noqa: S324 - the format's # nosec B324
        if not hmac.compare_digest(digest.digest(), data[-DIGEST_BYTES:]):
            raise WrongPasswordError("wrong password, or the file is damaged")
    found = JavaKeystore()
    for _ in range(reader.number("I")):
        kind = reader.number("I")
        reader.text()  # the alias
        reader.take(8)  # when it was made
        if kind == PRIVATE_KEY:
            protected = reader.take(reader.number("I"))
            chain = [reader.certificate(version) for _ in range(reader.number("I"))]
            if found.key is None:
                found.key = _recovered(protected, key_password or password or "")
                found.chain = chain
        elif kind == TRUSTED:
            found.trusted.append(reader.certificate(version))
        else:
            raise WireError(f"a JKS keystore with an entry of kind {kind}")
    return found


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _recovered(protected: bytes, password: str) -> bytes:
    """Return a key in PKCS#8 out of an EncryptedPrivateKeyInfo by Sun's key protector."""
    encrypted = _octets(protected)
    if len(encrypted) < SALT_BYTES + DIGEST_BYTES:
        raise WireError("a protected key that is too short")
    secret = _utf16(password)
    digest = encrypted[:SALT_BYTES]
    plain = bytearray()
    body = encrypted[SALT_BYTES:-DIGEST_BYTES]
    for begin in range(0, len(body), DIGEST_BYTES):
        digest = hashlib.sha1(secret + digest).digest()  # noqa: S324 - the format's # nosec B324
        plain += bytes(a ^ b for a, b in zip(body[begin:], digest, strict=False))
    check = hashlib.sha1(secret + plain).digest()  # noqa: S324 - the format's # nosec B324
    if not hmac.compare_digest(check, encrypted[-DIGEST_BYTES:]):
        raise WrongPasswordError("wrong key password")
    return bytes(plain)


def _octets(info: bytes) -> bytes:
    """Return the octet string of `SEQUENCE { algorithm, OCTET STRING }`."""
    reader = _Reader(info)
    for _ in range(2):  # the sequence, the algorithm in it
        tag, length = reader.number("B"), _length(reader)
        if tag != 0x30:
            raise WireError("a protected key of an unknown form")
        inner = reader.position
    reader.position = inner + length
    if reader.number("B") != 0x04:
        raise WireError("a protected key of an unknown form")
    return reader.take(_length(reader))


def _length(reader: _Reader) -> int:
    first = reader.number("B")
    if not first & 0x80:
        return first
    return int.from_bytes(reader.take(first & 0x7F), "big")
