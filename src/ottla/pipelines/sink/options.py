"""The options of `format("ottla")` where it writes, checked before anything is sent.

Invariants: names are those of Spark's Kafka connector and of Kafka's producer, compared without
regard to case; one that is not known, or contradicts another, is a ConfigError of one line.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from ottla.client.producer import REQUEST_TIMEOUT_S
from ottla.model.errors import ConfigError
from ottla.model.ids import topic_name_problem
from ottla.model.protocol import ACKS_ALL
from ottla.pipelines.source.options import READ_COMMITTED, SourceOptions, parse_options
from ottla.security.client_properties import KEYS
from ottla.wire.compression import CODEC_NAMES

T = TypeVar("T")

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
PREFIX = "ottla-sink."
LONGEST_PREFIX = 200
TRANSACTION_TIMEOUT_MS = 900_000
"""The longest that brokers accept by default (`transaction.max.timeout.ms`)."""
DELIVERY_TIMEOUT_MS = 120_000
BATCH_BYTES = 256 * 1024

_CONNECTION = (
    "kafka.bootstrap.servers", "bootstrap", "kafka.client.id", "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms", "properties", *(f"kafka.{key}" for key in KEYS),
)  # fmt: skip
_OWN = (
    "topic", "kafka.acks", "kafka.compression.type", "kafka.batch.size",
    "kafka.delivery.timeout.ms", "kafka.transaction.timeout.ms", "transactional.id.prefix",
    "ottla.delivery", "ottla.batch", "ottla.note",
)  # fmt: skip
_SPARKS = ("checkpointlocation", "path", "queryname", "includeheaders")
"""Spark passes its own options on, too."""
_ALWAYS_SO = {
    "kafka.enable.idempotence": "it always is, unless kafka.acks is 0 or 1",
    "kafka.transactional.id": "each task needs an id of its own: give transactional.id.prefix",
    "kafka.linger.ms": "a task sends batches once they are full: give kafka.batch.size",
    "kafka.key.serializer": "cast the column to string or binary",
    "kafka.value.serializer": "cast the column to string or binary",
    "kafka.partitioner.class": "add a column `partition`",
    "subscribe": "a sink writes to option topic, or to what a column `topic` says",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What one write was asked for.

    `topic` goes before the column of that name. `prefix`: of the transactional ids. `batch`: the
    number of a batch write that is done once, however often it is run; `note` is kept with it.
    """

    cluster: SourceOptions
    topic: str | None
    prefix: str | None
    batch: int | None
    note: str
    exactly_once: bool
    acks: int
    codec: int
    batch_bytes: int
    delivery_timeout_ms: int
    transaction_timeout_ms: int

    @property
    def request_timeout_s(self) -> float:
        return min(self.cluster.request_timeout_ms / 1000, REQUEST_TIMEOUT_S)


def parse_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Return the options, checked; ConfigError for the first that cannot be."""
    given = {key.lower(): str(value).strip() for key, value in options.items()}
    known = {name.lower() for name in (*_CONNECTION, *_OWN)}
    for name in sorted(given):
        if name in known or name in _SPARKS:
            continue
        if name in _ALWAYS_SO:
            raise ConfigError(f"option {name} is not for the sink: {_ALWAYS_SO[name]}")
        raise ConfigError(
            f'the sink of format("ottla") has no option {name}: leave it out; it has '
            f"{', '.join((*_OWN, *_CONNECTION[:6]))}, and kafka.security.…, kafka.sasl.…, "
            "kafka.ssl.…"
        )
    cluster = {name: given[name.lower()] for name in _CONNECTION if name.lower() in given}
    exactly_once = _choice(given, "ottla.delivery", EXACTLY_ONCE, AT_LEAST_ONCE) == EXACTLY_ONCE
    acks = _choice(given, "kafka.acks", "all", "-1", "1", "0")
    if exactly_once and acks not in ("all", "-1"):
        raise ConfigError(
            f"option kafka.acks={acks} goes with ottla.delivery={AT_LEAST_ONCE}: transactions need "
            "kafka.acks=all"
        )
    topic = given.get("topic")
    if topic is not None and (problem := topic_name_problem(topic)):
        raise ConfigError(f"option topic: {topic!r} is not the name of a topic: {problem}")
    batch = _number(given, "ottla.batch", None, least=0)
    prefix = given.get("transactional.id.prefix")
    if streaming:
        if batch is not None:
            raise ConfigError("option ottla.batch is for batch writes: Spark numbers micro-batches")
        if prefix is None and exactly_once:
            prefix = PREFIX + _query_id(given.get("checkpointlocation", ""))
    elif batch is not None and (prefix is None or not exactly_once):
        raise ConfigError("option ottla.batch needs transactional.id.prefix and exactly-once")
    if prefix is not None and (len(prefix) > LONGEST_PREFIX or topic_name_problem(prefix)):
        raise ConfigError(
            f"option transactional.id.prefix: {prefix!r} is not up to {LONGEST_PREFIX} letters, "
            "digits, dots, - and _ (a topic gets that name)"
        )
    return SinkOptions(
        cluster=parse_options(
            {**cluster, "subscribePattern": ".*", "kafka.isolation.level": READ_COMMITTED}
        ),
        topic=topic,
        prefix=prefix,
        batch=batch,
        note=given.get("ottla.note", ""),
        exactly_once=exactly_once,
        acks=ACKS_ALL if acks in ("all", "-1") else int(acks),
        codec=CODEC_NAMES.index(_choice(given, "kafka.compression.type", *CODEC_NAMES)),
        batch_bytes=_number(given, "kafka.batch.size", BATCH_BYTES),
        delivery_timeout_ms=_number(given, "kafka.delivery.timeout.ms", DELIVERY_TIMEOUT_MS),
        transaction_timeout_ms=_number(
            given, "kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS
        ),
    )


def _query_id(checkpoint: str) -> str:
    """Return the id that a query keeps for life, from its checkpoint on this machine's disks."""
    path = Path(unquote(checkpoint.removeprefix("file://").removeprefix("file:")))
    try:
        return str(json.loads((path / "metadata").read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError):
        where = f"checkpoint {checkpoint} is" if checkpoint else "option checkpointLocation is"
        raise ConfigError(
            f"{where} not a folder that this machine can read: give option "
            "transactional.id.prefix, a name that this query keeps for life"
        ) from None


def _choice(given: Mapping[str, str], name: str, *allowed: str) -> str:
    """Return an option that is one of a few; the first of them by default."""
    text = given.get(name.lower(), allowed[0]).lower()
    if text not in allowed:
        raise ConfigError(f"option {name}: {text!r} is none of {', '.join(allowed)}")
    return text


def _number(given: Mapping[str, str], name: str, default: T, least: int = 1) -> int | T:
    text = given.get(name.lower())
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 18 or int(text) < least:
        raise ConfigError(f"option {name}: {text!r} is not a whole number of {least} or more")
    return int(text)
