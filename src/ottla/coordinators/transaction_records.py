"""A transactional id as a record of `__transaction_state`, and back.

A decider: bytes and values. Invariants: bytes are those of the JVM's coordinator; a record that
cannot be decoded is skipped with a warning, since it may be of a later version. The previous
producer id and epoch are not in the log (KIP-360 knows them only while the coordinator stays).
Kafka: `TransactionLog`.
"""

import logging
from collections.abc import Iterator

from ottla.coordinators.transaction import Transaction, TransactionState, Transition
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.wire.batch_header import BatchHeader
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.transactions import TransactionLogKey, TransactionLogValue
from ottla.wire.records import Record

logger = logging.getLogger(__name__)

KEY_VERSION = 0
VALUE_VERSION = 0
"""Version 1 comes with a feature that ZooKeeper mode does not have."""


def transaction_key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def transaction_value(to: Transition) -> bytes:
    partitions = None
    if to.state is not TransactionState.EMPTY:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(to.partitions):
            by_topic.setdefault(topic, []).append(index)
        one = TransactionLogValue.PartitionsSchema
        partitions = [one(topic=t, partition_ids=ids) for t, ids in by_topic.items()]
    value = TransactionLogValue(
        producer_id=to.producer_id,
        producer_epoch=to.epoch,
        transaction_timeout_ms=to.timeout_ms,
        transaction_status=to.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=to.update_ms,
        transaction_start_timestamp_ms=to.start_ms,
    )
    return encode_versioned(value, VALUE_VERSION)


def read_transaction(transactional_id: str, raw: bytes) -> Transaction:
    value = decode_versioned(TransactionLogValue, raw)
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        TransactionState(value.transaction_status),
        {
            TopicPartition(topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        },
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
    )


RECORDS_IN_A_STEP = 64
"""Read before other tasks may run."""


class TransactionRecordReader:
    """Reads the records of a partition in log order; values are decoded once, at the end.

    Of a thousand records of an id only the last is decoded, and put into `found`. Other tasks may
    run after each step.
    """

    def __init__(self, found: dict[str, Transaction]) -> None:
        self._found = found
        self._values: dict[bytes, bytes] = {}

    def load_batch(self, header: BatchHeader, records: Iterator[Record]) -> Iterator[None]:
        """Read one batch in steps."""
        if header.is_control:
            return
        for n, record in enumerate(records, 1):
            if n % RECORDS_IN_A_STEP == 0:
                yield
            key = record.key or b""
            if record.value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = record.value

    def finish(self) -> Iterator[None]:
        """Decode what was read, in steps."""
        for key, raw in self._values.items():
            try:
                name = decode_versioned(TransactionLogKey, key).transactional_id
                self._found[name] = read_transaction(name, raw)
            except (OttlaError, ValueError) as error:
                logger.warning("transaction not understood key=%r error=%s", key, error)
            yield
