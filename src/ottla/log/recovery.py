"""Loads the log of a partition's folder, and recovers it after an unclean stop.

Kafka: `LogLoader` and `LogSegment.recover`. After a clean stop nothing but names, sizes and the
small checkpoint files is read. After an unclean one everything from the segment of the recovery
point on is read and checked: the log is cut at the first bad batch, later segments go, indexes,
epochs and producers are built again (F19, F21). Long work runs in slices (`slices`), so that the
ZooKeeper session's pings go out during a start. Invariants: leftovers of interrupted deletions and
compactions are finished or undone exactly as a JVM broker would; R21: only what an interrupted
append leaves, above the recovery point, is cut and gone. Records of another format: nothing is
changed (`UnreadFormatError`). Any other bytes that are cut, and the segments behind them, are kept
in the folder under names that end with `.aside`.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.log import checkpoints, damage, gap_bound
from ottla.log.aborted import file_name
from ottla.log.damage import Range
from ottla.log.epochs import EpochCache
from ottla.log.flush_job import TEMPORARY_SUFFIX
from ottla.log.gap_bound import GapBound
from ottla.log.producer_snapshots import ProducerSnapshots, replaying
from ottla.log.producers import Producers
from ottla.log.results import UnreadFormatError
from ottla.log.segment import Segment
from ottla.log.segment_check import checking
from ottla.log.slices import Steps
from ottla.log.transactions import UNREPLICATED_FILE, decode_unreplicated
from ottla.model.errors import CorruptRecordError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.ports import World
from ottla.wire.batch_header import (
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
)

_log = logging.getLogger(__name__)

_WRITTEN_AT_ONCE = 256 * 1024

UNCLEAN_MARK = ".ottla-unclean"
"""In the folder of a log that may lack acknowledged records at its end (R18)."""
_INDEXES = (".index", ".timeindex", ".txnindex")
ASIDE_SUFFIX = ".aside"
"""Of files with what was cut and may be more than an interrupted append. Kafka ignores them."""
_DIGITS = 20
_NEVER = 2**63 - 1
_FILES_AT_ONCE = 500
_HEADERS_AT_ONCE = 1500
_BYTES_AT_ONCE = 1 << 20
_MOST_REPLAYED = 1 << 30
"""Bytes that a start reads in addition, at most, to find unreplicated transactions."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Known:
    """What is known of a log before it is loaded: how its log dir stopped, and its checkpoints."""

    fresh: bool = False
    """whether the folder was made just now"""
    clean: bool = False
    """whether it was closed cleanly"""
    may_be_unwritten: bool = False
    """whether an fsync may have failed: what is recovered is then written again"""
    recovery_point: int = 0
    log_start_offset: int = 0
    cleaned_offset: int = -1
    """how far the cleaner was; -1: never here"""
    high_watermark: int | None = None
    producer_expiration_ms: int = 86_400_000
    on_damage: Callable[[], None] = lambda: None
    """called before a log that was closed cleanly is cut"""


@dataclass(slots=True)
class Loaded:
    """The log found in a folder."""

    segments: list[Segment]
    producers: Producers
    epochs: EpochCache
    snapshots: ProducerSnapshots
    gaps: GapBound
    topic_id: bytes = ZERO_UUID
    log_start_offset: int = 0
    log_end_offset: int = 0
    recovery_point: int = 0
    fresh: bool = False
    """True if the folder itself may not be durable yet."""
    may_be_incomplete: bool = False
    """True if records may be gone from the end: after a crash, or where the end was unreadable"""
    marked_unclean: bool = False
    """True if an earlier start found it maybe incomplete, and it is not resolved since (R18)"""
    cut_bytes: int = 0
    deleted_files: list[str] = field(default_factory=list)
    damaged: tuple[Range, ...] | None = None
    """unreadable offsets, None if there are none; empty if it is not known which"""
    marked: bool = False
    """whether the damage file says so"""
    has_unreplicated_file: bool = False
    """whether there is a file of unreplicated transactions beside the log"""


@dataclass(slots=True)
class _Names:
    """A folder's file names, sorted by what they are."""

    logs: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    indexes: list[tuple[int, str]] = field(default_factory=list)
    others: set[str] = field(default_factory=set)


def offset_of(name: str) -> int | None:
    """Return the offset a segment file is named after, or None."""
    digits = name[:_DIGITS]
    if len(digits) == _DIGITS and digits.isascii() and digits.isdigit() and name[20:21] == ".":
        return int(digits)
    return None


def _is_leftover(name: str) -> bool:
    return name.endswith((".deleted", ".cleaned", ".swap")) and name != gap_bound.NAME


class Loader:
    """Loads one folder, once."""

    def __init__(
        self,
        tp: TopicPartition,
        folder: str,
        world: World,
        index_interval: int,
        known: Known,
    ) -> None:
        self._tp = tp
        self._folder = folder
        self._files = world.files
        self._now_ms = world.clock.wall_ms()
        self._interval = index_interval
        self._known = known
        self._clean = known.clean
        self._was_clean = False
        """whether the clean marker was there, although the log's end cannot be read"""
        self._replaced: set[int] = set()
        """base offsets of segments that a compaction replaced, known from what it left behind"""
        self._recovered_from = _NEVER
        self._producers_known = False
        self._producers_from = 0
        self._indexes: set[str] = set()
        self._loaded = Loaded(
            [],
            Producers(known.producer_expiration_ms),
            EpochCache(),
            ProducerSnapshots(world.files, folder, []),
            GapBound(0),
            log_start_offset=known.log_start_offset,
            recovery_point=known.recovery_point,
        )

    def begin(self) -> Loaded:
        """Begin an empty log in a folder that was made just now."""
        loaded = self._loaded
        loaded.segments = [Segment.create_lazily(self._files, self._folder, 0, self._now_ms)]
        loaded.log_start_offset = loaded.recovery_point = 0
        loaded.fresh = True
        return loaded

    def loading(self) -> Steps[Loaded]:
        loaded = self._loaded
        names = yield from self._clean_up()
        loaded.snapshots.offsets = names.snapshots
        loaded.marked_unclean = UNCLEAN_MARK in names.others
        loaded.may_be_incomplete = not self._clean
        for count, base in enumerate(names.logs):
            loaded.segments.append(self._open_segment(base))
            if not count % _FILES_AT_ONCE:
                yield None
        self._read_topic_id(names)
        if damage.DAMAGE_FILE in names.others:
            loaded.damaged = damage.decode(
                self._files.read_bytes(self._path(damage.DAMAGE_FILE))
            ).ranges
            loaded.marked = True
        epochs_known = self._read_epochs(names)
        self._read_gap_bound(names)
        if not self._clean:
            yield from self._recover()
        else:
            yield from self._rebuild_indexes(loaded.segments)
        yield from self._find_log_end()
        self._settle_gap_bound()
        yield from self._settle_epochs(epochs_known)
        self._settle_snapshots()
        if not self._producers_known:
            yield from self._load_producers(loaded.log_end_offset)
        loaded.has_unreplicated_file = UNREPLICATED_FILE in names.others
        if loaded.has_unreplicated_file and self._clean:
            data = self._files.read_bytes(self._path(UNREPLICATED_FILE))
            loaded.producers.add_unreplicated(decode_unreplicated(data, loaded.log_end_offset))
        return loaded

    def unread(self) -> Loaded:
        """Return what is known of a log that `loading` refused (UnreadFormatError): as before it.

        What the checkpoints say of it is to stay, so it ends where they say, or later.
        """
        loaded = self._loaded
        last = loaded.segments[-1].base_offset
        loaded.log_start_offset = max(loaded.log_start_offset, loaded.segments[0].base_offset)
        loaded.log_end_offset = max(
            last, loaded.recovery_point, loaded.log_start_offset, self._known.high_watermark or 0
        )
        loaded.may_be_incomplete = loaded.marked_unclean = False  # no mark is to be written
        loaded.deleted_files = []
        for segment in loaded.segments:
            segment.close()
        return loaded

    # Names -----------------------------------------------------------------------------

    def _clean_up(self) -> Steps[_Names]:
        """Finish or undo what an interrupted deletion or compaction left; sort the rest."""
        names = self._files.listdir(self._folder)
        for name in [n for n in names if n.endswith(TEMPORARY_SUFFIX)]:
            self._remove(name)
            names.remove(name)
        if any(_is_leftover(n) for n in names):
            yield from self._finish_swaps(names)
            names = self._files.listdir(self._folder)
        found = _Names()
        for name in names:
            offset = offset_of(name)
            if offset is None:
                found.others.add(name)
            elif name.endswith(".log"):
                found.logs.append(offset)
            elif name.endswith(".snapshot"):
                found.snapshots.append(offset)
            elif name.endswith(_INDEXES):
                found.indexes.append((offset, name))
        self._indexes = {name for _, name in found.indexes}
        there = set(found.logs)
        for offset, name in found.indexes:
            if offset not in there:
                _log.warning("orphan index removed partition=%s file=%s", self._tp, name)
                self._remove(name)
        return found

    def _finish_swaps(self, names: list[str]) -> Steps[None]:
        cleaned = [n for n in names if n.endswith(".cleaned")]
        smallest = min((offset_of(n) or 0 for n in cleaned), default=None)
        swaps = []
        for name in names:
            if name.endswith(".swap"):
                if smallest is not None and (offset_of(name) or 0) >= smallest:
                    self._remove(name)
                else:
                    swaps.append(name)
        # Only now: as long as a .cleaned file is there, a crash finds that the swap is not whole.
        for name in names:
            if name.endswith(".cleaned"):
                self._remove(name)
            elif name.endswith(".deleted") and _is_leftover(name):
                self._loaded.deleted_files.append(self._path(name))
                self._replaced.add(offset_of(name) or 0)
        swapped_logs = [n for n in swaps if n.endswith(".log.swap")]
        if swapped_logs:
            self._replaced.update(offset_of(n) or 0 for n in swapped_logs)
            first = min(offset_of(n) or 0 for n in swapped_logs)
            end = -1
            for name in swapped_logs:
                end = max(end, (yield from self._swap_end(name)))
            for name in names:
                offset = offset_of(name)
                if offset is None or name.endswith((".swap", ".deleted", ".cleaned")):
                    continue
                if first <= offset < end:
                    self._remove(name)
        # The log first: without a .log.swap nothing that was renamed before is removed again.
        for name in sorted(swaps, key=lambda n: not n.endswith(".log.swap")):
            self._files.rename(self._path(name), self._path(name.removesuffix(".swap")))
        if swaps:
            _log.info("finished an interrupted swap partition=%s files=%d", self._tp, len(swaps))

    def _swap_end(self, name: str) -> Steps[int]:
        """Return the offset after the last batch of a `.log.swap`."""
        path = self._path(name)
        base = offset_of(name)
        assert base is not None
        segment = Segment.open(self._files, self._folder, base, self._files.size(path), 0)
        segment.attach(self._files.open(path))
        try:
            end = segment.base_offset
            for count, (_, header) in enumerate(segment.headers(0)):
                end = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
                if not count % _HEADERS_AT_ONCE:
                    yield None
        finally:
            segment.close()
        return end

    def _open_segment(self, base: int) -> Segment:
        size = self._files.size(self._path(file_name(base, ".log")))
        segment = Segment.open(self._files, self._folder, base, size, self._now_ms)
        if file_name(base, ".txnindex") not in self._indexes:
            segment.set_aborted([])
        return segment

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(self._path(name))

    # Small files -----------------------------------------------------------------------

    def _read_topic_id(self, names: _Names) -> None:
        if checkpoints.PARTITION_METADATA not in names.others:
            return
        data = self._files.read_bytes(self._path(checkpoints.PARTITION_METADATA))
        try:
            self._loaded.topic_id = checkpoints.decode_partition_metadata(data)
        except checkpoints.CheckpointError as error:
            _log.warning("partition.metadata ignored partition=%s error=%s", self._tp, error)

    def _read_epochs(self, names: _Names) -> bool:
        """Read the epochs; False if they must be found in the batches instead."""
        if checkpoints.LEADER_EPOCHS not in names.others:
            return False
        data = self._files.read_bytes(self._path(checkpoints.LEADER_EPOCHS))
        try:
            self._loaded.epochs = EpochCache(checkpoints.decode_epochs(data))
        except checkpoints.CheckpointError as error:
            if any(s.size for s in self._loaded.segments):
                _log.warning("leader epochs rebuilt partition=%s error=%s", self._tp, error)
            return False
        return True

    def _read_gap_bound(self, names: _Names) -> None:
        if gap_bound.NAME in names.others:
            upto = gap_bound.decode(self._files.read_bytes(self._path(gap_bound.NAME)))
            if upto is None:
                _log.warning("gap bound ignored partition=%s", self._tp)
            else:
                self._loaded.gaps = GapBound(upto, upto)

    def _settle_gap_bound(self) -> None:
        """Trust the segments that are there; where records went, the bound goes down, too."""
        loaded, gaps = self._loaded, self._loaded.gaps
        if gaps.on_disk is None:
            gaps.raise_to(loaded.segments[-1].base_offset)
        gaps.upto = min(gaps.upto, loaded.log_end_offset)

    # Batches ---------------------------------------------------------------------------

    def _recover(self) -> Steps[None]:
        """Check everything from the segment of the recovery point on; cut what is bad."""
        loaded = self._loaded
        segments = loaded.segments
        point = loaded.recovery_point
        first = 0
        for index, segment in enumerate(segments):
            if segment.base_offset <= point:
                first = index
        yield from self._rebuild_indexes(segments[:first])
        if not segments:
            return
        self._recovered_from = segments[first].base_offset
        # What the file says of offsets that may have changed since is found in the batches.
        loaded.epochs.truncate_from_end(self._recovered_from)
        yield from self._load_producers(self._recovered_from)
        end = self._recovered_from
        for index in range(first, len(segments)):
            segment = segments[index]
            if index > first and not self._follows(segment, segments[index - 1], end):
                self._drop_from(index, f"hole before {segment.base_offset}, log ends at {end}")
                break
            cut, end, aside = yield from self._check_segment(segment)
            if self._known.may_be_unwritten:
                yield from self._write_anew(segment)
            if cut:
                loaded.cut_bytes += cut
                if [s.base_offset for s in segments[index + 1 : index + 2]] == [end]:
                    continue  # no record is missing before the next segment
                reason = f"{cut} bytes cut from {segment.base_offset}"
                self._drop_from(index + 1, reason, aside=aside)
                break

    def _rebuild_indexes(self, segments: list[Segment]) -> Steps[None]:
        """Build indexes whose files are not there (F21); Kafka too does so at the start."""
        for segment in segments:
            base = segment.base_offset
            names = file_name(base, ".index"), file_name(base, ".timeindex")
            if segment.size and not all(name in self._indexes for name in names):
                _log.warning("index rebuilt partition=%s segment=%d", self._tp, base)
                yield from segment.rebuilding_indexes(self._interval)

    def _follows(self, segment: Segment, before: Segment, end: int) -> bool:
        """Return whether a segment begins where the one before it ends.

        If not, unflushed records were lost at a power loss while later ones were kept. Gaps are
        right only where compaction has been, whatever the policy is now, or offsets are too far
        apart for one segment (see `Log.roll`): up to the gap bound. A segment that another
        follows had records; only compaction leaves none of them (simulator's seed 22000165: a power
        loss had kept nothing but its name).

        Without a gap bound a JVM broker wrote the log, and may have left gaps anywhere: all of it
        is kept, as Kafka does. UnreadFormatError if segments overlap there.
        """
        base = segment.base_offset
        bound = self._loaded.gaps.on_disk
        if bound is None:
            if base < end and segment.size:
                raise UnreadFormatError(
                    f"{segment.path('.log')} begins inside of the segment before it, which ends at "
                    f"{end}; no file of the partition is changed"
                )
            return base >= end
        if base <= end:
            return base == end
        if base > bound:
            return False
        cleaned = (
            before.base_offset < self._known.cleaned_offset or before.base_offset in self._replaced
        )
        return base > before.max_offset or bool(before.size) or cleaned

    def _drop_from(self, index: int, reason: str, *, aside: bool = False) -> None:
        """Drop the segments from `index` on, which follow torn records, or rename them."""
        segments = self._loaded.segments
        later = segments[index:]
        _log.warning(
            "log cut partition=%s reason=%s later_segments=%d", self._tp, reason, len(later)
        )
        for gone in later:
            self._loaded.cut_bytes += gone.size
            if aside and gone.size:
                gone.close()
                path = gone.path(".log")
                self._files.rename(path, self._unused(path))
                gone.remove_indexes()
            else:
                self._loaded.deleted_files += gone.mark_deleted()
        del segments[index:]

    def _check_segment(self, segment: Segment) -> Steps[tuple[int, int, bool]]:
        """Check each batch, build the indexes; return what was cut and the end offset.

        That is how many bytes, and whether they, or some before, are not an interrupted append's
        and were kept aside.
        """
        loaded = self._loaded
        if file_name(segment.base_offset, ".txnindex") in self._indexes:
            segment.replace_aborted([])
        size, end, problem, torn = yield from checking(
            segment, loaded.epochs, loaded.producers, self._producers_from, self._interval
        )
        cut = segment.size - size
        aside = False
        if problem:
            _log.warning("bad batch partition=%s position=%d reason=%s", self._tp, size, problem)
            aside = not torn or self._was_clean or end < loaded.recovery_point
        if cut:
            if aside:
                yield from self._keep_aside(segment, size)
            segment.cut(size)
        segment.finish_indexes()
        return cut, end, aside

    def _keep_aside(self, segment: Segment, position: int) -> Steps[None]:
        """Copy what is about to be cut to a file of its own, durably, unless it is zeros."""
        copy, path, begin = None, "", position
        while position < segment.size:
            data = segment.file.pread(min(_BYTES_AT_ONCE, segment.size - position), position)
            if not data:
                break
            if copy is None and data.count(0) < len(data):
                begin, path = position, self._unused(f"{segment.path('.log')}.{position}")
                copy = self._files.open(path, create=True)
            if copy is not None:
                copy.pwrite([data], position - begin)
            position += len(data)
            yield None
        if copy is not None:
            copy.fsync()
            copy.close()
            self._files.fsync_dir(self._folder)
            _log.warning("cut bytes kept aside partition=%s path=%s", self._tp, path)

    def _unused(self, path: str) -> str:
        """Return a name for a file that is kept aside: nothing that was kept is overwritten."""
        number = 0
        while self._files.exists(name := f"{path}.{number}{ASIDE_SUFFIX}"):
            number += 1
        return name

    def _write_anew(self, segment: Segment) -> Steps[None]:
        """Write what was read, so that the next fsync writes it to the disk (R12).

        After a failed fsync the system may count as clean what it did not write: it is read from
        memory, a later fsync succeeds, and it is gone when memory is (fsyncgate). Kafka's
        recovery believes the later one. Found by the simulator (seed 31000123).
        """
        file, position = segment.file, 0
        while position < segment.size:
            data = file.pread(min(_WRITTEN_AT_ONCE, segment.size - position), position)
            if not data:
                break
            file.pwrite([data], position)
            position += len(data)
            yield None

    def _find_log_end(self) -> Steps[None]:
        loaded = self._loaded
        segments = loaded.segments
        if segments:
            last = segments[-1]
            if last.size == 0:
                end = last.base_offset
            else:
                end = yield from self._read_log_end(last)
            if end < loaded.log_start_offset:
                _log.warning(
                    "log end below log start, starting over partition=%s log_end_offset=%d "
                    "log_start_offset=%d",
                    self._tp,
                    end,
                    loaded.log_start_offset,
                )
                for segment in segments:
                    loaded.deleted_files += segment.mark_deleted()
                segments.clear()
                loaded.epochs.clear()
                self._producers_known = False
            else:
                loaded.log_end_offset = end
        if not segments:
            start = loaded.log_start_offset
            make = Segment.create if start else Segment.create_lazily
            segments.append(make(self._files, self._folder, start, self._now_ms))
            loaded.log_end_offset = start
        loaded.log_start_offset = max(loaded.log_start_offset, segments[0].base_offset)
        loaded.recovery_point = min(loaded.recovery_point, loaded.log_end_offset)
        if self._clean:
            loaded.recovery_point = loaded.log_end_offset

    def _read_log_end(self, last: Segment) -> Steps[int]:
        """Return the offset after the last batch of the active segment, by reading its end.

        Also after a clean stop: the file may have been copied, extended or cut short since.
        """
        point = self._loaded.recovery_point
        # A clean stop leaves the log end in two places; both agree.
        known = (
            self._clean
            and self._loaded.snapshots.offsets[-1:] == [point]
            and point > last.base_offset
        )
        try:
            end = yield from last.finding_end()
            if known and end < point:
                _log.warning(
                    "records are missing since the clean stop partition=%s offsets=%d..%d",
                    self._tp,
                    end,
                    point - 1,
                )
                self._loaded.may_be_incomplete = True
            if self._clean:
                last.close()  # thousands of logs may have no append for long
            return end
        except CorruptRecordError as error:
            if known:
                _log.error(
                    "log end unreadable, going on in a new segment partition=%s "
                    "log_end_offset=%d error=%s",
                    self._tp,
                    point,
                    error,
                )
                self._go_on_at(point)
                return point
            # The clean marker was wrong, or another process wrote into the file since.
            _log.warning("log end unreadable, recovering partition=%s error=%s", self._tp, error)
            self._known.on_damage()
            self._clean, self._was_clean = False, self._clean
            self._loaded.may_be_incomplete = True
            self._recovered_from = last.base_offset
            self._loaded.epochs.truncate_from_end(last.base_offset)
            yield from self._load_producers(last.base_offset)
            self._loaded.cut_bytes, end, _ = yield from self._check_segment(last)
            return end

    def _go_on_at(self, end: int) -> None:
        """Begin a segment behind one whose end cannot be read: nothing is cut there.

        What was appended to it could not be read either.
        """
        gaps = self._loaded.gaps
        if gaps.on_disk is not None:
            self._files.write_atomic(self._path(gap_bound.NAME), gap_bound.encode(end))
            self._loaded.gaps = GapBound(end, end)
        segment = Segment.create(self._files, self._folder, end, self._now_ms)
        self._loaded.segments.append(segment)

    def _settle_epochs(self, known: bool) -> Steps[None]:
        loaded = self._loaded
        epochs = loaded.epochs
        checked_all = self._recovered_from <= loaded.segments[0].base_offset
        if not known and not checked_all and loaded.log_end_offset > loaded.log_start_offset:
            epochs.clear()
            for segment in loaded.segments:
                try:
                    for count, (_, header) in enumerate(segment.headers(0)):
                        if header[LEADER_EPOCH] > epochs.latest:
                            epochs.assign(header[LEADER_EPOCH], header[BASE_OFFSET])
                        if not count % _HEADERS_AT_ONCE:
                            yield None
                except CorruptRecordError as error:
                    self._found_damage(error)
        epochs.truncate_from_end(loaded.log_end_offset)
        epochs.truncate_from_start(loaded.log_start_offset)

    def _found_damage(self, error: CorruptRecordError) -> None:
        """Continue without the unreadable offsets: damage below the recovery point (F20)."""
        _log.error("corrupt record found while loading partition=%s error=%s", self._tp, error)
        self._loaded.damaged = self._loaded.damaged or ()
        self._loaded.marked = False

    # Producers -------------------------------------------------------------------------

    def _settle_snapshots(self) -> None:
        """Drop snapshots that may not match what was recovered, or that nothing needs.

        Kept are those at segment bases and the newest one (Kafka's `removeStraySnapshots`).
        """
        loaded = self._loaded
        bound = loaded.log_end_offset
        if not self._clean:
            # Snapshots up to the recovery point were durable before it moved.
            bound = min(bound, max(self._recovered_from, loaded.recovery_point))
        bases = {s.base_offset for s in loaded.segments}
        newest = max((s for s in loaded.snapshots.offsets if s <= bound), default=-1)
        loaded.snapshots.keep_only(lambda s: s <= bound and (s in bases or s == newest))

    def _load_producers(self, upto: int) -> Steps[None]:
        """Load the producers of all batches below `upto`, from a snapshot and later batches."""
        loaded = self._loaded
        start = yield from loaded.snapshots.loading(
            loaded.producers, upto, loaded.log_start_offset, self._now_ms
        )
        self._producers_from = start
        self._producers_known = True
        try:
            yield from replaying(loaded.producers, loaded.segments, start, upto)
        except CorruptRecordError as error:
            # Flushed long ago and damaged since: a read there gets the error. What follows counts.
            self._found_damage(error)
        if not self._clean and self._known.high_watermark is not None:
            yield from self._find_unreplicated(self._known.high_watermark, start)

    def _find_unreplicated(self, mark: int, upto: int) -> Steps[None]:
        """Find the transactions whose markers lie from the high watermark on, but below `upto`.

        The snapshot at `upto` does not hold them. A clean stop names them in a file; after a crash
        they are found in the batches, from a snapshot below the high watermark on.
        """
        loaded = self._loaded
        older = [offset for offset in loaded.snapshots.offsets if offset <= mark]
        begin = max([loaded.log_start_offset, *older[-1:]])
        between = [s for s in loaded.segments if s.base_offset < upto]
        while len(between) > 1 and between[1].base_offset <= begin:
            del between[0]
        if mark >= upto or sum(s.size for s in between) > _MOST_REPLAYED:
            return
        before = Producers(loaded.producers.expiration_ms)
        begin = yield from loaded.snapshots.loading(
            before, mark, loaded.log_start_offset, self._now_ms
        )
        try:
            yield from replaying(before, loaded.segments, begin, upto)
        except CorruptRecordError as error:
            self._found_damage(error)
        before.on_high_watermark_updated(mark)
        loaded.producers.add_unreplicated(before.unreplicated)
