"""Lines to records, keys to partitions, records to batches."""

import json
import random
from collections import Counter

import pytest

from ottla.admin.operations import record_input
from ottla.admin.operations.record_input import (
    Lines,
    json_lines,
    keyed,
    keys_to_delete,
    plain,
    template,
)
from ottla.client.producer import BATCH_BYTES, Partitioner, _split
from ottla.model.errors import OttlaError
from ottla.model.partitioning import murmur2, partition_of
from ottla.wire.records import NewRecord, Record


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
    lines = Lines(plain(None, None))
    found = [
        pair for piece in (b"on", b"e\ntw", b"o\r\n\nla", b"st", b"") for pair in lines.feed(piece)
    ]
    assert found == [NewRecord(None, v) for v in (b"one", b"two", b"", b"last")]


def test_keys():
    found = list(Lines(plain(b"::", None)).feed(b"k::v::w\n::x\n"))
    assert found == [NewRecord(b"k", b"v::w"), NewRecord(b"", b"x")]


def test_nulls():
    found = list(Lines(plain(b":", b"-")).feed(b"k:-\n-:-\n--:\n"))
    assert found == [NewRecord(b"k", None), NewRecord(None, None), NewRecord(b"--", b"")]
    assert list(Lines(keys_to_delete).feed(b"k\n")) == [NewRecord(b"k", None)]


def test_records_that_end_otherwise():
    parse, end = template(r"%k %v;;", None)
    lines = Lines(parse, end)
    found = [r for piece in (b"a b\n;", b";c d\r;;", b"e f", b"") for r in lines.feed(piece)]
    assert found == [NewRecord(b"a", b"b\n"), NewRecord(b"c", b"d\r"), NewRecord(b"e", b"f")]


def test_a_line_without_key_is_named():
    lines = Lines(plain(b":", None))
    assert list(lines.feed(b"a:1\n")) == [NewRecord(b"a", b"1")]
    with pytest.raises(OttlaError, match=r"^line 2 has no key separator ':'"):
        list(lines.feed(b"nothing\n"))


def test_a_file_is_named():
    with pytest.raises(OttlaError, match=r"^a.json, line 1: not a record in JSON"):
        list(Lines(json_lines, where="a.json").feed(b"nothing\n"))


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ({"key": "a", "value": {"id": 1}}, NewRecord(b"a", b'{"id":1}')),
        (
            {"key": {"k": [1, "é"]}, "value": [1, None]},
            NewRecord('{"k":[1,"é"]}'.encode(), b"[1,null]"),
        ),
        ({"key": 5, "value": True}, NewRecord(b"5", b"true")),
        ({"key": None, "value": "{}"}, NewRecord(None, b"{}")),
        (
            {"value": {"id": 1}, "headers": [["a", "b"]]},
            NewRecord(None, b'{"id":1}', (("a", b"b"),)),
        ),
    ],
)
def test_json_of_any_kind_is_a_key_or_value(line, record):
    (found,) = Lines(json_lines).feed(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    assert found == record


def test_numbers_and_names_of_a_json_value_stay_as_they_were_typed():
    typed = rb'{"value": {"b": 1.00, "a": 123456789012345678901234567890, "c": "\u00e9", "b": 2}}'
    (found,) = Lines(json_lines).feed(typed + b"\n")
    assert found.value == rb'{"b":1.00,"a":123456789012345678901234567890,"c":"\u00e9","b":2}'


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"id":"a"}', b"a"),
        (b'{"id": {"n": 1} }', b'{"n":1}'),
        (b'{"id":7}', b"7"),
        (b'{"id":null}', None),
    ],
)
def test_a_field_of_the_value_is_the_key(line, key):
    (found,) = Lines(keyed(plain(None, None), "id")).feed(line + b"\n")
    assert found == NewRecord(key, line)
    (found,) = Lines(keyed(json_lines, "id")).feed(b'{"key":"other","value":' + line + b"}\n")
    assert found.key == key


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{}", "its value has no field 'id'"),
        (b"[1]", "its value is not a JSON object"),
        (b"x", "is not a JSON"),
    ],
)
def test_a_value_without_the_field_is_told(line, says):
    with pytest.raises(OttlaError, match=rf"^line 1: .*{says}"):
        list(Lines(keyed(plain(None, None), "id")).feed(line + b"\n"))


def test_what_happened_to_the_lines_before_a_wrong_one():
    for number, before, said in (
        (1, "were produced", ""),
        (2, "were produced", "; the lines before it were produced"),
        (2, "are valid", "; the lines before it are valid"),
    ):
        lines = Lines(json_lines, before=before)
        with pytest.raises(OttlaError) as error:
            list(lines.feed(b'{"value":"a"}\n' * (number - 1) + b"{\n"))
        assert str(error.value).startswith(f"line {number}: not a record in JSON")
        assert "; the lines" + str(error.value).partition("; the lines")[2] == (
            said or "; the lines"
        )


def test_those_before_a_bad_line_are_still_given():
    got = []
    with pytest.raises(OttlaError):
        got.extend(Lines(plain(b":", None)).feed(b"a:1\nb:2\nbad\nc:3\n"))
    assert got == [NewRecord(b"a", b"1"), NewRecord(b"b", b"2")]


def test_a_line_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(record_input, "MAX_LINE_BYTES", 1000)
    lines = Lines(plain(None, None))
    assert list(lines.feed(b"x" * 1000)) == []
    with pytest.raises(OttlaError, match="line 1 is longer"):
        list(lines.feed(b"x"))


def test_records_without_a_key_stay_in_a_partition_for_a_while():
    """Kafka's sticky partitioner: runs of batch.size bytes, each into a partition at random."""
    partitioner = Partitioner(8, range(8), random.Random(1), sticky=True)
    chosen = [partitioner.partition(None, 1024) for _ in range(16 * 800)]
    runs = [chosen[i : i + 16] for i in range(0, len(chosen), 16)]
    assert all(len(set(run)) == 1 for run in runs)
    counts = Counter(run[0] for run in runs)
    assert set(counts) == set(range(8))
    assert all(60 < n < 140 for n in counts.values()), counts


def test_at_random_each_record_for_itself_where_there_is_a_leader():
    partitioner = Partitioner(4, [1, 3], random.Random(1), sticky=False)
    counts = Counter(partitioner.partition(None, 10) for _ in range(1000))
    assert set(counts) == {1, 3}
    assert min(counts.values()) > 430
    assert partitioner.partition(b"21", 10) == partition_of(b"21", 4)


def test_batches_are_bounded_and_keep_order():
    records = [Record(value=bytes(BATCH_BYTES // 3), key=str(n).encode()) for n in range(10)]
    batches = _split(records)
    assert [r for batch in batches for r in batch] == records
    assert max(sum(len(r.value) for r in batch) for batch in batches) <= BATCH_BYTES
    assert _split([Record(value=bytes(2 * BATCH_BYTES))]) == [
        [Record(value=bytes(2 * BATCH_BYTES))]
    ]
