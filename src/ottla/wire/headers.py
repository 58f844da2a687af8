"""What stands before a body: request and response headers, and the frame's size.

Invariants: which header version a message has follows from its key and version alone. A flexible
request has header 2 (tagged fields after client_id, which stays a legacy string),
ControlledShutdown 0 has header 0 (no client_id), all others 1. A flexible response has header 1,
but ApiVersions always has 0, for clients that do not know our versions yet. Kafka: `RequestHeader`,
`ResponseHeader` and `ApiMessageType`.
"""

import struct
from struct import Struct
from typing import Protocol

import msgspec

from ottla.model.errors import WireError
from ottla.model.ports import Buffer
from ottla.wire.apis import APIS
from ottla.wire.primitives import MAX_STRING_BYTES, skip_tagged_fields
from ottla.wire.schema import Message

API_VERSIONS_KEY = 18
CONTROLLED_SHUTDOWN_KEY = 7
_NEVER_FLEXIBLE = 32768

_FIRST_FLEXIBLE: dict[int, int] = {
    key: _NEVER_FLEXIBLE if spec.flexible_version is None else spec.flexible_version
    for key, spec in APIS.items()
}
_FIXED = Struct(">hhih")
_SHORT = Struct(">hhi")
_INT32 = Struct(">i")
_FLEXIBLE_RESPONSE = Struct(">iB")


class CountsErrors(Protocol):
    """Counts the errors in responses."""

    def count(self, header: "RequestHeader", response: Message, by: int = 1) -> None:
        """Count those of one response; with `by=-1`, take them back."""

    def tally(self, api_key: int) -> list[int]:
        """Return the counts of an API by error code, to add to."""


class RequestHeader(msgspec.Struct, gc=False):
    """A request's header. `client_id` is None where the peer sent null or the version has none.

    Not of the wire, for its response: `throttle_ms`, how long the client is to be held back, and
    `errors`, where the errors in it are counted.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    throttle_ms: int = 0
    errors: CountsErrors | None = None


def request_header_version(api_key: int, version: int) -> int:
    """Return 0, 1 or 2; an unknown key counts as not flexible."""
    if version >= _FIRST_FLEXIBLE.get(api_key, _NEVER_FLEXIBLE):
        return 2
    return 0 if api_key == CONTROLLED_SHUTDOWN_KEY and version == 0 else 1


def response_header_version(api_key: int, version: int) -> int:
    """Return 0 or 1."""
    flexible = version >= _FIRST_FLEXIBLE.get(api_key, _NEVER_FLEXIBLE)
    return 1 if flexible and api_key != API_VERSIONS_KEY else 0


def decode_request_header(buf: memoryview, pos: int = 0) -> tuple[RequestHeader, int]:
    """Return the header of a frame (without its size) and the position of the body.

    Keys and versions are not judged here; a version above what we know is read with the newest
    layout, so that ApiVersions can be refused politely.
    """
    try:
        key, version, correlation_id, size = _FIXED.unpack_from(buf, pos)
        if key == CONTROLLED_SHUTDOWN_KEY and version == 0:
            return RequestHeader(key, version, correlation_id, None), pos + 8
        pos += 10
        client_id = None
        if size >= 0:
            # Kafka, too, takes a client's name as it comes.
            client_id = str(buf[pos : pos + size], "utf-8", "replace")
            pos += size
        if version >= _FIRST_FLEXIBLE.get(key, _NEVER_FLEXIBLE):
            count = buf[pos]
            pos += 1
            if count:
                pos = _skip_tags(buf, pos, count)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"request header: {error}") from error
    if pos > len(buf):
        raise WireError(f"request header ends at byte {pos} of {len(buf)}")
    return RequestHeader(key, version, correlation_id, client_id), pos


def _skip_tags(buf: memoryview, pos: int, count: int) -> int:
    if count > 0x7F:
        raise WireError("a header with more than 127 tagged fields")
    return skip_tagged_fields(buf, pos, count)


def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return the bytes before a request's body."""
    header_version = request_header_version(api_key, version)
    if header_version == 0:
        return _SHORT.pack(api_key, version, correlation_id)
    tail = b"\x00" if header_version == 2 else b""
    if client_id is None:
        return _FIXED.pack(api_key, version, correlation_id, -1) + tail
    raw = client_id.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise WireError(f"a client id of {len(raw)} bytes")
    return _FIXED.pack(api_key, version, correlation_id, len(raw)) + raw + tail


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Return the bytes before a response's body."""
    if version >= _FIRST_FLEXIBLE.get(api_key, _NEVER_FLEXIBLE) and api_key != API_VERSIONS_KEY:
        return _FLEXIBLE_RESPONSE.pack(correlation_id, 0)
    return _INT32.pack(correlation_id)


def decode_response_header(api_key: int, version: int, buf: memoryview) -> tuple[int, int]:
    """Return the correlation id of a frame (without its size) and the position of the body."""
    try:
        (correlation_id,) = _INT32.unpack_from(buf, 0)
        pos = 4
        if response_header_version(api_key, version) == 1:
            count = buf[pos]
            pos += 1
            if count:
                pos = _skip_tags(buf, pos, count)
    except (struct.error, IndexError) as error:
        raise WireError(f"response header: {error}") from error
    if pos > len(buf):
        raise WireError(f"response header ends at byte {pos} of {len(buf)}")
    return correlation_id, pos


def frame(header: bytes, parts: list[Buffer]) -> list[Buffer]:
    """Return size, header and body as one list of parts, ready for a vectored write."""
    size = len(header) + sum(map(len, parts))
    return [_INT32.pack(size) + header, *parts]
