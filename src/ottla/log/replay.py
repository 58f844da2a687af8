"""Rebuilds the producers' state of a log from its newest good snapshot and the batches after it.

Kafka: `UnifiedLog.rebuildProducerState`. Invariant: long work runs in slices (`slices`).
"""

import contextlib
import logging

from google_crc32c import extend
from google_crc32c import value as crc32c

from ottla.log.aborted import AbortedTransaction, file_name
from ottla.log.producers import CRC_COVERS_FROM, Producers, decode_snapshot
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


def loading_snapshot(
    producers: Producers,
    files: Files,
    folder: str,
    snapshots: list[int],
    log_start_offset: int,
    now_ms: int,
) -> Steps[int]:
    """Restore the newest good snapshot; return the offset to replay from.

    Bad ones are removed from the folder and from `snapshots`.
    """
    while snapshots:
        offset = snapshots[-1]
        path = f"{folder}/{file_name(offset, '.snapshot')}"
        try:
            data, crc = yield from _reading_snapshot(files, path)
            parts = decode_snapshot(data, crc)
        except (CorruptRecordError, FileNotFoundError) as error:
            _log.warning("producer snapshot dropped path=%s error=%s", path, error)
            with contextlib.suppress(FileNotFoundError):
                files.remove(path)
            snapshots.pop()
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
