"""Message sets: record formats 0 and 1, which brokers and clients before Kafka 0.11 wrote.

Logs of upgraded clusters hold them for as long as their topics keep records. They are served as
they are, like Kafka 3.9 does; nothing writes them. Invariants: an entry is one message, or several
in a compressed wrapper; it is taken for one only if its CRC-32 is right; its header here is that of
a batch with one offset, the last one. Kafka: `LegacyRecord`, `AbstractLegacyRecordBatch`.
"""

import zlib
from collections.abc import Iterator
from struct import Struct

from ottla.model.errors import InvalidRecordError
from ottla.model.ports import Buffer
from ottla.model.protocol import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from ottla.wire.batch_header import (
    CODEC_MASK,
    CREATE_TIME,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_AT,
    START_BYTES,
    BatchHeader,
    Header,
)
from ottla.wire.compression import LZ4, decompress, xxh32_short
from ottla.wire.records import DEFAULT_MAX_DECOMPRESSED_BYTES, Record, build_batch, iter_batches

OLD_MAGICS = (0, 1)
MERGED_BYTES = 64 << 10
"""Messages next to each other become one batch up to this size."""

_start = Struct(">qiIbb")
_INT32, _INT64 = Struct(">i"), Struct(">q")
_LEAST = {0: 14, 1: 22}
"""What the length field holds at least (`LegacyRecord.RECORD_OVERHEAD_V0`, `_V1`)."""


def old_entry(buf: Buffer, at: int = 0) -> Header | None:
    """Return the header of the entry at `at`; None if no whole one with a right CRC is there."""
    room = len(buf) - at
    if room < START_BYTES or (magic := buf[at + MAGIC_AT]) not in OLD_MAGICS:
        return None
    (length,) = _INT32.unpack_from(buf, at + LOG_OVERHEAD - 4)
    if not _LEAST[magic] <= length <= room - LOG_OVERHEAD:
        return None
    offset, length, crc, _, attributes = _start.unpack_from(buf, at)
    if zlib.crc32(memoryview(buf)[at + MAGIC_AT : at + LOG_OVERHEAD + length]) != crc:
        return None
    timestamp = _INT64.unpack_from(buf, at + _start.size)[0] if magic else NO_TIMESTAMP
    return (
        offset, length, -1, magic, crc, attributes & (CODEC_MASK | LOG_APPEND_TIME_FLAG), 0,
        timestamp, timestamp, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 1,
    )  # fmt: skip


def upgraded(entry: Buffer) -> bytes:
    """Return the records of one entry as a batch of format 2, with the same offsets.

    InvalidRecordError or RecordTooLargeError where a wrapper's contents are not understood.
    """
    header = old_entry(entry)
    assert header is not None
    fixed = bool(header[5] & LOG_APPEND_TIME_FLAG) and header[3] == 1
    records = list(_records(memoryview(entry), 0, header))
    if not records:
        raise InvalidRecordError("a wrapper without messages")
    return build_batch(
        records,
        base_offset=records[0].offset,
        codec=header[5] & CODEC_MASK,
        timestamp_type=LOG_APPEND_TIME if fixed else CREATE_TIME,
        log_append_time=header[8],
    )


def merged(entries: list[memoryview]) -> bytes:
    """Return entries that are not compressed, and lie next to each other, as one batch."""
    records: list[Record] = []
    for entry in entries:
        header = old_entry(entry)
        assert header is not None
        records += _records(entry, 0, header)
    return build_batch(records, base_offset=records[0].offset)


def iter_all_formats(buf: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield (header, batch) of each batch; entries of format 0 and 1 are upgraded."""
    view = memoryview(buf)
    at = 0
    while at < len(view):
        old = old_entry(view, at)
        if old is None:
            _, header = next(iter_batches(view[at:]))
            yield header, view[at : at + header.size]
            at += header.size
        else:
            size = old[1] + LOG_OVERHEAD
            batch = memoryview(upgraded(view[at : at + size]))
            yield next(iter_batches(batch))[1], batch
            at += size


def _records(buf: memoryview, at: int, header: Header) -> Iterator[Record]:
    """Yield the messages of the entry at `at`, those of a wrapper with their own offsets."""
    offset, length, magic, attributes = header[0], header[1], header[3], header[5]
    key_at = at + _start.size + (8 if magic else 0)
    key, value_at = _bytes(buf, key_at, at + LOG_OVERHEAD + length)
    value, end = _bytes(buf, value_at, at + LOG_OVERHEAD + length)
    codec = attributes & CODEC_MASK
    if end != at + LOG_OVERHEAD + length:
        raise InvalidRecordError("a message ends before its size says")
    if not codec:
        yield Record(offset, header[8], key, value)
        return
    data = bytearray(value or b"")
    if codec == LZ4 and magic == 0 and len(data) > 6:
        # Format 0 has a wrong header checksum (KAFKA-3160).
        checksum_at = 6 + (8 if data[4] & 0x08 else 0)
        if checksum_at < len(data):
            data[checksum_at] = xxh32_short(bytes(data[4:checksum_at])) >> 8 & 0xFF
    inner = bytes(decompress(codec, memoryview(data), DEFAULT_MAX_DECOMPRESSED_BYTES))
    found: list[Record] = []
    pos, view = 0, memoryview(inner)
    while pos < len(inner):
        entry = old_entry(view, pos)
        if entry is None or entry[3] != magic or entry[5] & CODEC_MASK:
            raise InvalidRecordError(f"no message at byte {pos} of a wrapper")
        found += _records(view, pos, entry)
        pos += entry[1] + LOG_OVERHEAD
    # In format 1 offsets in a wrapper are relative: the last one is the wrapper's (KIP-31).
    shift = offset - found[-1].offset if magic and found else 0
    for record in found:
        timestamp = header[8] if attributes & LOG_APPEND_TIME_FLAG else record.timestamp
        yield record._replace(offset=record.offset + shift, timestamp=timestamp)


def _bytes(buf: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    if at + 4 > end:
        raise InvalidRecordError("a message ends in the middle of a field")
    (size,) = _INT32.unpack_from(buf, at)
    at += 4
    if size < 0:
        return None, at
    if at + size > end:
        raise InvalidRecordError(f"a message claims {size} of {end - at} bytes")
    return bytes(buf[at : at + size]), at + size
