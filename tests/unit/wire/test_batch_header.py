"""The batch header's layout against the positions that Kafka's DefaultRecordBatch documents."""

import re
import struct
from pathlib import Path

import pytest

from ottla.wire import batch_header as layout
from ottla.wire import compression
from ottla.wire.records import Record, build_batch, crc_ok, parse_batch_header

SOURCE = Path(layout.__file__).parents[1]

# Field, where it begins, its width: from the table in Kafka's DefaultRecordBatch.
KAFKA = [
    ("base_offset", 0, 8),
    ("length", 8, 4),
    ("partition_leader_epoch", 12, 4),
    ("magic", 16, 1),
    ("crc", 17, 4),
    ("attributes", 21, 2),
    ("last_offset_delta", 23, 4),
    ("base_timestamp", 27, 8),
    ("max_timestamp", 35, 8),
    ("producer_id", 43, 8),
    ("producer_epoch", 51, 2),
    ("base_sequence", 53, 4),
    ("count", 57, 4),
]


def patterned():
    """Return a header of which each field has a value of its own, and the values."""
    values = {name: 3 + 7 * number for number, (name, _, _) in enumerate(KAFKA)}
    parts = [values[name].to_bytes(width, "big") for name, _, width in KAFKA]
    return b"".join(parts), values


def test_the_layout_is_that_of_kafka():
    raw, values = patterned()
    assert len(raw) == layout.HEADER_BYTES == 61
    assert [name for name, _ in layout.LAYOUT] == [name for name, _, _ in KAFKA]
    assert layout.unpack_header(raw, 0) == tuple(values.values())
    assert layout.BatchHeader.__struct_fields__ == tuple(values)
    at = {name: begin for name, begin, _ in KAFKA}
    assert (12, 17, at["magic"]) == (layout.LOG_OVERHEAD, layout.START_BYTES, layout.MAGIC_AT)
    assert (at["attributes"], at["attributes"] + 1) == (layout.CRC_START, layout.FLAGS_AT)
    assert at["partition_leader_epoch"] == layout.LEADER_EPOCH_AT


@pytest.mark.parametrize("before", [b"", b"x" * 9])
def test_what_reads_some_fields_reads_those(before):
    raw, v = patterned()
    raw, at = before + raw, len(before)
    assert layout.unpack_start(raw, at) == tuple(list(v.values())[:4])
    names = ("base_offset", "length", "magic", "crc", "last_offset_delta")
    assert layout.unpack_check(raw, at) == tuple(v[n] for n in names)
    names = ("base_offset", "length", "partition_leader_epoch", "last_offset_delta")
    assert layout.unpack_extent(raw, at) == tuple(v[n] for n in names)
    names = ("producer_id", "producer_epoch", "base_sequence")
    assert layout.unpack_producer(raw, at) == tuple(v[n] for n in names)


def test_each_change_changes_its_fields_alone():
    batch = bytearray(build_batch([Record(timestamp=5, value=b"a"), Record(timestamp=9)]))
    before = layout.unpack_header(batch, 0)

    def changed(other):
        after = layout.unpack_header(other, 0)
        names = [name for name, _, _ in KAFKA]
        return {n for n, a, b in zip(names, before, after, strict=True) if a != b}

    layout.stamp(memoryview(batch), 70, before[layout.LENGTH], 4)
    assert changed(batch) == {"base_offset", "partition_leader_epoch"}
    layout.with_max_timestamp(memoryview(batch), layout.LOG_APPEND_TIME_FLAG, 77)
    header = parse_batch_header(batch)
    assert crc_ok(batch, 0, header)
    assert (header.max_timestamp, header.timestamp_type) == (77, layout.LOG_APPEND_TIME)
    body = compression.compress(compression.GZIP, bytes(batch[61:]))
    other = layout.with_body(memoryview(batch), compression.GZIP, body)
    header = parse_batch_header(other)
    assert crc_ok(other, 0, header)
    assert (header.codec, header.size, header.base_offset) == (1, 61 + len(body), 70)


@pytest.mark.parametrize("size", [1000, (1 << 20) - 40, (1 << 20) - 21, 1 << 20, 3 << 20])
def test_the_checksum_of_large_batches_in_pieces_is_that_of_the_whole(size):
    batch = build_batch([Record(timestamp=5, value=b"v" * size)])
    assert layout.crc32c(batch[21:]) == int.from_bytes(batch[17:21], "big")
    header = parse_batch_header(batch)
    assert crc_ok(b"before" + batch + b"behind", 6, header)
    bad = bytearray(batch)
    bad[-1] ^= 1
    assert not crc_ok(bad, 0, header)


def test_no_other_module_knows_the_layout():
    """A format of `struct` that reads across the fields of a batch header, or a flag's number."""
    formats = re.compile(r"\"[>!](\d*x)?(qii|qi4x|qhii|hiqqq|\d+xqhi)")
    numbers = re.compile(r"(attributes|records\[\w+\]) & (0x|\d)|_(FLAG|MASK) = (0x)?\d")
    places = re.compile(r"(MAGIC|ATTRIBUTES|FLAGS|CRC|PRODUCER|LAST_DELTA)_(AT|START) = \d")
    found = [
        f"{path.relative_to(SOURCE)}:{n}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "batch_header.py"
        for n, line in enumerate(path.read_text().split("\n"), 1)
        if any(p.search(line) for p in (formats, numbers, places))
    ]
    assert not found
    assert formats.search('struct.Struct(">qi4xbI2xi")')
    assert struct.calcsize(">qi4xbI2xi") == 27
