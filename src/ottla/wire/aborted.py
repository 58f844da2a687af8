"""Which batches of a partition belong to aborted transactions, for those who read committed.

A plain value that is fed batch after batch. Kafka: `CompletedFetch`.
"""

from collections.abc import Iterable

from ottla.model.ports import Buffer
from ottla.wire.batch_header import BatchHeader
from ottla.wire.records import ABORT, iter_records, parse_control_record


class Aborted:
    """Tells which batches belong to aborted transactions, batch after batch in offset order.

    Made of a fetch response's list, or a segment's index: (producer id, first offset) each.
    Kafka: `CompletedFetch.consumeAbortedTransactionsUpTo`.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._waiting = sorted((first, producer) for producer, first in transactions)
        self._waiting.reverse()
        self._producers: set[int] = set()

    def covers(self, buf: Buffer, pos: int, header: BatchHeader) -> bool:
        """Return whether the batch at `pos` was aborted; its marker ends the transaction."""
        while self._waiting and self._waiting[-1][0] <= header.last_offset:
            self._producers.add(self._waiting.pop()[1])
        if not header.is_transactional or header.producer_id not in self._producers:
            return False
        if not header.is_control:
            return True
        marker = next(iter(iter_records(buf, pos)), None)
        if marker is not None and parse_control_record(marker).type == ABORT:
            self._producers.discard(header.producer_id)
        return False
