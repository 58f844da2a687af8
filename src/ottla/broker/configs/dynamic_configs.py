"""Dynamic configs: settings of this broker that change while it runs (KIP-226).

Who may call: `topic_configs`, which hears of changes; the handlers that alter and describe them.
Three layers over the defaults: server.properties, then /config/brokers/<default> for all brokers,
then /config/brokers/<id>. Invariants:
- what is in force is one valid whole; a bad value in ZooKeeper is left out, said and survived (F41)
- what would be kept and never obeyed is refused when it is set; thread counts are accepted as
  Kafka accepts them, for they promise nothing to anyone

Kafka: `DynamicBrokerConfig`, `DynamicConfig.Broker` and `BrokerConfigHandler`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.configs.config_entries import (
    DYNAMIC_KEYS,
    DYNAMIC_ONLY_KEYS,
    Layers,
    synonym_family,
)
from ottla.model.config import LISTENER_PREFIX, BrokerConfig, base_name
from ottla.model.config_keys import broker_keys
from ottla.model.errors import ConfigError, ErrorCode, OttlaError
from ottla.replication.throttle import UNBOUNDED

if TYPE_CHECKING:
    from ottla.zookeeper.store import Store

logger = logging.getLogger(__name__)

CLUSTER_DEFAULT = "<default>"

SSL_STORES = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""These change for one listener at a time, as with Kafka: `listener.name.<listener>.ssl...`."""

UNSERVED = frozenset(
    {
        "advertised.listeners",
        "listener.security.protocol.map",
        "listeners",
        "max.connections.per.ip.overrides",
        "metric.reporters",
        "principal.builder.class",
    }
) | frozenset(k for k in DYNAMIC_KEYS if k.startswith(("ssl.", "sasl.")))
"""Kafka changes these while it runs; a broker of ours would keep them and not obey."""

LISTENER_PASSWORDS = frozenset(key for key in SSL_STORES if broker_keys()[key].type == "password")
"""In ZooKeeper everyone could read them."""

OF_LISTENERS = frozenset(k for k in DYNAMIC_KEYS if k.startswith("ssl."))
"""What may change for one listener."""

KRAFT = ("node.id", "process.roles", "controller.quorum.", "controller.listener.", "metadata.log.")
"""How settings begin that Kafka knows, never changes while it runs, and that do nothing here."""

THREAD_COUNTS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)

CLEANER_THREADS = "log.cleaner.threads"


class BadDynamicConfigError(OttlaError):
    """A setting of a broker cannot be changed so. Kafka says INVALID_REQUEST (KAFKA-13609)."""

    code = ErrorCode.INVALID_REQUEST


def layered(base: Mapping[str, str], *layers: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of all layers, later ones over earlier ones and their synonyms.

    `log.retention.hours` set dynamically wins over `log.retention.ms` of the file.
    """
    merged = dict(base)
    for layer in layers:
        for name, value in layer.items():
            for synonym in synonym_family(name):
                merged.pop(synonym, None)
            merged[name] = value
    return merged


def check_names(settings: Mapping[str, str]) -> None:
    """Raise BadDynamicConfigError for settings that do not change while a broker runs."""
    known = broker_keys()
    fixed = [
        name
        for name in settings
        if (name in known and name not in DYNAMIC_KEYS and name not in DYNAMIC_ONLY_KEYS)
        or (name in UNSERVED and name not in SSL_STORES)
        or (name.startswith(LISTENER_PREFIX) and base_name(name) not in OF_LISTENERS)
        or name.startswith(KRAFT)
    ]
    _refuse(fixed, "Cannot update these configs dynamically")
    _refuse(
        [name for name in settings if is_of_listener(name, LISTENER_PASSWORDS)],
        "Passwords and keys are not kept in ZooKeeper here; put them into server.properties or a "
        "file that ssl.keystore.location names",
    )
    _refuse(
        [name for name in settings if name in SSL_STORES],
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
    )
    for name, value in settings.items():
        key = DYNAMIC_ONLY_KEYS.get(name) or known.get(base_name(name))
        if key is not None:
            try:
                key.parse(value)
            except ConfigError as error:
                raise BadDynamicConfigError(str(error)) from error


def is_of_listener(name: str, keys: Collection[str] = OF_LISTENERS) -> bool:
    """Return whether a setting is one of these, for a single listener."""
    return name.startswith(LISTENER_PREFIX) and base_name(name) in keys


def _refuse(names: Iterable[str], why: str) -> None:
    listed = ", ".join(names)
    if listed:
        raise BadDynamicConfigError(f"{why}: Set({listed})")


class DynamicConfigs:
    """What is set for this broker and for all, and in force over its server.properties."""

    def __init__(self, config: BrokerConfig, on_update: Callable[[frozenset[str]], None]) -> None:
        self._config = config
        self._on_update = on_update
        self.check_tls: Callable[[Mapping[str, str]], None] = lambda _: None
        """raises ConfigError unless the listeners could take these settings over"""
        self.own: dict[str, str] = {}
        self.defaults: dict[str, str] = {}

    @property
    def layers(self) -> Layers:
        """What is set now, as the entries of DescribeConfigs are made from."""
        return Layers(self.own, self.defaults)

    def throttle(self, name: str) -> float:
        """Return a throttled rate in bytes per second; without bound where it is not set."""
        text = self.own.get(name, self.defaults.get(name))
        return UNBOUNDED if text is None else float(int(text))

    async def load(self, store: "Store") -> None:
        """Read both layers through a new session."""
        own = str(self._config.broker_id)
        found = await store.get_entities_configs("brokers", [CLUSTER_DEFAULT, own])
        self._take(found[CLUSTER_DEFAULT], found[own])

    async def refresh(self, store: "Store", name: str) -> None:
        """Read one layer again: a change was notified."""
        if name == CLUSTER_DEFAULT:
            self._take(await store.get_entity_configs("brokers", name), self.own)
        elif name == str(self._config.broker_id):
            self._take(self.defaults, await store.get_entity_configs("brokers", name))

    def check(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Raise BadDynamicConfigError unless a layer may become `settings`."""
        check_names(settings)
        if not per_broker:
            of_listeners = [name for name in settings if is_of_listener(name)]
            _refuse(of_listeners, "Cannot update these configs at default cluster level")
        static = self._config.static_properties
        if per_broker:
            merged = layered(static, self.defaults, settings)
        else:
            merged = layered(static, settings, self.own)
        try:
            new = BrokerConfig(merged)
            if any(is_of_listener(name) for name in settings):
                self.check_tls(merged)
        except ConfigError as error:
            raise BadDynamicConfigError(str(error)) from error
        for name in THREAD_COUNTS:
            _check_thread_count(name, self._config.integer(name), new.integer(name))
        _check_cleaner_threads(self._config.integer(CLEANER_THREADS), new.integer(CLEANER_THREADS))

    def _take(self, defaults: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Put both layers in force, but for what cannot be."""
        before = self._everything()
        self.defaults = _usable(defaults)
        self.own = _usable(own)
        static = self._config.static_properties
        try:
            self._config.override(layered(static, self.defaults, self.own))
        except ConfigError as error:
            # Each setting is valid, all together are not: what was in force stays in force.
            logger.warning("dynamic settings not applied error=%s", error)
            return
        after = self._everything()
        names = before.keys() | after.keys()
        changed = frozenset(n for n in names if before.get(n) != after.get(n))
        if not changed and any(map(is_of_listener, after)):
            self._on_update(changed)  # the file may have changed, as with Kafka
        if changed:
            logger.info(
                "dynamic settings broker=%d keys=%s", self._config.broker_id, sorted(changed)
            )
            self._on_update(changed)

    def _everything(self) -> dict[str, str]:
        return layered(self.defaults, self.own)


def _usable(settings: Mapping[str, str]) -> dict[str, str]:
    usable = {}
    for name, value in settings.items():
        try:
            check_names({name: value})
        except BadDynamicConfigError as error:
            logger.warning("dynamic setting ignored key=%s error=%s", name, error)
        else:
            usable[name] = value
    return usable


def _check_thread_count(name: str, now: int, wanted: int) -> None:
    """Refuse to more than double or halve a count, as Kafka does (`DynamicThreadPool`)."""
    if wanted == now:
        return
    if wanted < now // 2:
        why = f"value should be at least half the current value {now}"
    elif wanted > now * 2:
        why = f"value should not be greater than double the current value {now}"
    else:
        return
    raise BadDynamicConfigError(
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update "
        f"validation failed for {name}={wanted}, {why} for configuration Invalid dynamic "
        "configuration"
    )


def _check_cleaner_threads(now: int, wanted: int) -> None:
    """Refuse the same of the cleaner's, in its words (`LogCleaner.validateReconfiguration`)."""
    if wanted == now:
        return
    if wanted < 1:
        why = "should be at least 1"
    elif wanted < now // 2:
        why = f"cannot be reduced to less than half the current value {now}"
    elif wanted > now * 2:
        why = f"cannot be increased to more than double the current value {now}"
    else:
        return
    raise BadDynamicConfigError(
        f"Invalid value org.apache.kafka.common.config.ConfigException: Log cleaner threads {why} "
        "for configuration Invalid dynamic configuration"
    )
