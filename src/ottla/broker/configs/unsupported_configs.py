"""Promises: settings a broker of ours would break, and so refuses to start with (fault F40).

Who may call: `broker.Broker`. Invariants: what guards data or access and is not served is refused,
never ignored; what is merely unknown is named in a warning, since plug-ins bring keys of their own.
"""

import logging

from ottla.broker.authorization.authorizer_settings import AUTHORIZER_KEYS
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.replication.replica_selector import RACK_AWARE

logger = logging.getLogger(__name__)

SWITCHES = {
    "zookeeper.set.acl": "znodes would stay open to everyone",
    "zookeeper.metadata.migration.enable": "there is no way to KRaft from here",
    "remote.log.storage.system.enable": "there is no tiered storage",
}
"""Must not be true; the text says what would happen."""

OLDEST_PROTOCOL, NEWEST_PROTOCOL = (2, 7), (3, 9)
"""Below 2.7 a leader writes its ISR into ZooKeeper by itself, past the controller (KIP-497): what
the controller checks before anybody enters an ISR (R8, R9) would not be checked."""

PLUGINS = (
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
)
"""Java classes that restrict what clients may do."""


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
    unknown = [k for k in config.unknown if k not in SWITCHES and k not in AUTHORIZER_KEYS]
    if unknown:
        logger.warning("unknown settings ignored keys=%s", ",".join(unknown))
