"""Taking away: truncation at the end, log start and retention at the beginning."""

import pytest

from ottla.log.retention import Limits, RetainedSegment, expired_segments
from ottla.model.errors import OffsetOutOfRangeError
from ottla.wire.records import iter_batches
from support.logs import offset_for_timestamp

DAY_S = 24 * 3600


@pytest.mark.parametrize("offset", range(21))
def test_truncate_anywhere_then_append(kit, offset):
    log = kit.open(segment_bytes=500, index_interval_bytes=50)
    kit.fill(log, 20)
    log.set_high_watermark(20)
    whole = kit.everything(log)
    size = len(whole) // 20
    assert log.truncate_to(offset) == (offset < 20)
    assert (log.log_end_offset, log.high_watermark) == (offset, offset)
    assert kit.everything(log) == whole[: offset * size]
    log.append_as_leader(kit.batch(at=9999), 3, 0)
    assert log.log_end_offset == offset + 1
    found = offset_for_timestamp(log, 9999)
    assert found is not None
    assert found == (9999, offset, 3)
    for clean in (False, True):
        log = kit.reopen(log, clean=clean, segment_bytes=500)
        assert log.log_end_offset == offset + 1
        assert kit.everything(log)[: offset * size] == whole[: offset * size]


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("offset", range(9))
def test_truncate_anywhere_where_the_index_is_full(kit, offset, clean):
    """What is appended then goes into the segment's file, not into one that is removed."""
    small = {"segment_index_bytes": 36, "index_interval_bytes": 0}  # three entries
    log = kit.open(**small)
    kit.fill(log, 8)
    assert len(log.segments) == 2
    whole = kit.everything(log)
    size = len(whole) // 8
    log.truncate_to(offset)
    kit.fill(log, 2)
    log = kit.reopen(log, clean=clean, **small)
    assert log.log_end_offset == offset + 2
    assert kit.everything(log)[: offset * size] == whole[: offset * size]


def test_truncate_inside_a_batch_drops_the_batch(kit):
    log = kit.open()
    kit.fill(log, 3, count=4)
    log.truncate_to(6)
    [part] = log.read(0, 10**6, 6).parts
    assert [h.base_offset for _, h in iter_batches(part)] == [0]
    assert log.log_end_offset == 4


def test_truncate_below_the_first_segment_starts_over(kit):
    log = kit.open()
    log.truncate_fully_and_start_at(100)
    kit.fill(log, 5)
    log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (50, 50, 0)
    kit.fill(log, 1)
    log = kit.reopen(log)
    assert (log.log_start_offset, log.log_end_offset) == (50, 51)


def test_truncation_lowers_the_recovery_point_before_the_next_append(kit):
    log = kit.open()
    kit.fill(log, 5)
    log.flush()
    assert log.recovery_point == 5
    told = []
    log.on_recovery_point_lowered = lambda at: told.append((at.recovery_point, at.log_end_offset))
    log.truncate_to(3)
    assert log.flush_state.recovery_point_pending
    assert told == []
    kit.fill(log, 1)
    assert told == [(3, 3)]
    log.truncate_to(3)
    kit.fill(log, 1)
    assert len(told) == 1


def test_a_flush_does_not_count_what_was_truncated_meanwhile(kit):
    log = kit.open()
    kit.fill(log, 5)
    job = log.prepare_flush()
    log.truncate_to(2)
    kit.fill(log, 5)
    job.run()
    log.complete_flush(job)
    assert log.recovery_point <= 2


def test_truncated_segments_leave_no_file_behind_in_the_way(kit):
    log = kit.open(segment_bytes=300)
    kit.fill(log, 10)
    log.truncate_to(1)
    kit.fill(log, 10)
    log.truncate_to(1)
    kit.fill(log, 10)
    log = kit.reopen(log, segment_bytes=300)
    assert log.log_end_offset == 11
    assert [h.base_offset for _, h in iter_batches(kit.everything(log))] == list(range(11))


# The beginning -------------------------------------------------------------------------------


def test_log_start_moves_only_forward_and_not_past_the_high_watermark(kit):
    log = kit.open()
    kit.fill(log, 5)
    log.set_high_watermark(3)
    assert log.maybe_increment_log_start_offset(2)
    assert not log.maybe_increment_log_start_offset(1)
    assert log.log_start_offset == 2
    with pytest.raises(OffsetOutOfRangeError):
        log.maybe_increment_log_start_offset(4)


def test_the_high_watermark_stays_within_the_log(kit):
    log = kit.open()
    kit.fill(log, 5)
    assert log.set_high_watermark(99) == 5
    log.maybe_increment_log_start_offset(2)
    assert log.set_high_watermark(0) == 2


def test_segments_below_the_log_start_go_even_from_compacted_topics(kit):
    log = kit.open(segment_bytes=300, cleanup_policy="compact")
    kit.fill(log, 10)
    log.set_high_watermark(10)
    log.maybe_increment_log_start_offset(5)
    before = len(log.segments)
    assert log.delete_old_segments(kit.clock.wall) > 0
    assert len(log.segments) < before
    assert log.segments[0].base_offset <= 5
    kit.everything(log)


def test_retention_by_time(kit):
    now = kit.clock.wall
    log = kit.open(segment_bytes=300, retention_ms=DAY_S * 1000)
    for day in (3, 3, 2, 2, 0, 0):
        log.append_as_leader(kit.batch(at=now - day * DAY_S * 1000), 0, now)
    log.set_high_watermark(6)
    assert log.delete_old_segments(now) > 0
    assert log.log_start_offset >= 2
    found = log.read(log.log_start_offset, 10**6, 6)
    assert all(
        h.max_timestamp >= now - 2 * DAY_S * 1000 for p in found.parts for _, h in iter_batches(p)
    )
    assert log.delete_old_segments(now) == 0
    assert log.local.deleted_files
    assert kit.reopen(log, segment_bytes=300).log_start_offset == log.log_start_offset


def test_retention_by_size(kit):
    log = kit.open(segment_bytes=300, retention_bytes=700)
    kit.fill(log, 20)
    log.set_high_watermark(20)
    log.update_config(kit.config(segment_bytes=300, retention_bytes=700, retention_ms=-1))
    log.delete_old_segments(kit.clock.wall)
    assert 700 <= log.size < 700 + 300
    assert log.log_start_offset == log.segments[0].base_offset > 0


def test_nothing_at_or_above_the_high_watermark_goes(kit):
    log = kit.open(segment_bytes=300, retention_ms=1)
    kit.fill(log, 10)
    log.set_high_watermark(4)
    log.delete_old_segments(kit.clock.wall)
    assert log.log_start_offset <= 4


def test_the_active_segment_is_deleted_only_without_writers(kit):
    log = kit.open(retention_ms=1000)
    kit.fill(log, 3)
    log.set_high_watermark(3)
    kit.clock.wall += 3_600_000  # the clock jumps, nothing happened (F23)
    assert log.delete_old_segments(kit.clock.wall) == 0
    kit.clock.advance(2)
    assert log.delete_old_segments(kit.clock.wall) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (3, 3, 0)
    kit.fill(log, 1)
    assert kit.reopen(log, clean=True).log_end_offset == 4


def test_a_clock_that_goes_back_deletes_nothing(kit):
    log = kit.open(segment_bytes=300, retention_ms=1000)
    now = kit.clock.wall
    for _ in range(5):
        log.append_as_leader(kit.batch(at=now), 0, now)
    log.set_high_watermark(5)
    assert log.delete_old_segments(now - 3_600_000) == 0


def facts(*sizes, base=0):
    return [RetainedSegment(base + i, size, lambda i=i: i) for i, size in enumerate(sizes)]


def decide(segments, **keywords):
    settings = {
        "log_start_offset": 0,
        "log_end_offset": len(segments),
        "high_watermark": len(segments),
        "now_ms": 0,
        "idle_ms": 0,
        "delete_policy": True,
    }
    limits = Limits(keywords.pop("ms", -1), keywords.pop("bytes", -1))
    return expired_segments(segments, limits, **{**settings, **keywords})


def test_retention_decisions():
    assert decide(facts(100, 100, 100)).count == 0
    assert decide(facts(100, 100, 100), bytes=150).count == 1
    assert decide(facts(100, 100, 100), bytes=0).count == 3
    assert decide(facts(100, 100, 100), bytes=0, high_watermark=1).count == 1
    assert decide(facts(100, 100, 0), bytes=0).count == 2, "an empty active segment stays"
    assert decide(facts(100, 100, 100), ms=1, now_ms=3).count == 2
    assert decide(facts(100, 100, 100), ms=0, now_ms=3, idle_ms=1).count == 3
    assert decide(facts(100, 100, 100), ms=0, now_ms=3, delete_policy=False).count == 0
    assert decide(facts(100, 100, 100), log_start_offset=2, delete_policy=False).count == 2
    assert decide(facts(100, 100, 100), bytes=150, log_start_offset=2).reason == "log_start"
    assert decide([]).count == 0
