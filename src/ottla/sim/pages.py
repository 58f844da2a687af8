"""A simulated file's pages: what the program sees, what the platter has, and what a crash leaves.

Plain values and a given source of chance. Invariants: what was synced is on the platter; of what
was not, a power loss keeps any page in any of its states since the last sync, and any of the sizes
the file had, as a kernel writes pages back in its own order; a page that is only on the platter is
cold until someone reads it.
"""

import random

PAGE_BYTES = 4096

Operation = tuple[int, bytes | None]
"""(offset, bytes written) or (size, None) for a truncation."""


class Inode:
    """A file's bytes: as the program sees them, and as the platter has them."""

    __slots__ = ("changes", "cold", "data", "dirty", "durable", "number")

    def __init__(self, number: int = 0) -> None:
        self.number = number
        """No other file of its disk has it, also no copy of this one."""
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty: list[Operation] = []
        """Since the last fsync."""
        self.cold: set[int] = set()
        """Pages that are not in memory."""
        self.changes = 0
        """Counts what was done to it, for those who keep what they have read."""

    def write(self, offset: int, data: bytes) -> None:
        self.changes += 1
        if self.cold:
            self.warm(offset, len(data))
        apply(self.data, offset, data)
        self.dirty.append((offset, data))

    def truncate(self, size: int) -> None:
        self.changes += 1
        apply(self.data, size, None)
        self.dirty.append((size, None))

    def sync(self) -> None:
        for offset, data in self.dirty:
            apply(self.durable, offset, data)
        self.dirty.clear()

    def keep_first(self, count: int) -> None:
        """Settle what a power loss is to leave: so many operations since the last sync."""
        for offset, data in self.dirty[:count]:
            apply(self.durable, offset, data)
        self.dirty.clear()

    def fail_sync(self) -> None:
        """Drop what a failed fsync could not write: the kernel calls it clean (fsyncgate).

        The program goes on seeing it for as long as it is in memory; no later fsync writes it.
        """
        self.dirty.clear()

    def evict(self) -> None:
        """Forget what is in memory and clean: it has to be read from the platter again."""
        self.changes += 1
        data = bytearray(self.durable)
        for offset, written in self.dirty:
            apply(data, offset, written)
        self.data = data
        self.cold = set(range((len(data) + PAGE_BYTES - 1) // PAGE_BYTES)) - {
            page
            for offset, written in self.dirty
            if written
            for page in range(offset // PAGE_BYTES, (offset + len(written) - 1) // PAGE_BYTES + 1)
        }

    def is_warm(self, offset: int, size: int) -> bool:
        """Whether these bytes are in memory."""
        last = max(offset, min(offset + size, len(self.data)) - 1)
        return not any(
            page in self.cold for page in range(offset // PAGE_BYTES, last // PAGE_BYTES + 1)
        )

    def warm(self, offset: int, size: int) -> None:
        """Note that these bytes are in memory now."""
        first, last = offset // PAGE_BYTES, (offset + max(size, 1) - 1) // PAGE_BYTES
        self.cold.difference_update(range(first, last + 1))

    def lose(self, rng: random.Random, *, in_order: bool = False) -> int:
        """Fall back to what the platter has after a power loss; return the lost operations.

        `in_order`: a prefix of what was done survives, the last of it perhaps in half.
        """
        self.changes += 1
        operations = self.dirty
        lost = 0
        if operations:
            draw = rng.random()
            if draw < 0.25:
                lost = len(operations)
            elif draw < 0.4:
                self.sync()
            elif draw < 0.6 or in_order:
                lost = self._lose_the_end(rng)
            else:
                lost = self._lose_pages(rng)
        self.dirty = []
        self.data = bytearray(self.durable)
        return lost

    def _lose_the_end(self, rng: random.Random) -> int:
        operations = self.dirty
        kept = rng.randrange(len(operations))
        for offset, data in operations[:kept]:
            apply(self.durable, offset, data)
        offset, data = operations[kept]
        if data is not None and rng.random() < 0.7:
            apply(self.durable, offset, torn(offset, data, rng))
        return len(operations) - kept

    def _lose_pages(self, rng: random.Random) -> int:
        """Keep each page as it was after some of the operations, whatever became of others.

        Half of the time the size grows only over pages that were written, as ext4 (data=ordered)
        and XFS have it; else a page that was lost beyond the old end reads as zeros.
        """
        operations, before = self.dirty, len(self.durable)
        everything = len(operations)
        size = after(operations[: rng.randint(0, everything)], before)
        ordered = rng.random() < 0.5
        states: dict[int, int] = {}
        for page in sorted(touched(operations, before)):
            draw = rng.random()
            states[page] = (
                0 if draw < 0.3 else everything if draw < 0.7 else rng.randint(0, everything)
            )
        found = bytearray(self.durable[:size].ljust(size, b"\0"))
        lost = 0
        for page, count in states.items():
            lost += count < everything
            start = page * PAGE_BYTES
            if start >= size:
                continue
            content = page_after(self.durable, operations[:count], page)
            if ordered and start + PAGE_BYTES > before and count == 0:
                size = min(size, max(start, min(before, size)))
            found[start : start + PAGE_BYTES] = content[: max(0, len(found) - start)]
        del found[size:]
        self.durable = found
        return lost


def apply(target: bytearray, offset: int, data: bytes | None) -> None:
    """Do one operation to a file's bytes."""
    if data is None:
        if offset < len(target):
            del target[offset:]
        else:
            target.extend(bytes(offset - len(target)))
        return
    if offset > len(target):
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


def after(operations: list[Operation], size: int) -> int:
    """Return a file's size after operations."""
    for offset, data in operations:
        size = offset if data is None else max(size, offset + len(data))
    return size


def touched(operations: list[Operation], size: int) -> set[int]:
    """Return the pages that operations changed, of a file that had this size before."""
    pages: set[int] = set()
    for offset, data in operations:
        end = max(size, offset) if data is None else offset + len(data)
        if end > offset:
            pages.update(range(offset // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1))
        size = offset if data is None else max(size, end)
    return pages


def page_after(durable: bytearray, operations: list[Operation], page: int) -> bytes:
    """Return one page as it is after operations on the file; what is beyond its end is zeros."""
    start = page * PAGE_BYTES
    content = bytearray(durable[start : start + PAGE_BYTES].ljust(PAGE_BYTES, b"\0"))
    for offset, data in operations:
        if data is None:
            if offset < start + PAGE_BYTES:
                cut = max(0, offset - start)
                content[cut:] = bytes(PAGE_BYTES - cut)
            continue
        low, high = max(offset, start), min(offset + len(data), start + PAGE_BYTES)
        if low < high:
            content[low - start : high - start] = data[low - offset : high - offset]
    return bytes(content)


def torn(offset: int, data: bytes, rng: random.Random) -> bytes:
    """Return the start of a write, cut at a page of the file or, rarely, anywhere."""
    cut = rng.randrange(len(data) + 1)
    if rng.random() < 0.7:
        cut = max(0, (offset + cut) // PAGE_BYTES * PAGE_BYTES - offset)
    return data[:cut]
