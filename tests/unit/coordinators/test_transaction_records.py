"""Transactional ids as records: bytes of the JVM's coordinator, both ways."""

import struct

from ottla.coordinators.transaction import Transaction, TransactionState, Transition
from ottla.coordinators.transaction_records import (
    TransactionRecordReader,
    read_transaction,
    transaction_key,
    transaction_value,
)
from ottla.model.ids import TopicPartition
from ottla.wire.records import Record, build_batch, iter_batches, iter_records

S = TransactionState
A0, A2, B1 = TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)


def written(state, partitions=frozenset()):
    return Transition(state, 77, 3, 2, 60_000, frozenset(partitions), 10, 20)


def test_the_bytes_are_kafkas():
    assert transaction_key("id") == b"\0\0\0\2id"
    value = transaction_value(written(S.ONGOING, {A2, B1, A0}))
    head = struct.pack(">hqhib", 0, 77, 3, 60_000, 1)
    topics = struct.pack(">i", 2)
    topics += b"\0\1a" + struct.pack(">iii", 2, 0, 2) + b"\0\1b" + struct.pack(">ii", 1, 1)
    assert value == head + topics + struct.pack(">qq", 20, 10)
    # No list at all stands where there has been no transaction.
    empty = transaction_value(written(S.EMPTY))
    assert empty == struct.pack(">hqhibiqq", 0, 77, 3, 60_000, 0, -1, 20, 10)


def test_what_was_written_is_read():
    for state in (S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.COMPLETE_COMMIT):
        partitions = {A0, B1} if state in (S.ONGOING, S.PREPARE_ABORT) else set()
        found = read_transaction("id", transaction_value(written(state, partitions)))
        assert (found.transactional_id, found.producer_id, found.epoch) == ("id", 77, 3)
        assert (found.state, found.partitions, found.timeout_ms) == (state, partitions, 60_000)
        assert (found.start_ms, found.update_ms, found.pending) == (10, 20, None)


def replay(*records):
    found = {}
    reader = TransactionRecordReader(found)
    batch = memoryview(build_batch([Record(timestamp=1, key=k, value=v) for k, v in records]))
    for _, header in iter_batches(batch):
        for _ in reader.load_batch(header, iter_records(batch)):
            pass
    for _ in reader.finish():
        pass
    return {t.transactional_id: t.state for t in found.values()}


def test_the_last_record_of_an_id_counts_and_a_tombstone_ends_it():
    first, last = transaction_value(written(S.EMPTY)), transaction_value(written(S.ONGOING, {A0}))
    keys = [transaction_key(name) for name in ("x", "y", "z")]
    found = replay(
        (keys[0], first), (keys[1], first), (keys[0], last), (keys[1], None), (keys[2], last)
    )
    assert found == {"x": S.ONGOING, "z": S.ONGOING}


def test_what_cannot_be_decoded_is_skipped_with_a_warning(caplog):
    good = transaction_value(written(S.EMPTY))
    bad_status = good[:16] + b"\x63" + good[17:]
    found = replay(
        (transaction_key("ok"), good),
        (b"\0\7what", good),
        (transaction_key("short"), good[:9]),
        (transaction_key("status"), bad_status),
    )
    assert found == {"ok": S.EMPTY}
    assert [text.split(" key=")[0] for text in caplog.messages] == [
        "transaction not understood"
    ] * 3


def test_the_fields_of_a_fresh_id():
    fresh = Transaction("id", 5)
    assert (fresh.epoch, fresh.last_epoch, fresh.state) == (-1, -1, S.EMPTY)
