"""Checks a segment batch by batch after an unclean stop; builds indexes, epochs and producers.

Kafka: `LogSegment.recover`. One loop with everything in it, because a segment may hold a million
batches and a start waits for it (F19). Invariants: everything is checked: the CRC and increasing
offsets; the check ends at the first bad batch. Epochs, producers and indexes then know exactly the
batches before it. What is whole but not read here is no bad batch: UnreadFormatError (R21). As in
Kafka, a batch whose CRC is right is kept if its magic, which the CRC does not cover, is unknown (a
read takes it for damage), and if its leader epoch is lower than the one before it (ZooKeeper may
have been restored from an older state).
"""

import logging
from typing import NamedTuple

from google_crc32c import extend
from google_crc32c import value as crc32c

from ottla.log.aborted import AbortedTransaction
from ottla.log.epochs import EpochCache
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.producers import Producers
from ottla.log.results import UnreadFormatError
from ottla.log.segment import NO_HEADER, Segment, later_format, old_entry_at
from ottla.log.slices import Reader, Steps
from ottla.log.transactions import apply_batch
from ottla.model.errors import OttlaError
from ottla.model.protocol import NO_TIMESTAMP
from ottla.wire.batch_header import (
    BASE_OFFSET,
    CONTROL_FLAG,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    Header,
    unpack_header,
)
from ottla.wire.message_sets import OLD_MAGICS

_log = logging.getLogger(__name__)

_CHUNK = 256 << 10
_LARGE = 1 << 20
"""A batch above it is checked in pieces of this size."""
_SLICE = 1500
"""batches between two yields; a batch of a producer counts twice"""


class Checked(NamedTuple):
    """Where the good batches of a segment end, and what is wrong there (empty: nothing)."""

    size: int
    next_offset: int
    problem: str
    torn: bool
    """whether an append that was interrupted may have left this; not a whole batch"""


def checking(
    segment: Segment,
    epochs: EpochCache,
    producers: Producers,
    producers_from: int,
    index_interval: int,
) -> Steps[Checked]:
    """Check all of a segment; batches of producers count from offset `producers_from` on."""
    size = segment.size
    reader = Reader(segment.file, 0, size)
    offsets = OffsetIndex(segment.base_offset)
    times = TimeIndex(segment.base_offset)
    segment.start_indexes()
    segment.set_indexes(offsets, times, true=False)
    latest = epochs.latest
    next_offset = segment.base_offset
    newest, newest_offset = NO_TIMESTAMP, segment.base_offset
    position = start = unindexed = 0
    left, chunk = _SLICE, b""
    problem, torn = "", True
    while position < size:
        at = position - start
        after = at + HEADER_BYTES
        if after > len(chunk) or left <= 0:
            yield reader.missing(position, _CHUNK)
            left = _SLICE
            if after > len(chunk):
                chunk = reader.read(position, _CHUNK)
                start, at = position, 0
        fields: Header = unpack_header(chunk, at) if len(chunk) >= HEADER_BYTES else NO_HEADER
        old = fields[MAGIC] in OLD_MAGICS
        if old:
            found = old_entry_at(segment.file, position, size)
            if found is None:
                problem = f"{len(chunk) - at} bytes are no batch"
                break
            fields = found[0]
        base, length, epoch, magic, crc, attributes, last_delta = fields[:7]
        _, timestamp, producer_id, producer_epoch, sequence, _ = fields[7:]
        batch_size = length + LOG_OVERHEAD
        if not old and (batch_size < HEADER_BYTES or position + batch_size > size):
            problem = f"size {batch_size}, magic {magic}"
            break
        after = at + batch_size
        if old or after <= len(chunk):
            good = old or crc32c(chunk[at + CRC_START : after]) == crc
        elif batch_size > _LARGE:
            good = (yield from _crc_of_large(reader, position, batch_size)) == crc
        else:
            wanted = max(batch_size, _CHUNK)
            yield reader.missing(position, wanted)
            chunk = reader.read(position, wanted)
            start, at, after = position, 0, batch_size
            good = crc32c(chunk[CRC_START:after]) == crc
        if not good:
            problem = "the CRC does not match"
            break
        last = base + last_delta
        if last > segment.max_offset:
            raise _unread(segment, f"offset {last}, too far from its first one for an index")
        if base < next_offset:
            problem, torn = f"offset {base} after {next_offset}", False
            break
        if epoch != latest and epoch >= 0:
            epochs.assign(epoch, base)
            latest = epoch
        next_offset = last + 1
        if timestamp > newest:
            newest, newest_offset = timestamp, last
        if unindexed > index_interval:
            offsets.append(last, position)
            times.maybe_append(newest, newest_offset)
            unindexed = 0
        unindexed += batch_size
        position += batch_size
        left -= 1
        if producer_id >= 0 and base >= producers_from:
            left -= 1
            if attributes & CONTROL_FLAG:
                _end_transaction(segment, producers, fields, memoryview(chunk)[at:after])
            else:
                # As many sequences as offsets: compaction takes records, never sequences.
                transactional = bool(attributes & TRANSACTIONAL_FLAG)
                written = sequence, last_delta + 1, base, last, timestamp, transactional
                producers.update(producer_id, producer_epoch, *written)
    if problem and torn:
        _refuse_later_format(segment, position)
    segment.settle_indexes(newest, newest_offset, unindexed)
    return Checked(position, next_offset, problem, torn)


def _refuse_later_format(segment: Segment, position: int) -> None:
    magic = later_format(segment.file, position, segment.size, segment.base_offset)
    if magic is not None:
        raise _unread(segment, f"records of message format {magic}, unknown here, at {position}")


def _unread(segment: Segment, what: str) -> UnreadFormatError:
    return UnreadFormatError(
        f"{segment.path('.log')} holds {what}; no file of the partition is changed"
    )


def _end_transaction(
    segment: Segment, producers: Producers, header: Header, batch: memoryview
) -> None:
    try:
        done = apply_batch(producers, header, batch)
    except OttlaError as error:
        what = f"a control record at offset {header[BASE_OFFSET]} that cannot be read ({error})"
        raise _unread(segment, what) from error
    if done is not None and done.aborted:
        segment.append_aborted(AbortedTransaction(*done[:3], done.last_stable_offset))


def _crc_of_large(reader: Reader, position: int, batch_size: int) -> Steps[int]:
    crc = 0
    done = CRC_START
    while done < batch_size:
        yield reader.missing(position + done, min(_LARGE, batch_size - done))
        part = reader.read(position + done, min(_LARGE, batch_size - done))
        if not part:
            return -1
        crc = extend(crc, part)
        done += len(part)
    return crc
