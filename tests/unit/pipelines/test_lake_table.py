"""A table's folder: what it is bound to, what is refused, and what a crash leaves at each step."""

import json
import shutil

import pytest

from ottla.model.errors import OttlaError
from ottla.pipelines.landing import table as tables
from ottla.pipelines.landing.asking import Topic
from ottla.pipelines.landing.manifest import NAME, Landed, Manifest, Totals
from ottla.pipelines.landing.spans import Span, land
from ottla.pipelines.landing.table import Allowed, open_table

TOPIC = Topic("t", "cluster-1", "id-1", (0, 1))


def opened(folder, topic=TOPIC, isolation="read_uncommitted", **allowed):
    return open_table(folder, topic, isolation, lambda: {0: 0, 1: 0}, Allowed(**allowed))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "t"


def commit(table, size=10, dead=0):
    """Commit a batch of partition 0, as Spark would leave it; return its rows file."""
    stage = table.stage()
    (stage.data / "event_date=2026-01-01").mkdir(parents=True)
    (stage.data / "_SUCCESS").touch()
    (stage.data / "event_date=2026-01-01" / ".part-0.parquet.crc").touch()
    (stage.data / "event_date=2026-01-01" / "part-0.parquet").write_bytes(b"x" * size)
    if dead:
        stage.dead.mkdir()
        (stage.dead / "part-0.parquet").write_bytes(b"d" * dead)
    publish(table, stage, size, dead)


def publish(table, stage, size=10, dead=0):
    start = table.last.landed[0][-1].end if table.last else 0
    landed = Landed(start=start, end=start + size + dead, rows=size, dead=dead)

    def make(files, dead_files, previous):
        before = table.last.totals.get(0) if table.last else None
        return Manifest(
            binding=table.binding, batch=table.next_batch, first=table.next_batch,
            previous=previous, committed_ms=0, schema=0, partitions={0: [landed]},
            files=files, dead_files=dead_files,
            landed=land(table.last.landed if table.last else {}, {0: Span(start, landed.end)}),
            epochs={}, totals={0: (before or Totals()).plus(landed)},
        )  # fmt: skip

    table.commit(stage, make)


def parquet(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*.parquet"))


def snapshot(folder):
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_batches_go_on_where_the_last_run_ended(folder):
    table = opened(folder)
    commit(table, 10)
    commit(table, 5, dead=2)
    table.close()
    table = opened(folder)
    assert table.next_batch == 2
    assert table.last.landed == {0: [Span(0, 17)]}
    assert table.last.totals[0].rows == 15
    assert table.problems() == []
    assert parquet(folder / "data") == [
        f"batch={n}/event_date=2026-01-01/part-0.parquet" for n in (0, 1)
    ]
    assert parquet(folder / "dead") == ["batch=1/part-0.parquet"]
    assert not list((folder / "data").rglob("*.crc"))


def test_another_run_at_the_same_time_is_refused(folder):
    table = opened(folder)
    with pytest.raises(OttlaError, match="another run lands into"):
        opened(folder)
    table.close()
    opened(folder).close()


def test_a_batch_that_is_there_is_never_replaced(folder):
    table = opened(folder)
    stage = table.stage()
    stage.data.mkdir()
    (stage.data / "part-0.parquet").write_bytes(b"mine")
    (folder / "data" / "batch=0").mkdir()
    (folder / "data" / "batch=0" / "part-0.parquet").write_bytes(b"theirs")
    with pytest.raises(OttlaError, match="another run committed it, nothing was changed"):
        publish(table, stage)
    assert (folder / "data" / "batch=0" / "part-0.parquet").read_bytes() == b"theirs"


@pytest.mark.parametrize(
    ("topic", "isolation", "says"),
    [
        (
            Topic("t", "cluster-2", "id-1", (0, 1)),
            "read_uncommitted",
            "belongs to cluster cluster-1",
        ),
        (Topic("t", "cluster-1", "id-2", (0, 1)), "read_uncommitted", "was deleted and made anew"),
        (Topic("u", "cluster-1", "id-1", (0, 1)), "read_uncommitted", "is the table of topic t"),
        (TOPIC, "read_committed", "begun with isolation read_uncommitted"),
    ],
)
def test_what_belongs_to_something_else_is_refused_and_stays(folder, topic, isolation, says):
    table = opened(folder)
    commit(table)
    table.close()
    before = snapshot(folder)
    with pytest.raises(OttlaError, match=says) as caught:
        opened(folder, topic, isolation)
    assert "\n" not in str(caught.value)
    assert snapshot(folder) == before


def test_a_copied_folder_is_refused_until_it_is_adopted(folder, tmp_path):
    table = opened(folder)
    commit(table)
    table.close()
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    with pytest.raises(OttlaError, match=r"is a copy of .*, or was moved; --adopt"):
        opened(copy)
    opened(copy, adopt=True).close()
    opened(copy).close()
    opened(folder).close()


def test_a_lost_binding_is_written_anew_only_by_the_flag(folder):
    table = opened(folder)
    commit(table)
    table.close()
    (folder / "table.json").unlink()
    with pytest.raises(OttlaError, match=r"has batches but no table\.json: --restore"):
        opened(folder)
    assert not (folder / "table.json").exists()
    table = opened(folder, restore=True)
    assert table.last.landed == {0: [Span(0, 10)]}
    table.close()
    opened(folder).close()


@pytest.mark.parametrize("name", ["data/x.parquet", "data/batch=0/x.parquet", "notes.txt"])
def test_a_folder_with_foreign_files_is_refused(folder, name):
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_bytes(b"x")
    with pytest.raises(OttlaError):
        opened(folder)
    assert list(folder.iterdir()) == [folder / name.split("/")[0]]


def three_batches(folder):
    table = opened(folder)
    for _ in range(3):
        commit(table)
    table.close()


def test_a_batch_that_is_gone_is_noticed(folder):
    three_batches(folder)
    shutil.rmtree(folder / "data" / "batch=1")
    with pytest.raises(OttlaError, match="batch=2 does not follow batch 0"):
        opened(folder)


def test_a_batch_from_another_lake_is_noticed(folder, tmp_path):
    three_batches(folder)
    other = tmp_path / "other" / "t"
    table = opened(other)
    commit(table)
    table.close()
    shutil.rmtree(folder / "data" / "batch=0")
    shutil.copytree(other / "data" / "batch=0", folder / "data" / "batch=0")
    with pytest.raises(OttlaError, match="is a batch of another lake"):
        opened(folder)


def test_a_batch_from_an_older_copy_is_noticed(folder):
    three_batches(folder)
    manifest = folder / "data" / "batch=1" / NAME
    told = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps({**told, "committed_ms": 5}))
    with pytest.raises(OttlaError, match="batch=2 does not follow batch 1"):
        opened(folder)


def test_the_newest_batch_taken_away_lands_again(folder):
    three_batches(folder)
    shutil.rmtree(folder / "data" / "batch=2")
    table = opened(folder)
    assert table.last.landed == {0: [Span(0, 20)]}
    table.close()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda p: p.unlink(), "is gone: its rows are missing"),
        (lambda p: p.write_bytes(b"short"), "has 5 bytes, not 10"),
        (lambda p: shutil.copy(p, p.with_name("again.parquet")), "belongs to no batch"),
    ],
)
def test_files_that_were_touched_are_told(folder, harm, says):
    three_batches(folder)
    harm(folder / "data" / "batch=1" / "event_date=2026-01-01" / "part-0.parquet")
    table = opened(folder)
    (line,) = table.problems()
    assert says in line
    table.close()


class CrashError(Exception):
    pass


@pytest.mark.parametrize("calls", range(4))
def test_a_crash_at_any_step_of_the_commit(folder, monkeypatch, calls):
    """Before the rename of the rows nothing has happened; after it, all has."""
    table = opened(folder)
    commit(table, 10)
    real, count = tables._sync, []

    def crash(path):
        # The folders are synced at these steps: staged, dead letters moved, rows moved.
        if path.is_dir() and path.name in ("dead", "data") and path.parent == folder:
            count.append(path.name)
            if len(count) == calls:
                raise CrashError
        real(path)

    monkeypatch.setattr(tables, "_sync", crash)
    if calls == 3:
        monkeypatch.setattr(tables, "_sync_tree", lambda _: (_ for _ in ()).throw(CrashError))
    crashed = False
    try:
        commit(table, 5, dead=2)
    except CrashError:
        crashed = True
    assert crashed == (calls > 0)
    monkeypatch.undo()
    table.close()
    committed = calls in (0, 2)
    assert len(parquet(folder / "data")) == 1 + committed
    table = opened(folder)
    assert table.next_batch == 1 + committed
    assert len(parquet(folder / "dead")) == committed
    assert parquet(folder / "_staging") == []
    assert table.problems() == []
    commit(table, 7, dead=1)
    assert table.problems() == []
    table.close()
