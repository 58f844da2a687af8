"""Keystores: keys and certificates out of PEM, PKCS#12 and JKS, in files or in settings.

Reads files by a function it is given. Which format a file has is seen in its first bytes: Java
reads PKCS#12 under the type JKS, too, and `keytool` writes it. Invariants: every failure is a
ConfigError of one line that names the setting and the way out; no message has a password or a part
of a key in it.
"""

import base64
import binascii
import hashlib
import hmac
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)

from ottla.model.errors import ConfigError, WireError
from ottla.security.tls_settings import PEM, StoreSettings

ReadFile = Callable[[str], bytes]
"""Returns a file's content; OSError."""

_PEM = re.compile(rb"-+BEGIN ([A-Z0-9 ]+)-+\s+([^-]+?)\s*-+END \1-+")
_LINE = 64


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

    WrongPasswordError, and WireError for data that is not a keystore.
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


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key (PKCS#8, PEM, not encrypted) and its certificates, its own one first."""

    key: bytes
    chain: tuple[x509.Certificate, ...]

    @property
    def chain_pem(self) -> bytes:
        return b"".join(c.public_bytes(Encoding.PEM) for c in self.chain)


def store_bytes(store: StoreSettings, read: ReadFile) -> bytes:
    """Return what a store is made of, to see whether it changed; ConfigError if it has no file."""
    if not store.location:
        return f"{store.certificates}\n{store.key}".encode()
    try:
        return read(store.location)
    except OSError as error:
        raise ConfigError(
            f"{store.where}location={store.location}: {error.strerror or error}"
        ) from error


def key_material(store: StoreSettings, data: bytes) -> KeyMaterial:
    """Return the key of a keystore, and its chain, out of what `store_bytes` returned."""
    where = f"{store.where}location={store.location}" if store.location else f"{store.where}key"
    if store.type == PEM:
        key, chain = _pem_key(where, data, store.key_password)
    elif data[:4] == MAGIC:
        found = _java(where, store, data)
        if found.key is None:
            raise ConfigError(f"{where} has no private key")
        key, chain = load_der_private_key(found.key, None), _certificates(where, found.chain)
    else:
        key, chain = _pkcs12_key(where, store, data)
    if not chain:
        raise ConfigError(f"{where} has no certificate beside its private key")
    if chain[0].public_key() != key.public_key():
        others = [c for c in chain if c.public_key() == key.public_key()]
        if not others:
            raise ConfigError(
                f"{where}: the private key does not fit the certificate of "
                f"{chain[0].subject.rfc4514_string()}; put both of one pair there"
            )
        chain = [others[0], *(c for c in chain if c is not others[0])]
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyMaterial(pem, tuple(chain))


def trusted_certificates(store: StoreSettings, data: bytes) -> list[x509.Certificate]:
    """Return the certificates of a truststore, out of what `store_bytes` returned."""
    inline = f"{store.where}certificates"
    where = f"{store.where}location={store.location}" if store.location else inline
    if store.type == PEM:
        found = _certificates(where, [der for name, der in _pem_parts(where, data) if _is(name)])
    elif data[:4] == MAGIC:
        of_store = _java(where, store, data)
        found = _certificates(where, of_store.trusted)
    else:
        loaded = _load_pkcs12(where, store, data)
        found = [c.certificate for c in loaded.additional_certs]
    if not found:
        raise ConfigError(f"{where} has no certificate to trust; put the CA's there")
    return found


def _is(name: str) -> bool:
    return name in ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE")


def _pem_parts(where: str, data: bytes) -> list[tuple[str, bytes]]:
    """Return (what it is, DER) of each part; settings have them on one line, too."""
    parts = []
    for name, body in _PEM.findall(data):
        try:
            parts.append((name.decode(), base64.b64decode(b"".join(body.split()), validate=True)))
        except binascii.Error as error:
            raise ConfigError(f"{where}: a damaged PEM block {name.decode()}") from error
    if not parts:
        raise ConfigError(f"{where}: no PEM block in it; for JKS or PKCS#12 set the type")
    return parts


def _pem_key(
    where: str, data: bytes, password: str | None
) -> tuple[PrivateKeyTypes, list[x509.Certificate]]:
    key: PrivateKeyTypes | None = None
    chain = []
    for name, der in _pem_parts(where, data):
        if name.endswith("PRIVATE KEY") and key is None:
            key = _private_key(where, name, der, password)
        elif _is(name):
            chain.append(der)
    if key is None:
        raise ConfigError(f"{where} has no private key")
    return key, _certificates(where, chain)


def _private_key(where: str, name: str, der: bytes, password: str | None) -> PrivateKeyTypes:
    encrypted = name == "ENCRYPTED PRIVATE KEY"
    if encrypted and password is None:
        raise ConfigError(f"{where}: the private key is encrypted; set ssl.key.password")
    body = base64.b64encode(der)
    lines = b"\n".join(body[i : i + _LINE] for i in range(0, len(body), _LINE))
    pem = f"-----BEGIN {name}-----\n".encode() + lines + f"\n-----END {name}-----\n".encode()
    try:
        secret = password.encode() if encrypted and password is not None else None
        return load_pem_private_key(pem, secret)
    except (ValueError, TypeError) as error:
        if encrypted:
            raise ConfigError(f"{where}: ssl.key.password is wrong for its key") from error
        raise ConfigError(f"{where}: a private key that cannot be read") from error


def _certificates(where: str, ders: list[bytes]) -> list[x509.Certificate]:
    try:
        return [x509.load_der_x509_certificate(der) for der in ders]
    except ValueError as error:
        raise ConfigError(f"{where}: a certificate that cannot be read: {error}") from error


def _java(where: str, store: StoreSettings, data: bytes) -> JavaKeystore:
    try:
        return read_java_keystore(data, store.password, store.key_password)
    except WrongPasswordError as error:
        key = f"{store.where}password"
        if str(error) == "wrong key password":
            key = f"{store.where.removesuffix('keystore.')}key.password"
        raise ConfigError(f"{key} is wrong for {store.location}, or the file is damaged") from error
    except WireError as error:
        raise ConfigError(f"{where}: {error}") from error


def _load_pkcs12(where: str, store: StoreSettings, data: bytes) -> pkcs12.PKCS12KeyAndCertificates:
    if data.lstrip()[:5] == b"-----":
        raise ConfigError(f"{where} is PEM; set {store.where}type=PEM")
    try:
        return pkcs12.load_pkcs12(data, (store.password or "").encode())
    except ValueError as error:
        if data[:1] != b"\x30":
            raise ConfigError(f"{where} is no keystore of JKS or PKCS#12") from error
        raise ConfigError(
            f"{store.where}password is wrong for {store.location}, or the file is damaged"
        ) from error


def _pkcs12_key(
    where: str, store: StoreSettings, data: bytes
) -> tuple[PrivateKeyTypes, list[x509.Certificate]]:
    found = _load_pkcs12(where, store, data)
    if found.key is None:
        raise ConfigError(f"{where} has no private key")
    chain = [c.certificate for c in (found.cert, *found.additional_certs) if c is not None]
    return found.key, chain
