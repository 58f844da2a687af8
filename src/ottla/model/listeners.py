"""Listeners: addresses and maps of a broker's settings, read as Kafka reads them.

Invariants: what Kafka's `EndPoint` and `CoreUtils` refuse raises ConfigError, so no address is
registered that clients cannot use.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from ottla.model.cluster import Endpoint
from ottla.model.config_keys import split_list, trim
from ottla.model.errors import ConfigError

PROTOCOL_MAP = "listener.security.protocol.map"
SUPPORTED_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ADDRESS = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")
_HIGHEST_PORT = 65535


def parse_map(key: str, text: str) -> dict[str, str]:
    """Parse `name:value,name:value`; blanks around names and values do not count."""
    if not text:
        return {}
    parts = split_list(text)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()  # as Java's `split`: `a:1,` has one part
    found = {}
    for part in parts:
        name, colon, value = part.rpartition(":")
        if not colon:
            raise ConfigError(f"{key}: {part!r} has no colon; write NAME:VALUE,NAME:VALUE")
        found[trim(name)] = trim(value)
    return found


def parse_protocols(text: str) -> dict[str, str]:
    """Parse listener.security.protocol.map: the security protocol of each listener, by name."""
    protocols = {}
    for name, protocol in parse_map(PROTOCOL_MAP, text).items():
        if not name:
            raise ConfigError(f"{PROTOCOL_MAP}: a listener's name is empty; write NAME:PROTOCOL")
        if protocol.upper() not in SUPPORTED_PROTOCOLS:
            raise ConfigError(
                f"{PROTOCOL_MAP}: {name} has the unknown security protocol {protocol!r}; use "
                f"{', '.join(SUPPORTED_PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_endpoints(key: str, text: str, protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Parse `NAME://host:port,...`; the security protocol comes from `protocols`."""
    endpoints: list[Endpoint] = []
    for part in filter(None, split_list(text)):
        found = _ADDRESS.fullmatch(part)
        if found is None or int(found[3]) > _HIGHEST_PORT:
            raise ConfigError(
                f"{key}: {part!r} is not a listener; write NAME://host:port, with letters, digits, "
                "'-', '.', '_' in the host, and a port up to 65535"
            )
        listener = found[1].upper()
        if listener not in protocols:
            raise ConfigError(
                f"{key}: no security protocol for listener {listener}; add it to {PROTOCOL_MAP}"
            )
        if any(e.listener == listener for e in endpoints):
            raise ConfigError(f"{key}: listener {listener} is named twice; give each its own name")
        endpoints.append(Endpoint(found[2], int(found[3]), listener, protocols[listener]))
    if not endpoints:
        raise ConfigError(f"{key} is empty; write NAME://host:port, or remove the key")
    return tuple(endpoints)


def check_ports(key: str, endpoints: Sequence[Endpoint]) -> None:
    """Raise ConfigError for a port of two listeners, unless one is IPv4 and the other IPv6."""
    counts = Counter(endpoint.port for endpoint in endpoints if endpoint.port)
    for port, count in counts.items():
        if count == 1:
            continue
        versions = [ip_version(e.host) for e in endpoints if e.port == port]
        if sorted(versions) != [4, 6]:
            names = ", ".join(e.listener for e in endpoints if e.port == port)
            raise ConfigError(
                f"{key}: listeners {names} share port {port}; give each its own port (an IPv4 and "
                "an IPv6 address may share one)"
            )


def ip_version(host: str) -> int:
    """Return 4 or 6; 0 for what is not an IP address."""
    import ipaddress  # only for listeners that share a port

    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0
