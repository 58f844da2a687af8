"""Config: a broker's and a topic's settings, parsed once into typed values.

Who may call: everyone. Invariants: a `BrokerConfig` that exists is valid; anything wrong raises
ConfigError naming the key and the remedy, before anything is done. Keys and defaults are
Kafka's (`model.config_keys`). A default of ours that differs is in `OUR_DEFAULTS`, with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ottla.model.cluster import Endpoint
from ottla.model.config_keys import TOPIC_SYNONYMS, ConfigKey, broker_keys, our_keys, topic_keys
from ottla.model.errors import ConfigError

OUR_DEFAULTS = {
    # Kafka's are unlimited: one client can take every descriptor (RELIABILITY: overload).
    "max.connections": "10000",
    "max.connections.per.ip": "1000",
    # Kafka's is off: parked request bytes would have no bound.
    "queued.max.request.bytes": "67108864",
}

SUPPORTED_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS = frozenset({"SSL", "SASL_SSL"})

LISTENER_PREFIX = "listener.name."
"""Before the settings of one listener: `listener.name.internal.ssl.keystore.location`."""

LEAST_INTERVAL_S = 0.05
"""The shortest sleep of a loop that repeats for ever, whatever its setting."""


def parse_properties(text: str) -> dict[str, str]:
    r"""Parse Java properties: `key=value`, `key: value`, `#`/`!` comments, `\` continuations."""
    result: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        ends = [i for i, c in enumerate(line) if c in "=: \t" and (i == 0 or line[i - 1] != "\\")]
        end = ends[0] if ends else len(line)
        value = line[end:].lstrip(" \t")
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(" \t")
        result[_unescape(line[:end])] = _unescape(value.rstrip())
    return result


def base_name(key: str) -> str:
    """Return a key without the listener it is for, if there is one."""
    if not key.startswith(LISTENER_PREFIX):
        return key
    return key.removeprefix(LISTENER_PREFIX).partition(".")[2]


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings for a log: no passwords, nor what may be one."""
    keys = broker_keys() | topic_keys()
    return {
        name: value
        if (key := keys.get(base_name(name))) is not None and key.type != "password"
        else "[hidden]"
        for name, value in settings.items()
    }


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    chars = iter(text)
    for char in chars:
        if char != "\\":
            out.append(char)
            continue
        code = next(chars, "")
        if code == "u":
            out.append(chr(int("".join(next(chars, "0") for _ in range(4)), 16)))
        else:
            out.append({"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(code, code))
    return "".join(out)


def parse_endpoints(key: str, text: str, protocol_map: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Parse `NAME://host:port,...`; the security protocol comes from `protocol_map`."""
    endpoints: list[Endpoint] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        listener, sep, address = part.partition("://")
        host, colon, port = address.rpartition(":")
        listener = listener.upper()
        if not sep or not colon or not port.isdigit() or int(port) > 65535:
            raise ConfigError(f"{key}: {part!r} is no listener; write NAME://host:port")
        if listener not in protocol_map:
            raise ConfigError(
                f"{key}: no security protocol for listener {listener}; "
                "add it to listener.security.protocol.map"
            )
        if any(e.listener == listener for e in endpoints):
            raise ConfigError(f"{key}: listener {listener} stands twice")
        host = host.removeprefix("[").removesuffix("]")
        endpoints.append(Endpoint(host, int(port), listener, protocol_map[listener]))
    if not endpoints:
        raise ConfigError(f"{key}: no listener given; write PLAINTEXT://host:port")
    return tuple(endpoints)


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


class BrokerConfig:
    """A broker's settings. `config["key"]` is the typed value of any Kafka key.

    Built from the text values of server.properties. Attributes name what start-up needs; all
    else is read by its Kafka key. Unknown keys are kept in `unknown` and only warned about,
    as Kafka does, since plug-ins bring keys of their own.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = dict(properties)
        self.static_properties = dict(properties)
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
        self._check()

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

    def flag(self, name: str) -> bool:
        """Return a boolean setting."""
        value = self._values[name]
        assert isinstance(value, bool)
        return value

    def source_text(self, name: str) -> str | None:
        """Return the effective value as text, as DescribeConfigs shows it."""
        key = broker_keys()[name]
        return self.properties.get(name, OUR_DEFAULTS.get(name, key.default))

    def _check(self) -> None:
        if "process.roles" in self.properties:
            raise ConfigError("process.roles: KRaft is not served; use zookeeper.connect instead")
        if not self.text("zookeeper.connect"):
            raise ConfigError(
                "zookeeper.connect is missing; add zookeeper.connect=host:port[,host:port][/chroot]"
            )
        self.broker_id = self.integer("broker.id")
        top = self.integer("reserved.broker.max.id")
        if not 0 <= self.broker_id <= top:
            raise ConfigError(f"broker.id={self.broker_id} must be between 0 and {top}")
        protocols: dict[str, str] = {}
        for part in filter(None, self.text("listener.security.protocol.map").split(",")):
            name, _, protocol = part.strip().partition(":")
            protocols[name.upper()] = protocol.upper()
        self.listeners = parse_endpoints("listeners", self.text("listeners"), protocols)
        advertised = self.text("advertised.listeners")
        self.advertised_listeners = (
            parse_endpoints("advertised.listeners", advertised, protocols)
            if advertised
            else self.listeners
        )
        for endpoint in self.listeners:
            if endpoint.protocol not in SUPPORTED_PROTOCOLS:
                raise ConfigError(
                    f"listeners: {endpoint.listener} asks for {endpoint.protocol}, which is not "
                    f"served yet; use {' or '.join(SUPPORTED_PROTOCOLS)}"
                )
        names = {endpoint.listener for endpoint in self.listeners}
        for endpoint in self.advertised_listeners:
            if endpoint.listener not in names:
                raise ConfigError(
                    f"advertised.listeners: {endpoint.listener} is not among listeners "
                    f"({', '.join(sorted(names))}); add it there or remove it here"
                )
        self.inter_broker_listener = self._inter_broker_listener()
        self.control_plane_listener = self._control_plane_listener()
        self._check_listener_settings()
        dirs = self.text("log.dirs") or self.text("log.dir")
        self.log_dirs = tuple(d.strip() for d in dirs.split(",") if d.strip())
        if not self.log_dirs:
            raise ConfigError("log.dirs is empty; name at least one folder")
        if len(set(self.log_dirs)) != len(self.log_dirs):
            raise ConfigError("log.dirs names a folder twice")
        wait = self.integer("replica.fetch.wait.max.ms")
        for bound in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
            if wait > self.integer(bound):
                raise ConfigError(f"replica.fetch.wait.max.ms={wait} must not exceed {bound}")
        self.topic_config({})

    def protocol_of(self, listener: str) -> str:
        """Return the security protocol of one of this broker's listeners."""
        return next(e.protocol for e in self.listeners if e.listener == listener)

    def _control_plane_listener(self) -> str:
        """Return where controllers reach this broker: the inter-broker listener, or its own."""
        named = self.text("control.plane.listener.name").upper()
        if not named:
            return self.inter_broker_listener
        if named not in {endpoint.listener for endpoint in self.advertised_listeners}:
            raise ConfigError(f"control.plane.listener.name: no advertised listener {named}")
        if named == self.inter_broker_listener:
            raise ConfigError(
                f"control.plane.listener.name: {named} is the inter-broker listener; name another "
                "listener, or remove the key"
            )
        return named

    def _check_listener_settings(self) -> None:
        """Check the values of `listener.name.*` keys as those without a listener."""
        for name, value in self.properties.items():
            key = broker_keys().get(base_name(name))
            if key is not None and key.name != name:
                try:
                    key.parse(value)
                except ConfigError as error:
                    raise ConfigError(f"{name}: {error}") from error

    def _inter_broker_listener(self) -> str:
        named = self.text("inter.broker.listener.name").upper()
        if named and "security.inter.broker.protocol" in self.properties:
            raise ConfigError(
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should "
                "be set."
            )
        wanted = named or self.text("security.inter.broker.protocol")
        for endpoint in self.advertised_listeners:
            if endpoint.listener == wanted or (not named and endpoint.protocol == wanted):
                return endpoint.listener
        have = ", ".join(e.listener for e in self.advertised_listeners)
        raise ConfigError(
            f"inter.broker.listener.name: no advertised listener {wanted} (there is {have})"
        )

    @property
    def protocol_level(self) -> tuple[int, int]:
        """Return (major, minor) of inter.broker.protocol.version, as of `3.9-IV0`.

        ValueError if it is no version; a broker with such a setting does not start.
        """
        text = self.text("inter.broker.protocol.version")
        major, minor = text.split("-", maxsplit=1)[0].split(".")[:2]
        return int(major), int(minor)

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
                if factor == 1:
                    return text, synonym
                assert isinstance(number, int)
                return str(number if number < 0 else number * factor), synonym
        return topic_keys()[name].default, None

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Return a topic's typed settings; ConfigError for unknown keys and bad values."""
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
        if overrides:
            for field, name in _TOPIC_FIELDS.items():
                if (text := overrides.get(name)) is not None:
                    values[field] = _topic_value(name, text)
        return TopicConfig(overrides=dict(overrides), **values)  # type: ignore[arg-type]


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
