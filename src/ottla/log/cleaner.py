"""The cleaner: compacts the logs of topics with cleanup.policy=compact, the dirtiest first.

Kafka: `LogCleaner`; what to clean and what stays is decided by `compaction`. Invariants: only
closed, replicated, decided and flushed segments are read; it works in slices of a few milliseconds
and others run in between, so after each pause it checks that the log has not changed. A truncation,
a deletion, another policy or a move to another log dir (which copies the files and the cleaner's
offset) aborts the cleaning, and only its work is lost. Files that cannot be written take their log
dir offline.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from ottla.log import aborted as aborted_index
from ottla.log import compaction, gap_bound
from ottla.log.aborted import AbortedTransaction
from ottla.log.cleaner_batches import (
    RetainedRecords,
    add_keys,
    empty_batch,
    encode_batch,
    filter_records,
    new_batch,
    payload_of,
    small_payload_of,
)
from ottla.log.compaction import (
    BatchRetention,
    CleanedTransactionMetadata,
    LastWritten,
    LogToClean,
    OffsetMap,
)
from ottla.log.index import OFFSET_ENTRY, TIME_ENTRY
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.results import NotInMemoryError
from ottla.log.segment import Segment
from ottla.log.transactions import read_marker
from ottla.model.config import BrokerConfig
from ottla.model.errors import (
    CorruptRecordError,
    InvalidRecordError,
    OutOfDescriptorsError,
    RecordTooLargeError,
    StorageError,
)
from ottla.model.ids import TopicPartition
from ottla.model.ports import Buffer, Files, World
from ottla.model.retention_clock import RetentionClock
from ottla.model.steps import Driven
from ottla.wire.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LAST_OFFSET_DELTA,
    MAGIC,
    RECORD_COUNT,
    Header,
    unpack_header,
)
from ottla.wire.message_sets import MERGED_BYTES, OLD_MAGICS, merged, upgraded

logger = logging.getLogger(__name__)

T = TypeVar("T")

SLICE_S = 0.004
"""how long the cleaner runs before it yields to the event loop"""
_LEAST_BACKOFF_S = 0.05
_BIG = 1 << 14
"""payloads from this size on are put together and compressed by a worker"""
_LARGE = 1 << 20
"""batches from this size on are written by a worker"""
AT_ONCE = 1 << 20
"""bytes per read; a larger batch is read whole"""


class SegmentInput:
    """The batches of a segment from the one that holds `offset` on, about a megabyte at a time.

    A worker reads, through a segment object and a descriptor of its own: what is cleaned is old,
    seldom in memory, and one batch of it may have 100 MiB (F46). Entries of format 0 and 1 come as
    batches of format 2 with the same records, so the cleaned segment has those. Kafka: the reading
    half of `Cleaner.buildOffsetMapForSegment` and `cleanInto`.
    """

    def __init__(self, segment: Segment, offset: int) -> None:
        self._file = segment.file
        self._probe = segment.probe()
        self._offset = offset
        self._batches: Iterator[tuple[int, Header, memoryview]] | None = None
        self._reading = self._closed = False
        self._old: list[memoryview] = []
        """entries of format 0 or 1, not compressed, that are to become one batch"""
        self._old_bytes = 0

    def read(self) -> list[tuple[Header, memoryview]] | None:
        """Return the next batches, none at the end, None if the file was closed; for a worker.

        CorruptRecordError at a bad one, OSError.
        """
        self._reading = True
        try:
            if self._batches is None:
                reader = self._file.reader()
                if reader is None:
                    return None
                self._probe.attach(reader)
                self._batches = self._probe.batches(self._start())
            some: list[tuple[Header, memoryview]] = []
            size = 0
            for _, header, batch in self._batches:
                if header[MAGIC] not in OLD_MAGICS:
                    self._end_old(some)
                    some.append((header, batch))
                elif header[ATTRIBUTES]:
                    self._end_old(some)
                    _add(some, upgraded(batch))
                else:
                    self._old.append(batch)
                    self._old_bytes += len(batch)
                    if self._old_bytes >= MERGED_BYTES:
                        self._end_old(some)
                size += len(batch)
                if size >= AT_ONCE:
                    break
            self._end_old(some)
            return some
        finally:
            self._reading = False
            if self._closed:
                self._probe.close()

    def _end_old(self, some: list[tuple[Header, memoryview]]) -> None:
        if self._old:
            _add(some, merged(self._old))
            self._old, self._old_bytes = [], 0

    def _start(self) -> int:
        if self._offset <= self._probe.base_offset:
            return 0
        place = self._probe.find(self._offset)
        return self._probe.size if place is None else place[0]

    def close(self) -> None:
        """Close the descriptor: at once, or when a worker that is reading is done."""
        self._closed = True
        if not self._reading:
            self._probe.close()


def _add(some: list[tuple[Header, memoryview]], batch: bytes) -> None:
    some.append((unpack_header(batch, 0), memoryview(batch)))


CLEANED = ".cleaned"
_INDEXES = (".index", ".timeindex", ".txnindex")
_RUN_BYTES = 1 << 18


class CleanedSegment:
    """The `.log.cleaned` file with its indexes: takes batches, `finish`, then `make_durable`.

    No reader sees these files before they are durable and renamed by `LocalLog.replace_segments`;
    a start removes what a crash leaves of them. Kafka: `UnifiedLog.createNewCleanedSegment`.
    """

    def __init__(
        self, files: Files, folder: str, base_offset: int, created_ms: int, index_interval: int
    ) -> None:
        self._files = files
        self._interval = index_interval
        self._segment = Segment.create_lazily(files, folder, base_offset, created_ms)
        self._file = files.open(self._path(".log"), create=True)
        self._file.truncate(0)
        self._segment.attach(self._file)
        self._parts: list[Buffer] = []
        self._headers: list[tuple[int, Header]] = []
        self._waiting = 0
        self._indexes: list[tuple[str, bytes]] = []
        self.suffixes: list[str] = []
        """suffixes of the files written, known after `finish`; `.log` first"""

    @property
    def size(self) -> int:
        return self._segment.size + self._waiting

    def _path(self, suffix: str) -> str:
        return self._segment.path(suffix) + CLEANED

    def add(self, batch: Buffer) -> None:
        """Take one batch; OSError if a full run cannot be written."""
        self._headers.append((self._waiting, unpack_header(batch, 0)))
        self._parts.append(batch)
        self._waiting += len(batch)
        if self._waiting >= _RUN_BYTES:
            self._write()

    def _write(self) -> None:
        if self._parts:
            run = memoryview(b"".join(self._parts))
            self._segment.append_run(run, self._headers, self._interval)
            self._parts, self._headers, self._waiting = [], [], 0

    def finish(self, aborted: list[AbortedTransaction]) -> None:
        """Write the buffered batches; `make_durable` writes the indexes."""
        self._write()
        self._segment.finish_indexes()
        self._indexes = [
            (".index", self._segment.offsets.dump()),
            (".timeindex", self._segment.times.dump()),
        ]
        if aborted:
            self._indexes.append((".txnindex", aborted_index.encode(aborted)))
        self.suffixes = [".log", *(suffix for suffix, _ in self._indexes)]

    def make_durable(self) -> None:
        """Write the indexes and sync everything; a worker may call it."""
        self._file.fsync()
        for suffix, data in self._indexes:
            self._files.write_atomic(self._path(suffix), data)

    def close(self) -> None:
        self._segment.close()

    def discard(self) -> None:
        """Remove everything: the cleaning was aborted."""
        self.close()
        for suffix in (".log", *_INDEXES):
            with contextlib.suppress(OSError):
                self._files.remove(self._path(suffix))


class CleaningAbortedError(Exception):
    """The log changed under the cleaner; never leaves the module."""


@dataclass(slots=True)
class _Work:
    """One cleaning of one log."""

    logs: LogManager
    log: Log
    dirt: LogToClean
    offsets: OffsetMap
    now_ms: int
    truncations: int
    segments: list[Segment]
    bytes_read: int = 0
    bytes_written: int = 0

    def check(self) -> None:
        """Raise unless the segments at hand are still those of the log."""
        log = self.log
        whole = log.local.truncations == self.truncations and log.local.holds(self.segments)
        moving = self.logs.future(log.tp) is not None
        if log.failed is not None or not whole or not log.config.compact or moving:
            raise CleaningAbortedError


@dataclass(slots=True)
class CleanerFigures:
    """What Kafka tells of its cleaner, of the last cleaning and the last look at all logs."""

    recopied_percent: int = 0
    """Bytes that were kept, of those that were read."""
    cleaning_s: float = 0.0
    buffer_percent: int = 0
    """How full the map of keys was."""
    dirty_percent: int = 0
    """The largest part of a log that could be cleaned."""
    looked_s: float | None = None
    """The monotonic clock at the last look."""


class LogCleaner:
    """Cleans the logs of one manager, one at a time."""

    def __init__(self, world: World, config: BrokerConfig, logs: LogManager) -> None:
        self._world = world
        self._ages = RetentionClock(world.clock)
        self._config = config
        self._logs = logs
        self._slice_began_s = 0.0
        self._spent_bytes = 0
        self.uncleanable: dict[TopicPartition, Log] = {}
        """uncleanable logs: something unexpected was found; skipped until the next start"""
        self.cleanings = 0
        self.aborted = 0
        self.last = CleanerFigures()

    async def run(self) -> None:
        """Clean until cancelled. A loop root."""
        if not self._config.flag("log.cleaner.enable"):
            return
        while True:
            if not await self.clean_dirtiest():
                backoff_s = self._config.integer("log.cleaner.backoff.ms") / 1000
                await asyncio.sleep(max(backoff_s, _LEAST_BACKOFF_S))

    async def clean_dirtiest(self) -> bool:
        """Clean the log with the largest cleanable ratio; return whether it succeeded."""
        self._slice_began_s = self._world.clock.monotonic()
        found = await self._dirtiest()
        if found is None:
            return False
        log, dirt = found
        try:
            await self._clean(log, dirt)
            return True
        except CleaningAbortedError:
            self.aborted += 1
            logger.info("log cleaning aborted partition=%s", log.tp)
        except (StorageError, OutOfDescriptorsError):
            pass  # said by now: its dir is offline, or it is tried again later
        except (CorruptRecordError, InvalidRecordError, RecordTooLargeError) as error:
            self.uncleanable[log.tp] = log
            if isinstance(error, CorruptRecordError):
                log.note_damage(None, error)
            logger.error("log cannot be cleaned partition=%s error=%s", log.tp, error)  # noqa: TRY400
        return False

    def uncleanable_bytes(self) -> dict[str, tuple[int, int]]:
        """Return of each log dir how many of its logs cannot be cleaned, and their bytes."""
        found = dict.fromkeys(self._logs.live_dirs, (0, 0))
        for log in self.uncleanable.values():
            if log.parent_dir in found:
                logs, size = found[log.parent_dir]
                found[log.parent_dir] = logs + 1, size + log.size
        return found

    # Choosing --------------------------------------------------------------------------

    async def _dirtiest(self) -> tuple[Log, LogToClean] | None:
        best: tuple[Log, LogToClean] | None = None
        now_ms = self._ages.now_ms()
        most = 0.0
        for log in self._logs.logs():
            config = log.config
            if not config.compact or log.failed is not None:
                continue
            if self.uncleanable.get(log.tp) is log:
                continue
            if self._logs.future(log.tp) is not None:
                continue
            dirt = log_to_clean_of(log, now_ms)
            most = max(most, dirt.ratio)
            if not dirt.should_clean(config.min_cleanable_dirty_ratio):
                continue
            if best is None or dirt.ratio > best[1].ratio:
                best = log, dirt
            await self._yield_to_loop()
        self.last.dirty_percent = round(100 * most)
        self.last.looked_s = self._world.clock.monotonic()
        if best is None or best[0].failed is not None:
            return None
        return best[0], log_to_clean_of(best[0], now_ms)

    # Cleaning --------------------------------------------------------------------------

    async def _clean(self, log: Log, dirt: LogToClean) -> None:
        offsets = OffsetMap(
            self._config.integer("log.cleaner.dedupe.buffer.size"),
            float(str(self._config["log.cleaner.io.buffer.load.factor"])),
        )
        now_ms = self._ages.now_ms()
        began_s = self._world.clock.monotonic()
        work = _Work(self._logs, log, dirt, offsets, now_ms, log.local.truncations, [])
        try:
            await self._map_keys(work)
            end = offsets.latest_offset + 1
            transactions = CleanedTransactionMetadata()
            segments = [s for s in log.segments[:-1] if s.base_offset < end]
            await self._allow_gaps(work)
            sizes = [await self._size_of(work, s) for s in segments]
            at = 0
            for count in compaction.group_segments(
                sizes,
                log.config.segment_bytes,
                log.config.segment_index_bytes,
                dirt.first_uncleanable,
            ):
                work.segments = segments[at : at + count]
                await self._clean_group(work, transactions)
                at += count
        except OSError as error:
            raise log.fail(error, "cleaning") from error
        log.cleaned_offset = end
        await self._logs.write_cleaned_offsets(self._world.workers, log)
        self.cleanings += 1
        self.last.cleaning_s = self._world.clock.monotonic() - began_s
        self.last.buffer_percent = round(100 * len(offsets) / offsets.limit)
        self.last.recopied_percent = round(100 * work.bytes_written / max(1, work.bytes_read))
        logger.info(
            "log cleaned partition=%s offsets=%d..%d keys=%d bytes=%d->%d",
            log.tp,
            dirt.first_dirty,
            end,
            len(offsets),
            work.bytes_read,
            work.bytes_written,
        )

    async def _map_keys(self, work: _Work) -> None:
        """Read the dirty part into the map, until it is full; batches are read as a whole."""
        log, first, offsets = work.log, work.dirt.first_dirty, work.offsets
        upto = work.dirt.first_uncleanable
        transactions = CleanedTransactionMetadata()
        transactions.add_aborted(log.aborted_transactions(first, upto))
        offsets.latest_offset = first - 1
        segments = log.local.segments_between(first, upto)
        for number, segment in enumerate(segments):
            work.segments = [segment]
            async with aclosing(self._batches(work, segment, first)) as batches:
                async for header, batch in batches:
                    if offsets.is_full:
                        return
                    if header[ATTRIBUTES] & CONTROL_FLAG:
                        transactions.on_control_batch_read(header, _is_abort(header, batch))
                    elif not transactions.on_batch_read(header):
                        payload = await self._payload(work, header, batch)
                        await self._all(work, add_keys(payload, header, offsets, first))
                    offsets.latest_offset = max(
                        offsets.latest_offset, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
                    )
                    await self._tick(work, len(batch))
            # Offsets may be missing at the segment's end; they are done with, too.
            following = segments[number + 1].base_offset if number + 1 < len(segments) else upto
            offsets.latest_offset = max(offsets.latest_offset, following - 1)

    async def _allow_gaps(self, work: _Work) -> None:
        """Raise the gap bound, durably, to where the cleaned segments end."""
        log, gaps = work.log, work.log.local.gaps
        gaps.raise_to(work.dirt.first_uncleanable)
        if gaps.unwritten:
            data = gap_bound.encode(gaps.upto)
            await self._logs.write_beside(self._world.workers, log, gap_bound.NAME, data)
            work.check()
        if gaps.unwritten:  # descriptors have run out
            raise CleaningAbortedError

    async def _clean_group(self, work: _Work, transactions: CleanedTransactionMetadata) -> None:
        log, group = work.log, work.segments
        work.check()
        producers = {
            p.id: LastWritten(p.epoch, p.batches[-1].last_offset if p.batches else None)
            for p in log.producers.producers.values()
        }
        rules = compaction.RecordFilter(
            work.offsets, transactions, producers, work.now_ms, log.config.delete_retention_ms
        )
        output = CleanedSegment(
            self._world.files,
            log.dir,
            group[0].base_offset,
            group[-1].created_ms,
            log.config.index_interval_bytes,
        )
        done = False
        try:
            kept: list[AbortedTransaction] = []
            for segment in group:
                transactions.add_aborted(log.aborted_transactions(*log.local.range_of(segment)))
                await self._clean_into(work, segment, output, rules)
            kept += transactions.kept
            transactions.kept = []
            output.finish(kept)
            await self._world.workers.run(output.make_durable)
            work.check()
            output.close()
            done = True  # from here on a crash completes it
            log.replace_segments(group, output.size, output.suffixes)
            self._logs.remove_deleted(log)
            work.bytes_written += output.size
        finally:
            if not done:
                output.discard()

    async def _clean_into(
        self, work: _Work, segment: Segment, output: CleanedSegment, rules: compaction.RecordFilter
    ) -> None:
        async with aclosing(self._batches(work, segment, 0)) as batches:
            async for header, batch in batches:
                control = bool(header[ATTRIBUTES] & CONTROL_FLAG)
                ending = _is_abort(header, batch) if control else None
                decided = rules.check_batch_retention(
                    header, ending, control and not header[RECORD_COUNT]
                )
                made: Buffer | None = None
                if decided.retention is BatchRetention.HEADER_ONLY:
                    made = empty_batch(header)
                elif decided.retention is not BatchRetention.DELETE:
                    made = await self._filter_records(work, header, batch, rules, decided)
                if made is not None:
                    if len(made) < _LARGE:
                        output.add(made)
                    else:
                        await self._in_worker(work, output.add, made)
                work.bytes_read += len(batch)
                await self._tick(work, len(batch) + (len(made) if made is not None else 0))

    async def _filter_records(
        self,
        work: _Work,
        header: Header,
        batch: memoryview,
        rules: compaction.RecordFilter,
        decided: compaction.BatchRetentionResult,
    ) -> Buffer | None:
        """Return what stays of a batch: itself where nothing changes, None if nothing is left."""
        attributes = header[ATTRIBUTES]
        waits = bool(attributes & DELETE_HORIZON_FLAG)
        if decided.retention is BatchRetention.RETAIN and (waits or not decided.sets_horizon):
            return batch
        payload = await self._payload(work, header, batch)
        if decided.retention is BatchRetention.RETAIN:
            kept = await self._all(work, filter_records(payload, header, _RETAIN_ALL))
            dies = True
        else:
            kept = await self._all(work, filter_records(payload, header, rules))
            dies = kept.tombstones and not waits
        horizon = rules.new_horizon_ms if dies else None
        return await self._rebuild(work, header, batch, payload, kept, horizon, decided.retention)

    async def _rebuild(
        self,
        work: _Work,
        header: Header,
        batch: memoryview,
        payload: bytes,
        kept: RetainedRecords,
        horizon: int | None,
        retention: BatchRetention,
    ) -> Buffer | None:
        if not kept.places:
            return empty_batch(header) if retention is BatchRetention.RETAIN_EMPTY else None
        if len(kept.places) == header[RECORD_COUNT] and horizon is None:
            return batch
        made = await self._all(work, new_batch(payload, header, kept, horizon))
        if made.size < _BIG:
            return encode_batch(header, made)
        return await self._in_worker(work, encode_batch, header, made)

    # Workers ---------------------------------------------------------------------------

    async def _batches(
        self, work: _Work, segment: Segment, offset: int
    ) -> AsyncGenerator[tuple[Header, memoryview], None]:
        """Yield the segment's batches from the one that holds `offset` on."""
        source = SegmentInput(segment, offset)
        try:
            while some := await self._in_worker(work, source.read):
                for found in some:
                    yield found
            if some is None:
                raise CleaningAbortedError
        finally:
            source.close()

    async def _size_of(self, work: _Work, segment: Segment) -> compaction.SegmentSize:
        try:
            segment.need_indexes(segment.base_offset, 0)
        except NotInMemoryError as place:
            await self._in_worker(work, place.file.prefetch, place.size, place.position)
            segment.need_indexes(segment.base_offset, 0)
        await self._tick(work, 0)
        return compaction.SegmentSize(
            segment.base_offset,
            segment.size,
            len(segment.offsets) * OFFSET_ENTRY,
            len(segment.times) * TIME_ENTRY,
        )

    async def _payload(self, work: _Work, header: Header, batch: memoryview) -> bytes:
        """Return a batch's records, decompressed."""
        payload = small_payload_of(batch, header)
        if payload is None:
            payload = await self._in_worker(work, payload_of, batch, header)
        return payload

    async def _in_worker(self, work: _Work, function: Callable[..., T], *args: object) -> T:
        result = await self._world.workers.run(function, *args)
        work.check()
        return result

    # Pace ------------------------------------------------------------------------------

    async def _all(self, work: _Work, steps: Generator[None, None, T]) -> T:
        """Run a generator to its end, with pauses."""
        driven = Driven(steps)
        for _ in driven:
            await self._tick(work, 0)
        return driven.result

    async def _tick(self, work: _Work, size: int) -> None:
        """Count bytes read or written; pause if it is time, then look whether all is as it was."""
        self._spent_bytes += size
        if await self._yield_to_loop():
            work.check()

    async def _yield_to_loop(self) -> bool:
        """Let others run if the slice is over; return whether they did."""
        clock = self._world.clock
        worked_s = clock.monotonic() - self._slice_began_s
        if worked_s < SLICE_S:
            return False
        rate = float(str(self._config["log.cleaner.io.max.bytes.per.second"]))
        await asyncio.sleep(max(worked_s, self._spent_bytes / rate - worked_s))
        self._spent_bytes = 0
        self._slice_began_s = clock.monotonic()
        return True


class _RetainAll(compaction.RecordFilter):
    """Retains every record: for a control batch that only gets its delete horizon."""

    def __init__(self) -> None:
        super().__init__(OffsetMap(0), CleanedTransactionMetadata(), {}, 0, 0)


_RETAIN_ALL = _RetainAll()


def log_to_clean_of(log: Log, now_ms: int) -> LogToClean:
    """Return which part of a log may be cleaned now."""
    segments = [
        compaction.CleanableSegment(
            s.base_offset, s.size, s.largest_timestamp, s.first_batch_timestamp
        )
        for s in log.segments
    ]
    facts = compaction.CleanableLog(
        segments,
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        log.recovery_point,
        log.cleaned_offset,
    )
    lags = compaction.CompactionLags(
        log.config.min_compaction_lag_ms, log.config.max_compaction_lag_ms
    )
    return compaction.find_log_to_clean(facts, lags, now_ms)


def _is_abort(header: Header, batch: memoryview) -> bool | None:
    """Return whether a marker aborts; None for control records of another kind, or none at all."""
    marker = read_marker(batch) if header[RECORD_COUNT] else None
    return None if marker is None else marker.aborted
