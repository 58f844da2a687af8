"""Rows of Spark to the bytes of record batches, column by column.

Lengths and deltas become columns of varints, and Arrow joins the columns of a record: no
Python object is made for a row, except where it has headers. Spark: `KafkaWriteTask` and
`KafkaRowWriter`, whose columns these are (`timestamp` is ours); other columns are left out.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from ottla.client.transactional_producer import Encoded
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.model.partitioning import MULTIPLIER, SEED
from ottla.wire.record_check import varint

BYTES = ("binary", "string")
HEADERS = "array<struct<key:string,value:binary>>"
TYPES = {
    "key": BYTES, "value": BYTES, "headers": (HEADERS,), "topic": ("string",),
    "partition": ("int",), "timestamp": ("timestamp",),
}  # fmt: skip
RECORD_BYTES = 12
"""About what a record takes beside key, value and headers."""
MOST_WAITING_BYTES = 32 << 20
"""What a task holds back at most, so that batches of many partitions are not small."""


def refuse_schema(schema: t.StructType, topic: str | None) -> None:
    """Raise ConfigError unless rows of a schema can be records."""
    names = schema.fieldNames()
    if "value" not in names:
        raise ConfigError(
            f"the rows have no column value; they have: {', '.join(names)} (to_json(struct(*)) AS "
            "value makes one)"
        )
    if topic is None and "topic" not in names:
        raise ConfigError("no topic is named: give option topic, or add a column `topic`")
    for field in schema:
        wanted, found = TYPES.get(field.name), field.dataType.simpleString()
        if wanted is not None and found not in wanted:
            raise ConfigError(f"column {field.name} is {found}, not {' or '.join(wanted)}: cast it")


class _Rows(NamedTuple):
    """Some rows for one partition, as columns."""

    key: pa.Array
    value: pa.Array
    headers: pa.Array | None
    """Their count and bytes; None if no row has any."""
    times: np.ndarray
    """Milliseconds."""

    def take(self, order: np.ndarray | slice) -> "_Rows":
        if isinstance(order, slice):
            headers = None if self.headers is None else self.headers[order]
            return _Rows(self.key[order], self.value[order], headers, self.times[order])
        headers = None if self.headers is None else self.headers.take(order)
        return _Rows(self.key.take(order), self.value.take(order), headers, self.times[order])

    def sizes(self) -> np.ndarray:
        found: np.ndarray = _lengths(self.key) + _lengths(self.value) + RECORD_BYTES
        if self.headers is not None:
            found += _lengths(self.headers)
        return found


class RowEncoder:
    """Collects rows by topic and partition, and gives them back as batches.

    `count_of` says how many partitions a topic has. Rows without key and partition go in runs of a
    batch to one partition after another, from `first` on.
    """

    def __init__(
        self, topic: str | None, count_of: Callable[[str], int], batch_bytes: int, first: int
    ) -> None:
        self.rows = self.bytes = 0
        self._topic = topic
        self._count_of = count_of
        self._batch_bytes = batch_bytes
        self._keyless = first * batch_bytes
        self._waiting: dict[TopicPartition, tuple[list[_Rows], int]] = {}
        self._waiting_bytes = 0

    def take(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Encoded]]:
        """Take rows; yield the batches that are full by that. ConfigError for rows that cannot."""
        if not batch.num_rows:
            return
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        rows = _Rows(
            _bytes_of(columns.get("key"), batch.num_rows),
            _bytes_of(columns["value"], batch.num_rows),
            _encoded_headers(columns.get("headers")),
            _times(columns.get("timestamp"), batch.num_rows),
        )
        sizes = rows.sizes()
        self.rows += len(sizes)
        self.bytes += int(sizes.sum())
        for topic, chosen in self._topics(columns.get("topic")):
            some = rows if chosen is None else rows.take(chosen)
            wanted = columns.get("partition")
            if wanted is not None and chosen is not None:
                wanted = wanted.take(chosen)
            some_sizes = sizes if chosen is None else sizes[chosen]
            partitions = self._partitions(topic, wanted, some.key, some_sizes)
            self._lay(topic, partitions, some, some_sizes)
        full = [tp for tp, (_, size) in self._waiting.items() if size >= self._batch_bytes]
        if self._waiting_bytes > MOST_WAITING_BYTES:
            full = list(self._waiting)
        for tp in full:
            yield from self._batches(tp)

    def rest(self) -> Iterator[tuple[TopicPartition, Encoded]]:
        """Yield what is left."""
        for tp in list(self._waiting):
            yield from self._batches(tp)

    def _topics(self, column: pa.Array | None) -> Iterator[tuple[str, np.ndarray | None]]:
        """Yield each topic with its rows (None: all)."""
        if self._topic is not None:
            yield self._topic, None
            return
        assert column is not None
        if column.null_count:
            raise ConfigError("a row has a null topic: give option topic, or fill the column")
        coded = column.dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        for number, topic in enumerate(coded.dictionary.to_pylist()):
            yield topic, None if len(coded.dictionary) == 1 else np.flatnonzero(codes == number)

    def _partitions(
        self, topic: str, wanted: pa.Array | None, keys: pa.Array, sizes: np.ndarray
    ) -> np.ndarray:
        """Return each row's partition: its column's, the key's by Kafka's hash, or the next one."""
        count = self._count_of(topic)
        chosen = np.full(len(keys), -1, np.int32)
        if wanted is not None and wanted.null_count < len(wanted):
            there = wanted.is_valid().to_numpy(zero_copy_only=False)
            chosen[there] = wanted.drop_null().to_numpy(zero_copy_only=False)
            bad = chosen[there][(chosen[there] < 0) | (chosen[there] >= count)]
            if len(bad):
                raise ConfigError(
                    f"a row names partition {bad[0]}: topic {topic} has partitions 0 to {count - 1}"
                )
        keyed = keys.is_valid().to_numpy(zero_copy_only=False) & (chosen < 0)
        if keyed.any():
            chosen[keyed] = (murmur2(keys.filter(pa.array(keyed))) & 0x7FFFFFFF) % count
        free = np.flatnonzero(chosen < 0)
        if len(free):
            ends = np.cumsum(sizes[free])
            chosen[free] = (self._keyless + ends) // self._batch_bytes % count
            self._keyless += int(ends[-1])
        return chosen

    def _lay(self, topic: str, partitions: np.ndarray, rows: _Rows, sizes: np.ndarray) -> None:
        order = np.argsort(partitions, kind="stable")
        ordered = partitions[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        if len(starts) > 1:
            rows, sizes = rows.take(order), sizes[order]
        for start, end in zip(starts, [*starts[1:], len(ordered)], strict=True):
            tp = TopicPartition(topic, int(ordered[start]))
            parts, size = self._waiting.get(tp, ([], 0))
            added = int(sizes[start:end].sum())
            parts.append(rows.take(slice(start, end)))
            self._waiting[tp] = (parts, size + added)
            self._waiting_bytes += added

    def _batches(self, tp: TopicPartition) -> Iterator[tuple[TopicPartition, Encoded]]:
        parts, size = self._waiting.pop(tp)
        self._waiting_bytes -= size
        for rows in parts:
            ends = np.cumsum(rows.sizes())
            start = 0
            while start < len(ends):
                before = ends[start - 1] if start else 0
                end = int(np.searchsorted(ends, before + self._batch_bytes, "right"))
                end = max(end, start + 1)
                yield tp, encoded(rows.take(slice(start, end)))
                start = end


def encoded(rows: _Rows) -> Encoded:
    """Return rows as the payload of a record batch."""
    count, base = len(rows.times), int(rows.times[0])
    columns: list[Any] = [
        pa.scalar(b"\x00", pa.binary()),
        varints(rows.times - base),
        varints(np.arange(count)),
        varints(_lengths(rows.key, null=-1)),
        rows.key.fill_null(b""),
        varints(_lengths(rows.value, null=-1)),
        rows.value.fill_null(b""),
        pa.scalar(b"\x00", pa.binary()) if rows.headers is None else rows.headers,
    ]
    bodies = pc.binary_join_element_wise(*columns, b"")
    records = pc.binary_join_element_wise(varints(_lengths(bodies)), bodies, b"")
    _, offsets, data = records.buffers()
    bounds = np.frombuffer(offsets, np.int32)
    first, last = int(bounds[records.offset]), int(bounds[records.offset + count])
    payload = bytearray(memoryview(data)[first:last])
    return Encoded(payload, count, base, int(rows.times.max()))


def varints(values: np.ndarray) -> pa.Array:
    """Return numbers as zigzag varints."""
    values = values.astype(np.int64)
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    width = max(1, (int(zigzag.max(initial=0)).bit_length() + 6) // 7)
    sizes = np.ones(len(values), np.int32)
    for step in range(1, width):
        sizes += zigzag >= np.uint64(1 << 7 * step)
    places = np.arange(width)
    matrix = (zigzag[:, None] >> (7 * places).astype(np.uint64)).astype(np.uint8) & 0x7F
    matrix |= ((places < sizes[:, None] - 1) * 0x80).astype(np.uint8)
    data = matrix[places < sizes[:, None]]
    bounds = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def murmur2(keys: pa.Array) -> np.ndarray:
    """Return Kafka's hash of each key, none of which is null."""
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    found = np.zeros(len(keys), np.uint32)
    multiplier = np.uint32(MULTIPLIER)
    octets = np.frombuffer(data or b"", np.uint8)
    lengths = np.diff(bounds)
    for length in np.unique(lengths):
        where = np.flatnonzero(lengths == length)
        matrix = octets[bounds[where][:, None] + np.arange(length)]
        hashed = np.full(len(where), SEED ^ int(length), np.uint32)
        whole = int(length) & ~3
        words = np.ascontiguousarray(matrix[:, :whole]).view("<u4")
        for column in range(whole // 4):
            word = words[:, column] * multiplier
            word = (word ^ word >> np.uint32(24)) * multiplier
            hashed = hashed * multiplier ^ word
        for at in reversed(range(whole, int(length))):
            hashed ^= matrix[:, at].astype(np.uint32) << np.uint32(8 * (at - whole))
        if whole < length:
            hashed *= multiplier
        hashed = (hashed ^ hashed >> np.uint32(13)) * multiplier
        found[where] = hashed ^ hashed >> np.uint32(15)
    return found


def _bytes_of(column: pa.Array | None, count: int) -> pa.Array:
    return pa.nulls(count, pa.binary()) if column is None else column.cast(pa.binary())


def _lengths(column: pa.Array, null: int = 0) -> np.ndarray:
    found: np.ndarray = pc.binary_length(column).fill_null(null).to_numpy(zero_copy_only=False)
    return found.astype(np.int64)


def _times(column: pa.Array | None, count: int) -> np.ndarray:
    now = time.time_ns() // 1_000_000
    if column is None or column.null_count == count:
        return np.full(count, now, np.int64)
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    found: np.ndarray = micros.fill_null(now * 1000).to_numpy(zero_copy_only=False) // 1000
    return found


def _encoded_headers(column: pa.Array | None) -> pa.Array | None:
    """Return the headers of each row as they stand in a record."""
    if column is None or column.null_count == len(column):
        return None
    return pa.array([_header_bytes(row or ()) for row in column.to_pylist()], pa.binary())


def _header_bytes(headers: Sequence[dict[str, Any]]) -> bytes:
    parts = [varint(len(headers))]
    for header in headers:
        if header is None or header["key"] is None:
            raise ConfigError("a row has a header that is null, or has a null key: leave it out")
        name, value = header["key"].encode(), header["value"]
        parts += [varint(len(name)), name]
        parts += [b"\x01"] if value is None else [varint(len(value)), value]
    return b"".join(parts)
