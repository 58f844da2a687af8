"""Good batches: which of the bytes read from a file are whole batches with the right CRC (F20).

And which are entries of another format: messages before Kafka 0.11, which are served as they are,
and what no version known here has written, which a start keeps (R21).
"""

from google_crc32c import extend
from google_crc32c import value as crc32c

from ottla.model.ports import File
from ottla.wire.batch_header import (
    BASE_OFFSET,
    CRC_START,
    HEADER_BYTES,
    LEAST_LENGTH,
    LENGTH,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAGIC_V2,
    START_BYTES,
    Header,
    unpack_check,
    unpack_start,
)
from ottla.wire.message_sets import OLD_MAGICS, old_entry

_MAX_RELATIVE_OFFSET = 2**31 - 1
_PIECE = 1 << 20


NO_HEADER: Header = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""Stands for bytes that are too few for a batch's header: its magic is no batch's."""


def no_batch(header: Header, chunk: bytes | memoryview) -> str:
    """Return what is wrong where no batch begins."""
    if header is NO_HEADER:
        return f"{len(chunk)} bytes are no batch"
    return f"size {header[LENGTH] + LOG_OVERHEAD}, magic {header[MAGIC]}"


def good_batches(data: bytes, first_offset: int, upto_offset: int) -> tuple[int, str | None]:
    """Return where the whole, good batches below `upto_offset` end, and what is wrong there."""
    # All a broker does to a cold batch happens here, so nothing is unpacked that is not looked at.
    begin = end = 0
    limit = len(data)
    last_start = limit - HEADER_BYTES
    next_offset = first_offset
    while end < limit:
        base, length, magic, crc, last_delta = (
            unpack_check(data, end) if end <= last_start else (0, 0, 0, 0, 0)
        )
        size = length + LOG_OVERHEAD
        if size < HEADER_BYTES or magic != MAGIC_V2:
            old = old_entry(data, end)
            if old is None:
                return end, f"size {size}, magic {magic}" if end <= last_start else None
            if old[BASE_OFFSET] >= upto_offset:
                break
            if old[BASE_OFFSET] < next_offset:
                return begin, f"offset {old[BASE_OFFSET]} after {next_offset}"
            next_offset = old[BASE_OFFSET] + 1
            begin, end = end, end + old[LENGTH] + LOG_OVERHEAD
            continue
        if base >= upto_offset:
            break
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


def old_entry_at(file: File, position: int, end: int) -> tuple[Header, memoryview] | None:
    """Return the entry of format 0 or 1 at `position` with its header, None if none is there.

    Its CRC is checked: a batch whose magic was flipped must not pass for one.
    """
    start = file.pread(START_BYTES, position)
    if len(start) < START_BYTES or start[MAGIC_AT] not in OLD_MAGICS:
        return None
    _, length, _, _ = unpack_start(start, 0)
    if not LEAST_LENGTH <= length <= end - position - LOG_OVERHEAD:
        return None
    entry = memoryview(file.pread(length + LOG_OVERHEAD, position))
    header = old_entry(entry)
    return None if header is None else (header, entry)


def later_format(file: File, position: int, end: int, base_offset: int) -> int | None:
    """Return the magic of an entry that no version known here has written, None if there is none.

    Its checksum is not known yet, so it is one if its base offset fits the segment and its length
    the file. But where the CRC of format 2 is right, one bit of the magic was flipped, which that
    CRC does not cover.
    """
    start = file.pread(HEADER_BYTES, position)
    if len(start) < START_BYTES:
        return None
    base, length, _, magic = unpack_start(start, 0)
    after = position + LOG_OVERHEAD + length
    if magic == MAGIC_V2 or magic in OLD_MAGICS or length < LEAST_LENGTH or after > end:
        return None
    if not 0 <= base - base_offset <= _MAX_RELATIVE_OFFSET:
        return None
    if after - position < HEADER_BYTES:
        return int(magic)
    found = 0
    for at in range(position + CRC_START, after, _PIECE):
        found = extend(found, file.pread(min(_PIECE, after - at), at))
    _, _, _, crc, _ = unpack_check(start, 0)
    return None if found == crc else int(magic)
