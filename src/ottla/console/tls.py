"""TLS of the console's own page: a certificate and a key that fit, or one line that says why not.

Invariants: TLS 1.2 and 1.3 only, without renegotiation and compression; nothing asks a terminal for
a passphrase; of a key nothing is ever said but its file.
"""

import os
import ssl
from pathlib import Path

from ottla.model.errors import ConfigError

CERTIFICATE = "--tls-certificate"
KEY = "--tls-key"
MISMATCHES = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""The last: an RSA key beside a certificate of an elliptic curve's, or the other way round."""


class _EncryptedError(Exception):
    """OpenSSL wants a passphrase."""


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context of a server with these files; ConfigError for what would not work."""
    _check_readable(CERTIFICATE, certificate)
    _check_readable(KEY, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        # Alone first: what load_cert_chain says does not tell which of the two files is meant.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except ssl.SSLError:
        raise ConfigError(
            f"{CERTIFICATE} {certificate}: the file does not contain a PEM certificate"
        ) from None
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except _EncryptedError:
        raise ConfigError(
            f"{KEY} {key}: the key is encrypted, and the console cannot ask for a passphrase; "
            f"write it without one: umask 077; openssl pkey -in {key} -out FILE"
        ) from None
    except ssl.SSLError as error:
        if error.reason in MISMATCHES:
            raise ConfigError(
                f"{KEY} {key}: this is not the key of the first certificate in {certificate}"
            ) from None
        raise ConfigError(
            f"{KEY} {key}: OpenSSL rejects the key for {certificate}: "
            f"{error.reason or 'the file does not contain a PEM private key'}"
        ) from None
    return context


def _check_readable(option: str, path: Path) -> None:
    try:
        path.stat()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a valid file name"
        raise ConfigError(f"{option} {path}: {why}") from None
    if path.is_dir() or not os.access(path, os.R_OK):
        raise ConfigError(f"{option} {path}: the file is not readable")


def _no_passphrase() -> str:
    raise _EncryptedError
