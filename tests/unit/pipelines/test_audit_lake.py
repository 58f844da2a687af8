"""Which files of a lake's table an audit reads, also after compaction."""

import pytest

pytest.importorskip("pyspark")

from ottla.model.errors import OttlaError
from ottla.pipelines.auditing.reading import landed_of
from ottla.pipelines.landing.manifest import (
    NAME,
    Binding,
    File,
    Landed,
    Manifest,
    Totals,
    encode,
)
from ottla.pipelines.landing.spans import Span


@pytest.fixture
def table(tmp_path):
    """A table of batches 0 to 2 that became batch 3, and of a batch 4."""
    folder = tmp_path / "t"
    binding = Binding(
        format=1, lake_id="l", path=str(folder), cluster_id="c", topic="t", topic_id="i",
        isolation="read_committed", created_ms=1, starts={0: 0},
    )  # fmt: skip
    folder.mkdir()
    (folder / "table.json").write_bytes(encode(binding))
    for batch, first, dead, end in [(3, 0, "batch=1/d.parquet", 30), (4, 4, "e.parquet", 40)]:
        of = folder / "data" / f"batch={batch}"
        of.mkdir(parents=True)
        manifest = Manifest(
            binding=binding, batch=batch, first=first, previous="", committed_ms=100 + batch,
            schema=0, partitions={0: [Landed(start=0, end=end, rows=end)]},
            files=[File("day=1/p.parquet", 3)], dead_files=[File(dead, 1)],
            landed={0: [Span(0, end)]}, epochs={0: 0}, totals={0: Totals(rows=end)},
        )  # fmt: skip
        (of / NAME).write_bytes(encode(manifest))
    return folder


def test_files_times_and_offsets_of_a_table(table):
    found = landed_of(table.parent, "t")
    assert sorted(found.files) == [
        f"{table}/data/batch=3/day=1/p.parquet",
        f"{table}/data/batch=4/day=1/p.parquet",
        f"{table}/dead/batch=1/d.parquet",
        f"{table}/dead/batch=4/e.parquet",
    ]
    assert found.committed_ms == {4: 104}
    assert found.spans == {0: [Span(0, 40)]}
    assert (found.cluster_id, found.topic_id, found.isolation) == ("c", "i", "read_committed")


def test_a_delta_log_is_compared_with_the_manifests(table):
    assert landed_of(table.parent, "t").delta == []
    text = (table / "table.json").read_text().replace('"format": 1', '"format": 2')
    (table / "table.json").write_text(text)
    found = landed_of(table.parent, "t").delta
    gone = [f"{n:020d}.json is gone: its rows are missing" for n in range(4)]
    assert [line.rsplit("/", 1)[1] for line in found] == gone * 2
    for kind in ("data", "dead"):
        log = table / "delta" / kind / "_delta_log"
        log.mkdir(parents=True)
        for number in range(4):
            (log / f"{number:020d}.json").write_text("")
    (found, *_) = landed_of(table.parent, "t").delta
    assert "00003.json does not add batch=3/day=1/p.parquet: its rows are missing" in found


def test_what_is_no_table_is_one_line(tmp_path):
    with pytest.raises(OttlaError, match="has no batch of a lake"):
        landed_of(tmp_path, "t")
