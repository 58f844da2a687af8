"""The options of `format("ottla")`, checked before anything is asked of a cluster.

Invariants: an option that is not known, malformed, or contradicts another is a ConfigError of one
line; names are compared without regard to case, as Spark does; the result can be pickled, and has
no secret of a properties file: who connects reads the file where it runs. Kafka:
`KafkaSourceProvider` of Spark's connector, whose names these are.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from ottla.client.client import parse_bootstrap
from ottla.model.errors import ConfigError
from ottla.model.protocol import EARLIEST, LATEST
from ottla.pipelines.config import CLIENT_SETTINGS, read_properties, with_whole_paths
from ottla.security.client_properties import KEYS, SECRETS

T = TypeVar("T")

Policy = Literal["fail", "earliest", "latest"]
"""What to do about offsets that are gone: raise, or go on at the log's start or end."""

FETCH_BYTES = 8 * 1024 * 1024
READ_COMMITTED = "read_committed"

Offsets = dict[str, dict[int, int]]
"""By topic and partition."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to start or end: one offset for all (EARLIEST, LATEST), a time, or some for each."""

    offset: int | None = None
    timestamp: int | None = None
    offsets: Offsets | None = None
    timestamps: Offsets | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which topics: by name, by a pattern that the whole name matches, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything that one reader was asked for. Times in milliseconds unless a name says else."""

    bootstrap: str
    subscription: Subscription
    starting: Bound | None
    ending: Bound
    time_without_offset: Literal["error", "latest"]
    on_data_loss: Policy
    include_headers: bool
    read_committed: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    fetch_bytes: int
    fetch_wait_ms: int
    request_timeout_ms: int
    api_timeout_ms: int
    client_id: str
    rack: str
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka's client settings about security; secrets only if they were given as options"""
    properties: str | None = None
    """the whole path of a file of client settings, where the other secrets stay"""

    def client_settings(self) -> dict[str, str]:
        """Return the settings about security, with those of the file; ConfigError if it is gone."""
        if self.properties is None:
            return dict(self.security)
        return {**read_properties(Path(self.properties)), **self.security}


_NAMES = (
    "bootstrap", "kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp",
    "endingOffsetsByTimestamp", "failOnDataLoss", "onDataLoss", "includeHeaders", "minPartitions",
    "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes", "kafka.fetch.max.wait.ms", "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms", "kafka.client.id", "kafka.client.rack", "properties",
    *(f"kafka.{key}" for key in KEYS),
)  # fmt: skip
_KNOWN = {name.lower(): name for name in _NAMES}

_NO_GROUP = "offsets are kept in Spark's checkpoint, in no consumer group"
_OWN_WAY = "requests are repeated until kafka.default.api.timeout.ms is over"
_ALL_AT_ONCE = "a task takes all that a fetch brings"
WITHOUT_EFFECT = {
    "groupIdPrefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "kafka.group.instance.id": _NO_GROUP,
    "kafka.session.timeout.ms": _NO_GROUP,
    "kafka.heartbeat.interval.ms": _NO_GROUP,
    "kafka.max.poll.interval.ms": _NO_GROUP,
    "kafka.partition.assignment.strategy": _NO_GROUP,
    "kafkaConsumer.pollTimeoutMs": _OWN_WAY,
    "fetchOffset.numRetries": _OWN_WAY,
    "fetchOffset.retryIntervalMs": _OWN_WAY,
    "kafka.retry.backoff.ms": _OWN_WAY,
    "kafka.reconnect.backoff.ms": _OWN_WAY,
    "kafka.reconnect.backoff.max.ms": _OWN_WAY,
    "kafka.max.poll.records": _ALL_AT_ONCE,
    "kafka.fetch.min.bytes": _ALL_AT_ONCE,
    "kafka.fetch.max.bytes": "kafka.max.partition.fetch.bytes bounds a fetch, of one partition",
    "kafka.connections.max.idle.ms": "connections end with Spark's Python workers",
    "kafka.metadata.max.age.ms": "metadata is asked for when a range is planned, and after errors",
    "kafka.receive.buffer.bytes": "the operating system sizes the buffers of sockets",
    "kafka.send.buffer.bytes": "the operating system sizes the buffers of sockets",
    "kafka.check.crcs": "checksums are always verified",
}
"""Options of Spark's connector and Kafka's consumer that change nothing here, and why."""

_ROWS_ARE_BYTES = "rows are bytes; turn them into values with Spark's functions"
_NO_JAVA = "there is no Java client here that could load a class"
INSTEAD = {
    "kafka.auto.offset.reset": "use startingOffsets and onDataLoss",
    "kafka.enable.auto.commit": _NO_GROUP,
    "kafka.key.deserializer": _ROWS_ARE_BYTES,
    "kafka.value.deserializer": _ROWS_ARE_BYTES,
    "kafka.interceptor.classes": _NO_JAVA,
    "kafka.metric.reporters": _NO_JAVA,
    "kafka.sasl.login.callback.handler.class": (
        f"{_NO_JAVA}; OAUTHBEARER asks kafka.sasl.oauthbearer.token.endpoint.url for tokens"
    ),
    "kafka.sasl.client.callback.handler.class": _NO_JAVA,
    "kafka.sasl.login.class": _NO_JAVA,
    "kafka.sasl.kerberos.service.name": "Kerberos is not served here: use SCRAM or OAUTHBEARER",
    "topic": "topics to read are named by subscribe, subscribePattern or assign",
}
"""Options that are refused, and what to do."""
_WITHOUT_EFFECT = {name.lower(): name for name in WITHOUT_EFFECT}
_INSTEAD = {name.lower(): name for name in INSTEAD}


def without_effect(options: Mapping[str, str]) -> list[str]:
    """Return a line for each option that is accepted and changes nothing."""
    given = sorted({_WITHOUT_EFFECT.get(key.lower(), "") for key in options} - {""})
    return [f"option {name} has no effect: {WITHOUT_EFFECT[name]}" for name in given]


class _Given:
    """The options as the user wrote them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {key.lower(): str(value) for key, value in options.items()}
        known = _KNOWN.keys() | _WITHOUT_EFFECT.keys()
        unknown = sorted(key for key in self._values if key not in known)
        if unknown and (name := _INSTEAD.get(unknown[0])):
            raise ConfigError(f'format("ottla") does not take {name}: {INSTEAD[name]}')
        if unknown:
            raise ConfigError(
                f'format("ottla") has no option {unknown[0]}; it has: {", ".join(_NAMES)}'
            )
        self.properties: str | None = None
        if path := (self.text("properties") or "").strip():
            self.properties = os.path.abspath(path)  # noqa: PTH100 - a text
            self._take(with_whole_paths(read_properties(Path(path))))

    def _take(self, found: Mapping[str, str]) -> None:
        """Take what a file says of a client and no option does, but no secret."""
        for name in (*CLIENT_SETTINGS, *KEYS):
            if name in found and name not in SECRETS:
                self._values.setdefault(f"kafka.{name}", found[name])

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def one_of(self, *names: str) -> str | None:
        """Return which of these that exclude each other was given."""
        given = [name for name in names if self.text(name) is not None]
        if len(given) > 1:
            raise ConfigError(f"options {given[0]} and {given[1]} exclude each other: give one")
        return given[0] if given else None

    def number(self, name: str, default: T, least: int = 1) -> int | T:
        text = self.text(name)
        if text is None:
            return default
        if not re.fullmatch(r"\s*-?\d{1,18}\s*", text) or int(text) < least:
            raise ConfigError(f"option {name}: {text!r} is no whole number of {least} or more")
        return int(text)

    def choice(self, name: str, default: str, *allowed: str) -> str:
        text = (self.text(name) or default).lower()
        if text not in allowed:
            raise ConfigError(f"option {name}: {text!r} is none of {', '.join(allowed)}")
        return text

    def security(self) -> dict[str, str]:
        """Return Kafka's client settings about security, by Kafka's names."""
        found = {n: text for n in KEYS if (text := self.text(f"kafka.{n}")) is not None}
        return with_whole_paths(found)

    def by_partition(self, name: str, read: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the JSON object of an option, its topics' values read by `read`."""
        try:
            found = json.loads(self.text(name) or "")
            if not isinstance(found, dict) or not found:
                raise TypeError("no JSON object of topics")
            return {str(topic): read(inner) for topic, inner in found.items()}
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"option {name}: {error}") from None


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options, checked; ConfigError for the first that cannot be."""
    given = _Given(options)
    per_task = given.number("maxRecordsPerPartition", None)
    parsed = SourceOptions(
        bootstrap=_bootstrap(given),
        subscription=_subscription(given),
        starting=_bound(given, "starting", _either(EARLIEST, LATEST)),
        ending=_bound(given, "ending", _either(LATEST)) or Bound(offset=LATEST),
        time_without_offset=cast(
            "Literal['error', 'latest']",
            given.choice("startingOffsetsByTimestampStrategy", "error", "error", "latest"),
        ),
        on_data_loss=_policy(given),
        include_headers=given.choice("includeHeaders", "false", "true", "false") == "true",
        read_committed=given.choice(
            "kafka.isolation.level", "read_uncommitted", "read_uncommitted", READ_COMMITTED
        )
        == READ_COMMITTED,
        min_partitions=given.number("minPartitions", None),
        max_records_per_partition=per_task,
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger", None),
        min_offsets_per_trigger=given.number("minOffsetsPerTrigger", None),
        max_trigger_delay_s=_duration_s(given, "maxTriggerDelay", "15m"),
        fetch_bytes=given.number("kafka.max.partition.fetch.bytes", FETCH_BYTES),
        fetch_wait_ms=given.number("kafka.fetch.max.wait.ms", 500),
        request_timeout_ms=given.number("kafka.request.timeout.ms", 30_000),
        api_timeout_ms=given.number("kafka.default.api.timeout.ms", 60_000),
        client_id=given.text("kafka.client.id") or "ottla-spark",
        rack=given.text("kafka.client.rack") or "",
        security=given.security(),
        properties=given.properties,
    )
    least, most = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"option minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, {most}"
        )
    _refuse_bad_security(parsed)
    return parsed


def _duration_s(given: _Given, name: str, default: str) -> float:
    """Return a duration as Spark's `timeStringAsMs` reads it: a number alone is milliseconds."""
    text = (given.text(name) or default).strip().lower()
    found = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text)
    units = {"": 0.001, "us": 1e-6, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
    if found is None or found[2] not in units:
        raise ConfigError(f"option {name}: {text!r} is no duration; write 90s, 15m or 2h")
    return int(found[1]) * units[found[2]]


def _refuse_bad_security(options: SourceOptions) -> None:
    from ottla.security.client_properties import client_security

    try:
        client_security(options.client_settings())
    except ConfigError as error:
        where = "option kafka." if options.properties is None else f"{options.properties}: "
        raise ConfigError(f"{where}{error}") from None


def _bootstrap(given: _Given) -> str:
    name = given.one_of("kafka.bootstrap.servers", "bootstrap")
    if name is None:
        raise ConfigError("option kafka.bootstrap.servers is missing: give host:port[,host:port]")
    text = given.text(name) or ""
    try:
        parse_bootstrap(text)
    except ValueError as error:
        raise ConfigError(f"option {name}: {error}") from None
    return text


def _subscription(given: _Given) -> Subscription:
    name = given.one_of("subscribe", "subscribePattern", "assign")
    if name is None:
        raise ConfigError("no topics are named: give one of subscribe, subscribePattern, assign")
    text = (given.text(name) or "").strip()
    if name == "assign":
        return Subscription(partitions=given.by_partition(name, _partition_list))
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(f"option {name}: {text!r} is no pattern: {error}") from None
        return Subscription(pattern=text)
    topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
    if not topics:
        raise ConfigError("option subscribe names no topic")
    return Subscription(topics=topics)


def _partition_list(found: Any) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(p) is int and p >= 0 for p in found):
        raise TypeError(f"{json.dumps(found)} is no list of partitions")
    return tuple(sorted(set(found)))


def _either(*allowed: int) -> Callable[[Any], dict[int, int]]:
    """Return a reader of {"partition": offset} that takes offsets, and these stand-ins."""

    def read(found: Any) -> dict[int, int]:
        offsets = {int(partition): offset for partition, offset in found.items()}
        for partition, offset in offsets.items():
            if type(offset) is not int or (offset < 0 and offset not in allowed):
                raise ValueError(f"partition {partition}: {json.dumps(offset)} is no offset")
        return offsets

    return read


def _bound(given: _Given, side: str, read: Callable[[Any], dict[int, int]]) -> Bound | None:
    """Return what `startingOffsets` and its like say; of several the first here goes."""
    timestamp = given.number(f"{side}Timestamp", None, least=0)
    if timestamp is not None:
        return Bound(timestamp=timestamp)
    by_timestamp = f"{side}OffsetsByTimestamp"
    if given.text(by_timestamp) is not None:
        return Bound(timestamps=given.by_partition(by_timestamp, _either()))
    name = f"{side}Offsets"
    text = (given.text(name) or "").strip().lower()
    if given.text(name) is None:
        return None
    words = {"latest": LATEST} | ({"earliest": EARLIEST} if side == "starting" else {})
    if text in words:
        return Bound(offset=words[text])
    if not text.startswith("{"):
        raise ConfigError(
            f"option {name}: {text!r} is neither {' nor '.join(words)} nor a JSON object of "
            "topics, partitions and offsets"
        )
    return Bound(offsets=given.by_partition(name, read))


def _policy(given: _Given) -> Policy:
    if given.one_of("failOnDataLoss", "onDataLoss") == "onDataLoss":
        return cast("Policy", given.choice("onDataLoss", "fail", "fail", "earliest", "latest"))
    fails = given.choice("failOnDataLoss", "true", "true", "false") == "true"
    return "fail" if fails else "earliest"
