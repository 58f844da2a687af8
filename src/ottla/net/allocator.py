"""Allocator: makes the C library keep freed memory for the next request of that size.

Invariants: at most `KEPT_BYTES` at the end of the heap stay unused; other processes (tools, tests)
are not changed; without glibc nothing happens.

A fetch reads up to a megabyte into memory that is free again after the send. By default glibc
returns a few such blocks to the kernel each time, and the kernel zeroes and maps every page again:
two fifths of the CPU of a broker that only serves consumers. Kafka: the heap,
which the JVM keeps (-Xms).
"""

import ctypes
import functools
from collections.abc import Callable

KEPT_BYTES = 16 << 20
"""A few responses of the size that clients request."""
FROM_HEAP_BYTES = 4 << 20
"""Blocks up to this size come from the heap; larger ones are mapped, and given back at once."""

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Have glibc keep `KEPT_BYTES`; False where it cannot be set."""
    mallopt = _find_mallopt()
    if mallopt is None:
        return False
    # Setting either ends glibc's own moving of both.
    changed = mallopt(_M_MMAP_THRESHOLD, FROM_HEAP_BYTES)
    return bool(changed and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))


@functools.cache
def _find_mallopt() -> Callable[[int, int], int] | None:
    try:
        return ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return None
