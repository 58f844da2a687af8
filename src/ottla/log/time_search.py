"""Searches a log by timestamp (ListOffsets).

Kafka: `UnifiedLog.fetchOffsetByTimestamp` and `LogSegment.findOffsetByTimestamp`. Invariants:
whatever reads files, checks or decompresses batches is a job, which touches a segment object and a
descriptor of its own, so that a worker can do it (F46); the log may change meanwhile, and then the
search begins again.
"""

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Generator
from functools import partial

from ottla.log.log import Log
from ottla.log.results import NotInMemoryError, TimestampOffset
from ottla.log.segment import Segment
from ottla.model.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    OttlaError,
    RecordTooLargeError,
)
from ottla.wire.batch_header import (
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP,
    Header,
)
from ottla.wire.message_sets import OLD_MAGICS, upgraded
from ottla.wire.records import iter_records

MOST_ATTEMPTS = 10
"""After so many truncations during one search its client is to ask again."""

Job = Callable[[], None]
Search = Generator[Job, None, TimestampOffset | None]
"""Yields jobs, each to be called once before the search continues; returns the record."""


class _ChangedError(Exception):
    """The log was truncated, or a segment went, while a job ran; never leaves the module."""


def find_by_timestamp(log: Log, timestamp: int) -> Search:
    """Search for the first record with a timestamp of at least `timestamp`."""
    return _repeated(log, lambda: _find_by_timestamp(log, timestamp))


def find_max_timestamp(log: Log) -> Search:
    """Search for the first record with the largest timestamp of all."""
    return _repeated(log, lambda: _find_max_timestamp_offset(log))


def _repeated(log: Log, attempt: Callable[[], Search]) -> Search:
    for _ in range(MOST_ATTEMPTS):
        if log.failed is not None:
            raise log.failed
        try:
            return (yield from attempt())
        except _ChangedError:
            continue
        except OSError as error:
            raise log.fail(error, "read") from error
    raise OttlaError(f"{log.tp} changes again and again", ErrorCode.OFFSET_NOT_AVAILABLE)


def _find_max_timestamp_offset(log: Log) -> Search:
    best = -1
    base = -1
    while (segment := _next_segment(log, base, None)) is not None:
        yield from _indexes(log, segment)
        best = max(best, segment.max_timestamp)
        base = segment.base_offset
    # If no record has a timestamp, the largest is -1, and the first record has it.
    return (yield from _find_by_timestamp(log, best)) if base >= 0 else None


def _find_by_timestamp(log: Log, timestamp: int) -> Search:
    base = -1
    while (segment := _next_segment(log, base, timestamp)) is not None:
        yield from _indexes(log, segment)
        if segment.max_timestamp >= timestamp:
            look = _TimestampJob(segment, timestamp, log.log_start_offset)
            truncations = log.local.truncations
            yield look
            _check(log, segment, truncations)
            if look.problem is not None:
                if isinstance(look.problem, CorruptRecordError):
                    log.found_damage(look.problem_at, look.problem)
                raise look.problem
            if look.found is not None:
                return look.found
        base = segment.base_offset
    return None


def _next_segment(log: Log, base: int, timestamp: int | None) -> Segment | None:
    """Return the first segment beyond offset `base` that may have such a timestamp."""
    segments = log.segments
    for at in range(bisect_right(segments, base, key=lambda s: s.base_offset), len(segments)):
        segment = segments[at]
        if not segment.size:
            continue
        if timestamp is None or not segment.knows_max_timestamp:
            return segment
        if segment.max_timestamp >= timestamp:
            return segment
    return None


def _indexes(log: Log, segment: Segment) -> Generator[Job, None, None]:
    """Yield a job that loads the segment's indexes and finds its largest timestamp."""
    for _ in range(2):
        try:
            segment.need_indexes(segment.base_offset, 0)
            break
        except NotInMemoryError as place:
            truncations = log.local.truncations
            yield partial(_bring, place)
            _check(log, segment, truncations)
    # What went wrong twice is found here, and taken for the log's.
    if segment.knows_max_timestamp:
        return
    look = _MaxTimestampJob(segment)
    truncations = log.local.truncations
    yield look
    _check(log, segment, truncations)
    if look.problem is not None:
        raise look.problem
    segment.adopt_max_timestamp(look.probe)


def _bring(place: NotInMemoryError) -> None:
    with contextlib.suppress(OSError):
        place.file.prefetch(place.size, place.position)


def _check(log: Log, segment: Segment, truncations: int) -> None:
    if log.failed is not None:
        raise log.failed
    if log.local.truncations != truncations or not log.local.holds([segment]):
        raise _ChangedError


class _Job:
    """A read of a segment, as it is now, by a worker."""

    def __init__(self, segment: Segment) -> None:
        self.probe = segment.probe()
        self.problem: OSError | OttlaError | None = None
        self._file = segment.file

    def __call__(self) -> None:
        reader = self._file.reader()
        if reader is None:  # closed: no segment of the log any more
            self.problem = FileNotFoundError(f"{self._file.path} was closed meanwhile")
            return
        self.probe.attach(reader)
        try:
            self._read()
        except OSError as error:
            self.problem = error
        finally:
            self.probe.close()

    def _read(self) -> None:
        raise NotImplementedError


class _MaxTimestampJob(_Job):
    """Finds the segment's largest timestamp."""

    def _read(self) -> None:
        _ = self.probe.max_timestamp


class _TimestampJob(_Job):
    """Searches one segment for a record."""

    def __init__(self, segment: Segment, timestamp: int, log_start_offset: int) -> None:
        super().__init__(segment)
        self._timestamp = timestamp
        self._log_start_offset = log_start_offset
        self.found: TimestampOffset | None = None
        self.problem_at = 0
        """the offset that could not be read"""

    def _read(self) -> None:
        try:
            self._search()
        except (CorruptRecordError, InvalidRecordError, RecordTooLargeError) as error:
            self.problem = error

    def _search(self) -> None:
        segment, timestamp = self.probe, self._timestamp
        self.problem_at = max(segment.times.lookup(timestamp), self._log_start_offset)
        place = segment.find(self.problem_at)
        if place is None:
            return
        for _, header, batch in segment.batches(place[0]):
            self.problem_at = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            if header[MAX_TIMESTAMP] < timestamp:
                continue
            self.found = self._first_in(header, batch)
            if self.found is not None:
                return

    def _first_in(self, header: Header, batch: memoryview) -> TimestampOffset | None:
        whole = upgraded(batch) if header[MAGIC] in OLD_MAGICS else batch
        for record in iter_records(whole):
            if record.timestamp >= self._timestamp and record.offset >= self._log_start_offset:
                return TimestampOffset(record.timestamp, record.offset, header[LEADER_EPOCH])
        return None
