"""Records of `__consumer_offsets` and `__transaction_state`, decoded.

Pure. Texts are those of Kafka's `DumpLogSegments` with `--offsets-decoder` and
`--transaction-log-decoder`, to the order of a transaction's partitions.
"""

import base64
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ottla.coordinators.transaction import TransactionState
from ottla.model.errors import OttlaError
from ottla.model.ids import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.wire.codec import decode_versioned
from ottla.wire.json_form import Room, json_form
from ottla.wire.messages.groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.messages.transactions import TransactionLogKey, TransactionLogValue
from ottla.wire.records import Record
from ottla.wire.schema import Message

DELETED = "<DELETE>"
CONSUMER = "consumer"
_KINDS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}
"""What key and value are, by the version before the key."""

_OF_CONSUMERS: dict[str, type[Message]] = {
    "subscription": ConsumerProtocolSubscription,
    "assignment": ConsumerProtocolAssignment,
}


class StateRecord(NamedTuple):
    """Key and value as Kafka's tool prints them, and as values; None where there is none."""

    key: str | None
    value: str | None
    decoded_key: Any = None
    decoded_value: Any = None


def decoder(topic: str) -> Callable[[Record], StateRecord] | None:
    """Return what decodes the records of a topic, None for one that is no internal topic."""
    return {GROUP_METADATA_TOPIC: of_group, TRANSACTION_STATE_TOPIC: of_transaction}.get(topic)


def of_group(record: Record) -> StateRecord:
    """Decode an offset or a group."""
    if record.key is None:
        return StateRecord(f"Error at offset {record.offset}, skipping. It has no key", None)
    kind = _version(record.key)
    if kind not in _KINDS:
        return StateRecord(f"Unknown record type {kind} at offset {record.offset}, skipping.", None)
    try:
        key = {"type": str(kind), "data": _fields(_KINDS[kind][0], record.key)}
        if record.value is None:
            return StateRecord(json_text(key), DELETED, key)
        data = _fields(_KINDS[kind][1], record.value)
        if data.get("protocolType") == CONSUMER:
            for member in data["members"]:
                for name, message in _OF_CONSUMERS.items():
                    member[name] = _fields(message, base64.b64decode(member[name]))
        value = {"version": str(_version(record.value)), "data": data}
        return StateRecord(json_text(key), json_text(value), key, value)
    except OttlaError as error:
        return StateRecord(f"Error at offset {record.offset}, skipping. {error}", None)


def of_transaction(record: Record) -> StateRecord:
    """Decode the state of a transactional id."""
    if record.key is None:
        return StateRecord(f"Error at offset {record.offset}, skipping. It has no key", None)
    if _version(record.key) > TransactionLogKey.MAX_VERSION:
        return StateRecord(f"unknown::version={_version(record.key)}", None)
    try:
        key = _fields(TransactionLogKey, record.key)
        text = f"transaction_metadata::transactionalId={key['transactionalId']}"
        if record.value is None:
            return StateRecord(text, DELETED, key)
        value = _fields(TransactionLogValue, record.value)
    except OttlaError as error:
        return StateRecord(f"Error at offset {record.offset}, skipping. {error}", None)
    state = TransactionState(value["transactionStatus"]).label
    added = [
        [(p["topic"], index) for index in p["partitionIds"]]
        for p in value["transactionPartitions"] or ()
    ]
    partitions = ",".join(f"{topic}-{index}" for topic, index in as_scala_keeps(added))
    shown = (
        f"producerId:{value['producerId']},producerEpoch:{value['producerEpoch']},state={state},"
        f"partitions=[{partitions}],"
        f"txnLastUpdateTimestamp={value['transactionLastUpdateTimestampMs']},"
        f"txnTimeoutMs={value['transactionTimeoutMs']}"
    )
    return StateRecord(text, shown, key, {**value, "transactionStatus": state})


def _version(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)


def _fields(kind: type[Message], data: bytes) -> dict[str, Any]:
    """Return the fields of a message with a version before it, as Kafka's JSON converters do."""
    message = decode_versioned(kind, data)
    return json_form(message, _version(data), Room(sys.maxsize, sys.maxsize))


_ESCAPED = {n: f"\\u{n:04X}" for n in range(32)} | {
    ord(c): f"\\{letter}" for c, letter in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)
}


def json_text(value: Any) -> str:
    """Return compact JSON as Jackson writes it."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json_text(k)}:{json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPED)}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def as_scala_keeps(added: Iterable[list[tuple[str, int]]]) -> list[tuple[str, int]]:
    """Return partitions in the order of the Scala set that Kafka adds them to, topic by topic."""
    slots, found = 16, 0
    hashes: dict[tuple[str, int], int] = {}
    for partitions in added:
        wanted = int((len(set(partitions)) + 1) / 0.75)
        slots = max(slots, 2 ** (max(wanted - 1, 4).bit_length()))
        for tp in partitions:
            if tp in hashes:
                continue
            if found + 1 >= int(slots * 0.75):
                slots *= 2
            found += 1
            code = _java_hash(*tp)
            hashes[tp] = code ^ (code >> 16)
    return sorted(hashes, key=lambda tp: (hashes[tp] & (slots - 1), _signed(hashes[tp])))


def _java_hash(topic: str, partition: int) -> int:
    """Return TopicPartition.hashCode, without a sign."""
    text = 0
    for c in topic:
        text = (31 * text + ord(c)) & 0xFFFFFFFF
    return (31 * (31 + partition) + text) & 0xFFFFFFFF


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number
