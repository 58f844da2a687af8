"""The segments of a log in its folder, and the offset where it ends.

Kafka: `LocalLog`. `log.Log` contains it: what the records mean (producers, epochs, the high
watermark) and when to roll, flush or fail is decided there. Invariants: `segments` is never empty,
and `active` is its last one; an OSError is raised as it comes.
"""

import contextlib
from bisect import bisect_right

from ottla.log.gap_bound import GapBound
from ottla.log.index import MAX_RELATIVE_OFFSET
from ottla.log.results import DiskRead, LogRead, is_shortage
from ottla.log.segment import MOST_AT_ONCE, Segment
from ottla.log.tail import TailBudget, TailCache
from ottla.model.config import TopicConfig
from ottla.model.errors import CorruptRecordError
from ottla.model.ports import World
from ottla.wire.batch_header import (
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LENGTH,
    LOG_OVERHEAD,
    Header,
    unpack_header,
    unpack_start,
)

_NEVER = 2**63 - 1
_UNKNOWN = -2
_TIME_INDEX_ENTRY = 12


class LocalLog:
    """The segments, and what was appended to them last."""

    def __init__(
        self,
        world: World,
        folder: str,
        config: TopicConfig,
        segments: list[Segment],
        log_end_offset: int,
        gaps: GapBound,
        budget: TailBudget,
        *,
        fresh: bool,
    ) -> None:
        self._world, self._files = world, world.files
        self.dir = folder
        self.segments = segments
        self.active = segments[-1]
        self.log_end_offset = log_end_offset
        self.gaps = gaps
        self.tail = TailCache(budget)
        self.truncations = 0
        """counts truncations: what a worker read before one is discarded"""
        self.deleted_files: list[str] = []
        """renamed to .deleted; the manager removes them after file.delete.delay.ms"""
        self.truncation_unsynced = False
        """whether a truncation may not be durable yet"""
        self.names_unsynced = self.own_name_unsynced = fresh
        """whether names in the folder, or its own name in the log dir, await their fsync"""
        self.config = config
        self.roll_timestamp = _UNKNOWN
        """a batch with a later timestamp may begin a new segment (segment.ms)"""
        self._index_limit = MAX_RELATIVE_OFFSET
        self.update_config(config)

    @property
    def parent_dir(self) -> str:
        """The log dir it lies in."""
        return self.dir.rpartition("/")[0]

    @property
    def size(self) -> int:
        return sum(s.size for s in self.segments)

    def update_config(self, config: TopicConfig) -> None:
        """Take new limits for segments, from the active one on."""
        self.config = config
        self.roll_timestamp = _UNKNOWN
        entries = max(config.segment_index_bytes // _TIME_INDEX_ENTRY, 1)
        self._index_limit = self.active.index_limit = entries

    # Which segment ---------------------------------------------------------------------

    def segment_index(self, offset: int) -> int:
        """Return the index of the segment whose range holds `offset`."""
        return max(bisect_right(self.segments, offset, key=lambda s: s.base_offset) - 1, 0)

    def holds(self, segments: list[Segment]) -> bool:
        """Return whether these adjacent segments are still this log's."""
        if not segments:
            return True
        at = self.segment_index(segments[0].base_offset)
        return self.segments[at : at + len(segments)] == segments

    def range_of(self, segment: Segment) -> tuple[int, int]:
        """Return the segment's base offset and that of the next one (or the log end)."""
        at = self.segment_index(segment.base_offset) + 1
        upper = self.segments[at].base_offset if at < len(self.segments) else self.log_end_offset
        return segment.base_offset, upper

    def segments_between(self, start: int, upto: int) -> list[Segment]:
        """Return the segments with offsets in [start, upto)."""
        found = self.segments[self.segment_index(start) :]
        return [s for s in found if s.base_offset < upto]

    # Appending and reading -------------------------------------------------------------

    def append(self, batch: memoryview, first: int, last: int, max_timestamp: int) -> None:
        """Append one batch to the active segment."""
        self.active.append(batch, last, max_timestamp, self.config.index_interval_bytes)
        self.log_end_offset = last + 1
        self.tail.append(first, batch)

    def append_run(self, run: memoryview, headers: list[tuple[int, Header]]) -> None:
        """Append batches to the active segment; `headers` has each one's place in `run`."""
        self.active.append_run(run, headers, self.config.index_interval_bytes)
        last = headers[-1][1]
        self.log_end_offset = last[BASE_OFFSET] + last[LAST_OFFSET_DELTA] + 1

    def read(
        self, offset: int, max_bytes: int, upto_offset: int, min_one: bool, now: bool
    ) -> DiskRead | None:
        """Read from the files, as `Segment.read`; None if no batch is there."""
        for segment in self.segments[self.segment_index(offset) :]:
            found = segment.read(offset, max_bytes, upto_offset, min_one, now)
            if found is not None:
                if not (len(found.data) or found.too_small or upto_offset < self.log_end_offset):
                    raise CorruptRecordError(f"{segment.path('.log')} leaps over the log end")
                self.tail.budget.misses += 1
                return found
        return None

    def upper_bound(self, found: LogRead) -> int:
        """Return an offset beyond all that was read, as near as the index shows."""
        if not found.from_file:  # one batch per part
            header: Header = unpack_header(found.parts[-1], 0)
            return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        base, _, _, _ = unpack_start(found.parts[-1], 0)  # all that an old entry may have
        segment = self.segments[self.segment_index(base)]
        upper = segment.offsets.beyond(base, found.size)
        return self.range_of(segment)[1] if upper is None else upper

    def damaged_range(self, offset: int) -> tuple[int, int]:
        """Return the offsets around `offset` that cannot be read, as (first, first good again).

        It reads a few MiB of the segment at most (F20).
        """
        segment = self.segments[self.segment_index(offset)]
        upper = self.range_of(segment)[1]
        first = offset
        place = segment.offsets.lookup(offset)
        if place == 0:
            first = segment.base_offset
        limit = min(segment.size, place + MOST_AT_ONCE)
        while place < limit:
            try:
                for position, header, _ in segment.batches(place):
                    base, last = (
                        header[BASE_OFFSET],
                        header[BASE_OFFSET] + header[LAST_OFFSET_DELTA],
                    )
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

    # Rolling ---------------------------------------------------------------------------

    def roll_is_due(self, size: int, last: int, max_timestamp: int, now_ms: int) -> bool:
        """Return whether a batch is to begin a new segment, where the active one is not empty."""
        segment, config = self.active, self.config
        if self.roll_timestamp == _UNKNOWN:
            self.begin_segment(segment.first_batch_timestamp())
        return (
            segment.size + size > config.segment_bytes
            or last > segment.max_offset
            or max_timestamp > self.roll_timestamp
            or (
                segment.first_batch_timestamp() < 0
                and now_ms - segment.created_ms > self._segment_ms
            )
            or len(segment.offsets) >= self._index_limit
        )

    def begin_segment(self, first_timestamp: int) -> None:
        """Set the time at which the active segment, with this first timestamp, is to be rolled."""
        self.roll_timestamp = _NEVER
        if first_timestamp >= 0:
            jitter = self.config.segment_jitter_ms
            if jitter:
                jitter = int(self._world.random.random() * min(jitter, self._segment_ms))
            self.roll_timestamp = first_timestamp + self._segment_ms - jitter

    @property
    def _segment_ms(self) -> int:
        config = self.config
        if config.compact:  # what must be compacted in time may not stay in the active segment
            return min(config.segment_ms, config.max_compaction_lag_ms)
        return config.segment_ms

    # Changing the segments -------------------------------------------------------------

    def roll(self, base_offset: int) -> None:
        """Begin a segment at `base_offset`, in the place of the active one if that is empty."""
        old = self.active
        segment = Segment.create(self._files, self.dir, base_offset, self._world.clock.wall_ms())
        if old.size:
            old.index_changed = True
            self.segments.append(segment)
        else:
            assert old.base_offset != base_offset, old  # both would have the same file
            old.close()
            old.remove_indexes()
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(old.path(".log"))
            self.segments[-1] = segment
        self._activate(segment)
        self.names_unsynced = True

    def _activate(self, segment: Segment) -> None:
        self.active = segment
        self.roll_timestamp = _UNKNOWN
        segment.index_limit = self._index_limit

    def truncate_to(self, offset: int, log_start_offset: int) -> int:
        """Drop everything from the batch that holds `offset` on; return the new log end."""
        cut = self.segments[self.segment_index(offset)]
        _ = cut.file, cut.aborted  # opened before anything is changed (F45)
        while self.segments[-1] is not cut:
            self._delete([self.segments.pop()])
        self._activate(cut)
        began = cut.truncate_to(offset)
        self._end_at(min(offset, max(began, log_start_offset)))
        return self.log_end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and begin again, empty, at `offset`."""
        self._delete(self.segments)
        now_ms = self._world.clock.wall_ms()
        try:
            segment = Segment.create(self._files, self.dir, offset, now_ms)
        except OSError as error:
            if not is_shortage(error):
                raise
            # Its file comes with the first batch. A start before that finds an empty log.
            segment = Segment.create_lazily(self._files, self.dir, offset, now_ms)
        self.segments = [segment]
        self._activate(segment)
        self._end_at(offset)

    def _end_at(self, offset: int) -> None:
        self.gaps.on_truncated(offset, self.active)
        self.log_end_offset = offset
        self.truncations += 1
        self.truncation_unsynced = self.names_unsynced = True
        self.tail.clear()

    def delete_oldest(self, count: int) -> None:
        """Drop the first `count` segments, which are not all there are."""
        gone = self.segments[:count]
        del self.segments[:count]
        self._delete(gone)

    def _delete(self, segments: list[Segment]) -> None:
        for segment in segments:
            self.deleted_files += segment.mark_deleted()
        self.names_unsynced = True

    def replace_segments(self, old: list[Segment], size: int, suffixes: list[str]) -> None:
        """Put the `.cleaned` files of these suffixes, durable by now, in the place of `old`.

        A crash before the last one is `.swap` undoes it, a later one completes it at the next
        start.
        """
        at = self.segment_index(old[0].base_offset)
        assert self.segments[at : at + len(old)] == old, old
        assert self.range_of(old[-1])[1] <= (self.gaps.on_disk or 0), self.gaps.on_disk
        new = Segment.open(
            self._files, self.dir, old[0].base_offset, size, max(s.created_ms for s in old)
        )
        for suffix in suffixes:
            self._files.rename(new.path(suffix) + ".cleaned", new.path(suffix) + ".swap")
        self._delete(old)
        for suffix in suffixes:
            self._files.rename(new.path(suffix) + ".swap", new.path(suffix))
        self.segments[at : at + len(old)] = [new]
        # What was cleaned away must not be read any more: its aborted transactions are forgotten.
        self.tail.drop_below(self.segments[at + 1].base_offset)

    def relocate(self, folder: str) -> None:
        """Use this path from now on: the folder was renamed to it."""
        for segment in self.segments:
            segment.relocate(folder)
        self.deleted_files = [folder + path[len(self.dir) :] for path in self.deleted_files]
        self.dir = folder
        self.names_unsynced = self.own_name_unsynced = True

    def release_idle(self) -> None:
        """Drop loaded indexes of segments that were not read lately."""
        for segment in self.segments[:-1]:
            segment.release()

    def close(self) -> None:
        """Release descriptors and memory without writing anything."""
        self.tail.clear()
        for segment in self.segments:
            segment.close()


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
