"""Verified transactions (KIP-890): a first batch needs the guard of its verification."""

import pytest

from ottla.log.producers import TRUSTED
from ottla.model.errors import ErrorCode, OttlaError, OutOfOrderSequenceError
from ottla.wire.records import ABORT, Record, build_batch, build_control_batch

ME, EPOCH = 7, 3


def batch(sequence=0, *, epoch=EPOCH, producer_id=ME, transactional=True, count=1):
    raw = build_batch(
        [Record(timestamp=1, value=b"v") for _ in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return memoryview(bytearray(raw))


def marker(epoch=EPOCH):
    raw = build_control_batch(
        ABORT, producer_id=ME, producer_epoch=epoch, coordinator_epoch=1, timestamp=1
    )
    return memoryview(bytearray(raw))


@pytest.fixture
def log(kit):
    return kit.open()


def append(log, raw, guard=None):
    return log.append_as_leader(raw, 0, 1_700_000_000_000, guard=guard)


def begin(log, sequence=0, epoch=EPOCH, now_ms=0):
    return log.producers.begin_verification(ME, epoch, sequence, now_ms)


def refused(log, raw, guard=None):
    end = log.log_end_offset
    with pytest.raises(OttlaError) as failure:
        append(log, raw, guard)
    assert log.log_end_offset == end
    return failure.value.code


def test_without_a_guard_no_transaction_begins(log):
    assert refused(log, batch()) is ErrorCode.INVALID_TXN_STATE
    begin(log)
    assert refused(log, batch()) is ErrorCode.INVALID_TXN_STATE, "asked, but not answered"
    append(log, batch(transactional=False))  # needs none


def test_with_its_guard_it_begins_and_then_needs_none(log):
    append(log, batch(), begin(log))
    assert begin(log, 1) is None
    append(log, batch(1))
    assert log.last_stable_offset == 0


def test_a_marker_between_question_and_append_takes_the_guard_away(log):
    guard = begin(log)
    log.append_as_leader(marker(), 0, 1_700_000_000_000, origin="coordinator")
    assert refused(log, batch(), guard) is ErrorCode.INVALID_TXN_STATE
    assert begin(log) is not guard
    assert refused(log, batch(), guard) is ErrorCode.INVALID_TXN_STATE, (
        "an answer to another question"
    )


def test_a_second_transaction_needs_a_guard_of_its_own(log):
    guard = begin(log)
    append(log, batch(), guard)
    log.append_as_leader(marker(), 0, 1_700_000_000_000, origin="coordinator")
    assert refused(log, batch(1), guard) is ErrorCode.INVALID_TXN_STATE
    append(log, batch(1), begin(log, 1))


def test_what_was_written_already_is_recognized_without_a_guard(log):
    first = append(log, batch(), begin(log))
    log.append_as_leader(marker(), 0, 1_700_000_000_000, origin="coordinator")
    again = append(log, batch())
    assert again.duplicate
    assert again.first_offset == first.first_offset


def test_of_a_new_producer_the_lowest_sequence_comes_first(log):
    guard = begin(log, 5)
    assert begin(log, 0) is guard
    with pytest.raises(OutOfOrderSequenceError):
        append(log, batch(5), guard)
    append(log, batch(0, count=5), guard)
    append(log, batch(5))


def test_a_higher_epoch_counts_its_sequences_anew(log):
    begin(log, 0)
    guard = begin(log, 4, EPOCH + 1)
    append(log, batch(4, epoch=EPOCH + 1), guard)


def test_trusted_callers_need_none(log):
    append(log, batch(), TRUSTED)


def test_guards_of_producers_that_fell_silent_are_dropped(log):
    guard = begin(log, now_ms=1_000)
    log.expire_producers(1_000 + log.producers.expiration_ms - 1)
    assert begin(log) is guard
    log.expire_producers(1_000 + log.producers.expiration_ms)
    assert begin(log) is not guard
