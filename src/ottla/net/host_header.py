"""Which Host a request may name: a page of elsewhere must not reach a server by its own name.

Invariants: no name server can point an address elsewhere, so every IP address may be named; of
names only localhost and those that were allowed.
"""

import socket
from collections.abc import Collection


def host_name(header: str) -> str | None:
    """Return the name or address of a Host header without its port, None for what is none."""
    if header.startswith("["):
        name, bracket, port = header[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port.removeprefix(":")
    else:
        name, _, port = header.partition(":")
    if port and not (port.isascii() and port.isdigit() and len(port) <= 5):
        return None
    return name.lower() or None


def is_allowed(header: str, names: Collection[str]) -> bool:
    """Return whether a request with this Host header is served."""
    name = host_name(header)
    if name is None:
        return False
    return name == "localhost" or name in names or is_address(name)


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, not a name."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except (OSError, ValueError):  # the latter of a NUL
        return False
    return True
