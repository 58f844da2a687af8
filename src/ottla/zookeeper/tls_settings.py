"""TLS to ZooKeeper: Kafka's `zookeeper.ssl.*` settings.

Invariant: with `zookeeper.ssl.client.enable=true` nothing is ever said to ZooKeeper in the clear,
and its certificate and host name are checked. ZooKeeper: `ClientX509Util`; Kafka: KIP-515.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError

if TYPE_CHECKING:
    from ottla.security.client import ClientTls

ENABLE = "zookeeper.ssl.client.enable"
KEYS = {
    "ssl.keystore.location": "zookeeper.ssl.keystore.location",
    "ssl.keystore.password": "zookeeper.ssl.keystore.password",
    "ssl.keystore.type": "zookeeper.ssl.keystore.type",
    "ssl.truststore.location": "zookeeper.ssl.truststore.location",
    "ssl.truststore.password": "zookeeper.ssl.truststore.password",
    "ssl.truststore.type": "zookeeper.ssl.truststore.type",
    "ssl.cipher.suites": "zookeeper.ssl.cipher.suites",
    "ssl.enabled.protocols": "zookeeper.ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm": "zookeeper.ssl.endpoint.identification.algorithm",
}
CHECKS = ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")
TYPES = {".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12", ".jks": "JKS"}
"""By the ends of files' names, where no type is set."""
PEM = "PEM"


def zookeeper_tls(config: BrokerConfig, read_bytes: Callable[[str], bytes]) -> "ClientTls | None":
    """Return the TLS of sessions, None: in the clear. ConfigError."""
    if not config.flag(ENABLE):
        return None
    from ottla.security.client import ClientTls
    from ottla.security.tls import TlsEndpoint
    from ottla.security.tls_settings import tls_settings

    for key in CHECKS:
        if config.flag(key):
            raise ConfigError(f"{key}=true: revocation is not checked here; remove it")
    settings = tls_settings(lambda key: _text(config, key), "zookeeper.")
    endpoint = TlsEndpoint(settings, read_bytes, server=False)
    return ClientTls(lambda: endpoint.context, settings.tls13_ciphers)


def _text(config: BrokerConfig, key: str) -> str:
    """Return what stands for an `ssl.*` key; ZooKeeper's PEM has its key's password elsewhere."""
    if key.endswith("store.type"):
        return _type(config, key)
    if key == "ssl.key.password":
        of_store = KEYS["ssl.keystore.password"]
        return config.text(of_store) if _type(config, "ssl.keystore.type") == PEM else ""
    if key.endswith("store.password") and _type(config, key.replace("password", "type")) == PEM:
        return ""
    if key not in KEYS:
        return ""
    value = config[KEYS[key]]
    return ",".join(value) if isinstance(value, list) else str(value or "")


def _type(config: BrokerConfig, key: str) -> str:
    location = config.text(KEYS[key.replace("type", "location")])
    named = config.text(KEYS[key])
    return named or next((t for end, t in TYPES.items() if location.endswith(end)), "")
