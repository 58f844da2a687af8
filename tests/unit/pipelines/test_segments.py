"""Segment files as rows, without Spark: every byte is a batch or told as damage."""

import os
import random
from pathlib import Path

import numpy as np
import pytest

from ottla.log import checkpoints
from ottla.model.errors import CorruptRecordError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.pipelines.segments import reading, records, summary
from ottla.pipelines.segments.batches import batch_rows
from ottla.pipelines.segments.folders import (
    Place,
    Wanted,
    dir_facts,
    logs_in,
    parse_places,
    partition_of,
    segments_in,
)
from ottla.pipelines.segments.records import record_rows
from ottla.pipelines.segments.source import SegmentsReader, summarize, tasks_of
from ottla.wire import compression
from ottla.wire.batch_header import crc32c
from ottla.wire.records import Record, build_batch, build_control_batch, iter_records
from support import planted

COLUMNS = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "broker", "file",
    "position", "leader_epoch", "damage",
)  # fmt: skip


def segment_of(path: Path, size: int | None = None):
    (found,) = segments_in(Place(7, str(path)))
    return found if size is None else found._replace(size=size)


def read(path: Path, end: int | None = None):
    """Return positions and damage of a file."""
    positions, damage = [], []
    for piece in reading.SegmentReader(str(path), end or path.stat().st_size).pieces():
        positions += piece.positions
        damage += piece.damage
    return positions, damage


@pytest.fixture
def path(tmp_path):
    planted.log(tmp_path / "t-3", [(0, 20)], per_segment=20)
    return planted.segments(tmp_path / "t-3")[0]


def index(path: Path, positions) -> None:
    """Write an offset index that leads to these places, followed by the zeros of an active one."""
    entries = b"".join((i + 1).to_bytes(4) + at.to_bytes(4) for i, at in enumerate(positions))
    path.with_suffix(".index").write_bytes(entries + bytes(800))


def test_each_batch_is_found_in_pieces_of_any_size(path, monkeypatch):
    expected = [at for at, _, _ in planted.batches(path)]
    assert read(path) == (expected, [])
    for size in (61, 100, 333, 1000):
        monkeypatch.setattr(reading, "PIECE", size)  # some or all batches are larger than a piece
        assert read(path) == (expected, [])


@pytest.mark.parametrize("seed", range(60))
def test_every_byte_is_a_batchs_or_damage(path, seed, monkeypatch):
    """Whatever bytes change: batches and damage cover the file, without gap or overlap."""
    rng = random.Random(seed)
    data = bytearray(path.read_bytes())
    places = [at for at, _, _ in planted.batches(path)]
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data))
        length = rng.choice([1, 1, 4, 300])
        data[at : at + length] = rng.randbytes(length)
    data = data[: rng.choice([len(data), rng.randrange(len(data))])]
    path.write_bytes(data)
    if rng.random() < 0.5:
        index(path, places[::3])
    monkeypatch.setattr(reading, "PIECE", rng.choice([200, 1000, 1 << 20]))
    covered = []
    for piece in reading.SegmentReader(str(path), len(data)).pieces():
        sizes = [int.from_bytes(h[8:12]) + 12 for h in piece.headers]
        covered += zip(piece.positions, sizes, strict=True)
        whole = set(piece.positions)
        covered += [(d.position, d.size) for d in piece.damage if d.position not in whole]
        for position, size, crc in zip(piece.positions, sizes, piece.checksums, strict=True):
            batch = bytes(data[position : position + size])
            bad = [d for d in piece.damage if d.position == position]
            assert bool(bad) == (crc != int.from_bytes(batch[17:21]))
    end = 0
    for position, size in sorted(covered):
        assert position == end
        end += size
    assert end == len(data)


def test_the_index_leads_on_behind_bytes_that_are_no_batch(path):
    places = [at for at, _, _ in planted.batches(path)]
    data = bytearray(path.read_bytes())
    data[places[5] + 8 : places[5] + 17] = b"\xff" * 9
    path.write_bytes(data)
    positions, (damage,) = read(path)
    assert positions == places[:5]
    assert (damage.kind, damage.position) == (reading.HEADER, places[5])
    assert damage.size == len(data) - places[5]
    index(path, [places[4], places[6] + 1, places[9], places[12]])  # one leads to no batch
    positions, (damage,) = read(path)
    assert positions == places[:5] + places[9:]
    assert damage.size == places[9] - places[5]


def test_a_batch_within_a_record_is_not_taken_for_one(tmp_path):
    inner = build_batch([Record(timestamp=1, value=b"inner")], base_offset=3)
    folder = tmp_path / "t-0"
    folder.mkdir()
    path = folder / f"{0:020}.log"
    planted.write(path, [build_batch([Record(timestamp=1, value=inner * 3)])])
    planted.flip(path, 0, at=16)  # magic
    assert read(path)[0] == []


def test_ends_of_files(path):
    size = path.stat().st_size
    last = planted.batches(path)[-1][0]
    for end in (last + 17, last + 60, last + 61, size - 1):
        (damage,) = read(path, end)[1]
        assert (damage.kind, damage.position, damage.size) == (reading.TORN, last, end - last)
    with path.open("ab") as file:
        file.write(bytes(5000))
    (damage,) = read(path)[1]
    assert (damage.kind, damage.position, damage.size) == (reading.ZEROS, size, 5000)
    (damage,) = read(path, size + 20)[1]
    assert damage.kind == reading.ZEROS
    os.truncate(path, last)
    (damage,) = read(path, size)[1]
    assert (damage.kind, damage.position) == (reading.GONE, last)


def test_old_message_formats_are_told(tmp_path):
    folder = tmp_path / "t-0"
    folder.mkdir()
    path = folder / f"{0:020}.log"
    path.write_bytes((5).to_bytes(8) + (60).to_bytes(4) + bytes(4) + b"\1" + bytes(55))
    (damage,) = read(path)[1]
    assert (damage.kind, damage.offset) == (reading.OLD_FORMAT, 5)


def test_a_batch_larger_than_a_piece_needs_no_more_memory(tmp_path, monkeypatch):
    folder = tmp_path / "t-0"
    folder.mkdir()
    path = folder / f"{0:020}.log"
    planted.write(path, [build_batch([Record(timestamp=1, value=b"x" * 50_000)])])
    monkeypatch.setattr(reading, "PIECE", 1000)
    asked = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda f, n, at: asked.append(n) or pread(f, n, at))
    assert read(path) == ([0], [])
    assert max(asked) <= 1000
    planted.flip(path, 0)
    assert [d.kind for d in read(path)[1]] == [reading.CRC]


def test_a_summary_does_not_depend_on_pieces_or_files(path, monkeypatch):
    whole = summarize(segment_of(path))
    monkeypatch.setattr(reading, "PIECE", 300)
    assert summarize(segment_of(path)) == whole
    assert (whole.first_offset, whole.end_offset, whole.batches, whole.records) == (0, 100, 20, 100)
    assert whole.epochs == [(0, 0, 100)]
    both = []
    for number, some in enumerate((planted.batches(path)[:7], planted.batches(path)[7:])):
        part = path.with_name(f"{some[0][1].base_offset + number:020}.log")
        planted.write(part, [data for _, _, data in some])
        both.append(summarize(segment_of(part)))
    sums = [np.frombuffer(f.sums, np.uint64) for f in both]
    assert (np.concatenate(sums).sum(), *whole.cells) == (
        np.frombuffer(whole.sums, np.uint64).sum(), *whole.cells,
    )  # fmt: skip


@pytest.mark.parametrize("planting", [planted.flip, planted.lose, planted.double])
def test_any_change_changes_the_digest(path, planting):
    before = summarize(segment_of(path)).contents
    planting(path, 4)
    assert summarize(segment_of(path)).contents != before


def test_lists_of_oddities_have_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "MOST", 3)
    planted.log(tmp_path / "t-0", [(0, 40)], per_segment=40)
    (path,) = planted.segments(tmp_path / "t-0")
    pieces = [data for _, _, data in planted.batches(path)]
    planted.write(path, pieces[::2])
    facts = summarize(segment_of(path))
    assert (len(facts.gaps), facts.gap_count) == (3, 19)


def test_a_file_that_is_gone_is_said_to_be(path):
    segment = segment_of(path)
    path.unlink()
    assert summarize(segment).vanished


# -- rows ---------------------------------------------------------------------------------------


def all_records(path, damaged="fail", columns=COLUMNS):
    segment = segment_of(path)
    reader = reading.SegmentReader(segment.path, segment.size)
    return [
        row for table in record_rows(segment, reader, columns, damaged) for row in table.to_pylist()
    ]


@pytest.mark.parametrize("codec", range(5))
def test_records_are_the_wires_in_every_codec(tmp_path, codec):
    folder = tmp_path / "t-4"
    folder.mkdir()
    path = folder / f"{10:020}.log"
    batches = []
    for first in (10, 13, 20):
        some = [Record(first + i, 1000 + i, b"k%d" % i, None if i else b"v") for i in range(3)]
        batches.append(build_batch(some, base_offset=first, codec=codec, leader_epoch=first))
    marker = build_control_batch(
        1, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=16
    )
    batches.insert(2, marker)
    planted.write(path, batches)
    expected = [
        (r.offset, r.key, r.value, at, h.partition_leader_epoch)
        for at, h, data in planted.batches(path)
        if not h.is_control
        for r in iter_records(data)
    ]
    rows = all_records(path)
    names = ("offset", "key", "value", "position", "leader_epoch")
    assert [tuple(r[n] for n in names) for r in rows] == expected
    assert {(r["topic"], r["partition"], r["broker"], r["file"], r["damage"]) for r in rows} == {
        ("t", 4, 7, str(path), None)
    }
    assert [set(r) for r in all_records(path, columns=("position", "value"))] == [
        {"position", "value"}
    ] * 9


def test_a_sound_checksum_over_no_records_is_damage(path):
    found = planted.batches(path)
    bad = bytearray(found[5][2])
    bad[61] = 0xFF
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4)
    planted.write(path, [bytes(bad) if i == 5 else d for i, (_, _, d) in enumerate(found)])
    with pytest.raises(CorruptRecordError, match=f"position {found[5][0]}: records"):
        all_records(path)
    rows = all_records(path, "report")
    assert [r["offset"] for r in rows if r["damage"]] == [25]
    assert [r["offset"] for r in rows if not r["damage"]] == [*range(25), *range(30, 100)]
    assert all_records(path, "skip") == [r for r in rows if not r["damage"]]


def test_offsets_that_go_back_keep_their_places(path):
    planted.double(path, 3)
    rows = all_records(path)
    assert len(rows) == 105
    again = [r["position"] for r in rows if r["offset"] == 15]
    assert len(set(again)) == 2


def test_bombs_are_damage(tmp_path, monkeypatch):
    folder = tmp_path / "t-0"
    folder.mkdir()
    path = folder / f"{0:020}.log"
    monkeypatch.setattr(records, "MOST_BYTES", 1 << 20)
    record = Record(timestamp=1, value=bytes(2 << 20))
    planted.write(path, [build_batch([record], codec=compression.ZSTD)])
    with pytest.raises(CorruptRecordError, match="position 0: records"):
        all_records(path)


def test_damaged_batches_have_both_checksums(path):
    planted.flip(path, 2)
    segment = segment_of(path)
    (piece,) = reading.SegmentReader(segment.path, segment.size).pieces()
    rows = batch_rows(segment, piece).to_pylist()
    bad = [r for r in rows if r["damage"]]
    assert [r["base_offset"] for r in bad] == [10]
    assert bad[0]["crc"] != bad[0]["crc_computed"]
    assert all(r["crc"] == r["crc_computed"] for r in rows if not r["damage"])


# -- folders ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tp"),
    [
        ("t-0", ("t", 0)), ("a-b-12", ("a-b", 12)), ("t-00", None), ("t", None), ("-3", None),
        ("t-0.abc-delete", None), ("t-0.abc-future", None), ("t-0-stray", None), ("t-x", None),
    ],
)  # fmt: skip
def test_names_of_partition_folders(name, tp):
    assert partition_of(name) == (None if tp is None else TopicPartition(*tp))


def test_logs_are_found_below_any_folder_by_their_files(tmp_path):
    root = tmp_path / "backup-1"  # a name that could be a partition's
    planted.log(root / "disk-a" / "t-0", [(0, 1)])
    planted.log(root / "disk-b" / "t-1", [(0, 1)])
    planted.log(root / "disk-b" / "t-2.0af-delete", [(0, 1)])
    (root / "disk-b" / "u-0").mkdir()
    (root / "disk-b" / "u-0" / checkpoints.PARTITION_METADATA).write_text("version: 0")
    found = list(logs_in(Place(None, str(root))))
    assert [(str(log.tp), len(log.segments)) for log in found] == [
        ("t-0", 1), ("t-1", 1), ("u-0", 0),
    ]  # fmt: skip
    only = logs_in(Place(None, str(root)), Wanted({"t"}, {1}))
    assert [str(log.tp) for log in only] == ["t-1"]
    (alone,) = logs_in(Place(None, str(root / "disk-a" / "t-0")))
    assert str(alone.tp) == "t-0"


def test_places_take_the_brokers_id_from_the_folder(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    meta = checkpoints.MetaProperties("cluster", 5)
    (one / checkpoints.META_PROPERTIES).write_bytes(checkpoints.encode_meta_properties(meta))
    assert parse_places(f"{one}, 3={other},{other}") == [
        Place(5, str(one)), Place(3, str(other)), Place(None, str(other)),
    ]  # fmt: skip
    with pytest.raises(OttlaError, match="nowhere does not exist"):
        parse_places(f"{one}/nowhere")
    with pytest.raises(OttlaError, match="no folder"):
        parse_places(" , ")


def test_a_checkpoint_that_is_none_is_a_problem(tmp_path):
    planted.marks(tmp_path, checkpoints.HIGH_WATERMARKS, {"t-0": 7})
    (tmp_path / checkpoints.LOG_STARTS).write_text("nonsense")
    facts = dir_facts(str(tmp_path))
    assert facts.high_watermarks == {TopicPartition("t", 0): 7}
    assert "log-start-offset-checkpoint" in facts.problems[0]


def test_small_files_share_a_task(tmp_path):
    planted.log(tmp_path / "t-0", [(0, 40)], per_segment=4)
    found = list(segments_in(Place(None, str(tmp_path))))
    tasks = list(tasks_of(found, 3 * found[0].size))
    assert [len(t.segments) for t in tasks] == [3, 3, 3, 1]
    assert [len(t.segments) for t in tasks_of(found, 1)] == [1] * 10


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "rows"}, "mode=rows: write one of records, batches, segments"),
        ({"damaged": "ignore"}, "damaged=ignore"),
        ({"partitions": "0,x"}, "partitions=0,x: write whole numbers"),
        ({}, "no folder"),
        ({"topics": "u"}, "no segment files"),
    ],
)
def test_bad_options_are_one_line(tmp_path, options, says):
    planted.log(tmp_path / "t-0", [(0, 1)])
    place = {} if says == "no folder" else {"path": str(tmp_path)}
    with pytest.raises(OttlaError, match=says) as raised:
        SegmentsReader({**options, **place}, COLUMNS).partitions()
    assert "\n" not in str(raised.value)
