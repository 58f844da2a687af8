"""Good batches: which of the bytes read from a file are whole batches with the right CRC (F20).

And which are whole entries of another format: valid records, which are not read here (R21).
Who may call: `segment`, `segment_check`.
"""

import zlib

from google_crc32c import extend
from google_crc32c import value as crc32c

from ottla.model.ports import File
from ottla.wire.batch_header import (
    CRC_START,
    HEADER_BYTES,
    LEAST_LENGTH,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    START_BYTES,
    unpack_check,
    unpack_start,
)

OLD_MAGICS = (0, 1)
_MAX_RELATIVE_OFFSET = 2**31 - 1
_PIECE = 1 << 20


def good_batches(data: bytes, first_offset: int, upto_offset: int) -> tuple[int, str | None]:
    """Return where the whole, good batches below `upto_offset` end, and what is wrong there."""
    # All a broker does to a cold batch happens here, so nothing is unpacked that is not looked at.
    begin = end = 0
    limit = len(data)
    last_start = limit - HEADER_BYTES
    next_offset = first_offset
    while end <= last_start:
        base, length, magic, crc, last_delta = unpack_check(data, end)
        if base >= upto_offset:
            break
        size = length + LOG_OVERHEAD
        if size < HEADER_BYTES or magic != MAGIC_V2:
            return end, f"size {size}, magic {magic}"
        after = end + size
        if after > limit and base >= next_offset:
            break
        if after <= limit and crc32c(data[end + CRC_START : after]) != crc:
            return end, "the CRC does not match"
        # The base offset lies outside of the checksum; that it goes back can be seen. Then this
        # batch or the one before it is wrong, so neither is served.
        if base < next_offset:
            return begin, f"offset {base} after {next_offset}"
        next_offset = base + last_delta + 1
        begin, end = end, after
    return end, None


def other_format(
    file: File, position: int, end: int, base_offset: int, *, later: bool
) -> int | None:
    """Return the format of a whole entry at `position` that is no batch of format 2, else None.

    Formats 0 and 1 (message sets, before Kafka 0.11) are recognised by their CRC-32, which begins
    at the magic (Kafka's `LegacyRecord`). A `later` format, whose checksum nobody knows yet, by a
    base offset that this segment can hold and a length that fits; but where the CRC of format 2 is
    right, one bit of the magic, which it does not cover, was flipped. A read, which deletes
    nothing, takes both for damage.
    """
    start = file.pread(HEADER_BYTES, position)
    if len(start) < START_BYTES:
        return None
    base, length, crc, magic = unpack_start(start, 0)
    after = position + LOG_OVERHEAD + length
    if length < LEAST_LENGTH or after > end or magic == MAGIC_V2:
        return None
    if magic in OLD_MAGICS:
        found = 0
        for at in range(position + MAGIC_AT, after, _PIECE):
            found = zlib.crc32(file.pread(min(_PIECE, after - at), at), found)
        return int(magic) if found == crc & 0xFFFFFFFF else None
    if not (later and 0 <= base - base_offset <= _MAX_RELATIVE_OFFSET):
        return None
    if len(start) < HEADER_BYTES or after - position < HEADER_BYTES:
        return int(magic)
    found = 0
    for at in range(position + CRC_START, after, _PIECE):
        found = extend(found, file.pread(min(_PIECE, after - at), at))
    _, _, _, crc, _ = unpack_check(start, 0)
    return None if found == crc else int(magic)
