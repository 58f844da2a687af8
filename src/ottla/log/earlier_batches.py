"""Finds in the log the batches that a snapshot of producers leaves out: all but the last of each.

Who may call: `log.Log`, where a batch would be refused as out of sequence. Kafka has no
counterpart: after a restart it knows the last batch of a producer only, and refuses the ones before
it that a client sends again because it got no response. A producer has up to five requests
in flight. Invariants: a log is searched once per producer and restart, in at most
`MAX_HEADERS` headers, from the batch that is known backwards; what is found precedes it without a
gap, in the same producer epoch.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from ottla.log.producers import (
    BATCHES_KEPT,
    Producer,
    Producers,
    WrittenBatch,
    last_sequence_of,
)
from ottla.log.segment import Segment
from ottla.model.errors import CorruptRecordError
from ottla.wire.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL_FLAG,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    Header,
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
