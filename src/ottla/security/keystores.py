"""Keystores: keys and certificates out of PEM, PKCS#12 and JKS, in files or in settings.

Reads files by a function it is given. Which format a file has is seen in its first bytes: Java
reads PKCS#12 under the type JKS, too, and `keytool` writes it. Invariants: every failure is a
ConfigError of one line that names the setting and the way out; no message has a password or a part
of a key in it.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass

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
from ottla.security import java_keystore
from ottla.security.tls_settings import PEM, StoreSettings

ReadFile = Callable[[str], bytes]
"""Returns a file's content; OSError."""

_PEM = re.compile(rb"-+BEGIN ([A-Z0-9 ]+)-+\s+([^-]+?)\s*-+END \1-+")
_LINE = 64


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
    elif data[:4] == java_keystore.MAGIC:
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
    elif data[:4] == java_keystore.MAGIC:
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


def _java(where: str, store: StoreSettings, data: bytes) -> java_keystore.JavaKeystore:
    try:
        return java_keystore.read_java_keystore(data, store.password, store.key_password)
    except java_keystore.WrongPasswordError as error:
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
