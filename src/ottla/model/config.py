"""Config: a broker's and a topic's settings, parsed once into typed values.

Invariants: a `BrokerConfig` that exists is valid; anything wrong raises ConfigError naming the key
and the remedy, before anything is done. Keys and defaults are Kafka's (`model.config_keys`). A
default of ours that differs is in `OUR_DEFAULTS`, with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ottla.model.config_checks import check_broker, check_topic
from ottla.model.config_keys import (
    AUTHORIZER_KEYS,
    TOPIC_SYNONYMS,
    ConfigKey,
    broker_keys,
    our_keys,
    protocol_version,
    split_list,
    topic_keys,
    trim,
)
from ottla.model.errors import ConfigError
from ottla.model.listeners import check_ports, parse_endpoints, parse_protocols
from ottla.model.printable import nearest

OUR_DEFAULTS = {
    # Kafka's are unlimited: one client can take every descriptor (RELIABILITY: overload).
    "max.connections": "10000",
    "max.connections.per.ip": "1000",
    # Kafka's is off: parked request bytes would have no bound.
    "queued.max.request.bytes": "67108864",
}

TLS_PROTOCOLS = frozenset({"SSL", "SASL_SSL"})

LISTENER_PREFIX = "listener.name."
"""Before the settings of one listener: `listener.name.internal.ssl.keystore.location`."""

PROVIDERS = "config.providers"
"""Names what resolves `${name:path:key}` (`model.config_providers`)."""

KRAFT = ("process.roles", "controller.quorum.", "controller.listener.", "metadata.log.",
         "metadata.max.", "broker.heartbeat.", "broker.session.", "initial.broker.")  # fmt: skip
"""What settings of KRaft alone begin with."""

LEAST_INTERVAL_S = 0.05
"""The shortest sleep of a loop that repeats forever, whatever its setting."""


def base_name(key: str) -> str:
    """Return a key without the listener it is for, if there is one."""
    if not key.startswith(LISTENER_PREFIX):
        return key
    return key.removeprefix(LISTENER_PREFIX).partition(".")[2]


def is_setting(key: str) -> bool:
    """Return whether a broker reads a key of server.properties."""
    if key in broker_keys() or key in our_keys() or key in AUTHORIZER_KEYS or key == "node.id":
        return True
    if key.startswith(LISTENER_PREFIX):  # `listener.name.x.` may be followed by a mechanism
        name = base_name(key)
        return name in broker_keys() or name.partition(".")[2] in broker_keys()
    return key == PROVIDERS or key.startswith(f"{PROVIDERS}.")


def unknown_setting(key: str) -> str | None:
    """Return what to say of a key that no broker reads, with the one that is likely meant."""
    if is_setting(key):
        return None
    if key.startswith(KRAFT):
        return "KRaft is not served: brokers keep their metadata in ZooKeeper; leave it out"
    prefix = key.removesuffix(base_name(key))
    known = [*broker_keys(), *our_keys(), *AUTHORIZER_KEYS]
    near = nearest(base_name(key), known)
    like = f"; did you mean {prefix}{near}?" if near else ""
    return f"no broker setting of that name{like}"


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings for a log: no passwords, nor what may be one."""
    keys = broker_keys() | topic_keys()
    return {
        name: value
        if (key := keys.get(base_name(name))) is not None and key.type != "password"
        else "[hidden]"
        for name, value in settings.items()
    }


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's settings, typed (Kafka's `LogConfig`). `overrides` are those set on the topic."""

    overrides: Mapping[str, str]
    cleanup_policy: tuple[str, ...]
    compression_type: str
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    leader_replication_throttled_replicas: tuple[str, ...]
    follower_replication_throttled_replicas: tuple[str, ...]

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy


_TOPIC_FIELDS = {
    f: f.replace("_", ".") for f in TopicConfig.__dataclass_fields__ if f != "overrides"
}
_FIELD_OF = {name: field for field, name in _TOPIC_FIELDS.items()}


class BrokerConfig:
    """A broker's settings. `config["key"]` is the typed value of any Kafka key.

    Built from the text values of server.properties. Attributes name what start-up needs; all
    else is read by its Kafka key. Unknown keys are kept in `unknown` and only warned about,
    as Kafka does, since plug-ins bring keys of their own.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = {name: trim(value) for name, value in properties.items()}
        if "broker.id" not in properties and "node.id" in properties:
            self.properties["broker.id"] = self.properties["node.id"]
        self.static_properties = dict(self.properties)
        self._values = dict(_broker_defaults())
        others = [k for k in properties if k not in self._values]
        self.of_listeners = sorted(k for k in others if base_name(k) in broker_keys())
        """settings of single listeners"""
        self.unknown = sorted(set(others).difference(self.of_listeners))
        for name, key in _all_broker_keys().items():
            text = self.properties.get(name)
            if text is not None:
                self._values[name] = key.parse(text)
        self._topic_defaults: dict[str, object] = {}
        # What start-up needs; then all settings are checked with each other.
        self.broker_id = self.integer("broker.id")
        """-1 until one is generated (`identify`)"""
        protocols = parse_protocols(self.text("listener.security.protocol.map"))
        self.listeners = parse_endpoints("listeners", self.text("listeners"), protocols)
        check_ports("listeners", self.listeners)
        advertised = self["advertised.listeners"]
        self.advertised_listeners = (
            self.listeners
            if advertised is None
            else parse_endpoints("advertised.listeners", str(advertised), protocols)
        )
        self.inter_broker_listener = self._inter_broker_listener(protocols)
        self.control_plane_listener = self._control_plane_listener()
        self._check_listener_settings()
        dirs = self.text("log.dir" if self["log.dirs"] is None else "log.dirs")
        self.log_dirs = tuple(filter(None, split_list(dirs)))
        check_broker(self)
        check_topic(self.topic_config({}))

    def override(self, properties: Mapping[str, str]) -> None:
        """Change values in place, for all holders of this object; ConfigError changes nothing.

        What start-up read from here (listeners, log dirs) stays; `static_properties` keeps what
        server.properties said.
        """
        new = BrokerConfig(properties)
        self.properties = new.properties
        self._values = new._values
        self._topic_defaults = new._topic_defaults

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def integer(self, name: str) -> int:
        """Return a whole-number setting."""
        value = self._values[name]
        assert isinstance(value, int)
        return value

    def interval_s(self, name: str) -> float:
        """Return how long a loop sleeps between two rounds, of a setting in milliseconds.

        Kafka allows 0 and less for some and then works without a pause; here other tasks would
        starve.
        """
        return max(self.integer(name) / 1000, LEAST_INTERVAL_S)

    def text(self, name: str) -> str:
        """Return a text setting; empty where it is null."""
        value = self._values[name]
        return value if isinstance(value, str) else ""

    def listener_text(self, listener: str, key: str) -> str:
        """Return a text setting of a listener: `listener.name.<listener>.<key>`, else `key`."""
        own = self.properties.get(f"{LISTENER_PREFIX}{listener.lower()}.{key}")
        return self.text(key) if own is None else own.strip()

    def listener_list(self, listener: str, key: str) -> list[str]:
        """Return a list setting of a listener: its own, else that of all."""
        own = self.properties.get(f"{LISTENER_PREFIX}{listener.lower()}.{key}")
        value = self._values[key] if own is None else broker_keys()[key].parse(own)
        assert isinstance(value, list)
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean setting."""
        value = self._values[name]
        assert isinstance(value, bool)
        return value

    def source_text(self, name: str) -> str | None:
        """Return the effective value as text, as DescribeConfigs shows it."""
        key = broker_keys()[name]
        return self.properties.get(name, OUR_DEFAULTS.get(name, key.default))

    def identify(self, broker_id: int) -> None:
        """Take over the id that was generated for this broker, or that its folders have."""
        self.broker_id = broker_id

    def protocol_of(self, listener: str) -> str:
        """Return the security protocol of one of this broker's listeners."""
        return next(e.protocol for e in self.listeners if e.listener == listener)

    def _control_plane_listener(self) -> str:
        """Return where controllers reach this broker: the inter-broker listener, or its own."""
        named = self["control.plane.listener.name"]
        if named is None:
            return self.inter_broker_listener
        name = str(named).upper()
        if name not in {endpoint.listener for endpoint in self.advertised_listeners}:
            raise ConfigError(
                f"control.plane.listener.name={named} is not an advertised listener; name one, or "
                "remove the key"
            )
        if name == self.inter_broker_listener:
            raise ConfigError(
                f"control.plane.listener.name: {name} is the inter-broker listener; name another "
                "listener, or remove the key"
            )
        return name

    def _check_listener_settings(self) -> None:
        """Check the values of `listener.name.*` keys as those without a listener."""
        for name, value in self.properties.items():
            key = broker_keys().get(base_name(name))
            if key is not None and key.name != name:
                try:
                    key.parse(value)
                except ConfigError as error:
                    raise ConfigError(f"{name}: {error}") from error

    def _inter_broker_listener(self, protocols: Mapping[str, str]) -> str:
        named = self["inter.broker.listener.name"]
        if named is None:  # the listener that bears the protocol's name, as with Kafka
            key, name = (
                "security.inter.broker.protocol",
                self.text("security.inter.broker.protocol"),
            )
        else:
            key, name = "inter.broker.listener.name", str(named).upper()
            if "security.inter.broker.protocol" in self.properties:
                raise ConfigError(
                    "Only one of inter.broker.listener.name and security.inter.broker.protocol "
                    "should be set."
                )
        have = [endpoint.listener for endpoint in self.advertised_listeners]
        if name in have and name in protocols:
            return name
        raise ConfigError(
            f"{key}={name}: brokers would not reach each other: no advertised listener has that "
            f"name; set inter.broker.listener.name to one of {', '.join(have)}"
        )

    @property
    def protocol_level(self) -> tuple[int, int]:
        """Return (major, minor) of inter.broker.protocol.version, as of `3.9-IV0`."""
        version = protocol_version(self.text("inter.broker.protocol.version"))
        assert version is not None, "checked when it was read"
        return version[0], version[1]

    @property
    def broker_only_listeners(self) -> frozenset[str]:
        """Return the listeners that only brokers use; none if there is one for all."""
        own = {self.inter_broker_listener, self.control_plane_listener}
        names = {endpoint.listener for endpoint in self.listeners}
        return frozenset(own & names) if names - own else frozenset()

    def topic_default(self, name: str) -> tuple[str | None, str | None]:
        """Return (value, broker key it comes from) of a topic setting without override."""
        for synonym, factor in TOPIC_SYNONYMS.get(name, ()):
            text = self.properties.get(synonym)
            if text is not None:
                number = broker_keys()[synonym].parse(text)
                if name == "retention.ms" and isinstance(number, int) and number < 0:
                    return "-1", synonym  # Kafka: any negative time is without end
                if factor == 1:
                    return text, synonym
                assert isinstance(number, int)
                return str(number if number < 0 else number * factor), synonym
        return topic_keys()[name].default, None

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Return a topic's typed settings; ConfigError for unknown keys and bad values.

        Each value is checked alone: those of ZooKeeper may contradict each other.
        """
        keys = topic_keys()
        for name in overrides:
            if name not in keys:
                raise ConfigError(f"Unknown topic config name: {name}")
        if not self._topic_defaults:
            self._topic_defaults = {
                field: _topic_value(name, self.topic_default(name)[0])
                for field, name in _TOPIC_FIELDS.items()
            }
        values = dict(self._topic_defaults)
        for name, text in overrides.items():
            value = _topic_value(name, text)
            if (field := _FIELD_OF.get(name)) is not None:
                values[field] = value
        return TopicConfig(overrides=dict(overrides), **values)  # type: ignore[arg-type]

    def checked_topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the typed settings of a topic that is created or altered.

        ConfigError also for what does not fit together, and for what is not served.
        """
        config = self.topic_config(overrides)
        check_topic(config)
        return config


@cache
def _all_broker_keys() -> Mapping[str, ConfigKey]:
    return broker_keys() | our_keys()


@cache
def _broker_defaults() -> Mapping[str, object]:
    """Return the typed values of all broker settings that server.properties does not have."""
    texts = {k: OUR_DEFAULTS.get(k, key.default) for k, key in _all_broker_keys().items()}
    return {
        name: None if text is None else _all_broker_keys()[name].parse(text)
        for name, text in texts.items()
    }


def _topic_value(name: str, text: str | None) -> object:
    value = topic_keys()[name].parse(text)
    return tuple(value) if isinstance(value, list) else value


def default_topic_config(**overrides: str) -> TopicConfig:
    """Return Kafka's default topic settings; `segment_bytes="1000"` overrides segment.bytes."""
    config = BrokerConfig({"zookeeper.connect": "unused:2181", "broker.id": "0"})
    return config.topic_config({k.replace("_", "."): v for k, v in overrides.items()})
