"""A segment while the cleaner reads it: batches, checked, about a megabyte at a time.

Who may call: `cleaner`. Kafka: the reading half of `Cleaner.buildOffsetMapForSegment`
and `cleanInto`. Invariants: a worker reads, through a segment object and a descriptor of its own:
what is cleaned is old, seldom in memory, and one batch of it may have 100 MiB (F46). Entries of
format 0 and 1 come as batches of format 2 with the same records, so that is what is left of them.
"""

from collections.abc import Iterator

from ottla.log.segment import Segment
from ottla.wire.batch_header import ATTRIBUTES, MAGIC, Header, unpack_header
from ottla.wire.message_sets import MERGED_BYTES, OLD_MAGICS, merged, upgraded

AT_ONCE = 1 << 20
"""Bytes per read; a larger batch is read whole."""


class SegmentInput:
    """The batches of a segment from the one that holds `offset` on."""

    def __init__(self, segment: Segment, offset: int) -> None:
        self._file = segment.file
        self._probe = segment.probe()
        self._offset = offset
        self._batches: Iterator[tuple[int, Header, memoryview]] | None = None
        self._reading = self._closed = False
        self._old: list[memoryview] = []
        """entries of format 0 or 1, not compressed, that are to become one batch"""
        self._old_bytes = 0

    def read(self) -> list[tuple[Header, memoryview]] | None:
        """Return the next batches, none at the end, None if the file was closed; for a worker.

        CorruptRecordError at a bad one, OSError.
        """
        self._reading = True
        try:
            if self._batches is None:
                reader = self._file.reader()
                if reader is None:
                    return None
                self._probe.attach(reader)
                self._batches = self._probe.batches(self._start())
            some: list[tuple[Header, memoryview]] = []
            size = 0
            for _, header, batch in self._batches:
                if header[MAGIC] not in OLD_MAGICS:
                    self._end_old(some)
                    some.append((header, batch))
                elif header[ATTRIBUTES]:
                    self._end_old(some)
                    _add(some, upgraded(batch))
                else:
                    self._old.append(batch)
                    self._old_bytes += len(batch)
                    if self._old_bytes >= MERGED_BYTES:
                        self._end_old(some)
                size += len(batch)
                if size >= AT_ONCE:
                    break
            self._end_old(some)
            return some
        finally:
            self._reading = False
            if self._closed:
                self._probe.close()

    def _end_old(self, some: list[tuple[Header, memoryview]]) -> None:
        if self._old:
            _add(some, merged(self._old))
            self._old, self._old_bytes = [], 0

    def _start(self) -> int:
        if self._offset <= self._probe.base_offset:
            return 0
        place = self._probe.find(self._offset)
        return self._probe.size if place is None else place[0]

    def close(self) -> None:
        """Close the descriptor: at once, or when a worker that is reading is done."""
        self._closed = True
        if not self._reading:
            self._probe.close()


def _add(some: list[tuple[Header, memoryview]], batch: bytes) -> None:
    some.append((unpack_header(batch, 0), memoryview(batch)))
