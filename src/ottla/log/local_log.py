"""The segments and files of a log: roll, flush, close, fail.

`log.Log` inherits from it and adds what records mean. Kafka:
`LocalLog`. Invariants: `segments` is never empty and its last one is the active one; after the
first OSError of a write, a truncation or an fsync the log is failed and refuses everything (R12):
a disk that failed once is not trusted again. fsync happens in `FlushJob`s, which a worker may run;
an append syncs only where flush.messages asks for it.
"""

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Callable

from google_crc32c import value as crc32c

from ottla.log import checkpoints, damage, gap_bound, unreplicated
from ottla.log.aborted import file_name
from ottla.log.disk_errors import is_shortage
from ottla.log.flush import FlushJob, FolderGuard
from ottla.log.index import MAX_RELATIVE_OFFSET
from ottla.log.producers import CRC_COVERS_FROM, encode_snapshot
from ottla.log.recovery import Loaded
from ottla.log.results import LogRead
from ottla.log.segment import MOST_AT_ONCE, Segment
from ottla.log.tail import TailBudget, TailCache
from ottla.log.topic_id_file import TopicIdFile
from ottla.log.transactions import read_marker
from ottla.log.validate import ValidationRules
from ottla.model.config import TopicConfig
from ottla.model.errors import (
    CorruptRecordError,
    ErrorCode,
    OttlaError,
    OutOfDescriptorsError,
    StorageError,
)
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import World
from ottla.wire.batch_header import (
    BASE_OFFSET,
    CRC,
    LAST_OFFSET_DELTA,
    LENGTH,
    LOG_OVERHEAD,
    Header,
    crc_matches,
    unpack_header,
    unpack_start,
)

_logger = logging.getLogger(__name__)

_NEVER = 2**63 - 1
_UNKNOWN = -2
_TIME_INDEX_ENTRY = 12


class LocalLog:
    """Segments in a folder, with the small files beside them."""

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
        self.dir = folder
        self._world = world
        self._files = world.files
        self.place = FolderGuard(world.files.mutex())
        self.on_failure: Callable[[LocalLog, OSError], None] | None = None
        """called once, when this log fails"""
        self.failed: StorageError | None = None
        self.segments = loaded.segments
        self._active = loaded.segments[-1]
        self.gaps = loaded.gaps
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self._snapshots = loaded.snapshots
        self._id_file = TopicIdFile(loaded.topic_id, clean=not loaded.may_be_incomplete)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.deleted_files = loaded.deleted_files
        """renamed to .deleted; the manager removes them after file.delete.delay.ms"""
        self.cleaned_offset = -1
        """the cleaner's checkpoint: below it the log is compacted; -1 if never"""
        self.truncations = 0
        """counts truncations: what a worker read before one is discarded"""
        self._unsynced_folders = [folder, folder.rpartition("/")[0]] if loaded.fresh else []
        self._pending_snapshots: dict[int, bytes] = {}
        """taken at a roll, written with the next flush"""
        self.corrupt_reads = 0
        """reads refused because a batch on disk failed its checksum (F20)"""
        self.damaged = loaded.damaged
        """the offsets found unreadable, None if there are none; empty if it is not known which"""
        self.damage_remembered = loaded.marked
        """whether the mark beside the log says what `damaged` says"""
        self.on_damage: Callable[[LocalLog], None] | None = None
        """called each time that more offsets are found unreadable"""
        self._has_unreplicated_file = loaded.has_unreplicated_file
        self._jobs = 0
        self.flushing = 0
        """flush jobs that a worker may be running: until they are done, paths must not change"""
        self._truncated = False
        """whether a truncation may not be durable yet"""
        self._unflushed = 0
        self._unflushed_since_s: float | None = None
        self._roll_timestamp = _UNKNOWN
        self._tail = TailCache(budget)
        self.update_config(config)

    @property
    def parent_dir(self) -> str:
        """The log dir it lies in."""
        return self.dir.rpartition("/")[0]

    @property
    def topic_id(self) -> bytes:
        """The id of the topic whose log this is, ZERO_UUID if it is not known."""
        return self._id_file.topic_id

    @property
    def topic_id_durable(self) -> bool:
        """Whether no power loss can take the topic id away."""
        return self._id_file.durable

    @property
    def size(self) -> int:
        return sum(s.size for s in self.segments)

    @property
    def active_base_offset(self) -> int:
        return self._active.base_offset

    def update_config(self, config: TopicConfig) -> None:
        """Take new topic settings; in force from the next append on."""
        self.config = config
        self._rules = ValidationRules(config)
        self._index_interval = config.index_interval_bytes
        self._segment_bytes = config.segment_bytes
        self._max_index_entries = max(config.segment_index_bytes // _TIME_INDEX_ENTRY, 1)
        self._active.index_limit = self._max_index_entries
        self._flush_messages = config.flush_messages
        self._roll_timestamp = _UNKNOWN

    @property
    def _segment_ms(self) -> int:
        config = self.config
        if config.compact:  # what must be compacted in time may not stay in the active segment
            return min(config.segment_ms, config.max_compaction_lag_ms)
        return config.segment_ms

    # Failure ---------------------------------------------------------------------------

    def _fail(self, error: OSError, doing: str) -> OttlaError:
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

    def mark_offline(self, reason: str) -> StorageError:
        """Refuse everything from now on; idempotent."""
        if self.failed is None:
            self.failed = StorageError(f"{self.tp} in {self.dir} is offline: {reason}")
            self._tail.clear()
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
            segment = self.segments[self._segment_index(offset)]
            try:
                first, end = damaged_range(segment, offset, self.range_of(segment)[1])
            except OSError as failure:
                raise self._fail(failure, "read") from failure
            self.damaged = damage.with_range(known, first, end)
            _logger.error(
                "corrupt record partition=%s offset=%d unreadable=%d..%d error=%s",
                self.tp, offset, first, end - 1, error,
            )  # fmt: skip
        self.damage_remembered = False
        if self.on_damage is not None:
            self.on_damage(self)

    def check_memory(self, offset: int, max_bytes: int) -> None:
        """Read from the files again if what is in memory from `offset` on has changed (F20)."""
        cached = self._tail.read(offset, max_bytes, self.log_end_offset, True)
        if cached is not None and not all(
            crc_matches(memoryview(part), unpack_header(part, 0)[CRC]) for part in cached.parts
        ):
            self.corrupt_reads += 1
            _logger.error("corrupt record in memory partition=%s offset=%d", self.tp, offset)
            self._tail.clear()

    def _flush_if_due(self) -> None:
        """Start flush.ms's clock; flush at once if flush.messages asks for it."""
        if self._unflushed_since_s is None:
            self._unflushed_since_s = self._world.clock.monotonic()
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
            try:
                due = self._roll_is_due(segment, size, last, max_timestamp, now_ms)
            except OSError as error:
                raise self._fail(error, "look at the active segment") from error
            if due:
                # At the log end, even if a gap (compaction) precedes the batch: a segment that
                # begins elsewhere is how recovery sees that records between are lost.
                near = last - self.log_end_offset <= MAX_RELATIVE_OFFSET
                segment = self.roll(self.log_end_offset if near else first)
        elif last > segment.max_offset or first < segment.base_offset:
            segment = self._replace_empty(first)
        if segment.size == 0:
            self._roll_timestamp = self._roll_time(max_timestamp)
        return segment

    def _roll_is_due(
        self, segment: Segment, size: int, last: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch is to begin a new segment; OSError, as a start left files unread."""
        if self._roll_timestamp == _UNKNOWN:
            self._roll_timestamp = self._roll_time(segment.first_batch_timestamp())
        return (
            segment.size + size > self._segment_bytes
            or last > segment.max_offset
            or max_timestamp > self._roll_timestamp
            or (
                segment.first_batch_timestamp() < 0
                and now_ms - segment.created_ms > self._segment_ms
            )
            or len(segment.offsets) >= self._max_index_entries
        )

    def _roll_time(self, first_timestamp: int) -> int:
        """Return the timestamp after which a batch begins a new segment (segment.ms)."""
        if first_timestamp < 0:
            return _NEVER
        jitter = self.config.segment_jitter_ms
        if jitter:
            jitter = int(self._world.random.random() * min(jitter, self._segment_ms))
        return first_timestamp + self._segment_ms - jitter

    # Segments --------------------------------------------------------------------------

    def roll(self, base_offset: int | None = None) -> Segment:
        """Begin a new segment at the log end (or at `base_offset` beyond it)."""
        base = self.log_end_offset if base_offset is None else base_offset
        active = self._active
        if active.size == 0:
            return active if active.base_offset == base else self._replace_empty(base)
        if self._truncated:
            # A new file could outlive a power loss that brings truncated records back.
            self.flush()
        self._allow_gap_before(base)
        try:
            segment = Segment.create(self._files, self.dir, base, self._world.clock.wall_ms())
        except OSError as error:
            raise self._fail(error, "roll") from error
        self._take_snapshot(base)
        active.index_changed = True
        self.segments.append(segment)
        self._active = segment
        segment.index_limit = self._max_index_entries
        self._roll_timestamp = _UNKNOWN
        self._unsynced_folders = [self.dir]
        return segment

    def _replace_empty(self, base_offset: int) -> Segment:
        """Put an empty segment of another base offset in the place of the empty active one."""
        old = self.segments[-1]
        assert old.size == 0, old
        assert old.base_offset != base_offset, old  # both would have the same file
        self._allow_gap_before(base_offset)
        try:
            segment = Segment.create(
                self._files, self.dir, base_offset, self._world.clock.wall_ms()
            )
            old.close()
            old.remove_indexes()
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(old.path(".log"))
        except OSError as error:
            raise self._fail(error, "roll") from error
        self.segments[-1] = segment
        self._active = segment
        segment.index_limit = self._max_index_entries
        self._roll_timestamp = _UNKNOWN
        self._unsynced_folders = [self.dir]
        return segment

    def _allow_gap_before(self, base_offset: int) -> None:
        """Make the gap bound durable before a segment is created.

        Mostly a flush has done so before: only here the event loop waits for the disk.
        """
        if base_offset > self.log_end_offset or base_offset == self.gaps.gap_before:
            self.flush()
            self.gaps.raise_to(base_offset)
        if self.gaps.unwritten:
            self._run(self.prepare_write(gap_bound.NAME, gap_bound.encode(self.gaps.upto)))

    def _take_snapshot(self, offset: int) -> None:
        """Keep the producers as they are at `offset`, unless there is such a snapshot."""
        if offset == 0 or (self._snapshots and self._snapshots[-1] >= offset):
            return
        data = encode_snapshot(self.producers.producers.values())
        data[2:6] = crc32c(bytes(data[CRC_COVERS_FROM:])).to_bytes(4, "big")
        self._pending_snapshots[offset] = bytes(data)
        self._snapshots.append(offset)

    def _snapshot_path(self, offset: int) -> str:
        return f"{self.dir}/{file_name(offset, '.snapshot')}"

    def _write_pending_snapshots(self) -> None:
        for offset, data in self._pending_snapshots.items():
            self._files.write(self._snapshot_path(offset), data)
        self._pending_snapshots.clear()

    def _drop_snapshots(self, keep: Callable[[int], bool]) -> None:
        for offset in self._snapshots:
            if not keep(offset):
                self._pending_snapshots.pop(offset, None)
                with contextlib.suppress(FileNotFoundError):
                    self._files.remove(self._snapshot_path(offset))
        self._snapshots = [o for o in self._snapshots if keep(o)]

    def _segment_index(self, offset: int) -> int:
        """Return the index of the segment whose range holds `offset`."""
        return max(bisect_right(self.segments, offset, key=lambda s: s.base_offset) - 1, 0)

    def release_idle(self) -> None:
        """Drop loaded indexes of segments that were not read lately."""
        for segment in self.segments[:-1]:
            segment.release()

    def _begin_at(self, offset: int) -> Segment:
        now_ms = self._world.clock.wall_ms()
        try:
            return Segment.create(self._files, self.dir, offset, now_ms)
        except OSError as error:
            if not is_shortage(error):
                raise
            # Its file comes with the first batch. A start before that finds an empty log.
            return Segment.create_lazily(self._files, self.dir, offset, now_ms)

    def _expect_marker(self, segment: Segment, batch: memoryview) -> None:
        """Open what noting an aborted transaction needs: once its marker is written, it must be."""
        marker = read_marker(batch)
        if marker is not None and marker.aborted:
            try:
                segment.open_aborted()
            except OSError as error:
                raise self._fail(error, "open of the index of aborted transactions") from error

    def upper_bound(self, found: LogRead) -> int:
        """Return an offset beyond all that was read, as near as the index shows."""
        if not found.from_file:  # one batch per part
            header: Header = unpack_header(found.parts[-1], 0)
            return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        base, _, _, _ = unpack_start(found.parts[-1], 0)  # all that an old entry may have
        index = self._segment_index(base)
        upper = self.segments[index].offsets.beyond(base, found.size)
        return self.range_of(self.segments[index])[1] if upper is None else upper

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Remember whose data this is, before the first record is written."""
        assert topic_id != ZERO_UUID
        if self.topic_id == topic_id:
            return
        if self.topic_id != ZERO_UUID:
            raise OttlaError(
                f"{self.tp} belongs to another topic id", ErrorCode.INCONSISTENT_TOPIC_ID
            )
        try:
            self._id_file.write(self._files, self.dir, topic_id)
        except OSError as error:
            raise self._fail(error, "write of partition.metadata") from error

    def prepare_topic_id(self) -> FlushJob | None:
        """Return what makes the topic id durable, None if it is already or there is none."""
        if self.topic_id_durable or self.topic_id == ZERO_UUID:
            return None
        job = self.prepare_write(checkpoints.PARTITION_METADATA, self._id_file.encoded())
        self._id_file.taken_by(job, self.dir)
        return job

    def relocate(self, folder: str) -> None:
        """Use this path from now on: the folder was renamed to it."""
        for segment in self.segments:
            segment.relocate(folder)
        self.deleted_files = [folder + path[len(self.dir) :] for path in self.deleted_files]
        self.dir = folder
        self._unsynced_folders = [folder, folder.rpartition("/")[0]]

    # Cleaning --------------------------------------------------------------------------

    def fail(self, error: OSError, doing: str) -> OttlaError:
        """Take the log offline: the cleaner could not read or write; return what to raise."""
        return self._fail(error, doing)

    def holds(self, segments: list[Segment]) -> bool:
        """Return whether these adjacent segments are still this log's."""
        if not segments:
            return True
        at = self._segment_index(segments[0].base_offset)
        return self.segments[at : at + len(segments)] == segments

    def range_of(self, segment: Segment) -> tuple[int, int]:
        """Return the segment's base offset and that of the next one (or the log end)."""
        at = self._segment_index(segment.base_offset) + 1
        upper = self.segments[at].base_offset if at < len(self.segments) else self.log_end_offset
        return segment.base_offset, upper

    def dirty_segments(self, start: int, upto: int) -> list[Segment]:
        """Return the segments with offsets in [start, upto)."""
        found = self.segments[self._segment_index(start) :]
        return [s for s in found if s.base_offset < upto]

    def replace_segments(self, old: list[Segment], size: int, suffixes: list[str]) -> None:
        """Put the `.cleaned` files of these suffixes, durable by now, in the place of `old`.

        A crash before the last one is `.swap` undoes it, a later one completes it at the next
        start (Kafka's `LocalLog.replaceSegments`).
        """
        if self.failed is not None:
            raise self.failed
        at = self._segment_index(old[0].base_offset)
        assert self.segments[at : at + len(old)] == old, old
        assert self.range_of(old[-1])[1] <= (self.gaps.on_disk or 0), self.gaps.on_disk
        new = Segment.open(
            self._files, self.dir, old[0].base_offset, size, max(s.created_ms for s in old)
        )
        try:
            for suffix in suffixes:
                self._files.rename(new.path(suffix) + ".cleaned", new.path(suffix) + ".swap")
            self._delete_files(old)
            for suffix in suffixes:
                self._files.rename(new.path(suffix) + ".swap", new.path(suffix))
            gone = {segment.base_offset for segment in old[1:]}
            self._drop_snapshots(lambda offset: offset not in gone)
        except OSError as error:
            raise self._fail(error, "swap of cleaned segments") from error
        self.segments[at : at + len(old)] = [new]
        # What was cleaned away must not be read any more: its aborted transactions are forgotten.
        self._tail.drop_below(self.segments[at + 1].base_offset)
        self._unsynced_folders = [self.dir]

    def _delete_files(self, segments: list[Segment]) -> None:
        for segment in segments:
            self.deleted_files += segment.mark_deleted()

    # Flushing and closing --------------------------------------------------------------

    @property
    def unflushed_for_s(self) -> float | None:
        """How long the oldest unflushed record has waited (flush.ms), None if there is none."""
        if self._unflushed_since_s is None:
            return None
        return self._world.clock.monotonic() - self._unflushed_since_s

    def has_unflushed_segments(self) -> bool:
        """Return whether a segment that is not the active one still awaits its fsync."""
        return self.recovery_point < self._active.base_offset

    def has_unsynced_files(self) -> bool:
        """Return whether small files (epochs, topic id, indexes, snapshots) await their fsync."""
        return (
            self.epochs.changed
            or self._id_file.unsynced
            or bool(self._unsynced_folders)
            or bool(self._pending_snapshots)
            or self._gaps_are_due
            or any(s.unsynced for s in self.segments)
        )

    def prepare_flush(self, upto: int | None = None) -> FlushJob | None:
        """Return what must be made durable for offsets below `upto`, None if nothing."""
        if self.failed is not None:
            raise self.failed
        upto = self.log_end_offset if upto is None else min(upto, self.log_end_offset)
        job = FlushJob(self._files, self.place, upto, self.truncations)
        job.covers_truncation = upto == self.log_end_offset
        for segment in self.segments[self._segment_index(self.recovery_point) :]:
            unsynced = upto > self.recovery_point or self._truncated
            if unsynced and segment.base_offset < upto and segment.size:
                job.to_sync.append(segment.file)
            job.to_sync += segment.unsynced
            job.to_close += segment.unsynced
            segment.unsynced = []
            if segment.index_changed and segment is not self._active:
                job.to_write += segment.index_files()
        self._add_small_files(job)
        if not (job.to_sync or job.to_write or job.folders):
            self.recovery_point = max(self.recovery_point, upto)
            return None
        if upto == self.log_end_offset:
            self._unflushed = 0
            self._unflushed_since_s = None
        self.flushing += 1
        return job

    def _add_small_files(self, job: FlushJob) -> None:
        for offset, data in self._pending_snapshots.items():
            job.to_write.append((self._snapshot_path(offset), data))
            job.snapshots.append(offset)
        self._pending_snapshots.clear()
        if self.epochs.changed:
            path = f"{self.dir}/{checkpoints.LEADER_EPOCHS}"
            job.to_write.append((path, checkpoints.encode_epochs(self.epochs.entries)))
            self.epochs.changed = False
        job.folders, self._unsynced_folders = self._unsynced_folders, []
        if self._id_file.unsynced:
            self._id_file.add_to(job, self.dir)
        if self._gaps_are_due:
            self.gaps.add_to(job, self.dir)
        self._number(job)

    @property
    def _gaps_are_due(self) -> bool:
        """Whether the gap bound is to be written: not yet for a log without records."""
        return self.gaps.unwritten and (self._active.size > 0 or len(self.segments) > 1)

    def _number(self, job: FlushJob) -> None:
        self._jobs += 1
        job.number = self._jobs

    def complete_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        """Move the recovery point after the job ran, or fail the log if it did not."""
        self.flushing -= 1
        if not self.flushing:
            self.place.settle()
        if error is not None and is_shortage(error) and self.failed is None:
            self._restore_unsynced(job)
            raise self._fail(error, "flush") from error
        for file in job.to_close:
            file.close()
        if error is not None:
            raise self._fail(error, "flush") from error
        if self.place.gone:
            return
        self._id_file.durable |= job.names_topic
        self.gaps.written_by(job)
        for offset in job.snapshots:
            if offset not in self._snapshots:  # written after it was dropped
                with contextlib.suppress(FileNotFoundError):
                    self._files.remove(self._snapshot_path(offset))
        # After a truncation meanwhile the same offsets are other, unflushed records.
        if job.truncations == self.truncations:
            if job.covers_truncation:
                self._truncated = False
            self.recovery_point = max(self.recovery_point, job.upto_offset)

    def _restore_unsynced(self, job: FlushJob) -> None:
        """Count a job's files as unsynced again: it could not open one.

        No fsync failed, so nothing is lost, and a later one is to be trusted.
        """
        self.epochs.changed = True
        self._id_file.restore_unsynced()
        self._unsynced_folders = [self.dir, self.parent_dir]
        paths = dict(job.to_write)
        for offset in job.snapshots:
            if offset in self._snapshots and offset not in self._pending_snapshots:
                self._pending_snapshots[offset] = paths[self._snapshot_path(offset)]
        for segment in self.segments:
            segment.index_changed = segment.index_changed or segment.path(".index") in paths
            segment.restore_unsynced(job.to_close)
        if self._unflushed_since_s is None and self.recovery_point < self.log_end_offset:
            self._unflushed_since_s = self._world.clock.monotonic()

    def prepare_truncation(self) -> FlushJob | None:
        """Return a job that makes the log's end durable after it was cut, None if it is."""
        if not self._truncated:
            return None
        job = FlushJob(self._files, self.place, 0, self.truncations, covers_truncation=True)
        try:
            job.to_sync.append(self._active.file)
        except OSError as error:
            raise self._fail(error, "open after a truncation") from error
        job.folders.append(self.dir)
        if self.gaps.unwritten:
            self.gaps.add_to(job, self.dir)
        self._number(job)
        self.flushing += 1
        return job

    def prepare_write(self, name: str, data: bytes) -> FlushJob:
        """Return a job that only writes one more file into this log's folder, durably."""
        if self.failed is not None:
            raise self.failed
        job = FlushJob(self._files, self.place, 0, self.truncations)
        job.to_write.append((f"{self.dir}/{name}", data))
        job.folders.append(self.dir)
        self._number(job)
        self.flushing += 1
        return job

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

    def prepare_close(self) -> FlushJob | None:
        """Return the job that writes what a clean stop leaves: indexes, snapshots, epochs."""
        if self.failed is not None:
            return None
        self._take_snapshot(self.log_end_offset)
        try:
            to_write = self._active.index_files()
            for segment in self.segments[:-1]:
                if segment.index_changed:
                    to_write += segment.index_files()
            to_write += self._unreplicated_file()
        except OSError as error:
            raise self._fail(error, "close") from error
        job = self.prepare_flush()
        if to_write:
            if job is None:
                job = FlushJob(self._files, self.place, self.log_end_offset, self.truncations)
                self._number(job)
                self.flushing += 1
            job.to_write += to_write
        return job

    def _unreplicated_file(self) -> list[tuple[str, bytes]]:
        """Return the file to write for unreplicated transactions, as (path, bytes).

        Empty if there are none; an older file is then removed.
        """
        path = f"{self.dir}/{unreplicated.NAME}"
        if self.producers.unreplicated:
            return [(path, unreplicated.encode(self.log_end_offset, self.producers.unreplicated))]
        if self._has_unreplicated_file:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(path)
        return []

    def close(self) -> None:
        """Close cleanly: after it, and with the clean marker, a start needs no recovery."""
        job = self.prepare_close()
        if job is not None:
            self._run(job)
        self.abandon()

    def abandon(self) -> None:
        """Release descriptors and memory without writing anything."""
        self._tail.clear()
        for segment in self.segments:
            segment.close()
        self.mark_offline("closed")


def damaged_range(segment: Segment, offset: int, upper: int) -> tuple[int, int]:
    """Return the offsets around `offset` that cannot be read, as (first, first good again).

    `upper` is where the segment's offsets end. It reads a few MiB of the segment at most (F20).
    """
    first = offset
    place = segment.offsets.lookup(offset)
    if place == 0:
        first = segment.base_offset
    limit = min(segment.size, place + MOST_AT_ONCE)
    while place < limit:
        try:
            for position, header, _ in segment.batches(place):
                base, last = header[BASE_OFFSET], header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
                if not segment.base_offset <= base <= last < upper:
                    break
                if last >= offset:
                    return (first, base) if base > offset else (base, last + 1)
                first = last + 1
                place = position + header[LENGTH] + LOG_OVERHEAD
            else:
                break
        except CorruptRecordError:
            pass
        found = _after_bad(segment, place)
        if found is None:
            break
        place = found
    return min(first, offset), max(upper, offset + 1)


def _after_bad(segment: Segment, position: int) -> int | None:
    """Return where a good batch may begin after a bad one."""
    with contextlib.suppress(CorruptRecordError):
        for at, header in segment.headers(position):
            if at > position:
                return at
            if header[LAST_OFFSET_DELTA] < 0:
                break
    found = segment.resume(segment.offsets, position)
    return None if found is None else found[0]
