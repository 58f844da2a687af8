"""Idempotent and transactional producers: duplicates, gaps, wraps, epochs, stable offsets."""

import random
import struct

import pytest

from ottla.log import producers as producers_room
from ottla.log.producers import MAX_SEQUENCE, Producers, decode_snapshot, encode_snapshot
from ottla.log.validate import COORDINATOR
from ottla.model.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidProducerEpochError,
    OttlaError,
    OutOfOrderSequenceError,
)
from ottla.wire.records import ABORT, COMMIT


def test_a_repeated_batch_returns_its_first_offsets(kit):
    log = kit.open()
    for sequence in range(0, 12, 2):
        kit.send(log, sequence=sequence, count=2)
    for sequence in range(2, 12, 2):
        info = kit.send(log, sequence=sequence, count=2)
        assert info.duplicate
        assert (info.first_offset, info.last_offset, info.bytes) == (sequence, sequence + 1, 0)
    assert log.log_end_offset == 12


def test_only_five_batches_are_remembered(kit):
    log = kit.open()
    for sequence in range(6):
        kit.send(log, sequence=sequence)
    with pytest.raises(OutOfOrderSequenceError):
        kit.send(log, sequence=0)
    assert kit.send(log, sequence=1).duplicate


def test_part_of_a_batch_is_no_duplicate(kit):
    log = kit.open()
    kit.send(log, sequence=0, count=4)
    with pytest.raises(OutOfOrderSequenceError):
        kit.send(log, sequence=0, count=3)


def test_gaps_are_refused(kit):
    log = kit.open()
    kit.send(log, sequence=0)
    with pytest.raises(OutOfOrderSequenceError):
        kit.send(log, sequence=2)
    assert log.log_end_offset == 1
    kit.send(log, sequence=1)


def test_an_unknown_producer_may_begin_anywhere(kit):
    log = kit.open()
    kit.send(log, sequence=77)
    kit.send(log, sequence=78)


def test_sequences_wrap_to_zero(kit):
    log = kit.open()
    kit.send(log, sequence=MAX_SEQUENCE - 1, count=4)  # MAX-1, MAX, 0, 1
    assert kit.send(log, sequence=MAX_SEQUENCE - 1, count=4).duplicate
    kit.send(log, sequence=2)
    log = kit.open()
    kit.send(log, sequence=MAX_SEQUENCE, producer_id=9)
    kit.send(log, sequence=0, producer_id=9)


def test_epochs_fence(kit):
    log = kit.open()
    kit.send(log, sequence=0, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        kit.send(log, sequence=1, epoch=0)
    with pytest.raises(OutOfOrderSequenceError):
        kit.send(log, sequence=1, epoch=2)
    kit.send(log, sequence=0, epoch=2)
    with pytest.raises(InvalidProducerEpochError):
        kit.send(log, sequence=1, epoch=1)


def test_coordinators_append_without_sequences(kit):
    log = kit.open()
    for _ in range(3):
        batch = kit.batch(producer_id=5, producer_epoch=0, is_transactional=True)
        log.append_as_leader(batch, 0, 0, origin=COORDINATOR)
    assert log.log_end_offset == 3


def test_last_stable_offset_waits_for_the_marker_and_for_its_replication(kit):
    log = kit.open()
    kit.fill(log, 2)
    kit.send(log, sequence=0, txn=True)
    kit.send(log, sequence=0, producer_id=2, txn=True)
    kit.fill(log, 1)
    log.set_high_watermark(5)
    assert log.last_stable_offset == 2
    log.append_as_leader(kit.marker(1), 0, 0, origin=COORDINATOR)  # offset 5
    assert log.last_stable_offset == 2, "the marker is not replicated"
    log.set_high_watermark(6)
    assert log.last_stable_offset == 3
    log.append_as_leader(kit.marker(2, kind=ABORT), 0, 0, origin=COORDINATOR)
    log.set_high_watermark(7)
    assert log.last_stable_offset == 7
    [aborted] = log.aborted_transactions(0, 7)
    assert aborted == (2, 3, 6, 7)


def test_aborted_transactions_of_a_range(kit):
    log = kit.open(segment_bytes=400)
    for number in range(6):
        kit.send(log, sequence=number, txn=True)
        kind = ABORT if number % 2 == 0 else COMMIT
        log.append_as_leader(kit.marker(kind=kind), 0, 0, origin=COORDINATOR)
    assert len(log.segments) > 2
    assert [a.first_offset for a in log.aborted_transactions(0, 12)] == [0, 4, 8]
    assert [a.first_offset for a in log.aborted_transactions(2, 6)] == [4]
    assert log.aborted_transactions(6, 8) == []
    for clean in (True, False):
        log = kit.reopen(log, clean=clean, segment_bytes=400)
        assert [a.first_offset for a in log.aborted_transactions(0, 12)] == [0, 4, 8]


def test_a_garbage_aborted_index_is_built_again(kit):
    log = kit.open(segment_bytes=300)
    for number in range(4):
        kit.send(log, sequence=number, txn=True)
        log.append_as_leader(kit.marker(kind=ABORT), 0, 0, origin=COORDINATOR)
    before = log.aborted_transactions(0, 8)
    assert len(before) == 4
    log.close()
    for path in kit.folder.glob("*.txnindex"):
        path.write_bytes(b"\xff" * 34)
    log = kit.open(clean=True, recovery_point=8, segment_bytes=300)
    assert log.aborted_transactions(0, 8) == before


def test_markers_are_fenced_by_coordinator_epoch(kit):
    log = kit.open()
    kit.send(log, sequence=0, txn=True)
    log.append_as_leader(kit.marker(coordinator_epoch=3), 0, 0, origin=COORDINATOR)
    with pytest.raises(OttlaError) as error:
        log.append_as_leader(kit.marker(coordinator_epoch=2), 0, 0, origin=COORDINATOR)
    assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.log_end_offset == 2


def test_no_plain_write_within_a_transaction(kit):
    log = kit.open()
    kit.send(log, sequence=0, txn=True)
    with pytest.raises(OttlaError) as error:
        kit.send(log, sequence=1)
    assert error.value.code is ErrorCode.INVALID_TXN_STATE
    assert log.producers.has_ongoing_transaction(1, 0)


@pytest.mark.parametrize("clean", [True, False])
def test_dedup_survives_a_restart(kit, clean):
    kit.clock.wall = 10_000  # not long after the batches, so that nobody expired
    log = kit.open(segment_bytes=500)
    for sequence in range(10):
        kit.send(log, sequence=sequence)
    kit.send(log, sequence=0, producer_id=2, txn=True)
    log = kit.reopen(log, clean=clean, segment_bytes=500)
    info = kit.send(log, sequence=9)
    assert (info.duplicate, info.first_offset) == (True, 9)
    with pytest.raises(OutOfOrderSequenceError):
        kit.send(log, sequence=11)
    log.set_high_watermark(11)
    assert log.last_stable_offset == 10, "the open transaction is remembered"


@pytest.mark.parametrize("damage", ["missing", "garbage", "crc"])
def test_a_bad_snapshot_is_replaced_by_reading_the_log(kit, damage):
    log = kit.open()
    for sequence in range(4):
        kit.send(log, sequence=sequence)
    log.close()
    [snapshot] = kit.folder.glob("*.snapshot")
    data = bytearray(snapshot.read_bytes())
    if damage == "missing":
        snapshot.unlink()
    else:
        data[-1 if damage == "crc" else 0] ^= 0xFF
        snapshot.write_bytes(data)
    log = kit.open(clean=True, recovery_point=4)
    assert kit.send(log, sequence=3).duplicate


def test_truncation_forgets_the_batches_it_cut(kit):
    log = kit.open()
    for sequence in range(5):
        kit.send(log, sequence=sequence)
    log.truncate_to(3)
    assert not kit.send(log, sequence=3).duplicate
    assert log.log_end_offset == 4


def test_idle_producers_expire_but_not_within_a_transaction(kit):
    log = kit.open()
    kit.send(log, sequence=0)
    kit.send(log, sequence=0, producer_id=2, txn=True)
    assert log.expire_producers(now_ms=1000 + 86_400_000) == 1
    kit.send(log, sequence=500)  # unknown again


def test_snapshot_bytes():
    producers = Producers()
    producers.update(7, 2, 10, 3, 100, 102, 5000, is_transactional=True)
    producers.end_transaction(8, 1, 4, 103, 6000, aborted=False)
    data = encode_snapshot(producers.producers.values())
    assert len(data) == 10 + 2 * 46
    [[first, second]] = decode_snapshot(bytes(data), 0)
    assert (first.id, first.epoch, first.last_sequence, first.txn_first) == (7, 2, 12, 100)
    assert first.batches == [(12, 102, 2, 5000)]
    assert (second.coordinator_epoch, second.last_timestamp, second.batches) == (4, 6000, [])
    with pytest.raises(CorruptRecordError):
        decode_snapshot(bytes(data), 1)
    with pytest.raises(CorruptRecordError):
        decode_snapshot(bytes(data[:-1]), 0)


def plainly_packed(producers):
    """Return a snapshot's entries as Kafka's ProducerStateManager writes them."""
    for p in producers.producers.values():
        last = p.batches[-1] if p.batches else (-1, -1, 0, -1)
        txn_first = -1 if p.txn_first is None else p.txn_first
        yield struct.pack(
            ">qhiqiqiq",
            *(p.id, p.epoch, last[0], last[1], last[2], p.last_timestamp),
            *(p.coordinator_epoch, txn_first),
        )


def test_f46_a_snapshot_packs_only_those_that_changed_since_the_last(monkeypatch):
    packed = []
    plain = producers_room._SNAPSHOT_ENTRY.pack

    class Counting:
        size = producers_room._SNAPSHOT_ENTRY.size
        iter_unpack = producers_room._SNAPSHOT_ENTRY.iter_unpack

        def pack(self, *fields):
            packed.append(fields[0])
            return plain(*fields)

    monkeypatch.setattr(producers_room, "_SNAPSHOT_ENTRY", Counting())
    producers = Producers()
    chance = random.Random(7)
    for offset in range(500):
        producers.update(offset, 0, 0, 1, offset, offset, 1000, False)
    encode_snapshot(producers.producers.values())
    for offset in range(500, 1000):
        changed = set()
        for _ in range(chance.randrange(4)):
            number = chance.randrange(500)
            changed.add(number)
            if chance.random() < 0.3:
                producers.end_transaction(number, offset % 3, 1, offset, offset, False)
            else:
                inside = chance.random() < 0.5
                producers.update(number, offset % 3, 1, 1, offset, offset, offset, inside)
        packed.clear()
        data = bytes(encode_snapshot(producers.producers.values()))
        assert set(packed) == changed
        assert data[10:] == b"".join(plainly_packed(producers))
        if not offset % 100:
            read = Producers(10**15)
            list(read.restoring(decode_snapshot(data, 0), 1000))
            assert bytes(encode_snapshot(read.producers.values())) == data
            producers = read
