"""A client with nothing in it: one socket, bytes of our own making, and what became of them.

Requests are dicts, written by the schema's layouts alone, so that nulls, lengths and values that
no client would send can be sent. Only answers are read with the product's codec.
"""

import socket
import struct
from dataclasses import dataclass
from typing import Any

from ottla.wire.apis import APIS
from ottla.wire.codec import decode_response, request_class
from ottla.wire.headers import decode_response_header, response_header_version
from ottla.wire.schema import StructLayout, WireStruct

FIXED = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
         "float64": "d", "bool": "?"}  # fmt: skip
RESPONSE_S = 20.0  # nothing is expected to be silent, and a JVM on a busy machine takes its time


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def body_of(key: int, version: int, fields: dict[str, Any]) -> bytes:
    """Return a request's body; a field left out has the schema's default, None is null."""
    flexible = APIS[key].is_flexible(version)
    return _struct(request_class(key).LAYOUT, version, flexible, fields)


def _struct(layout: StructLayout, version: int, flexible: bool, given: dict[str, Any]) -> bytes:
    unknown = set(given) - {f.name for f in layout.fields}
    assert not unknown, f"{layout.name} has no {unknown}"
    out, tags = b"", []
    for field in layout.fields:
        if not field.present(version):
            continue
        if field.tag is not None:
            if field.name in given:
                tags.append((field.tag, _value(field, version, flexible, given[field.name])))
            continue
        value = given[field.name] if field.name in given else _default(field)
        out += _value(field, version, flexible, value)
    if not flexible:
        return out
    out += varint(len(tags))
    return out + b"".join(varint(t) + varint(len(v)) + v for t, v in sorted(tags))


def _default(field: Any) -> Any:
    if field.struct is not None and not field.array and field.nullable is None:
        return {}
    return field.default


def _value(field: Any, version: int, flexible: bool, value: Any) -> bytes:
    if not field.array:
        return _one(field, version, flexible, value)
    if value is None:
        return b"\x00" if flexible else b"\xff\xff\xff\xff"
    count = varint(len(value) + 1) if flexible else struct.pack(">i", len(value))
    return count + b"".join(_one(field, version, flexible, v) for v in value)


def _one(field: Any, version: int, flexible: bool, value: Any) -> bytes:
    if field.struct is not None:
        return _struct(field.struct, version, flexible, value)
    if field.type in FIXED:
        return struct.pack(">" + FIXED[field.type], value)
    if field.type == "uuid":
        return bytes(value)
    size = ">h" if field.type == "string" else ">i"
    if value is None:
        return b"\x00" if flexible else struct.pack(size, -1)
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)
    return (varint(len(raw) + 1) if flexible else struct.pack(size, len(raw))) + raw


def header_of(key: int, version: int, correlation: int, client: str | None = "d") -> bytes:
    """Return a request's header; unknown keys and versions get the one before tagged fields."""
    if key == 7 and version == 0:
        return struct.pack(">hhi", key, version, correlation)
    raw = None if client is None else client.encode()
    out = struct.pack(">hhih", key, version, correlation, -1 if raw is None else len(raw))
    tail = b"\x00" if key in APIS and APIS[key].is_flexible(version) else b""
    return out + (raw or b"") + tail


def plain(value: Any, version: int) -> Any:
    """Return an answer as dicts and lists of only those fields that its version has."""
    if isinstance(value, WireStruct):
        fields = type(value).LAYOUT.fields
        return {
            f.name: plain(getattr(value, f.name), version) for f in fields if f.present(version)
        }
    if isinstance(value, list):
        return [plain(v, version) for v in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return value


@dataclass
class Outcome:
    """What became of a request: `answered`, `closed` or `silent`; with the answer's fields."""

    result: str
    answer: Any = None


class MinimalClient:
    """One connection at a time, opened again when the server closed it.

    `source`: the address of 127/8 that it comes from.
    """

    def __init__(self, address: str, source: str = "") -> None:
        self._source = (source, 0) if source else None
        host, _, port = address.rpartition(":")
        self.host, self.port = host, int(port)
        self._socket: socket.socket | None = None
        self._correlation = 0

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(
        self,
        key: int,
        version: int,
        body: bytes,
        *,
        client: str | None = "d",
        timeout_s: float = RESPONSE_S,
    ) -> Outcome:
        """Send one request, wait for its answer."""
        self._correlation += 1
        header = header_of(key, version, self._correlation, client)
        size = struct.pack(">i", len(header) + len(body))
        outcome = self.send_frame(size + header + body, timeout_s)
        if outcome.result != "answered":
            return outcome
        return self._read(key, version, outcome.answer)

    def send_without_response(self, key: int, version: int, body: bytes) -> Outcome:
        """Send what has no answer, then ask for versions: is the connection still served?"""
        self._correlation += 1
        header = header_of(key, version, self._correlation)
        first = struct.pack(">i", len(header) + len(body)) + header + body
        second = header_of(18, 0, self._correlation)
        outcome = self.send_frame(first + struct.pack(">i", len(second)) + second)
        if outcome.result != "answered":
            return outcome
        return Outcome("silent, then served" if len(outcome.answer) > 100 else "answered")

    def send_frame(self, data: bytes, timeout_s: float = RESPONSE_S) -> Outcome:
        """Send bytes as they are; the answer is the next frame's bytes."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(
                    (self.host, self.port), timeout=5, source_address=self._source
                )
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(timeout_s)
            self._socket.sendall(data)
            (size,) = struct.unpack(">i", self._receive(4))
            return Outcome("answered", self._receive(size))
        except TimeoutError:
            self.close()
            return Outcome("silent")
        except (ConnectionError, EOFError):
            self.close()
            return Outcome("closed")

    def _receive(self, size: int) -> bytes:
        assert self._socket is not None
        got = bytearray()
        while len(got) < size:
            part = self._socket.recv(size - len(got))
            if not part:
                raise EOFError
            got += part
        return bytes(got)

    def _read(self, key: int, version: int, raw: bytes) -> Outcome:
        correlation, position = decode_response_header(key, version, memoryview(raw))
        if correlation != self._correlation:
            return Outcome("answered", f"to another request, {correlation}")
        if key == 18 and raw[4:6] == b"\x00\x23":  # UNSUPPORTED_VERSION comes in version 0
            version = 0
        assert response_header_version(key, version) in (0, 1)
        message = decode_response(key, version, raw, position)
        return Outcome("answered", plain(message, version))
