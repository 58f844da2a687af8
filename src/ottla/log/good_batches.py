"""Good batches: which of the bytes read from a file are whole batches with the right CRC (F20).

Who may call: `segment`. Pure.
"""

from google_crc32c import value as crc32c

from ottla.wire.batch_header import CRC_START, HEADER_BYTES, LOG_OVERHEAD, MAGIC_V2, unpack_check


def good_batches(data: bytes, first_offset: int, upto_offset: int) -> tuple[int, str | None]:
    """Return where the whole, good batches below `upto_offset` end, and what is wrong there."""
    # All a broker does to a cold batch happens here, so nothing is unpacked that is not looked at.
    begin = end = 0
    limit = len(data)
    last_start = limit - HEADER_BYTES
    next_offset = first_offset
    while end <= last_start:
        base, length, magic, crc, last_delta = unpack_check(data, end)
        # The base offset lies outside of the checksum; that it goes back can be seen. Then this
        # batch or the one before it is wrong, so neither is served.
        if base < next_offset:
            return begin, f"offset {base} after {next_offset}"
        if base >= upto_offset:
            break
        size = length + LOG_OVERHEAD
        if size < HEADER_BYTES or magic != MAGIC_V2:
            return end, f"size {size}, magic {magic}"
        after = end + size
        if after > limit:
            break
        if crc32c(data[end + CRC_START : after]) != crc:
            return end, "the CRC does not match"
        next_offset = base + last_delta + 1
        begin, end = end, after
    return end, None
