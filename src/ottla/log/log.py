"""One partition's log: append, read, truncate, roll, flush.

Who may call: `replication.partition`, the coordinators (through it) and `manager`. Answers to
Kafka's `UnifiedLog` and `LocalLog`. Everything is synchronous: an append with the move of the end
offset is one step. Invariants: log_start <= last_stable <= high_watermark <= log_end; offsets on
disk only grow; after the first OSError of a write, a truncation or an fsync the log is failed and
refuses everything (R12) - a disk that lied once is not asked again. fsync happens in `FlushJob`s,
which a worker may run; an append syncs only where flush.messages asks for it.
"""

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from google_crc32c import value as crc32c

from ottla.log import checkpoints
from ottla.log.aborted import AbortedTransaction, overlapping
from ottla.log.epochs import EpochCache
from ottla.log.flush import FlushJob
from ottla.log.index import CorruptIndexError
from ottla.log.producers import CRC_COVERS_FROM, Producers, WrittenBatch, encode_snapshot
from ottla.log.recovery import Loader, load_snapshot, replay
from ottla.log.retention import Limits, SegmentFacts, expired_segments
from ottla.log.segment import Segment, file_name
from ottla.log.tail import TailBudget, TailCache
from ottla.log.transactions import apply_batch, read_marker
from ottla.log.validate import (
    ATTRIBUTES,
    BASE,
    BASE_SEQUENCE,
    BATCH_OVERHEAD,
    CLIENT,
    CONTROL,
    COUNT,
    LAST_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAX_TS,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    Header,
    Rules,
    check_follower_batches,
    check_leader_batch,
    stamp,
)
from ottla.model.config import TopicConfig
from ottla.model.errors import (
    ErrorCode,
    OffsetOutOfRangeError,
    OttlaError,
    StorageError,
)
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import Buffer, World
from ottla.wire.records import iter_records

_logger = logging.getLogger(__name__)

_NEVER = 2**63 - 1
_UNKNOWN = -2
NO_TIMESTAMP = -1


class AppendInfo(NamedTuple):
    """What an append did. For a duplicate the offsets are those of the batch it repeats."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool
    bytes: int
    count: int  # type: ignore[assignment]


class LogRead(NamedTuple):
    """Whole batches from the one that holds `start_offset` on.

    `first_batch_incomplete` tells that there is data but `max_bytes` holds not one batch of it.
    """

    parts: list[Buffer]
    size: int
    start_offset: int
    first_batch_incomplete: bool


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch that wrote it."""

    timestamp: int
    offset: int
    leader_epoch: int


class UnexpectedOffsetError(OttlaError):
    """A follower was given batches that begin before its log end; nothing was appended."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class Log:
    """A partition's log."""

    def __init__(
        self,
        tp: TopicPartition,
        folder: str,
        config: TopicConfig,
        world: World,
        loader: Loader,
        *,
        budget: TailBudget,
        on_failure: Callable[["Log", OSError], None] | None,
        on_recovery_point_lowered: Callable[["Log"], None] | None,
    ) -> None:
        self.tp = tp
        self.dir = folder
        self._world = world
        self._files = world.files
        self._on_failure = on_failure
        self._on_recovery_point_lowered = on_recovery_point_lowered
        self.failed: StorageError | None = None
        loaded = loader.load()
        self.segments = loaded.segments
        self._active = loaded.segments[-1]
        self.epochs: EpochCache = loaded.epochs
        self.producers: Producers = loaded.producers
        self._snapshots = loaded.snapshots
        self.topic_id = loaded.topic_id
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.cut_bytes = loaded.cut_bytes
        self.high_watermark = loaded.log_start_offset
        self._changed = loaded.changed
        self._folder_unsynced = loaded.changed
        self._unflushed = 0
        self._unflushed_since_s: float | None = None
        self._last_append_s = world.clock.monotonic()
        self._roll_timestamp = _UNKNOWN
        self._latest_epoch = self.epochs.latest
        self.truncations = 0
        """grows with every truncation: what was read by a worker before is worth nothing"""
        self._tail = TailCache(budget)
        self._metadata_unsynced = False
        self.deleted_files: list[str] = []
        """renamed to .deleted; the manager removes them after file.delete.delay.ms"""
        self._cold_reads = 0
        self._appends = 0
        self.update_config(config)

    @classmethod
    def open(
        cls,
        tp: TopicPartition,
        dir_path: str,
        config: TopicConfig,
        world: World,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        budget: TailBudget | None = None,
        producer_expiration_ms: int = 86_400_000,
        on_failure: Callable[["Log", OSError], None] | None = None,
        on_recovery_point_lowered: Callable[["Log"], None] | None = None,
    ) -> "Log":
        """Load the log of an existing folder, or begin an empty one in it.

        OSError means the log dir is bad; nothing else is wrong enough not to open.
        """
        loader = Loader(
            tp,
            dir_path,
            world,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            producer_expiration_ms=producer_expiration_ms,
            index_interval=config.index_interval_bytes,
        )
        return cls(
            tp,
            dir_path,
            config,
            world,
            loader,
            budget=budget or TailBudget(),
            on_failure=on_failure,
            on_recovery_point_lowered=on_recovery_point_lowered,
        )

    def __repr__(self) -> str:
        return f"Log({self.tp}, {self.log_start_offset}..{self.log_end_offset})"

    # Facts -----------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch with a known start, -1 if none."""
        return self._latest_epoch

    @property
    def size(self) -> int:
        return sum(s.size for s in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided (read_committed's bound)."""
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
            "truncations": self.truncations,
        }

    def update_config(self, config: TopicConfig) -> None:
        self.config = config
        self._rules = Rules(config)
        self._index_interval = config.index_interval_bytes
        self._segment_bytes = config.segment_bytes
        self._max_index_entries = max(config.segment_index_bytes // 12, 1)
        self._flush_messages = config.flush_messages
        self._roll_timestamp = _UNKNOWN

    # Failure ---------------------------------------------------------------------------

    def _fail(self, error: OSError, doing: str) -> StorageError:
        """Take the log offline for good and tell who must know; return what to raise."""
        first = self.failed is None
        failure = self.mark_offline(f"{doing} failed: {error}")
        if first:
            _logger.error(
                "log failed tp=%s dir=%s doing=%s error=%s", self.tp, self.dir, doing, error
            )
            if self._on_failure is not None:
                self._on_failure(self, error)
        return failure

    def mark_offline(self, reason: str) -> StorageError:
        """Refuse everything from now on; idempotent."""
        if self.failed is None:
            self.failed = StorageError(f"{self.tp} in {self.dir} is offline: {reason}")
            self._tail.clear()
        return self.failed

    # Appending -------------------------------------------------------------------------

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, now_ms: int, *, origin: str = CLIENT
    ) -> AppendInfo:
        """Append one batch; its buffer is patched in place and must not be reused by the caller."""
        if self.failed is not None:
            raise self.failed
        batch, header = check_leader_batch(records, self._rules, origin, now_ms)
        producer_id = header[PRODUCER_ID]
        if producer_id >= 0:
            repeated = self._check_producer(batch, header, origin)
            if repeated is not None:
                return self._duplicate(repeated, header[COUNT])
        first = self.log_end_offset
        last = first + header[LAST_DELTA]
        size = len(batch)
        max_timestamp = header[MAX_TS]
        segment = self._active
        if (
            segment.size + size > self._segment_bytes
            or max_timestamp > self._roll_timestamp
            or last > segment.max_offset
        ):
            segment = self._segment_for(size, first, last, max_timestamp, now_ms)
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
        count = header[COUNT]
        self._note_unflushed(count)
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
        first = headers[0][1][BASE]
        last_header = headers[-1][1]
        last = last_header[BASE] + last_header[LAST_DELTA]
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
            max(header[MAX_TS] for _, header in headers),
            NO_TIMESTAMP,
            self.log_start_offset,
            False,
            headers[-1][0] + last_header[LENGTH] + BATCH_OVERHEAD,
            sum(header[COUNT] for _, header in headers),
        )

    def _append_run(
        self, records: memoryview, headers: list[tuple[int, Header]], index: int
    ) -> int:
        """Write as many batches as the active segment takes with one call; return the next."""
        at, header = headers[index]
        size = header[LENGTH] + BATCH_OVERHEAD
        last = header[BASE] + header[LAST_DELTA]
        now_ms = self._world.clock.wall_ms()
        segment = self._segment_for(size, header[BASE], last, header[MAX_TS], now_ms)
        stop = index + 1
        end = at + size
        while stop < len(headers):
            _, header = headers[stop]
            next_end = end + header[LENGTH] + BATCH_OVERHEAD
            last = header[BASE] + header[LAST_DELTA]
            if segment.size + next_end - at > self._segment_bytes or last > segment.max_offset:
                break
            end = next_end
            stop += 1
        run = [(place - at, head) for place, head in headers[index:stop]]
        try:
            segment.append_run(records[at:end], run, self._index_interval)
        except OSError as error:
            raise self._fail(error, "append") from error
        for place, head in run:
            if head[LEADER_EPOCH] != self._latest_epoch and head[LEADER_EPOCH] >= 0:
                self.assign_epoch_start(head[LEADER_EPOCH], head[BASE])
            self.log_end_offset = head[BASE] + head[LAST_DELTA] + 1
            if head[PRODUCER_ID] >= 0:
                self._note_producer(segment, head, records[at + place :])
        self._appends += 1
        self._note_unflushed(sum(head[COUNT] for _, head in run))
        return stop

    def _check_producer(
        self, batch: memoryview, header: Header, origin: str
    ) -> WrittenBatch | None:
        attributes = header[ATTRIBUTES]
        if attributes & CONTROL:
            marker = read_marker(batch)
            if marker is not None:
                self.producers.check_marker(
                    header[PRODUCER_ID], header[PRODUCER_EPOCH], marker.coordinator_epoch
                )
            return None
        return self.producers.check(
            header[PRODUCER_ID],
            header[PRODUCER_EPOCH],
            header[BASE_SEQUENCE],
            header[COUNT],
            bool(attributes & TRANSACTIONAL),
            origin == CLIENT,
        )

    def _duplicate(self, repeated: WrittenBatch, count: int) -> AppendInfo:
        return AppendInfo(
            repeated.first_offset,
            repeated.last_offset,
            repeated.timestamp,
            repeated.timestamp if self._rules.log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            True,
            0,
            count,
        )

    def _note_producer(self, segment: Segment, header: Header, batch: memoryview) -> None:
        done = apply_batch(self.producers, header, batch)
        if done is not None and done.aborted:
            try:
                segment.note_aborted(AbortedTransaction(*done[:3], done.last_stable_offset))
            except OSError as error:
                raise self._fail(error, "write of an aborted transaction") from error

    def _note_unflushed(self, count: int) -> None:
        if not self._unflushed:
            self._unflushed_since_s = self._world.clock.monotonic()
        self._unflushed += count
        if self._unflushed >= self._flush_messages:
            self.flush()

    def _segment_for(
        self, size: int, first: int, last: int, max_timestamp: int, now_ms: int
    ) -> Segment:
        """Return the segment to append to, after a roll if one is due; set the roll's clock."""
        if size > self._segment_bytes:
            raise OttlaError(
                f"a batch of {size} bytes exceeds segment.bytes={self._segment_bytes}",
                ErrorCode.RECORD_LIST_TOO_LARGE,
            )
        segment = self._active
        if segment.size:
            if self._roll_timestamp == _UNKNOWN:
                self._roll_timestamp = self._roll_time(segment.first_batch_timestamp())
            full = segment.size + size > self._segment_bytes or last > segment.max_offset
            waited = max_timestamp > self._roll_timestamp or (
                segment.first_batch_timestamp() < 0
                and now_ms - segment.created_ms > self.config.segment_ms
            )
            if full or waited or len(segment.offsets) >= self._max_index_entries:
                segment = self.roll(first)
        elif last > segment.max_offset or first < segment.base_offset:
            segment = self._replace_empty(first)
        if segment.size == 0:
            self._roll_timestamp = self._roll_time(max_timestamp)
        return segment

    def _roll_time(self, first_timestamp: int) -> int:
        """Return the timestamp after which a batch begins a new segment (segment.ms)."""
        if first_timestamp < 0:
            return _NEVER
        jitter = self.config.segment_jitter_ms
        if jitter:
            jitter = int(self._world.random.random() * min(jitter, self.config.segment_ms))
        return first_timestamp + self.config.segment_ms - jitter

    # Segments --------------------------------------------------------------------------

    def roll(self, base_offset: int | None = None) -> Segment:
        """Begin a new segment at the log end (or at `base_offset` beyond it)."""
        base = self.log_end_offset if base_offset is None else base_offset
        active = self._active
        if active.size == 0:
            return active if active.base_offset == base else self._replace_empty(base)
        try:
            active.write_indexes()
            segment = Segment.create(self._files, self.dir, base, self._world.clock.wall_ms())
            self._write_snapshot(base)
        except OSError as error:
            raise self._fail(error, "roll") from error
        self.segments.append(segment)
        self._active = segment
        self._roll_timestamp = _UNKNOWN
        self._folder_unsynced = True
        return segment

    def _replace_empty(self, base_offset: int) -> Segment:
        """Put an empty segment of another base offset in the place of the empty active one."""
        old = self.segments.pop()
        assert old.size == 0, old
        try:
            old.close()
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(old.path(".log"))
            segment = Segment.create(
                self._files, self.dir, base_offset, self._world.clock.wall_ms()
            )
        except OSError as error:
            raise self._fail(error, "roll") from error
        self.segments.append(segment)
        self._active = segment
        self._roll_timestamp = _UNKNOWN
        self._folder_unsynced = True
        return segment

    def _write_snapshot(self, offset: int) -> None:
        """Write the producers as they are at `offset`, unless there is such a snapshot."""
        if offset == 0 or (self._snapshots and self._snapshots[-1] >= offset):
            return
        data = encode_snapshot(self.producers.producers.values())
        data[2:6] = crc32c(bytes(data[CRC_COVERS_FROM:])).to_bytes(4, "big")
        file = self._files.open(f"{self.dir}/{file_name(offset, '.snapshot')}", create=True)
        file.truncate(0)
        file.pwrite((data,), 0)
        self._active.unsynced.append(file)
        self._snapshots.append(offset)

    def _drop_snapshots(self, keep: Callable[[int], bool]) -> None:
        for offset in self._snapshots:
            if not keep(offset):
                with contextlib.suppress(FileNotFoundError):
                    self._files.remove(f"{self.dir}/{file_name(offset, '.snapshot')}")
        self._snapshots = [o for o in self._snapshots if keep(o)]

    def _segment_index(self, offset: int) -> int:
        """Return the index of the segment whose range holds `offset`."""
        return max(bisect_right(self.segments, offset, key=lambda s: s.base_offset) - 1, 0)

    def release_idle(self) -> None:
        """Drop loaded indexes of segments nobody read lately."""
        for segment in self.segments[:-1]:
            segment.release()

    # Reading ---------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upto_offset: int, min_one: bool = True) -> LogRead:
        """Read whole batches from the one that holds `offset`, none that begins at `upto_offset`.

        From memory if they were appended lately; else from the file, CRCs checked.
        OffsetOutOfRangeError below the log start or beyond the log end.
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
        return self._read_disk(offset, max_bytes, upto_offset, min_one)

    def _read_disk(self, offset: int, max_bytes: int, upto_offset: int, min_one: bool) -> LogRead:
        self._cold_reads += 1
        try:
            for segment in self.segments[self._segment_index(offset) :]:
                found = segment.read(offset, max_bytes, upto_offset, min_one)
                if found is not None:
                    parts: list[Buffer] = [found.data] if len(found.data) else []
                    return LogRead(parts, len(found.data), offset, found.too_small)
        except OSError as error:
            raise self._fail(error, "read") from error
        return LogRead([], 0, offset, False)

    def aborted_transactions(self, offset: int, upto_offset: int) -> list[AbortedTransaction]:
        """Return transactions aborted with records in [offset, upto_offset)."""
        found: list[AbortedTransaction] = []
        for index in range(self._segment_index(offset), len(self.segments)):
            try:
                entries = self.segments[index].aborted
            except CorruptIndexError as error:
                _logger.warning("aborted index rebuilt tp=%s reason=%s", self.tp, error)
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
        replay(
            Producers(),
            self.segments[: index + 1],
            self.log_start_offset,
            min(upto, self.log_end_offset),
            segment.base_offset,
        )
        return segment.aborted

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record at least as young as `timestamp`, None if there is none."""
        if self.failed is not None:
            raise self.failed
        try:
            for segment in self.segments:
                if segment.size and segment.max_timestamp >= timestamp:
                    found = self._search_segment(segment, timestamp)
                    if found is not None:
                        return found
        except OSError as error:
            raise self._fail(error, "read") from error
        return None

    def _search_segment(self, segment: Segment, timestamp: int) -> TimestampOffset | None:
        start = max(segment.times.lookup(timestamp), self.log_start_offset)
        place = segment.find(start)
        if place is None:
            return None
        for _, header, batch in segment.batches(place[0]):
            if header[MAX_TS] < timestamp:
                continue
            for record in iter_records(batch):
                if record.timestamp >= timestamp and record.offset >= self.log_start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header[LEADER_EPOCH])
        return None

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp (ListOffsets -3)."""
        if self.failed is not None:
            raise self.failed
        best = max((s.max_timestamp for s in self.segments if s.size), default=NO_TIMESTAMP)
        return self.offset_for_timestamp(best) if best >= 0 else None

    # Epochs and offsets ----------------------------------------------------------------

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
        self.producers.on_high_watermark(high_watermark)
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

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Remember whose data this is; the id is on disk before the first record is."""
        assert topic_id != ZERO_UUID
        if self.topic_id == topic_id:
            return
        if self.topic_id != ZERO_UUID:
            raise OttlaError(
                f"{self.tp} belongs to another topic id", ErrorCode.INCONSISTENT_TOPIC_ID
            )
        # Not synced here: 2,000 new partitions must not wait for 2,000 fsyncs. The first flush
        # job syncs it, before any recovery point moves.
        path = f"{self.dir}/{checkpoints.PARTITION_METADATA}"
        try:
            file = self._files.open(path + ".tmp", create=True)
            file.truncate(0)
            file.pwrite((checkpoints.encode_partition_metadata(topic_id),), 0)
            file.close()
            self._files.rename(path + ".tmp", path)
        except OSError as error:
            raise self._fail(error, "write of partition.metadata") from error
        self.topic_id = topic_id
        self._metadata_unsynced = True

    # Truncating ------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from the batch that holds `offset` on; tell whether anything went.

        Epochs are cut in any case: the last one may have begun at the log end without a record.
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
        _logger.info("truncated tp=%s from=%d to=%d", self.tp, self.log_end_offset, offset)
        try:
            while self.segments[-1].base_offset > offset:
                self._delete_files([self.segments.pop()])
            self._active = self.segments[-1]
            self._active.truncate_to(offset)
            self._drop_snapshots(lambda at: at <= offset)
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
        _logger.info("truncated fully tp=%s start=%d", self.tp, offset)
        try:
            self._delete_files(self.segments)
            self.segments = [
                Segment.create(self._files, self.dir, offset, self._world.clock.wall_ms())
            ]
            self._active = self.segments[0]
            self._drop_snapshots(lambda _: False)
        except OSError as error:
            raise self._fail(error, "truncation") from error
        self.epochs.clear()
        self._latest_epoch = self.epochs.latest
        self._after_truncation(offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.producers.clear()
        self.set_high_watermark(offset)

    def _after_truncation(self, offset: int) -> None:
        self.log_end_offset = offset
        self.truncations += 1
        self._tail.clear()
        self._roll_timestamp = _UNKNOWN
        self._folder_unsynced = True
        self._changed = True
        if self.recovery_point > offset:
            self.recovery_point = offset
            if self._on_recovery_point_lowered is not None:
                self._on_recovery_point_lowered(self)

    def _reload_producers(self) -> None:
        start = load_snapshot(
            self.producers,
            self._files,
            self.dir,
            self._snapshots,
            self.log_start_offset,
            self._world.clock.wall_ms(),
        )
        replay(self.producers, self.segments, start, self.log_end_offset)

    # Retention -------------------------------------------------------------------------

    def delete_old_segments(self, now_ms: int) -> int:
        """Drop what retention allows; return how many segments went."""
        if self.failed is not None:
            raise self.failed
        idle_s = self._world.clock.monotonic() - self._last_append_s
        try:
            expired = expired_segments(
                [SegmentFacts(s.base_offset, s.size, s.largest_timestamp()) for s in self.segments],
                Limits(self.config.retention_ms, self.config.retention_bytes),
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
                idle_ms=int(idle_s * 1000),
                delete_policy=self.config.delete,
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
        self._folder_unsynced = True
        _logger.info(
            "segments deleted tp=%s count=%d reason=%s log_start=%d",
            self.tp,
            expired.count,
            expired.reason,
            start,
        )
        return expired.count

    def _delete_files(self, segments: list[Segment]) -> None:
        for segment in segments:
            self.deleted_files += segment.mark_deleted()

    def expire_producers(self, now_ms: int) -> int:
        return self.producers.expire(now_ms)

    # Flushing and closing --------------------------------------------------------------

    @property
    def unflushed_for_s(self) -> float | None:
        """How long the oldest unflushed record has waited (flush.ms), None if there is none."""
        if self._unflushed_since_s is None:
            return None
        return self._world.clock.monotonic() - self._unflushed_since_s

    def has_unflushed_segments(self) -> bool:
        """Tell whether a segment that is not the active one still awaits its fsync."""
        return self.recovery_point < self._active.base_offset

    def has_unsynced_files(self) -> bool:
        """Tell whether small files (epochs, topic id, indexes, snapshots) await their fsync."""
        return (
            self.epochs.changed
            or self._metadata_unsynced
            or self._folder_unsynced
            or any(s.unsynced for s in self.segments)
        )

    @property
    def active_base_offset(self) -> int:
        return self._active.base_offset

    def prepare_flush(self, upto: int | None = None) -> FlushJob | None:
        """Return what must be made durable for offsets below `upto`, None if nothing."""
        if self.failed is not None:
            raise self.failed
        upto = self.log_end_offset if upto is None else min(upto, self.log_end_offset)
        job = FlushJob(self._files, upto, self.truncations)
        first = self._segment_index(self.recovery_point)
        for segment in self.segments[first:]:
            if segment.base_offset < upto and (upto > self.recovery_point) and segment.size:
                job.to_sync.append(segment.file)
            job.to_sync += segment.unsynced
            job.to_close += segment.unsynced
            segment.unsynced = []
        if self.epochs.changed:
            path = f"{self.dir}/{checkpoints.LEADER_EPOCHS}"
            job.to_write.append((path, checkpoints.encode_epochs(self.epochs.entries)))
            self.epochs.changed = False
        if self._metadata_unsynced:
            path = f"{self.dir}/{checkpoints.PARTITION_METADATA}"
            job.to_write.append((path, checkpoints.encode_partition_metadata(self.topic_id)))
            self._metadata_unsynced = False
        if self._folder_unsynced:
            job.folder = self.dir
            self._folder_unsynced = False
        if not (job.to_sync or job.to_write or job.folder):
            return None
        if upto == self.log_end_offset:
            self._unflushed = 0
            self._unflushed_since_s = None
        return job

    def complete_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        """Move the recovery point after the job ran, or fail the log if it did not."""
        for file in job.to_close:
            file.close()
        if error is not None:
            raise self._fail(error, "flush") from error
        # After a truncation meanwhile the same offsets are other, unflushed records.
        if job.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, job.upto_offset)

    def flush(self, upto: int | None = None) -> None:
        """Make everything below `upto` durable, here and now; for workers see `prepare_flush`."""
        job = self.prepare_flush(upto)
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            self.complete_flush(job, error)
        self.complete_flush(job)

    def prepare_close(self) -> FlushJob | None:
        """Write what a clean stop leaves: indexes, snapshot, epochs. The job makes it durable."""
        if self.failed is not None:
            return None
        try:
            if self.log_end_offset > 0:
                self._write_snapshot(self.log_end_offset)
            for segment in self.segments:
                segment.write_indexes()
        except OSError as error:
            raise self._fail(error, "close") from error
        return self.prepare_flush()

    def close(self) -> None:
        """Close cleanly: after it, and with the clean marker, a start needs no recovery."""
        job = self.prepare_close()
        if job is not None:
            try:
                job.run()
            except OSError as error:
                self.complete_flush(job, error)
            self.complete_flush(job)
        self.abandon()

    def abandon(self) -> None:
        """Give back descriptors and memory; writes nothing."""
        self._tail.clear()
        for segment in self.segments:
            segment.close()
        self.mark_offline("closed")
