"""Dynamic configs: settings of this broker that change while it runs (KIP-226).

Three layers over the defaults: server.properties, then /config/brokers/<default> for all brokers,
then /config/brokers/<id>. Invariants:
- what is in force is one valid whole; a bad value in ZooKeeper is left out, said and survived (F41)
- what would be kept and never obeyed is refused when it is set; thread counts are accepted as
  Kafka accepts them, for they promise nothing to anyone
- passwords are in the clear in memory alone: in ZooKeeper they are encrypted by
  `password.encoder.secret`, and without it refused

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
from ottla.model.config import LISTENER_PREFIX, PROVIDERS, BrokerConfig, base_name
from ottla.model.config_checks import check_local_retention
from ottla.model.config_keys import broker_keys
from ottla.model.errors import ConfigError, ControllerMovedError, ErrorCode, OttlaError
from ottla.replication.throttle import UNBOUNDED
from ottla.security.config_providers import provider_names, refers_to
from ottla.security.password_encoder import OLD_SECRET, PasswordEncoder, password_encoder

if TYPE_CHECKING:
    from ottla.zookeeper.configs import Configs

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
"""In ZooKeeper these are encrypted."""

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

NOT_CONFIGURED = "Password encoder secret not configured"
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
        or name == PROVIDERS
        or name.startswith(f"{PROVIDERS}.")
    ]
    _refuse(fixed, "Cannot update these configs dynamically")
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

    def __init__(
        self,
        config: BrokerConfig,
        on_update: Callable[[frozenset[str]], None],
        check_tls: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:
        self._config = config
        self._on_update = on_update
        self._check_tls = check_tls
        """raises ConfigError unless the listeners could take these settings over"""
        self._encoder = password_encoder(config)
        self._old_encoder = password_encoder(config, OLD_SECRET)
        self._providers = provider_names(config.static_properties)
        self._decoded: dict[str, str] = {}
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

    async def load(self, stored: "Configs") -> None:
        """Read both layers through a new session.

        Passwords that the old secret has encrypted are encrypted by the new one then.
        """
        own = str(self._config.broker_id)
        found = await stored.get_many("brokers", [CLUSTER_DEFAULT, own])
        renewed = self._renewed(found[own])
        if renewed != found[own]:
            try:
                await stored.set_first("brokers", own, renewed)
            except ControllerMovedError as error:  # the next session tries again
                logger.warning("dynamic passwords not encrypted anew error=%s", error)
        self._take(found[CLUSTER_DEFAULT], self.from_stored(renewed))

    async def refresh(self, stored: "Configs", name: str) -> None:
        """Read one layer again: a change was notified."""
        if name == CLUSTER_DEFAULT:
            self._take(await stored.get("brokers", name), self.own)
        elif name == str(self._config.broker_id):
            settings = await stored.get("brokers", name)
            self._take(self.defaults, self.from_stored(settings))

    def from_stored(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return settings of this broker as they are meant, from how they stand in ZooKeeper.

        A password that cannot be decoded is left out, and said.
        """
        known, self._decoded = self._decoded, {}
        found = {}
        for name, value in settings.items():
            if not is_of_listener(name, LISTENER_PASSWORDS):
                found[name] = value
                continue
            try:
                # Each costs thousands of hashes, and all are read with each change of any setting.
                found[name] = known[value] if value in known else self._needed().decode(value)
            except ConfigError as error:
                logger.error("dynamic password ignored key=%s error=%s", name, error)  # noqa: TRY400
            else:
                self._decoded[value] = found[name]
        return found

    def to_stored(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return settings as they are to stand in ZooKeeper, passwords encrypted again.

        ConfigError if there is a password, and no secret.
        """
        try:
            return {
                name: self._needed().encode(value)
                if is_of_listener(name, LISTENER_PASSWORDS)
                else value
                for name, value in settings.items()
            }
        except ConfigError as error:
            where = f"ConfigResource(type=BROKER, name='{self._config.broker_id}')"
            raise ConfigError(f"Invalid config value for resource {where}: {error}") from error

    def _needed(self) -> PasswordEncoder:
        if self._encoder is None:
            raise ConfigError(NOT_CONFIGURED)
        return self._encoder

    def _renewed(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return stored settings, passwords encrypted by the new secret instead of the old one."""
        found = dict(settings)
        for name, value in settings.items():
            if self._old_encoder is None or not is_of_listener(name, LISTENER_PASSWORDS):
                continue
            try:
                password = self._old_encoder.decode(value)
            except ConfigError:
                continue  # the new secret has encrypted it already, as after each later restart
            found[name] = self._needed().encode(password)
        return found

    def check(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Raise BadDynamicConfigError unless a layer may become `settings`."""
        check_names(settings)
        _refuse_references(settings, self._providers)
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
            check_local_retention(new)
            if self._check_tls is not None and any(map(is_of_listener, settings)):
                self._check_tls(merged)
        except ConfigError as error:
            raise BadDynamicConfigError(str(error)) from error
        for name in THREAD_COUNTS:
            _check_thread_count(name, self._config.integer(name), new.integer(name))
        _check_cleaner_threads(self._config.integer(CLEANER_THREADS), new.integer(CLEANER_THREADS))

    def _take(self, defaults: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Put both layers in force, but for what cannot be."""
        before = self._everything()
        self.defaults = _usable(defaults, self._providers)
        self.own = _usable(own, self._providers)
        static = self._config.static_properties
        try:
            self._config.override(layered(static, self.defaults, self.own))
        except ConfigError:
            self.defaults, self.own = map(self._valid_alone, (self.defaults, self.own))
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

    def _valid_alone(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return the settings that fit server.properties; one bad one does not take others down."""
        valid = {}
        for name, value in settings.items():
            try:
                BrokerConfig(layered(self._config.static_properties, {name: value}))
            except ConfigError as error:
                logger.warning("dynamic setting ignored key=%s error=%s", name, error)
            else:
                valid[name] = value
        return valid

    def _everything(self) -> dict[str, str]:
        return layered(self.defaults, self.own)


def _refuse_references(settings: Mapping[str, str], providers: frozenset[str]) -> None:
    """Refuse values that config providers would have to resolve: the text would be the value."""
    _refuse(
        [name for name, value in settings.items() if refers_to(value, providers)],
        "References to config.providers are resolved in server.properties only",
    )


def _usable(settings: Mapping[str, str], providers: frozenset[str]) -> dict[str, str]:
    usable = {}
    for name, value in settings.items():
        try:
            check_names({name: value})
            _refuse_references({name: value}, providers)
        except BadDynamicConfigError as error:
            logger.warning("dynamic setting ignored key=%s error=%s", name, error)
        else:
            usable[name] = value
    return usable


def _check_thread_count(name: str, now: int, wanted: int) -> None:
    """Refuse to more than double or halve a count, as Kafka does (`DynamicThreadPool`)."""
    if wanted == now:
        return
    if wanted < 1:
        why = "value should be at least 1"
    elif wanted < now // 2:
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
