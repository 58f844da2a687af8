"""What is cleaned and what stays: the decider by itself."""

import sys
import tracemalloc

import pytest

from ottla.log.aborted import AbortedTransaction
from ottla.log.compaction import (
    BatchRetention,
    CleanableLog,
    CleanableSegment,
    CleanedTransactionMetadata,
    CompactionLags,
    LastWritten,
    OffsetMap,
    RecordFilter,
    SegmentSize,
    find_log_to_clean,
    group_segments,
)
from ottla.wire.batch_header import CONTROL_FLAG, DELETE_HORIZON_FLAG, TRANSACTIONAL_FLAG

NEVER = 2**63 - 1
NO_LAGS = CompactionLags(0, NEVER)


def segment(base, size=100, largest=1000, first=1000):
    return CleanableSegment(base, size, lambda: largest, lambda: first)


def facts(*segments, cleaned=-1, start=0, end=1000, stable=1000, flushed=1000):
    return CleanableLog(segments, start, end, stable, flushed, cleaned)


FOUR = [segment(base) for base in (0, 100, 200, 300)]


@pytest.mark.parametrize(
    ("changes", "range_", "clean", "cleanable"),
    [
        ({}, (0, 300), 0, 300),  # CleanableOffsetsForNone, CleanableOffsetsActiveSegment
        ({"cleaned": 200}, (200, 300), 200, 100),
        ({"cleaned": 150}, (150, 300), 200, 200),  # a segment cleaned in part is dirty too
        ({"cleaned": 300}, (300, 300), 300, 0),
        ({"cleaned": 700}, (700, 300), 300, 0),  # DirtyOffsetLargerThanActiveSegmentBaseOffset
        ({"cleaned": 1001}, (0, 300), 0, 300),  # DirtyOffsetResetIfLargerThanEndOffset
        ({"cleaned": 50, "start": 100}, (100, 300), 100, 200),  # ...IfSmallerThanStartOffset
        ({"stable": 250}, (0, 200), 0, 200),  # UndecidedTransactionalDataNotCleanable
        ({"stable": 200}, (0, 200), 0, 200),
        ({"flushed": 120}, (0, 100), 0, 100),
        ({"stable": 99}, (0, 0), 0, 0),
        ({"start": 400, "cleaned": -1}, (400, 300), 300, 0),  # LogStartOffsetLargerThanActive...
    ],
)
def test_the_range_that_may_be_cleaned(changes, range_, clean, cleanable):
    dirt = find_log_to_clean(facts(*FOUR, **changes), NO_LAGS, 0)
    assert (dirt.first_dirty, dirt.first_uncleanable) == range_
    assert (dirt.clean_bytes, dirt.cleanable_bytes) == (clean, cleanable)


def test_young_segments_wait_for_min_compaction_lag():
    """CleanableOffsetsForTime, CleanableOffsetsForShortTime."""
    log = facts(segment(0, largest=1000), segment(100, largest=5000), segment(200), segment(300))
    assert find_log_to_clean(log, CompactionLags(2000, NEVER), 6000).first_uncleanable == 100
    assert find_log_to_clean(log, CompactionLags(2000, NEVER), 7000).first_uncleanable == 300


def test_old_records_do_not_wait_for_the_ratio():
    """MaxLogCompactionLag."""
    log = facts(segment(0), segment(100, first=3000), segment(200), cleaned=100)
    early, late = (find_log_to_clean(log, CompactionLags(0, 2000), now) for now in (5000, 5001))
    assert not early.should_clean(0.6)
    assert late.should_clean(0.6)
    assert early.ratio == 0.5
    assert early.should_clean(0.49)


def sizes(*rows):
    return [SegmentSize(*row) for row in rows]


@pytest.mark.parametrize(
    ("limits", "groups"),
    [
        ((10**9, 10**9), [5]),
        ((1, 10**9), [1, 1, 1, 1, 1]),
        ((10**9, 1), [1, 1, 1, 1, 1]),
        ((200, 10**9), [2, 2, 1]),
        ((10**9, 16), [2, 2, 1]),
        ((499, 10**9), [4, 1]),
    ],
)
def test_grouping_by_size_and_index(limits, groups):
    """SegmentGrouping."""
    rows = sizes(*((n * 10, 100, 8, 12 if limits[1] != 16 else 8) for n in range(5)))
    assert group_segments(rows, *limits, 50) == groups


def test_grouping_by_offset_range():
    """SegmentGroupingWithSparseOffsets, ...AndEmptySegments."""
    far = 2**31 - 1
    assert group_segments(sizes((0, 1, 0, 0), (5, 1, 0, 0)), 99, 99, far + 1) == [2]
    assert group_segments(sizes((0, 1, 0, 0), (5, 1, 0, 0)), 99, 99, far + 2) == [1, 1]
    assert group_segments(sizes((0, 1, 0, 0), (5, 0, 0, 0)), 99, 99, far + 2) == [2]
    assert group_segments(sizes((0, 1, 0, 0), (5, 1, 0, 0), (far + 9, 1, 0, 0)), 9, 9, far * 2) == [
        1,
        1,
        1,
    ]


def test_the_map_knows_keys_of_every_length_apart():
    offsets = OffsetMap(1 << 20)
    keys = [b"x" * n for n in range(40)]
    for offset, key in enumerate(keys):
        offsets.put(key, offset)
    assert [offsets.get(key) for key in keys] == list(range(40))
    assert offsets.get(b"y") == -1
    offsets.put(keys[20], 99)
    assert offsets.get(keys[20]) == 99
    assert len(offsets) == 40


def test_the_map_stays_within_its_buffer():
    budget = 4 << 20
    offsets = OffsetMap(budget)
    tracemalloc.start()
    number = 0
    while not offsets.is_full:
        offsets.put(b"a key of more than sixteen bytes %d" % number, 10**9 + number)
        number += 1
    used, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < budget
    assert peak < budget * 1.1, "also while the dict grows"
    assert number * sys.getsizeof(b"x" * 16) < used


def header(base=0, last=0, producer_id=7, epoch=0, attributes=0, base_ts=0, count=1):
    return (base, 100, 0, 2, 0, attributes, last, base_ts, 0, producer_id, epoch, 0, count)


def rules(*, latest=100, producers=None, now=1000, aborted=(), keys=None):
    offsets = OffsetMap(10_000)
    offsets.latest_offset = latest
    for key, offset in (keys or {}).items():
        offsets.put(key, offset)
    transactions = CleanedTransactionMetadata()
    transactions.add_aborted(list(aborted))
    return RecordFilter(offsets, transactions, producers or {}, now, 50)


def test_a_record_stays_if_it_is_its_keys_last():
    decide = rules(keys={b"a": 10})
    assert not decide.should_retain(b"a", 9, dead=False)
    assert decide.should_retain(b"a", 10, dead=False)
    assert decide.should_retain(b"b", 5, dead=False), "its key is not in the dirty part"
    assert decide.should_retain(None, 101, dead=False), "beyond what was read"
    assert not decide.should_retain(None, 100, dead=False), "nobody can ask for it"
    assert not decide.should_retain(b"a", 10, dead=True), "a tombstone past its horizon"
    assert decide.should_retain(b"a", 101, dead=True)


@pytest.mark.parametrize("horizon", [0, 1000, 1001])
def test_a_marker_goes_after_its_data_and_its_horizon(horizon):
    """CommitMarkerRemoval, AbortMarkerRemoval, CommitMarkerRetentionWithEmptyBatch."""
    bits = CONTROL_FLAG | TRANSACTIONAL_FLAG | (DELETE_HORIZON_FLAG if horizon else 0)
    marker = header(5, attributes=bits, base_ts=horizon)
    with_data = rules()
    assert with_data.check_batch_retention(header(4, attributes=TRANSACTIONAL_FLAG), None) == (
        BatchRetention.DELETE_EMPTY,
        False,
    )
    assert with_data.check_batch_retention(marker, False) == (BatchRetention.RETAIN, False)
    alone = rules().check_batch_retention(marker, False)
    if horizon == 1000:
        assert alone.retention is BatchRetention.DELETE
    else:
        assert alone == (BatchRetention.RETAIN, True), "its horizon begins, or is not over"
    last = rules(producers={7: LastWritten(0, None)}).check_batch_retention(marker, False)
    assert last.retention is (
        BatchRetention.HEADER_ONLY if horizon == 1000 else BatchRetention.RETAIN
    )
    old = rules(producers={7: LastWritten(1, None)}).check_batch_retention(marker, False)
    assert old.retention is (BatchRetention.DELETE if horizon == 1000 else BatchRetention.RETAIN)


def test_aborted_data_goes_and_the_index_entry_with_it():
    """CleanSegmentsWithAbort, AbortMarkerRetentionWithEmptyBatch."""
    entry = AbortedTransaction(7, 3, 5, 6)
    decide = rules(aborted=[entry])
    data, marker = header(3, 1, attributes=TRANSACTIONAL_FLAG), header(5, attributes=CONTROL_FLAG)
    other = header(3, 1, producer_id=8, attributes=TRANSACTIONAL_FLAG)
    assert (
        decide.check_batch_retention(header(1, attributes=TRANSACTIONAL_FLAG), None).retention
        is BatchRetention.DELETE_EMPTY
    ), "before it"
    assert decide.check_batch_retention(data, None).retention is BatchRetention.DELETE
    assert decide.check_batch_retention(other, None).retention is BatchRetention.DELETE_EMPTY
    assert decide.check_batch_retention(marker, True) == (BatchRetention.RETAIN, False)
    assert decide._transactions.kept == [entry]
    again = rules(aborted=[entry])
    assert again.check_batch_retention(marker, True) == (BatchRetention.RETAIN, True)
    assert again._transactions.kept == []
    last = rules(aborted=[entry], producers={7: LastWritten(0, 4)})
    assert last.check_batch_retention(data, None).retention is BatchRetention.HEADER_ONLY


def test_a_producers_last_batch_stays_without_records():
    """LogCleanerRetainsProducerLastSequence, EmptyBatchRemovalWithSequenceReuse."""
    decide = rules(producers={7: LastWritten(0, 12)})
    assert (
        decide.check_batch_retention(header(10, 2), None).retention is BatchRetention.RETAIN_EMPTY
    )
    assert decide.check_batch_retention(header(8, 1), None).retention is BatchRetention.DELETE_EMPTY
    assert (
        decide.check_batch_retention(header(10, 2, producer_id=-1), None).retention
        is BatchRetention.DELETE_EMPTY
    )


def test_an_empty_control_batch_goes():
    """CleanEmptyControlBatch."""
    empty = header(5, attributes=CONTROL_FLAG | TRANSACTIONAL_FLAG, count=0)
    assert rules().check_batch_retention(empty, None, empty=True).retention is BatchRetention.DELETE
    kept = rules(producers={7: LastWritten(0, None)}).check_batch_retention(empty, None, empty=True)
    assert kept.retention is BatchRetention.HEADER_ONLY
    other_kind = header(5, attributes=CONTROL_FLAG)
    assert rules().check_batch_retention(other_kind, None) == (BatchRetention.RETAIN, False)
