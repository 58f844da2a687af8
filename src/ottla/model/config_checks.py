"""Config checks: what settings must be to each other, and never: the one place for it.

Invariants: what Kafka refuses is refused (`KafkaConfig.validateValues`, `LogConfig.validateValues`,
`ListenerConnectionQuota.validateReconfiguration`); a message names the settings, what goes wrong,
and the way out. Ranges of single values are in `config_keys`.
"""

from collections.abc import Mapping
from typing import Protocol

from ottla.model.cluster import Endpoint
from ottla.model.config_keys import ConfigKey
from ottla.model.errors import ConfigError
from ottla.model.listeners import parse_map

_BYTES_PER_CLEANER = 1024 * 1024
_AS_THE_WHOLE = -2
_NODE_ID = ConfigKey("node.id", "int", "-1")
_HOST = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-%._:")


class BrokerSettings(Protocol):
    """What the checks read of a `model.config.BrokerConfig`."""

    properties: dict[str, str]
    broker_id: int
    listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...]
    log_dirs: tuple[str, ...]

    def __getitem__(self, name: str) -> object: ...

    def integer(self, name: str) -> int: ...

    def text(self, name: str) -> str: ...

    def flag(self, name: str) -> bool: ...

    def topic_default(self, name: str) -> tuple[str | None, str | None]: ...


class TopicSettings(Protocol):
    """What the checks read of a `model.config.TopicConfig`."""

    @property
    def overrides(self) -> Mapping[str, str]: ...

    @property
    def min_compaction_lag_ms(self) -> int: ...

    @property
    def max_compaction_lag_ms(self) -> int: ...


def check_broker(config: BrokerSettings) -> None:
    """Raise ConfigError for a broker's settings that Kafka refuses together."""
    _check_mode(config)
    _check_broker_id(config)
    _check_advertised(config)
    _check_log(config)
    _check_replication(config)
    _check_connections(config)


def check_topic(config: TopicSettings) -> None:
    """Raise ConfigError for a topic's settings that Kafka refuses together, or with ZooKeeper."""
    low, high = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > "
            f"max.compaction.lag.ms ({high}); lower the one or raise the other"
        )
    for name in ("remote.log.copy.disable", "remote.log.delete.on.disable"):
        if _is_true(config, name):
            raise ConfigError(
                "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` "
                "under Zookeeper's mode."
            )
    if _is_true(config, "remote.storage.enable"):
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage."
        )


def check_local_retention(config: BrokerSettings) -> None:
    """Raise ConfigError for tiers that Kafka compares when they change dynamically, and only then.

    Kafka: `DynamicLogConfig.validateReconfiguration`.
    """
    for unit in ("ms", "bytes"):
        kept = int(config.topic_default(f"retention.{unit}")[0] or -1)
        name = f"log.local.retention.{unit}"
        local = config.integer(name)
        if kept == -1 or local == _AS_THE_WHOLE:
            continue
        if local == -1 or local > kept:
            raise ConfigError(
                f"Invalid value {local} for configuration {name}: Value must not be -1 or more "
                f"than log.retention.{unit}={kept}; -2 stands for that value"
            )


def _is_true(config: TopicSettings, name: str) -> bool:
    return config.overrides.get(name, "").strip().lower() == "true"


def _check_mode(config: BrokerSettings) -> None:
    if config.properties.get("process.roles"):
        raise ConfigError("process.roles: KRaft is not served; use zookeeper.connect instead")
    if config.properties.get("controller.listener.names"):
        raise ConfigError(
            "controller.listener.names must be empty when not running in KRaft mode; remove it"
        )
    if not config.text("zookeeper.connect"):
        raise ConfigError(
            "zookeeper.connect is missing; add zookeeper.connect=host:port[,host:port][/chroot]"
        )


def _check_broker_id(config: BrokerSettings) -> None:
    text = config.properties.get("node.id")
    if text is not None and _NODE_ID.parse(text) != config.broker_id:
        raise ConfigError(
            f"node.id={text} and broker.id={config.broker_id} differ; set one of them, or both to "
            "the same number"
        )
    top = config.integer("reserved.broker.max.id")
    if not config.flag("broker.id.generation.enable"):
        if config.broker_id < 0:
            raise ConfigError(
                f"broker.id={config.broker_id} must be 0 or more, since broker.id.generation.enable"
                "=false; set broker.id"
            )
    elif not -1 <= config.broker_id <= top:
        raise ConfigError(
            f"broker.id={config.broker_id} must be between -1 (generate one) and "
            f"reserved.broker.max.id={top}; ids above it are generated: raise "
            "reserved.broker.max.id, or set broker.id.generation.enable=false"
        )


def _check_advertised(config: BrokerSettings) -> None:
    names = {endpoint.listener for endpoint in config.listeners}
    for endpoint in config.advertised_listeners:
        if endpoint.listener not in names:
            raise ConfigError(
                f"advertised.listeners: {endpoint.listener} is not among listeners "
                f"({', '.join(sorted(names))}); add it there or remove it here"
            )
        if endpoint.host == "0.0.0.0":  # compared, not bound # noqa: S104 # nosec B104
            raise ConfigError(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0: clients "
                "would connect to themselves. Set advertised.listeners to an address by which "
                "clients reach this broker"
            )


def _check_log(config: BrokerSettings) -> None:
    number = config.integer
    retention, of = config.topic_default("retention.ms")
    if int(retention or 0) == 0:
        raise ConfigError(
            f"{of}=0: retention must be unlimited (-1) or 1 or more; 0 would delete every record"
        )
    for name, least in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        value = config[name]
        if isinstance(value, int) and value < least:
            raise ConfigError(f"{name}={value} must be {least} or more")
    if not config.log_dirs:
        raise ConfigError("log.dirs is empty; name at least one folder")
    if len(set(config.log_dirs)) != len(config.log_dirs):
        raise ConfigError("log.dirs names a folder twice")
    memory, threads = number("log.cleaner.dedupe.buffer.size"), number("log.cleaner.threads")
    if threads < 1:
        raise ConfigError(
            f"log.cleaner.threads={threads} must be 1 or more; log.cleaner.enable=false switches "
            "the cleaner off"
        )
    if memory // threads <= _BYTES_PER_CLEANER:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread: "
            f"{memory} for log.cleaner.threads={threads} is too small"
        )


def _check_replication(config: BrokerSettings) -> None:
    number = config.integer
    wait = number("replica.fetch.wait.max.ms")
    for limit in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait > number(limit):
            raise ConfigError(
                f"replica.fetch.wait.max.ms={wait} must not exceed {limit}={number(limit)}"
            )
    acks, replicas = "offsets.commit.required.acks", "offsets.topic.replication.factor"
    if not -1 <= number(acks) <= number(replicas):
        raise ConfigError(
            f"{acks}={number(acks)} must be between -1 and {replicas}={number(replicas)}"
        )


def _check_connections(config: BrokerSettings) -> None:
    number = config.integer
    queued, frame = "queued.max.request.bytes", "socket.request.max.bytes"
    if queued in config.properties and 0 < number(queued) < number(frame):
        raise ConfigError(
            f"{queued}={number(queued)} must be larger or equal to {frame}={number(frame)}"
        )
    for name in ("max.connections", "max.connection.creation.rate"):
        if number(name) == 0:
            raise ConfigError(
                f"Invalid {name} 0: no client and no other broker could connect; set 1 or more"
            )
    _check_connection_overrides(config.text("max.connections.per.ip.overrides"))
    if number("max.connections.per.ip") == 0:
        raise ConfigError(
            "max.connections.per.ip=0: no client and no other broker could connect, since "
            "max.connections.per.ip.overrides has no effect here; set 1 or more"
        )
    idle, delay = number("connections.max.idle.ms"), "connection.failed.authentication.delay.ms"
    if 0 <= idle <= number(delay):
        raise ConfigError(
            f"{delay}={number(delay)} should always be less than connections.max.idle.ms={idle} to "
            "prevent failed authentication responses from timing out"
        )


def _check_connection_overrides(text: str) -> None:
    key = ConfigKey("max.connections.per.ip.overrides", "int", None)
    for host, count in parse_map(key.name, text).items():
        if not set(host) <= _HOST:
            raise ConfigError(f"{key.name} contains invalid addresses : {host}")
        key.parse(count)
