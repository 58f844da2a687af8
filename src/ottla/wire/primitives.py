"""The small pieces compiled message code calls: varints, strings, skips, packed int arrays.

Reading functions take a memoryview and a position and may raise IndexError or struct.error at the
end of the bytes; `codec` turns those into WireError. The caches are bounded and hold encodings
only. Kafka: `ByteUtils`.
"""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, NoReturn

from ottla.model.errors import ErrorCode, WireError

MAX_STRING_BYTES = 32767
"""What a Kafka reader takes at most for a string, in the compact form too."""

MAX_TAGGED_FIELDS = 127
"""What one struct may have of them: Kafka 3.9's have five at most. Each takes two bytes on the wire
and a microsecond to skip, so that without a bound one frame takes minutes."""

ONE_BYTE = tuple(bytes((value,)) for value in range(128))
"""The varints that take one byte."""

_CACHE_LIMIT = 4096
_CACHED_BYTES = 255


def read_uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """Return an unsigned varint of at most five bytes and the position after it."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise WireError("a varint is longer than five bytes")
    if value > 0x7FFFFFFF:
        raise WireError(f"a varint of {value} is no length")
    return value, pos


def read_text_length(buf: memoryview, pos: int) -> tuple[int, int]:
    """Return a compact string's length, one too high, and the position after it."""
    value, pos = read_uvarint(buf, pos)
    if value > MAX_STRING_BYTES + 1:
        raise WireError(f"a string of {value - 1} bytes is longer than {MAX_STRING_BYTES}")
    return value, pos


def uvarint(value: int) -> bytes:
    """Return `value` as an unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def skip_tagged_fields(buf: memoryview, pos: int, count: int) -> int:
    """Return the position after `count` unknown tagged fields."""
    end = len(buf)
    if count * 2 > end - pos or count > MAX_TAGGED_FIELDS:
        raise WireError(f"{count} tagged fields in {end - pos} bytes")
    for _ in range(count):
        _tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
    return pos


def bad_count(count: int, pos: int) -> NoReturn:
    raise WireError(f"an array claims {count} elements at byte {pos}, more than the bytes hold")


def bad_null(name: str) -> NoReturn:
    raise WireError(f"{name} is null where null is not allowed")


def bad_tag(tag: int) -> NoReturn:
    raise WireError(f"tagged field {tag} is not as long as it claims")


def not_in_version(name: str, version: int) -> NoReturn:
    raise WireError(
        f"{name} is set, but version {version} cannot carry it", ErrorCode.UNSUPPORTED_VERSION
    )


class _Strings(dict[str | None, bytes]):
    """A string's bytes on the wire, remembered: topic and host names come again and again."""

    def __init__(self, prefix: Callable[[int], bytes], null: bytes | None) -> None:
        super().__init__()
        self._prefix = prefix
        self._null = null

    def __missing__(self, text: str | None) -> bytes:
        if text is None:
            if self._null is None:
                raise WireError("a string is null where null is not allowed")
            return self._null
        raw = text.encode()
        if len(raw) > MAX_STRING_BYTES:
            raise WireError(f"a string of {len(raw)} bytes is longer than {MAX_STRING_BYTES}")
        encoded = self._prefix(len(raw)) + raw
        if len(raw) <= _CACHED_BYTES:
            if len(self) >= _CACHE_LIMIT:
                self.clear()
            self[text] = encoded
        return encoded


_INT16 = Struct(">h")
_legacy_prefix = _INT16.pack


def _compact_prefix(size: int) -> bytes:
    return uvarint(size + 1)


LEGACY_STRINGS = _Strings(_legacy_prefix, None)
LEGACY_NULLABLE_STRINGS = _Strings(_legacy_prefix, b"\xff\xff")
COMPACT_STRINGS = _Strings(_compact_prefix, None)
COMPACT_NULLABLE_STRINGS = _Strings(_compact_prefix, b"\x00")


class ArrayReaders(dict[int, Callable[[memoryview, int], tuple[Any, ...]]]):
    """Per count, the unpack function of an array of fixed-size elements."""

    def __init__(self, letter: str) -> None:
        super().__init__()
        self._letter = letter

    def __missing__(self, count: int) -> Callable[[memoryview, int], tuple[Any, ...]]:
        unpack = Struct(">" + self._letter * count).unpack_from
        if count <= 32:
            self[count] = unpack
        return unpack


class RunPackers(dict[Any, Callable[..., bytes]]):
    """Packs a run of fixed-size fields and arrays of such in one call, per array lengths.

    `shape` lists the run: a struct letter for a field, `*letter` for a legacy array (int32 count),
    `+letter` for a compact one. The key is the tuple of array lengths, or the bare length if there
    is one array. The function takes all values flat, each array preceded by its count as written.
    """

    def __init__(self, shape: tuple[str, ...]) -> None:
        super().__init__()
        self._shape = shape

    def __missing__(self, key: int | tuple[int, ...]) -> Callable[..., bytes]:
        lengths = (key,) if isinstance(key, int) else key
        pack = self._fused(lengths) if max(lengths) < 127 else self._piecewise(lengths)
        if max(lengths) <= 32:
            if len(self) >= _CACHE_LIMIT:
                self.clear()
            self[key] = pack
        return pack

    def _fused(self, lengths: Iterable[int]) -> Callable[..., bytes]:
        letters = ">"
        sizes = iter(lengths)
        for item in self._shape:
            if item[0] in "*+":
                letters += ("i" if item[0] == "*" else "B") + item[1:] * next(sizes)
            else:
                letters += item
        return Struct(letters).pack

    def _piecewise(self, lengths: Iterable[int]) -> Callable[..., bytes]:
        """Return a slower function for arrays whose compact count takes more than one byte."""
        plan: list[tuple[str, Struct]] = []
        sizes = iter(lengths)
        for item in self._shape:
            if item[0] in "*+":
                plan.append((item[0], Struct(">i")))
                plan.append(("", Struct(">" + item[1:] * next(sizes))))
            else:
                plan.append(("", Struct(">" + item)))
        counts = [len(packer.unpack(bytes(packer.size))) for _kind, packer in plan]

        def pack(*values: Any) -> bytes:
            parts: list[bytes] = []
            at = 0
            for (kind, packer), count in zip(plan, counts, strict=True):
                taken = values[at : at + count]
                parts.append(uvarint(taken[0]) if kind == "+" else packer.pack(*taken))
                at += count
            return b"".join(parts)

        return pack
