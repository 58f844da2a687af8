"""Records as JSON lines: one object for each, nothing lost. docs/RECORDS.md describes the form.

Pure functions. Invariants: a key, value or header that is UTF-8 is a JSON string, what is not is
base64 in a field of another name; `from_line` of what `to_line` returns is the same record.
"""

import base64
import binascii
import json
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ottla.model.ids import TopicPartition
from ottla.wire.records import NewRecord, Record

BASE64 = "_base64"
_AS_IT_IS = "surrogateescape"
"""How `wire.records` keeps header keys that are no UTF-8."""

_MAX_TIMESTAMP = (1 << 63) - 1
_Text = str | None | UnsetType


def field(name: str, data: bytes | None) -> tuple[str, str | None]:
    """Return name and content of the field that keeps some bytes."""
    if data is None:
        return name, None
    try:
        return name, data.decode()
    except UnicodeDecodeError:
        return name + BASE64, base64.b64encode(data).decode()


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """A header of a record, as its fields."""

    key: _Text = UNSET
    key_base64: str | UnsetType = UNSET
    value: _Text = UNSET
    value_base64: str | UnsetType = UNSET


class RecordLine(msgspec.Struct, kw_only=True):
    """A record as a line has it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: _Text = UNSET
    key_base64: str | UnsetType = UNSET
    value: _Text = UNSET
    value_base64: str | UnsetType = UNSET
    headers: list[Header]


def to_line(tp: TopicPartition, record: Record) -> bytes:
    """Return a record as one line of JSON in ASCII, without its end."""
    fields: dict[str, Any] = dict((field("key", record.key), field("value", record.value)))
    line = RecordLine(
        topic=tp.topic,
        partition=tp.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        headers=[_header_of(name, content) for name, content in record.headers],
        **fields,
    )
    return json.dumps(msgspec.to_builtins(line)).encode()


def _header_of(name: str, content: bytes | None) -> Header:
    key = field("key", name.encode(errors=_AS_IT_IS))
    fields: dict[str, Any] = dict((key, field("value", content)))
    return Header(**fields)


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    key: _Text = UNSET
    key_base64: _Text = UNSET
    value: _Text = UNSET
    value_base64: _Text = UNSET
    headers: list[Header | tuple[str, str | None]] = []


_decoder = msgspec.json.Decoder(_Line)


def from_line(line: bytes) -> NewRecord:
    """Return the record of a line; ValueError says what is wrong with it."""
    try:
        try:
            found = _decoder.decode(line)
        except msgspec.ValidationError:
            found = _decoder.decode(_as_text(line))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a record in JSON: {error}") from None
    if found.value is UNSET and found.value_base64 is UNSET:
        raise ValueError('no "value"; a tombstone is written as "value": null')
    if found.timestamp is not None and not -1 <= found.timestamp <= _MAX_TIMESTAMP:
        raise ValueError(f"timestamp {found.timestamp} is not in milliseconds since 1970")
    return NewRecord(
        key=_bytes("key", found.key, found.key_base64),
        value=_bytes("value", found.value, found.value_base64),
        headers=tuple(_header(header) for header in found.headers),
        timestamp=found.timestamp,
        partition=found.partition,
    )


def _as_text(line: bytes) -> bytes:
    """Return a line with its key and value as strings: those that are not are compact JSON then.

    Names, numbers and their order stay as they were typed.
    """
    fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    for name in ("key", "value"):
        raw = bytes(fields.get(name, b"null"))
        if raw[:1] != b'"' and raw != b"null":
            fields[name] = msgspec.Raw(msgspec.json.encode(compact(raw)))
    return msgspec.json.encode(fields)


def compact(raw: bytes) -> str:
    """Return JSON without blanks; UnicodeDecodeError."""
    return msgspec.json.format(raw, indent=-1).decode()


def field_of(value: bytes | None, name: str) -> bytes | None:
    """Return a field of a value that is a JSON object: a string's text, else compact JSON.

    None for a null; ValueError says what is wrong with the value.
    """
    try:
        fields = msgspec.json.decode(value or b"", type=dict[str, msgspec.Raw])
        if name not in fields:
            raise ValueError(f"its value has no field {name!r}")
        raw = bytes(fields[name])
        if raw == b"null":
            return None
        text = msgspec.json.decode(raw, type=str) if raw[:1] == b'"' else compact(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"its value is not a JSON object: {error}") from None
    return text.encode()


def _header(header: Header | tuple[str, str | None]) -> tuple[str, bytes | None]:
    if isinstance(header, tuple):
        name, value = header
        return name, None if value is None else value.encode()
    key = _bytes("key", header.key, header.key_base64)
    if key is None:
        raise ValueError('a header without "key"')
    content = _bytes("value", header.value, header.value_base64)
    return key.decode(errors=_AS_IT_IS), content


def _bytes(name: str, text: _Text, encoded: _Text) -> bytes | None:
    if text is not UNSET and encoded is not UNSET:
        raise ValueError(f'both "{name}" and "{name}{BASE64}"')
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):  # ValueError: not ASCII
            raise ValueError(f'"{name}{BASE64}" is not base64') from None
    return text.encode() if isinstance(text, str) else None
