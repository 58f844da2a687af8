"""Record batches of format v2: parse, check, iterate, build, patch in place.

Invariants: nothing here copies a batch but to decompress, to build, or to run the checksum over
small ones; one object per batch, and objects per record only in `iter_records`, which the hot path
never calls. Base offset and partition leader epoch lie outside the CRC, so a leader patches them
without computing it again. Kafka: `DefaultRecordBatch`, `DefaultRecord`, `ControlRecordType` and
`EndTransactionMarker`.
"""

from collections.abc import Iterable, Iterator, Sequence
from mmap import mmap
from struct import Struct
from typing import NamedTuple, cast

from ottla.model.errors import CorruptRecordError, InvalidRecordError, UnsupportedFormatError
from ottla.model.ports import Buffer
from ottla.model.protocol import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from ottla.wire import compression
from ottla.wire.batch_header import (
    CONTROL_FLAG,
    CREATE_TIME,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    START_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc_matches,
    pack_batch,
    unpack_header,
    unpack_start,
)
from ottla.wire.record_check import RecordFacts, check_records, read_int, read_varint, varint
from ottla.wire.schema import Records

__all__ = [
    "ControlRecord",
    "Record",
    "RecordFacts",
    "Records",
    "build_batch",
    "build_control_batch",
    "check_records",
    "crc_ok",
    "frame_batch",
    "iter_batches",
    "iter_records",
    "parse_batch_header",
    "parse_control_record",
]

ABORT, COMMIT = 0, 1
DEFAULT_MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024

_AS_IT_IS = "surrogateescape"
"""Header names that are no UTF-8 pass through Kafka unharmed, so they do here."""

_CONTROL_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")


class Aborted:
    """Tells which batches belong to aborted transactions, batch after batch in offset order.

    Made of a fetch response's list, or a segment's index: (producer id, first offset) each.
    Kafka: `CompletedFetch.consumeAbortedTransactionsUpTo`.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._waiting = sorted((first, producer) for producer, first in transactions)
        self._waiting.reverse()
        self._producers: set[int] = set()

    def covers(self, buf: Buffer, pos: int, header: BatchHeader) -> bool:
        """Return whether the batch at `pos` was aborted; its marker ends the transaction."""
        while self._waiting and self._waiting[-1][0] <= header.last_offset:
            self._producers.add(self._waiting.pop()[1])
        if not header.is_transactional or header.producer_id not in self._producers:
            return False
        if not header.is_control:
            return True
        marker = next(iter(iter_records(buf, pos)), None)
        if marker is not None and parse_control_record(marker).type == ABORT:
            self._producers.discard(header.producer_id)
        return False


class Record(NamedTuple):
    """One record. For building, offset -1 means "by position"."""

    offset: int = -1
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class NewRecord(NamedTuple):
    """What is to be written; None leaves time (now) and partition (by key) to the producer."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int | None = None


class ControlRecord(NamedTuple):
    """The end of a transaction, as a marker in the log. `type` is ABORT, COMMIT or another."""

    type: int
    coordinator_epoch: int


def parse_batch_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Return the header at `pos`; CorruptRecordError unless the whole batch is there."""
    room = len(buf) - pos
    if room < HEADER_BYTES:
        _refuse_old_format(buf, pos)
        raise CorruptRecordError(f"{room} bytes are less than a batch header")
    fields = unpack_header(buf, pos)
    if fields[3] != MAGIC_V2:
        _refuse_old_format(buf, pos)
    length = fields[1]
    if length < HEADER_BYTES - LOG_OVERHEAD or length > room - LOG_OVERHEAD:
        raise CorruptRecordError(f"a batch of {length} bytes in {room - LOG_OVERHEAD}")
    return BatchHeader(*fields)


def _refuse_old_format(buf: Buffer, pos: int) -> None:
    """Raise if the magic byte, which all formats have at the same place, is not ours."""
    if len(buf) - pos < START_BYTES or (magic := buf[pos + MAGIC_AT]) == MAGIC_V2:
        return
    if magic in (0, 1):
        raise UnsupportedFormatError(f"a batch of message format {magic}")
    raise CorruptRecordError(f"a batch of unknown magic {magic}")


def iter_batches(buf: Buffer, *, allow_partial: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch.

    With `allow_partial` a batch cut off by the end of the bytes ends the iteration, as at the end
    of a Fetch response; otherwise it is a CorruptRecordError.
    """
    pos, end = 0, len(buf)
    while pos < end:
        if allow_partial and _is_cut_off(buf, pos, end):
            return
        header = parse_batch_header(buf, pos)
        yield pos, header
        pos += header.length + LOG_OVERHEAD


def _is_cut_off(buf: Buffer, pos: int, end: int) -> bool:
    if end - pos < START_BYTES:
        return True
    _base, length, _epoch, _magic = unpack_start(buf, pos)
    return bool(length > end - pos - LOG_OVERHEAD)


def crc_ok(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Return whether the batch at `pos` has the checksum that its header claims."""
    return crc_matches(memoryview(buf)[pos : pos + header.size], header.crc)


# -- reading ------------------------------------------------------------------------------------


def iter_records(
    buf: Buffer, pos: int = 0, *, max_size: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """Yield the records of the one batch at `pos`, decompressed up to `max_size` bytes."""
    header = parse_batch_header(buf, pos)
    return iter_payload(header, read_payload(header, buf, pos, max_size=max_size))


def read_payload(
    header: BatchHeader,
    buf: Buffer,
    pos: int = 0,
    *,
    max_size: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Return the bytes of all records of the batch at `pos`, decompressed; a worker may do it."""
    view = memoryview(buf)[pos + HEADER_BYTES : pos + header.size]
    found = compression.decompress(header.codec, view, max_size)
    return cast("bytes", found) if isinstance(found, (bytes, mmap)) else bytes(found)


def iter_payload(header: BatchHeader, payload: bytes) -> Iterator[Record]:
    """Yield the records of a batch whose payload was read before."""
    fixed_timestamp = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    at = 0
    for _ in range(header.count):
        try:
            record, at = _parse_record(payload, at, header)
        except IndexError as error:
            raise InvalidRecordError(f"a record ends beyond its batch: {error}") from error
        yield record if fixed_timestamp is None else record._replace(timestamp=fixed_timestamp)
    if at != len(payload):
        raise InvalidRecordError(f"{len(payload) - at} bytes after the last record")


def _parse_record(payload: bytes, pos: int, header: BatchHeader) -> tuple[Record, int]:
    size, pos = read_int(payload, pos)
    end = pos + size
    if size < 0 or end > len(payload):
        raise InvalidRecordError(f"a record claims {size} of {len(payload) - pos} bytes")
    timestamp_delta, pos = read_varint(payload, pos + 1)
    offset_delta, pos = read_int(payload, pos)
    key, pos = _read_bytes(payload, pos, end)
    value, pos = _read_bytes(payload, pos, end)
    count, pos = read_int(payload, pos) if payload[pos] else (0, pos + 1)
    if not 0 <= count <= end - pos:
        raise InvalidRecordError(f"a record claims {count} headers in {end - pos} bytes")
    headers = []
    for _ in range(count):
        name, pos = _read_bytes(payload, pos, end)
        if name is None:
            raise InvalidRecordError("a record header without a key")
        content, pos = _read_bytes(payload, pos, end)
        headers.append((name.decode(errors=_AS_IT_IS), content))
    if pos != end:
        raise InvalidRecordError(f"a record ends {end - pos} bytes before its size says")
    return (
        Record(
            header.base_offset + offset_delta,
            header.base_timestamp + timestamp_delta,
            key,
            value,
            tuple(headers),
        ),
        end,
    )


def _read_bytes(payload: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    byte = payload[pos]
    if byte < 0x80:  # as most are: without a call
        size = (byte >> 1) ^ -(byte & 1)
        pos += 1
    else:
        size, pos = read_int(payload, pos)
    if size < 0:
        return None, pos
    if pos + size > end:
        raise InvalidRecordError(f"a record claims {size} of {end - pos} bytes")
    return payload[pos : pos + size], pos + size


def parse_control_record(record: Record) -> ControlRecord:
    """Return what a record of a control batch says; types beyond ABORT and COMMIT have epoch -1."""
    key, value = record.key or b"", record.value or b""
    if len(key) < 4:
        raise InvalidRecordError(f"a control record's key of {len(key)} bytes")
    version, type_ = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"a control record of version {version}")
    if type_ not in (ABORT, COMMIT):
        return ControlRecord(type_, -1)
    if len(value) < 6:
        raise InvalidRecordError(f"a transaction marker of {len(value)} bytes")
    return ControlRecord(type_, _MARKER_VALUE.unpack_from(value)[1])


# -- building -----------------------------------------------------------------------------------


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = compression.NONE,
    timestamp_type: int = CREATE_TIME,
    log_append_time: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Return the bytes of a batch of at least one record.

    A record without an offset of its own gets the one after its predecessor.
    """
    assert records, "a batch holds at least one record"
    base_timestamp = records[0].timestamp
    max_timestamp = max(record.timestamp for record in records)
    if timestamp_type == LOG_APPEND_TIME:
        max_timestamp = log_append_time
    payload = bytearray()
    delta = -1
    for record in records:
        delta = delta + 1 if record.offset < 0 else record.offset - base_offset
        _append_record(payload, record, record.timestamp - base_timestamp, delta)
    return frame_batch(
        payload,
        count=len(records),
        last_offset_delta=delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        codec=codec,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
    )


def frame_batch(
    payload: bytes | bytearray,
    *,
    count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = compression.NONE,
    timestamp_type: int = CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Return the bytes of a batch whose records are encoded already, one after another."""
    body = bytes(payload) if codec == compression.NONE else compression.compress(codec, payload)
    attributes = (
        codec
        | (LOG_APPEND_TIME_FLAG if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
    )
    return pack_batch(
        base_offset,
        leader_epoch,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
        body,
    )


def _append_record(out: bytearray, record: Record, timestamp_delta: int, delta: int) -> None:
    body = bytearray(b"\x00")
    body += varint(timestamp_delta)
    body += varint(delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    body += varint(len(record.headers))
    for name, content in record.headers:
        _append_bytes(body, name.encode(errors=_AS_IT_IS))
        _append_bytes(body, content)
    out += varint(len(body))
    out += body


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out += b"\x01"  # -1 in zigzag
    else:
        out += varint(len(data))
        out += data


def build_control_batch(
    type_: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return the marker batch that ends a transaction; `type_` is ABORT or COMMIT."""
    marker = Record(
        timestamp=timestamp,
        key=_CONTROL_KEY.pack(0, type_),
        value=_MARKER_VALUE.pack(0, coordinator_epoch),
    )
    return build_batch(
        [marker],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
