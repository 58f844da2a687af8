"""Record batches as tests check and change them, apart from what a broker does with them."""

import struct

from ottla.model.errors import CorruptRecordError, InvalidRecordError
from ottla.wire import compression
from ottla.wire.batch_header import HEADER_BYTES, BatchHeader
from ottla.wire.records import DEFAULT_MAX_DECOMPRESSED_BYTES, RecordFacts, check_records, crc_ok


def validate_batch(
    buf: bytes | bytearray | memoryview,
    pos: int,
    header: BatchHeader,
    *,
    max_size: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    dense: bool = True,
) -> RecordFacts:
    """Check CRC, counts and every record of the batch at `pos`; return what was learned.

    `dense` demands the offset deltas 0, 1, 2 ... a producer must send; compacted batches have
    gaps. CorruptRecordError for a bad CRC, InvalidRecordError for the rest, RecordTooLargeError
    for more than `max_size` decompressed bytes.
    """
    if not crc_ok(buf, pos, header):
        raise CorruptRecordError(f"the batch at offset {header.base_offset} fails its checksum")
    if header.count < 0 or (dense and header.count != header.last_offset_delta + 1):
        raise InvalidRecordError(
            f"{header.count} records, but the last offset delta is {header.last_offset_delta}"
        )
    body = memoryview(buf)[pos + HEADER_BYTES : pos + header.size]
    payload = compression.decompress(header.codec, body, max_size)
    return check_records(bytes(payload), header.count, dense=dense)


def patch_leader_fields(buf: memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and partition leader epoch, which the CRC does not cover."""
    struct.pack_into(">q", buf, pos, base_offset)
    struct.pack_into(">i", buf, pos + 12, leader_epoch)
