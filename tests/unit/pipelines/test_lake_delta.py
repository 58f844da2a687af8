"""The lake's Delta log: what its versions say, what readers see at any crash, what is found."""

import itertools
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from pyarrow import parquet  # noqa: E402 - needs pyarrow

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from ottla.model.errors import OttlaError  # noqa: E402
from ottla.pipelines.landing import table as tables  # noqa: E402
from ottla.pipelines.landing.asking import Topic  # noqa: E402
from ottla.pipelines.landing.compacting import compact  # noqa: E402
from ottla.pipelines.landing.delta_actions import column, refuse_types  # noqa: E402
from ottla.pipelines.landing.manifest import Landed, Manifest, Totals  # noqa: E402
from ottla.pipelines.landing.spans import Span, land  # noqa: E402
from ottla.pipelines.landing.table import (  # noqa: E402
    Allowed,
    delta_problems,
    open_landed,
    open_table,
)
from support.delta_readers import by_delta_rs, by_protocol, versions  # noqa: E402 - tests are no package

TOPIC = Topic("t", "cluster-1", "id-1", (0,))
SIZE = 6
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COMMITTED_MS = 1_790_000_000_000
FIRST = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'
WIDER = FIRST[:-2] + ',{"name":"odd name","type":"string","nullable":true,"metadata":{}}]}'


def opened(folder, **allowed):
    return open_table(
        folder, TOPIC, "read_uncommitted", lambda: {0: 0}, Allowed(**allowed), table_format="delta"
    )


def origins(offsets):
    count = len(offsets)
    return {
        "kafka_key": pa.array([b"k"] * count, pa.binary()),
        "kafka_headers": pa.array([[{"key": "h", "value": b"\xff"}]] * count, HEADERS),
        "kafka_timestamp": pa.array([o * 1000 for o in offsets], pa.timestamp("us", tz="UTC")),
        "kafka_timestamp_type": pa.array([0] * count, pa.int32()),
        "kafka_topic": pa.array(["t"] * count),
        "kafka_partition": pa.array([0] * count, pa.int32()),
        "kafka_offset": pa.array(offsets, pa.int64()),
    }


def save(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path, store_schema=False)


DATES = ("2026-01-01", "__HIVE_DEFAULT_PARTITION__")


def commit(table, *, more=False, dead=0, dates=DATES, keep=False, files=1):
    """Commit a batch of SIZE rows in date folders, each of so many files, and of dead letters."""
    if not table.schema_version() or (more and table.schema_version() == 1):
        table.write_schema(WIDER if more else FIRST)
    stage = table.stage()
    start = table.last.landed[0][-1].end if table.last else 0
    for part in range(len(dates) * files):
        offsets = range(start + part, start + SIZE, len(dates) * files)
        columns = {"n": pa.array(offsets, pa.int64())}
        if more:
            columns["odd name"] = pa.array([f"text {o}" for o in offsets])
        if keep:
            columns["kafka_value"] = pa.array([b"{}"] * len(offsets), pa.binary())
        name = f"event_date={dates[part % len(dates)]}/part-{part // len(dates)}.parquet"
        save(stage.data / name, columns | origins(offsets))
    if dead:
        offsets = range(start + SIZE, start + SIZE + dead)
        columns = {
            "reason": pa.array(["no JSON object"] * dead),
            "detail": pa.array([None] * dead, pa.string()),
            "kafka_value": pa.array([b"\xff"] * dead, pa.binary()),
        }
        save(stage.dead / "part-0.parquet", columns | origins(offsets))
    landed = Landed(start=start, end=start + SIZE + dead, rows=SIZE, dead=dead)

    def make(files, dead_files, previous):
        before = table.last.totals[0] if table.last else Totals()
        return Manifest(
            binding=table.binding, batch=table.next_batch, first=table.next_batch,
            previous=previous, committed_ms=COMMITTED_MS + table.next_batch,
            schema=table.schema_version(), partitions={0: [landed]},
            files=files, dead_files=dead_files,
            landed=land(table.last.landed if table.last else {}, {0: Span(start, landed.end)}),
            epochs={}, totals={0: before.plus(landed)}, date_column="event_date", keep=keep,
        )  # fmt: skip

    table.commit(stage, make)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "t"


@pytest.fixture
def table(folder):
    table = opened(folder)
    yield table
    table.close()


def offsets(rows):
    return sorted(row["kafka_offset"] for row in rows)


def by_manifests(folder, kind="data"):
    """Return the offsets in the table's own files."""
    files = [parquet.ParquetFile(p).read() for p in (folder / kind).rglob("*.parquet")]
    return sorted(o for file in files for o in file.column("kafka_offset").to_pylist())


def test_what_the_versions_say(table, folder):
    """Held against what the protocol's document asks for, field by field."""
    commit(table, dead=1)
    commit(table)
    sizes = {
        p.name: (folder / "data/batch=0" / p.name / "part-0.parquet").stat().st_size
        for p in (folder / "data/batch=0").iterdir()
        if p.is_dir()
    }
    first, second = versions(folder / "delta/data")
    lake_id = table.binding.lake_id
    assert first[:3] == [
        {
            "commitInfo": {
                "timestamp": COMMITTED_MS,
                "operation": "WRITE",
                "operationParameters": {"batch": "0"},
                "isBlindAppend": True,
                "engineInfo": "ottla lake",
            }
        },
        {"txn": {"appId": lake_id, "version": 0, "lastUpdated": COMMITTED_MS}},
        {
            "protocol": {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["appendOnly", "ottlaLake"],
            }
        },
    ]
    told = first[3]["metaData"]
    schema = json.loads(told.pop("schemaString"))
    assert told == {
        "id": lake_id,
        "name": "t",
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": ["batch", "event_date"],
        "configuration": {"delta.appendOnly": "true"},
        "createdTime": table.binding.created_ms,
    }
    assert schema["type"] == "struct"
    assert all(f["nullable"] is True and f["metadata"] == {} for f in schema["fields"])
    header = {
        "type": "struct",
        "fields": [
            {"name": "key", "type": "string", "nullable": True, "metadata": {}},
            {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
        ],
    }
    assert {f["name"]: f["type"] for f in schema["fields"]} == {
        "n": "long",
        "kafka_key": "binary",
        "kafka_headers": {"type": "array", "elementType": header, "containsNull": True},
        "kafka_timestamp": "timestamp",
        "kafka_timestamp_type": "integer",
        "kafka_topic": "string",
        "kafka_partition": "integer",
        "kafka_offset": "long",
        "event_date": "date",
        "batch": "integer",
    }
    assert first[4:] == [
        {
            "add": {
                "path": f"batch=0/event_date={name}/part-0.parquet",
                "partitionValues": {"batch": "0", "event_date": date},
                "size": sizes[f"event_date={name}"],
                "modificationTime": COMMITTED_MS,
                "dataChange": True,
                "stats": '{"numRecords":3}',
            }
        }
        for name, date in (("2026-01-01", "2026-01-01"), ("__HIVE_DEFAULT_PARTITION__", None))
    ]
    assert [next(iter(a)) for a in second] == ["commitInfo", "txn", "add", "add"]
    letters = versions(folder / "delta/dead")
    assert [[next(iter(a)) for a in v] for v in letters] == [
        ["commitInfo", "txn", "protocol", "metaData", "add"],
        ["commitInfo", "txn"],
    ]
    assert table.problems() == []
    version = folder / "delta/data/_delta_log" / f"{1:020d}.json"
    assert version.stat().st_mtime_ns // 10**6 == COMMITTED_MS + 1


def test_one_batch_of_many_files_is_compacted_as_readers_see_it(table, folder):
    commit(table, dead=1, files=3)
    data = folder / "delta/data"
    before = sorted(by_protocol(data), key=lambda row: row["kafka_offset"])
    assert compact(table, "snappy") == 1
    assert table.problems() == []
    assert len(table.files()) == len(DATES)
    after = sorted(by_protocol(data), key=lambda row: row["kafka_offset"])
    assert [row | {"batch": 1} for row in before] == after
    assert offsets(after) == by_manifests(folder)
    assert sorted(by_protocol(data, 0), key=lambda row: row["kafka_offset"]) == before
    commit(table)
    assert offsets(by_protocol(data)) == by_manifests(folder)
    assert table.problems() == []


def test_widening_and_compaction_as_readers_see_them(table, folder):
    deltalake = pytest.importorskip("deltalake")
    commit(table, dead=2)
    commit(table, more=True)
    commit(table, more=True)
    data, dead = folder / "delta/data", folder / "delta/dead"
    before = sorted(by_delta_rs(data), key=lambda row: row["kafka_offset"])
    assert offsets(before) == by_manifests(folder)
    assert [row["odd name"] is None for row in before] == [True] * SIZE + [False] * 2 * SIZE
    third = versions(data)[2]
    assert "metaData" in {next(iter(a)) for a in versions(data)[1]}
    assert "metaData" not in {next(iter(a)) for a in third}

    old = deltalake.DeltaTable(str(data))
    assert compact(table, "snappy") == 3
    for reader in (by_delta_rs, by_protocol):
        assert offsets(reader(data)) == by_manifests(folder)
        assert offsets(reader(data, 1)) == list(range(SIZE)) + list(range(SIZE + 2, 2 * SIZE + 2))
        assert offsets(reader(dead)) == by_manifests(folder, "dead") == [SIZE, SIZE + 1]
    after = sorted(by_delta_rs(data), key=lambda row: row["kafka_offset"])
    assert [r | {"batch": 3} for r in before] == after
    assert offsets(old.to_pyarrow_table().to_pylist()) == offsets(before)  # began before
    version = versions(data)[3]
    assert not any(a[k]["dataChange"] for a in version for k in ("add", "remove") if k in a)
    assert [next(iter(a)) for a in versions(dead)[3]] == ["commitInfo", "txn"]
    assert table.problems() == []

    assert table.delta.clean(3600 * 24 * 365 * 100) == 0
    assert table.delta.clean(0) == 6
    assert sorted(p.name for p in data.iterdir()) == ["_delta_log", "batch=3"]
    commit(table)
    assert offsets(by_delta_rs(data)) == by_manifests(folder)
    assert table.problems() == []
    table.close()
    again = open_landed(folder, table_format="delta")
    assert again.problems() == []
    table._lock = again._lock


def test_original_bytes_that_were_kept_for_a_while(folder):
    table = opened(folder)
    for keep in (False, True, False):
        commit(table, keep=keep)
    values = [row["kafka_value"] for row in by_protocol(folder / "delta/data")]
    assert (values.count(b"{}"), values.count(None)) == (SIZE, 2 * SIZE)
    assert table.problems() == []
    table.close()
    version_file(folder, 1).unlink()
    table = opened(folder, restore=True)
    assert len(by_protocol(folder / "delta/data")) == 3 * SIZE
    compact(table, "snappy")
    assert table.problems() == []
    assert len(by_protocol(folder / "delta/data")) == 3 * SIZE
    table.close()


def test_other_programs_do_not_write(table, folder):
    deltalake = pytest.importorskip("deltalake")
    for _ in range(3):
        commit(table)
    compact(table, "snappy")  # so that there is something to vacuum
    commit(table)
    data = folder / "delta/data"
    rows = deltalake.DeltaTable(str(data)).to_pyarrow_table()
    before = {p: p.stat().st_ino for p in data.rglob("*.json")}
    for write in (
        lambda: deltalake.write_deltalake(str(data), rows, mode="append"),
        lambda: deltalake.write_deltalake(str(data), rows, mode="overwrite"),
        deltalake.DeltaTable(str(data)).optimize.compact,
        lambda: deltalake.DeltaTable(str(data)).delete("n = 1"),
        lambda: deltalake.DeltaTable(str(data)).vacuum(
            0, dry_run=False, enforce_retention_duration=False
        ),
    ):
        with pytest.raises(Exception, match=r"ottlaLake|append"):
            write()
    assert {p: p.stat().st_ino for p in data.rglob("*.json")} == before
    assert table.problems() == []
    assert offsets(by_delta_rs(data, 2)) == list(range(3 * SIZE))

    # It asks for no feature here, and deletes versions.
    deltalake.DeltaTable(str(data)).create_checkpoint()
    deltalake.DeltaTable(str(data)).cleanup_metadata()
    assert "checkpoint.parquet is not a version that this job wrote" in table.problems()[0]
    table.close()
    restored = opened(folder, restore=True)
    assert restored.problems() == []
    assert offsets(by_delta_rs(data)) == by_manifests(folder)
    table._lock = restored._lock


def test_dates_that_readers_cannot_hold_are_null(table, folder):
    commit(table, dates=("+10000-01-01", "-0005-01-01", "0000-01-01"))
    rows = by_protocol(folder / "delta/data")
    assert offsets(rows) == list(range(SIZE))
    assert {row["event_date"] for row in rows} == {None}
    pytest.importorskip("deltalake")
    assert offsets(by_delta_rs(folder / "delta/data")) == list(range(SIZE))


class CrashError(Exception):
    pass


def crash_points(patched, step):
    """Let the call of this number fail, before or after it has done its work."""
    calls = itertools.count()

    def crashing(real):
        def call(*args, **more):
            if next(calls) == step:
                raise CrashError
            result = real(*args, **more)
            if next(calls) == step:
                raise CrashError
            return result

        return call

    steps = ((tables, "exchange"), (os, "link"), (os, "rename"), (os, "utime"), (os, "mkdir"))
    for module, name in steps:
        patched.setattr(module, name, crashing(getattr(module, name)))
    return calls


@pytest.mark.parametrize("work", ["widening", "compaction"])
def test_a_crash_at_any_step(folder, monkeypatch, tmp_path, work):
    """Readers see what was there before or what is there after; the next run makes it whole."""
    table = opened(folder)
    commit(table, dead=1)
    commit(table)
    table.close()
    folder.rename(tmp_path / "kept")
    shutil.copytree(tmp_path / "kept", folder)
    before = by_manifests(folder)
    after = before if work == "compaction" else before + list(range(13, 13 + SIZE))
    seen, behind = set(), 0
    for step in itertools.count():
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "kept", folder)
        table = open_landed(folder, sync=False)
        with monkeypatch.context() as patched:
            calls = crash_points(patched, step)
            try:
                if work == "compaction":
                    compact(table, "snappy")
                else:
                    commit(table, more=True, dead=1)
            except CrashError:
                pass
            done = next(calls) <= step
        table.close()
        rows = offsets(by_protocol(folder / "delta/data"))
        assert rows in (before, after)
        assert offsets(by_protocol(folder / "delta/dead")) in ([6], [6, 19])
        committed = by_manifests(folder)
        behind += (committed, len(versions(folder / "delta/data"))) == (after, 2)
        assert rows == before or committed == after
        again = open_landed(folder, sync=False)
        assert again.problems() == []
        assert offsets(by_protocol(folder / "delta/data")) == by_manifests(folder)
        assert offsets(by_protocol(folder / "delta/dead")) == by_manifests(folder, "dead")
        seen.add((len(rows), len(again.batches)))
        commit(again)
        assert again.problems() == []
        assert offsets(by_protocol(folder / "delta/data")) == by_manifests(folder)
        again.close()
        if done:
            break
    assert len(seen) >= 2
    assert behind >= 3  # amid the manifest's rename and the version
    assert step > 15


def test_what_is_written_again_is_the_same(table, folder):
    for _ in range(3):
        commit(table, dead=1)
    table.close()
    for kind in ("data", "dead"):
        newest = folder / "delta" / kind / "_delta_log" / f"{2:020d}.json"
        was = newest.read_bytes()
        newest.unlink()
        table._lock = open_landed(folder)._lock
        os.close(table._lock)
        assert newest.read_bytes() == was
    table._lock = open_landed(folder)._lock


def version_file(folder, number, kind="data"):
    return folder / "delta" / kind / "_delta_log" / f"{number:020d}.json"


def remove_a_version(folder):
    version_file(folder, 1).unlink()


def remove_two_of_the_newest(folder):
    for number in (2, 3):
        version_file(folder, number).unlink()


def foreign_version(folder):
    add = json.loads(version_file(folder, 0).read_text().splitlines()[-1])
    source = folder / "delta/data" / add["add"]["path"]
    shutil.copy(source, folder / "delta/data/stranger.parquet")
    add["add"]["path"] = "stranger.parquet"
    version_file(folder, 4).write_text(json.dumps(add) + "\n")


def foreign_add(folder):
    lines = version_file(folder, 1).read_text().splitlines()
    add = json.loads(lines[-1])
    add["add"]["path"] = "batch=1/stranger.parquet"
    version_file(folder, 1).write_text("\n".join([*lines, json.dumps(add)]))


def doubled_add(folder):
    lines = version_file(folder, 2).read_text().splitlines()
    version_file(folder, 2).write_text("\n".join([*lines, lines[-1]]))


def doubled_add_of_another_version(folder):
    add = version_file(folder, 0).read_text().splitlines()[-1]
    version_file(folder, 2).write_text(version_file(folder, 2).read_text() + add)


def doubled_by_another_spelling(folder):
    lines = version_file(folder, 2).read_text().splitlines()
    more = lines[-1].replace("batch=2/", "./batch=2/")
    version_file(folder, 2).write_text("\n".join([*lines, more]))


def left_out(folder):
    lines = version_file(folder, 2).read_text().splitlines()
    version_file(folder, 2).write_text("\n".join(lines[:-1]))


def another_size(folder):
    text = version_file(folder, 2).read_text()
    version_file(folder, 2).write_text(text.replace('"numRecords\\":3', '"numRecords\\":4'))


def another_lake(folder):
    text = version_file(folder, 3, "dead").read_text()
    version_file(folder, 3, "dead").write_text(text.replace('"appId":"', '"appId":"x'))


def no_version(folder):
    version_file(folder, 2).write_bytes(b"\xff{")


def checkpoint(folder):
    (version_file(folder, 2).with_suffix(".checkpoint.parquet")).write_bytes(b"")


def file_gone(folder):
    next((folder / "delta/data/batch=1").rglob("*.parquet")).unlink()


def file_cut(folder):
    path = next((folder / "delta/data/batch=1").rglob("*.parquet"))
    path.unlink()
    path.write_bytes(b"PAR1")


PLANTED = {
    remove_a_version: "00001.json is gone: its rows are missing",
    remove_two_of_the_newest: "00002.json is gone: its rows are missing",
    foreign_version: "00004.json is the version of a batch that is not there",
    foreign_add: "00001.json adds batch=1/stranger.parquet, which is no file of its batch",
    doubled_add: "00002.json adds batch=2/event_date=__HIVE_DEFAULT_PARTITION__/part-0.parquet",
    doubled_add_of_another_version: "00002.json adds batch=0/event_date=__HIVE_DEFAULT_PARTITION__",
    doubled_by_another_spelling: "00002.json adds ./batch=2/event_date=__HIVE_DEFAULT_PARTITION__",
    left_out: "00002.json does not add batch=2/event_date=__HIVE_DEFAULT_PARTITION__/part-0.parqu",
    another_size: "00002.json is not what the manifest of its batch says",
    another_lake: "00003.json is not what the manifest of its batch says",
    no_version: "00002.json is no version of a Delta table",
    checkpoint: "00002.checkpoint.parquet is not a version that this job wrote",
    file_gone: "part-0.parquet is gone: Delta's readers miss its rows",
    file_cut: "part-0.parquet has 4 bytes, not",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_what_is_planted_is_found_and_restored(folder, plant):
    table = opened(folder)
    for _ in range(4):
        commit(table, dead=1)
    plant(folder)
    assert PLANTED[plant] in table.problems()[0]  # during a run
    assert PLANTED[plant] in delta_problems(folder, table.binding, table.batches)[0]  # by others
    table.close()
    before = {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    for open_it in (open_landed, opened):
        with pytest.raises(OttlaError, match="restore it from a copy, or let --restore") as caught:
            open_it(folder)
        assert PLANTED[plant] in str(caught.value)
    assert {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    table = opened(folder, restore=True)
    assert table.problems() == []
    assert offsets(by_protocol(folder / "delta/data")) == by_manifests(folder)
    commit(table)
    assert offsets(by_protocol(folder / "delta/data")) == by_manifests(folder)
    table.close()


def test_a_log_of_batches_that_became_one_is_restored_as_another_table(folder):
    table = opened(folder)
    for _ in range(3):
        commit(table, dead=1)
    compact(table, "snappy")
    commit(table)
    table.close()
    was = versions(folder / "delta/data")
    version_file(folder, 1).unlink()
    table = opened(folder, restore=True)
    now = versions(folder / "delta/data")
    assert len(now) == len(was) == 5
    ids = [next(a["metaData"]["id"] for a in v[0] if "metaData" in a) for v in (was, now)]
    assert ids[0] == table.binding.lake_id != ids[1]
    assert offsets(by_protocol(folder / "delta/data")) == by_manifests(folder)
    assert offsets(by_protocol(folder / "delta/dead")) == by_manifests(folder, "dead")
    table.close()
    table = opened(folder)
    assert table.problems() == []
    table.close()


def test_a_foreign_file_in_a_version_that_compaction_replaced_is_found(folder):
    table = opened(folder)
    for _ in range(3):
        commit(table)
    compact(table, "snappy")
    assert table.problems() == []
    for path, says in (
        ("batch=9/x", "_delta_log lists batch=9/x, which no manifest has"),
        ("batch=1/x", "00003.json is not what the manifest of its batch says"),
    ):
        kept = version_file(folder, 1).read_text()
        add = json.loads(kept.splitlines()[-1])
        add["add"]["path"] = path
        version_file(folder, 1).write_text(kept + json.dumps(add))
        assert says in table.problems()[0]
        version_file(folder, 1).write_text(kept)
    assert table.problems() == []
    table.close()


def test_a_batch_without_its_version_is_told_at_the_end_of_a_run(table, folder):
    commit(table)
    version_file(folder, 0, "dead").unlink()
    assert table.problems() == [f"{version_file(folder, 0, 'dead')} is not there"]
    assert delta_problems(folder, table.binding, table.batches) == []  # it may still come


def test_another_program_was_faster(table, folder):
    commit(table)
    version_file(folder, 1).write_text("{}\n")
    with pytest.raises(OttlaError, match="is there already: another program has written into"):
        commit(table)
    assert version_file(folder, 1).read_text() == "{}\n"
    assert by_manifests(folder) == list(range(2 * SIZE))


def test_the_format_of_a_table_cannot_be_switched(folder, tmp_path):
    opened(folder).close()
    with pytest.raises(OttlaError, match="begun with format delta, not parquet, and a table keeps"):
        open_table(folder, TOPIC, "read_uncommitted", dict, Allowed())
    with pytest.raises(OttlaError, match="begun with format delta, not parquet"):
        open_landed(folder, table_format="parquet")
    other = tmp_path / "other"
    open_table(other, TOPIC, "read_uncommitted", dict, Allowed()).close()
    before = sorted(other.rglob("*"))
    with pytest.raises(OttlaError, match=r'set lake.format = "parquet", or name another lake'):
        opened(other)
    assert sorted(other.rglob("*")) == before


def test_bytes_that_differ_are_found_by_verify(table, folder):
    commit(table)
    assert table.problems() == table.delta.other_bytes() == []
    path = folder / "delta/data" / table.files()[0].path
    data = bytearray(path.read_bytes())
    path.unlink()
    path.write_bytes(data)  # a copy
    assert table.delta.other_bytes() == []
    data[20] ^= 1
    path.write_bytes(data)
    assert [line.split(" has ")[0] for line in table.delta.other_bytes()] == [str(path)]


def test_a_file_system_without_hard_links_is_refused(folder, monkeypatch):
    def link(*_):
        raise PermissionError

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OttlaError, match="has no hard links, which a Delta table needs here"):
        opened(folder)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("timestamp_ntz", "t: column c is timestamp_ntz"),
        ({"type": "array", "elementType": "variant", "containsNull": True}, "column c is variant"),
        (
            {"type": "struct", "fields": [column("d", "interval day to second")]},
            "column c.d is interval day to second",
        ),
        (
            {"type": "map", "keyType": "string", "valueType": "void", "valueContainsNull": True},
            "column c is void",
        ),
        ({"type": "udt", "class": "x"}, "column c is udt"),
    ],
)
def test_types_that_readers_may_not_know_are_refused(kind, says):
    with pytest.raises(OttlaError, match=says):
        refuse_types([column("c", kind)], "t")
    good = [
        "long",
        "decimal(8,2)",
        "timestamp",
        {"type": "struct", "fields": [column("x", "date")]},
    ]
    refuse_types([column("c", one) for one in good], "t")
