"""Mutations that know the schema: a message's bytes cut into fields, one of them made wrong.

Works on bytes, not on messages, so that what is already broken can be broken further, and writes
its own lengths, so that it can write what our encoder refuses: negative and overlong lengths,
counts beyond the bytes, nulls where none may be, tagged fields twice or longer than they are,
text that is no UTF-8, elements twice or a thousand times.
"""

import contextlib
import random
import struct
from dataclasses import dataclass, field

from ottla.model.errors import OttlaError
from ottla.wire import codec, compression
from ottla.wire.apis import APIS
from ottla.wire.batch_header import crc32c
from ottla.wire.headers import decode_request_header
from ottla.wire.schema import FIXED

INTEGERS = {"b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8}
EDGE_LENGTHS = (-1, -2, 0, 1, 127, 128, 255, 32767, 65536, 2**20, 2**31 - 1, -(2**31))
BAD_VARINTS = (
    b"\x80\x80\x80\x80\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x10",
    b"\x81\x80\x80\x80\x00",
    b"\x80\x00",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff",
)
TEXTS = (
    b"", b"\x00", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"..", b"/",
    b"hostile", b"compacted", b"events", b"mallory", b"__consumer_offsets", b"__transaction_state",
    b"0", b"1", b"-1", b"99999999999999999999", b"cleanup.policy", b"retention.ms", b"a\nb",
    b"x" * 249, b"x" * 250, b"y" * 32767, b"y" * 40000, "é".encode() * 200,
)  # fmt: skip


def uvarint(value):
    out = bytearray()
    value &= 2**64 - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@dataclass
class Token:
    """A field's place in the bytes. `kind` is a letter of `struct`, or what it is called here.

    `size` (a length or count), `text` (string, bytes, records), `array`, `tags`, `mark` (of a
    nullable struct). `parts` are the places of an array's elements or of tagged fields.
    """

    kind: str
    start: int
    end: int
    compact: bool = False
    width: int = 0
    head: int = 0
    parts: list[tuple[int, int]] = field(default_factory=list)


class _End(Exception):  # noqa: N818 - the bytes end, or say what cannot be
    pass


class Anatomy:
    """Cuts a body into tokens, as far as it makes sense."""

    def __init__(self, data, version, *, flexible):
        self.data = data
        self.version = version
        self.flexible = flexible
        self.tokens = []

    def cut(self, layout, pos):
        with contextlib.suppress(_End, IndexError, struct.error):
            self._struct(layout, pos)
        return self.tokens

    def _add(self, kind, start, end, **more):
        token = Token(kind, start, end, self.flexible, **more)
        self.tokens.append(token)
        return token

    def _uvarint(self, pos):
        value = shift = 0
        while True:
            byte = self.data[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, pos
            shift += 7
            if shift > 28:
                raise _End

    def _length(self, pos, width):
        if self.flexible:
            value, end = self._uvarint(pos)
            self._add("size", pos, end)
            return value - 1, end
        (value,) = struct.unpack_from(">h" if width == 2 else ">i", self.data, pos)
        self._add("size", pos, pos + width, width=width)
        return value, pos + width

    def _struct(self, layout, pos):
        tagged = {}
        for item in layout.fields:
            if not item.present(self.version):
                continue
            if item.tag is not None and self.flexible:
                tagged[item.tag] = item
            else:
                pos = self._value(item, pos)
        return self._tags(tagged, pos) if self.flexible else pos

    def _tags(self, known, pos):
        count, after = self._uvarint(pos)
        token = self._add("tags", pos, after)
        pos = after
        for _ in range(min(count, 1000)):
            start = pos
            tag, pos = self._uvarint(pos)
            at = pos
            size, pos = self._uvarint(pos)
            self._add("size", at, pos)
            if tag in known:
                self._value(known[tag], pos)
            pos += size
            if pos > len(self.data):
                raise _End
            token.parts.append((start, pos))
        return pos

    def _value(self, item, pos):
        if item.array:
            return self._array(item, pos)
        return self._one(item, pos, nullable=item.null_allowed(self.version))

    def _one(self, item, pos, *, nullable=False):
        if item.type in FIXED:
            letter = FIXED[item.type]
            end = pos + struct.calcsize(">" + letter)
            if end > len(self.data):
                raise _End
            self._add(letter, pos, end)
            return end
        if item.struct is not None:
            if nullable:
                self._add("mark", pos, pos + 1)
                if self.data[pos] > 127:
                    return pos + 1
                pos += 1
            return self._struct(item.struct, pos)
        width = 2 if item.type == "string" else 4
        head = pos
        size, pos = self._length(pos, width)
        end = pos + max(size, 0)
        if end > len(self.data):
            raise _End
        kind = "records" if item.type == "records" else "text"
        self._add(kind, pos, end, width=width, head=head)
        return end

    def _array(self, item, pos):
        head = pos
        count, pos = self._length(pos, 4)
        token = self._add("array", pos, pos, width=4, head=head)
        if count > len(self.data):
            raise _End
        for _ in range(count):
            start = pos
            pos = self._one(item, pos)
            token.parts.append((start, pos))
        token.end = pos
        return pos


class Mutator:
    """Makes one thing wrong at a time. `rng` decides what."""

    def __init__(self, rng, topic_ids=()):
        self.rng = rng
        self.topic_ids = tuple(topic_ids)

    # Bodies.

    def body(self, layout, version, flexible_from, data, pos):
        """Return `data` with one field of the message that starts at `pos` changed."""
        flexible = flexible_from is not None and version >= flexible_from
        tokens = Anatomy(data, version, flexible=flexible).cut(layout, pos)
        draw = self.rng.random()
        if not tokens or draw < 0.06:
            return self.bytes(data, pos)
        if draw < 0.09:
            return data[: self.rng.randrange(pos, len(data) + 1)]
        if draw < 0.12:
            return data + self.rng.randbytes(self.rng.choice((1, 3, 100)))
        return self.token(data, self.rng.choice(tokens))

    def token(self, data, token):
        rng = self.rng
        if token.kind in INTEGERS:
            return self._splice(data, token.start, token.end, self.integer(data, token))
        if token.kind == "?":
            return self._splice(data, token.start, token.end, bytes((rng.choice((0, 1, 2, 255)),)))
        if token.kind == "16s":
            chosen = rng.choice((bytes(16), b"\xff" * 16, rng.randbytes(16), *self.topic_ids * 3))
            return self._splice(data, token.start, token.end, chosen)
        if token.kind == "d":
            value = rng.choice((0.0, -1.0, 1e300, float("nan"), float("-inf")))
            return self._splice(data, token.start, token.end, struct.pack(">d", value))
        if token.kind == "mark":
            return self._splice(
                data, token.start, token.end, rng.choice((b"\xff", b"\x01", b"\x7f"))
            )
        if token.kind == "size":
            return self._splice(data, token.start, token.end, self._size(data, token))
        if token.kind == "tags":
            return self._tags(data, token)
        if token.kind == "array":
            return self._array(data, token)
        content = data[token.start : token.end]
        if token.kind == "records" and rng.random() < 0.9:
            content = self.batch(content)
        elif rng.random() < 0.15:
            return self._splice(data, token.head, token.end, self._null(token))
        else:
            content = rng.choice(TEXTS)
        return self._splice(
            data, token.head, token.end, self._prefix(token, len(content)) + content
        )

    def integer(self, data, token):
        rng = self.rng
        size = INTEGERS[token.kind]
        top = 1 << (8 * size - 1)
        present = int.from_bytes(data[token.start : token.end], "big", signed=True)
        value = rng.choice(
            (-1, 0, 1, 2, 3, 100, -2, top - 1, -top, present + 1, present - 1, -present,
             1000, 60_000, rng.randrange(-top, top))
        )  # fmt: skip
        return (value & (2 * top - 1)).to_bytes(size, "big")

    def _size(self, data, token):
        rng = self.rng
        value = rng.choice((*EDGE_LENGTHS, len(data) - token.end, len(data) - token.end + 1))
        if not token.compact:
            bits = 8 * token.width
            return (value & ((1 << bits) - 1)).to_bytes(token.width, "big")
        return rng.choice(BAD_VARINTS) if rng.random() < 0.4 else uvarint(value + 1 & 0xFFFFFFFF)

    def _prefix(self, token, size):
        if token.compact:
            return uvarint(size + 1)
        if token.width == 2:
            return struct.pack(">H", size & 0xFFFF)
        return struct.pack(">i", size)

    def _null(self, token):
        return b"\x00" if token.compact else b"\xff" * token.width

    def _array(self, data, token):
        rng = self.rng
        parts = [data[start:end] for start, end in token.parts]
        draw = rng.random()
        if draw < 0.1 or not parts:
            return self._splice(data, token.head, token.end, self._null(token))
        if draw < 0.45:
            parts.insert(rng.randrange(len(parts) + 1), rng.choice(parts))
        elif draw < 0.65:
            del parts[rng.randrange(len(parts))]
        elif draw < 0.75:
            parts = [rng.choice(parts)] * rng.choice((64, 300, 2000))
        elif draw < 0.85:
            rng.shuffle(parts)
        else:
            parts = []
        content = b"".join(parts)
        if len(content) > 65536:
            return data
        prefix = self._prefix(token, len(parts))
        return self._splice(data, token.head, token.end, prefix + content)

    def _tags(self, data, token):
        """Add a tagged field, known or not, in order or not, right or not; or claim too many."""
        rng = self.rng
        end = token.parts[-1][1] if token.parts else token.end
        fields = [data[a:b] for a, b in token.parts]
        draw = rng.random()
        if draw < 0.15:
            return self._splice(
                data, token.start, token.end, rng.choice((*BAD_VARINTS, uvarint(100_000)))
            )
        if draw < 0.4 and fields:
            fields.append(rng.choice(fields))
        elif draw < 0.55 and fields:
            del fields[rng.randrange(len(fields))]
        else:
            content = rng.randbytes(rng.choice((0, 1, 4, 16)))
            claimed = len(content) if rng.random() < 0.7 else rng.choice((0, 1, 2**31 - 1, 300))
            tag = uvarint(rng.choice((0, 1, 2, 3, 9, 1000, 2**31 - 1)))
            fields.append(tag + uvarint(claimed) + content)
        return self._splice(data, token.start, end, uvarint(len(fields)) + b"".join(fields))

    @staticmethod
    def _splice(data, start, end, new):
        return data[:start] + new + data[end:]

    def bytes(self, data, pos=0):
        """Flip, set, cut out, double: for what has no shape."""
        rng = self.rng
        if len(data) <= pos:
            return data + rng.randbytes(4)
        at = rng.randrange(pos, len(data))
        draw = rng.random()
        if draw < 0.4:
            return self._splice(data, at, at + 1, bytes((data[at] ^ 1 << rng.randrange(8),)))
        if draw < 0.7:
            new = bytes((rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))),))
            return self._splice(data, at, at + 1, new)
        until = min(len(data), at + rng.choice((1, 2, 4, 8, 64)))
        return self._splice(data, at, until, data[at:until] * 2 if draw < 0.85 else b"")

    # Record batches.

    HEADER_FIELDS = (
        (0, "q"), (8, "i"), (12, "i"), (16, "b"), (17, "I"), (21, "h"), (23, "i"), (27, "q"),
        (35, "q"), (43, "q"), (51, "h"), (53, "i"), (57, "i"),
    )  # fmt: skip

    def batch(self, data):
        """Return records with one batch header field or one record changed; often resealed."""
        rng = self.rng
        if len(data) < 62:
            return self.bytes(data)
        draw = rng.random()
        if draw < 0.5:
            at, letter = rng.choice(self.HEADER_FIELDS)
            end = at + INTEGERS[letter]
            changed = self._splice(data, at, end, self.integer(data, Token(letter, at, end)))
            return changed if at in (8, 17) or rng.random() < 0.2 else reseal(changed)
        if draw < 0.85:
            return self._payload(data)
        if draw < 0.9:
            return data + data
        if draw < 0.95:
            return data[: rng.randrange(len(data))]
        return self.bytes(data)

    def _payload(self, data):
        """Change the records themselves, under the compression as often as above it."""
        rng = self.rng
        codec_ = data[22] & 7
        payload = bytes(data[61:])
        inside = 1 <= codec_ <= 4 and rng.random() < 0.7
        try:
            if inside:
                payload = bytes(compression.decompress(codec_, payload, 1 << 20))
            for _ in range(rng.choice((1, 1, 2))):
                payload = self.bytes(payload)
            if rng.random() < 0.1:
                at = rng.randrange(len(payload) + 1)
                payload = payload[:at] + rng.choice(BAD_VARINTS) + payload[at:]
            if rng.random() < 0.1:
                wanted = rng.randrange(1, 5)
                data = data[:22] + bytes((data[22] & ~7 | wanted,)) + data[23:]
                codec_, inside = wanted, True
            if inside:
                payload = compression.compress(codec_, payload)
        except OttlaError:
            payload = self.bytes(bytes(data[61:]))
        return reseal(data[:8] + struct.pack(">i", 49 + len(payload)) + data[12:61] + payload)

    # Frames and streams.

    def request(self, raw):
        """Return a request, without its size, with one thing changed."""
        rng = self.rng
        try:
            key, version = struct.unpack_from(">hh", raw)
            header, pos = decode_request_header(memoryview(raw))
            spec = APIS[key]
        except (OttlaError, KeyError, struct.error):
            return self.bytes(raw)
        if rng.random() < 0.08:
            return self._header(raw, spec, pos)
        layout = codec.request_class(header.api_key).LAYOUT
        return self.body(layout, version, spec.flexible_version, raw, pos)

    def _header(self, raw, spec, pos):
        rng = self.rng
        draw = rng.random()
        if draw < 0.5:
            version = rng.choice((-1, spec.max_version + 1, 32767, spec.min_version, 0, 1))
            return raw[:2] + struct.pack(">h", version) + raw[4:]
        if draw < 0.65:
            return struct.pack(">h", rng.choice((-1, 17, 1000, 32767, 57, 3))) + raw[2:]
        if draw < 0.85:
            return (
                raw[:8]
                + struct.pack(">h", rng.choice((-1, -2, 32767, min(len(raw), 32767), 0)))
                + raw[10:]
            )
        return raw[: rng.randrange(min(pos, len(raw)) + 1)]


def reseal(batch):
    """Put a batch's CRC right."""
    if len(batch) < 22:
        return batch
    return batch[:17] + struct.pack(">I", crc32c(bytes(batch[21:]))) + batch[21:]


def frames(stream):
    """Cut a stream at its sizes; return the whole frames and what is left."""
    found = []
    pos = 0
    while len(stream) - pos >= 4:
        (size,) = struct.unpack_from(">i", stream, pos)
        if not 0 <= size <= len(stream) - pos - 4:
            break
        found.append(bytes(stream[pos + 4 : pos + 4 + size]))
        pos += 4 + size
    return found, bytes(stream[pos:])


def joined(parts, rest=b""):
    return b"".join(struct.pack(">i", len(p)) + p for p in parts) + rest


def chance(seed):
    return random.Random(seed)
