"""TLS: contexts of Python's ssl made of Kafka's settings, and made again when certificates change.

A context is replaced, never changed: connections keep the one they began with. Invariants: TLS 1.2
and 1.3 only; no compression, no renegotiation; a server has a key; a client checks the host name
unless the settings say no. Kafka: `SslFactory`, `DefaultSslEngineFactory`.
"""

import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ottla.model.errors import ConfigError
from ottla.security.keystores import (
    KeyMaterial,
    ReadFile,
    key_material,
    store_bytes,
    trusted_certificates,
)
from ottla.security.principal_mapping import PrincipalMapping
from ottla.security.tls_settings import NONE, REQUIRED, TLS12, TLS13, StoreSettings, TlsSettings

logger = logging.getLogger(__name__)

VERSIONS = {TLS12: ssl.TLSVersion.TLSv1_2, TLS13: ssl.TLSVersion.TLSv1_3}
MOST_SELF_HANDSHAKE_STEPS = 20


class TlsEndpoint:
    """One side's context, of files that are read again by `reload`."""

    def __init__(self, settings: TlsSettings, read: ReadFile, *, server: bool) -> None:
        """Read the files; ConfigError for whatever would not work."""
        self.settings = settings
        self.server = server
        self._read = read
        self._content: tuple[bytes, bytes] = (b"", b"")
        self.own: x509.Certificate | None = None
        """the certificate that is shown to the other side"""
        self.problem = ""
        """why the last reload failed"""
        self.context = self._new(settings, self._contents(settings))

    @property
    def side(self) -> str:
        return "server" if self.server else "client"

    def changed(self) -> bool:
        """Return whether the files have another content than the context; ConfigError."""
        return self._contents(self.settings) != self._content

    def reload(self, settings: TlsSettings | None = None) -> None:
        """Replace the context; ConfigError changes nothing."""
        settings = settings or self.settings
        self.context = self._new(settings, self._contents(settings))
        self.settings = settings

    def _contents(self, settings: TlsSettings) -> tuple[bytes, bytes]:
        return (
            store_bytes(settings.keystore, self._read),
            store_bytes(settings.truststore, self._read),
        )

    def _new(self, settings: TlsSettings, content: tuple[bytes, bytes]) -> ssl.SSLContext:
        material = key_material(settings.keystore, content[0]) if settings.keystore.given else None
        if self.server:
            if material is None:
                raise ConfigError(
                    f"{settings.keystore.where}location is not set: a listener with SSL has no "
                    "certificate to show; set it, or ssl.keystore.key and its certificate.chain"
                )
            if settings.client_auth != NONE and not settings.truststore.given:
                raise ConfigError(
                    f"{settings.where}ssl.client.auth={settings.client_auth}, but "
                    f"{settings.truststore.where}location is not set: whom public CAs know would "
                    "be let in; set it to the CA of your clients"
                )
        context = new_context(settings, material, content[1], server=self.server)
        self._content = content
        self.own = None if material is None else material.chain[0]
        return context


def new_context(
    settings: TlsSettings, material: KeyMaterial | None, trusted: bytes, *, server: bool
) -> ssl.SSLContext:
    """Return a context; `trusted` is the content of the truststore. ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    versions = [VERSIONS[name] for name in settings.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    if settings.tls12_ciphers:
        try:
            context.set_ciphers(":".join(settings.tls12_ciphers))
        except ssl.SSLError as error:
            raise ConfigError(
                f"{settings.where}ssl.cipher.suites: this OpenSSL has none of them"
            ) from error
    if server:
        if settings.client_auth != NONE:
            required = settings.client_auth == REQUIRED
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    else:
        context.check_hostname = settings.check_host
        context.verify_mode = ssl.CERT_REQUIRED
    if settings.truststore.given:
        _trust(context, settings.truststore, trusted)
    elif not server:
        context.load_default_certs()
    if material is not None:
        _show(context, settings.keystore, material)
    return context


def _trust(context: ssl.SSLContext, store: StoreSettings, data: bytes) -> None:
    for certificate in trusted_certificates(store, data):
        try:
            context.load_verify_locations(cadata=certificate.public_bytes(Encoding.DER))
        except ssl.SSLError as error:
            raise ConfigError(
                f"{store.where}location={store.location}: OpenSSL does not take the certificate "
                f"of {certificate.subject.rfc4514_string()}: {error.reason}"
            ) from error
    # As Java: whatever the truststore has is trusted, be it the certificate of a CA or not.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN


def _show(context: ssl.SSLContext, store: StoreSettings, material: KeyMaterial) -> None:
    with _private_file(material.key + material.chain_pem) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{store.where}location={store.location}: OpenSSL does not take the key and its "
                f"certificate: {error.reason}"
            ) from error


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file for the moment: ssl reads keys from files only.

    It lies in memory where the system has such files, and no other user can read it.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name


def check_own_trust(server: TlsEndpoint, client: TlsEndpoint, listener: str) -> None:
    """Raise ConfigError unless this broker would connect to itself over a listener.

    All brokers have such settings: who does not trust its own certificate trusts no other broker's
    either. The host name is left out: it is the other brokers' business. Kafka:
    `SslFactory.SslEngineValidator`.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    settings = client.settings
    context = new_context(
        settings,
        key_material(settings.keystore, store_bytes(settings.keystore, client._read))  # noqa: SLF001
        if settings.keystore.given
        else None,
        store_bytes(settings.truststore, client._read),  # noqa: SLF001
        server=False,
    )
    context.check_hostname = False
    ours = context.wrap_bio(to_client, to_server)
    theirs = server.context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [ours, theirs]
    try:
        for _ in range(MOST_SELF_HANDSHAKE_STEPS):
            for side in tuple(waiting):
                try:
                    side.do_handshake()
                    waiting.remove(side)
                except ssl.SSLWantReadError:
                    pass
            if not waiting:
                return
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or error.reason
        raise ConfigError(
            f"listener {listener}: this broker would not trust its own certificate ({why}), and so "
            f"no other broker's: {settings.truststore.where}location must have the CA of "
            f"{settings.keystore.where}location"
        ) from error
    raise ConfigError(f"listener {listener}: a handshake with ourselves does not end")


def check_replacement(old: TlsEndpoint, new: TlsEndpoint, *, names: bool, others: bool) -> None:
    """Raise ConfigError if a new certificate has another subject, or lacks a name of the old one.

    `names`, `others`: ssl.allow.dn.changes and ssl.allow.san.changes.
    """
    before, after = old.own, new.own
    if before is None or after is None:
        return
    if before.subject != after.subject and not names:
        raise ConfigError(
            "Keystore DistinguishedName does not match: existing="
            f"{before.subject.rfc4514_string()}, new={after.subject.rfc4514_string()}"
        )
    lost = alternative_names(before) - alternative_names(after)
    if lost and not others:
        raise ConfigError(f"Keystore SubjectAltNames do not match: missing={sorted(lost)}")


def alternative_names(certificate: x509.Certificate) -> set[str]:
    """Return the host names and addresses of a certificate."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in found.value}


def days_left(certificate: x509.Certificate | None, now_s: float) -> int | None:
    """Return the days until a certificate expires, below 0 if it has; None without one."""
    if certificate is None:
        return None
    return int((certificate.not_valid_after_utc.timestamp() - now_s) // 86_400)


def principal_mapping(settings: TlsSettings) -> PrincipalMapping:
    """Return the rules of a listener; ConfigError."""
    try:
        return PrincipalMapping(settings.mapping_rules)
    except ConfigError as error:
        raise ConfigError(f"{settings.where}{error}") from error
