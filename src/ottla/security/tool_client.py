"""How a tool connects: as Kafka's client.properties, or options of those names, say.

Who may call: the command line, Spark jobs. Kafka: `ChannelBuilders.clientChannelBuilder`.
"""

from collections.abc import Mapping

from ottla.model.config import SUPPORTED_PROTOCOLS
from ottla.model.errors import ConfigError
from ottla.security.client import ClientSecurity
from ottla.security.sasl.settings import tool_sasl, uses_sasl


def tool_security(properties: Mapping[str, str]) -> ClientSecurity | None:
    """Return how to connect, None for in the clear; ConfigError for what cannot be done."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in SUPPORTED_PROTOCOLS:
        raise ConfigError(
            f"security.protocol={protocol}: only {' and '.join(SUPPORTED_PROTOCOLS)} are "
            "supported, by tools as by brokers"
        )
    return ClientSecurity(sasl=tool_sasl(properties)) if uses_sasl(protocol) else None
