"""Records as JSON lines and by templates: nothing is lost, and what is wrong is told."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.admin.operations.record_format import InputTemplate, Template, moment
from ottla.admin.operations.record_json import from_line, to_line
from ottla.model.ids import TopicPartition
from ottla.wire.records import NewRecord, Record

TP = TopicPartition("t", 3)
CONTENT = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
NAMES = (st.binary(max_size=9) | st.text(max_size=9).map(str.encode)).map(
    lambda b: b.decode(errors="surrogateescape")
)
RECORDS = st.builds(
    Record,
    offset=st.integers(0, 2**62),
    timestamp=st.integers(-1, 2**62),
    key=CONTENT,
    value=CONTENT,
    headers=st.lists(st.tuples(NAMES, CONTENT), max_size=4).map(tuple),
)


@given(RECORDS)
def test_a_json_line_loses_nothing(record):
    line = to_line(TP, record)
    assert b"\n" not in line
    assert line.isascii()
    assert from_line(line) == NewRecord(
        record.key, record.value, record.headers, record.timestamp, TP.partition
    )


@given(RECORDS)
def test_a_json_line_is_read_by_a_plain_reader(record):
    """The page's rule by another reader: text where it is UTF-8, else base64."""
    import base64

    def content(found, name):
        if name + "_base64" in found:
            data = base64.b64decode(found[name + "_base64"])
            with pytest.raises(UnicodeDecodeError):
                data.decode()
            return data
        return None if found[name] is None else found[name].encode()

    found = json.loads(to_line(TP, record))
    assert (found["topic"], found["partition"], found["offset"]) == (*TP, record.offset)
    assert content(found, "key") == record.key
    assert content(found, "value") == record.value
    headers = [(content(h, "key"), content(h, "value")) for h in found["headers"]]
    assert headers == [(n.encode(errors="surrogateescape"), v) for n, v in record.headers]


def test_what_people_write_by_hand():
    assert from_line(b'{"value": "v"}') == NewRecord(None, b"v")
    line = b'{"key": "k", "value": null, "headers": [["a", "1"], {"key": "b"}], "timestamp": null}'
    assert from_line(line) == NewRecord(b"k", None, (("a", b"1"), ("b", None)))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[1]", "object"),
        (b'{"key": "k"}', 'a tombstone is written as "value": null'),
        (b'{"value_base64": 1}', "$.value_base64"),
        (b'{"value": "a", "payload": "b"}', "payload"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both"),
        (b'{"value": null, "value_base64": "YQ=="}', "both"),
        (b'{"value_base64": "Y"}', "base64"),
        (b'{"value_base64": "\xc3\xa4==="}', "base64"),
        (b'{"value": "a", "headers": [{"value": "v"}]}', 'header without "key"'),
        (b'{"value": "a", "headers": {"a": "b"}}', "headers"),
        (b'{"value": "a", "timestamp": "now"}', "timestamp"),
        (b'{"value": "a", "timestamp": -2}', "-2"),
        (b'{"value": "a", "timestamp": 9223372036854775808}', "timestamp"),
        (b'{"value": "\\ud800"}', ""),
        (b'{"value": "\xff"}', "JSON"),
    ],
)
def test_a_wrong_line_is_told(line, says):
    with pytest.raises(ValueError, match=r"(?s).") as wrong:
        from_line(line)
    assert says in str(wrong.value)
    assert "\n" not in str(wrong.value)


RECORD = Record(7, 1_790_000_000_123, b"k", b"v\xff", (("a", b"1"), ("b", None)))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (r"%k=%v\n", b"k=v\xff\n"),
        ("%t[%p]@%o: %s", b"t[3]@7: v\xff"),
        (r"%h\t%H", b"a=1,b=-\t2"),
        ("%T %d", b"1790000000123 2026-09-21T14:13:20.123Z"),
        ("%K %V %S", b"1 2 2"),
        (r"100%% \\ \x00\xFF\0\r", b"100% \\ \x00\xff\x00\r"),
        ("ä%k", "äk".encode()),
    ],
)
def test_templates_print(template, text):
    assert Template(template, b"-").text(TP, RECORD) == text


def test_nulls_and_times_of_no_calendar():
    assert Template("%k|%v|%K|%V", b"NIL").text(TP, Record()) == b"NIL|NIL|-1|-1"
    assert moment(-1) == "-1"
    assert moment(2**62) == str(2**62)
    assert moment(0) == "1970-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    "template", ["%", "%x", "\\", r"\q", r"\x1", r"\xzz", "%k%", "abc\\"], ids=repr
)
def test_wrong_templates_are_told(template):
    with pytest.raises(ValueError, match=r"is not one of|it ends with"):
        Template(template, b"")


@pytest.mark.parametrize(
    ("template", "end", "text", "record"),
    [
        (r"%k=%v\n", b"\n", b"a=b=c", NewRecord(b"a", b"b=c")),
        ("%v", b"\n", b"a b", NewRecord(None, b"a b")),
        (r"%k %v;", b";", b"a b\n", NewRecord(b"a", b"b\n")),
        (r"<%k>%v\0", b"\0", b"<>", NewRecord(b"", b"")),
        (r"%p,%T,%v\n", b"\n", b"3,17,x", NewRecord(None, b"x", (), 17, 3)),
        (r"%h|%v", b"\n", b"a=1,b=NIL|x", NewRecord(None, b"x", (("a", b"1"), ("b", None)))),
        (r"%t %o %k %v\n", b"\n", b"t 9 NIL NIL", NewRecord(None, None)),
    ],
)
def test_templates_read(template, end, text, record):
    found = InputTemplate(template, b"NIL")
    assert found.end == end
    assert found.record(text) == record


@pytest.mark.parametrize(
    ("template", "text", "says"),
    [
        ("%k=%v", b"nothing", "no '='"),
        ("<%k", b"a", "no '<'"),
        (r"%T,%v", b"now,x", "timestamp 'now' is no number"),
        (r"%p,%v", b"1.5,x", "partition '1.5' is no number"),
        ("%h|%v", b"a|x", "header 'a' has no ="),
    ],
)
def test_input_that_does_not_fit_is_told(template, text, says):
    with pytest.raises(ValueError, match=r"(?s).") as wrong:
        InputTemplate(template, None).record(text)
    assert says in str(wrong.value)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("%k%v", "nothing stands between %k and %v"),
        ("%k %k", "%k stands twice"),
        ("abc", "no field"),
        ("", "no field"),
        ("%d %v", "%d is not one of"),
    ],
)
def test_templates_that_cannot_be_read_by_are_told(template, says):
    with pytest.raises(ValueError, match=r"(?s).") as wrong:
        InputTemplate(template, None)
    assert says in str(wrong.value)


KEYS = st.none() | st.text("abc", min_size=1, max_size=5).map(str.encode)


@given(KEYS, KEYS, st.integers(-1, 2**59))
def test_what_a_template_prints_it_reads(key, value, timestamp):
    text = Template(r"%T\t%k\t%v", b"-").text(TP, Record(7, timestamp, key, value))
    found = InputTemplate(r"%T\t%k\t%v\n", b"-").record(text)
    assert found == NewRecord(key, value, (), timestamp)
