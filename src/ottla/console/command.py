"""`ottla console`: a cluster in a browser.

Invariants: it listens on this machine alone unless another address is named; who has the printed
link, and no one else, gets in.
"""

import contextlib
import ipaddress
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Connection
from ottla.cli import Option, UsageError
from ottla.cli.output import print_line, say
from ottla.model.errors import OttlaError
from ottla.model.ids import topic_name_problem

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla.client.client import Client
    from ottla.console.avro import Schemas

REQUEST_TIMEOUT_S = 10.0
"""For each request to a broker: nobody waits longer for a page."""
LIBRARIES = ("starlette", "uvicorn", "jinja2")


def console(
    target: Connection,
    port: Annotated[
        int,
        Option(metavar="PORT", help="Port to listen on; 0 chooses a free one", min=0, max=65535),
    ] = 8090,
    host: Annotated[str, Option(metavar="ADDRESS", help="Address to listen on")] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        Option(
            "--allow-host",
            metavar="NAME",
            help="Another host name that browsers may use, besides localhost",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        Option(
            "--tls-certificate",
            metavar="FILE",
            help="Serve HTTPS with this certificate chain (PEM)",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        Option("--tls-key", metavar="FILE", help="Private key of the certificate (PEM)"),
    ] = None,
    read_only: Annotated[bool, Option("--read-only", help="Refuse all changes")] = False,
    avro_schema: Annotated[
        list[str] | None,
        Option(
            "--avro-schema",
            metavar="[TOPIC=]FILE",
            help="Decode values with this Avro schema (.avsc), of one topic or of all others",
        ),
    ] = None,
) -> None:
    _check_libraries()
    schemas = _schemas(avro_schema or ())
    from ottla.admin.session import addresses_of, client_of
    from ottla.console.server import Listening, serve
    from ottla.model.waits import silence

    tls = _tls(tls_certificate, tls_key)
    cluster = target.where
    folder = cluster.folder if cluster.address is None else None
    listening = Listening(host, port, tuple(allow_host or ()), read_only=read_only, tls=tls)
    if not _is_loopback(host) and tls is None:
        say(
            f"ottla console: {host} is reachable from other machines, but not encrypted: "
            "anyone who can read the traffic can act as you; "
            "encrypt it with --tls-certificate and --tls-key"
        )

    def another() -> "Client":
        settings = cluster.settings
        return client_of(
            addresses_of(cluster.bootstrap()),
            client_id=settings.client_id,
            security=settings.security,
        )

    async def question(client: "Client") -> None:
        silence()
        await serve(client, another, folder, listening, _tell, schemas)

    with contextlib.suppress(KeyboardInterrupt):
        target.ask(question, timeout_s=REQUEST_TIMEOUT_S)


def _tls(certificate: Path | None, key: Path | None) -> "SSLContext | None":
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-certificate and --tls-key: give both, or none")
    from ottla.console.server import server_context

    return server_context(certificate, key)


def _tell(line: str) -> None:
    print_line(line)
    sys.stdout.flush()


def _schemas(given: Sequence[str]) -> "Schemas":
    """Return the schemas of the topics that are named, and the one without a topic."""
    from ottla.console.avro import Schemas
    from ottla.wire.avro import read_schema

    files: dict[str, Path] = {}
    for word in given:
        topic, equals, file = word.partition("=")
        if not equals or topic_name_problem(topic):  # ./a=b.avsc is a file
            topic, file = "", word
        if topic in files:
            raise UsageError(f"--avro-schema {word}: {topic or 'all topics'} already has a schema")
        files[topic] = Path(file)
    found = {topic: read_schema(f, "--avro-schema", "console") for topic, f in files.items()}
    return Schemas({t: schema for t, schema in found.items() if t}, found.get(""))


def _check_libraries() -> None:
    from importlib.util import find_spec  # only here

    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise OttlaError(
            f"the console needs {', '.join(missing)}; install with: pip install 'ottla[console]'"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise UsageError(f"--host {host}: must be an IP address of this machine") from None
