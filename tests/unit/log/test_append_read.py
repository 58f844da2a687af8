"""Appending and reading: offsets, the tail cache, segments, bounds."""

import pytest

from ottla.log.results import UnexpectedOffsetError
from ottla.log.tail import TailBudget, TailCache
from ottla.model.errors import OffsetOutOfRangeError, OttlaError
from ottla.wire.records import iter_batches, iter_records


def test_append_assigns_offsets_and_epoch_in_place(kit):
    log = kit.open()
    kit.fill(log, 2, count=3, epoch=4)
    batch = kit.batch(2)
    info = log.append_as_leader(batch, 5, 0)
    assert (info.first_offset, info.last_offset, info.count, info.duplicate) == (6, 7, 2, False)
    assert info.bytes == len(batch)
    [(_, header)] = iter_batches(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (6, 5)
    assert log.log_end_offset == 8
    assert log.epochs.latest == 5


@pytest.mark.parametrize("cold", [False, True])
def test_read_from_the_middle_of_a_batch_returns_that_batch(kit, cold):
    log = kit.open()
    kit.fill(log, 5, count=4)
    if cold:
        log = kit.reopen(log)
    budget = log.local.tail.budget
    hits, misses = budget.hits, budget.misses
    found = log.read(9, 1 << 20, log.log_end_offset)
    assert (budget.hits - hits, budget.misses - misses) == ((0, 1) if cold else (1, 0))
    data = b"".join(found.parts)
    assert [h.base_offset for _, h in iter_batches(data)] == [8, 12, 16]
    assert found.size == len(data)


@pytest.mark.parametrize("cold", [False, True])
def test_read_stops_before_the_upper_bound_and_at_max_bytes(kit, cold):
    log = kit.open()
    kit.fill(log, 6)
    size = log.size // 6
    if cold:
        log = kit.reopen(log)
    assert log.read(0, 1 << 20, 4).size == 4 * size
    assert log.read(1, 3 * size + 5, 6).size == 3 * size
    assert log.read(2, 1, 6).size == size, "at least one batch"
    found = log.read(2, 1, 6, min_one=False)
    assert (found.size, found.first_batch_incomplete) == (0, True)
    assert log.read(4, 1 << 20, 4).size == 0
    assert log.read(6, 1 << 20, 6).size == 0


def test_cached_and_cold_reads_give_the_same_bytes(kit):
    log = kit.open(segment_bytes=2000, index_interval_bytes=0)
    kit.fill(log, 60, count=2)
    hot = kit.everything(log)
    assert log.local.tail.budget.misses == 0
    log = kit.reopen(log, segment_bytes=2000)
    assert kit.everything(log) == hot
    assert log.local.tail.budget.misses > 0


def test_reads_cross_segments(kit):
    log = kit.open(segment_bytes=500)
    kit.fill(log, 20)
    assert len(log.segments) > 3
    log = kit.reopen(log)
    for offset in range(20):
        found = log.read(offset, 1, 20)
        [record] = iter_records(found.parts[0])
        assert record.offset == offset


def test_out_of_range(kit):
    log = kit.open()
    kit.fill(log, 3)
    log.set_high_watermark(3)
    log.maybe_increment_log_start_offset(2)
    for offset in (-1, 0, 1, 4):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 1000, 3)
    assert log.read(3, 1000, 3).size == 0


def test_parts_are_the_appended_buffers_not_copies(kit):
    log = kit.open()
    batch = kit.batch(3)
    log.append_as_leader(batch, 0, 0)
    [part] = log.read(0, 1000, 3).parts
    assert part.obj is batch.obj


def test_roll_by_size_index_and_time(kit):
    log = kit.open(segment_bytes=300)
    kit.fill(log, 4, size=100)
    assert [s.base_offset for s in log.segments] == [0, 1, 2, 3]
    log = kit.reopen(log, segment_bytes=1 << 20, segment_ms=50)
    log.append_as_leader(kit.batch(at=1000), 0, 0)  # younger than 50 ms after the first batch
    assert log.local.active.base_offset == 3
    log.append_as_leader(kit.batch(at=1100), 0, 0)
    assert log.local.active.base_offset == 5
    log = kit.reopen(log, segment_index_bytes=24, index_interval_bytes=0)
    kit.fill(log, 10)
    assert log.local.active.base_offset > 6, "two entries fill the index"


def test_a_batch_larger_than_a_segment_is_refused(kit):
    log = kit.open(segment_bytes=100)
    with pytest.raises(OttlaError, match=r"segment\.bytes"):
        log.append_as_leader(kit.batch(size=100), 0, 0)
    assert log.log_end_offset == 0


def test_segments_split_where_relative_offsets_end(kit):
    log = kit.open()
    log.append_as_follower(kit.batch(base_offset=0))
    log.append_as_follower(kit.batch(base_offset=2**31 + 5))
    assert [s.base_offset for s in log.segments] == [0, 2**31 + 5]
    assert log.log_end_offset == 2**31 + 6


# Followers -----------------------------------------------------------------------------------


def fetched(*batches) -> memoryview:
    return memoryview(b"".join(bytes(b) for b in batches))


def test_follower_appends_what_the_leader_sent_byte_for_byte(kit):
    sent = fetched(
        kit.batch(2, base_offset=0, leader_epoch=1),
        kit.batch(1, base_offset=2, leader_epoch=1),
        kit.batch(1, base_offset=9, leader_epoch=3),  # compaction left a gap
    )
    log = kit.open()
    info = log.append_as_follower(sent)
    assert (info.first_offset, info.last_offset, info.bytes) == (0, 9, len(sent))
    assert log.log_end_offset == 10
    assert log.epochs.entries == [(1, 0), (3, 9)]
    assert kit.everything(log) == bytes(sent)


def test_follower_leaves_out_a_torn_last_batch(kit):
    first, second = kit.batch(base_offset=0), kit.batch(base_offset=1)
    log = kit.open()
    info = log.append_as_follower(fetched(first, second)[: len(first) + 30])
    assert info.last_offset == 0
    assert log.append_as_follower(fetched(second)[:40]).bytes == 0
    assert log.log_end_offset == 1


def test_follower_refuses_what_it_has(kit):
    log = kit.open()
    kit.fill(log, 3)
    with pytest.raises(UnexpectedOffsetError) as error:
        log.append_as_follower(kit.batch(2, base_offset=2))
    assert (error.value.first_offset, error.value.last_offset) == (2, 3)
    assert log.log_end_offset == 3


def test_follower_that_starts_inside_a_batch_starts_over_at_its_base(kit):
    log = kit.open()
    log.truncate_fully_and_start_at(5)
    log.append_as_follower(kit.batch(4, base_offset=3))
    assert (log.log_start_offset, log.log_end_offset) == (5, 7)
    assert log.segments[0].base_offset == 3


def test_follower_rolls_within_one_response(kit):
    batches = [kit.batch(base_offset=i, size=100) for i in range(6)]
    log = kit.open(segment_bytes=400)
    log.append_as_follower(fetched(*batches))
    assert [s.base_offset for s in log.segments] == [0, 2, 4]
    assert kit.everything(log) == bytes(fetched(*batches))


# The tail cache ------------------------------------------------------------------------------


def test_tail_cache_is_bound_by_the_frames_it_pins():
    cache = TailCache(TailBudget(), limit=10_000)
    for offset in range(100):
        cache.append(offset, memoryview(bytearray(1000)))
    assert cache.used <= 10_000
    assert cache.read(0, 1 << 20, 100, min_one=True) is None
    found = cache.read(97, 1 << 20, 99, min_one=True)
    assert found is not None
    assert found.size == 2000


def test_a_small_piece_of_a_large_frame_is_copied_out():
    cache = TailCache(TailBudget())
    frame = memoryview(bytearray(1_000_000))
    cache.append(0, frame[:200])
    assert cache.used < 1000


def test_all_caches_share_one_budget():
    budget = TailBudget(limit=50_000)
    caches = [TailCache(budget) for _ in range(10)]
    for offset in range(20):
        for cache in caches:
            cache.append(offset, memoryview(bytearray(1000)))
            assert budget.used <= 50_000
    assert budget.used == sum(c.used for c in caches)
    for cache in caches:
        cache.clear()
    assert budget.used == 0


def test_tail_cache_survives_much_traffic():
    cache = TailCache(TailBudget(), limit=30_000)
    for offset in range(5000):
        cache.append(offset, memoryview(bytearray(500 + offset % 7)))
        found = cache.read(offset, 10_000, offset + 1, min_one=True)
        assert found is not None
        assert found.size == 500 + offset % 7
    assert len(cache) < 100
