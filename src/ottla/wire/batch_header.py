"""The header of a record batch of format v2: its layout, flags, checksum and the changes to it.

Invariants: `LAYOUT` is the only place that knows the order and the widths of the fields; all
positions and formats are made of it. A header has two forms: a plain tuple (`Header`, read by
index), of which every append and every recovered batch makes one, and `BatchHeader`, which has
names and costs an object more. Base offset, length and partition leader epoch lie outside the CRC.
Nothing here copies a batch, except for its checksum, which the C function computes over `bytes`
only. Kafka: `DefaultRecordBatch`, `RecordBatch`, `Records`.
"""

import ctypes
from struct import Struct, calcsize

import google_crc32c
import msgspec
from google_crc32c import extend as _extend
from google_crc32c import value as _value

from ottla.model.ports import Buffer
from ottla.model.protocol import NO_SEQUENCE

LAYOUT = (
    ("base_offset", "q"),
    ("length", "i"),
    ("partition_leader_epoch", "i"),
    ("magic", "b"),
    ("crc", "I"),
    ("attributes", "h"),
    ("last_offset_delta", "i"),
    ("base_timestamp", "q"),
    ("max_timestamp", "q"),
    ("producer_id", "q"),
    ("producer_epoch", "h"),
    ("base_sequence", "i"),
    ("count", "i"),
)
"""Each field's name and its letter of `struct`; big-endian, without gaps."""

_LETTERS = dict(LAYOUT)
_NAMES = list(_LETTERS)

Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""A batch header's fields in the order of `LAYOUT`."""

(
    BASE_OFFSET,
    LENGTH,
    LEADER_EPOCH,
    MAGIC,
    CRC,
    ATTRIBUTES,
    LAST_OFFSET_DELTA,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    RECORD_COUNT,
) = range(len(LAYOUT))
"""Where each field stands in a `Header`."""


def _position(name: str) -> int:
    """Return how many bytes of the header stand before a field."""
    return calcsize(">" + "".join(_LETTERS[n] for n in _NAMES[: _NAMES.index(name)]))


def _fields(first: str, last: str) -> Struct:
    """Return what packs and unpacks all fields from `first` to `last`."""
    begin, end = _NAMES.index(first), _NAMES.index(last)
    return Struct(">" + "".join(_LETTERS[n] for n in _NAMES[begin : end + 1]))


def _some(*wanted: str) -> Struct:
    """Return what unpacks these fields of a header, in their order; not to pack with."""
    shown = [_LETTERS[n] if n in wanted else f"{calcsize('>' + _LETTERS[n])}x" for n in _NAMES]
    return Struct(">" + "".join(shown[: _NAMES.index(wanted[-1]) + 1]))


LOG_OVERHEAD = _position("partition_leader_epoch")
"""Bytes of base offset and length, which the length field does not count."""

START_BYTES = _position("crc")
"""Bytes up to the magic, which stands at the same place in all formats."""

MAGIC_AT = _position("magic")
LEADER_EPOCH_AT = _position("partition_leader_epoch")
CRC_START = _position("attributes")
"""Where the bytes under the CRC begin: at the attributes."""

FLAGS_AT = CRC_START + 1
"""The lower byte of the attributes: it holds the codec and all flags."""

_whole = _fields("base_offset", "count")
_before_attributes = _fields("base_offset", "crc")
_from_attributes = _fields("attributes", "count")
HEADER_BYTES = _whole.size

unpack_header = _whole.unpack_from
"""(buffer, position) -> `Header`; struct.error if fewer than `HEADER_BYTES` are there."""

unpack_start = _fields("base_offset", "magic").unpack_from
"""-> base offset, length, partition leader epoch, magic"""

unpack_check = _some("base_offset", "length", "magic", "crc", "last_offset_delta").unpack_from
"""-> base offset, length, magic, CRC, last offset delta: what a check of a batch looks at"""

unpack_extent = _some(
    "base_offset", "length", "partition_leader_epoch", "last_offset_delta"
).unpack_from
"""-> base offset, length, partition leader epoch, last offset delta"""

unpack_producer = _some("producer_id", "producer_epoch", "base_sequence").unpack_from
"""-> producer id, producer epoch, base sequence"""

MAGIC_V2 = 2

LEAST_LENGTH = 14
"""What the length field holds at least, in all formats (`LegacyRecord.RECORD_OVERHEAD_V0`)."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40
"""The flags of `attributes`. With the last, the base timestamp is the delete horizon (KIP-534)."""

CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""The two types of timestamps, as `BatchHeader.timestamp_type` has them."""

_CRC_PIECE_BYTES = 1 << 20
"""A checksum is computed in pieces of this size: the C function holds the interpreter's lock."""


class BatchHeader(msgspec.Struct, gc=False):
    """The header by names; a value: to change it changes no bytes."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """All bytes of the batch, header included."""
        return self.length + LOG_OVERHEAD

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME."""
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time at which compaction may drop tombstones."""
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number; numbers wrap from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


# -- checksum -----------------------------------------------------------------------------------

_LENT_BYTES = 32768
_Lent = ctypes.c_char * _LENT_BYTES


def crc32c(data: Buffer) -> int:
    """Return the CRC-32C of `data`.

    The C extension takes bytes only, so other buffers are copied, except that long writable ones
    are lent to it in chunks of one fixed ctypes array type (a third faster for a megabyte).
    """
    if isinstance(data, bytes):
        return int(google_crc32c.value(data))
    view = memoryview(data)
    crc = pos = 0
    if not view.readonly:
        while len(view) - pos >= _LENT_BYTES:
            crc = google_crc32c.extend(crc, _Lent.from_buffer(view, pos))
            pos += _LENT_BYTES
    return int(google_crc32c.extend(crc, bytes(view[pos:])))


def crc_matches(batch: memoryview, crc: int) -> bool:
    """Return whether a whole batch has the CRC-32C that its header claims."""
    if len(batch) <= _CRC_PIECE_BYTES:
        return bool(_value(bytes(batch[CRC_START:])) == crc)
    found = 0
    for at in range(CRC_START, len(batch), _CRC_PIECE_BYTES):
        found = _extend(found, bytes(batch[at : at + _CRC_PIECE_BYTES]))
    return bool(found == crc)


# -- writing ------------------------------------------------------------------------------------

_stamp = _fields("base_offset", "partition_leader_epoch").pack_into
_length = _fields("length", "length").pack_into
_crc = _fields("crc", "crc").pack_into
_attributes = _fields("attributes", "attributes").pack_into
_max_timestamp = _fields("max_timestamp", "max_timestamp").pack_into
_LENGTH_AT, _CRC_AT = _position("length"), _position("crc")
_ATTRIBUTES_AT, _MAX_TIMESTAMP_AT = _position("attributes"), _position("max_timestamp")


def pack_batch(
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    count: int,
    body: bytes,
) -> bytes:
    """Return a batch of these fields; `body` is its records as they follow the header."""
    head = _from_attributes.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    length = HEADER_BYTES - LOG_OVERHEAD + len(body)
    if len(body) <= _CRC_PIECE_BYTES:
        covered = head + body
        crc = crc32c(covered)
        before = _before_attributes.pack(base_offset, length, leader_epoch, MAGIC_V2, crc)
        return before + covered
    crc = crc32c(head)
    for at in range(0, len(body), _CRC_PIECE_BYTES):
        crc = _extend(crc, body[at : at + _CRC_PIECE_BYTES])
    before = _before_attributes.pack(base_offset, length, leader_epoch, MAGIC_V2, crc)
    return b"".join((before, head, body))


def stamp(batch: memoryview, base_offset: int, length: int, leader_epoch: int) -> None:
    """Write what a leader sets into a batch: its offset and leader epoch, outside the CRC."""
    _stamp(batch, 0, base_offset, length, leader_epoch)


def with_max_timestamp(
    batch: memoryview, attributes: int, max_timestamp: int
) -> tuple[memoryview, Header]:
    """Write both into a batch, and its new CRC; return the batch and its new header."""
    _attributes(batch, _ATTRIBUTES_AT, attributes)
    _max_timestamp(batch, _MAX_TIMESTAMP_AT, max_timestamp)
    _crc(batch, _CRC_AT, _value(bytes(batch[CRC_START:])))
    return batch, unpack_header(batch, 0)


def with_body(batch: memoryview, attributes: int, body: bytes | memoryview) -> memoryview:
    """Return a new batch that has other attributes and another body than `batch`."""
    changed = bytearray(HEADER_BYTES + len(body))
    changed[:HEADER_BYTES] = batch[:HEADER_BYTES]
    changed[HEADER_BYTES:] = body
    view = memoryview(changed)
    _length(view, _LENGTH_AT, len(changed) - LOG_OVERHEAD)
    _attributes(view, _ATTRIBUTES_AT, attributes)
    _crc(view, _CRC_AT, _value(bytes(view[CRC_START:])))
    return view
