"""Applies batches with a producer id to the producers' state: data batches and markers.

The decider is `producers`; this module reads from a batch what it needs. Kafka:
`ProducerAppendInfo.append` and `EndTransactionMarker`.
"""

import contextlib
from collections.abc import Mapping
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

UNREPLICATED_FILE = ".ottla-decided"
"""In a partition's folder: the transactions whose markers were above the high watermark at a clean
stop.

The last stable offset waits until their markers are replicated, also after a restart. Kafka's
producer snapshots hold only transactions without a marker, and Kafka forgets these
(`ProducerStateManager.unreplicatedTxns`). A JVM broker ignores the file: it looks only at names
that it knows. Invariants: the file counts only after a clean stop and for a log that ends where the
one ended of which it was written; a file that says too much holds the last stable offset back until
the high watermark passes the markers."""


def encode_unreplicated(log_end_offset: int, transactions: Mapping[int, int]) -> bytes:
    """Return the file's text; `transactions` maps first offset to marker offset."""
    lines = [f"log_end_offset={log_end_offset}"]
    lines += [f"decided={first}..{marker}" for first, marker in transactions.items()]
    return "".join(f"{line}\n" for line in lines).encode()


def decode_unreplicated(data: bytes, log_end_offset: int) -> dict[int, int]:
    """Return what was encoded; empty if it is of a log with another end, or garbage."""
    found = {}
    head, *lines = data.decode("utf-8", "replace").split("\n")
    if head != f"log_end_offset={log_end_offset}":
        return {}
    for line in lines:
        key, _, value = line.partition("=")
        first, _, marker = value.partition("..")
        with contextlib.suppress(ValueError):
            if key == "decided" and 0 <= int(first) < int(marker) < log_end_offset:
                found[int(first)] = int(marker)
    return found


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
