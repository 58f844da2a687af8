"""Offsets by timestamp."""

import pytest

from ottla.wire.records import Record, build_batch
from support.logs import max_timestamp_offset, offset_for_timestamp


@pytest.mark.parametrize("cold", [False, True])
def test_the_first_record_at_least_as_young(kit, cold):
    log = kit.open(segment_bytes=600, index_interval_bytes=0)
    kit.fill(log, 20, count=3)  # timestamps 1000, 1001, 1002, 1010, 1011, ...
    if cold:
        log = kit.reopen(log, segment_bytes=600)
    for wanted, timestamp, offset in [
        (0, 1000, 0),
        (1001, 1001, 1),
        (1003, 1010, 3),
        (1055, 1060, 18),
        (1192, 1192, 59),
    ]:
        assert offset_for_timestamp(log, wanted) == (timestamp, offset, 0)
    assert offset_for_timestamp(log, 1193) is None


def test_timestamps_out_of_order(kit):
    log = kit.open(segment_bytes=400, index_interval_bytes=0)
    for at in (500, 900, 100, 700, 950, 200, 940):
        log.append_as_leader(kit.batch(at=at), 2, 0)
    assert offset_for_timestamp(log, 600) == (900, 1, 2)
    assert offset_for_timestamp(log, 901) == (950, 4, 2)
    assert max_timestamp_offset(log) == (950, 4, 2)


def test_records_below_the_log_start_do_not_count(kit):
    log = kit.open()
    kit.fill(log, 5, count=2)
    log.set_high_watermark(10)
    log.maybe_increment_log_start_offset(3)
    assert offset_for_timestamp(log, 0) == (1011, 3, 0)


def test_an_empty_log_has_no_timestamps(kit):
    log = kit.open()
    assert offset_for_timestamp(log, 0) is None
    assert max_timestamp_offset(log) is None


@pytest.mark.parametrize("codec", [0, 1])
def test_records_without_timestamps(kit, codec):
    """Their largest timestamp is -1, and the first of them has it."""
    log = kit.open(segment_bytes=200)
    for _ in range(4):
        batch = build_batch([Record(value=b"v"), Record(value=b"w")], codec=codec)
        log.append_as_leader(memoryview(bytearray(batch)), 0, 0)
    assert offset_for_timestamp(log, 0) is None
    assert max_timestamp_offset(log) == (-1, 0, 0)
    log = kit.reopen(log, clean=True, segment_bytes=200)
    assert log.log_end_offset == 8
    assert max_timestamp_offset(log) == (-1, 0, 0)
    log.set_high_watermark(8)
    log.maybe_increment_log_start_offset(3)
    assert max_timestamp_offset(log) == (-1, 3, 0)


def test_the_largest_log_append_time(kit):
    """Every record of its batch has it: the first is named, as by Kafka."""
    log = kit.open(message_timestamp_type="LogAppendTime", segment_bytes=200)
    for now_ms in (500, 900, 900, 700):
        log.append_as_leader(kit.batch(3, codec=4), 0, now_ms)
    assert max_timestamp_offset(log) == (900, 3, 0)


def test_compressed_batches_are_searched_too(kit):
    log = kit.open()
    log.append_as_leader(kit.batch(50, codec=4), 0, 0)
    assert offset_for_timestamp(log, 1033) == (1033, 33, 0)
