"""ClientSecurity: how a client connects to one listener.

Who may call: `net.peer`, which obeys it; whoever makes connections: brokers, tools, `net.client`.
A plain value. Kafka: `SslConfigs` and `SaslConfigs` of a client.
"""

from dataclasses import dataclass

from ottla.security.sasl.exchange import SaslClient


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """How a client connects to one listener. None: without."""

    sasl: SaslClient | None = None
