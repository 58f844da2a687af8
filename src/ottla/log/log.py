"""One partition's log: append, read, truncate, retain.

Kafka: `UnifiedLog`. Everything is synchronous: an append with the move of the end offset is one
step. Invariants: log_start <= last_stable <= high_watermark <= log_end; offsets on disk only grow.
What a log is made of (segments, flushes, failure) is in `local_log`.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.log import time_search
from ottla.log.aborted import AbortedTransaction, overlapping
from ottla.log.disk_errors import UnreadFormatError
from ottla.log.epochs import EpochCache
from ottla.log.index import CorruptIndexError
from ottla.log.local_log import LocalLog
from ottla.log.producer_checks import check_producer, duplicate_of
from ottla.log.producers import TRUSTED, Producers, WrittenBatch
from ottla.log.recovery import Loaded, Loader
from ottla.log.replay import loading_snapshot, replaying
from ottla.log.results import AppendInfo, LogRead, TimestampOffset, UnexpectedOffsetError
from ottla.log.retention import Limits, RetainedSegment, expired_segments
from ottla.log.segment import Segment
from ottla.log.slices import Steps
from ottla.log.tail import TailBudget
from ottla.log.transactions import apply_batch
from ottla.log.validate import CLIENT, ValidationRules, check_follower_batches, check_leader_batch
from ottla.model.config import TopicConfig
from ottla.model.errors import CorruptRecordError, OffsetOutOfRangeError
from ottla.model.ids import TopicPartition
from ottla.model.ports import Buffer, World
from ottla.model.protocol import NO_TIMESTAMP
from ottla.model.steps import drain
from ottla.wire.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_FLAG,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    RECORD_COUNT,
    Header,
    stamp,
)
from ottla.wire.record_check import UNLIMITED, Effort

__all__ = ["AppendInfo", "Log", "LogRead", "TimestampOffset", "UnexpectedOffsetError"]

_logger = logging.getLogger(__name__)

_NEVER = 2**63 - 1
_UNKNOWN = -2
MAX_SEGMENTS_AT_ONCE = 32
"""segments that retention deletes per call: four files of each are renamed"""


class Log(LocalLog):
    """A partition's log."""

    def __init__(
        self,
        tp: TopicPartition,
        folder: str,
        config: TopicConfig,
        world: World,
        loaded: Loaded,
        budget: TailBudget,
    ) -> None:
        super().__init__(tp, folder, config, world, loaded, budget)
        self.high_watermark = loaded.log_start_offset
        self.cut_bytes = loaded.cut_bytes
        self.may_be_incomplete = loaded.may_be_incomplete
        """whether records may be missing at its end, as far as its files say"""
        self.marked_unclean = loaded.marked_unclean
        """whether a mark in its folder says so: it was not shown to be complete before (R18)"""
        self.on_recovery_point_lowered: Callable[[Log], None] | None = None
        """called before the first append at an offset where flushed records were truncated"""
        self.on_truncated: Callable[[Log], None] | None = None
        """called at each truncation"""
        self.recovery_point_pending = False
        """whether the checkpoint on disk still has a recovery point above a truncation"""
        self._latest_epoch = self.epochs.latest
        self._idle_since_s = world.clock.monotonic()
        self._idle_at_offset = self.log_end_offset
        self._cold_reads = 0
        self._appends = 0

    @classmethod
    def open(
        cls, tp: TopicPartition, dir_path: str, config: TopicConfig, world: World, **known: Any
    ) -> "Log":
        """As `opening`, in one go."""
        return drain(cls.opening(tp, dir_path, config, world, **known))

    @classmethod
    def opening(
        cls,
        tp: TopicPartition,
        dir_path: str,
        config: TopicConfig,
        world: World,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        fresh: bool = False,
        budget: TailBudget | None = None,
        producer_expiration_ms: int = 86_400_000,
        cleaned_offset: int = -1,
        high_watermark: int | None = None,
        on_damage: Callable[[], None] | None = None,
        may_be_unwritten: bool = False,
    ) -> "Steps[Log]":
        """Load the log of an existing folder, or begin an empty one in it; in slices.

        `clean` says the folder was closed cleanly, `fresh` that it was made just now,
        `cleaned_offset` how far the cleaner was (-1: never here), `high_watermark` what its
        checkpoint says. `on_damage` is called before a log that was closed cleanly is cut.
        `may_be_unwritten`: an fsync may have failed, so what is recovered is written anew. OSError
        means the log dir is bad. Nothing else is wrong enough not to open, but a log with records
        of another format is offline: nothing of it was changed, and nothing will be (R21).
        """
        loader = Loader(
            tp, dir_path, world,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            producer_expiration_ms=producer_expiration_ms,
            index_interval=config.index_interval_bytes,
            cleaned_offset=cleaned_offset,
            high_watermark=high_watermark,
            on_damage=on_damage, may_be_unwritten=may_be_unwritten,
        )  # fmt: skip
        unread: UnreadFormatError | None = None
        try:
            loaded = loader.begin() if fresh else (yield from loader.loading())
        except UnreadFormatError as error:
            loaded, unread = loader.unread(), error
        log = cls(tp, dir_path, config, world, loaded, budget or TailBudget())
        if unread is not None:
            _logger.error("log offline partition=%s reason=%s", tp, unread)
            log.mark_offline(str(unread))
        log.cleaned_offset = cleaned_offset
        # A log that ends before its written point has lost what was there: what is appended in its
        # place must not count as flushed after the next crash.
        log.recovery_point_pending = log.recovery_point < recovery_point
        return log

    def __repr__(self) -> str:
        return f"Log({self.tp}, {self.log_start_offset}..{self.log_end_offset})"

    # Facts -----------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch with a known start, -1 if none."""
        return self._latest_epoch

    @property
    def rules(self) -> ValidationRules:
        """What the topic's settings ask of a batch."""
        return self._rules

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended (the bound of read_committed)."""
        first = self.producers.first_unstable_offset
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        return max(first, self.log_start_offset)

    def statistics(self) -> dict[str, int]:
        return {
            "size": self.size,
            "segments": len(self.segments),
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "high_watermark": self.high_watermark,
            "recovery_point": self.recovery_point,
            "producers": len(self.producers.producers),
            "tail_batches": len(self._tail),
            "tail_bytes": self._tail.used,
            "appends": self._appends,
            "cold_reads": self._cold_reads,
            "corrupt_reads": self.corrupt_reads,
            "truncations": self.truncations,
        }

    # Appending -------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: str = CLIENT,
        guard: object = TRUSTED,
        effort: Effort = UNLIMITED,
        checked: tuple[memoryview, Header] | None = None,
    ) -> AppendInfo:
        """Append one batch; its buffer is patched in place and must not be reused by the caller.

        A transaction's first batch needs the `guard` under which it was verified. `checked` is what
        `check_leader_batch` returned, where another caller has checked with this log's `rules`.
        """
        if self.failed is not None:
            raise self.failed
        batch, header = checked or check_leader_batch(records, self._rules, origin, now_ms, effort)
        producer_id = header[PRODUCER_ID]
        if producer_id >= 0:
            repeated = self._check_producer(batch, header, origin, guard)
            if repeated is not None:
                return duplicate_of(repeated, self.log_start_offset, header[RECORD_COUNT])
        first = self.log_end_offset
        last = first + header[LAST_OFFSET_DELTA]
        size = len(batch)
        max_timestamp = header[MAX_TIMESTAMP]
        segment = self._active
        if (
            segment.size + size > self._segment_bytes
            or max_timestamp > self._roll_timestamp
            or last > segment.max_offset
        ):
            if self.recovery_point_pending:
                self._lower_recovery_point()
            segment = self._segment_for(size, first, last, max_timestamp, now_ms)
        if header[ATTRIBUTES] & CONTROL_FLAG:
            self._expect_marker(segment, batch)
        stamp(batch, first, header[LENGTH], leader_epoch)
        try:
            segment.append(batch, last, max_timestamp, self._index_interval)
        except OSError as error:
            raise self._fail(error, "append") from error
        if leader_epoch != self._latest_epoch:
            self.assign_epoch_start(leader_epoch, first)
        self.log_end_offset = last + 1
        self._tail.append(first, batch)
        if producer_id >= 0:
            self._note_producer(segment, (first, *header[1:]), batch)
        self._appends += 1
        count = header[RECORD_COUNT]
        unflushed = self._unflushed
        self._unflushed = unflushed + count
        if not unflushed or self._unflushed >= self._flush_messages:
            self._flush_if_due()
        return AppendInfo(
            first,
            last,
            max_timestamp,
            max_timestamp if self._rules.log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            False,
            size,
            count,
        )

    def append_as_follower(self, records: memoryview) -> AppendInfo:
        """Append batches as the leader sent them; a torn last one is left out.

        UnexpectedOffsetError if they begin before our end. An empty log may begin inside the
        first batch (after DeleteRecords): it then starts over at that batch's base offset.
        """
        if self.failed is not None:
            raise self.failed
        headers = check_follower_batches(records)
        if not headers:
            end = self.log_end_offset
            return AppendInfo(end, end - 1, -1, -1, self.log_start_offset, False, 0, 0)
        first = headers[0][1][BASE_OFFSET]
        last_header = headers[-1][1]
        last = last_header[BASE_OFFSET] + last_header[LAST_OFFSET_DELTA]
        if first < self.log_end_offset:
            if self.log_start_offset < self.log_end_offset or last < self.log_end_offset:
                raise UnexpectedOffsetError(
                    f"{self.tp} ends at {self.log_end_offset}, batches {first}..{last} came",
                    first,
                    last,
                )
            self.truncate_fully_and_start_at(first, self.log_start_offset)
        self._tail.clear()
        index = 0
        while index < len(headers):
            index = self._append_run(records, headers, index)
        return AppendInfo(
            first,
            last,
            max(header[MAX_TIMESTAMP] for _, header in headers),
            NO_TIMESTAMP,
            self.log_start_offset,
            False,
            headers[-1][0] + last_header[LENGTH] + LOG_OVERHEAD,
            sum(header[RECORD_COUNT] for _, header in headers),
        )

    def _append_run(
        self, records: memoryview, headers: list[tuple[int, Header]], index: int
    ) -> int:
        """Write as many batches as the active segment takes with one call; return the next."""
        at, header = headers[index]
        size = header[LENGTH] + LOG_OVERHEAD
        last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        now_ms = self._world.clock.wall_ms()
        if self.recovery_point_pending:
            self._lower_recovery_point()
        segment = self._segment_for(size, header[BASE_OFFSET], last, header[MAX_TIMESTAMP], now_ms)
        stop = index + 1
        end = at + size
        while stop < len(headers):
            _, header = headers[stop]
            next_end = end + header[LENGTH] + LOG_OVERHEAD
            last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            if segment.size + next_end - at > self._segment_bytes or last > segment.max_offset:
                break
            end = next_end
            stop += 1
        run = [(place - at, head) for place, head in headers[index:stop]]
        for place, head in run:
            if head[ATTRIBUTES] & CONTROL_FLAG:
                self._expect_marker(segment, records[at + place :])
        try:
            segment.append_run(records[at:end], run, self._index_interval)
        except OSError as error:
            raise self._fail(error, "append") from error
        for place, head in run:
            if head[LEADER_EPOCH] != self._latest_epoch and head[LEADER_EPOCH] >= 0:
                self.assign_epoch_start(head[LEADER_EPOCH], head[BASE_OFFSET])
            self.log_end_offset = head[BASE_OFFSET] + head[LAST_OFFSET_DELTA] + 1
            if head[PRODUCER_ID] >= 0:
                self._note_producer(segment, head, records[at + place :])
        self._appends += 1
        self._unflushed += sum(head[RECORD_COUNT] for _, head in run)
        self._flush_if_due()
        return stop

    def _check_producer(
        self, batch: memoryview, header: Header, origin: str, guard: object
    ) -> WrittenBatch | None:
        try:
            return check_producer(
                self.producers, self.segments, batch, header, guard, from_client=origin == CLIENT
            )
        except OSError as error:
            raise self._fail(error, "read") from error

    def _note_producer(self, segment: Segment, header: Header, batch: memoryview) -> None:
        done = apply_batch(self.producers, header, batch)
        if done is not None and done.aborted:
            try:
                segment.append_aborted(AbortedTransaction(*done[:3], done.last_stable_offset))
            except OSError as error:
                raise self._fail(error, "write of an aborted transaction") from error

    # Reading ---------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        upto_offset: int,
        min_one: bool = True,
        now: bool = False,
    ) -> LogRead:
        """Read whole batches from the one that holds `offset`, none that begins at `upto_offset`.

        From memory if they were appended lately; else from the file, CRCs checked.
        OffsetOutOfRangeError below the log start or beyond the log end; with `now`,
        NotInMemoryError where the disk would have to be waited for.
        """
        if self.failed is not None:
            raise self.failed
        end = self.log_end_offset
        if offset > end or offset < self.log_start_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.tp} is outside of "
                f"{self.log_start_offset}..{self.log_end_offset}"
            )
        upto_offset = min(upto_offset, end)
        if offset >= upto_offset:
            return LogRead([], 0, offset, False)
        tail = self._tail
        if tail.used:
            cached = tail.read(offset, max_bytes, upto_offset, min_one)
            if cached is not None:
                return LogRead(cached.parts, cached.size, offset, cached.too_small)
        return self._read_disk(offset, max_bytes, upto_offset, min_one, now)

    def _read_disk(
        self, offset: int, max_bytes: int, upto_offset: int, min_one: bool, now: bool
    ) -> LogRead:
        try:
            for segment in self.segments[self._segment_index(offset) :]:
                found = segment.read(offset, max_bytes, upto_offset, min_one, now)
                if found is not None:
                    if not (
                        len(found.data) or found.too_small or upto_offset < self.log_end_offset
                    ):
                        raise CorruptRecordError(f"{segment} of {self.tp} leaps over its end")
                    parts: list[Buffer] = [found.data] if len(found.data) else []
                    self._cold_reads += 1
                    self._tail.budget.misses += 1
                    return LogRead(parts, len(found.data), offset, found.too_small, from_file=True)
        except OSError as error:
            raise self._fail(error, "read") from error
        except CorruptRecordError as error:
            self.found_damage(offset, error)
            raise
        return LogRead([], 0, offset, False)

    def aborted_transactions(self, offset: int, upto_offset: int) -> list[AbortedTransaction]:
        """Return transactions aborted with records in [offset, upto_offset)."""
        found: list[AbortedTransaction] = []
        for index in range(self._segment_index(offset), len(self.segments)):
            try:
                entries = self.segments[index].aborted
            except CorruptIndexError as error:
                _logger.warning("aborted index rebuilt partition=%s error=%s", self.tp, error)
                entries = self._rebuild_aborted(index)
            more, complete = overlapping(entries, offset, upto_offset)
            found += more
            if complete:
                break
        return found

    def _rebuild_aborted(self, index: int) -> list[AbortedTransaction]:
        """Find a segment's aborted transactions again, from all batches before it."""
        segment = self.segments[index]
        segment.replace_aborted([])
        upto = self.segments[index + 1].base_offset if index + 1 < len(self.segments) else _NEVER
        drain(
            replaying(
                Producers(),
                self.segments[: index + 1],
                self.log_start_offset,
                min(upto, self.log_end_offset),
                segment.base_offset,
            )
        )
        return segment.aborted

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record with a timestamp of at least `timestamp`, None if there is none.

        On this thread; `time_search.find_by_timestamp` lets a worker read.
        """
        return time_search.run_now(time_search.find_by_timestamp(self, timestamp))

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp (ListOffsets -3), here and now."""
        return time_search.run_now(time_search.find_max_timestamp(self))

    # Epochs and offsets ----------------------------------------------------------------

    def epoch_entries(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) of every leader's term, oldest first."""
        return self.epochs.entries

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, its end offset), (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Note that the leader of `epoch` begins at `offset`; written with the next flush."""
        if epoch >= 0:
            self.epochs.assign(epoch, offset)
            self._latest_epoch = self.epochs.latest

    def set_high_watermark(self, offset: int) -> int:
        """Set the high watermark, kept between log start and log end; return what it is."""
        high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.high_watermark = high_watermark
        self.producers.on_high_watermark_updated(high_watermark)
        return high_watermark

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Let the log begin at `offset`; OffsetOutOfRangeError beyond the high watermark."""
        if self.failed is not None:
            raise self.failed
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"log start {offset} of {self.tp} would pass the high watermark "
                f"{self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self._latest_epoch = self.epochs.latest
        return True

    def copy_state_from(self, current: "Log") -> None:
        """Take the in-memory state of `current`, a log with the same records.

        That is its producers, with the guards of transactions under verification, and its epochs,
        also one in which nothing was written yet.
        """
        self.epochs = EpochCache(current.epochs.entries)
        self.epochs.changed = True
        self._latest_epoch = self.epochs.latest
        self.producers = current.producers
        self.cleaned_offset = current.cleaned_offset
        self.set_high_watermark(current.high_watermark)

    # Truncating ------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from the batch that holds `offset` on; tell whether anything went.

        The log then ends at `offset`, or where that batch began if `offset` lies within it: what
        a restart would find. Epochs are cut in any case: the last one may have begun at the log
        end without a record.
        """
        if self.failed is not None:
            raise self.failed
        assert offset >= 0, offset
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
            self._latest_epoch = self.epochs.latest
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        _logger.info(
            "truncated partition=%s from_offset=%d to_offset=%d",
            self.tp,
            self.log_end_offset,
            offset,
        )
        try:
            cut = self.segments[self._segment_index(offset)]
            _ = cut.file, cut.aborted  # opened before anything is changed (F45)
            while self.segments[-1] is not cut:
                self._delete_files([self.segments.pop()])
            self._active = cut
            began = self._active.truncate_to(offset)
            offset = min(offset, max(began, self.log_start_offset))
            self._write_pending_snapshots()
            self._drop_snapshots(lambda at: at <= offset)
            self.gaps.on_truncated(offset, self._active)
        except OSError as error:
            raise self._fail(error, "truncation") from error
        self._after_truncation(offset)
        self.epochs.truncate_from_end(offset)
        self._latest_epoch = self.epochs.latest
        self.log_start_offset = min(self.log_start_offset, offset)
        self._reload_producers()
        self.set_high_watermark(min(self.high_watermark, offset))
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything and begin again, empty, at `offset`."""
        if self.failed is not None:
            raise self.failed
        _logger.info("truncated fully partition=%s to_offset=%d", self.tp, offset)
        try:
            self._delete_files(self.segments)
            self.segments = [self._begin_at(offset)]
            self._active = self.segments[0]
            self._drop_snapshots(lambda _: False)
        except OSError as error:
            raise self._fail(error, "truncation") from error
        self.epochs.clear()
        self._latest_epoch = self.epochs.latest
        self.gaps.on_truncated(offset, self._active)
        self._after_truncation(offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.producers.clear()
        self.set_high_watermark(offset)

    def _after_truncation(self, offset: int) -> None:
        self.log_end_offset = offset
        self.truncations += 1
        self.cleaned_offset = min(self.cleaned_offset, offset)
        self._truncated = True
        self._tail.clear()
        self._roll_timestamp = _UNKNOWN
        self._unsynced_folders = [self.dir]
        if self.recovery_point > offset:
            self.recovery_point = offset
            self.recovery_point_pending = True
        if self.on_truncated is not None:
            self.on_truncated(self)

    def _lower_recovery_point(self) -> None:
        """Write the lowered recovery point: a crash must not count new records as flushed.

        Not when it is truncated: after an election that may be thousands of logs of one dir, and
        the first of them to be appended to has the point of each written.
        """
        self.recovery_point_pending = False
        if self.on_recovery_point_lowered is not None:
            self.on_recovery_point_lowered(self)
        if self.failed is not None:
            raise self.failed

    def _reload_producers(self) -> None:
        end = self.log_end_offset
        decided = {f: marker for f, marker in self.producers.unreplicated.items() if marker < end}
        start = drain(
            loading_snapshot(
                self.producers,
                self._files,
                self.dir,
                self._snapshots,
                self.log_start_offset,
                self._world.clock.wall_ms(),
            )
        )
        try:
            drain(replaying(self.producers, self.segments, start, end))
        except CorruptRecordError as error:
            self.note_damage(None, error)
        self.producers.add_unreplicated(decided)

    # Retention -------------------------------------------------------------------------

    def delete_old_segments(self, now_ms: int, *, now: bool = False) -> int:
        """Drop what retention allows, 32 segments at most; return how many went.

        NotInMemoryError with `now`, where the disk has to be waited for to know how old one is.
        """
        if self.failed is not None:
            raise self.failed
        some = self.segments[: MAX_SEGMENTS_AT_ONCE + 1]
        newer = self.segments[MAX_SEGMENTS_AT_ONCE + 1 :]
        try:
            expired = expired_segments(
                [
                    RetainedSegment(s.base_offset, s.size, partial(s.largest_timestamp, now=now))
                    for s in some
                ],
                Limits(self.config.retention_ms, self.config.retention_bytes),
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
                idle_ms=self._idle_ms(),
                delete_policy=self.config.delete,
                newer_bytes=sum(s.size for s in newer) if newer else None,
            )
            if not expired.count:
                return 0
            if expired.count == len(self.segments):
                self.roll()
            gone = self.segments[: expired.count]
            del self.segments[: expired.count]
            self._delete_files(gone)
            start = max(self.log_start_offset, self.segments[0].base_offset)
            self._drop_snapshots(lambda at: at >= start)
        except OSError as error:
            raise self._fail(error, "retention") from error
        self.log_start_offset = start
        self.epochs.truncate_from_start(start)
        self._latest_epoch = self.epochs.latest
        self._unsynced_folders = [self.dir]
        _logger.info(
            "segments deleted partition=%s count=%d reason=%s log_start_offset=%d",
            self.tp,
            expired.count,
            expired.reason,
            start,
        )
        return expired.count

    def _idle_ms(self) -> int:
        """Return how long nothing was appended, since the first call that found it so."""
        now_s = self._world.clock.monotonic()
        if self.log_end_offset != self._idle_at_offset:
            self._idle_at_offset = self.log_end_offset
            self._idle_since_s = now_s
        return int((now_s - self._idle_since_s) * 1000)

    def expire_producers(self, now_ms: int) -> int:
        return self.producers.expire(now_ms)
