"""Leader epochs: what KIP-101 and KIP-279 require of a log's epoch cache."""

import pytest

from ottla.log import checkpoints
from ottla.log.epochs import EpochCache


def cache(*entries):
    return EpochCache(list(entries))


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    epochs = cache((1, 0), (2, 10), (5, 25))
    assert epochs.end_offset_for(1, 40) == (1, 10)
    assert epochs.end_offset_for(2, 40) == (2, 25)
    assert epochs.end_offset_for(5, 40) == (5, 40)


def test_kip_279_for_an_unknown_epoch_the_one_before_is_returned():
    # The follower saw epoch 3 or 4, this leader did not: it must learn the largest one both may
    # share, or it truncates too little after a fast double failover.
    epochs = cache((1, 0), (2, 10), (5, 25))
    assert epochs.end_offset_for(3, 40) == (2, 25)
    assert epochs.end_offset_for(4, 40) == (2, 25)


def test_an_epoch_newer_than_all_is_unknown():
    assert cache((1, 0)).end_offset_for(2, 40) == (-1, -1)
    assert cache().end_offset_for(0, 40) == (-1, -1)
    assert cache((1, 0)).end_offset_for(-1, 40) == (-1, -1)


def test_an_epoch_older_than_all_ends_where_the_first_begins():
    assert cache((3, 100), (4, 120)).end_offset_for(1, 200) == (1, 100)


def test_assign_twice_changes_nothing():
    epochs = cache((2, 10))
    assert not epochs.assign(2, 10)
    assert not epochs.assign(2, 15)
    assert not epochs.changed


def test_the_newer_fact_wins():
    epochs = cache((1, 0), (2, 10), (5, 25))
    assert epochs.assign(6, 10)
    assert epochs.entries == [(1, 0), (6, 10)]
    assert epochs.assign(3, 12)
    assert epochs.entries == [(1, 0), (3, 12)]
    assert epochs.assign(3, 11)
    assert epochs.entries == [(1, 0), (3, 11)]


def test_an_epoch_without_records_gives_way():
    epochs = cache((1, 0), (2, 10))
    epochs.assign(3, 10)
    assert epochs.entries == [(1, 0), (3, 10)]


def test_truncate_from_the_end():
    epochs = cache((1, 0), (2, 10), (5, 25))
    epochs.truncate_from_end(25)
    assert epochs.entries == [(1, 0), (2, 10)]
    assert epochs.changed
    epochs.truncate_from_end(11)
    assert epochs.entries == [(1, 0), (2, 10)]
    epochs.truncate_from_end(0)
    assert epochs.entries == []
    assert epochs.latest == -1


def test_truncate_from_the_start_moves_the_covering_epoch():
    epochs = cache((1, 0), (2, 10), (5, 25))
    epochs.truncate_from_start(12)
    assert epochs.entries == [(2, 12), (5, 25)]
    epochs.truncate_from_start(25)
    assert epochs.entries == [(5, 25)]
    epochs.changed = False
    epochs.truncate_from_start(20)
    assert epochs.entries == [(5, 25)]
    assert not epochs.changed


def test_the_epoch_of_an_offset():
    epochs = cache((1, 5), (2, 10))
    assert [epochs.epoch_of(o) for o in (4, 5, 9, 10, 99)] == [-1, 1, 1, 2, 2]
    assert [epochs.previous(e) for e in (1, 2, 3)] == [-1, 1, 2]


def test_a_log_uses_its_end_for_the_last_epoch(kit):
    log = kit.open()
    assert log.end_offset_for_epoch(0) == (-1, -1)
    kit.fill(log, 3, epoch=2)
    log.assign_epoch_start(4, log.log_end_offset)
    assert log.end_offset_for_epoch(2) == (2, 3)
    assert log.end_offset_for_epoch(3) == (2, 3)
    assert log.end_offset_for_epoch(4) == (4, 3)
    assert log.epochs.latest == 4


def test_a_truncation_that_cuts_no_record_still_cuts_epochs(kit):
    # The broker led epoch 4 and wrote nothing; the next leader must not get it (R11).
    log = kit.open()
    kit.fill(log, 3, epoch=2)
    log.assign_epoch_start(4, 3)
    assert not log.truncate_to(3)
    assert log.epochs.latest == 2


@pytest.mark.parametrize("offset", range(13))
def test_epochs_are_cut_with_the_log(kit, offset):
    log = kit.open(segment_bytes=400)
    for epoch in (1, 2, 4, 7):
        kit.fill(log, 3, epoch=epoch)
    log.truncate_to(offset)
    want = [e for e in [(1, 0), (2, 3), (4, 6), (7, 9)] if e[1] < offset]
    assert log.epochs.entries == want
    assert kit.reopen(log, segment_bytes=400).epochs.entries == want


def test_an_older_job_that_ends_later_leaves_no_older_epochs(kit):
    """A worker flushes; meanwhile the log is truncated, appended to and flushed at once."""
    log = kit.open()
    kit.fill(log, 3, epoch=1)
    kit.fill(log, 2, epoch=2)
    slow = log.prepare_flush()
    log.truncate_to(3)
    kit.fill(log, 2, epoch=5)
    log.flush()
    slow.run()
    log.complete_flush(slow)
    log.flush()
    path = kit.folder / checkpoints.LEADER_EPOCHS
    assert checkpoints.decode_epochs(path.read_bytes()) == log.epochs.entries == [(1, 0), (5, 3)]
