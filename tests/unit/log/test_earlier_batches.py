"""After a restart a producer's last five batches are known, though a snapshot has one of them."""

import pytest

from ottla.log import producer_checks
from ottla.log.segment import Segment
from ottla.model.errors import OutOfOrderSequenceError

SMALL = 300
"""Bytes of a segment: two batches."""


@pytest.fixture
def kit(kit):
    kit.clock.wall = 10_000  # not long after the batches, so that no producer expires
    return kit


@pytest.mark.parametrize("segment_bytes", [SMALL, 1 << 20])
def test_each_of_five_batches_is_a_duplicate_after_a_clean_stop(kit, segment_bytes):
    log = kit.open(segment_bytes=segment_bytes)
    for number in range(7):
        kit.send(log, sequence=2 * number, count=2)
        kit.send(log, sequence=number, producer_id=9)
    log = kit.reopen(log, clean=True, segment_bytes=segment_bytes)
    end = log.log_end_offset
    for number in (2, 3, 6, 5, 4):
        info = kit.send(log, sequence=2 * number, count=2)
        assert (info.duplicate, info.first_offset, info.last_offset) == (
            True,
            3 * number,
            3 * number + 1,
        )
    for sequence, count in [(2, 2), (6, 1), (16, 2)]:  # the sixth from the end, half a one, a gap
        with pytest.raises(OutOfOrderSequenceError):
            kit.send(log, sequence=sequence, count=count)
    assert kit.send(log, sequence=2, producer_id=9).duplicate
    assert log.log_end_offset == end
    assert not kit.send(log, sequence=14, count=2).duplicate


def test_batches_that_came_since_the_restart_count(kit):
    log = kit.open()
    for sequence in range(5):
        kit.send(log, sequence=sequence)
    log = kit.reopen(log, clean=True)
    for sequence in range(5, 8):
        assert not kit.send(log, sequence=sequence).duplicate
    with pytest.raises(OutOfOrderSequenceError):
        kit.send(log, sequence=2)
    assert kit.send(log, sequence=3).first_offset == 3
    assert kit.send(log, sequence=4).duplicate


def test_a_truncation_to_a_snapshot_keeps_them_too(kit):
    log = kit.open(segment_bytes=SMALL)
    for sequence in range(9):
        kit.send(log, sequence=sequence)
    base = log.segments[-1].base_offset
    log.truncate_to(base)
    assert kit.send(log, sequence=base - 4).first_offset == base - 4


def test_sequences_wrap(kit):
    log = kit.open()
    first = 2**31 - 3
    for sequence in (first, first + 2, 1, 3):
        kit.send(log, sequence=sequence, count=2)
    log = kit.reopen(log, clean=True)
    assert kit.send(log, sequence=first + 2, count=2).first_offset == 2
    assert kit.send(log, sequence=first, count=2).first_offset == 0


def test_another_epoch_is_another_sequence(kit):
    log = kit.open()
    kit.send(log, sequence=0)
    kit.send(log, sequence=0, epoch=1)
    kit.send(log, sequence=1, epoch=1)
    log = kit.reopen(log, clean=True)
    assert kit.send(log, sequence=0, epoch=1).first_offset == 1
    assert len(log.producers.producers[1].batches) == 2


def test_a_log_is_searched_once_and_not_far(kit, monkeypatch):
    read = []
    headers = Segment.headers

    def counted(segment, *args):
        for position, header in headers(segment, *args):
            read.append(position)
            yield position, header

    log = kit.open(segment_bytes=2_000)
    kit.send(log, sequence=0)
    kit.send(log, sequence=1)
    for sequence in range(80):
        kit.send(log, sequence=sequence, producer_id=9)
    kit.send(log, sequence=2)
    log = kit.reopen(log, clean=True, segment_bytes=2_000)
    monkeypatch.setattr(producer_checks, "MAX_HEADERS", 50)
    monkeypatch.setattr(Segment, "headers", counted)
    for _ in range(3):
        with pytest.raises(OutOfOrderSequenceError):
            kit.send(log, sequence=1)
    assert 0 < len(read) < 50 + 30  # up to the bound, and what leads to the first position
    kit.send(log, sequence=3)
    assert kit.send(log, sequence=2).duplicate


def test_a_damaged_log_refuses_the_batch_and_stays(kit):
    log = kit.open()
    for sequence in range(3):
        kit.send(log, sequence=sequence)
    log = kit.reopen(log, clean=True)
    [path] = kit.folder.glob("*.log")
    with path.open("r+b") as file:
        file.seek(16)
        file.write(b"\xff")  # the first batch's magic
    with pytest.raises(OutOfOrderSequenceError):
        kit.send(log, sequence=0)
    assert log.failed is None
    assert kit.send(log, sequence=2).duplicate
