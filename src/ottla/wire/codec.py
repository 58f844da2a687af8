"""The way into the wire: bodies of requests and responses to messages and back.

A parse or write function is compiled at the first use of its (api, version, direction) and kept.
What arrives is judged here: short bytes, counts beyond the bytes, bad UTF-8, nulls where none may
be and anything after the message's end are WireError. Decoded `records` are slices of the given
buffer, so a caller that keeps one keeps the whole frame. Kafka: `ApiMessageType`,
`AbstractRequest.parseRequest` and `MessageUtil`.
"""

import struct
from collections.abc import Callable, Generator
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from ottla.model.errors import OttlaError, UnsupportedVersionError, WireError
from ottla.model.ports import Buffer
from ottla.model.steps import Driven, drain
from ottla.wire.apis import APIS, ApiSpec
from ottla.wire.compile_read import (
    Reader,
    compile_reader,
    compile_sliced_reader,
)
from ottla.wire.compile_write import (
    SlicedWriter,
    Writer,
    compile_sliced_writer,
    compile_writer,
)
from ottla.wire.schema import Message, StructLayout, WireStruct

__all__ = [
    "APIS",
    "ApiSpec",
    "Message",
    "Reader",
    "Writer",
    "decode_request",
    "decode_request_in_slices",
    "decode_response",
    "decode_versioned",
    "encode_in_slices",
    "encode_request",
    "encode_response",
    "encode_struct",
    "encode_versioned",
    "request_class",
    "request_readers",
    "request_writers",
    "response_class",
    "response_readers",
    "response_writers",
]

F = TypeVar("F")

_VERSION = struct.Struct(">h")

LARGE_BYTES = 1 << 15
MAX_ELEMENTS = 100_000
"""What the arrays of a request may hold, all together.

An element takes one to three bytes on the wire, a hundred and fifty in memory, and a microsecond to
read: without a bound one frame of socket.request.max.bytes is gigabytes and half a minute. Kafka
has none; but it has more than one thread.
"""

MAX_ELEMENTS_AT_ONCE = 20_000
"""What a request above `LARGE_BYTES` may hold that is read in one go: ten milliseconds or so."""

_MORE_AT_ONCE = {1: 100_000, 56: 200_000}
"""Fetch and AlterPartition of a broker that shares very many partitions with another."""

_BAD_BYTES = (IndexError, struct.error, UnicodeDecodeError)
"""What compiled parse functions raise at the end of the bytes or within a bad string."""

_BAD_VALUES = (struct.error, TypeError, AttributeError, UnicodeEncodeError)
"""What compiled write functions raise for a value that does not fit its field."""


def _spec(api_key: int, version: int) -> ApiSpec:
    spec = APIS.get(api_key)
    if spec is None:
        raise UnsupportedVersionError(f"unknown api key {api_key}")
    if not spec.supports(version):
        raise UnsupportedVersionError(
            f"{spec.name} version {version} is outside {spec.min_version}-{spec.max_version}"
        )
    return spec


def request_class(api_key: int) -> type[Message]:
    """Return the request class of a key, importing its module if need be."""
    return _message_class(api_key, "Request")


def response_class(api_key: int) -> type[Message]:
    """Return the response class of a key, importing its module if need be."""
    return _message_class(api_key, "Response")


def _message_class(api_key: int, direction: str) -> type[Message]:
    spec = APIS.get(api_key)
    if spec is None:
        raise UnsupportedVersionError(f"unknown api key {api_key}")
    cls: type[Message] = getattr(import_module(spec.module), spec.name + direction)
    return cls


class _Compiled(dict[tuple[int, int], F]):
    """Functions by api key and version, each compiled when it is first looked up."""

    def __init__(
        self,
        make: Callable[[StructLayout, int, int | None], F],
        class_of: Callable[[int], type[Message]],
    ) -> None:
        super().__init__()
        self._make, self._class_of = make, class_of

    def __missing__(self, key: tuple[int, int]) -> F:
        made = self[key] = self._make(*_layout_of(*key, self._class_of))
        return made


# Functions as `compile_read` and `compile_write` make them, without the checks of `decode_request`.
request_readers = _Compiled(compile_reader, request_class)
response_readers = _Compiled(compile_reader, response_class)
request_writers = _Compiled(compile_writer, request_class)
response_writers = _Compiled(compile_writer, response_class)
_sliced_readers = _Compiled(compile_sliced_reader, request_class)


@cache
def _sliced_encoder(cls: type[Message], version: int) -> SlicedWriter:
    spec = _spec(cls.API_KEY, version)
    return compile_sliced_writer(cls.LAYOUT, version, spec.flexible_version)


def _layout_of(
    api_key: int, version: int, class_of: Callable[[int], type[Message]]
) -> tuple[StructLayout, int, int | None]:
    spec = _spec(api_key, version)
    return class_of(api_key).LAYOUT, version, spec.flexible_version


def decode_request(
    api_key: int, version: int, buf: Buffer, pos: int = 0, *, rest_ok: bool = False
) -> Any:
    """Return the request whose body fills `buf` from `pos` to its end.

    With `rest_ok` bytes may follow, as Kafka's broker allows: librdkafka leaves three behind a
    Metadata request for all topics.
    """
    if len(buf) - pos > LARGE_BYTES:
        return _decode_large(api_key, version, memoryview(buf), pos, rest_ok=rest_ok)
    reader = request_readers[api_key, version]
    return _decode(reader, buf, pos, api_key, version, rest_ok=rest_ok)


def _decode_large(api_key: int, version: int, buf: memoryview, pos: int, *, rest_ok: bool) -> Any:
    """Decode what may hold very much, and stop where that is too much."""
    most = _MORE_AT_ONCE.get(api_key, MAX_ELEMENTS_AT_ONCE)
    return drain(decode_request_in_slices(api_key, version, buf, pos, rest_ok=rest_ok, most=most))


def decode_response(api_key: int, version: int, buf: Buffer, pos: int = 0) -> Any:
    """Return the response whose body fills `buf` from `pos` to its end."""
    return _decode(response_readers[api_key, version], buf, pos, api_key, version)


def _decode(
    reader: Reader, buf: Buffer, pos: int, what: int | str, version: int, *, rest_ok: bool = False
) -> Any:
    """Parse and judge the end; `what` (an api key or a name) is looked up for errors only."""
    if type(buf) is not memoryview:
        buf = memoryview(buf)
    try:
        message, end = reader(buf, pos)
    except _BAD_BYTES as error:
        raise WireError(f"{_name(what)} v{version}: {error}") from error
    except WireError as error:
        raise WireError(f"{_name(what)} v{version}: {error}", error.code) from error
    if end != len(buf):
        _check_end(end, len(buf), what, version, rest_ok=rest_ok)
    return message


def _check_end(end: int, size: int, what: int | str, version: int, *, rest_ok: bool) -> None:
    if end != size and not (rest_ok and end < size):
        raise WireError(f"{_name(what)} v{version}: ends at byte {end} of {size}")


def decode_request_in_slices(
    api_key: int,
    version: int,
    buf: memoryview,
    pos: int = 0,
    *,
    rest_ok: bool = False,
    most: int | None = None,
) -> Generator[None, None, Any]:
    """Do what `decode_request` does, but yield every few milliseconds of work: for large ones.

    WireError where all its arrays together hold more than `most` elements.
    """
    reader = _sliced_readers[api_key, version]
    try:
        message, end = yield from _counted(reader(buf, pos), most)
    except _BAD_BYTES as error:
        raise WireError(f"{_name(api_key)} v{version}: {error}") from error
    except WireError as error:
        raise WireError(f"{_name(api_key)} v{version}: {error}", error.code) from error
    _check_end(end, len(buf), api_key, version, rest_ok=rest_ok)
    return message


def _counted(
    steps: Generator[int, None, tuple[Any, int]], most: int | None
) -> Generator[None, None, tuple[Any, int]]:
    """Count what is read, and stop where that is too much."""
    count = 0
    driven = Driven(steps)
    for more in driven:
        count += more
        if most is not None and count > most:
            raise WireError(f"more than {most} elements")
        yield
    return driven.result


def _name(what: int | str) -> str:
    return APIS[what].name if isinstance(what, int) else what


def encode_request(message: Message, version: int) -> list[Buffer]:
    """Return the parts of a request's body."""
    return _encode(request_writers[message.API_KEY, version], message)


def encode_in_slices(message: Message, version: int) -> Generator[None, None, list[Buffer]]:
    """Encode a large request or response, but yield every few milliseconds of work."""
    writer = _sliced_encoder(type(message), version)
    parts: list[Buffer] = []
    whole: list[Buffer] = []
    try:
        for _ in writer(message, parts):
            whole.append(b"".join(parts))  # a million small parts would be joined in one go
            parts.clear()
            yield
    except _BAD_VALUES as error:
        raise WireError(f"{type(message).__name__}: {error}") from error
    except OttlaError as error:
        raise WireError(f"{type(message).__name__}: {error}", error.code) from error
    return [*whole, b"".join(parts)]


def encode_struct(value: WireStruct, version: int, flexible: int | None) -> bytes:
    """Return one struct as it stands inside its message, whose first flexible version is given.

    For parts that many requests hold: they are encoded once and joined.
    """
    return b"".join(_encode(_struct_encoder(type(value), version, flexible), value))


@cache
def _struct_encoder(cls: type[WireStruct], version: int, flexible: int | None) -> Writer:
    return compile_writer(cls.LAYOUT, version, flexible)


def encode_response(message: Message, version: int) -> list[Buffer]:
    """Return the parts of a response's body."""
    return _encode(response_writers[message.API_KEY, version], message)


def _encode(writer: Writer, value: WireStruct) -> list[Buffer]:
    parts: list[Buffer] = []
    try:
        writer(value, parts)
    except _BAD_VALUES as error:
        raise WireError(f"{type(value).__name__}: {error}") from error
    except OttlaError as error:
        raise WireError(f"{type(value).__name__}: {error}", error.code) from error
    return parts


def decode_versioned(cls: type[Message], buf: Buffer, *, newer_ok: bool = False) -> Any:
    """Return a message that is no API of its own, from an int16 version and its body.

    With `newer_ok` a version above ours is read as our newest, and what follows is ignored: so
    clients treat each other's group metadata. Otherwise it is an UnsupportedVersionError.
    """
    if len(buf) < 2:
        raise WireError(f"{cls.__name__}: {len(buf)} bytes hold no version")
    (version,) = _VERSION.unpack_from(buf)
    newer = newer_ok and version > cls.MAX_VERSION
    if newer:
        version = cls.MAX_VERSION
    return _decode_struct(cls, buf, version, rest_ok=newer)


def decode_oldest(cls: type[Message], buf: Buffer) -> Any:
    """Return a message that is no API of its own, read as version 0, whatever version it names.

    For messages whose newer versions only add fields at the end: what follows is ignored.
    """
    if len(buf) < _VERSION.size:
        raise WireError(f"{cls.__name__}: {len(buf)} bytes hold no version")
    return _decode_struct(cls, buf, 0, rest_ok=True)


def _decode_struct(cls: type[Message], buf: Buffer, version: int, *, rest_ok: bool) -> Any:
    reader = _versioned_decoder(cls, version)
    return _decode(reader, buf, _VERSION.size, cls.__name__, version, rest_ok=rest_ok)


@cache
def _versioned_decoder(cls: type[Message], version: int) -> Reader:
    return compile_reader(cls.LAYOUT, _checked(cls, version), cls.FLEXIBLE_VERSION)


def encode_versioned(message: Message, version: int) -> bytes:
    """Return an int16 version and the body of a message that is no API of its own."""
    cls = type(message)
    writer = _struct_encoder(cls, _checked(cls, version), cls.FLEXIBLE_VERSION)
    return b"".join([_VERSION.pack(version), *_encode(writer, message)])


def _checked(cls: type[Message], version: int) -> int:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise UnsupportedVersionError(f"{cls.__name__} has no version {version}")
    return version
