"""Compaction: which part of a log is cleaned, and which records are retained. A decider, no I/O.

Kafka: `LogCleanerManager.cleanableOffsets`, `LogToClean`, `SkimpyOffsetMap`,
`CleanedTransactionMetadata` and the deciding half of `Cleaner`. Invariants: the last record of
every key is retained, and so is everything at or above the first uncleanable offset; a record of an
ongoing transaction is never looked at; a producer's last batch is retained, if need be without
records, so that its sequence and epoch are not lost.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from ottla.log.aborted import AbortedTransaction
from ottla.wire.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LAST_OFFSET_DELTA,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    Header,
)

_NEVER = 2**63 - 1
_MAX_RELATIVE_OFFSET = 2**31 - 1


# What is cleaned ---------------------------------------------------------------------------


class CleanableSegment(NamedTuple):
    """A segment as `find_log_to_clean` sees it; timestamps are read only if needed."""

    base_offset: int
    size: int
    largest_timestamp: Callable[[], int]
    first_timestamp: Callable[[], int]


class CleanableLog(NamedTuple):
    """A log as `find_log_to_clean` sees it; the last segment is the active one."""

    segments: Sequence[CleanableSegment]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    flushed_offset: int
    cleaned_offset: int


class CompactionLags(NamedTuple):
    """The topic's min.compaction.lag.ms and max.compaction.lag.ms."""

    min_ms: int
    max_ms: int


class LogToClean(NamedTuple):
    """The offsets that may be cleaned, [first_dirty, first_uncleanable), and their bytes."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    overdue: bool
    """records wait for longer than max.compaction.lag.ms"""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def should_clean(self, min_ratio: float) -> bool:
        return self.ratio > min_ratio or (self.overdue and self.cleanable_bytes > 0)


def find_log_to_clean(log: CleanableLog, lags: CompactionLags, now_ms: int) -> LogToClean:
    """Return the cleanable part: nothing active, unflushed, too new or in an open transaction."""
    first_dirty = log.cleaned_offset
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset
    segments = log.segments
    closed = segments[:-1]
    at_active = first_dirty >= segments[-1].base_offset
    dirty = [] if at_active else closed[_floor(closed, first_dirty) :]
    bound = min(log.last_stable_offset, segments[-1].base_offset, log.flushed_offset)
    if lags.min_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp() > now_ms - lags.min_ms:
                bound = min(bound, segment.base_offset)
                break
    bound = max(first_dirty, bound)
    upto = segments[_floor(segments, bound)].base_offset
    cleanable = sum(s.size for s in dirty if s.base_offset < upto) if first_dirty < upto else 0
    clean = sum(s.size for s in closed if s.base_offset < first_dirty)
    overdue = False
    if lags.max_ms < _NEVER:
        stamps = [t for s in dirty if s.size and (t := s.first_timestamp()) > 0]
        overdue = min(stamps, default=_NEVER) < now_ms - lags.max_ms
    return LogToClean(first_dirty, upto, clean, cleanable, overdue)


def _floor(segments: Sequence[CleanableSegment], offset: int) -> int:
    """Return the index of the segment whose range holds `offset`."""
    index = 0
    for at, segment in enumerate(segments):
        if segment.base_offset > offset:
            break
        index = at
    return index


class SegmentSize(NamedTuple):
    """What grouping needs of a segment, in bytes."""

    base_offset: int
    size: int
    offset_index: int
    time_index: int


def group_segments(
    segments: Sequence[SegmentSize], max_size: int, max_index: int, end_offset: int
) -> list[int]:
    """Return how many adjacent segments become one, group by group, oldest first.

    A group's log, either index and offset range fit into one segment (`groupSegmentsBySize`).
    """
    groups: list[int] = []
    at = 0
    while at < len(segments):
        first = segments[at]
        size, index, time_index = first.size, first.offset_index, first.time_index
        stop = at + 1
        while stop < len(segments):
            more = segments[stop]
            upper = segments[stop + 1].base_offset if stop + 1 < len(segments) else end_offset
            fits = (
                size + more.size <= max_size
                and index + more.offset_index <= max_index
                and time_index + more.time_index <= max_index
                and (not more.size or upper - 1 - first.base_offset <= _MAX_RELATIVE_OFFSET)
            )
            if not fits:
                break
            size, index = size + more.size, index + more.offset_index
            time_index += more.time_index
            stop += 1
        groups.append(stop - at)
        at = stop
    return groups


# The last offset of every key --------------------------------------------------------------


class OffsetMap:
    """Maps a bounded number of keys to the offset of the last record of each.

    A key of 16 bytes or more is stored as 16 bytes of its BLAKE2b hash, a shorter one as it is, so
    that no hash equals a short key.
    """

    ENTRY_BYTES = 200
    """Memory of one entry, at most: a dict slot while the dict grows, 16 bytes, an int."""

    __slots__ = ("_get", "_offsets", "latest_offset", "limit")

    def __init__(self, max_bytes: int, load_factor: float = 1.0) -> None:
        self.limit = max(int(max_bytes * load_factor) // self.ENTRY_BYTES, 1)
        self.latest_offset = -1
        """the last offset up to which all keys are in the map"""
        self._offsets: dict[bytes, int] = {}
        self._get = self._offsets.get

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self.limit

    def put(self, key: bytes, offset: int) -> None:
        if len(key) > 15:
            key = blake2b(key, digest_size=16).digest()
        self._offsets[key] = offset

    def get(self, key: bytes) -> int:
        """Return the offset of the key's last record, -1 if it is not among the dirty ones."""
        if len(key) > 15:
            key = blake2b(key, digest_size=16).digest()
        return self._get(key, -1)


# Transactions and producers ----------------------------------------------------------------


class CleanedTransactionMetadata:
    """The transactions met so far in the log, and how they ended."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """producer id -> its ongoing aborted transaction, and whether it still has batches"""
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """aborted transactions to keep in the index, since their marker was reached"""

    def add_aborted(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Add aborted transactions of the range that comes next."""
        for entry in aborted:
            heapq.heappush(self._coming, (entry.first_offset, entry))

    def _reach(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            entry = heapq.heappop(self._coming)[1]
            self._aborted.setdefault(entry.producer_id, (entry, False))

    def on_control_batch_read(self, header: Header, aborted: bool | None) -> bool:
        """Return whether a marker can be discarded: its transaction has no batch left.

        `aborted` is how it ended, or None for a control batch that is no marker, which is retained.
        """
        self._reach(header[BASE_OFFSET] + header[LAST_OFFSET_DELTA])
        producer_id = header[PRODUCER_ID]
        if aborted is None:
            return False
        if aborted:
            entry, has_batches = self._aborted.pop(producer_id, (None, False))
            if entry is not None and has_batches:
                self.kept.append(entry)
                return False
            return True
        if producer_id in self._committed:
            self._committed.remove(producer_id)
            return False
        return True

    def on_batch_read(self, header: Header) -> bool:
        """Return whether a batch of data belongs to an aborted transaction."""
        self._reach(header[BASE_OFFSET] + header[LAST_OFFSET_DELTA])
        if not header[ATTRIBUTES] & TRANSACTIONAL_FLAG:
            return False
        found = self._aborted.get(header[PRODUCER_ID])
        if found is None:
            self._committed.add(header[PRODUCER_ID])
            return False
        self._aborted[header[PRODUCER_ID]] = (found[0], True)
        return True


class LastWritten(NamedTuple):
    """A producer's epoch and its last data offset; None if a marker is the last."""

    epoch: int
    offset: int | None


# What is retained --------------------------------------------------------------------------------


class BatchRetention(Enum):
    """How much of a batch is retained. Kafka: `RecordFilter.BatchRetention`, with two more."""

    DELETE = "delete"
    DELETE_EMPTY = "delete empty"
    """Its records are filtered; the batch is deleted when none is left."""
    RETAIN_EMPTY = "retain empty"
    """Its records are filtered; the header stays, since it has its producer's last sequence."""
    HEADER_ONLY = "header only"
    """All records are deleted, the header stays."""
    RETAIN = "retain"
    """A control batch that stays as it is, or gets its delete horizon."""


class BatchRetentionResult(NamedTuple):
    """How much of a batch is retained, and whether it gets a delete horizon now (KIP-534)."""

    retention: BatchRetention
    sets_horizon: bool


class RecordFilter:
    """Decides batch by batch, in order; see `Cleaner.checkBatchRetention`."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactionMetadata,
        producers: Mapping[int, LastWritten],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self.new_horizon_ms = now_ms + delete_retention_ms

    def check_batch_retention(
        self, header: Header, aborted: bool | None, empty: bool = False
    ) -> BatchRetentionResult:
        """Decide on a batch; `aborted` and `empty` are a control batch's."""
        control = bool(header[ATTRIBUTES] & CONTROL_FLAG)
        if not control:
            free = go = self._transactions.on_batch_read(header)
        elif empty:  # its marker went earlier
            self._transactions.on_control_batch_read(header, None)
            free = go = True
        else:
            free = self._transactions.on_control_batch_read(header, aborted)
            go = free and self._delete_horizon_passed(header)
        last = self._is_last_batch_of_producer(header)
        if go:
            return BatchRetentionResult(
                BatchRetention.HEADER_ONLY if last else BatchRetention.DELETE, False
            )
        if control:
            return BatchRetentionResult(BatchRetention.RETAIN, free)
        return BatchRetentionResult(
            BatchRetention.RETAIN_EMPTY if last else BatchRetention.DELETE_EMPTY, False
        )

    def _delete_horizon_passed(self, header: Header) -> bool:
        return (
            bool(header[ATTRIBUTES] & DELETE_HORIZON_FLAG)
            and header[BASE_TIMESTAMP] <= self._now_ms
        )

    def _is_last_batch_of_producer(self, header: Header) -> bool:
        if header[PRODUCER_ID] < 0:
            return False
        last = self._producers.get(header[PRODUCER_ID])
        if last is None:
            return False
        if last.offset is None:
            return bool(header[ATTRIBUTES] & CONTROL_FLAG) and header[PRODUCER_EPOCH] == last.epoch
        return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] == last.offset

    def may_delete_tombstones(self, header: Header) -> bool:
        """Return whether the batch's delete horizon has passed."""
        return self._delete_horizon_passed(header)

    def should_retain(self, key: bytes | None, offset: int, dead: bool) -> bool:
        """Return whether a record is the last of its key and no tombstone to delete (`dead`)."""
        if offset > self.offsets.latest_offset:
            return True
        return key is not None and not dead and offset >= self.offsets.get(key)
