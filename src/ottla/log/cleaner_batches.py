"""Filter the records of a batch for the cleaner, and build the batch again from those retained.

Pure functions over bytes. Kafka: `MemoryRecords.filterTo`, `DefaultRecordBatch.writeEmptyHeader`
and `MemoryRecordsBuilder` with a delete horizon. Invariants: base offset, last offset delta, leader
epoch, producer id, epoch and sequence of a batch never change; a record should_retain its offset
and its timestamp; what is built has a right CRC.
"""

from collections.abc import Generator, Iterator
from typing import NamedTuple, cast

from ottla.log.compaction import OffsetMap, RecordFilter
from ottla.model.errors import InvalidRecordError, RecordTooLargeError
from ottla.model.ports import Buffer
from ottla.model.protocol import NO_TIMESTAMP
from ottla.wire.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LOG_APPEND_TIME_FLAG,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    Header,
    pack_batch,
)
from ottla.wire.compression import compress, decompress
from ottla.wire.record_check import read_int, read_varint, varint

_MAX_BATCH_BYTES = 2**31 - 1
_MAX_TIMESTAMP = 2**63 - 1
_STEP = 512
"""records between two yields: about a millisecond"""

_LITTLE, _LITTLE_COMPRESSED = 1 << 18, 1 << 14
"""payloads, and compressed ones, up to this size take less than a millisecond"""

_Place = tuple[int, int, int, int, int, bytes | None, bool]


class RetainedRecords(NamedTuple):
    """The records of a batch that are retained."""

    places: list[tuple[int, int, int, int]]
    """(start, end, timestamp delta, where the offset delta begins) of each, in the payload"""
    tombstones: bool


def payload_of(batch: memoryview, header: Header) -> bytes:
    """Return a batch's records, decompressed: for a worker, since there may be very many.

    What is returned is to be indexed and sliced only; it may be any buffer.
    """
    codec = header[ATTRIBUTES] & CODEC_MASK
    return cast("bytes", decompress(codec, batch[HEADER_BYTES:], _MAX_BATCH_BYTES))


def small_payload_of(batch: memoryview, header: Header) -> bytes | None:
    """Return a batch's records, decompressed, if they are few bytes; else None."""
    codec, body = header[ATTRIBUTES] & CODEC_MASK, batch[HEADER_BYTES:]
    if not codec:
        return bytes(body) if len(body) <= _LITTLE else cast("bytes", body)
    if len(body) > _LITTLE_COMPRESSED:
        return None
    try:
        return bytes(decompress(codec, body, _LITTLE))
    except RecordTooLargeError:
        return None


def walk(payload: bytes, count: int) -> Iterator[_Place]:
    """Yield (start, end, timestamp delta, offset field's place, offset delta, key, has value)."""
    pos = 0
    try:
        for _ in range(count):
            start = pos
            size, pos = read_int(payload, pos)
            end = pos + size
            timestamp, offset_at = read_varint(payload, pos + 1)
            delta, pos = read_int(payload, offset_at)
            size, pos = read_int(payload, pos)
            key = None
            if size >= 0:
                key = bytes(payload[pos : pos + size])
                pos += size
            size, pos = read_int(payload, pos)
            if pos + max(size, 0) > end or end > len(payload):
                raise InvalidRecordError("a record is longer than it claims")
            yield start, end, timestamp, offset_at, delta, key, size >= 0
            pos = end
    except IndexError as error:
        raise InvalidRecordError("a record ends beyond its batch") from error


def add_keys(
    payload: bytes, header: Header, offsets: OffsetMap, start: int
) -> Generator[None, None, None]:
    """Add the keys of records from offset `start` on to the map; yields every `_STEP` records."""
    base = header[BASE_OFFSET]
    for number, (_, _, _, _, delta, key, _) in enumerate(walk(payload, header[RECORD_COUNT]), 1):
        if key is not None and base + delta >= start:
            offsets.put(key, base + delta)
        if not number % _STEP:
            yield


def filter_records(
    payload: bytes, header: Header, rules: RecordFilter
) -> Generator[None, None, RetainedRecords]:
    """Find the records to retain; yields every `_STEP` records."""
    places = []
    tombstones = False
    may_delete_tombstones = rules.may_delete_tombstones(header)
    base = header[BASE_OFFSET]
    for number, place in enumerate(walk(payload, header[RECORD_COUNT]), 1):
        start, end, timestamp, offset_at, delta, key, has_value = place
        if rules.should_retain(key, base + delta, may_delete_tombstones and not has_value):
            places.append((start, end, timestamp, offset_at))
            tombstones = tombstones or not has_value
        if not number % _STEP:
            yield
    return RetainedRecords(places, tombstones)


class NewBatch(NamedTuple):
    """A batch to be built: its new header fields, its records and their size uncompressed."""

    attributes: int
    base_timestamp: int
    max_timestamp: int
    records: int
    parts: list[Buffer]
    size: int


def new_batch(
    payload: bytes, header: Header, kept: RetainedRecords, new_horizon_ms: int | None
) -> Generator[None, None, NewBatch]:
    """Build the retained records; `new_horizon_ms` becomes the base timestamp.

    Yields every `_STEP` records. Without a horizon the base timestamp is that of the first retained
    record, as in Kafka.
    """
    attributes = header[ATTRIBUTES]
    base = old_base = header[BASE_TIMESTAMP]
    fixed = attributes & LOG_APPEND_TIME_FLAG  # then the records' own timestamps count for nothing
    if new_horizon_ms is not None:
        base = new_horizon_ms
        attributes |= DELETE_HORIZON_FLAG
    elif not (attributes & DELETE_HORIZON_FLAG or fixed):
        base = old_base + kept.places[0][2]
    shift = 0 if fixed else old_base - base
    parts: list[Buffer] = []
    for number, (start, end, timestamp, offset_at) in enumerate(kept.places, 1):
        if shift:
            _, body = read_int(payload, start)
            moved = bytes(payload[body : body + 1]) + varint(timestamp + shift)
            parts += (varint(len(moved) + end - offset_at), moved, payload[offset_at:end])
        else:
            parts.append(payload[start:end])
        if not number % _STEP:
            yield
    deltas = [place[2] for place in kept.places]
    youngest = max(NO_TIMESTAMP, old_base + max(deltas))
    if youngest > _MAX_TIMESTAMP or old_base + min(deltas) < -_MAX_TIMESTAMP - 1:
        raise InvalidRecordError("a timestamp is beyond 64 bits")
    return NewBatch(
        attributes,
        base,
        header[MAX_TIMESTAMP] if fixed else youngest,
        len(kept.places),
        parts,
        sum(map(len, parts)),
    )


def encode_batch(header: Header, made: NewBatch) -> bytes:
    """Return the batch of `made`, compressed as it was; a worker may do it for a large one."""
    body = b"".join(made.parts)
    codec = header[ATTRIBUTES] & CODEC_MASK
    return _rebuilt(
        header,
        made.attributes,
        made.base_timestamp,
        made.max_timestamp,
        made.records,
        compress(codec, body) if codec else body,
    )


def empty_batch(header: Header) -> bytes:
    """Return a batch without records, whose header keeps its producer's sequence and epoch."""
    attributes = header[ATTRIBUTES] & ~(CODEC_MASK | DELETE_HORIZON_FLAG)
    return _rebuilt(header, attributes, NO_TIMESTAMP, header[MAX_TIMESTAMP], 0, b"")


def _rebuilt(
    header: Header,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    body: bytes,
) -> bytes:
    """Return a batch with these fields and the others of `header`."""
    return pack_batch(
        header[BASE_OFFSET],
        header[LEADER_EPOCH],
        attributes,
        header[LAST_OFFSET_DELTA],
        base_timestamp,
        max_timestamp,
        header[PRODUCER_ID],
        header[PRODUCER_EPOCH],
        header[BASE_SEQUENCE],
        count,
        body,
    )
