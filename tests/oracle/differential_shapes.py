"""What any request may look like, right or wrong: made from the schemas, for every key and version.

The default request, cut short, with bytes behind, with an unknown tag, with null or a negative or
huge count where an array stands first, without a client id; unknown keys and versions; frames of
nonsense. The default requests of controllers are of epoch 0, and so of no controller any more;
what they say when they are right is held to Kafka's by tests/oracle/test_controller_*.py.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from minimal_client import MinimalClient, Outcome, body_of, header_of

from ottla.wire.apis import APIS
from ottla.wire.codec import request_class


@dataclass(frozen=True)
class Shape:
    """A body that is not what its version should have."""

    key: int
    version: int
    name: str
    body: bytes
    client: str | None = "d"

    def run(self, client: MinimalClient) -> Outcome:
        return client.send(self.key, self.version, self.body, client=self.client)


@dataclass(frozen=True)
class Frame:
    """Bytes on a connection of its own; only what becomes of the connection counts."""

    name: str
    data: bytes
    key: int = -1
    version: int = -1

    def run(self, client: MinimalClient) -> Outcome:
        client.close()
        outcome = client.send_frame(self.data)
        client.close()
        return outcome


DEFAULTS: dict[int, dict[str, Any]] = {
    0: {"acks": 1},
    7: {"broker_id": 55},
    9: {"groups": [{"group_id": "g"}]},
    18: {"client_software_name": "d", "client_software_version": "1"},
    22: {"transactional_id": "t", "transaction_timeout_ms": -1},
    24: {"transactions": [{"transactional_id": "t"}]},
    46: {"topics": []},
}
"""Where the schema's defaults alone would change something, or wait."""


def shapes(keys: list[int]) -> Iterator[Shape]:
    for key in keys:
        spec = APIS[key]
        for version in range(spec.min_version, spec.max_version + 1):
            body = body_of(key, version, DEFAULTS.get(key, {}))
            yield Shape(key, version, "defaults", body)
            yield Shape(key, version, "without client id", body, None)
            yield Shape(key, version, "bytes behind", body + b"\0\1\2")
            if body:
                yield Shape(key, version, "cut short", body[:-1])
                yield Shape(key, version, "no body", b"")
            flexible = spec.is_flexible(version)
            if flexible:
                yield Shape(key, version, "unknown tag", body[:-1] + b"\1\x63\1x")
                yield Shape(key, version, "tag beyond the end", body[:-1] + b"\1\x63\x7fx")
            yield from counts(key, version, flexible=flexible)


def counts(key: int, version: int, *, flexible: bool) -> Iterator[Shape]:
    """Yield requests whose first array or string is null, of negative or of absurd length."""
    given = DEFAULTS.get(key, {})
    for field in request_class(key).LAYOUT.fields:
        if not field.present(version) or field.tag is not None:
            continue
        if field.array or field.type == "string":
            yield Shape(
                key,
                version,
                f"null {field.name}",
                body_of(key, version, {**given, field.name: None}),
            )
    first = next((f for f in request_class(key).LAYOUT.fields if f.present(version)), None)
    if first is not None and first.array:
        huge = b"\xff\xff\xff\xff\x07" if flexible else b"\x7f\xff\xff\xff"
        yield Shape(key, version, "absurd count", huge + b"\0" * 40)
        if not flexible:
            yield Shape(key, version, "count -2", b"\xff\xff\xff\xfe" + b"\0" * 40)


def frames(listed: list[int]) -> Iterator[Frame]:
    def framed(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    for key in listed:
        for version in (-1, APIS[key].max_version + 1, 99):
            header = header_of(key, version, 7)
            yield Frame(
                f"key {key} in version {version}", framed(header + b"\0" * 20), key, version
            )
    for key in (-1, 52, 53, 54, 55, 59, 62, 63, 64, 70, 71, 74, 75, 88, 1000, 32767):
        yield Frame(f"unknown key {key}", framed(header_of(key, 0, 7) + b"\0" * 20), key, 0)
    yield Frame("an empty frame", framed(b""))
    yield Frame("a frame of one byte", framed(b"\0"))
    yield Frame("a frame of seven bytes", framed(b"\0" * 7))
    yield Frame("a header without client id", framed(header_of(18, 0, 7)[:8]))
    yield Frame("a client id beyond the end", framed(struct.pack(">hhih", 18, 0, 7, 500) + b"x"))
    yield Frame("a negative client id", framed(struct.pack(">hhih", 18, 0, 7, -5)))
    yield Frame(
        "a client id that is no UTF-8", framed(struct.pack(">hhih", 18, 0, 7, 2) + b"\xff\xfe")
    )
    yield Frame("a negative size", struct.pack(">i", -1))
    yield Frame("a size beyond bounds", struct.pack(">i", 0x7FFFFFFF))
    yield Frame("another protocol", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    yield Frame("TLS", bytes.fromhex("16030100c8010000c40303") + b"\0" * 40)
