"""The tail cache: the last appended batches of a log, so that hot reads need no system call.

Invariants: a cache holds the last batches without a gap, so that a read that begins in it ends in
it; a batch is charged with the whole frame it keeps in memory, or is copied out of a much larger
one; each cache is bounded, and all together.
"""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from ottla.model.ports import Buffer

DEFAULT_LOG_BYTES = 4 << 20
DEFAULT_ALL_BYTES = 48 << 20
_ENTRY_OVERHEAD = 300
_COPY_UP_TO = 64 << 10
_COMPACT_AT = 256


class CachedRead(NamedTuple):
    """Cached batches; `too_small` if `max_bytes` holds not even the first one."""

    parts: list[Buffer]
    size: int
    too_small: bool


class TailBudget:
    """What all tail caches of a broker may hold together, and how often they had what was read."""

    __slots__ = ("_members", "hits", "limit", "misses", "used")

    def __init__(self, limit: int = DEFAULT_ALL_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.hits = 0
        self.misses = 0
        """reads that went to a file instead"""
        self._members: dict[TailCache, None] = {}

    def admit(self, cache: "TailCache") -> None:
        self._members[cache] = None

    def leave(self, cache: "TailCache") -> None:
        self._members.pop(cache, None)

    def shrink(self) -> None:
        """Halve the caches in turn until all fit."""
        while self.used > self.limit and self._members:
            cache = next(iter(self._members))
            del self._members[cache]
            cache.halve()
            if len(cache):
                self._members[cache] = None


class TailCache:
    """The last batches of one log."""

    __slots__ = ("_bases", "_charges", "_ends", "_head", "_parts", "budget", "limit", "used")

    def __init__(self, budget: TailBudget, limit: int = DEFAULT_LOG_BYTES) -> None:
        self.budget = budget
        self.limit = limit
        self.used = 0
        self._bases: list[int] = []
        self._parts: list[Buffer] = []
        self._charges: list[int] = []
        self._ends: list[int] = []
        """running total of bytes at the end of each part"""
        self._head = 0

    def __len__(self) -> int:
        return len(self._parts) - self._head

    def append(self, base_offset: int, batch: memoryview) -> None:
        """Keep the batch that was just appended to the log."""
        size = len(batch)
        charge = len(batch.obj)  # type: ignore[arg-type]
        if charge > size + size + 4096 and size <= _COPY_UP_TO:
            # A small piece of a large frame would pin all of it.
            batch = memoryview(bytes(batch))
            charge = size
        charge += _ENTRY_OVERHEAD
        ends = self._ends
        if not ends:
            self.budget.admit(self)
            ends.append(size)
        else:
            ends.append(ends[-1] + size)
        self._bases.append(base_offset)
        self._parts.append(batch)
        self._charges.append(charge)
        used = self.used = self.used + charge
        budget = self.budget
        budget.used += charge
        if used > self.limit:
            self._drop_to(self.limit)
        if budget.used > budget.limit:
            budget.shrink()

    def read(
        self, offset: int, max_bytes: int, upto_offset: int, min_one: bool
    ) -> CachedRead | None:
        """Return batches from the one holding `offset`; None if the cache begins later."""
        bases = self._bases
        first = bisect_right(bases, offset, self._head) - 1
        if first < self._head:
            return None
        self.budget.hits += 1
        ends = self._ends
        stop = len(bases)
        if bases[-1] >= upto_offset:
            stop = bisect_left(bases, upto_offset, first)
            if stop <= first:
                return CachedRead([], 0, too_small=False)
        start = ends[first] - len(self._parts[first])
        if ends[stop - 1] - start > max_bytes:
            stop = bisect_right(ends, start + max_bytes, first, stop)
            if stop == first:
                if not min_one:
                    return CachedRead([], 0, too_small=True)
                stop += 1
        return CachedRead(self._parts[first:stop], ends[stop - 1] - start, too_small=False)

    def halve(self) -> None:
        self._drop_to(self.used // 2)

    def drop_below(self, offset: int) -> None:
        """Forget the batches before `offset`: the files hold others in their place."""
        keep = bisect_left(self._bases, offset, self._head)
        if keep > self._head:
            self._drop_to(sum(self._charges[keep:]))

    def clear(self) -> None:
        if self._parts:
            self._drop_to(-1)

    def _drop_to(self, target: int) -> None:
        """Drop the oldest batches until at most `target` bytes are charged."""
        head = self._head
        charges = self._charges
        freed = 0
        used = self.used
        while head < len(charges) and used - freed > target:
            freed += charges[head]
            self._parts[head] = b""
            head += 1
        self.used = used - freed
        self.budget.used -= freed
        self._head = head
        if head == len(charges):
            self._bases.clear()
            self._parts.clear()
            charges.clear()
            self._ends.clear()
            self._head = 0
            self.budget.leave(self)
        elif head >= _COMPACT_AT and head * 2 >= len(charges):
            for column in (self._bases, self._parts, charges, self._ends):
                del column[:head]
            self._head = 0
