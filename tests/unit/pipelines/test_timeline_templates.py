"""Many lines read at once by their templates, beside `lines.parse`, which reads them one by one."""

import importlib.util
import itertools
import re
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.pipelines.timeline import rows as r
from ottla.pipelines.timeline import templates
from ottla.pipelines.timeline.events import UNREAD
from ottla.pipelines.timeline.forms import FORMS, NAMING, PLAIN
from ottla.pipelines.timeline.lines import parse
from ottla.pipelines.timeline.reading import Reader, Split, splits

_spec = importlib.util.spec_from_file_location(
    "timeline_lines", Path(__file__).with_name("test_timeline_lines.py")
)
_lines = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_lines)
TEXTS = [text for text, _ in _lines.LINES]

ZONE = ZoneInfo("Europe/Vienna")
DIGITS = st.one_of(
    st.integers(0, 12).map(str),
    st.sampled_from(["007", "99999999999", "2147483647", "2147483648", "9" * 18, "9" * 19]),
)
TIMES = st.sampled_from(
    ["[2026-11-22 16:27:33,713] ", "[2026-03-29 02:30:00,001] ", "2026-10-25 02:30:00,999 ",
     "[2026-02-31 16:00:00,000] ", "[2026-11-22 16:27:33,71] ", "[226-11-22 16:27:33,7133] ", ""]
)  # fmt: skip
ODD = [b"", b"\xff", b"\xc3\xa9", b"\x00", b"-", b"7", b"x", b" ", b"\xe2\x80\xa8", b"\xd9\xa3"]


@st.composite
def raw_lines(draw):
    """Draw a line of a known form with other numbers and times, often damaged."""
    text = draw(st.sampled_from(TEXTS))
    if draw(st.booleans()):
        text = re.sub(r"\d+", lambda found: draw(DIGITS), text)
    line = (draw(TIMES) + text + " (state.change.logger)").encode()
    damage = draw(st.sampled_from(["none", "none", "cut", "put", "stack"]))
    place = draw(st.integers(0, len(line)))
    if damage == "cut":
        line = line[:place]
    elif damage == "put":
        line = line[:place] + draw(st.sampled_from(ODD)) + line[place + draw(st.integers(0, 2)) :]
    elif damage == "stack":
        line = draw(st.sampled_from([b"", b"\tat kafka.Kafka.main(1)", b"java.io.IOException: 7"]))
    return line


def said(rows, texts):
    """Return what each row says, in the shape of `expected`."""
    found = []
    for row in rows:
        if row["kind"] == r.KIND[UNREAD]:
            found.append(None)
            continue
        numbers = [int(row[name]) for name in (*r.NUMBERS, *r.LONG_NUMBERS)]
        names = [int(row[name]) for name in r.TEXTS]
        found.append(
            (
                int(row["time_ms"]), r.KINDS[row["kind"]], r.SIDES[row["side"]],
                *(None if number == r.NONE else number for number in numbers),
                *(None if name == r.NO_TEXT else texts.names[name] for name in names),
            )
        )  # fmt: skip
    return found


def expected(line):
    event = parse(line.decode("utf-8", "replace"), ZONE)
    if event is None:
        return None
    columns = (*r.NUMBERS, *r.LONG_NUMBERS, *r.TEXTS)
    return (event.time_ms, event.kind, event.side, *(getattr(event, name) for name in columns))


def padded(raw):
    data = np.frombuffer(b"\n" + raw + b"\n" * templates.PADDING, np.uint8)
    return data, 1 + len(raw)


# A parser that has learned from all lines before: what it took from them must hold for the next.
PARSER_TEXTS = r.Texts()
PARSER = templates.Parser(ZONE, PARSER_TEXTS)


@settings(max_examples=400, deadline=None)
@given(st.lists(raw_lines(), min_size=1, max_size=20), st.sampled_from([b"\n", b"\r\n"]))
def test_each_line_says_what_the_plain_parser_reads(lines, end):
    block = templates.split(*padded(end.join(lines) + end))
    rows = PARSER.parse(block)
    assert said(rows, PARSER_TEXTS) == [expected(line) for line in lines]


def test_every_form_is_known_and_learned_once():
    lines = [f"{_lines.HEAD}{text} (state.change.logger)".encode() for text in TEXTS]
    texts = r.Texts()
    parser = templates.Parser(ZONE, texts)
    one_higher = [re.sub(rb"\d+$", b"4321", line) for line in lines]
    rows = parser.parse(templates.split(*padded(b"\n".join([*lines, *one_higher]) + b"\n")))
    found = said(rows, texts)
    assert found == [expected(line) for line in [*lines, *one_higher]]
    assert None not in found
    assert {kind for _, kind, *_ in found} >= {form.kind for form in FORMS} - {"stopped"}


def test_no_form_tells_one_digit_from_another():
    """What templates rest on: digits are named in no pattern but as any digit."""
    for form in (*FORMS, NAMING, PLAIN):
        assert not re.search(r"\d", form.needle)
        body = re.sub(r"\(\?P<\w+>", "(", form.pattern)  # names of groups
        body = body.replace(r"\d{4}-", "").replace("[A-Za-z0-9._-]", "")
        assert not re.search(r"\d", body), form


def test_numbers_that_do_not_fit_are_none():
    line = f"{_lines.HEAD}INFO [Broker id=1] Follower t-{1 << 31} starts at leader epoch 5 from "
    line += f"offset {1 << 40} with partition epoch 9 and high watermark 7. Previous leader "
    line += "Some(2) and previous leader epoch was 4."
    event = parse(line, ZONE)
    assert (event.partition, event.offset, event.leader_epoch) == (None, 1 << 40, 5)
    assert parse(line.replace("id=1", f"id={1 << 31}"), ZONE) is None


@pytest.mark.parametrize("count", [1, 2, 7, 50])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_splits_give_each_line_once(tmp_path, monkeypatch, count, end):
    monkeypatch.setattr("ottla.pipelines.timeline.reading.BLOCK", 700)
    lines = [f"{_lines.HEAD}{text}" for text in TEXTS] + ["", "x" * 3000, "last"]
    path = tmp_path / "state-change.log"
    path.write_text("\ufeff" + end.join(lines), encoding="utf-8", newline="")
    size = path.stat().st_size
    bounds = sorted({size * part // count for part in range(count + 1)})
    found, places = [], []
    for start, stop in itertools.pairwise(bounds):
        reader = Reader("Europe/Vienna")
        for block in reader.of_split(Split(str(path), start, stop)):
            found += said(block.rows, reader.texts)
            places += block.rows["line"].tolist()
    assert found == [expected(line.encode()) for line in lines]
    raw = path.read_bytes()
    for line, place in zip(lines, places, strict=True):
        assert raw[place : place + len(line)] == line.encode()


def test_a_lone_carriage_return_ends_a_line_as_in_spark():
    block = templates.split(*padded(b"a\rb\r\nc\n\r\n"))
    data = block.data.tobytes()
    found = [data[s:e] for s, e in zip(block.starts, block.ends, strict=True)]
    assert found == [b"a", b"b", b"c", b""]


def test_a_file_is_divided_into_parts_that_touch(tmp_path, monkeypatch):
    monkeypatch.setattr("ottla.pipelines.timeline.reading.SMALLEST_SPLIT", 10)
    path = tmp_path / "state-change.log"
    path.write_bytes(b"x" * 105)
    parts = splits([str(path)], 4)
    assert [(part.start, part.stop) for part in parts] == [
        (0, 26), (26, 52), (52, 78), (78, 104), (104, 105),
    ]  # fmt: skip
