"""The columnar reader against the plain one: same rows, or the same refusal, for any bytes."""

import struct

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.model.errors import CorruptRecordError, InvalidRecordError, OttlaError
from ottla.pipelines.record_arrow import COLUMNS, TYPES, ArrowDecoder, arrow_schema
from ottla.wire.batch_header import CRC_START, HEADER_BYTES, LOG_APPEND_TIME, crc32c
from ottla.wire.compression import CODEC_NAMES
from ottla.wire.record_check import varint
from ottla.wire.records import (
    ABORT,
    COMMIT,
    Aborted,
    Record,
    build_batch,
    build_control_batch,
    iter_batches,
    iter_records,
)

ALL = tuple(TYPES)
END = (1 << 63) - 1
OUTERMOST_MS = END // 1000


def rows_of(batches):
    return [tuple(row.values()) for batch in batches for row in _rows(batch)]


def _rows(batch):
    # Timestamps beyond year 9999 are no datetimes: compare the integers.
    at = batch.schema.get_field_index("timestamp")
    if at >= 0:
        plain = batch.column(at).cast(pa.int64())
        batch = batch.set_column(at, pa.field("timestamp", pa.int64()), plain)
    return batch.to_pylist()


def expected(buf, first=0, end=END):
    """Return what Kafka's consumer gives of these bytes, read record by record."""
    rows = []
    for pos, header in iter_batches(buf, allow_partial=True):
        if header.is_control:
            continue
        for r in iter_records(buf, pos):
            if not first <= r.offset < end:
                continue
            headers = [
                {"key": name.encode(errors="surrogateescape").decode(errors="replace"), "value": v}
                for name, v in r.headers
            ]
            micros = 1000 * max(-OUTERMOST_MS, min(r.timestamp, OUTERMOST_MS))
            kind = header.timestamp_type
            rows.append((r.key, r.value, "t", 3, r.offset, micros, kind, headers or None))
    return rows


def decoded(buf, columns=ALL, **options):
    bounds = {k: options.pop(k) for k in ("first", "end", "aborted") if k in options}
    return rows_of(ArrowDecoder("t", 3, columns, **options).decode(buf, **bounds))


blobs = st.one_of(st.none(), st.binary(max_size=3), st.binary(min_size=60, max_size=140))
BAD_UTF8 = b"\xff\xc3(".decode(errors="surrogateescape")
names = st.one_of(st.text(max_size=4), st.just(BAD_UTF8))
headers = st.lists(st.tuples(names, blobs), max_size=3).map(tuple)
times = st.integers(-(2**40), 2**40) | st.sampled_from([-1, 0, 1_700_000_000_000, 2**61, -(2**61)])


@st.composite
def batches(draw, base, *, with_headers=True):
    """One batch of a shape producers or the cleaner make: runs alike, gaps, any codec."""
    records, offset = [], base
    start = draw(times)
    for _ in range(draw(st.integers(1, 4))):
        key, value = draw(blobs), draw(blobs)
        extra = draw(headers) if with_headers and draw(st.booleans()) else ()
        step = draw(st.sampled_from([0, 0, 1, 70, 9000]))
        for number in range(draw(st.sampled_from([1, 2, 5, 90]))):
            records.append(Record(offset, start + number * step, key, value, extra))
            offset += 1
        offset += draw(st.sampled_from([0, 0, 1, 100, 20_000]))
    append = draw(st.booleans())
    return build_batch(
        records,
        base_offset=base,
        codec=draw(st.integers(0, 4)),
        timestamp_type=LOG_APPEND_TIME if append else 0,
        log_append_time=draw(times) if append else -1,
    ), offset


@st.composite
def logs(draw, **options):
    buf, base = b"", draw(st.sampled_from([0, 7, 2**40]))
    for _ in range(draw(st.integers(1, 4))):
        one, base = draw(batches(base, **options))
        buf += one
        if draw(st.integers(0, 4)) == 0:
            buf += build_control_batch(
                COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=5,
                base_offset=base,
            )  # fmt: skip
            base += 1
    return buf


@settings(max_examples=150, deadline=None)
@given(logs(), st.sampled_from([1, 50, 65_536]), st.sampled_from([100, 8 << 20]))
def test_rows_are_those_of_the_plain_reader(buf, max_rows, max_bytes):
    assert decoded(buf, max_rows=max_rows, max_bytes=max_bytes) == expected(buf)


@settings(max_examples=60, deadline=None)
@given(logs(), st.data())
def test_offset_range_and_columns(buf, data):
    offsets = [row[4] for row in expected(buf)]
    bounds = st.integers(min(offsets) - 2, max(offsets) + 2)
    first, end = data.draw(bounds), data.draw(bounds)
    columns = data.draw(st.lists(st.sampled_from(ALL), unique=True, min_size=1))
    at = [ALL.index(name) for name in columns]
    found = decoded(buf, columns, first=first, end=end)
    assert found == [tuple(row[i] for i in at) for row in expected(buf, first, end)]


def sealed(batch):
    """Return a batch with the checksum of what it holds, so that only its structure is wrong."""
    return batch[:17] + struct.pack(">I", crc32c(bytes(batch[CRC_START:]))) + batch[CRC_START:]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_records_are_refused_or_read_as_the_plain_reader_does(data):
    buf, _ = data.draw(batches(5))
    broken = bytearray(buf)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(CRC_START, len(buf) - 1))
        broken[at] = data.draw(
            st.sampled_from([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF]) | st.integers(0, 255)
        )
    broken = sealed(bytes(broken))
    assert outcome(lambda: decoded(broken)) == outcome(lambda: expected_in_bounds(broken))


def expected_in_bounds(buf):
    if any(header.last_offset_delta < 0 for _, header in iter_batches(buf)):
        raise InvalidRecordError("ends before it begins")
    rows = expected(buf, -(2**70), 2**70)
    if any(not -END <= row[4] <= END for row in rows):
        raise InvalidRecordError("beyond 64 bits")
    return [row for row in rows if 0 <= row[4] < END]


def outcome(read):
    try:
        return read()
    except OttlaError as error:
        return type(error)


slips = st.sampled_from([0] * 30 + [-2, -1, 1, 2, 64])


@st.composite
def slipped_records(draw):
    """A record whose lengths may be a little off, or its size, or both in step."""

    def field(content):
        return varint(len(content) + draw(slips)) + content

    body = b"\x00" + varint(draw(st.integers(0, 70))) + varint(draw(st.integers(0, 70)))
    contents = st.binary(max_size=3) | st.just(bytes(70)) | st.just(b"\x00\x00\x01")
    body += field(draw(contents)) + field(draw(contents))
    found = draw(st.lists(st.tuples(contents, contents), max_size=2))
    body += varint(len(found) + draw(slips))
    body += b"".join(field(name) + field(content) for name, content in found)
    body += draw(st.sampled_from([b""] * 20 + [b"\x00", b"\x01\x01"]))
    return varint(len(body) + draw(slips)) + body


@settings(max_examples=400, deadline=None)
@given(st.lists(slipped_records(), min_size=1, max_size=40), slips)
def test_lengths_that_are_off_are_noticed_as_the_plain_reader_does(records, slip):
    header = bytearray(build_batch([Record(timestamp=0)])[:HEADER_BYTES])
    buf = bytes(header) + b"".join(records)
    buf = bytearray(buf)
    struct.pack_into(">i", buf, 8, len(buf) - 12)
    struct.pack_into(">i", buf, HEADER_BYTES - 4, max(0, len(records) + slip))
    broken = sealed(bytes(buf))
    assert outcome(lambda: decoded(broken)) == outcome(lambda: expected_in_bounds(broken))


@settings(max_examples=60, deadline=None)
@given(logs())
def test_what_is_well_formed_never_needs_the_plain_reader(buf):
    decoder = ArrowDecoder("t", 3, ALL)
    decoder._builder.from_records = None
    assert rows_of(decoder.decode(buf)) == expected(buf)


def test_sizes_that_begin_with_the_same_byte_are_told_apart():
    """A size's varint begins with its six lowest bits: 64 bytes more begin alike."""
    values = [b"v" * (100 + 64 * (n % 7 == 6) + 8192 * (n % 50 == 49)) for n in range(300)]
    buf = build_batch([Record(value=value) for value in values])
    decoder = ArrowDecoder("t", 3, ["value"])
    decoder._builder.from_records = None
    assert rows_of(decoder.decode(buf)) == [(value,) for value in values]


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
@pytest.mark.parametrize("count", [1, 70, 20_000])
def test_every_codec(codec, count):
    records = [
        Record(timestamp=1_700_000_000_000 + n, key=b"%d" % n, value=b"v" * (n % 300))
        for n in range(count)
    ]
    buf = build_batch(records, codec=codec)
    assert decoded(buf) == expected(buf)


def test_a_flipped_byte_fails_the_checksum_after_the_batches_before_it():
    good = build_batch([Record(value=b"a")])
    bad = bytearray(build_batch([Record(value=b"bbb")], base_offset=1))
    bad[-3] ^= 1
    decoder = ArrowDecoder("t", 3)
    reading = decoder.decode(memoryview(good + bytes(bad)))
    assert next(reading).num_rows == 1
    with pytest.raises(CorruptRecordError, match="t-3: the batch at offset 1 fails its checksum"):
        next(reading)


def test_the_next_offset_passes_what_holds_no_rows():
    marker = build_control_batch(
        ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=5, base_offset=10
    )
    decoder = ArrowDecoder("t", 3)
    assert list(decoder.decode(marker + marker[:40])) == []
    assert decoder.next_offset == 11


def test_batches_before_the_first_offset_are_not_unpacked():
    broken = bytearray(build_batch([Record(value=b"bbb")]))
    broken[-3] ^= 1
    wanted = build_batch([Record(value=b"a")], base_offset=1)
    assert decoded(bytes(broken) + wanted, ("value",), first=1) == [(b"a",)]


def transactional(offset, producer, value):
    return build_batch(
        [Record(value=value)], base_offset=offset, producer_id=producer, producer_epoch=0,
        base_sequence=0, is_transactional=True,
    )  # fmt: skip


def marker(offset, producer, type_):
    return build_control_batch(
        type_, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=1,
        base_offset=offset,
    )  # fmt: skip


def test_aborted_transactions_are_left_out_and_what_follows_them_is_not():
    buf = b"".join(
        [
            transactional(0, 1, b"aborted"),
            transactional(1, 2, b"committed"),
            build_batch([Record(value=b"plain")], base_offset=2, producer_id=1, producer_epoch=0,
                        base_sequence=1),
            marker(3, 1, ABORT),
            transactional(4, 1, b"second try"),
            marker(5, 2, COMMIT),
            marker(6, 1, COMMIT),
            transactional(7, 1, b"aborted too"),
        ]
    )  # fmt: skip
    found = decoded(buf, ("value",), aborted=Aborted([(1, 7), (1, 0)]))
    assert found == [(b"committed",), (b"plain",), (b"second try",)]
    assert len(decoded(buf, ("value",))) == 5


def test_memory_is_bounded_by_rows_and_bytes():
    buf = b"".join(
        build_batch([Record(value=b"x" * 1000)] * 10, base_offset=10 * n) for n in range(100)
    )
    sizes = [b.num_rows for b in ArrowDecoder("t", 3, max_bytes=50_000).decode(buf)]
    assert sizes == [40] * 25
    sizes = [b.num_rows for b in ArrowDecoder("t", 3, max_rows=7).decode(buf)]
    assert max(sizes) == 7
    assert sum(sizes) == 1000


@example(9)
@example(10)
@given(st.integers(1, 10))
@settings(max_examples=10)
def test_the_longest_varints(length):
    delta = varint((1 << (7 * length - 2)) - 1)
    record = b"\x00" + delta + b"\x00\x01\x01\x00"
    payload = varint(len(record)) + record
    whole = build_batch([Record(timestamp=0)])
    buf = bytearray(whole[:HEADER_BYTES] + payload)
    struct.pack_into(">i", buf, 8, len(buf) - 12)
    assert decoded(sealed(bytes(buf))) == expected(sealed(bytes(buf)))


def test_the_schema_is_what_spark_makes_of_the_connectors():
    from pyspark.sql import types as t
    from pyspark.sql.pandas.types import to_arrow_schema

    pair = t.StructType().add("key", t.StringType()).add("value", t.BinaryType())
    connectors = (
        t.StructType()
        .add("key", t.BinaryType())
        .add("value", t.BinaryType())
        .add("topic", t.StringType())
        .add("partition", t.IntegerType())
        .add("offset", t.LongType())
        .add("timestamp", t.TimestampType())
        .add("timestampType", t.IntegerType())
        .add("headers", t.ArrayType(pair))
    )
    assert to_arrow_schema(connectors, timezone="UTC").equals(arrow_schema(ALL))
    plain = t.StructType(connectors.fields[:-1])
    assert to_arrow_schema(plain, timezone="UTC").equals(arrow_schema(COLUMNS))
