"""Checks a batch with a producer id before a leader appends it; changes nothing in the log.

The rules are in `producers`; this module reads from a batch what they need, and from the log the
batches that a snapshot of producers leaves out: all but the last of each producer. Kafka:
`UnifiedLog.analyzeAndValidateProducerState`; after a restart it knows the last batch of a producer
only, and refuses the ones before it that a client sends again because it got no response. A
producer has up to five requests in flight. Invariants: a log is searched once per producer and
restart, in at most `MAX_HEADERS` headers, backwards from the batch that is known; what is found
precedes it without a gap, in the same producer epoch.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from ottla.log.producers import (
    BATCHES_KEPT,
    TRUSTED,
    Producer,
    Producers,
    WrittenBatch,
    last_sequence_of,
)
from ottla.log.results import AppendInfo
from ottla.log.segment import Segment
from ottla.log.transactions import read_marker
from ottla.model.errors import CorruptRecordError, OutOfOrderSequenceError
from ottla.wire.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL_FLAG,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL_FLAG,
    Header,
)


def check_producer(
    producers: Producers,
    segments: Sequence[Segment],
    batch: memoryview,
    header: Header,
    guard: object,
    *,
    from_client: bool,
) -> WrittenBatch | None:
    """Return the batch that this one repeats, or None if it may be appended; else raise.

    OSError where the log has to be read and cannot be.
    """
    attributes = header[ATTRIBUTES]
    producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
    if attributes & CONTROL_FLAG:
        marker = read_marker(batch)
        if marker is not None:
            producers.check_marker(producer_id, epoch, marker.coordinator_epoch)
        return None
    is_transactional = bool(attributes & TRANSACTIONAL_FLAG)
    sequence = header[BASE_SEQUENCE]
    asked = producer_id, epoch, sequence, header[RECORD_COUNT], is_transactional, from_client
    try:
        repeated = producers.check(*asked)
    except OutOfOrderSequenceError:
        if not recall_batches(producers, segments, producer_id, epoch):
            raise
        repeated = producers.check(*asked)
    if repeated is None and guard is not TRUSTED and is_transactional:
        producers.check_guard(producer_id, epoch, sequence, guard)
    return repeated


def duplicate_of(repeated: WrittenBatch, log_start_offset: int, count: int) -> AppendInfo:
    """Return what the append of a batch of `count` records is answered that repeats another."""
    return AppendInfo(
        repeated.first_offset,
        repeated.last_offset,
        repeated.timestamp,
        repeated.timestamp,  # also where the time is the producer's: so Kafka
        log_start_offset,
        True,
        0,
        count,
    )


MAX_HEADERS = 500
"""Headers that one search reads, of all producers: about a millisecond."""


def recall_batches(
    producers: Producers, segments: Sequence[Segment], producer_id: int, epoch: int
) -> bool:
    """Add a producer's earlier batches to its state; return whether there were any.

    OSError where the log cannot be read.
    """
    producer = producers.producers.get(producer_id)
    if producer is None or not producer.has_earlier_batches or epoch != producer.epoch:
        return False
    producer.has_earlier_batches = False  # whatever comes of it: one search is enough
    found: list[WrittenBatch] = []
    # Where the log is damaged, who reads the records finds it, not this client.
    with suppress(CorruptRecordError):
        found.extend(_earlier_batches(segments, producer))
    producer.batches[:0] = reversed(found)
    return bool(found)


def _earlier_batches(segments: Sequence[Segment], producer: Producer) -> Iterator[WrittenBatch]:
    """Yield the batches before those that a producer's state has, the last one first."""
    next_batch = producer.batches[0]
    wanted = BATCHES_KEPT - len(producer.batches)
    for header in _backwards(segments, next_batch.first_offset):
        if wanted == 0:
            return
        if header[PRODUCER_ID] != producer.id or header[ATTRIBUTES] & CONTROL_FLAG:
            continue
        delta = header[LAST_OFFSET_DELTA]
        last_sequence = last_sequence_of(header[BASE_SEQUENCE], delta + 1)
        batch = WrittenBatch(
            last_sequence, header[BASE_OFFSET] + delta, delta, header[MAX_TIMESTAMP]
        )
        if header[PRODUCER_EPOCH] != producer.epoch or not batch.is_followed_by(next_batch):
            return
        yield batch
        next_batch = batch
        wanted -= 1


def _backwards(segments: Sequence[Segment], offset: int) -> Iterator[Header]:
    """Yield the headers of the batches below `offset`, the last one first, `MAX_HEADERS` at most.

    By the offset index: a part between two of its entries is read forwards.
    """
    left = MAX_HEADERS
    end: int | None = None
    for segment in reversed([s for s in segments if s.base_offset <= offset]):
        if end is None:
            found = segment.find(offset)
            end = segment.size if found is None else found[0]
        else:
            end = segment.size
        while end > 0:
            start = segment.offsets.position_before(end)
            part = [header for _, header in islice(segment.headers(start, end), left + 1)]
            left -= len(part)
            if left < 0:
                return
            yield from reversed(part)
            end = start
