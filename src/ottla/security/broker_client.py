"""How a broker connects to other brokers: as its own settings for the same listener say.

Who may call: whatever of a broker opens connections. Kafka: `ChannelBuilders.clientChannelBuilder`
with the context of a server.
"""

from ottla.model.config import BrokerConfig
from ottla.security.client import ClientSecurity
from ottla.security.sasl.settings import broker_sasl


def broker_security(config: BrokerConfig, listener: str) -> ClientSecurity | None:
    """Return how to connect to the listener of that name of others; None: in the clear."""
    sasl = broker_sasl(config, listener)
    return None if sasl is None else ClientSecurity(sasl=sasl)
