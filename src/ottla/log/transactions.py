"""Applies batches with a producer id to the producers' state: data batches and markers.

The decider is `producers`; this module reads from a batch what it needs. Kafka:
`ProducerAppendInfo.append` and `EndTransactionMarker`.
"""

from typing import NamedTuple

from ottla.log.producers import CompletedTransaction, Producers
from ottla.wire.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL_FLAG,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    Header,
)
from ottla.wire.records import ABORT, COMMIT, iter_records, parse_control_record


class Marker(NamedTuple):
    """The end of a transaction, as a control record says it."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


def read_marker(batch: memoryview) -> Marker | None:
    """Return a control batch's marker; None if compaction left none or it is of another kind."""
    for record in iter_records(batch):
        control = parse_control_record(record)
        if control.type not in (ABORT, COMMIT):
            return None
        return Marker(control.type == ABORT, control.coordinator_epoch, record.timestamp)
    return None


def apply_batch(
    producers: Producers, header: Header, batch: memoryview
) -> CompletedTransaction | None:
    """Note a batch with a producer id that is in the log; return the transaction it ended."""
    attributes = header[ATTRIBUTES]
    first = header[BASE_OFFSET]
    if attributes & CONTROL_FLAG:
        marker = read_marker(batch)
        if marker is None:
            return None
        return producers.end_transaction(
            header[PRODUCER_ID],
            header[PRODUCER_EPOCH],
            marker.coordinator_epoch,
            first,
            marker.timestamp,
            marker.aborted,
        )
    producers.update(
        header[PRODUCER_ID],
        header[PRODUCER_EPOCH],
        header[BASE_SEQUENCE],
        header[LAST_OFFSET_DELTA] + 1,  # not the count: compaction takes records, never sequences
        first,
        first + header[LAST_OFFSET_DELTA],
        header[MAX_TIMESTAMP],
        bool(attributes & TRANSACTIONAL_FLAG),
    )
    return None
