"""Where a follower cuts, on values."""

import pytest

from ottla.model.errors import OffsetOutOfRangeError
from ottla.model.protocol import UNDEFINED
from ottla.replication.truncation import (
    EpochEnd,
    Restart,
    Truncation,
    divergence,
    restart_point,
    truncation_point,
)

UNKNOWN = EpochEnd(UNDEFINED, UNDEFINED)


def test_a_fetch_that_continues_the_leaders_log():
    assert divergence(3, 10, epoch=3, end_offset=10, log_start_offset=0) is None
    assert divergence(3, 10, epoch=3, end_offset=15, log_start_offset=0) is None


def test_a_fetch_that_diverged():
    # The leader's epoch 3 ended before the follower's offset.
    assert divergence(3, 10, 3, 8, 0) == EpochEnd(3, 8)
    # The leader never had epoch 3; its largest below is 2.
    assert divergence(3, 10, 2, 12, 0) == EpochEnd(2, 12)


def test_a_fetch_that_cannot_be_compared_is_out_of_range():
    with pytest.raises(OffsetOutOfRangeError):
        divergence(9, 10, UNDEFINED, UNDEFINED, 0)
    with pytest.raises(OffsetOutOfRangeError):
        divergence(3, 4, 3, 10, 5)


def cut(leader, own, end=20, fallback=7):
    return truncation_point(leader, own, end, fallback)


def test_the_smaller_end_of_a_common_epoch():
    assert cut(EpochEnd(3, 8), EpochEnd(3, 12)) == Truncation(8, complete=True)
    assert cut(EpochEnd(3, 12), EpochEnd(3, 8)) == Truncation(8, complete=True)
    assert cut(EpochEnd(3, 30), EpochEnd(3, 25), end=20) == Truncation(20, complete=True)


def test_r2_an_epoch_that_we_lack_means_to_ask_again():
    """KIP-279: the leader answers epoch 4; ours below is 2, ending at 9."""
    assert cut(EpochEnd(4, 15), EpochEnd(2, 9)) == Truncation(9, complete=False)


def test_without_epochs():
    assert cut(EpochEnd(UNDEFINED, 15), UNKNOWN) == Truncation(15, complete=True)
    assert cut(EpochEnd(2, 15), UNKNOWN) == Truncation(15, complete=True)
    assert cut(UNKNOWN, UNKNOWN) == Truncation(7, complete=True)


def test_out_of_the_leaders_range():
    assert restart_point(20, 0, 15) == (Restart.TRUNCATE, 15)
    assert restart_point(5, 10, 30) == (Restart.START_OVER, 10)
    assert restart_point(15, 10, 30) == (Restart.RESUME, 15)
