"""Promises: settings a broker of ours would break, and so refuses to start with (fault F40).

Who may call: `broker.Broker`. Invariants: what guards data or access and is not served is refused,
never ignored; what is merely unknown is named in a warning, since plug-ins bring keys of their own.
"""

import logging

from ottla.broker.authorization.authorizer_settings import AUTHORIZER_KEYS
from ottla.model.config import BrokerConfig
from ottla.model.config_keys import broker_keys
from ottla.model.errors import ConfigError
from ottla.replication.replica_selector import RACK_AWARE

logger = logging.getLogger(__name__)

SWITCHES = {
    "zookeeper.metadata.migration.enable": "there is no way to KRaft from here",
    "remote.log.storage.system.enable": "there is no tiered storage",
}
"""Must not be true; the text says what would happen."""

DEFAULT_PRINCIPAL_BUILDER = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)

OLDEST_PROTOCOL, NEWEST_PROTOCOL = (2, 7), (3, 9)
"""Below 2.7 a leader writes its ISR into ZooKeeper by itself, past the controller (KIP-497): what
the controller checks before anybody enters an ISR (R8, R9) would not be checked."""

PLUGINS = (
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
)
"""Java classes that restrict what clients may do."""


def _of_a_listener(config: BrokerConfig, key: str) -> bool:
    """Return whether a key is a known setting of one of this broker's listeners."""
    for endpoint in config.listeners:
        prefix = f"listener.name.{endpoint.listener.lower()}."
        if key.startswith(prefix):
            rest = key.removeprefix(prefix)
            return rest in broker_keys() or rest.partition(".")[2] in broker_keys()
    return False


def refuse_unsupported_configs(config: BrokerConfig) -> None:
    """Raise ConfigError for a setting that would be broken silently; warn of unknown ones."""
    for key, consequence in SWITCHES.items():
        if config.properties.get(key, "").strip().lower() == "true":
            raise ConfigError(f"{key}=true is not served yet: {consequence}. Remove it")
    for key in PLUGINS:
        if config.properties.get(key):
            raise ConfigError(
                f"{key} names a Java class, which cannot run here; what it forbids would be "
                "allowed. Remove it"
            )
    builder = config.properties.get("principal.builder.class", "").strip()
    if builder not in ("", DEFAULT_PRINCIPAL_BUILDER):
        raise ConfigError(
            f"principal.builder.class={builder} names a Java class, which cannot run here; whom it "
            "makes of a client is not known. Remove it"
        )
    selector = config.properties.get("replica.selector.class")
    if selector and selector.strip() != RACK_AWARE:
        raise ConfigError(
            f"replica.selector.class={selector} names a Java class, which cannot run here; the one "
            f"that is built in is {RACK_AWARE}"
        )
    text = config.text("inter.broker.protocol.version")
    try:
        level = config.protocol_level
    except ValueError:
        level = (0, 0)
    if level > NEWEST_PROTOCOL or level == (0, 0):
        raise ConfigError(
            f"inter.broker.protocol.version={text} is not spoken here; it must be 2.7 to 3.9"
        )
    if level < OLDEST_PROTOCOL:
        raise ConfigError(
            f"inter.broker.protocol.version={text} is not spoken here: below 2.7 leaders write the "
            "ISR into ZooKeeper by themselves, and here only the controller does. Bring the JVM "
            "brokers to 2.7 or later first, set inter.broker.protocol.version to their version "
            "(2.7 to 3.9) on all brokers, then start this one"
        )
    unknown = [
        key
        for key in config.unknown
        if key not in SWITCHES and key not in AUTHORIZER_KEYS and not _of_a_listener(config, key)
    ]
    if unknown:
        logger.warning("unknown settings ignored keys=%s", ",".join(unknown))
