"""Config keys: names, types, defaults and ranges of Kafka 3.9's topic and broker settings.

One line per key: `name type default [range or choices]`; `~` is null, `""` empty. Facts of Kafka's
`LogConfig` and `KafkaConfig`; keys of KRaft, tiered storage and share groups are left out.
"""

import math
import re
from dataclasses import dataclass
from functools import cache

from ottla.model.errors import ConfigError

TOPIC_KEYS = """\
cleanup.policy list delete compact,delete
compression.gzip.level int -1 1..9|-1
compression.lz4.level int 9 1..17
compression.type string producer uncompressed,zstd,lz4,snappy,gzip,producer
compression.zstd.level int 3 -131072..22
delete.retention.ms long 86400000 0..
file.delete.delay.ms long 60000 0..
flush.messages long 9223372036854775807 1..
flush.ms long 9223372036854775807 0..
follower.replication.throttled.replicas list "" throttled
index.interval.bytes int 4096 0..
leader.replication.throttled.replicas list "" throttled
local.retention.bytes long -2 -2..
local.retention.ms long -2 -2..
max.compaction.lag.ms long 9223372036854775807 1..
max.message.bytes int 1048588 0..
message.downconversion.enable boolean true
message.format.version string 3.0-IV1 version
message.timestamp.after.max.ms long 9223372036854775807 0..
message.timestamp.before.max.ms long 9223372036854775807 0..
message.timestamp.difference.max.ms long 9223372036854775807 0..
message.timestamp.type string CreateTime CreateTime,LogAppendTime
min.cleanable.dirty.ratio double 0.5 0..1
min.compaction.lag.ms long 0 0..
min.insync.replicas int 1 1..
preallocate boolean false
remote.log.copy.disable boolean false
remote.log.delete.on.disable boolean false
remote.storage.enable boolean false
retention.bytes long -1
retention.ms long 604800000 -1..
segment.bytes int 1073741824 14..
segment.index.bytes int 10485760 4..
segment.jitter.ms long 0 0..
segment.ms long 604800000 1..
unclean.leader.election.enable boolean false"""

BROKER_KEYS = """\
advertised.listeners string ~
alter.config.policy.class.name class ~
alter.log.dirs.replication.quota.window.num int 11 1..
alter.log.dirs.replication.quota.window.size.seconds int 1 1..
authorizer.class.name string ""
auto.create.topics.enable boolean true
auto.include.jmx.reporter boolean true
auto.leader.rebalance.enable boolean true
background.threads int 10 1..
broker.id int -1
broker.id.generation.enable boolean true
broker.rack string ~
client.quota.callback.class class ~
compression.gzip.level int -1 1..9|-1
compression.lz4.level int 9 1..17
compression.type string producer uncompressed,zstd,lz4,snappy,gzip,producer
compression.zstd.level int 3 -131072..22
connection.failed.authentication.delay.ms int 100 0..
connections.max.idle.ms long 600000
connections.max.reauth.ms long 0
control.plane.listener.name string ~
controlled.shutdown.enable boolean true
controlled.shutdown.max.retries int 3
controlled.shutdown.retry.backoff.ms long 5000
controller.quota.window.num int 11 1..
controller.quota.window.size.seconds int 1 1..
controller.socket.timeout.ms int 30000
create.topic.policy.class.name class ~
default.replication.factor int 1
delegation.token.expiry.check.interval.ms long 3600000 1..
delegation.token.expiry.time.ms long 86400000 1..
delegation.token.master.key password ~
delegation.token.max.lifetime.ms long 604800000 1..
delegation.token.secret.key password ~
delete.records.purgatory.purge.interval.requests int 1
delete.topic.enable boolean true
fetch.max.bytes int 57671680 1024..
fetch.purgatory.purge.interval.requests int 1000
group.initial.rebalance.delay.ms int 3000
group.max.session.timeout.ms int 1800000
group.max.size int 2147483647 1..
group.min.session.timeout.ms int 6000
inter.broker.listener.name string ~
inter.broker.protocol.version string 3.9-IV0 version
kafka.metrics.polling.interval.secs int 10 1..
kafka.metrics.reporters list ""
leader.imbalance.check.interval.seconds long 300 1..
leader.imbalance.per.broker.percentage int 10
listener.security.protocol.map string SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
listeners string PLAINTEXT://:9092
log.cleaner.backoff.ms long 15000 0..
log.cleaner.dedupe.buffer.size long 134217728
log.cleaner.delete.retention.ms long 86400000 0..
log.cleaner.enable boolean true
log.cleaner.io.buffer.load.factor double 0.9
log.cleaner.io.buffer.size int 524288 0..
log.cleaner.io.max.bytes.per.second double 1.7976931348623157E308
log.cleaner.max.compaction.lag.ms long 9223372036854775807 1..
log.cleaner.min.cleanable.ratio double 0.5 0..1
log.cleaner.min.compaction.lag.ms long 0 0..
log.cleaner.threads int 1 0..
log.cleanup.policy list delete compact,delete
log.dir string /tmp/kafka-logs
log.dir.failure.timeout.ms long 30000 1..
log.dirs string ~
log.flush.interval.messages long 9223372036854775807 1..
log.flush.interval.ms long ~
log.flush.offset.checkpoint.interval.ms int 60000 0..
log.flush.scheduler.interval.ms long 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms int 60000 0..
log.index.interval.bytes int 4096 0..
log.index.size.max.bytes int 10485760 4..
log.local.retention.bytes long -2 -2..
log.local.retention.ms long -2 -2..
log.message.downconversion.enable boolean true
log.message.format.version string 3.0-IV1 version
log.message.timestamp.after.max.ms long 9223372036854775807 0..
log.message.timestamp.before.max.ms long 9223372036854775807 0..
log.message.timestamp.difference.max.ms long 9223372036854775807 0..
log.message.timestamp.type string CreateTime CreateTime,LogAppendTime
log.preallocate boolean false
log.retention.bytes long -1
log.retention.check.interval.ms long 300000 1..
log.retention.hours int 168
log.retention.minutes int ~
log.retention.ms long ~
log.roll.hours int 168 1..
log.roll.jitter.hours int 0 0..
log.roll.jitter.ms long ~
log.roll.ms long ~
log.segment.bytes int 1073741824 14..
log.segment.delete.delay.ms long 60000 0..
max.connection.creation.rate int 2147483647 0..
max.connections int 2147483647 0..
max.connections.per.ip int 2147483647 0..
max.connections.per.ip.overrides string ""
max.incremental.fetch.session.cache.slots int 1000 0..
max.request.partition.size.limit int 2000 1..
message.max.bytes int 1048588 0..
metric.reporters list ""
metrics.num.samples int 2 1..
metrics.recording.level string INFO
metrics.sample.window.ms long 30000 1..
min.insync.replicas int 1 1..
num.io.threads int 8 1..
num.network.threads int 3 1..
num.partitions int 1 1..
num.recovery.threads.per.data.dir int 1 1..
num.replica.alter.log.dirs.threads int ~
num.replica.fetchers int 1
offset.metadata.max.bytes int 4096
offsets.commit.required.acks short -1
offsets.commit.timeout.ms int 5000 1..
offsets.load.buffer.size int 5242880 1..
offsets.retention.check.interval.ms long 600000 1..
offsets.retention.minutes int 10080 1..
offsets.topic.compression.codec int 0 0..4
offsets.topic.num.partitions int 50 1..
offsets.topic.replication.factor short 3 1..
offsets.topic.segment.bytes int 104857600 1..
password.encoder.cipher.algorithm string AES/CBC/PKCS5Padding
password.encoder.iterations int 4096 1024..
password.encoder.key.length int 128 8..
password.encoder.keyfactory.algorithm string ~
password.encoder.old.secret password ~
password.encoder.secret password ~
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
producer.id.expiration.ms int 86400000 1..
producer.purgatory.purge.interval.requests int 1000
queued.max.request.bytes long -1
queued.max.requests int 500 1..
quota.window.num int 11 1..
quota.window.size.seconds int 1 1..
replica.fetch.backoff.ms int 1000 0..
replica.fetch.max.bytes int 1048576 0..
replica.fetch.min.bytes int 1
replica.fetch.response.max.bytes int 10485760 0..
replica.fetch.wait.max.ms int 500
replica.high.watermark.checkpoint.interval.ms long 5000
replica.lag.time.max.ms long 30000
replica.selector.class string ~
replica.socket.receive.buffer.bytes int 65536
replica.socket.timeout.ms int 30000
replication.quota.window.num int 11 1..
replication.quota.window.size.seconds int 1 1..
request.timeout.ms int 30000
reserved.broker.max.id int 1000 0..
sasl.client.callback.handler.class class ~
sasl.enabled.mechanisms list GSSAPI
sasl.jaas.config password ~
sasl.kerberos.kinit.cmd string /usr/bin/kinit
sasl.kerberos.min.time.before.relogin long 60000
sasl.kerberos.principal.to.local.rules list DEFAULT
sasl.kerberos.service.name string ~
sasl.kerberos.ticket.renew.jitter double 0.05
sasl.kerberos.ticket.renew.window.factor double 0.8
sasl.mechanism.controller.protocol string GSSAPI
sasl.mechanism.inter.broker.protocol string GSSAPI
sasl.oauthbearer.clock.skew.seconds int 30
sasl.oauthbearer.expected.audience list ~
sasl.oauthbearer.expected.issuer string ~
sasl.oauthbearer.jwks.endpoint.refresh.ms long 3600000
sasl.oauthbearer.jwks.endpoint.url string ~
sasl.oauthbearer.scope.claim.name string scope
sasl.oauthbearer.sub.claim.name string sub
sasl.oauthbearer.token.endpoint.url string ~
sasl.server.callback.handler.class class ~
sasl.server.max.receive.size int 524288
security.inter.broker.protocol string PLAINTEXT PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL
security.providers string ~
socket.connection.setup.timeout.max.ms long 30000
socket.connection.setup.timeout.ms long 10000
socket.listen.backlog.size int 50 1..
socket.receive.buffer.bytes int 102400
socket.request.max.bytes int 104857600 1..
socket.send.buffer.bytes int 102400
ssl.allow.dn.changes boolean false
ssl.allow.san.changes boolean false
ssl.cipher.suites list ""
ssl.client.auth string none required,requested,none
ssl.enabled.protocols list TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm string https
ssl.engine.factory.class class ~
ssl.key.password password ~
ssl.keymanager.algorithm string SunX509
ssl.keystore.certificate.chain password ~
ssl.keystore.key password ~
ssl.keystore.location string ~
ssl.keystore.password password ~
ssl.keystore.type string JKS
ssl.principal.mapping.rules string DEFAULT
ssl.protocol string TLSv1.3
ssl.provider string ~
ssl.secure.random.implementation string ~
ssl.trustmanager.algorithm string PKIX
ssl.truststore.certificates password ~
ssl.truststore.location string ~
ssl.truststore.password password ~
ssl.truststore.type string JKS
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000 1..
transaction.max.timeout.ms int 900000 1..
transaction.partition.verification.enable boolean true
transaction.remove.expired.transaction.cleanup.interval.ms int 3600000 1..
transaction.state.log.load.buffer.size int 5242880 1..
transaction.state.log.min.isr int 2 1..
transaction.state.log.num.partitions int 50 1..
transaction.state.log.replication.factor short 3 1..
transaction.state.log.segment.bytes int 104857600 1..
transactional.id.expiration.ms int 604800000 1..
unclean.leader.election.enable boolean false
zookeeper.clientCnxnSocket string ~
zookeeper.connect string ~
zookeeper.connection.timeout.ms int ~
zookeeper.max.in.flight.requests int 10 1..
zookeeper.session.timeout.ms int 18000
zookeeper.set.acl boolean false
zookeeper.ssl.cipher.suites list ~
zookeeper.ssl.client.enable boolean false
zookeeper.ssl.crl.enable boolean false
zookeeper.ssl.enabled.protocols list ~
zookeeper.ssl.endpoint.identification.algorithm string HTTPS
zookeeper.ssl.keystore.location string ~
zookeeper.ssl.keystore.password password ~
zookeeper.ssl.keystore.type string ~
zookeeper.ssl.ocsp.enable boolean false
zookeeper.ssl.protocol string TLSv1.2
zookeeper.ssl.truststore.location string ~
zookeeper.ssl.truststore.password password ~
zookeeper.ssl.truststore.type string ~"""  # noqa: E501

OUR_KEYS = """\
java.security.auth.login.config string ""
org.apache.kafka.sasl.oauthbearer.allowed.urls list ""
ottla.application.logs.compression.type string gzip none,gzip
ottla.application.logs.file.bytes long 16777216 65536..
ottla.application.logs.retention.bytes long 134217728 65536..
ottla.application.logs.retention.ms long -1 -1..
ottla.crash.detection string own own,all,off
ottla.metrics.detail string broker broker,topic,partition
ottla.metrics.listener string ""
ottla.metrics.max.series int 50000 0..
ottla.produce.max.decompressed.bytes long 536870912 1048576..
ottla.produce.max.check.ms long 10000 100..
ottla.queued.max.response.bytes long 67108864 1048576..
ottla.sasl.oauthbearer.unsigned.tokens.for.tests boolean false
ottla.slow.request.ms int 0 0..
ottla.stray.retention.ms long 604800000 -1..
zookeeper.sasl.client boolean true
zookeeper.sasl.clientconfig string Client"""
"""Settings that Kafka does not have (docs/COMPATIBILITY.md)."""

AUTHORIZER_KEYS = ("super.users", "allow.everyone.if.no.acl.found")
"""Kafka knows them as settings of the authorizer, not of the broker."""

TOPIC_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.downconversion.enable": (("log.message.downconversion.enable", 1),),
    "message.format.version": (("log.message.format.version", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.difference.max.ms": (("log.message.timestamp.difference.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", 3_600_000),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}
"""The broker settings that a topic setting falls back to, the first that is set; each with its
multiplier."""

_VERSIONS = """\
0.8.0 0.8.1 0.8.2 0.9.0 0.10.0-IV0 0.10.0-IV1 0.10.1-IV0 0.10.1-IV1 0.10.1-IV2 0.10.2-IV0 0.11.0-IV0
0.11.0-IV1 0.11.0-IV2 1.0-IV0 1.1-IV0 2.0-IV0 2.0-IV1 2.1-IV0 2.1-IV1 2.1-IV2 2.2-IV0 2.2-IV1
2.3-IV0 2.3-IV1 2.4-IV0 2.4-IV1 2.5-IV0 2.6-IV0 2.7-IV0 2.7-IV1 2.7-IV2 2.8-IV0 2.8-IV1 3.0-IV0
3.0-IV1 3.1-IV0 3.2-IV0 3.3-IV0 3.3-IV1 3.3-IV2 3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0
3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0 3.9-IV0 4.0-IV0 4.0-IV1"""
"""Kafka 3.9's `MetadataVersion`."""

_UNRELEASED = "4.0"
"""Not named without its IV: for 3.9 it is in the making."""


@cache
def _known_versions() -> frozenset[str]:
    full = _VERSIONS.split()
    short = {name.partition("-")[0] for name in full} - {_UNRELEASED}
    return frozenset(short.union(full))


def protocol_version(text: str) -> tuple[int, ...] | None:
    """Return the release of `3.9`, `3.9-IV0`, `3.9.1` as numbers; None if it is not one.

    Kafka: `MetadataVersion.fromVersionString`, which cuts what follows the second number (the third
    if the first is 0).
    """
    parts = text.split(".")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()  # as Java's `split`
    count = 3 if text.startswith("0.") else 2
    key = ".".join(parts[:count]) if len(parts) > count else text
    if key not in _known_versions():
        return None
    return tuple(map(int, key.partition("-")[0].split(".")))


_TRIMMED = "".join(map(chr, range(33)))
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")


def trim(text: str) -> str:
    """Return text without the blanks that Java's `String.trim` removes: all up to U+0020."""
    return text.strip(_TRIMMED)


def split_list(text: str) -> list[str]:
    """Split at commas and the blanks around them, as Kafka does."""
    return _COMMA.split(text)


# Python's own `int` and `float` take more: 1_000, inf, nan.
_INTEGER = re.compile(r"[+-]?\d{1,40}")
_DOUBLE = re.compile(
    r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?"
    r"|0[xX]([\da-fA-F]+\.?|[\da-fA-F]*\.[\da-fA-F]+)[pP][+-]?\d+[fFdD]?)",
    re.ASCII,
)
_INT_BOUNDS = {"short": 2**15, "int": 2**31, "long": 2**63}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting.

    `limits` is `low..high`, `low..high|other`, a comma-separated choice, `throttled`, `version`, or
    empty.
    """

    name: str
    type: str
    default: str | None
    limits: str = ""

    def parse(self, text: str | None) -> object:
        """Return the typed value of `text`; ConfigError names key, value and what is allowed.

        bool, int, float, str, list[str] by `type`; None only where the default is null.
        """
        if text is None:
            if self.default is None:
                return None
            raise self._bad(text, "a value is needed")
        value: object
        given, text = text, trim(text)
        if self.type == "boolean":
            if text.lower() not in ("true", "false"):
                raise self._bad(given, "Expected value to be either true or false")
            return text.lower() == "true"
        if self.type in _INT_BOUNDS:
            bound = _INT_BOUNDS[self.type]
            if not _INTEGER.fullmatch(text) or not -bound <= (value := int(text)) < bound:
                raise self._bad(given, f"Not a number of type {self.type.upper()}")
        elif self.type == "double":
            if not _DOUBLE.fullmatch(text):
                raise self._bad(given, "Not a number of type DOUBLE")
            hexadecimal = "x" in text.lower()
            value = (float.fromhex if hexadecimal else float)(text.rstrip("fFdD"))
        elif self.type == "list":
            value = split_list(text) if text else []
        elif self.type == "class" and not text:
            raise self._bad(given, "a class is needed; remove the key")
        else:
            value = text
        self._check_limits(value)
        return value

    def _check_limits(self, value: object) -> None:
        limits = self.limits
        if not limits:
            return
        if ".." in limits:
            self._check_range(value, *limits.partition("|")[::2])
        elif limits == "version":
            if protocol_version(str(value)) is None:
                raise self._bad(str(value), f"Version {value} is not a valid version")
        elif limits == "throttled":
            parts = value if isinstance(value, list) else []
            if parts == ["*"]:
                return
            for left, colon, right in (part.partition(":") for part in parts if part):
                if not (colon and left.isdigit() and right.isdigit()):
                    raise self._bad(
                        f"[{', '.join(parts)}]",
                        f"{self.name} must be the literal '*' or a list of replicas in the "
                        "following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
                    )
        else:
            choices = limits.split(",")
            for part in value if isinstance(value, list) else [value]:
                if part not in choices:
                    raise self._bad(str(part), "String must be one of: " + ", ".join(choices))

    def _check_range(self, value: object, span: str, other: str) -> None:
        low, high = span.split("..")
        if other:
            if str(value) != other and not int(low) <= value <= int(high):  # type: ignore[operator]
                why = f"Value must be between {low} and {high} or equal to {other}"
                raise self._bad(str(value), why)
        elif low and float(low) > value:  # type: ignore[operator]
            raise self._bad(_number_text(value), f"Value must be at least {low}")
        elif high and float(high) < value:  # type: ignore[operator]
            raise self._bad(_number_text(value), f"Value must be no more than {high}")

    def _bad(self, text: str | None, why: str) -> ConfigError:
        return ConfigError(f"Invalid value {text} for configuration {self.name}: {why}")


def _number_text(value: object) -> str:
    """Return a number as Java writes it: a large or small double as 2.147483648E9."""
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    text, _, exponent = f"{value:.16e}".partition("e")
    for places in range(17):  # the shortest that is this number
        text = f"{value:.{places}e}".partition("e")[0]
        if float(f"{text}e{exponent}") == value:
            break
    return f"{text if '.' in text else text + '.0'}E{int(exponent)}"


def _table(text: str) -> dict[str, ConfigKey]:
    keys = {}
    for line in text.splitlines():
        name, kind, default, *limits = line.split(" ")
        value = None if default == "~" else "" if default == '""' else default
        keys[name] = ConfigKey(name, kind, value, limits[0] if limits else "")
    return keys


@cache
def topic_keys() -> dict[str, ConfigKey]:
    """Return Kafka's topic settings by name."""
    return _table(TOPIC_KEYS)


@cache
def broker_keys() -> dict[str, ConfigKey]:
    """Return Kafka's broker settings by name."""
    return _table(BROKER_KEYS)


@cache
def our_keys() -> dict[str, ConfigKey]:
    """Return the broker settings that only we have, by name."""
    return _table(OUR_KEYS)
