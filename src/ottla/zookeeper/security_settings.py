"""SASL to ZooKeeper and the ACLs of znodes: Kafka's settings and system properties.

Invariant: what is half made does not start, with one line that names the key (F40): znodes that
were to be closed are never open. Kafka: `KafkaServer.initZkClient`, `JaasUtils.isZkSaslEnabled`.
"""

from collections.abc import Callable

from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.zookeeper.security import OPEN, ZooKeeperSecurity
from ottla.zookeeper.tls_settings import ENABLE as TLS
from ottla.zookeeper.tls_settings import KEYS

SET_ACL = "zookeeper.set.acl"
JAAS_FILE = "java.security.auth.login.config"
"""A setting here, a system property with Kafka, as are the next two."""
SASL = "zookeeper.sasl.client"
SECTION = "zookeeper.sasl.clientconfig"


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
        from ottla.security.sasl.jaas_file import client_of  # for few brokers

        user, password = client_of(
            f"{JAAS_FILE}={file}", _text(file, read_bytes), config.text(SECTION)
        )
        return ZooKeeperSecurity(user, password, set_acl)
    if not set_acl:
        return OPEN
    if not (config.flag(TLS) and config.text(KEYS["ssl.keystore.location"])):
        raise ConfigError(
            f"{SET_ACL}=true, but this broker does not authenticate to ZooKeeper: its znodes would "
            f"have no owner. Name a JAAS file with a section Client by {JAAS_FILE}=FILE (with "
            f"Kafka in KAFKA_OPTS), or set {TLS}=true and {KEYS['ssl.keystore.location']}"
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
