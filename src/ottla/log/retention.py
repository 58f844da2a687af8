"""Retention: which old segments a log may drop. A decider, no I/O.

Kafka: `UnifiedLog.deletableSegments`. Invariants: only a prefix of the segments goes, only below
the high watermark. The active segment goes only if it was idle for the whole retention time by the
monotonic clock too: a wall clock that jumps deletes nothing that is still written to (F23).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class RetainedSegment(NamedTuple):
    """A segment as retention sees it; its timestamp is read only if needed."""

    base_offset: int
    size: int
    largest_timestamp: Callable[[], int]


class Limits(NamedTuple):
    """The topic's limits; negative means none."""

    retention_ms: int
    retention_bytes: int


class Expired(NamedTuple):
    """How many of the oldest segments to delete, and the reason for the log line."""

    count: int  # type: ignore[assignment]
    reason: str


def expired_segments(
    segments: Sequence[RetainedSegment],
    limits: Limits,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
    idle_ms: int,
    delete_policy: bool,
    newer_bytes: int | None = None,
) -> Expired:
    """Return how many of the oldest segments to delete, by the first reason that deletes most.

    `newer_bytes` says that `segments` are not all there are, and how large the newer ones are. The
    last one given is not deleted then.
    """
    bound = 0
    for index, segment in enumerate(segments):
        last = index + 1 == len(segments)
        if last and newer_bytes is not None:
            break
        upper = log_end_offset if last else segments[index + 1].base_offset
        if high_watermark < upper or (last and segment.size == 0):
            break
        bound = index + 1
    best = Expired(_below_start(segments, log_start_offset, bound), "log_start")
    if delete_policy:
        by_time = Expired(_too_old(segments, limits, bound, now_ms, idle_ms), "retention_ms")
        by_size = Expired(_too_big(segments, limits, bound, newer_bytes or 0), "retention_bytes")
        best = max(best, by_time, by_size, key=lambda e: e.count)
    return best


def _below_start(segments: Sequence[RetainedSegment], log_start_offset: int, bound: int) -> int:
    count = 0
    while count < min(bound, len(segments) - 1):
        if segments[count + 1].base_offset > log_start_offset:
            break
        count += 1
    return count


def _too_old(
    segments: Sequence[RetainedSegment], limits: Limits, bound: int, now_ms: int, idle_ms: int
) -> int:
    if limits.retention_ms < 0:
        return 0
    count = 0
    while count < bound:
        active = count + 1 == len(segments)
        if now_ms - segments[count].largest_timestamp() <= limits.retention_ms:
            break
        if active and idle_ms <= limits.retention_ms:
            break
        count += 1
    return count


def _too_big(
    segments: Sequence[RetainedSegment], limits: Limits, bound: int, newer_bytes: int
) -> int:
    if limits.retention_bytes < 0:
        return 0
    excess = sum(s.size for s in segments) + newer_bytes - limits.retention_bytes
    count = 0
    while count < bound and excess - segments[count].size >= 0:
        excess -= segments[count].size
        count += 1
    return count
