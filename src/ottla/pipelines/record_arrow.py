"""Record batches as Arrow columns: the rows that Spark's Kafka connector makes of them.

Invariants: the rows are those of `wire.records.iter_records`, in their order; every batch's
checksum is checked before it is unpacked; markers make no rows; what an Arrow batch holds is
bounded. No object is made per record: fields are found by `record_positions`, and Arrow copies keys
and values out of the payload. What that module finds odd is read plainly, which raises what is
wrong with it. Kafka: `CompletedFetch` and Spark's `KafkaRecordToRowConverter`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.model.errors import CorruptRecordError, InvalidRecordError
from ottla.model.ports import Buffer
from ottla.pipelines.record_positions import (
    PADDING,
    HeaderPositions,
    Ints,
    Positions,
    parse,
    record_starts,
)
from ottla.wire.batch_header import BatchHeader
from ottla.wire.records import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Aborted,
    Record,
    crc_ok,
    iter_batches,
    iter_payload,
    read_payload,
)

HEADERS_TYPE = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}
"""All columns, in the connector's order; `headers` is null for a record that has none."""

EPOCH = "leaderEpoch"
"""A column that the connector has not: the leader epoch in which a record was written."""

COLUMNS = tuple(name for name in TYPES if name != "headers")
"""The connector's columns without its option includeHeaders."""

MAX_ROWS = 65_536
MAX_BYTES = 8 * 1024 * 1024
"""An Arrow batch is made of so many bytes of records, or of one record batch that holds more."""

NO_END = (1 << 63) - 1
_LARGEST_BASE = 1 << 62
_LARGEST_MS = ((1 << 63) - 1) // 1000


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """Return the schema of these columns, which Spark derives from the same types."""
    return pa.schema([pa.field(name, TYPES.get(name, pa.int32())) for name in columns])


class ArrowDecoder:
    """Turns the record batches of one partition into Arrow batches of some columns.

    `next_offset` is the offset after the last record batch seen, or the end of what was asked for
    once a batch beyond it was seen: where reading goes on. -1 before the first batch.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str] = COLUMNS,
        *,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        max_decompressed: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.schema = arrow_schema(columns)
        self.next_offset = -1
        self._where = f"{topic}-{partition}"
        self._builder = _Builder(topic, partition, columns, self.schema)
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._max_decompressed = max_decompressed

    def decode(
        self,
        buf: Buffer,
        *,
        first: int = 0,
        end: int = NO_END,
        aborted: Aborted | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records with offsets in [first, end); a batch cut off at the end is left out.

        With `aborted` (read_committed) records of aborted transactions are left out.
        CorruptRecordError for a bad checksum, InvalidRecordError for malformed records,
        UnsupportedFormatError for message formats 0 and 1, RecordTooLargeError for a batch that
        holds more than `max_decompressed` bytes; what was decoded before is yielded first.
        """
        run = _Run()
        try:
            for pos, header in iter_batches(buf, allow_partial=True):
                if header.base_offset >= end:
                    self.next_offset = end
                    break
                if 0 <= header.last_offset < first:
                    continue
                payload = self._payload(buf, pos, header, aborted)
                self.next_offset = header.next_offset
                if payload is None:
                    continue
                full = run.size + len(payload) > self._max_bytes
                if run.batches and (full or run.rows + header.count > self._max_rows):
                    yield from self._flush(run, first, end)
                    run = _Run()
                run.add(header, payload)
        except Exception:
            yield from self._flush(run, first, end)
            raise
        yield from self._flush(run, first, end)

    def _payload(
        self, buf: Buffer, pos: int, header: BatchHeader, aborted: Aborted | None
    ) -> Any | None:
        """Return a batch's records, unpacked; None if none of them is a row."""
        if not crc_ok(buf, pos, header):
            raise CorruptRecordError(
                f"{self._where}: the batch at offset {header.base_offset} fails its checksum"
            )
        if header.last_offset_delta < 0:  # reading would never get beyond it
            raise InvalidRecordError(
                f"{self._where}: the batch at offset {header.base_offset} ends before it begins"
            )
        if aborted is not None and aborted.covers(buf, pos, header):
            return None
        if header.is_control:
            return None
        return read_payload(header, buf, pos, max_size=self._max_decompressed)

    def _flush(self, run: "_Run", first: int, end: int) -> Iterator[pa.RecordBatch]:
        if not run.batches:
            return
        for rows in self._tables(run, first, end):
            for at in range(0, rows.num_rows, self._max_rows):
                yield rows.slice(at, self._max_rows)

    def _tables(self, run: "_Run", first: int, end: int) -> Iterator[pa.RecordBatch]:
        parsed = run.parse()
        if parsed is not None:
            yield self._builder.from_positions(*parsed, run.batches, first, end)
        elif len(run.batches) > 1:
            for header, payload in zip(run.batches, run.payloads, strict=True):
                single = _Run()
                single.add(header, payload)
                yield from self._tables(single, first, end)
        else:
            records = list(iter_payload(run.batches[0], bytes(run.payloads[0])))
            yield self._builder.from_records(run.batches[0], records, first, end)


class _Run:
    """Record batches that become one Arrow batch."""

    def __init__(self) -> None:
        self.batches: list[BatchHeader] = []
        self.payloads: list[Any] = []
        self.size = 0
        self.rows = 0

    def add(self, header: BatchHeader, payload: Any) -> None:
        self.batches.append(header)
        self.payloads.append(payload)
        self.size += len(payload)
        self.rows += max(0, header.count)

    def parse(self) -> tuple[bytes, Positions] | None:
        """Return the joined records and where their fields lie; None if the plain reader must."""
        if any(not _plausible(header) for header in self.batches):
            return None
        data = b"".join([*self.payloads, PADDING])
        starts: list[int] = []
        lasts: list[int] = []
        ends: list[int] = []
        at = 0
        for header, payload in zip(self.batches, self.payloads, strict=True):
            upto = at + len(payload)
            try:
                if not record_starts(data, at, upto, header.count, starts):
                    return None
            except IndexError:
                return None
            if header.count:
                lasts.append(len(starts) - 1)
                ends.append(upto)
            at = upto
        if not starts:
            return None
        begins = np.array(starts, np.int64)
        limits = np.append(begins[1:], at)
        limits[lasts] = ends
        positions = parse(data, begins, limits)
        return None if positions is None else (data, positions)


def _plausible(header: BatchHeader) -> bool:
    """Return whether sums with this header's bases stay within int64."""
    return header.count >= 0 and all(
        -_LARGEST_BASE < base < _LARGEST_BASE
        for base in (header.base_offset, header.base_timestamp, header.max_timestamp)
    )


class _Builder:
    """Makes Arrow batches of one partition's fields."""

    def __init__(
        self, topic: str, partition: int, columns: Sequence[str], schema: pa.Schema
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._columns = columns
        self._schema = schema

    def from_positions(
        self,
        data: bytes,
        found: Positions,
        batches: Sequence[BatchHeader],
        first: int,
        end: int,
    ) -> pa.RecordBatch:
        counts = [header.count for header in batches]
        offsets = found.offset_deltas + np.repeat([h.base_offset for h in batches], counts)
        keep = _wanted(offsets, first, end)

        def chosen(values: Ints) -> Ints:
            return values if keep is None else values[keep]

        arrays = []
        for name in self._columns:
            if name == "key":
                array = _binary(data, chosen(found.key_starts), chosen(found.key_lengths))
            elif name == "value":
                array = _binary(data, chosen(found.value_starts), chosen(found.value_lengths))
            elif name == "offset":
                array = pa.array(chosen(offsets))
            elif name == "timestamp":
                array = _timestamps(chosen(_times(found.timestamp_deltas, batches, counts)))
            elif name == "timestampType":
                kinds = np.repeat([h.timestamp_type for h in batches], counts)
                array = pa.array(chosen(kinds).astype(np.int32))
            elif name == EPOCH:
                epochs = np.repeat([h.partition_leader_epoch for h in batches], counts)
                array = pa.array(chosen(epochs).astype(np.int32))
            elif name == "headers":
                array = _headers(data, found.headers, keep, len(offsets))
            else:
                array = self._constant(name, len(chosen(offsets)))
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def from_records(
        self, header: BatchHeader, records: list[Record], first: int, end: int
    ) -> pa.RecordBatch:
        """Make the same of records read one by one."""
        if any(not -NO_END <= record.offset <= NO_END for record in records):
            raise InvalidRecordError(
                f"{self._topic}-{self._partition}: the batch at offset {header.base_offset} "
                f"has an offset beyond 64 bits"
            )
        kept = [record for record in records if first <= record.offset < end]
        limit = _LARGEST_MS
        plain: dict[str, Any] = {
            "key": [r.key for r in kept],
            "value": [r.value for r in kept],
            "offset": [r.offset for r in kept],
            "timestamp": [1000 * max(-limit, min(r.timestamp, limit)) for r in kept],
            "timestampType": [header.timestamp_type] * len(kept),
            EPOCH: [header.partition_leader_epoch] * len(kept),
            "headers": [
                [{"key": as_java_reads(name), "value": v} for name, v in r.headers] or None
                for r in kept
            ],
        }
        arrays = [
            pa.array(plain[name], TYPES.get(name, pa.int32()))
            if name in plain
            else self._constant(name, len(kept))
            for name in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, count: int) -> pa.Array:
        if name == "partition":
            return pa.array(np.full(count, self._partition, np.int32))
        text = self._topic.encode()
        ends = np.arange(0, (count + 1) * len(text), len(text), dtype=np.int32)
        return pa.StringArray.from_buffers(
            count, pa.py_buffer(ends), pa.py_buffer(text * count), None, 0
        )


def as_java_reads(name: str) -> str:
    """Return a header's name with what is no UTF-8 replaced, as Kafka's consumer gives it."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _wanted(offsets: Ints, first: int, end: int) -> Any | None:
    """Return which records to take; None for all."""
    if offsets.min() >= first and offsets.max() < end:
        return None
    return np.flatnonzero((offsets >= first) & (offsets < end))


def _times(deltas: Ints, batches: Sequence[BatchHeader], counts: list[int]) -> Ints:
    """Return milliseconds since 1970: of creation, or the batch's for LogAppendTime."""
    times: Ints = deltas + np.repeat([h.base_timestamp for h in batches], counts)
    if any(h.timestamp_type for h in batches):
        of_append = np.repeat([bool(h.timestamp_type) for h in batches], counts)
        times = np.where(of_append, np.repeat([h.max_timestamp for h in batches], counts), times)
    return times


def _timestamps(times: Ints) -> pa.Array:
    """Return microseconds; times that 64 bits cannot hold as such become the outermost ones."""
    limited = np.clip(times, -_LARGEST_MS, _LARGEST_MS)
    return pa.array(limited * 1000).cast(TYPES["timestamp"])


def _binary(data: bytes, starts: Ints, lengths: Ints) -> pa.Array:
    """Return a binary array of the fields that lie there, which must not overlap and ascend.

    Fields and the gaps between them are one Arrow array over `data`, of which Arrow takes every
    second element: the only copy of the bytes.
    """
    count = len(starts)
    missing = lengths < 0
    if missing.all():
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count + 1, dtype=np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = starts + np.maximum(lengths, 0)
    bounds[-1] = bounds[-2]
    pieces = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    fields = pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    if not missing.any():
        return fields
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [valid, *fields.buffers()[1:]], int(missing.sum())
    )


def _headers(data: bytes, found: HeaderPositions | None, keep: Any | None, count: int) -> pa.Array:
    """Return lists of name and value; null for records without headers, as in the connector."""
    if found is None:
        return pa.nulls(count if keep is None else len(keep), HEADERS_TYPE)
    counts = found.counts
    chosen: Any = slice(None)
    if keep is not None:
        kept = np.zeros(count, bool)
        kept[keep] = True
        chosen = kept[found.records]
        counts = counts[keep]
    names = _text(_binary(data, found.name_starts[chosen], found.name_lengths[chosen]))
    values = _binary(data, found.value_starts[chosen], found.value_lengths[chosen])
    entries = pa.StructArray.from_arrays([names, values], fields=list(HEADERS_TYPE.value_type))
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(ends), entries, type=HEADERS_TYPE, mask=pa.array(counts == 0)
    )


def _text(names: pa.Array) -> pa.Array:
    """Return names as strings, with what is no UTF-8 replaced."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
