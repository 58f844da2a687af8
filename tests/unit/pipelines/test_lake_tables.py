"""The lake's tables alone, of both formats, in a folder and in a bucket; no Spark and no brokers.

What others do to them is done by their own libraries, as users would.
"""

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from pyarrow import parquet  # noqa: E402 - needs pyarrow

from ottla.model.errors import OttlaError  # noqa: E402
from ottla.pipelines.config import Cluster  # noqa: E402
from ottla.pipelines.lake.migrating import migrate  # noqa: E402
from ottla.pipelines.lake.opening import Tables  # noqa: E402
from ottla.pipelines.lake.schemas import DEAD, META, given_schema, widened  # noqa: E402
from ottla.pipelines.lake.settings import Lake, Settings  # noqa: E402
from ottla.pipelines.lake.state import Account, State  # noqa: E402
from ottla.pipelines.lake.tables import CLUSTER, TOPIC, TOPIC_ID, ConflictError, merges  # noqa: E402
from ottla.pipelines.lake.writing import FileWriter  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2]))
from support.cluster import free_ports  # noqa: E402 - tests are no package
from support.waiting import until  # noqa: E402

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
COLUMNS = "n int, ok boolean, price decimal(8,2), o struct<a: bigint>, never string"
SCHEMA = pa.schema([*given_schema(COLUMNS), *META, ("event_date", pa.date32())])
BOUND = {CLUSTER: "c", TOPIC: "t", TOPIC_ID: "i"}


def settings(path, table_format, **catalog):
    lake = Lake(path=str(path), topics=["t"], format=table_format)
    return Settings(cluster=Cluster(bootstrap_servers="x:1"), lake=lake, catalog=catalog)


@pytest.fixture(params=["delta", "iceberg"])
def tables(request, tmp_path):
    return Tables(settings(tmp_path, request.param))


@pytest.fixture
def rows(tables):
    return tables.create("t", SCHEMA, DEAD, "event_date", BOUND)[0]


def files(table, first, count, key=None):
    found = []
    writer = FileWriter(table.target("snappy"), found)
    offsets = range(first, first + count)
    writer.add(
        pa.table(
            {
                "n": pa.array(offsets, pa.int32()), "kafka_key": [key or b"k"] * count,
                "ok": [True] * count, "o": [{"a": 1}] * count, "kafka_offset": offsets,
                "kafka_partition": pa.array([0] * count, pa.int32()),
                "kafka_timestamp": pa.array([NOON] * count, pa.timestamp("us", "UTC")),
                "event_date": [date(2026, 1, 1 + n % 2) for n in offsets],
            }
        )
    )  # fmt: skip
    writer.flush()
    return found


def at(table, end, **more):
    return table.state.after({0: Account(start=0, next=end, **more)})


def land(table, first, count, **more):
    table.append(files(table, first, count), at(table, first + count, **more))


def numbers(table):
    return sorted(n for b in table.read(("kafka_offset",)) for n in b.column(0).to_pylist())


def test_a_commit_has_its_offsets(tables, rows):
    rows.append([], at(rows, 0))
    land(rows, 0, 10, epoch=3, dead=1, gaps=2, lost=4)
    again, dead = tables.open("t")
    assert again.state == rows.state
    assert again.state == State(
        batch=2, accounts={0: Account(start=0, next=10, epoch=3, dead=1, gaps=2, lost=4)}
    )
    assert again.state.accounts[0].rows == 3
    assert (again.rows(), numbers(again)) == (10, list(range(10)))
    assert {k: v for k, v in again.properties.items() if k in BOUND} == BOUND
    assert (dead.state, dead.rows(), dead.files()) == (State(), 0, [])
    # A partition that comes later, and reading from an offset on.
    again.append([], again.state.after({1: Account(start=0, next=5)}))
    rows.refresh()
    assert sorted(rows.state.accounts) == [0, 1]
    least = [n for b in rows.read(("kafka_offset",), {0: 7}) for n in b.column(0).to_pylist()]
    assert {7, 8, 9} <= set(least)
    assert [b for b in rows.read(None, {1: 0}) if b.num_rows] == []


def test_of_two_runs_the_second_is_refused(tables, rows):
    rows.append([], at(rows, 0))
    one, other = tables.open("t")[0], tables.open("t")[0]
    land(one, 0, 10)
    with pytest.raises(ConflictError, match="another run landed into this table meanwhile"):
        land(other, 0, 10)
    assert (other.rows(), other.state) == (10, one.state)
    stale, fresh = tables.open("t")[0], tables.open("t")[0]
    fresh.append([], at(fresh, 10))  # even a commit without files
    with pytest.raises(ConflictError):
        land(stale, 10, 5)
    assert (tables.open("t")[0].rows(), numbers(fresh)) == (10, list(range(10)))


def test_others_maintain_the_table_while_it_is_landed_into(tables, rows):
    """A run that read its offsets before commits after them: nothing of it is refused."""
    rows.append([], at(rows, 0))
    for n in range(5):
        land(rows, 10 * n, 10)
    waiting = tables.open("t")[0]
    if hasattr(waiting, "_catalog"):
        table = waiting._catalog.load_table(("lake", "t"))
        table.delete("kafka_offset < 5")
        table.maintenance.expire_snapshots().by_ids(
            [s.snapshot_id for s in table.metadata.snapshots[:-1]]
        ).commit()
    else:
        from deltalake import DeltaTable

        table = DeltaTable(waiting.uri)
        table.delete("kafka_offset < 5")
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        table.create_checkpoint()
        table.cleanup_metadata()
    staged = files(waiting, 50, 10)
    waiting.append(staged, at(waiting, 60))
    again = tables.open("t")[0]
    assert (again.state.batch, again.state.accounts[0].next) == (7, 60)
    assert numbers(again) == list(range(5, 60))
    assert again.rows() == 55


def test_a_commit_whose_acknowledgement_was_lost_is_found(tables, rows, monkeypatch):
    rows.append([], at(rows, 0))
    target = rows._table
    if hasattr(rows, "_catalog"):
        name, owner = "_do_commit", type(target)
    else:
        name, owner = "create_write_transaction", type(target)
    real = getattr(owner, name)

    def silent(self, *args, **more):
        real(self, *args, **more)
        raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, silent)
        land(rows, 0, 10)
    assert (rows.state.accounts[0].next, rows.rows()) == (10, 10)
    land(rows, 10, 10)
    assert numbers(tables.open("t")[0]) == list(range(20))

    def broken(self, *args, **more):
        raise OSError("connection refused")

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, broken)
        with pytest.raises((OSError, OttlaError), match="connection refused"):
            land(rows, 20, 10)
    assert (rows.state.accounts[0].next, rows.rows()) == (20, 20)
    land(rows, 20, 10)
    assert numbers(rows) == list(range(30))


def test_columns_come_and_widen(tables, rows):
    land(rows, 0, 10)
    wider = widened(rows.schema, given_schema("new array<string>, o struct<b: string>"))
    rows.widen(wider)
    assert rows.schema.names == [*SCHEMA.names, "new"]
    assert rows.schema.field("o").type == pa.struct([("a", pa.int64()), ("b", pa.string())])
    land(rows, 10, 10)
    target = rows.retyped({"n": pa.float64()}, "snappy")
    found = []
    writer = FileWriter(target, found)
    for batch in rows.read():
        writer.add(pa.Table.from_batches([batch]))
    writer.flush()
    rows.replace(target.schema, found, rows.state.after({}))
    again = tables.open("t")[0]
    assert again.schema.field("n").type == pa.float64()
    assert again.state.accounts == {0: Account(start=0, next=20)}
    values = pa.Table.from_batches(again.read()).to_pylist()
    assert sorted(row["n"] for row in values) == [float(n) for n in range(20)]
    assert all(row["kafka_offset"] == row["n"] for row in values)
    land(again, 20, 5)
    assert numbers(again) == list(range(25))


def test_compaction_is_bounded_and_changes_no_state(tables, rows):
    rewritten = total = 0
    for night in range(24):
        # So large that a file's own overhead does not count.
        found = files(rows, 4 * night, 4, os.urandom(20_000))
        rows.append(found, at(rows, 4 * night + 4))
        before, state = set(rows.files()), rows.state
        rows.compact()
        assert rows.state == state
        total += 4
        made = set(rows.files()) - before
        rewritten += sum(parquet.read_metadata(f.removeprefix("file://")).num_rows
                         for f in map(whole(rows), made))  # fmt: skip
    assert numbers(rows) == list(range(total))
    assert len(rows.files()) < 16  # of 48
    assert rewritten < 4 * total  # each night anew: 12 times
    assert rows.clean(1) == 0  # too young
    assert rows.clean(0) > 0
    assert numbers(tables.open("t")[0]) == list(range(total))


def whole(table):
    return lambda path: path if path.startswith(("/", "file:")) else f"{table.uri}/{path}"


def test_what_is_worth_merging():
    assert merges([10, 10, 10]) == 0
    assert merges([10, 10, 10, 10]) == 4
    assert merges([1000, 10, 10, 10, 10]) == 4
    assert merges([40, 10, 10, 10, 10]) == 5
    assert merges([1 << 30] * 9) == 0


def test_files_that_no_commit_names_are_cleaned(tables, rows):
    land(rows, 0, 10)
    files(rows, 10, 10)
    assert rows.clean(0) == 2
    assert numbers(rows) == list(range(10))


def test_an_iceberg_table_that_was_rolled_back(tmp_path):
    tables = Tables(settings(tmp_path, "iceberg"))
    rows, _ = tables.create("t", SCHEMA, DEAD, None, BOUND)
    for n in range(3):
        land(rows, 10 * n, 10)
    second = rows._table.metadata.snapshots[1].snapshot_id
    rows._table.manage_snapshots().rollback_to_snapshot(second).commit()
    again = tables.open("t")[0]
    assert (again.state.accounts[0].next, again.rows()) == (20, 20)
    land(again, 20, 10)
    assert numbers(again) == list(range(30))


def test_an_iceberg_table_keeps_few_snapshots(tmp_path, monkeypatch):
    from ottla.pipelines.lake import iceberg

    monkeypatch.setattr(iceberg, "MOST_SNAPSHOTS", 4)
    tables = Tables(settings(tmp_path, "iceberg"))
    rows, _ = tables.create("t", SCHEMA, DEAD, None, BOUND)
    for n in range(12):
        land(rows, n, 1)
    assert len(rows._table.metadata.snapshots) < 8
    assert (rows.state.batch, numbers(tables.open("t")[0])) == (12, list(range(12)))


def test_an_iceberg_lake_elsewhere_needs_a_catalog():
    with pytest.raises(OttlaError, match=r"Iceberg lake in s3://bucket/lake needs a catalog"):
        Tables(settings("s3://bucket/lake", "iceberg"))


@pytest.fixture
def bucket(monkeypatch):
    """Serve an empty bucket by moto; return its address."""
    pytest.importorskip("moto.server")
    import boto3

    (port,) = free_ports(1)
    # A process of its own: delta-rs holds Python's lock while it waits.
    code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    server = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    host = "127.0.0.1"
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    try:
        until(
            lambda: boto3.client("s3").create_bucket(Bucket="lake"), 60, "the bucket is there",
            despite=(Exception,),
        )  # fmt: skip
        yield "s3://lake/raw"
    finally:
        server.kill()
        server.wait(10)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.timeout(400)
def test_a_lake_in_a_bucket(bucket, tmp_path, table_format):
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    catalog = catalog if table_format == "iceberg" else {}
    tables = Tables(settings(bucket, table_format, **catalog))
    rows, _ = tables.create("t", SCHEMA, DEAD, "event_date", BOUND)
    rows.append([], at(rows, 0))
    stale = tables.open("t")[0]
    for n in range(5):
        land(rows, 10 * n, 10)
    with pytest.raises(ConflictError):
        land(stale, 0, 10)
    rows.compact()
    again = tables.open("t")[0]
    assert (again.state, numbers(again)) == (rows.state, list(range(50)))
    assert again.clean(0) > 0
    assert numbers(again) == list(range(50))


# -- lakes of the format before --------------------------------------------------------------------


def old_lake(folder, *, spans=((0, 6),)):
    """Write what Ottla 0.1 left of a topic: two batches, one of them compacted."""
    binding = {"format": 1, "lake_id": "l", "path": str(folder), "cluster_id": "c", "topic": "t",
               "topic_id": "i", "isolation": "read_uncommitted", "created_ms": 1,
               "starts": {"0": 0}}  # fmt: skip
    table = folder / "t"
    (table / "schemas").mkdir(parents=True)
    (table / "table.json").write_text(json.dumps(binding))
    field = {"name": "n", "type": "long", "nullable": True, "metadata": {}}
    schema = {"type": "struct", "fields": [field]}
    (table / "schemas" / "1.json").write_text(json.dumps(schema))
    meta = pa.schema(list(META)[:-1])  # without leader epochs
    for batch, offsets, dead in ((0, [0, 1], [2]), (3, [3, 4], [])):
        for kind, some in (("data", offsets), ("dead", dead)):
            if not some:
                continue
            count = len(some)
            columns = {
                "kafka_key": [b"k"] * count, "kafka_headers": [None] * count,
                "kafka_timestamp": [NOON] * count, "kafka_timestamp_type": [0] * count,
                "kafka_topic": ["t"] * count, "kafka_partition": [0] * count, "kafka_offset": some,
            }  # fmt: skip
            rows = pa.table(columns, schema=meta)
            if kind == "data":
                rows = rows.add_column(0, "n", pa.array(some, pa.int64()))
                place = table / kind / f"batch={batch}" / "event_date=2026-01-05"
            else:
                for name in ("kafka_value", "detail", "reason"):
                    kind_of = pa.binary() if name == "kafka_value" else pa.string()
                    rows = rows.add_column(0, name, pa.array(["x"] * count).cast(kind_of))
                place = table / kind / f"batch={batch}"
            place.mkdir(parents=True)
            parquet.write_table(rows, place / "part-0.parquet", store_schema=False)
        manifest = {
            "binding": binding, "batch": batch, "first": 0, "previous": "", "committed_ms": 1,
            "schema": 1, "partitions": {}, "landed": {"0": [list(span) for span in spans]},
            "epochs": {"0": 2}, "date_column": "event_date",
            "files": [{"path": "event_date=2026-01-05/part-0.parquet", "bytes": 1}],
            "dead_files": [{"path": "part-0.parquet", "bytes": 1}] if dead else [],
        }  # fmt: skip
        manifest["totals"] = {"0": {"rows": 4, "dead": 1, "gaps": 1, "lost": 0}}
        (table / "data" / f"batch={batch}" / "_manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_lake_of_the_format_before_is_taken_over(tmp_path, table_format):
    old_lake(tmp_path)
    before = set(tmp_path.rglob("*.parquet"))
    where = settings(tmp_path, table_format)
    tables = Tables(where)
    assert migrate(where, tables, "t") == 2
    rows, dead = tables.open("t")
    assert rows.state.accounts == {0: Account(start=0, next=6, epoch=2, dead=1, gaps=1)}
    assert rows.state.accounts[0].rows == rows.rows() == 4
    found = pa.Table.from_batches(rows.read()).to_pylist()
    assert sorted((r["n"], r["kafka_offset"], str(r["event_date"])) for r in found) == [
        (n, n, "2026-01-05") for n in (0, 1, 3, 4)
    ]
    assert numbers(dead) == [2]
    assert {p for p in tmp_path.rglob("*.parquet") if "/data/" in str(p)} >= {
        p for p in before if "/data/" in str(p)
    }
    assert migrate(where, tables, "t") == 0
    rows.append([], at(rows, 7, epoch=2, dead=1, gaps=2))
    assert numbers(tables.open("t")[0]) == [0, 1, 3, 4]


def test_an_old_lake_with_holes_is_not_taken_over(tmp_path):
    old_lake(tmp_path, spans=((0, 3), (4, 6)))
    where = settings(tmp_path, "delta")
    with pytest.raises(OttlaError, match="t-0: its offsets from 0 on have not all landed"):
        migrate(where, Tables(where), "t")
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(OttlaError, match=r"has no table\.json"):
        migrate(where, Tables(where), "t")
