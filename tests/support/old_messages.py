"""Messages of record formats 0 and 1, made by hand: what brokers before Kafka 0.11 wrote."""

import struct
import zlib

from ottla.wire.compression import GZIP, LZ4, SNAPPY, compress

PACKED = {"plain": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4}
FIRST_MS = 1_600_000_000_000


def message(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    key: bytes | None = None,
    timestamp: int = FIRST_MS,
    attributes: int = 0,
) -> bytes:
    body = bytes([magic, attributes]) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(base: int, messages: list[tuple[bytes | None, bytes | None]], codec, *, magic=1):
    """Return (key, value) pairs as one compressed wrapper that begins at offset `base`."""
    relative = 0 if magic else base  # format 1 counts from 0 in it (KIP-31)
    inner = b"".join(
        message(relative + n, value, magic=magic, key=key, timestamp=FIRST_MS + base + n)
        for n, (key, value) in enumerate(messages)
    )
    data = bytearray(compress(codec, inner))
    if codec == LZ4 and not magic:
        data[6] ^= 0x55  # KAFKA-3160
    last = base + len(messages) - 1
    return message(last, bytes(data), magic=magic, timestamp=FIRST_MS + last, attributes=codec)


def message_set(base: int, count: int, *, magic=1, packed="plain", at_once=10, keys=0) -> bytes:
    """Return `count` messages from offset `base` on, with `v<offset>`; `keys` different keys."""
    pairs = [(b"k%d" % (o % keys) if keys else b"k", b"v%d" % o) for o in range(base, base + count)]
    if packed == "plain":
        return b"".join(
            message(base + n, value, magic=magic, key=key, timestamp=FIRST_MS + base + n)
            for n, (key, value) in enumerate(pairs)
        )
    return b"".join(
        wrapper(base + n, pairs[n : n + at_once], PACKED[packed], magic=magic)
        for n in range(0, count, at_once)
    )
