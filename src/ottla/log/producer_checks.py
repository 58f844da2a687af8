"""Checks a batch with a producer id before a leader appends it; changes nothing in the log.

Who may call: `log.Log`. The decider is `producers`; this module reads from a batch what it needs,
and from the log the batches that a snapshot of producers leaves out. Kafka:
`UnifiedLog.analyzeAndValidateProducerState`.
"""

from collections.abc import Sequence

from ottla.log.earlier_batches import recall_batches
from ottla.log.producers import TRUSTED, Producers, WrittenBatch
from ottla.log.results import AppendInfo
from ottla.log.segment import Segment
from ottla.log.transactions import read_marker
from ottla.model.errors import OutOfOrderSequenceError
from ottla.wire.batch_header import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    CONTROL_FLAG,
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
