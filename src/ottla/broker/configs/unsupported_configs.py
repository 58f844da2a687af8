"""Promises: settings a broker of ours would break, and so refuses to start with (fault F40).

Invariants: what guards data or access and is not served is refused, never ignored; what is merely
unknown is named in a warning, since plug-ins bring keys of their own.
"""

import logging

from ottla.model.config import BrokerConfig, is_setting
from ottla.model.errors import ConfigError
from ottla.replication.replica_manager import RACK_AWARE
from ottla.security.sasl.settings import VALIDATOR

logger = logging.getLogger(__name__)

SWITCHES = {
    "zookeeper.metadata.migration.enable": "there is no way to KRaft from here",
    "remote.log.storage.system.enable": "there is no tiered storage",
}
"""Must not be true; the text says what would happen."""

OLDEST_PROTOCOL, NEWEST_PROTOCOL = (2, 7), (3, 9)
"""Below 2.7 a leader writes its ISR into ZooKeeper by itself, past the controller (KIP-497): what
the controller checks before anybody enters an ISR (R8, R9) would not be checked."""

CLASSES: dict[str, tuple[tuple[str, ...], str]] = {
    "alter.config.policy.class.name": ((), "what it forbids would be allowed"),
    "client.quota.callback.class": ((), "what it forbids would be allowed"),
    "create.topic.policy.class.name": ((), "what it forbids would be allowed"),
    "principal.builder.class": (
        ("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",),
        "whom it makes of a client is not known",
    ),
    "replica.selector.class": ((RACK_AWARE,), "which replica it chooses is not known"),
    "sasl.client.callback.handler.class": ((), "what it sends is not known"),
    "sasl.server.callback.handler.class": (VALIDATOR, "whom it lets in is not known"),
    "ssl.engine.factory.class": ((), "which connections it makes is not known"),
}
"""Java classes: those that are built in, and what would be wrong with others."""


def refuse_unsupported_configs(config: BrokerConfig) -> None:
    """Raise ConfigError for a setting that would be broken silently; warn of unknown ones."""
    for key, consequence in SWITCHES.items():
        if config.properties.get(key, "").strip().lower() == "true":
            raise ConfigError(f"{key}=true is not served yet: {consequence}. Remove it")
    for key, (built_in, consequence) in CLASSES.items():
        named = config.properties.get(key)
        if named and named not in built_in:
            way_out = f"Use {' or '.join(built_in)}, or remove it" if built_in else "Remove it"
            raise ConfigError(
                f"{key}={named} names a Java class, which cannot run here; {consequence}. {way_out}"
            )
    text = config.text("inter.broker.protocol.version")
    level = config.protocol_level
    if level > NEWEST_PROTOCOL:
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
    unknown = [key for key in config.unknown if key not in SWITCHES and not is_setting(key)]
    if unknown:
        logger.warning("unknown settings ignored keys=%s", ",".join(unknown))
