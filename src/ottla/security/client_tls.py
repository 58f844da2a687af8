"""Client TLS: what the `ssl.*` keys of Kafka's client.properties say.

Who may call: tools and jobs, for their own connections. Kafka: `SslConfigs`, on the client's side.
"""

from collections.abc import Mapping
from pathlib import Path

from ottla.security.client import ClientTls
from ottla.security.tls import TlsEndpoint
from ottla.security.tls_settings import tls_settings

DEFAULTS = {"ssl.endpoint.identification.algorithm": "https"}


def client_tls(properties: Mapping[str, str]) -> ClientTls:
    """Return a client's TLS; ConfigError for what does not work.

    Without a truststore the system's CAs are trusted, as Java trusts its own.
    """
    settings = tls_settings(lambda key: properties.get(key, DEFAULTS.get(key, "")).strip())
    endpoint = TlsEndpoint(settings, lambda path: Path(path).read_bytes(), server=False)
    return ClientTls(lambda: endpoint.context, settings.tls13_ciphers)
