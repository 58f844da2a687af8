"""Client properties: how Kafka's client.properties says to connect.

Kafka: `SslConfigs` and `CommonClientConfigs`, on the client's side.
"""

from collections.abc import Mapping
from pathlib import Path

from ottla.model.config import TLS_PROTOCOLS
from ottla.model.errors import ConfigError
from ottla.model.listeners import SUPPORTED_PROTOCOLS
from ottla.security.client import ClientSecurity, ClientTls
from ottla.security.sasl.settings import tool_sasl, uses_sasl

DEFAULTS = {"ssl.endpoint.identification.algorithm": "https"}
SECRETS = (
    "sasl.jaas.config", "ssl.key.password", "ssl.keystore.key", "ssl.keystore.password",
    "ssl.truststore.password",
)  # fmt: skip
"""Keys whose values Kafka declares as passwords, of those below."""
LOCATIONS = ("ssl.keystore.location", "ssl.truststore.location")
"""Keys of files, which belong to the folder that a program was started in."""
KEYS = (
    "security.protocol", "sasl.mechanism", "sasl.oauthbearer.token.endpoint.url",
    "ssl.cipher.suites", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class", "ssl.keystore.certificate.chain", "ssl.keystore.type",
    "ssl.provider", "ssl.secure.random.implementation", "ssl.truststore.certificates",
    "ssl.truststore.type", *LOCATIONS, *SECRETS,
)  # fmt: skip
"""All that is read here; what names a class of the JVM is refused."""


def client_tls(properties: Mapping[str, str]) -> ClientTls:
    """Return a client's TLS; ConfigError for what does not work.

    Without a truststore the system's CAs are trusted, as Java trusts its own.
    """
    from ottla.security.tls import TlsEndpoint  # lazy: `cryptography`
    from ottla.security.tls_settings import tls_settings

    settings = tls_settings(lambda key: properties.get(key, DEFAULTS.get(key, "")).strip())
    endpoint = TlsEndpoint(settings, lambda path: Path(path).read_bytes(), server=False)
    return ClientTls(lambda: endpoint.context, settings.tls13_ciphers)


def client_security(properties: Mapping[str, str]) -> ClientSecurity | None:
    """Return how a client connects, None: in the clear; ConfigError for what it cannot do."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in SUPPORTED_PROTOCOLS:
        raise ConfigError(
            f"security.protocol={protocol} is not one of {', '.join(SUPPORTED_PROTOCOLS)}"
        )
    if protocol == "PLAINTEXT":
        return None
    return ClientSecurity(
        tls=client_tls(properties) if protocol in TLS_PROTOCOLS else None,
        sasl=tool_sasl(properties) if uses_sasl(protocol) else None,
    )
