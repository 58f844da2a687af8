"""What a task writes: each row in one file that it names, by date, or gathered by date."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from pyarrow import parquet  # noqa: E402 - needs pyarrow

from ottla.model.errors import OttlaError  # noqa: E402
from ottla.pipelines.landing import writing  # noqa: E402
from ottla.pipelines.landing.asking import Topic  # noqa: E402
from ottla.pipelines.landing.columnar import JsonSchema, Plan  # noqa: E402
from ottla.pipelines.landing.columns_job import ranges  # noqa: E402
from ottla.pipelines.landing.dates import DateRule  # noqa: E402
from ottla.pipelines.landing.gathering import Gathering, divided_dates, gather  # noqa: E402
from ottla.pipelines.landing.settings import META_COLUMNS  # noqa: E402
from ottla.pipelines.landing.spans import Span  # noqa: E402
from ottla.pipelines.landing.writing import Task, write  # noqa: E402
from ottla.pipelines.record_arrow import TYPES  # noqa: E402
from ottla.pipelines.source.options import parse_options  # noqa: E402
from ottla.pipelines.source.ranges import OffsetRange  # noqa: E402

SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.string())])
OPTIONS = parse_options({"bootstrap": "127.0.0.1:9092", "subscribe": "t"})
DAYS = ["2026-01-01", "2026-01-02", "2026-02-30", None]


def value(n):
    if n % 10 == 9:
        return b"no json" if n % 20 == 9 else None
    return json.dumps({"n": n, "day": DAYS[n % len(DAYS)]}).encode()


def records(first, end):
    offsets = list(range(first, end))
    columns = {
        "key": [b"k"] * len(offsets), "value": [value(n) for n in offsets],
        "topic": ["t"] * len(offsets), "partition": [3] * len(offsets), "offset": offsets,
        "timestamp": [datetime(2026, 1, 1, tzinfo=UTC)] * len(offsets),
        "timestampType": [0] * len(offsets), "headers": [None] * len(offsets),
    }  # fmt: skip
    arrays = [pa.array(columns[name], kind) for name, kind in TYPES.items()]
    return pa.RecordBatch.from_arrays(arrays, list(TYPES))


@pytest.fixture
def task(tmp_path, monkeypatch):
    """Make a task whose range is read in batches of 40 records."""

    def scan(options, wanted, columns):
        assert tuple(columns) == tuple(TYPES)
        for at in range(wanted.start, wanted.end, 40):
            yield records(at, min(at + 40, wanted.end))

    monkeypatch.setattr(writing, "scan", scan)

    def make(start=0, end=200, *, date=True, gather=False):
        plan = Plan(
            JsonSchema(SCHEMA, strict=True), False, DateRule(("day",)) if date else None, "event"
        )
        wanted = OffsetRange("t", bytes(16), 3, start, end)
        return Task(OPTIONS, wanted, plan, str(tmp_path / "attempts"), "snappy", gather)

    return make


def expected(start=0, end=200):
    """Return the offsets of each date's folder; None for those that are set aside."""
    folders = {"2026-01-01": "event=2026-01-01", "2026-01-02": "event=2026-01-02"}
    found = {}
    for n in range(start, end):
        if value(n) == b"no json":
            folder = None
        else:
            day = None if value(n) is None else DAYS[n % len(DAYS)]
            folder = folders.get(day, "event=__HIVE_DEFAULT_PARTITION__")
        found.setdefault(folder, set()).add(n)
    return found


def offsets(path, column="kafka_offset"):
    return parquet.read_table(path, partitioning=None).column(column).to_pylist()


def by_folder(*written):
    """Return the offsets in named files by folder, each as often as it stands there."""
    found = {}
    for one in written:
        assert one.problem is None
        for path, place in one.rows.items():
            found.setdefault(str(Path(place).parent), Counter()).update(offsets(path))
    return found


def test_each_row_stands_once_in_its_dates_folder(task):
    written = write(task())
    there = expected()
    aside = there.pop(None)
    assert by_folder(written) == {folder: Counter(some) for folder, some in there.items()}
    assert (set(offsets(written.aside, "offset")), written.aside_count) == (aside, len(aside))
    values = parquet.read_table(written.aside).column("value").to_pylist()
    assert set(values) == {b"no json"}
    assert len(written.rows) == len(there)


def test_without_dates_and_with_a_small_buffer(task, monkeypatch):
    monkeypatch.setattr(writing, "BUFFER_BYTES", 3000)
    written = write(task(date=False))
    rows = set().union(*(some for folder, some in expected().items() if folder))
    assert by_folder(written) == {".": Counter(rows)}
    assert len(written.rows) > 1
    table = parquet.read_table(next(iter(written.rows)))
    assert table.column_names == ["n", "day", *META_COLUMNS]


def test_dates_are_gathered_into_one_file_each(task):
    tasks = [task(0, 90, gather=True), task(90, 200, gather=True)]
    kept = [write(one) for one in tasks]
    assert all(not one.rows and one.pieces for one in kept)
    shares = divided_dates([piece for one in kept for piece in one.pieces], 2)
    assert len(shares) == 2
    folder = tasks[0].folder
    written = [gather(Gathering(share, folder, "zstd")) for share in shares]
    there = expected()
    del there[None]
    assert by_folder(*written) == {folder: Counter(some) for folder, some in there.items()}
    places = [place for one in written for place in one.rows.values()]
    assert len(places) == len(there)


def test_another_attempt_has_files_of_its_own(task):
    first, second = write(task()), write(task())
    assert not first.rows.keys() & second.rows.keys()
    assert first.aside != second.aside
    assert by_folder(first) == by_folder(second)


def test_an_empty_range_writes_nothing(task):
    written = write(task(5, 5))
    assert (written.rows, written.pieces, written.aside, written.problem) == ({}, [], None, None)


def test_what_is_wrong_is_one_line(task, tmp_path, monkeypatch):
    (tmp_path / "attempts").write_text("a file")
    assert write(task()).problem.endswith("Not a directory")
    (tmp_path / "attempts").unlink()

    def full(*_):
        raise OSError(28, "No space left on device", "/lake/x.parquet")

    with monkeypatch.context() as patched:
        patched.setattr(writing, "save", full)
        assert write(task()).problem == "/lake/x.parquet: No space left on device"

    def gone(*_):
        raise OttlaError("t-3: offset 5 is gone")

    monkeypatch.setattr(writing, "scan", gone)
    assert write(task()).problem == "t-3: offset 5 is gone"


def test_tasks_read_everything_once_and_none_more_than_its_share():
    topic = Topic("t", "c", "", (0, 1, 2))
    batch = {0: Span(5, 15), 1: Span(0, 1000), 2: Span(7, 107)}
    tasks = ranges(topic, batch, 4)
    read = Counter((one.partition, o) for one in tasks for o in range(one.start, one.end))
    assert read == Counter((p, o) for p, s in batch.items() for o in range(s.start, s.end))
    assert max(one.size for one in tasks) <= -(-1110 // 4)
    assert [one.size for one in tasks] == sorted((one.size for one in tasks), reverse=True)
