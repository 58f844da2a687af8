"""How far a follower must cut its log to agree with its leader. A decider.

Invariants:
- R1: after every epoch bump nothing is appended and no high watermark adopted until the leader has
  compared (last fetched epoch, fetch offset) with its own epochs.
- R2: truncation goes by epochs, never by the high watermark, except where the leader knows no
  epoch at all. It walks back epoch by epoch, so that two elections in a row cannot leave a record
  of a lost epoch in the middle (KIP-279).
- R11: a response that says "diverged" carries no records and no high watermark that count.

Kafka: `AbstractFetcherThread.getOffsetTruncationState` and the check in
`Partition.readRecords` (KIP-101, KIP-279, KIP-595).
"""

from enum import StrEnum

import msgspec

from ottla.model.errors import OffsetOutOfRangeError
from ottla.model.protocol import UNDEFINED


class EpochEnd(msgspec.Struct, frozen=True):
    """An epoch and the offset after its last record."""

    epoch: int
    end_offset: int


class Truncation(msgspec.Struct, frozen=True):
    """Where to cut. `complete` is False when the leader must be asked once more (KIP-279)."""

    offset: int
    complete: bool


def divergence(
    last_fetched_epoch: int, fetch_offset: int, epoch: int, end_offset: int, log_start_offset: int
) -> EpochEnd | None:
    """Tell a leader whether a fetch continues its log: None, or where its log left the follower's.

    `epoch` and `end_offset` are the leader's largest epoch not above `last_fetched_epoch` and that
    epoch's end. OffsetOutOfRangeError if the leader knows no such epoch, or the fetch lies below
    its log start: the follower then starts over from the leader's offsets.
    """
    if UNDEFINED in (epoch, end_offset):
        raise OffsetOutOfRangeError(
            f"the end of the last fetched epoch {last_fetched_epoch} is not known here"
        )
    if fetch_offset < log_start_offset:
        raise OffsetOutOfRangeError(f"offset {fetch_offset} is below log start {log_start_offset}")
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return EpochEnd(epoch, end_offset)
    return None


def truncation_point(
    leader: EpochEnd, own: EpochEnd, own_end_offset: int, fallback_offset: int
) -> Truncation:
    """Return where a follower cuts, given the leader's response about the follower's last epoch.

    `own` is the follower's largest epoch not above the leader's response, with that epoch's end
    in the follower's log. `fallback_offset` (the initial fetch offset) is used only when the leader
    knows no epochs at all.
    """
    if leader.end_offset == UNDEFINED:
        return Truncation(min(fallback_offset, own_end_offset), complete=True)
    if UNDEFINED in (leader.epoch, own.epoch):
        # A response without an epoch, or one below all we track: the leader's end is the best
        # bound.
        return Truncation(min(leader.end_offset, own_end_offset), complete=True)
    if own.epoch != leader.epoch:
        # We lack the epoch the leader answered with: drop ours above it, then ask again.
        return Truncation(min(own.end_offset, own_end_offset), complete=False)
    return Truncation(min(own.end_offset, leader.end_offset, own_end_offset), complete=True)


class Restart(StrEnum):
    """What a follower does whose offset is out of the leader's range."""

    TRUNCATE = "truncate"
    """to the leader's end: there was an unclean election"""
    START_OVER = "start over"
    """with an empty log, at the leader's log start"""
    RESUME = "resume"
    """with all it has"""


def restart_point(
    own_end_offset: int, leader_start_offset: int, leader_end_offset: int
) -> tuple[Restart, int]:
    """Return how a follower restarts whose offset is out of the leader's range, and where."""
    if leader_end_offset < own_end_offset:
        return Restart.TRUNCATE, leader_end_offset
    if leader_start_offset > own_end_offset:
        return Restart.START_OVER, leader_start_offset
    return Restart.RESUME, own_end_offset
