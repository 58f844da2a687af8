"""Segment files read batch by batch: every byte is a batch or told as damage."""

import os
import random
from pathlib import Path

import pytest

from ottla.admin.replica_files import reading, summary
from ottla.admin.replica_files.folders import (
    Place,
    Wanted,
    dir_facts,
    logs_in,
    parse_places,
    partition_of,
)
from ottla.admin.replica_files.summary import summarize
from ottla.log import checkpoints
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.wire.records import Record, build_batch
from support import planted


def segment_of(path: Path, size: int | None = None):
    ((found,),) = [log.segments for log in logs_in(Place(7, str(path)))]
    return found if size is None else found._replace(size=size)


def read(path: Path, end: int | None = None):
    """Return positions and damage of a file."""
    found = list(reading.SegmentReader(str(path), end or path.stat().st_size).items())
    damage = [one for one in found if isinstance(one, reading.Damage)]
    return [one.position for one in found if isinstance(one, reading.Batch)], damage


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
    found = list(reading.SegmentReader(str(path), len(data)).items())
    batches = {one.position: one for one in found if isinstance(one, reading.Batch)}
    damage = {one.position: one for one in found if isinstance(one, reading.Damage)}
    for one in batches.values():
        assert one.crc == int.from_bytes(data[one.position + 17 : one.position + 21])
        assert (one.position in damage) == (one.crc != one.computed)
    covered = [(one.position, one.size) for one in {**damage, **batches}.values()]
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
    assert [d.kind for d in read(path)[1]] == [reading.CHECKSUM]


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
    assert sum(f.contents for f in both) & summary.MASK == whole.contents
    assert sum(f.cells[0].digest for f in both) & summary.MASK == whole.cells[0].digest
    assert whole.cells.keys() == {0}


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
