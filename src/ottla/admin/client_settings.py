"""Client settings: what Kafka's client.properties says to tools.

Who may call: the admin room. Invariant: what tools of ours cannot do is refused, not ignored.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.security.client import ClientSecurity

MAX_CONFIG_BYTES = 1_048_576
DEFAULT_CLIENT_ID = "ottla-cli"


class ClientSettings(NamedTuple):
    """What Kafka's client.properties may say that concerns tools. Times are in seconds."""

    client_id: str = DEFAULT_CLIENT_ID
    timeout_s: float | None = None
    bootstrap_servers: str | None = None
    security: "ClientSecurity | None" = None


@cache
def settings_of(file: Path | None) -> ClientSettings:
    """Read Kafka's client.properties; OttlaError for what tools of ours cannot do.

    A command line reads it once.
    """
    if file is None:
        return ClientSettings()
    from ottla.model.config import parse_properties  # noqa: PLC0415 - lazy
    from ottla.model.errors import OttlaError  # noqa: PLC0415

    with file.open("rb") as opened:
        data = opened.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise OttlaError(f"{file}: more than {MAX_CONFIG_BYTES:,} bytes are no client.properties")
    found = parse_properties(data.decode(errors="replace"))
    timeout = found.get("request.timeout.ms")
    if timeout is not None and not (timeout.isascii() and timeout.isdigit() and int(timeout)):
        raise OttlaError(f"{file}: request.timeout.ms={timeout}: write milliseconds")
    return ClientSettings(
        found.get("client.id") or DEFAULT_CLIENT_ID,
        None if timeout is None else int(timeout) / 1000,
        found.get("bootstrap.servers") or None,
        _security(file, found),
    )


def _security(file: Path, found: Mapping[str, str]) -> "ClientSecurity | None":
    """Return how to connect; OttlaError for a protocol that tools do not speak."""
    from ottla.model.errors import OttlaError  # noqa: PLC0415 - lazy

    protocol = found.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol == "PLAINTEXT":
        return None
    if protocol != "SSL":
        raise OttlaError(
            f"{file}: security.protocol={protocol}: tools, as brokers, speak PLAINTEXT and SSL"
        )
    from ottla.security.client import ClientSecurity  # noqa: PLC0415 - lazy
    from ottla.security.client_tls import client_tls  # noqa: PLC0415 - lazy

    try:
        return ClientSecurity(tls=client_tls(found))
    except OttlaError as error:
        raise OttlaError(f"{file}: {error}") from error
