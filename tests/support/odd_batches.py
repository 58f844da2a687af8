"""Unusual record batches: rare forms of every codec's frames, and mutations.

`batches(seed, count)` yields what tests produce to our checks and to Kafka's. Nearly all have a
right CRC, so that the parsers behind it run.
"""

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import cramjam
import google_crc32c

from ottla.wire import compression
from ottla.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from ottla.wire.record_check import varint

NOW_MS = 1_700_000_000_000
"""What the clock of Batches.java shows."""

LOG_APPEND_TIME_TOPIC, COMPACTED_TOPIC, BOUNDED_TOPIC = 1, 2, 4
PRODUCER = -1
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
MASK = 0xFFFFFFFF


class Item(NamedTuple):
    """Bytes to produce, to a topic with these flags and this codec, and how they came to be."""

    topic: int
    codec: int
    batch: bytes
    made: str


# -- hashes, which the frames have inside ----------------------------------------------------------


def _hash(data: bytes, bits: int, primes: tuple[int, ...], turns: tuple[int, ...]) -> int:
    """Return what the stripes and the length of `data` give: the first half of both XXH hashes."""
    mask, width = (1 << bits) - 1, bits // 8
    one, two = primes[0], primes[1]
    lanes = [(one + two) & mask, two, 0, -one & mask]
    at = 0

    def turned(value: int, by: int) -> int:
        return (value << by | value >> bits - by) & mask

    while at + 4 * width <= len(data):
        for lane in range(4):
            word = int.from_bytes(data[at : at + width], "little")
            lanes[lane] = turned((lanes[lane] + word * two) & mask, turns[0]) * one & mask
            at += width
    if len(data) < 4 * width:
        return (primes[4] + len(data)) & mask
    value = sum(turned(v, by) for v, by in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    if bits == 64:
        for lane in lanes:
            value ^= turned(lane * two & mask, turns[0]) * one & mask
            value = (value * one + primes[3]) & mask
    return (value + len(data)) & mask


P32 = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
P64 = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def xxh32(data: bytes) -> int:
    value, at = _hash(data, 32, P32, (13,)), len(data) // 16 * 16
    while at + 4 <= len(data):
        value = (value + int.from_bytes(data[at : at + 4], "little") * P32[2]) & MASK
        value = (value << 17 | value >> 15) * P32[3] & MASK
        at += 4
    for byte in data[at:]:
        value = (value + byte * P32[4]) & MASK
        value = (value << 11 | value >> 21) * P32[0] & MASK
    value = (value ^ value >> 15) * P32[1] & MASK
    value = (value ^ value >> 13) * P32[2] & MASK
    return value ^ value >> 16


def xxh64(data: bytes) -> int:
    mask = (1 << 64) - 1

    def turned(value: int, by: int) -> int:
        value &= mask
        return (value << by | value >> 64 - by) & mask

    value, at = _hash(data, 64, P64, (31,)), len(data) // 32 * 32
    while at + 8 <= len(data):
        word = int.from_bytes(data[at : at + 8], "little")
        value ^= turned(word * P64[1], 31) * P64[0] & mask
        value = (turned(value, 27) * P64[0] + P64[3]) & mask
        at += 8
    if at + 4 <= len(data):
        value ^= int.from_bytes(data[at : at + 4], "little") * P64[0] & mask
        value = (turned(value, 23) * P64[1] + P64[2]) & mask
        at += 4
    for byte in data[at:]:
        value ^= byte * P64[4] & mask
        value = turned(value, 11) * P64[0] & mask
    value = (value ^ value >> 33) * P64[1] & mask
    value = (value ^ value >> 29) * P64[2] & mask
    return value ^ value >> 32


# -- the codecs' frames ----------------------------------------------------------------------------


def _pieces(r: random.Random, data: bytes, most: int) -> list[bytes]:
    """Return `data` in one to four pieces of at most so many bytes."""
    cuts = sorted(r.randrange(len(data) + 1) for _ in range(r.choice((0, 0, 1, 3))))
    parts = [data[a:b] for a, b in zip((0, *cuts), (*cuts, len(data)), strict=True)]
    return [p[i : i + most] for p in parts for i in range(0, len(p), most)] or [b""]


def lz4_frame(r: random.Random, data: bytes) -> bytes:
    """Return an lz4 frame with flags, sizes and checksums of all kinds, mostly right ones."""
    flags = 0x60 | r.choice((0, 0x10, 0x10)) | r.choice((0, 0, 8)) | r.choice((0, 0, 4))
    if r.random() < 0.12:
        flags ^= 1 << r.randrange(8)
    size = r.choice((4, 4, 5, 6, 7)) << 4
    if r.random() < 0.08:
        size ^= 1 << r.randrange(8)
    head = bytes((flags, size))
    if flags & 8:
        head += struct.pack("<Q", len(data) if r.random() < 0.7 else r.randrange(1 << 20))
    check = xxh32(head) >> 8 & 0xFF
    if r.random() < 0.05:  # the checksum of clients before KIP-57 takes the magic in
        check = xxh32(b"\x04\x22\x4d\x18" + head) >> 8 & 0xFF
    frame = b"\x04\x22\x4d\x18" + head + bytes((check,))
    for piece in _pieces(r, data, 1 << 16):
        if r.random() < 0.2:
            block, stored = piece, 0x80000000
        else:
            block, stored = bytes(cramjam.lz4.compress_block(piece, store_size=False)), 0
        if not piece and r.random() < 0.8:
            continue
        frame += struct.pack("<I", len(block) | stored) + block
        if flags & 0x10:
            frame += struct.pack("<I", xxh32(block) ^ (1 if r.random() < 0.08 else 0))
    if r.random() < 0.95:
        frame += bytes(4)
    if flags & 4 and r.random() < 0.9:
        frame += struct.pack("<I", xxh32(data) ^ (1 if r.random() < 0.3 else 0))
    return frame


def gzip_member(r: random.Random, data: bytes) -> bytes:
    """Return a gzip member with optional fields and trailers, mostly right ones."""
    flags = r.choice((0, 0, r.randrange(32), r.randrange(256) if r.random() < 0.3 else 0))
    head = b"\x1f\x8b\x08" + bytes((flags,)) + r.randbytes(6)
    if flags & 4:
        extra = r.randbytes(r.choice((0, 3, 300)))
        head += struct.pack("<H", len(extra)) + extra
    for flag in (8, 16):
        if flags & flag:
            head += bytes(r.choices(range(1, 256), k=r.randrange(9))) + b"\x00"
    if flags & 2:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF ^ (1 if r.random() < 0.2 else 0))
    packer = zlib.compressobj(r.choice((0, 1, 6, 9)), zlib.DEFLATED, -15)
    body = packer.compress(data) + packer.flush()
    crc = zlib.crc32(data) ^ (1 if r.random() < 0.04 else 0)
    return head + body + struct.pack("<II", crc, len(data) ^ (1 if r.random() < 0.04 else 0))


def gzip_stream(r: random.Random, data: bytes) -> bytes:
    return b"".join(gzip_member(r, piece) for piece in _pieces(r, data, 1 << 20))


def snappy_stream(r: random.Random, data: bytes) -> bytes:
    """Return xerial streams, one or several, with headers of other versions, or the bare format."""
    if r.random() < 0.15:
        return bytes(cramjam.snappy.compress_raw(data))
    stream = b""
    for piece in _pieces(r, data, r.choice((100, 32768, 1 << 20))):
        if not stream or r.random() < 0.3:
            version = r.choice((0, 1, 1, 1, 2, -1))
            stream += XERIAL[:8] + struct.pack(">ii", version, r.choice((0, 1, 1, 5)))
        block = bytes(cramjam.snappy.compress_raw(piece))
        stream += struct.pack(">i", len(block)) + block
    return stream


def zstd_by_hand(r: random.Random, data: bytes) -> bytes:
    """Return a zstd frame of raw and repeated blocks, with each of the header's options."""
    single, checksum = r.random() < 0.4, r.random() < 0.4
    size_code = r.choice((0, 1, 2, 3))
    if size_code == 1 and not 256 <= len(data) < 65792:
        size_code = 2
    if size_code == 0 and single and len(data) > 255:
        size_code = 2
    dictionary = r.choice((0, 0, 0, 0, 0, 1, 2, 3))
    flags = size_code << 6 | (32 if single else 0) | (4 if checksum else 0) | dictionary
    if r.random() < 0.06:
        flags |= r.choice((8, 16))
    frame = b"\x28\xb5\x2f\xfd" + bytes((flags,))
    if not single:
        frame += bytes((r.choice((0x38, 0x50, 0x88, 0x90, 0xA0, r.randrange(256))),))
    width = (0, 1, 2, 4)[dictionary]
    frame += bytes(width) if r.random() < 0.6 else r.randbytes(width)
    width = (1 if single else 0, 2, 4, 8)[size_code]
    told = len(data) - (256 if width == 2 else 0) + (1 if r.random() < 0.06 else 0)
    frame += (told & (1 << 8 * width) - 1).to_bytes(width, "little") if width else b""
    pieces = _pieces(r, data, 1 << 10)
    for at, piece in enumerate(pieces):
        last = 1 if at == len(pieces) - 1 else 0
        if piece and piece.count(piece[0]) == len(piece):
            frame += (len(piece) << 3 | 2 | last).to_bytes(3, "little") + piece[:1]
        else:
            frame += (len(piece) << 3 | last).to_bytes(3, "little") + piece
    if checksum:
        frame += struct.pack("<I", (xxh64(data) ^ (1 if r.random() < 0.15 else 0)) & MASK)
    return frame


def zstd_stream(r: random.Random, data: bytes) -> bytes:
    """Return frames, one or several, with skippable ones between."""
    stream = b""
    for piece in _pieces(r, data, 1 << 20):
        while r.random() < 0.15:
            skipped = r.randbytes(r.choice((0, 1, 50)))
            magic = 0x184D2A50 | r.randrange(16)
            stream += struct.pack("<II", magic, len(skipped)) + skipped
        if r.random() < 0.5:
            stream += zstd_by_hand(r, piece)
        else:
            stream += bytes(cramjam.zstd.compress(piece, r.choice((-5, 1, 3, 19))))
    if r.random() < 0.1:
        stream += struct.pack("<II", 0x184D2A50, 3) + b"abc"
    return stream


FRAMES: dict[int, Callable[[random.Random, bytes], bytes]] = {
    NONE: lambda _r, data: data,
    GZIP: gzip_stream,
    SNAPPY: snappy_stream,
    LZ4: lz4_frame,
    ZSTD: zstd_stream,
}


# -- records and batches ---------------------------------------------------------------------------


def _length(r: random.Random, value: int, rare: float) -> bytes:
    """Return a varint, at times longer than it need be."""
    data = varint(value)
    if r.random() < rare:
        more = r.choice((1, 1, 2, 5, 9)) - len(data) + 1
        if more > 0:
            data = data[:-1] + bytes((data[-1] | 0x80,)) + b"\x80" * (more - 1) + b"\x00"
        elif len(data) == 1:
            data = bytes((data[0] | 0x80, 0x80, 0x80, 0x80, r.choice((0x10, 0x70, 0x00))))
    return data


def one_record(r: random.Random, index: int, timestamp: int, rare: float) -> bytes:
    def held(data: bytes | None) -> bytes:
        if data is None:
            return _length(r, -1 if r.random() > rare else -7, rare)
        return _length(r, len(data), rare) + data

    size = r.choice((0, 1, 5, 7, 40, 40, 300))
    if r.random() < 0.02:
        size = r.choice((3000, 9000, 140_000))
    value = r.choice((r.randbytes(size), bytes(size), b"ab" * (size // 2), None))
    body = bytes((0 if r.random() > rare else r.randrange(256),))
    body += _length(r, timestamp, rare) + _length(r, index if r.random() > rare / 3 else 3, rare)
    body += held(r.choice((None, b"k", b"key", b"", r.randbytes(70)))) + held(value)
    headers = r.choice((0, 0, 0, 1, 2))
    body += _length(r, headers, rare)
    for _ in range(headers):
        body += held(r.choice((b"h", b"name", b"\xc3\xa4"))) + held(r.choice((None, b"", b"v")))
    return _length(r, len(body), rare) + body


def header(
    body: bytes,
    count: int,
    attributes: int = 0,
    last_delta: int | None = None,
    base_timestamp: int = NOW_MS,
    max_timestamp: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int = 0,
) -> bytes:
    """Return a batch of these fields with a right CRC."""
    top = base_timestamp if max_timestamp is None else max_timestamp
    delta = count - 1 if last_delta is None else last_delta
    rest = struct.pack(
        ">HiqqqhiI",
        attributes & 0xFFFF,
        delta,
        base_timestamp,
        top,
        *producer,
        count & MASK,
    )
    rest += body
    return struct.pack(
        ">qiibI", base_offset, len(rest) + 9, -1, 2, google_crc32c.value(rest)
    ) + rest  # fmt: skip


def mutated(r: random.Random, data: bytes) -> bytes:
    """Return `data` with bits flipped, cut short, with bytes behind, or twice."""
    for _ in range(r.choice((1, 1, 1, 2))):
        kind = r.randrange(6)
        if kind <= 2 and data:
            out = bytearray(data)
            at = r.randrange(min(len(out), r.choice((16, 1 << 30))))
            out[at] ^= 1 << r.randrange(8)
            data = bytes(out)
        elif kind == 3:
            data = data[: r.randrange(len(data) + 1)]
        elif kind == 4:
            n = r.choice((1, 3, 4, 8, 16, 18, 19, 26, 40))
            data += r.choice((bytes(n), r.randbytes(n), data[:n]))
        else:
            data += data
    return data


def batches(seed: int, count: int) -> Iterator[Item]:
    """Yield so many items."""
    for number in range(count):
        yield _item(random.Random(f"{seed}/{number}"), number)


def _item(r: random.Random, number: int) -> Item:
    codec = r.choice((NONE, GZIP, SNAPPY, LZ4, ZSTD, GZIP, SNAPPY, LZ4, ZSTD))
    records = r.choice((1, 1, 2, 3, 12, 40))
    step = r.choice((0, 1, -1, 1000, -(1 << 40)))
    rare = r.choice((0, 0, 0, 0.03))
    base = r.choice((NOW_MS, NOW_MS, NOW_MS, 0, -1, -5, NOW_MS - 7_200_000, NOW_MS + 7_200_000))
    data = b"".join(one_record(r, i, i * step, rare) for i in range(records))
    made = [f"{number}", compression.CODEC_NAMES[codec]]
    if r.random() < 0.12:
        data, made = mutated(r, data), [*made, "records"]
    if r.random() < 0.25:
        body, made = compression.compress(codec, data), [*made, "ours"]
    else:
        body = FRAMES[codec](r, data)
    if r.random() < 0.45:
        body, made = mutated(r, body), [*made, "frame"]
    attributes, fields = codec, {"base_timestamp": base}
    if r.random() < 0.25:
        made.append("header")
        which = r.randrange(9)
        if which == 0:
            records += r.choice((-1, 1, -records, 1 << 20, -1 - records))
        elif which == 1:
            fields["last_delta"] = records - 1 + r.choice((-1, 1, -records, 1 << 30))
        elif which == 2:
            attributes ^= 1 << r.randrange(16)
        elif which == 3:
            attributes |= 8
            fields["max_timestamp"] = r.choice((base, -1, 5, NOW_MS, NOW_MS + 7_200_000))
        elif which == 4:
            fields["max_timestamp"] = r.choice((-1, 0, base + 5, (1 << 63) - 1))
        elif which == 5:
            fields["base_timestamp"] = r.choice(((1 << 63) - 1, -(1 << 63), -2))
        elif which == 6:
            fields["producer"] = r.choice(
                ((5, 0, 0), (5, 0, -1), (5, -1, 3), (0, 0, 2147483647), (-2, 0, 0))
            )
        elif which == 7:
            fields["base_offset"] = r.choice((1, -1, 1 << 40))
        else:
            attributes |= r.choice((0x10, 0x40, 0x80, 0x100, 0x50))
    batch = header(body, records, attributes, **fields)
    if r.random() < 0.03:
        batch, made = mutated(r, batch), [*made, "batch"]
    topic = r.choice(
        (0, 0, 0, 0, LOG_APPEND_TIME_TOPIC, COMPACTED_TOPIC, BOUNDED_TOPIC, r.randrange(8))
    )
    target = PRODUCER if r.random() < 0.9 else r.randrange(5)
    return Item(topic, target, batch, " ".join(made))
