"""The server of a console: a socket, TLS, uvicorn, and the link that lets a browser in.

Invariants: connections, requests and headers are bounded; Ctrl-C ends streams first, then the
server.
"""

import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import uvicorn

from ottla.client.client import Client
from ottla.console.application import application
from ottla.console.avro import Schemas
from ottla.console.state import console_for
from ottla.local.cluster_dir import ClusterDir
from ottla.model.errors import ConfigError, StartupError
from ottla.model.ports import address_text

MOST_CONNECTIONS = 100
BACKLOG = 64
MAX_HEADER_BYTES = 16_384
KEEP_ALIVE_S = 30
END_S = 3


class Listening(NamedTuple):
    """Where a console listens, and the names besides localhost by which browsers may ask."""

    host: str
    port: int
    names: tuple[str, ...] = ()
    read_only: bool = False
    tls: ssl.SSLContext | None = None


async def serve(
    client: Client,
    another: Callable[[], Client],
    folder: ClusterDir | None,
    listening: Listening,
    tell: Callable[[str], None],
    schemas: Schemas,
) -> None:
    """Serve until Ctrl-C; `tell` gets the link, and the next one whenever it was used.

    `another` makes one more client of the cluster.
    """
    listener = _listen(listening.host, listening.port)
    host, port = listener.getsockname()[:2]
    scheme, cookie = "http", f"ottla-console-{port}"
    name = "localhost" if host in ("127.0.0.1", "::1") else host
    if listening.tls is not None:
        scheme, cookie = "https", f"__Secure-{cookie}"  # no http may set it
        name = next(iter(listening.names), name)  # a certificate is for names
    shown = address_text(name, port)
    console = console_for(client, another, folder, read_only=listening.read_only, schemas=schemas)

    def tell_link() -> None:
        tell(f"{scheme}://{shown}/login?token={console.sessions.token}")

    def entered() -> None:
        tell("link used; open the console in another browser with:")
        tell_link()

    app = application(
        console,
        names=listening.names,
        cookie=cookie,
        secure=listening.tls is not None,
        entered=entered,
        started=tell_link,  # sooner, Ctrl-C would not be uvicorn's yet, and end with a traceback
    )
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # what damaged requests bring about is no line
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=END_S,
    )
    config.load()
    config.ssl = listening.tls  # uvicorn's own would ask a terminal for a key's passphrase
    server = uvicorn.Server(config)
    console.closing = lambda: server.should_exit
    try:
        await server.serve([listener])
    finally:
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise StartupError(
            f"cannot listen on {address_text(host, port)}: {error.strerror}; "
            "choose another port with --port"
        ) from error


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
