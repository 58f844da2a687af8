"""One partition's log: append, read, truncate, retain.

Kafka: `UnifiedLog`. It contains a `LocalLog` (segments, log end), a `FlushState` (recovery point,
flush jobs) and what its records mean: producers, leader epochs, high watermark, log start, damage.
Everything is synchronous: an append with the move of the end offset is one step. fsync happens in
`FlushJob`s, which a worker may run; an append syncs only where flush.messages asks for it.
Invariants: log_start <= last_stable <= high_watermark <= log_end; offsets on disk only grow; after
the first OSError of a write, a truncation or an fsync the log is failed and refuses everything
(R12): a disk that failed once is not trusted again.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial

from ottla.log import checkpoints, damage, gap_bound
from ottla.log.aborted import AbortedTransaction, overlapping
from ottla.log.flush_job import FlushJob
from ottla.log.flush_state import FlushState, TopicIdFile
from ottla.log.index import MAX_RELATIVE_OFFSET, CorruptIndexError
from ottla.log.local_log import LocalLog
from ottla.log.producer_checks import check_producer, duplicate_of
from ottla.log.producer_snapshots import replaying
from ottla.log.producers import TRUSTED, Producers, WrittenBatch
from ottla.log.recovery import Known, Loaded, Loader
from ottla.log.results import (
    AppendInfo,
    LogRead,
    TimestampOffset,
    UnexpectedOffsetError,
    UnreadFormatError,
    is_shortage,
)
from ottla.log.retention import Limits, RetainedSegment, expired_segments
from ottla.log.segment import Segment
from ottla.log.slices import Steps
from ottla.log.tail import TailBudget
from ottla.log.transactions import UNREPLICATED_FILE, apply_batch, encode_unreplicated, read_marker
from ottla.log.validate import CLIENT, ValidationRules, check_follower_batches, check_leader_batch
from ottla.model.config import TopicConfig
from ottla.model.errors import (
    CorruptRecordError,
    ErrorCode,
    OffsetOutOfRangeError,
    OttlaError,
    OutOfDescriptorsError,
    StorageError,
)
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import Buffer, World
from ottla.model.protocol import NO_TIMESTAMP
from ottla.model.steps import drain
from ottla.wire.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_FLAG,
    CRC,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    RECORD_COUNT,
    Header,
    crc_matches,
    stamp,
    unpack_header,
)
from ottla.wire.record_check import UNLIMITED, Effort

__all__ = ["AppendInfo", "Log", "LogRead", "TimestampOffset", "UnexpectedOffsetError"]

_logger = logging.getLogger(__name__)

_NEVER = 2**63 - 1
MAX_SEGMENTS_AT_ONCE = 32
"""segments that retention deletes per call: four files of each are renamed"""


class Log:
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
        self.tp = tp
        self.config = config
        self.rules = ValidationRules(config)
        """what the topic's settings ask of a batch"""
        self._world = world
        self.local = LocalLog(
            world,
            folder,
            config,
            loaded.segments,
            loaded.log_end_offset,
            loaded.gaps,
            budget,
            fresh=loaded.fresh,
        )
        self.local.deleted_files = loaded.deleted_files
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self._snapshots = loaded.snapshots
        self.id_file = TopicIdFile(loaded.topic_id, clean=not loaded.may_be_incomplete)
        self.flush_state = FlushState(
            world, self.local, self.epochs, self._snapshots, self.id_file, loaded.recovery_point
        )
        self.log_start_offset = loaded.log_start_offset
        self.high_watermark = loaded.log_start_offset
        self.cleaned_offset = -1
        """the cleaner's checkpoint: below it the log is compacted; -1 if never"""
        self.cut_bytes = loaded.cut_bytes
        self.may_be_incomplete = loaded.may_be_incomplete
        """whether records may be missing at its end, as far as its files say"""
        self.marked_unclean = loaded.marked_unclean
        """whether a mark in its folder says so: it was not shown to be complete before (R18)"""
        self.corrupt_reads = 0
        """reads refused because a batch on disk failed its checksum (F20)"""
        self.damaged = loaded.damaged
        """the offsets found unreadable, None if there are none; empty if it is not known which"""
        self.damage_remembered = loaded.marked
        """whether the mark beside the log says what `damaged` says"""
        self.failed: StorageError | None = None
        self.on_failure: Callable[[Log, OSError], None] | None = None
        """called once, when this log fails"""
        self.on_damage: Callable[[Log], None] | None = None
        """called each time that more offsets are found unreadable"""
        self.on_recovery_point_lowered: Callable[[Log], None] | None = None
        """called before the first append at an offset where flushed records were truncated"""
        self.on_truncated: Callable[[Log], None] | None = None
        """called at each truncation"""
        self._has_unreplicated_file = loaded.has_unreplicated_file
        self._idle_since_s = world.clock.monotonic()
        self._idle_at_offset = self.log_end_offset

    @classmethod
    def opening(
        cls,
        tp: TopicPartition,
        folder: str,
        config: TopicConfig,
        world: World,
        known: Known,
        budget: TailBudget,
    ) -> "Steps[Log]":
        """Load the log of an existing folder, or begin an empty one in it; in slices.

        OSError means that the log dir is bad. Nothing else is wrong enough not to open, but a log
        with records of another format is offline: nothing of it was changed, and nothing will be
        (R21).
        """
        loader = Loader(tp, folder, world, config.index_interval_bytes, known)
        unread: UnreadFormatError | None = None
        try:
            loaded = loader.begin() if known.fresh else (yield from loader.loading())
        except UnreadFormatError as error:
            loaded, unread = loader.unread(), error
        log = cls(tp, folder, config, world, loaded, budget)
        if unread is not None:
            _logger.error("log offline partition=%s reason=%s", tp, unread)
            log.mark_offline(str(unread))
        log.cleaned_offset = known.cleaned_offset
        # A log that ends before its written point has lost what was there: what is appended in its
        # place must not count as flushed after the next crash.
        log.flush_state.recovery_point_pending = log.recovery_point < known.recovery_point
        return log

    def __repr__(self) -> str:
        return f"Log({self.tp}, {self.log_start_offset}..{self.log_end_offset})"

    # Facts -----------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.local.log_end_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is durable."""
        return self.flush_state.recovery_point

    @property
    def segments(self) -> list[Segment]:
        return self.local.segments

    @property
    def size(self) -> int:
        return self.local.size

    @property
    def dir(self) -> str:
        return self.local.dir

    @property
    def parent_dir(self) -> str:
        """The log dir it lies in."""
        return self.local.parent_dir

    @property
    def topic_id(self) -> bytes:
        """The id of the topic whose log this is, ZERO_UUID if it is not known."""
        return self.id_file.topic_id

    @property
    def topic_id_durable(self) -> bool:
        """Whether no power loss can take the topic id away."""
        return self.id_file.durable

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended (the bound of read_committed)."""
        first = self.producers.first_unstable_offset
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        return max(first, self.log_start_offset)

    def update_config(self, config: TopicConfig) -> None:
        """Take new topic settings; in force from the next append on."""
        self.config = config
        self.rules = ValidationRules(config)
        self.local.update_config(config)

    # Failure and damage ----------------------------------------------------------------

    def fail(self, error: OSError, doing: str) -> OttlaError:
        """Take the log offline for good and call `on_failure`; return what to raise.

        Not where descriptors ran out: nothing was done then, and it can be tried again (F45).
        """
        if is_shortage(error):
            return OutOfDescriptorsError(f"{doing} of {self.tp}: {error.strerror}")
        first = self.failed is None
        failure = self.mark_offline(f"{doing} failed: {error}")
        if first:
            _logger.error(
                "log failed partition=%s dir=%s operation=%s error=%s",
                self.tp,
                self.dir,
                doing,
                error,
            )
            if self.on_failure is not None:
                self.on_failure(self, error)
        return failure

    @contextlib.contextmanager
    def _offline_on_error(self, doing: str) -> Iterator[None]:
        """Refuse to begin on a failed log; an OSError fails it."""
        if self.failed is not None:
            raise self.failed
        try:
            yield
        except OSError as error:
            raise self.fail(error, doing) from error

    def mark_offline(self, reason: str) -> StorageError:
        """Refuse everything from now on; idempotent."""
        if self.failed is None:
            self.failed = StorageError(f"{self.tp} in {self.dir} is offline: {reason}")
            self.local.tail.clear()
        return self.failed

    def found_damage(self, offset: int, error: CorruptRecordError) -> None:
        """Count a read that failed at `offset`."""
        self.corrupt_reads += 1
        self.note_damage(offset, error)

    def note_damage(self, offset: int | None, error: CorruptRecordError) -> None:
        """Remember that `offset` cannot be read; log it once and call `on_damage` (F20).

        None if something cannot be read, but not what.
        """
        known = self.damaged or ()
        if offset is None:
            if self.damaged is not None:
                return
            self.damaged = known
            _logger.error("corrupt record partition=%s error=%s", self.tp, error)
        elif any(first <= offset < end for first, end in known):
            return
        else:
            with self._offline_on_error("read"):
                first, end = self.local.damaged_range(offset)
            self.damaged = damage.with_range(known, first, end)
            _logger.error(
                "corrupt record partition=%s offset=%d unreadable=%d..%d error=%s",
                self.tp,
                offset,
                first,
                end - 1,
                error,
            )
        self.damage_remembered = False
        if self.on_damage is not None:
            self.on_damage(self)

    def check_memory(self, offset: int, max_bytes: int) -> None:
        """Read from the files again if what is in memory from `offset` on has changed (F20)."""
        tail = self.local.tail
        cached = tail.read(offset, max_bytes, self.log_end_offset, True)
        if cached is not None and not all(
            crc_matches(memoryview(part), unpack_header(part, 0)[CRC]) for part in cached.parts
        ):
            self.corrupt_reads += 1
            _logger.error("corrupt record in memory partition=%s offset=%d", self.tp, offset)
            tail.clear()

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
        batch, header = checked or check_leader_batch(records, self.rules, origin, now_ms, effort)
        producer_id = header[PRODUCER_ID]
        if producer_id >= 0:
            repeated = self._check_producer(batch, header, origin, guard)
            if repeated is not None:
                return duplicate_of(repeated, self.log_start_offset, header[RECORD_COUNT])
        local, config = self.local, self.config
        first = local.log_end_offset
        last = first + header[LAST_OFFSET_DELTA]
        size = len(batch)
        max_timestamp = header[MAX_TIMESTAMP]
        segment = local.active
        if (
            segment.size + size > config.segment_bytes
            or max_timestamp > local.roll_timestamp
            or last > segment.max_offset
        ):
            if self.flush_state.recovery_point_pending:
                self._lower_recovery_point()
            segment = self._segment_for(size, first, last, max_timestamp, now_ms)
        if header[ATTRIBUTES] & CONTROL_FLAG:
            self._expect_marker(segment, batch)
        stamp(batch, first, header[LENGTH], leader_epoch)
        try:
            local.append(batch, first, last, max_timestamp)
        except OSError as error:
            raise self.fail(error, "append") from error
        if leader_epoch != self.epochs.latest:
            self.assign_epoch_start(leader_epoch, first)
        if producer_id >= 0:
            self._note_producer(segment, (first, *header[1:]), batch)
        count = header[RECORD_COUNT]
        if self.flush_state.appended(count) >= config.flush_messages:
            self.flush()
        return AppendInfo(
            first,
            last,
            max_timestamp,
            max_timestamp if self.rules.log_append_time else NO_TIMESTAMP,
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
        self.local.tail.clear()
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
        if self.flush_state.recovery_point_pending:
            self._lower_recovery_point()
        segment = self._segment_for(size, header[BASE_OFFSET], last, header[MAX_TIMESTAMP], now_ms)
        stop = index + 1
        end = at + size
        while stop < len(headers):
            _, header = headers[stop]
            next_end = end + header[LENGTH] + LOG_OVERHEAD
            last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            if (
                segment.size + next_end - at > self.config.segment_bytes
                or last > segment.max_offset
            ):
                break
            end = next_end
            stop += 1
        run = [(place - at, head) for place, head in headers[index:stop]]
        for place, head in run:
            if head[ATTRIBUTES] & CONTROL_FLAG:
                self._expect_marker(segment, records[at + place :])
        try:
            self.local.append_run(records[at:end], run)
        except OSError as error:
            raise self.fail(error, "append") from error
        for place, head in run:
            if head[LEADER_EPOCH] != self.epochs.latest:
                self.assign_epoch_start(head[LEADER_EPOCH], head[BASE_OFFSET])
            if head[PRODUCER_ID] >= 0:
                self._note_producer(segment, head, records[at + place :])
        count = sum(head[RECORD_COUNT] for _, head in run)
        if self.flush_state.appended(count) >= self.config.flush_messages:
            self.flush()
        return stop

    def _segment_for(
        self, size: int, first: int, last: int, max_timestamp: int, now_ms: int
    ) -> Segment:
        """Return the segment to append to, after a roll if one is due; set the roll's clock."""
        if size > self.config.segment_bytes:
            raise OttlaError(
                f"a batch of {size} bytes exceeds segment.bytes={self.config.segment_bytes}",
                ErrorCode.RECORD_LIST_TOO_LARGE,
            )
        segment = self.local.active
        if segment.size:
            try:
                due = self.local.roll_is_due(size, last, max_timestamp, now_ms)
            except OSError as error:
                raise self.fail(error, "look at the active segment") from error
            if due:
                # At the log end, even if a gap (compaction) precedes the batch: a segment that
                # begins elsewhere is how recovery sees that records between are lost.
                near = last - self.log_end_offset <= MAX_RELATIVE_OFFSET
                segment = self.roll(self.log_end_offset if near else first)
        elif last > segment.max_offset or first < segment.base_offset:
            segment = self.roll(first)
        if segment.size == 0:
            self.local.begin_segment(max_timestamp)
        return segment

    def roll(self, base_offset: int | None = None) -> Segment:
        """Begin a new segment at the log end (or at `base_offset` beyond it)."""
        local = self.local
        base = local.log_end_offset if base_offset is None else base_offset
        empty = not local.active.size
        if empty and local.active.base_offset == base:
            return local.active
        if local.truncation_unsynced:
            # A new file could outlive a power loss that brings truncated records back.
            self.flush()
        self._allow_gap_before(base)
        with self._offline_on_error("roll"):
            local.roll(base)
        if not empty:
            self._snapshots.take(base, self.producers)
        return local.active

    def _allow_gap_before(self, base_offset: int) -> None:
        """Make the gap bound durable before a segment is created.

        Mostly a flush has done so before: only here the event loop waits for the disk.
        """
        gaps = self.local.gaps
        if base_offset > self.log_end_offset or base_offset == gaps.gap_before:
            self.flush()
            gaps.raise_to(base_offset)
        if gaps.unwritten:
            self._run(self.prepare_write(gap_bound.NAME, gap_bound.encode(gaps.upto)))

    def _expect_marker(self, segment: Segment, batch: memoryview) -> None:
        """Open what noting an aborted transaction needs: once its marker is written, it must be."""
        marker = read_marker(batch)
        if marker is not None and marker.aborted:
            with self._offline_on_error("open of the index of aborted transactions"):
                segment.open_aborted()

    def _check_producer(
        self, batch: memoryview, header: Header, origin: str, guard: object
    ) -> WrittenBatch | None:
        try:
            return check_producer(
                self.producers, self.segments, batch, header, guard, from_client=origin == CLIENT
            )
        except OSError as error:
            raise self.fail(error, "read") from error

    def _note_producer(self, segment: Segment, header: Header, batch: memoryview) -> None:
        done = apply_batch(self.producers, header, batch)
        if done is not None and done.aborted:
            with self._offline_on_error("write of an aborted transaction"):
                segment.append_aborted(AbortedTransaction(*done[:3], done.last_stable_offset))

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
        local = self.local
        end = local.log_end_offset
        if offset > end or offset < self.log_start_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.tp} is outside of {self.log_start_offset}..{end}"
            )
        upto_offset = min(upto_offset, end)
        if offset >= upto_offset:
            return LogRead([], 0, offset, False)
        tail = local.tail
        if tail.used:
            cached = tail.read(offset, max_bytes, upto_offset, min_one)
            if cached is not None:
                return LogRead(cached.parts, cached.size, offset, cached.too_small)
        return self._read_disk(offset, max_bytes, upto_offset, min_one, now)

    def _read_disk(
        self, offset: int, max_bytes: int, upto_offset: int, min_one: bool, now: bool
    ) -> LogRead:
        try:
            found = self.local.read(offset, max_bytes, upto_offset, min_one, now)
        except OSError as error:
            raise self.fail(error, "read") from error
        except CorruptRecordError as error:
            self.found_damage(offset, error)
            raise
        if found is None:
            return LogRead([], 0, offset, False)
        parts: list[Buffer] = [found.data] if len(found.data) else []
        return LogRead(parts, len(found.data), offset, found.too_small, from_file=True)

    def aborted_transactions(self, offset: int, upto_offset: int) -> list[AbortedTransaction]:
        """Return transactions aborted with records in [offset, upto_offset)."""
        found: list[AbortedTransaction] = []
        for index in range(self.local.segment_index(offset), len(self.segments)):
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

    # Epochs and offsets ----------------------------------------------------------------

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, its end offset), (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Note that the leader of `epoch` begins at `offset`; written with the next flush."""
        if epoch >= 0:
            self.epochs.assign(epoch, offset)

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
        return True

    def copy_state_from(self, current: "Log") -> None:
        """Take the in-memory state of `current`, a log with the same records.

        That is its producers, with the guards of transactions under verification, and its epochs,
        also one in which nothing was written yet.
        """
        self.epochs.replace(current.epochs.entries)
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
        with self._offline_on_error("truncation"):
            end = self.local.truncate_to(offset, self.log_start_offset)
            self._snapshots.write_pending()
            self._snapshots.keep_only(lambda at: at <= end)
        self._after_truncation()
        self.epochs.truncate_from_end(end)
        self.log_start_offset = min(self.log_start_offset, end)
        self._reload_producers()
        self.set_high_watermark(min(self.high_watermark, end))
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything and begin again, empty, at `offset`."""
        _logger.info("truncated fully partition=%s to_offset=%d", self.tp, offset)
        with self._offline_on_error("truncation"):
            self.local.truncate_fully_and_start_at(offset)
            self._snapshots.keep_only(lambda _: False)
        self.epochs.clear()
        self._after_truncation()
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.producers.clear()
        self.set_high_watermark(offset)

    def _after_truncation(self) -> None:
        end = self.log_end_offset
        self.cleaned_offset = min(self.cleaned_offset, end)
        self.flush_state.truncated(end)
        if self.on_truncated is not None:
            self.on_truncated(self)

    def _lower_recovery_point(self) -> None:
        """Write the lowered recovery point: a crash must not count new records as flushed.

        Not when it is truncated: after an election that may be thousands of logs of one dir, and
        the first of them to be appended to has the point of each written.
        """
        self.flush_state.recovery_point_pending = False
        if self.on_recovery_point_lowered is not None:
            self.on_recovery_point_lowered(self)
        if self.failed is not None:
            raise self.failed

    def _reload_producers(self) -> None:
        end = self.log_end_offset
        decided = {f: marker for f, marker in self.producers.unreplicated.items() if marker < end}
        now_ms = self._world.clock.wall_ms()
        loading = self._snapshots.loading(self.producers, end, self.log_start_offset, now_ms)
        start = drain(loading)
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
        some = self.segments[: MAX_SEGMENTS_AT_ONCE + 1]
        newer = self.segments[MAX_SEGMENTS_AT_ONCE + 1 :]
        with self._offline_on_error("retention"):
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
            self.local.delete_oldest(expired.count)
            start = max(self.log_start_offset, self.segments[0].base_offset)
            self._snapshots.keep_only(lambda at: at >= start)
        self.log_start_offset = start
        self.epochs.truncate_from_start(start)
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

    def replace_segments(self, old: list[Segment], size: int, suffixes: list[str]) -> None:
        """As `LocalLog.replace_segments`; snapshots within the cleaned segments go."""
        with self._offline_on_error("swap of cleaned segments"):
            self.local.replace_segments(old, size, suffixes)
            gone = {segment.base_offset for segment in old[1:]}
            self._snapshots.keep_only(lambda offset: offset not in gone)

    # Topic id and place ----------------------------------------------------------------

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Remember whose data this is, before the first record is written."""
        assert topic_id != ZERO_UUID
        if self.topic_id == topic_id:
            return
        if self.topic_id != ZERO_UUID:
            raise OttlaError(
                f"{self.tp} belongs to another topic id", ErrorCode.INCONSISTENT_TOPIC_ID
            )
        with self._offline_on_error("write of partition.metadata"):
            self.id_file.write(self._world.files, self.dir, topic_id)

    def relocate(self, folder: str) -> None:
        """Use this path from now on: the folder was renamed to it."""
        self.local.relocate(folder)
        self._snapshots.folder = folder

    # Flushing and closing --------------------------------------------------------------

    def prepare_flush(self, upto: int | None = None) -> FlushJob | None:
        """Return what must be made durable for offsets below `upto`, None if nothing."""
        if self.failed is not None:
            raise self.failed
        return self.flush_state.prepare(upto)

    def prepare_truncation(self) -> FlushJob | None:
        """Return a job that makes the log's end durable after it was cut, None if it is."""
        with self._offline_on_error("open after a truncation"):
            return self.flush_state.prepare_truncation()

    def prepare_topic_id(self) -> FlushJob | None:
        """Return what makes the topic id durable, None if it is already or there is none."""
        if self.topic_id_durable or self.topic_id == ZERO_UUID:
            return None
        job = self.prepare_write(checkpoints.PARTITION_METADATA, self.id_file.encoded())
        self.id_file.taken_by(job, self.dir)
        return job

    def prepare_write(self, name: str, data: bytes) -> FlushJob:
        """Return a job that only writes one more file into this log's folder, durably."""
        if self.failed is not None:
            raise self.failed
        return self.flush_state.prepare_write(name, data)

    def prepare_close(self) -> FlushJob | None:
        """Return the job that writes what a clean stop leaves: indexes, snapshots, epochs."""
        if self.failed is not None:
            return None
        self._snapshots.take(self.log_end_offset, self.producers)
        with self._offline_on_error("close"):
            return self.flush_state.prepare(closing=self._unreplicated_file())

    def _unreplicated_file(self) -> list[tuple[str, bytes]]:
        """Return the file to write for unreplicated transactions, as (path, bytes).

        Empty if there are none; an older file is then removed.
        """
        path = f"{self.dir}/{UNREPLICATED_FILE}"
        if self.producers.unreplicated:
            return [(path, encode_unreplicated(self.log_end_offset, self.producers.unreplicated))]
        if self._has_unreplicated_file:
            with contextlib.suppress(FileNotFoundError):
                self._world.files.remove(path)
        return []

    def complete_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        """Move the recovery point after the job ran, or fail the log if it did not."""
        try:
            self.flush_state.complete(job, error, may_retry=self.failed is None)
        except OSError as failure:
            raise self.fail(failure, "flush") from failure

    def flush(self, upto: int | None = None) -> None:
        """Make everything below `upto` durable, here and now; for workers see `prepare_flush`."""
        job = self.prepare_flush(upto)
        if job is not None:
            self._run(job)

    def _run(self, job: FlushJob) -> None:
        try:
            job.run()
        except OSError as error:
            self.complete_flush(job, error)
        self.complete_flush(job)

    def close(self) -> None:
        """Close cleanly: after it, and with the clean marker, a start needs no recovery."""
        job = self.prepare_close()
        if job is not None:
            self._run(job)
        self.abandon()

    def abandon(self) -> None:
        """Release descriptors and memory without writing anything."""
        self.local.close()
        self.mark_offline("closed")
