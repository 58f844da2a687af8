"""Lines to records, keys to partitions, records to batches."""

import pytest

from ottla.admin.operations.produce import BATCH_BYTES, MAX_LINE_BYTES, Lines, _split
from ottla.model.errors import OttlaError
from ottla.model.partitioning import murmur2, partition_of
from ottla.wire.records import Record


# Kafka's own test vectors (UtilsTest.testMurmur2), as unsigned numbers.
@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data, hashed):
    assert murmur2(data) == hashed & 0xFFFFFFFF


def test_partitions_are_in_range():
    assert {partition_of(str(n).encode(), 5) for n in range(200)} == set(range(5))


def test_lines_are_cut_wherever_the_input_is():
    lines = Lines(None)
    found = [
        pair for piece in (b"on", b"e\ntw", b"o\r\n\nla", b"st", b"") for pair in lines.feed(piece)
    ]
    assert found == [(None, b"one"), (None, b"two"), (None, b""), (None, b"last")]


def test_keys():
    assert list(Lines(b"::").feed(b"k::v::w\n::x\n")) == [(b"k", b"v::w"), (b"", b"x")]


def test_a_line_without_key_is_named():
    lines = Lines(b":")
    assert list(lines.feed(b"a:1\n")) == [(b"a", b"1")]
    with pytest.raises(OttlaError, match="line 2 has no key separator ':'"):
        list(lines.feed(b"nothing\n"))


def test_those_before_a_bad_line_are_still_given():
    got = []
    with pytest.raises(OttlaError):
        got.extend(Lines(b":").feed(b"a:1\nb:2\nbad\nc:3\n"))
    assert got == [(b"a", b"1"), (b"b", b"2")]


def test_a_line_without_end_is_stopped():
    lines = Lines(None)
    assert list(lines.feed(b"x" * MAX_LINE_BYTES)) == []
    with pytest.raises(OttlaError, match="line 1 is longer"):
        list(lines.feed(b"x"))


def test_batches_are_bounded_and_keep_order():
    records = [Record(value=bytes(BATCH_BYTES // 3), key=str(n).encode()) for n in range(10)]
    batches = _split(records)
    assert [r for batch in batches for r in batch] == records
    assert max(sum(len(r.value) for r in batch) for batch in batches) <= BATCH_BYTES
    assert _split([Record(value=bytes(2 * BATCH_BYTES))]) == [
        [Record(value=bytes(2 * BATCH_BYTES))]
    ]
