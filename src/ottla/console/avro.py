"""Avro: values of records decoded by schema files, from the plain encoding or Confluent's.

Invariants: what a value announces is counted before fastavro sees it (it loops over a billion
nulls, and deep recursion ends its process); a value is shown decoded, or as it is with the reason;
a schema is what its file says.
"""

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.console.formats import FORMS, Formed, formed
from ottla.wire.avro import MOST_DECIMAL_BYTES, Schema

AVRO = "avro"
MOST_BYTES = 65_536
"""Larger values are not decoded."""
MOST_ITEMS = 20_000
"""Of one value: each field, item, key and null is one."""
PAGE_ITEMS = 100_000
"""Of all values of a page together."""
DEEPEST = 20
"""Records, arrays and maps in one another."""
FRAME = 5
"""Confluent's wire format: a zero byte and the schema's id, then the datum."""
_LAST_SHIFT = 63
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class NotDecodedError(Exception):
    """A value that is not shown decoded. The message is a clause that says why."""


class Schemas:
    """Which topics have a schema: of their own, or the one of all others."""

    def __init__(
        self, own: Mapping[str, Schema] | None = None, other: Schema | None = None
    ) -> None:
        self._own = own or {}
        self._other = other

    def of(self, topic: str) -> Schema | None:
        """Return the schema of a topic's values, None where there is none."""
        return self._own.get(topic, self._other)

    def forms(self, topic: str) -> tuple[str, ...]:
        """Return how records of a topic can be shown."""
        return FORMS if self.of(topic) is None else (*FORMS, AVRO)

    def usual_form(self, topic: str) -> str:
        """Return how records of a topic are shown where nothing is chosen."""
        return AVRO if topic in self._own else FORMS[0]


@dataclass(slots=True)
class Budget:
    """How many items a page may still decode."""

    items: int = PAGE_ITEMS


def formed_value(data: bytes | None, schema: Schema, most: int, budget: Budget) -> Formed:
    """Return a value as JSON of at most `most` characters; what is not decoded as it is."""
    if data is None:
        return formed(None, AVRO, most)
    try:
        text, note = decoded(data, schema, budget)
    except NotDecodedError as error:
        return formed(data, "auto", most)._replace(note=f"not shown as Avro: {error}")
    if len(text) > most:
        note = f"{note}{'; ' if note else ''}first {most:,} of {len(text):,} characters shown"
    return Formed(text[:most], AVRO, len(data), 0, note)


def decoded(data: bytes, schema: Schema, budget: Budget) -> tuple[str, str]:
    """Return a value as JSON and what is to be said of it; NotDecodedError with the reason."""
    if len(data) > MOST_BYTES:
        raise NotDecodedError(f"more than {MOST_BYTES // 1024} KiB")
    if data[:1] == b"\0" and len(data) >= FRAME:
        try:
            text = _datum(data[FRAME:], schema, budget)
            return text, f"Confluent's wire format, schema id {int.from_bytes(data[1:FRAME])}"
        except NotDecodedError:
            pass  # a plain datum may begin with a zero, too
    return _datum(data, schema, budget), ""


def _datum(data: bytes, schema: Schema, budget: Budget) -> str:
    import fastavro

    _check(data, schema, budget)
    try:
        value = fastavro.schemaless_reader(io.BytesIO(data), schema.parsed, None)
        return json.dumps(value, indent=2, ensure_ascii=False, default=_plain)
    except Exception as error:  # noqa: BLE001 - fastavro raises what it likes: dates, characters
        raise NotDecodedError(f"{type(error).__name__}: {str(error)[:80]}") from None


def _check(data: bytes, schema: Schema, budget: Budget) -> None:
    """Raise NotDecodedError unless a datum is of the schema, takes all bytes, and is not large."""
    allowed = min(MOST_ITEMS, budget.items)
    walk = _Walk(data, schema.named, allowed)
    try:
        walk.over(schema.parsed, 0)
    finally:
        budget.items -= allowed - walk.left
    if walk.at < len(data):
        raise NotDecodedError(f"{len(data) - walk.at:,} bytes remain after the value")


def _plain(value: Any) -> str:
    """Return what JSON has no form for: bytes as in Avro's JSON encoding, times in ISO 8601."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)


class _Walk:
    """Goes over a datum as a decoder does, and builds nothing. `left`: items it may still meet."""

    def __init__(self, data: bytes, named: Mapping[str, object], left: int) -> None:
        self._data, self._named, self._allowed = data, named, left
        self.at, self.left = 0, left

    def over(self, schema: Any, depth: int) -> None:
        if self.left <= 0:
            raise self._too_many()
        self.left -= 1
        if isinstance(schema, list):
            self.over(schema[self._index(len(schema), "branch of a union")], depth)
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in ("record", "error", "array", "map") and depth >= DEEPEST:
            raise NotDecodedError(f"nested deeper than {DEEPEST}")
        match kind:
            case "null" | "boolean" | "float" | "double":
                self._skip(_SIZES[kind])
            case "int" | "long":
                self._long()
            case "bytes" | "string":
                self._sized(self._long(), schema)
            case "fixed":
                self._sized(schema["size"], schema)
            case "enum":
                self._index(len(schema["symbols"]), "symbol of an enum")
            case "record" | "error":
                for field in schema["fields"]:
                    self.over(field["type"], depth + 1)
            case "array":
                for _ in self._items():
                    self.over(schema["items"], depth + 1)
            case "map":
                for _ in self._items():
                    self._skip(self._long())
                    self.over(schema["values"], depth + 1)
            case _:
                self.over(self._named[kind] if isinstance(kind, str) else kind, depth)

    def _too_many(self) -> NotDecodedError:
        return NotDecodedError(f"more than {self._allowed:,} items")

    def _items(self) -> Iterator[int]:
        """Yield for each item of an array's or map's blocks, which are counted beforehand."""
        while count := self._long():
            if count < 0:  # the block's size follows
                self._long()
            if abs(count) > self.left:
                raise self._too_many()
            yield from range(abs(count))

    def _sized(self, size: int, schema: Any) -> None:
        is_decimal = isinstance(schema, dict) and schema.get("logicalType") == "decimal"
        if is_decimal and size > MOST_DECIMAL_BYTES:
            raise NotDecodedError(f"a decimal of more than {MOST_DECIMAL_BYTES} bytes")
        self._skip(size)

    def _skip(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self.at:
            raise NotDecodedError("the value is truncated, or has another schema")
        self.at += size

    def _index(self, count: int, what: str) -> int:
        index = self._long()
        if not 0 <= index < count:
            raise NotDecodedError(f"there is no {what} number {index}")
        return index

    def _long(self) -> int:
        number = shift = 0
        while True:
            self._skip(1)
            byte = self._data[self.at - 1]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > _LAST_SHIFT:
                raise NotDecodedError("a number longer than ten bytes")
