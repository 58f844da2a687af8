"""The snapshots of a log's producers, and their state from the newest good one and later batches.

Kafka: the files of `ProducerStateManager`, and `UnifiedLog.rebuildProducerState`. Invariant: long
work runs in slices (`slices`).
"""

import contextlib
import logging
from collections.abc import Callable

from google_crc32c import extend
from google_crc32c import value as crc32c

from ottla.log.aborted import AbortedTransaction, file_name
from ottla.log.flush_job import FlushJob
from ottla.log.producers import CRC_COVERS_FROM, Producers, decode_snapshot, encode_snapshot
from ottla.log.segment import Segment
from ottla.log.slices import Steps
from ottla.log.transactions import apply_batch
from ottla.model.errors import CorruptRecordError
from ottla.model.ports import Buffer, Files
from ottla.wire.batch_header import BASE_OFFSET, LENGTH, PRODUCER_ID

_log = logging.getLogger(__name__)

_NEVER = 2**63 - 1
_BYTES_AT_ONCE = 1 << 20
_COST_OF_BATCH = 1000
"""A batch takes as long as so many more bytes in it would."""


class ProducerSnapshots:
    """The snapshots of one log's producers, each named after the offset that it was taken at."""

    __slots__ = ("_files", "folder", "offsets", "pending")

    def __init__(self, files: Files, folder: str, offsets: list[int]) -> None:
        """`offsets` of the files that are there, in order."""
        self._files = files
        self.folder = folder
        self.offsets = offsets
        self.pending: dict[int, bytes] = {}
        """taken, and to be written with the next flush"""

    def path(self, offset: int) -> str:
        return f"{self.folder}/{file_name(offset, '.snapshot')}"

    def take(self, offset: int, producers: Producers) -> None:
        """Keep the producers as they are at `offset`, unless there is such a snapshot."""
        if offset == 0 or (self.offsets and self.offsets[-1] >= offset):
            return
        data = encode_snapshot(producers.producers.values())
        data[2:6] = crc32c(bytes(data[CRC_COVERS_FROM:])).to_bytes(4, "big")
        self.pending[offset] = bytes(data)
        self.offsets.append(offset)

    def write_pending(self) -> None:
        """Write what was taken, not durably."""
        for offset, data in self.pending.items():
            self._files.write(self.path(offset), data)
        self.pending.clear()

    def keep_only(self, wanted: Callable[[int], bool]) -> None:
        """Remove all snapshots but those at wanted offsets."""
        for offset in self.offsets:
            if not wanted(offset):
                self.pending.pop(offset, None)
                self._remove(offset)
        self.offsets = [offset for offset in self.offsets if wanted(offset)]

    def _remove(self, offset: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(self.path(offset))

    def add_to(self, job: FlushJob) -> None:
        """Have a job write what was taken."""
        job.to_write += [(self.path(offset), data) for offset, data in self.pending.items()]
        job.snapshots += self.pending
        self.pending.clear()

    def written_by(self, job: FlushJob) -> None:
        """Remove what a job wrote although it was dropped meanwhile."""
        for offset in job.snapshots:
            if offset not in self.offsets:
                self._remove(offset)

    def restore(self, job: FlushJob) -> None:
        """Take back what a job has, as pending."""
        data = dict(job.to_write)
        for offset in job.snapshots:
            if offset in self.offsets and offset not in self.pending:
                self.pending[offset] = data[self.path(offset)]

    def loading(
        self, producers: Producers, upto: int, log_start_offset: int, now_ms: int
    ) -> Steps[int]:
        """Restore the newest good snapshot not above `upto`; return the offset to replay from.

        Bad ones are removed.
        """
        for offset in [offset for offset in reversed(self.offsets) if offset <= upto]:
            path = self.path(offset)
            try:
                data, crc = yield from _reading_snapshot(self._files, path)
                parts = decode_snapshot(data, crc)
            except (CorruptRecordError, FileNotFoundError) as error:
                _log.warning("producer snapshot dropped path=%s error=%s", path, error)
                self._remove(offset)
                self.offsets.remove(offset)
                continue
            yield from producers.restoring(parts, now_ms)
            return max(offset, log_start_offset)
        producers.clear()
        return log_start_offset


def _reading_snapshot(files: Files, path: str) -> Steps[tuple[Buffer, int]]:
    """Return a snapshot's bytes and the CRC of what its own CRC covers."""
    if files.size(path) <= _BYTES_AT_ONCE:
        small = files.read_bytes(path)
        return small, crc32c(small[CRC_COVERS_FROM:])
    file = files.open(path)
    try:
        data = bytearray(file.pread(CRC_COVERS_FROM, 0))
        crc = 0
        while part := file.pread(_BYTES_AT_ONCE, len(data)):
            data += part
            crc = extend(crc, part)
            if len(part) < _BYTES_AT_ONCE:
                break
            yield None
    finally:
        file.close()
    return data, crc


def replaying(
    producers: Producers,
    segments: list[Segment],
    start: int,
    end: int,
    append_aborted_from: int = _NEVER,
) -> Steps[None]:
    """Apply the batches in [start, end); note aborted transactions where that is asked for."""
    work = 0
    for index, segment in enumerate(segments):
        next_base = segments[index + 1].base_offset if index + 1 < len(segments) else end
        if next_base <= start or segment.base_offset >= end or not segment.size:
            continue
        found = segment.find(max(start, segment.base_offset))
        if found is None:
            continue
        for _, header, batch in segment.batches(found[0]):
            if header[BASE_OFFSET] >= end:
                return
            if header[PRODUCER_ID] >= 0:
                done = apply_batch(producers, header, batch)
                if done is not None and done.aborted and segment.base_offset >= append_aborted_from:
                    segment.append_aborted(AbortedTransaction(*done[:3], done.last_stable_offset))
            work += _COST_OF_BATCH + header[LENGTH]
            if work >= _BYTES_AT_ONCE:
                work = 0
                yield None
