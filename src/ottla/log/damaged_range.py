"""Finds the unreadable offsets around one that cannot be read (fault F20).

Who may call: `local_log`. Reads a few MiB of one segment at most.
"""

import contextlib

from ottla.log.segment import MOST_AT_ONCE, Segment
from ottla.model.errors import CorruptRecordError
from ottla.wire.batch_header import BASE_OFFSET, LAST_OFFSET_DELTA, LENGTH, LOG_OVERHEAD


def damaged_range(segment: Segment, offset: int, upper: int) -> tuple[int, int]:
    """Return the offsets around `offset` that cannot be read, as (first, first good again).

    `upper` is where the segment's offsets end.
    """
    first = offset
    place = segment.offsets.lookup(offset)
    if place == 0:
        first = segment.base_offset
    limit = min(segment.size, place + MOST_AT_ONCE)
    while place < limit:
        try:
            for position, header, _ in segment.batches(place):
                base, last = header[BASE_OFFSET], header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
                if not segment.base_offset <= base <= last < upper:
                    break
                if last >= offset:
                    return (first, base) if base > offset else (base, last + 1)
                first = last + 1
                place = position + header[LENGTH] + LOG_OVERHEAD
            else:
                break
        except CorruptRecordError:
            pass
        found = _after_bad(segment, place)
        if found is None:
            break
        place = found
    return min(first, offset), max(upper, offset + 1)


def _after_bad(segment: Segment, position: int) -> int | None:
    """Return where a good batch may begin after a bad one."""
    with contextlib.suppress(CorruptRecordError):
        for at, header in segment.headers(position):
            if at > position:
                return at
            if header[LAST_OFFSET_DELTA] < 0:
                break
    found = segment.resume(segment.offsets, position)
    return None if found is None else found[0]
