"""Compaction: the same rows in fewer files, for readers of the old and the new, at any crash."""

import itertools
import math
import shutil
import threading

import pytest

pa = pytest.importorskip("pyarrow")

from pyarrow import dataset, parquet  # noqa: E402 - needs pyarrow

from ottla.model.errors import OttlaError  # noqa: E402
from ottla.pipelines.landing import compacting  # noqa: E402
from ottla.pipelines.landing import table as tables  # noqa: E402
from ottla.pipelines.landing.asking import Topic  # noqa: E402
from ottla.pipelines.landing.compacting import compact  # noqa: E402
from ottla.pipelines.landing.manifest import Landed, Manifest, Totals  # noqa: E402
from ottla.pipelines.landing.spans import Span, land  # noqa: E402
from ottla.pipelines.landing.table import Allowed, open_landed, open_table  # noqa: E402
from support.waiting import until  # noqa: E402

TOPIC = Topic("t", "cluster-1", "id-1", (0,))
FLOATS = [0.5, math.nan, None, -0.0, math.inf]
SIZE = 12


def rows_of(offsets, *, more=False):
    columns = {
        "n": pa.array(offsets, pa.int64()),
        "f": pa.array([FLOATS[o % len(FLOATS)] for o in offsets], pa.float64()),
        "in": pa.array([{"a": o, **({"b": [o / 2, math.nan]} if more else {})} for o in offsets]),
    }
    if more:
        columns["added"] = pa.array([f"text {o}" for o in offsets])
    columns |= {
        "kafka_timestamp": pa.array([o * 1000 for o in offsets], pa.timestamp("us", tz="UTC")),
        "kafka_partition": pa.array([0] * len(offsets), pa.int32()),
        "kafka_offset": pa.array(offsets, pa.int64()),
    }
    return pa.table(columns)


def commit(table, *, more=False, dead=0, int96=False, files=1):
    """Commit a batch of SIZE rows in two date folders, each with so many files."""
    stage = table.stage()
    start = table.last.landed[0][-1].end if table.last else 0
    for day in (1, 2):
        folder = stage.data / f"event_date=2026-01-0{day}"
        folder.mkdir(parents=True)
        offsets = range(start + day - 1, start + SIZE, 2)
        for part in range(files):
            parquet.write_table(
                rows_of(offsets[part::files], more=more),
                folder / f"part-{part}.parquet",
                use_deprecated_int96_timestamps=int96,
                store_schema=False,
            )
    if dead:
        stage.dead.mkdir()
        (stage.dead / "part-0.parquet").write_bytes(b"d" * dead)
    landed = Landed(start=start, end=start + SIZE + dead, rows=SIZE, dead=dead)

    def make(files, dead_files, previous):
        before = table.last.totals[0] if table.last else Totals()
        return Manifest(
            binding=table.binding, batch=table.next_batch, first=table.next_batch,
            previous=previous, committed_ms=0, schema=0, partitions={0: [landed]},
            files=files, dead_files=dead_files,
            landed=land(table.last.landed if table.last else {}, {0: Span(start, landed.end)}),
            epochs={0: 3}, totals={0: before.plus(landed)},
        )  # fmt: skip

    table.commit(stage, make)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "t"


@pytest.fixture
def table(folder):
    table = open_table(folder, TOPIC, "read_uncommitted", lambda: {0: 0}, Allowed())
    yield table
    table.close()


def reopened(table):
    """Return the table as the next run finds it; only one may have its lock."""
    table.close()
    again = open_landed(table.folder)
    table._lock = again._lock
    return again


def paths(folder):
    return sorted(str(p) for p in (folder / "data").rglob("*.parquet"))


def read(folder):
    """Return all rows in the order of their offsets, as text: NaN equals nothing else."""
    files = [parquet.ParquetFile(path).read() for path in paths(folder)]
    rows = [row for file in files for row in file.to_pylist()]
    return sorted(repr({k: v for k, v in row.items() if v is not None}) for row in rows)


def test_many_small_batches_become_one(table, folder):
    for n in range(5):
        commit(table, dead=2 * (n % 2))
    before = read(folder)
    assert compact(table, "zstd") == 5
    assert read(folder) == before
    assert [path.split("/data/")[1] for path in paths(folder)] == [
        f"batch=5/event_date=2026-01-0{day}/part-0.parquet" for day in (1, 2)
    ]
    assert len(list((folder / "dead").rglob("*.parquet"))) == 2
    assert list((folder / "_staging").iterdir()) == []
    assert table.problems() == []

    again = reopened(table)
    assert again.problems() == []
    assert (again.next_batch, again.last.first, again.last.epochs) == (6, 0, {0: 3})
    assert again.last.landed == {0: [Span(0, 64)]}
    assert again.last.partitions == {0: [Landed(start=0, end=64, rows=60, dead=4)]}
    assert compact(again, "zstd") == 0
    commit(again, dead=1)
    commit(again)
    assert compact(again, "snappy") == 3
    assert reopened(again).problems() == []
    assert len(read(folder)) == 7 * SIZE
    assert len(list((folder / "dead").rglob("*.parquet"))) == 3
    by_date = dataset.dataset(str(folder / "data"), partitioning="hive").to_table()
    assert sorted(by_date.column("kafka_offset").to_pylist())[:12] == list(range(12))


def test_one_batch_with_several_small_files_for_a_date_is_compacted_once(table, folder):
    commit(table, files=3)
    before = read(folder)
    assert len(paths(folder)) == 6
    assert compact(table, "snappy") == 1
    assert [path.split("/data/")[1] for path in paths(folder)] == [
        f"batch=1/event_date=2026-01-0{day}/part-0.parquet" for day in (1, 2)
    ]
    assert read(folder) == before
    again = reopened(table)
    assert again.problems() == []
    assert (again.next_batch, again.last.first, again.last.landed) == (2, 0, {0: [Span(0, SIZE)]})
    assert compact(again, "snappy") == 0
    commit(again)
    assert compact(again, "snappy") == 2
    assert reopened(again).problems() == []
    assert len(read(folder)) == 2 * SIZE


def test_large_batches_are_left_and_stay_in_place(table, folder):
    for _ in range(3):
        commit(table)
    assert compact(table, "snappy", target=1) == 0
    target = 2 * (1 + max(f.bytes for f in table.batches[0].files))
    assert compact(table, "snappy", target=target) == 3
    inode = {p: (folder / "data" / p).stat().st_ino for p in (f.path for f in table.files())}
    large = [p.rsplit("/data/")[1] for p in paths(folder)]
    for _ in range(2):
        commit(table)
    assert compact(table, "snappy", target=target) == 2
    assert len(table.batches) == 2
    assert {p: (folder / "data" / p).stat().st_ino for p in large} == inode
    assert reopened(table).problems() == []
    assert len(read(folder)) == 5 * SIZE


def test_columns_that_came_later_and_sparks_old_times(table, folder):
    commit(table, int96=True)
    commit(table)
    commit(table, more=True)
    compact(table, "snappy")
    (one, _) = paths(folder)
    rows = parquet.ParquetFile(one).read()
    assert rows.column_names[:4] == ["n", "f", "in", "added"]
    assert rows.column("added").null_count == SIZE
    assert rows.schema.field("kafka_timestamp").type == pa.timestamp("us", tz="UTC")
    for row in rows.to_pylist():
        assert (row["in"]["a"], row["n"]) == (row["kafka_offset"],) * 2
        assert row["kafka_timestamp"].timestamp() == row["kafka_offset"] / 1000
        assert (row["in"]["b"] is None) == (row["kafka_offset"] < 2 * SIZE)


def test_files_that_read_differently_are_refused(table, folder, monkeypatch):
    for _ in range(2):
        commit(table)
    before = paths(folder)
    real = compacting._buffered

    def planted(tables, harm):
        for rows in real(tables):
            yield harm(rows)

    def changed(rows):
        numbers = rows.column("f").to_pylist()
        at = next(n for n, x in enumerate(numbers) if x is not None and math.isnan(x))
        return rows.set_column(1, "f", pa.array([*numbers[:at], 1.0, *numbers[at + 1 :]]))

    def without_nan(rows):
        numbers = [None if x is not None and math.isnan(x) else x for x in rows[1].to_pylist()]
        return rows.set_column(1, "f", pa.array(numbers))

    for harm in (
        lambda rows: rows.slice(1),
        lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]),
        lambda rows: rows.take(list(reversed(range(rows.num_rows)))),
        changed,
        without_nan,
    ):
        monkeypatch.setattr(compacting, "_buffered", lambda t, harm=harm: planted(t, harm))
        with pytest.raises(OttlaError, match="the new files differ from the old"):
            compact(table, "snappy")
        assert paths(folder) == before
        assert reopened(table).problems() == []
    assert list((folder / "_staging").iterdir()) == []


class CrashError(Exception):
    pass


def test_a_crash_at_any_step_leaves_the_old_or_the_new(folder, monkeypatch, tmp_path):
    table = open_table(folder, TOPIC, "read_uncommitted", lambda: {0: 0}, Allowed())
    commit(table, dead=1)
    commit(table)
    table.close()
    before = read(folder)
    seen = set()
    for step in itertools.count():
        copy = tmp_path / f"copy-{step}" / "t"
        shutil.copytree(folder, copy)
        open_table(copy, TOPIC, "read_uncommitted", dict, Allowed(adopt=True)).close()
        table = open_landed(copy)
        calls = itertools.count()

        def crashing(real, calls=calls, step=step):
            def call(*args):
                if next(calls) == step:
                    raise CrashError
                result = real(*args)
                if next(calls) == step:
                    raise CrashError
                return result

            return call

        with monkeypatch.context() as patched:
            for name in ("exchange", "_sync", "_sync_tree"):
                patched.setattr(tables, name, crashing(getattr(tables, name)))
            patched.setattr(compacting, "_rewrite", crashing(compacting._rewrite))
            try:
                compact(table, "snappy")
                crashed = False
            except CrashError:
                crashed = True
        table.close()
        assert read(copy) == before
        again = open_landed(copy)
        assert again.problems() == []
        assert list((copy / "_staging").iterdir()) == []
        seen.add(len(again.batches))
        commit(again)
        assert again.problems() == []
        again.close()
        if not crashed:
            break
    assert seen == {1, 2}
    assert step > 8


def test_a_reader_never_sees_both(table, folder):
    """It lists and reads file by file, as slowly as can be, while batches become one."""
    stop, wrong, whole = threading.Event(), [], []

    def reader():
        while not stop.is_set():
            found = []
            try:
                for batch in sorted((folder / "data").iterdir()):
                    for day in sorted(batch.glob("event_date=*")):
                        for path in sorted(day.glob("*.parquet")):
                            rows = parquet.ParquetFile(path).read(["kafka_offset"])
                            found += rows.column(0).to_pylist()
            except OSError:
                continue
            if len(found) != len(set(found)):
                wrong.append(sorted(found))
            whole.append(len(found))

    for _ in range(4):
        commit(table)
    thread = threading.Thread(target=reader)
    thread.start()
    try:
        for _ in range(25):
            commit(table)
            assert compact(table, "snappy") >= 2
        until(lambda: whole, 30, "it was read to the end once")
    finally:
        stop.set()
        thread.join(30)
    assert wrong == []
    assert max(whole) >= 4 * SIZE


def test_a_file_system_that_cannot_exchange_is_refused(table, folder, monkeypatch):
    for _ in range(2):
        commit(table)
    before = paths(folder)

    class Libc:
        @staticmethod
        def renameat2(*_):
            import ctypes
            import errno

            ctypes.set_errno(errno.EINVAL)
            return -1

    from ottla.pipelines.landing import exchanging

    monkeypatch.setattr(exchanging.ctypes, "CDLL", lambda *_, **__: Libc)
    with pytest.raises(OttlaError, match="cannot exchange two folders at once; nothing was"):
        compact(table, "snappy")
    assert paths(folder) == before


def test_what_is_no_table_or_a_copy_is_refused(table, folder, tmp_path):
    commit(table)
    table.close()
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(OttlaError, match="is a copy of"):
        open_landed(tmp_path / "copy")
    with pytest.raises(OttlaError, match="it is no table of this job"):
        open_landed(tmp_path / "nosuch")
    assert not (tmp_path / "nosuch").exists()
    table._lock = open_landed(folder)._lock
