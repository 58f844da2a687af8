"""A table against its topic by the full check, on rows that workers wrote; no Spark."""

import subprocess
import sys
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from pyarrow import parquet  # noqa: E402 - needs pyarrow

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.model.errors import UnknownTopicError  # noqa: E402
from ottla.pipelines.landing import asking, gaps, verifying  # noqa: E402
from ottla.pipelines.landing.compacting import compact  # noqa: E402
from ottla.pipelines.landing.spans import Span  # noqa: E402
from ottla.pipelines.landing.table import Allowed, open_table  # noqa: E402
from ottla.pipelines.landing.verifying import verify  # noqa: E402
from support.cluster import OttlaCluster  # noqa: E402 - tests are no package
from support.landed import (  # noqa: E402
    Produced,
    by_pyarrow,
    differences,
    land_batch,
    numbered,
    read_sets,
    settings_of,
)

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(300)]

COUNT = 900


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=1) as cluster:
        create = [sys.executable, "-m", "ottla", "topics", "create", "t", "--partitions", "2"]
        where = ["--replication-factor", "1", "--bootstrap-server", cluster.bootstrap]
        subprocess.run([*create, *where], check=True, timeout=60)
        yield cluster


@pytest.fixture(scope="module")
def produced(cluster):
    return Produced(cluster.bootstrap, "t").send(numbered(0, COUNT), **{"batch.size": 2000})


@pytest.fixture
def settings(cluster, tmp_path):
    return read_sets(settings_of(cluster.bootstrap, tmp_path / "lake", ["t"]))


@pytest.fixture
def asked(settings):
    with asking.reached(settings.cluster, "read_uncommitted") as cluster:
        yield cluster


@pytest.fixture
def topic(asked, produced):
    return asking.described(asked, produced.topic)


@pytest.fixture
def table(settings, asked, topic):
    """A table in two batches."""
    held = asking.held(asked, topic)
    folder = Path(settings.lake.path) / "t"
    table = open_table(folder, topic, "read_uncommitted", lambda: dict.fromkeys(held, 0), Allowed())
    land_batch(settings, topic, table, {p: Span(0, s.end // 2) for p, s in held.items()})
    land_batch(settings, topic, table, {p: Span(s.end // 2, s.end) for p, s in held.items()})
    yield table
    table.close()


def test_what_the_cluster_says(asked, topic, produced):
    ends = {p: 1 + max(o for q, o in produced.acked if q == p) for p in (0, 1)}
    assert {p: (s.start, s.end) for p, s in asking.held(asked, topic).items()} == {
        p: (0, end) for p, end in ends.items()
    }
    assert asking.offsets_at(asked, topic, 0) == {0: 0, 1: 0}
    assert asking.offsets_at(asked, topic, 10**15) == ends
    assert asking.epoch_ends(asked, topic, {0: 0, 1: 0}) == ends
    with pytest.raises(UnknownTopicError, match="topic nosuch does not exist"):
        asking.described(asked, "nosuch")
    wrong = asked.run(gaps.records_in(asked, topic, {0: [Span(3, 5)], 1: []}))
    assert wrong == ["t-0: 2 records did not come, the first at 3"]


@pytest.mark.parametrize("compacted", [False, True])
def test_all_is_right(settings, topic, table, produced, monkeypatch, compacted):
    monkeypatch.setattr(verifying, "OFFSETS_AT_ONCE", 100)
    if compacted:
        assert compact(table, "snappy") == 2
    found = verify(settings, topic, table)
    assert (found.compared, found.gone, found.wrong) == (COUNT, 0, [])
    assert differences(by_pyarrow(table.folder / "data"), produced) == []


def test_what_was_changed_in_a_file_is_found(settings, topic, table, monkeypatch):
    monkeypatch.setattr(verifying, "OFFSETS_AT_ONCE", 100)
    path = table.folder / "data" / table.files()[0].path
    file = parquet.ParquetFile(path).read()
    rows = file.to_pylist()
    rows[7]["n"] += 1
    rows[8]["kafka_key"] = b"another"
    gone = rows.pop(9)
    rows += [dict(rows[10]), {**rows[11], "kafka_offset": 5000}]
    parquet.write_table(pa.Table.from_pylist(rows, file.schema), path)
    found = verify(settings, topic, table)
    name, at = f"t-{gone['kafka_partition']}", [row["kafka_offset"] for row in rows]
    assert [line.split(", not")[0] for line in found.wrong] == [
        f"{name}: offset {at[7]} has n = {rows[7]['n']}",
        f"{name}: offset {at[8]} has key b'another'",
        f"{name}: offset {gone['kafka_offset']} is missing",
        f"{name}: the row of offset {-1 - at[10]} is no record",
        f"t: batch 0 has {COUNT // 2 + 1} rows, {COUNT // 2} of them at its offsets",
    ]
    assert found.compared == COUNT - 1
