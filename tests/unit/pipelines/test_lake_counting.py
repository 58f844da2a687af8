"""Counting what was written: what is doubled, foreign or missing must be seen."""

import pytest

from ottla.model.errors import OttlaError
from ottla.pipelines.landing.counting import compare, offsets_in
from ottla.pipelines.landing.spans import Span

pyarrow = pytest.importorskip("pyarrow")


def write(folder, name, rows):
    from pyarrow import parquet

    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "kafka_partition": pyarrow.array([p for p, _ in rows], pyarrow.int32()),
        "kafka_offset": pyarrow.array([o for _, o in rows], pyarrow.int64()),
    }
    parquet.write_table(pyarrow.table(columns), folder / name)


@pytest.fixture
def compared(tmp_path):
    def run(files, letters=(), planned=None):
        data, dead = tmp_path / "data", tmp_path / "dead"
        for n, rows in enumerate(files):
            write(data, f"d={n}/part.parquet", rows)
        if letters:
            write(dead, "part.parquet", letters)
        return compare("t", planned or {0: Span(10, 15)}, data, dead)

    return run


ALL = [(0, o) for o in range(10, 15)]


def test_all_is_there(compared):
    found = compared([ALL[:2], ALL[2:]])
    assert (found[0].rows, found[0].dead, found[0].missing) == (5, 0, [])


def test_rows_and_dead_letters_together(compared):
    found = compared([ALL[:1], ALL[4:]], ALL[1:2])
    assert (found[0].rows, found[0].dead) == (2, 1)
    assert found[0].missing == [Span(12, 14)]


def test_nothing_came(compared):
    assert compared([[]])[0].missing == [Span(10, 15)]


@pytest.mark.parametrize(
    ("files", "letters", "says"),
    [
        ([ALL, ALL[3:4]], (), "t-0: offset 13 stands 2 times"),
        ([ALL], ALL[3:4], "t-0: offset 13 stands 2 times"),
        ([[*ALL, (0, 15)]], (), "t-0: the source gave offsets 10..15, asked for were 10..14"),
        ([[*ALL, (0, 9)]], (), "t-0: the source gave offsets 9..14"),
        ([[*ALL, (1, 12)]], (), "t-1: rows of a partition that was not asked for"),
    ],
)
def test_doubled_and_foreign(compared, files, letters, says):
    with pytest.raises(OttlaError, match=says):
        compared(files, letters)


def test_what_spark_hides_does_not_count(tmp_path):
    write(tmp_path, "part.parquet", ALL)
    write(tmp_path, "_temporary/0/part.parquet", ALL)
    write(tmp_path, "date=2026-01-01/.part.parquet", ALL)
    assert offsets_in(tmp_path)[0].tolist() == [10, 11, 12, 13, 14]
    assert offsets_in(tmp_path / "nosuch") == {}
