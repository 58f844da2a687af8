"""JSON form: a message as dictionaries and lists, by the names of Kafka's schemas.

Invariants: the result has the keys and values that Kafka's own converters give for the version;
secrets are never in it; it has at most so many elements, and no text beyond a bound. Of batches of
records the size is shown. Kafka: `JsonConverterGenerator`.
"""

import base64
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ottla.model.ids import uuid_to_text
from ottla.wire.schema import FieldLayout, StructLayout, WireStruct

HIDDEN = "[hidden]"
"""As Kafka writes a password."""
SECRETS = frozenset(
    {"auth_bytes", "hmac", "request_data", "response_data", "salt", "salted_password"}
)
"""Fields of which only this is shown: they are passwords, or what stands for one."""
MOST_ELEMENTS = 1000
MOST_TEXT = 1000
LAYOUTS = 1024


@dataclass(slots=True)
class Room:
    """How many elements of arrays may still be written, and how many were left out.

    `text`: how long a text may be.
    """

    elements: int = MOST_ELEMENTS
    text: int = MOST_TEXT
    left_out: int = 0
    texts_cut: int = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    """One field of a struct in one version."""

    name: str
    key: str
    field: FieldLayout
    secret: bool


def camel_case(name: str) -> str:
    """Return a field's name as Kafka's schemas have it: `timeout_ms` is `timeoutMs`."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


@lru_cache(maxsize=LAYOUTS)
def _entries(cls: type[WireStruct], version: int) -> tuple[_Entry, ...]:
    layout: StructLayout = cls.LAYOUT
    return tuple(
        _Entry(f.name, camel_case(f.name), f, f.name in SECRETS)
        for f in layout.fields
        if f.present(version)
    )


def json_form(message: WireStruct, version: int, room: Room) -> dict[str, Any]:
    """Return a message, or a part of one, as its version carries it."""
    found: dict[str, Any] = {}
    for entry in _entries(type(message), version):
        value = getattr(message, entry.name)
        field = entry.field
        if field.tag is not None and _is_default(field, value):
            continue  # it does not travel
        if field.type == "records" and value is not None:
            found[f"{entry.key}SizeInBytes"] = _size(value)
        elif entry.secret and value:
            found[entry.key] = HIDDEN
        elif field.array and value is not None:
            found[entry.key] = _array(field, value, version, room)
        else:
            found[entry.key] = _value(field, value, version, room)
    return found


def _is_default(field: FieldLayout, value: Any) -> bool:
    if field.struct is not None and not field.array:
        return bool(value is None or value == field.struct.made())
    return bool(value == field.default)


def _size(records: Any) -> int:
    if isinstance(records, list | tuple):
        return sum(map(len, records))
    return len(records)


def _array(field: FieldLayout, values: Any, version: int, room: Room) -> list[Any]:
    found = []
    for place, value in enumerate(values):
        if room.elements <= 0:
            room.left_out += len(values) - place
            break
        room.elements -= 1
        found.append(_value(field, value, version, room))
    return found


def _value(field: FieldLayout, value: Any, version: int, room: Room) -> Any:
    if value is None:
        return None
    if field.struct is not None:
        return json_form(value, version, room)
    if field.type == "uuid":
        return uuid_to_text(bytes(value))
    if field.type == "bytes":
        if len(value) > room.text:
            room.texts_cut += 1
        return base64.b64encode(bytes(value[: room.text])).decode()
    if field.type == "string" and len(value) > room.text:
        room.texts_cut += 1
        return value[: room.text]
    return value
