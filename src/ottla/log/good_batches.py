"""Good batches: how much of what was read from a file is what had been written (fault F20).

Who may call: `segment`. Pure.
"""

import struct

from google_crc32c import value as crc32c

from ottla.log.validate import BATCH_OVERHEAD, CRC_FROM, HEADER_SIZE

_unpack_brief = struct.Struct(">qi4xbI2xi").unpack_from
"""base offset, length, magic, CRC and last offset delta of a batch"""


def good_batches(data: bytes, first_offset: int, upto_offset: int) -> tuple[int, str | None]:
    """Return where the whole, good batches below `upto_offset` end, and what is wrong there."""
    # All a broker does to a cold batch happens here, so nothing is unpacked that is not looked at.
    begin = end = 0
    limit = len(data)
    last_start = limit - HEADER_SIZE
    next_offset = first_offset
    while end <= last_start:
        base, length, magic, crc, last_delta = _unpack_brief(data, end)
        # The base offset lies outside of the checksum; that it goes back can be seen. Then this
        # batch or the one before it is wrong, so neither is served.
        if base < next_offset:
            return begin, f"offset {base} after {next_offset}"
        if base >= upto_offset:
            break
        size = length + BATCH_OVERHEAD
        if size < HEADER_SIZE or magic != 2:
            return end, f"size {size}, magic {magic}"
        after = end + size
        if after > limit:
            break
        if crc32c(data[end + CRC_FROM : after]) != crc:
            return end, "the CRC does not match"
        next_offset = base + last_delta + 1
        begin, end = end, after
    return end, None
