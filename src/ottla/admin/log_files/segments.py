"""Segments and their indexes: read batch by batch, checked against each other.

Kafka: `DumpLogSegments`, whose checks these are.
"""

import mmap
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.admin.log_files.entries import (
    TIMES,
    AbortedEntry,
    Batch,
    Decoded,
    Found,
    IndexEntry,
    Note,
    Problem,
    ShownRecord,
    TimeEntry,
    batch_entry,
    sequence,
)
from ottla.admin.operations.record_json import field
from ottla.model.errors import OttlaError
from ottla.model.ports import Buffer
from ottla.wire.batch_header import (
    HEADER_BYTES,
    LEAST_LENGTH,
    LOG_OVERHEAD,
    MAGIC_V2,
    START_BYTES,
    BatchHeader,
    unpack_start,
)
from ottla.wire.message_sets import OLD_MAGICS, old_entry, upgraded
from ottla.wire.records import (
    ABORT,
    COMMIT,
    Record,
    crc_ok,
    iter_records,
    parse_batch_header,
    parse_control_record,
)

if TYPE_CHECKING:
    from ottla.admin.log_files.state_records import StateRecord

LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
_INDEX_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_MARKERS = {ABORT: "ABORT", COMMIT: "COMMIT"}


@contextmanager
def mapped(path: Path) -> Iterator[Buffer]:
    """Yield a file's bytes without reading them all into memory."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = memoryview(data)
            try:
                yield view
            finally:
                view.release()


def batches(data: Buffer, start: int = 0) -> Iterator[tuple[int, BatchHeader] | Problem]:
    """Yield (position, header) of each batch; a problem where bytes are none.

    After one of a former format it goes on; it ends where the next batch cannot be found.
    """
    position, end = start, len(data)
    while position < end:
        if end - position <= START_BYTES:
            return
        _offset, length, _epoch, magic = unpack_start(data, position)
        if length < LEAST_LENGTH:
            yield Problem(f"a batch claims a length of {length}", position)
            return
        if position + LOG_OVERHEAD + length > end:
            return
        if magic in OLD_MAGICS:
            old = old_entry(data, position)
            if old is None:
                yield Problem(f"a batch of message format {magic} with a wrong checksum", position)
            else:
                yield position, BatchHeader(*old)
        elif magic != MAGIC_V2 or length < HEADER_BYTES - LOG_OVERHEAD:
            yield Problem(f"{length} bytes of magic {magic} are no batch", position)
            return
        else:
            yield position, parse_batch_header(data, position)
        position += LOG_OVERHEAD + length


def segment(path: Path, *, records: bool, contents: bool, state_of: str | None = None) -> Found:
    """Yield what a segment holds: its batches; with `records` theirs, with `contents` bytes too.

    `state_of` is the internal topic whose records these are, to be decoded.
    """
    decode = None
    if state_of is not None:
        from ottla.admin.log_files.state_records import decoder  # only for those

        decode = decoder(state_of)
    base = _base_offset(path)
    yield f"Log starting offset: {base}"
    end, last_record, next_offset = 0, -1, base
    with mapped(path) as data:
        for found in batches(data):
            if isinstance(found, Problem):
                yield found
                continue
            position, header = found
            old = header.magic in OLD_MAGICS  # those with a wrong checksum are problems
            valid = old or crc_ok(data, position, header)
            yield batch_entry(position, header, valid=valid)
            if not valid:
                yield Problem("the batch does not match its checksum", position)
            if header.base_offset < next_offset:
                yield Problem(
                    f"a batch begins with offset {header.base_offset}, expected "
                    f"{next_offset} or more",
                    position,
                )
            next_offset = max(next_offset, header.next_offset)
            end = position + header.size
            if not records:
                continue
            try:
                whole = bytes(data[position : position + header.size])
                for record in iter_records(upgraded(whole) if old else whole):
                    if last_record not in (-1, record.offset - 1):
                        yield Note(f"offset {last_record} is followed by {record.offset}")
                    last_record = record.offset
                    yield _record_entry(header, record, contents, decode)
            except (OttlaError, ValueError) as error:
                yield Problem(f"the batch's records cannot be read: {error}", position)
        if end < len(data):
            left = len(data) - end
            yield f"Found {left} invalid bytes at the end of {path.name}"
            yield Problem(f"{left} bytes at the end are no whole batch", end)


def _record_entry(
    header: BatchHeader,
    record: Record,
    contents: bool,
    decode: "Callable[[Record], StateRecord] | None",
) -> ShownRecord:
    marker = coordinator_epoch = None
    fields: dict[str, Any] = {}
    shown: tuple[str | None, str | None] = (None, None)
    decoded = None
    if header.is_control:
        control = parse_control_record(record)
        marker = _MARKERS.get(control.type, f"UNKNOWN({control.type})")
        coordinator_epoch = control.coordinator_epoch if control.type in _MARKERS else None
    elif contents:
        fields = dict((field("key", record.key), field("value", record.value)))
        shown = (_decoded(record.key), _decoded(record.value))
        if decode is not None:
            found = decode(record)
            shown = (found.key, found.value)
            decoded = Decoded(found.decoded_key, found.decoded_value)
    return ShownRecord(
        offset=record.offset,
        timestamp_type=TIMES[header.timestamp_type],
        timestamp=record.timestamp,
        key_size=-1 if record.key is None else len(record.key),
        value_size=-1 if record.value is None else len(record.value),
        sequence=sequence(header, record),
        header_keys=[name.encode(errors="surrogateescape").decode(errors="replace")
                     for name, _ in record.headers],
        marker=marker,
        coordinator_epoch=coordinator_epoch,
        shown=shown,
        decoded=decoded,
        **fields,
    )  # fmt: skip


def _decoded(data: bytes | None) -> str | None:
    """Return text as Java decodes it: a surrogate is one wrong character, not one for each byte."""
    return None if data is None else _SURROGATE.sub(b"\xff", data).decode(errors="replace")


def _first_batch(data: Buffer, position: int) -> BatchHeader | None:
    """Return the batch at a position, None if there is none."""
    if not 0 <= position < len(data):
        return None
    found = next(batches(data, position), None)
    return found[1] if isinstance(found, tuple) and not isinstance(found, Problem) else None


def _log_beside(path: Path) -> Path | None:
    log = path.with_suffix(LOG)
    return log if log.exists() else None


def _base_offset(path: Path) -> int:
    return int(path.name.partition(".")[0])


def _whole(data: bytes, size: int) -> tuple[bytes, list[Problem]]:
    """Return the entries of `size` bytes, and what is wrong with what is left."""
    end = len(data) - len(data) % size
    if end == len(data):
        return data, []
    return data[:end], [Problem(f"{len(data)} bytes are no whole number of entries of {size}", end)]


def _segment_problems(path: Path) -> Iterator[Problem]:
    if _log_beside(path) is None:
        yield Problem(f"{path.with_suffix(LOG).name} is not beside it", None)


def _index_entries(data: bytes, base: int) -> Iterator[tuple[int, int, int]]:
    """Yield (place in the file, offset, position), but not the zeros a file in use ends with."""
    for i, (relative, position) in enumerate(_INDEX_ENTRY.iter_unpack(data)):
        if relative == 0 and i:
            return
        yield i * _INDEX_ENTRY.size, base + relative, position


def index(path: Path) -> Found:
    """Yield the entries of an offset index, each checked against the segment."""
    entries, problems = _whole(path.read_bytes(), _INDEX_ENTRY.size)
    yield from problems
    yield from _segment_problems(path)
    if not entries:
        yield f"{path} is empty."
        return
    log = _log_beside(path)
    if log is None:
        return
    with mapped(log) as records:
        for place, offset, position in _index_entries(entries, _base_offset(path)):
            batch = _first_batch(records, position)
            if batch is None:
                yield Problem(f"offset {offset}: no batch at {position} of {log.name}", place)
            elif batch.last_offset != offset:
                yield Problem(
                    f"offset {offset}: the batch at {position} of {log.name} ends with offset "
                    f"{batch.last_offset}",
                    place,
                )
            yield IndexEntry(offset, position)


def time_index(path: Path) -> Found:
    """Yield the entries of a time index, each checked against the segment."""
    entries, problems = _whole(path.read_bytes(), _TIME_ENTRY.size)
    yield from problems
    yield from _segment_problems(path)
    log = _log_beside(path)
    if log is None:
        return
    base = _base_offset(path)
    known = _known_positions(path.with_suffix(INDEX))
    before, next_known, start = -1, 0, 0
    with mapped(log) as records:
        for i, (timestamp, relative) in enumerate(_TIME_ENTRY.iter_unpack(entries)):
            if relative == 0 and i:
                return
            offset = base + relative
            while next_known < len(known) and known[next_known][0] <= offset:
                start = known[next_known][1]
                next_known += 1
            yield from _time_problems(records, start, timestamp, offset, i * _TIME_ENTRY.size)
            if before >= timestamp:
                yield Problem(
                    f"timestamp {timestamp} is not later than {before} before it",
                    i * _TIME_ENTRY.size,
                )
            yield TimeEntry(timestamp, offset)
            before = timestamp


def _known_positions(offset_index: Path) -> list[tuple[int, int]]:
    """Return (offset, position) of an offset index; nothing if there is none."""
    if not offset_index.exists():
        return []
    entries, _ = _whole(offset_index.read_bytes(), _INDEX_ENTRY.size)
    return [(o, p) for _, o, p in _index_entries(entries, _base_offset(offset_index))]


def _time_problems(
    records: Buffer, start: int, timestamp: int, offset: int, place: int
) -> Iterator[Problem]:
    for found in batches(records, start):
        if isinstance(found, Problem):
            break
        position, header = found
        if header.last_offset < offset:
            continue
        if header.last_offset > offset:
            yield Problem(
                f"offset {offset} is not the last of a batch; the next is {header.last_offset}",
                place,
            )
            return
        try:
            # Of a batch that compaction left without records the header keeps the time.
            largest = max(
                (r.timestamp for r in iter_records(records, position)),
                default=header.max_timestamp,
            )
        except (OttlaError, ValueError):
            return  # reported for the segment
        if largest != timestamp:
            yield Problem(
                f"offset {offset}: the largest timestamp of its batch is {largest}, not "
                f"{timestamp}",
                place,
            )
        return
    yield Problem(f"offset {offset} is in no batch of the segment", place)


def transaction_index(path: Path) -> Found:
    """Yield the aborted transactions of a segment."""
    from ottla.log import aborted  # only for such a file

    entries, problems = _whole(path.read_bytes(), aborted.ENTRY_SIZE)
    yield from problems
    for i, fields in enumerate(aborted.ENTRY.iter_unpack(entries)):
        if fields[0] != 0:
            yield Problem(f"an entry of version {fields[0]}", i * aborted.ENTRY_SIZE)
        elif not fields[2] <= fields[3]:
            yield Problem(
                f"a transaction from offset {fields[2]} to {fields[3]}", i * aborted.ENTRY_SIZE
            )
        yield AbortedEntry(*fields)


def is_segment_file(name: str) -> bool:
    """Return whether a name is an offset in 20 digits and a known ending."""
    base, dot, ending = name.partition(".")
    return base.isdigit() and dot + ending in (LOG, INDEX, TIME_INDEX, TXN_INDEX, ".snapshot")


__all__ = [
    "INDEX", "LOG", "TIME_INDEX", "TXN_INDEX", "Batch", "index", "is_segment_file", "segment",
    "time_index", "transaction_index",
]  # fmt: skip
