"""SASL to ZooKeeper and the ACLs of znodes: Kafka's settings and system properties.

Invariant: what is half made does not start, with one line that names the key (F40): znodes that
were to be closed are never open. Kafka: `KafkaServer.initZkClient`, `JaasUtils.isZkSaslEnabled`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.zookeeper.security import OPEN, ZooKeeperSecurity

if TYPE_CHECKING:
    from ottla.security.client import ClientTls

SET_ACL = "zookeeper.set.acl"
JAAS_FILE = "java.security.auth.login.config"
"""A setting here, a system property with Kafka, as are the next two."""
SASL = "zookeeper.sasl.client"
SECTION = "zookeeper.sasl.clientconfig"


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
    settings = tls_settings(lambda key: _text_of(config, key), "zookeeper.")
    endpoint = TlsEndpoint(settings, read_bytes, server=False)
    return ClientTls(lambda: endpoint.context, settings.tls13_ciphers)


def _text_of(config: BrokerConfig, key: str) -> str:
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


def zookeeper_security(
    config: BrokerConfig, read_bytes: Callable[[str], bytes]
) -> ZooKeeperSecurity:
    """Return who sessions say they are, and whether znodes get ACLs; ConfigError."""
    file = config.text(JAAS_FILE)
    set_acl = config.flag(SET_ACL)
    if file and not config.flag(SASL):
        raise ConfigError(
            f"{JAAS_FILE} is set, but {SASL}=false: this broker would not authenticate to "
            "ZooKeeper. Remove one of them"
        )
    if file:
        from ottla.security.sasl.jaas import client_of  # for few brokers

        user, password = client_of(
            f"{JAAS_FILE}={file}", _text(file, read_bytes), config.text(SECTION)
        )
        return ZooKeeperSecurity(user, password, set_acl)
    if not set_acl:
        return OPEN
    if not (config.flag(ENABLE) and config.text(KEYS["ssl.keystore.location"])):
        raise ConfigError(
            f"{SET_ACL}=true, but this broker does not authenticate to ZooKeeper: its znodes would "
            f"have no owner. Name a JAAS file with a section Client by {JAAS_FILE}=FILE (with "
            f"Kafka in KAFKA_OPTS), or set {ENABLE}=true and {KEYS['ssl.keystore.location']}"
        )
    return ZooKeeperSecurity(set_acl=True)


def _text(file: str, read_bytes: Callable[[str], bytes]) -> str:
    try:
        data = read_bytes(file)
    except OSError as error:
        raise ConfigError(f"{JAAS_FILE}={file} cannot be read: {error.strerror}") from error
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{JAAS_FILE}={file} is not UTF-8") from None
