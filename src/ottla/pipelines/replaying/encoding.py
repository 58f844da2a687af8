"""Records to bytes for the target: what was there stays as it was, one header is added.

Pure. Key, value and headers are copied as bytes and never decoded; only lengths are read. Two ways
lead here: the bytes of a source batch, and rows of Spark.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.client.transactional_producer import Encoded
from ottla.model.errors import InvalidRecordError
from ottla.pipelines.replaying.origins import ENCODED_NAME
from ottla.wire.batch_header import LOG_APPEND_TIME, BatchHeader
from ottla.wire.record_check import read_int, read_varint, varint

NULL = b"\x01"
"""A length of -1."""


class RawRecord(NamedTuple):
    """One record; `body` is key and value with their lengths, `headers` what follows the count."""

    offset: int
    timestamp: int
    key: bytes | None
    body: bytes
    header_count: int
    headers: bytes


def raw_records(header: BatchHeader, payload: bytes) -> Iterator[RawRecord]:
    """Yield the records of a batch whose payload is unpacked."""
    fixed = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    at = 0
    for _ in range(header.count):
        size, at = read_int(payload, at)
        end = at + size
        delta, at = read_varint(payload, at + 1)
        timestamp = base_timestamp + delta if fixed is None else fixed
        delta, begin = read_int(payload, at)
        size, at = read_int(payload, begin)
        key = None
        if size >= 0:
            key = payload[at : at + size]
            at += size
        size, at = read_int(payload, at)
        if size > 0:
            at += size
        body = payload[begin:at]
        count, at = read_int(payload, at)
        if not at <= end <= len(payload) or count < 0:
            raise InvalidRecordError(f"the record at offset {base_offset + delta} is malformed")
        yield RawRecord(base_offset + delta, timestamp, key, body, count, payload[at:end])
        at = end


def encoded_body(key: bytes | None, value: bytes | None) -> bytes:
    """Return key and value as they stand in a record."""
    return _sized(key) + _sized(value)


def encoded_headers(headers: list[tuple[str, bytes | None]]) -> bytes:
    """Return headers as they stand behind their count."""
    return b"".join(
        _sized(name.encode(errors="surrogateescape")) + _sized(value) for name, value in headers
    )


def _sized(data: bytes | None) -> bytes:
    return NULL if data is None else varint(len(data)) + data


class Lane:
    """Records for one partition of the target, until they are sent."""

    __slots__ = ("batch",)

    def __init__(self) -> None:
        self.batch = Encoded(bytearray(), 0, 0, 0)

    def append(self, record: RawRecord, source: bytes | None) -> None:
        """Add a record, with the header `ottla.source` of that value (None: without)."""
        batch = self.batch
        if not batch.count:
            batch.base_timestamp = batch.max_timestamp = record.timestamp
        elif record.timestamp > batch.max_timestamp:
            batch.max_timestamp = record.timestamp
        ours = b"" if source is None else ENCODED_NAME + varint(len(source)) + source
        body = b"".join(
            (
                b"\x00",
                varint(record.timestamp - batch.base_timestamp),
                varint(batch.count),
                record.body,
                varint(record.header_count + (source is not None)),
                record.headers,
                ours,
            )
        )
        batch.payload += varint(len(body))
        batch.payload += body
        batch.count += 1

    def taken(self) -> Encoded:
        """Return what is there; the lane is empty after that."""
        found, self.batch = self.batch, Encoded(bytearray(), 0, 0, 0)
        return found
