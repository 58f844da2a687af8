"""Config entries: settings as DescribeConfigs shows them, with where they come from.

Invariants: plain values in, plain values out; order of precedence and which synonyms are shown are
those of Kafka's `ConfigHelper` and `DynamicBrokerConfig`, oddities included (a topic's
`retention.ms` that comes from `log.retention.hours` counts as a default). Passwords and settings we
do not know are never shown.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from ottla.model.config import OUR_DEFAULTS, BrokerConfig, base_name
from ottla.model.config_keys import TOPIC_SYNONYMS, ConfigKey, broker_keys, topic_keys
from ottla.model.throttle_settings import LEASE, RATES


class Source(IntEnum):
    """Where a value comes from (Kafka's `ConfigSource`)."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


TYPE_NUMBERS = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,  # a number - the type's # nosec B105
}

_FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)

_DYNAMIC_KEYS = """\
advertised.listeners background.threads compression.gzip.level compression.lz4.level
compression.type compression.zstd.level listener.security.protocol.map
listeners log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio
log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy
log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes
log.index.size.max.bytes log.local.retention.bytes log.local.retention.ms
log.message.downconversion.enable log.message.timestamp.after.max.ms
log.message.timestamp.before.max.ms log.message.timestamp.difference.max.ms
log.message.timestamp.type log.preallocate log.retention.bytes log.retention.ms log.roll.jitter.ms
log.roll.ms log.segment.bytes log.segment.delete.delay.ms max.connection.creation.rate
max.connections max.connections.per.ip max.connections.per.ip.overrides message.max.bytes
metric.reporters min.insync.replicas num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.fetchers principal.builder.class
producer.id.expiration.ms sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.mechanism.inter.broker.protocol ssl.cipher.suites
ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain
ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol
ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
transaction.partition.verification.enable unclean.leader.election.enable"""

DYNAMIC_KEYS = frozenset(_DYNAMIC_KEYS.split())
"""Broker settings a JVM broker changes while it runs; all others are shown as read-only."""


class Synonym(msgspec.Struct, frozen=True):
    """One of the settings a value may come from."""

    name: str
    value: str | None
    source: Source


class Entry(msgspec.Struct, frozen=True):
    """One setting. `synonyms` are in order of precedence; the first one is in force."""

    name: str
    value: str | None
    source: Source
    sensitive: bool
    read_only: bool
    type_number: int
    synonyms: tuple[Synonym, ...]


def render(key: ConfigKey, text: str | None) -> str | None:
    """Return a value's text as Java prints it: trimmed, booleans in small letters."""
    if text is None:
        return None
    value = key.parse(text)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return text.strip() if isinstance(value, float) else str(value)


QUOTA_KEYS = {name: ConfigKey(name, "long", str(2**63 - 1), "0..") for name in RATES}
"""Settings of brokers that exist only dynamically (Kafka's `QuotaConfigs`)."""

DYNAMIC_ONLY_KEYS = QUOTA_KEYS | {LEASE: ConfigKey(LEASE, "string", "", "")}
"""These, and one of our own: topics whose throttles a reassignment leaves to `throttle_lease`."""


def synonym_family(name: str) -> tuple[str, ...]:
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    for family in _FAMILIES:
        if name in family:
            return family
    return (name,)


class Layers(msgspec.Struct, frozen=True):
    """What is set dynamically: for this broker, and for all."""

    own: Mapping[str, str]
    defaults: Mapping[str, str]


NOTHING_DYNAMIC = Layers({}, {})


def _broker_synonyms(
    config: BrokerConfig, name: str, layers: Layers, *, sensitive: bool
) -> tuple[Synonym, ...]:
    """Return what stands behind a broker setting: dynamic, then server.properties, defaults."""
    keys = broker_keys()
    found = []
    for layer, source in (
        (layers.own, Source.DYNAMIC_BROKER_CONFIG),
        (layers.defaults, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.static_properties, Source.STATIC_BROKER_CONFIG),
    ):
        found += [
            Synonym(synonym, None if sensitive else layer[synonym], source)
            for synonym in synonym_family(name)
            if synonym in layer
        ]
    for synonym in synonym_family(name):
        key = keys.get(synonym)
        default = OUR_DEFAULTS.get(synonym, key.default if key else None)
        if default is not None:
            found.append(Synonym(synonym, None if sensitive else default, Source.DEFAULT_CONFIG))
    names = [s.name for s in found]
    return tuple(found[names.index(name) :]) if name in names else ()


def topic_entries(
    config: BrokerConfig,
    overrides: Mapping[str, str],
    layers: Layers = NOTHING_DYNAMIC,
    wanted: Collection[str] | None = None,
) -> Iterator[Entry]:
    """Yield the settings of a topic that has these overrides: those `wanted`, all for none."""
    for name, key in topic_keys().items():
        if wanted and name not in wanted:
            continue
        text = overrides.get(name)
        if text is None:
            text, _ = config.topic_default(name)
        value = render(key, text)
        synonyms: tuple[Synonym, ...] = ()
        if name in TOPIC_SYNONYMS:
            first = TOPIC_SYNONYMS[name][0][0]
            synonyms = _broker_synonyms(config, first, layers, sensitive=False)
        if name in overrides:
            synonyms = (Synonym(name, value, Source.TOPIC_CONFIG), *synonyms)
        source = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
        yield Entry(name, value, source, False, False, TYPE_NUMBERS[key.type], synonyms)


def broker_entries(config: BrokerConfig, layers: Layers = NOTHING_DYNAMIC) -> Iterator[Entry]:
    """Yield all settings of this broker; those it does not know, of its file or dynamic, last.

    The lease of throttles is always among them: by that tools see that there are leases here.
    """
    for name, key in broker_keys().items():
        sensitive = key.type == "password"
        text = None if sensitive else render(key, config.source_text(name))
        yield _broker_entry(config, name, text, layers)
    more = {*config.unknown, *config.of_listeners, *layers.own, *layers.defaults, LEASE}
    for name in sorted(more - broker_keys().keys()):
        text = layers.own.get(name, layers.defaults.get(name))
        if text is None and name in config.of_listeners:
            text = config.static_properties.get(name)
        yield _broker_entry(config, name, text, layers)


def default_entries(config: BrokerConfig, layers: Layers) -> Iterator[Entry]:
    """Yield what is set for all brokers, and only that."""
    for name in sorted(layers.defaults):
        entry = _broker_entry(config, name, layers.defaults[name], layers)
        shared = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
        synonyms = tuple(s for s in entry.synonyms if s.source is shared)
        yield replace(entry, source=shared, synonyms=synonyms)


def _broker_entry(config: BrokerConfig, name: str, text: str | None, layers: Layers) -> Entry:
    """Return one setting. The value of an unknown key may be a secret."""
    key = broker_keys().get(base_name(name)) or DYNAMIC_ONLY_KEYS.get(name)
    sensitive = key is None or key.type == "password"
    synonyms = _broker_synonyms(config, name, layers, sensitive=sensitive)
    return Entry(
        name,
        None if sensitive else text,
        synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
        sensitive,
        base_name(name) not in DYNAMIC_KEYS,
        0 if key is None else TYPE_NUMBERS[key.type],
        synonyms,
    )
