"""Starting on what a stop left: clean, unclean, torn, damaged, half-deleted (F19, F20, F21)."""

from pathlib import Path

import pytest

from ottla.log import checkpoints, gap_bound
from ottla.model.errors import CorruptRecordError, OffsetOutOfRangeError
from ottla.model.ids import ONE_UUID, ZERO_UUID
from support.logs import max_timestamp_offset, offset_for_timestamp


def test_torn_tail_cut_at_every_byte_of_the_last_batch(kit):
    log = kit.open()
    kit.fill(log, 4, count=2, epoch=3)
    before = log.size
    kit.fill(log, 1, count=2, epoch=3)
    log.abandon()
    path = kit.folder / "00000000000000000000.log"
    whole = path.read_bytes()
    for size in range(before, len(whole)):
        path.write_bytes(whole[:size])
        log = kit.open()
        assert log.log_end_offset == 8, size
        assert path.stat().st_size == before
        assert log.cut_bytes == size - before
        log.abandon()
    path.write_bytes(whole)
    assert kit.open().log_end_offset == 10


def test_every_flipped_byte_in_the_last_batch_is_found_at_an_unclean_start(kit):
    log = kit.open()
    kit.fill(log, 3)
    before = 2 * log.size // 3
    log.abandon()
    path = kit.folder / "00000000000000000000.log"
    whole = path.read_bytes()
    patched = set(range(before, before + 8)) | set(range(before + 12, before + 17))
    for at in range(before, len(whole)):
        if at in patched:
            continue  # base offset, leader epoch and magic lie outside of the checksum
        bad = bytearray(whole)
        bad[at] ^= 0x10
        path.write_bytes(bad)
        log = kit.open()
        assert log.log_end_offset == 2, at
        log.abandon()


def test_zeros_after_the_last_batch_are_cut(kit):
    log = kit.open()
    kit.fill(log, 3)
    size = log.size
    log.abandon()
    path = kit.folder / "00000000000000000000.log"
    path.write_bytes(path.read_bytes() + bytes(5000))
    log = kit.open()
    assert (log.log_end_offset, log.size) == (3, size)


def test_a_bad_batch_takes_all_later_segments_with_it(kit):
    log = kit.open(segment_bytes=400)
    kit.fill(log, 12)
    bases = [s.base_offset for s in log.segments]
    log.abandon()
    path = kit.folder / f"{bases[1]:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    log = kit.open(segment_bytes=400)
    assert log.log_end_offset == bases[2] - 1
    assert [s.base_offset for s in log.segments] == bases[:2]
    assert log.local.deleted_files
    kit.fill(log, 5)
    kit.everything(log)


def lose_the_end_of_the_first_segment(kit) -> tuple[int, list[int]]:
    """Cut whole batches off, as a power loss may; return the end then, and the segments."""
    log = kit.open(segment_bytes=400)
    kit.fill(log, 12)
    bases = [s.base_offset for s in log.segments]
    size = log.size // 12
    log.abandon()
    path = kit.folder / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[: -2 * size])
    return bases[1] - 2, bases


def test_a_hole_between_segments_ends_the_log(kit):
    end, _ = lose_the_end_of_the_first_segment(kit)
    log = kit.open(segment_bytes=400)
    assert log.log_end_offset == end
    kit.fill(log, 1)
    kit.everything(log)


def test_but_a_jvm_broker_leaves_gaps(kit):
    _, bases = lose_the_end_of_the_first_segment(kit)
    (kit.folder / gap_bound.NAME).unlink()
    log = kit.open(segment_bytes=400)
    assert log.log_end_offset == 12
    assert [s.base_offset for s in log.segments] == bases


def only_the_names_of_segments_are_left(kit, count) -> list[int]:
    """Leave some first segments without their bytes, as a power loss may (delayed allocation)."""
    log = kit.open(segment_bytes=400, cleanup_policy="compact")
    kit.fill(log, 12)
    bases = [s.base_offset for s in log.segments]
    log.local.gaps.raise_to(bases[-1])  # as the cleaner does
    log.flush()
    log.abandon()
    for base in bases[:count]:
        (kit.folder / f"{base:020d}.log").write_bytes(b"")
    return bases


@pytest.mark.parametrize("count", [1, 2, -1])
def test_f5_a_compacted_log_does_not_go_on_after_a_segment_that_a_power_loss_emptied(kit, count):
    """The simulator's seed 22000165: it led with the end alone, and consumers' groups were gone."""
    only_the_names_of_segments_are_left(kit, count)
    log = kit.open(segment_bytes=400, cleanup_policy="compact")
    assert log.log_end_offset == 0
    assert log.may_be_incomplete
    kit.fill(log, 1)
    kit.everything(log)


@pytest.mark.parametrize("known_by", ["checkpoint", "replaced segment"])
def test_but_compaction_may_leave_nothing_of_a_segment(kit, known_by):
    bases = only_the_names_of_segments_are_left(kit, 1)
    more = {}
    if known_by == "checkpoint":
        more = {"cleaned_offset": bases[1]}
    else:  # killed before the checkpoint was written
        (kit.folder / f"{0:020d}.log.deleted").write_bytes(b"")
    log = kit.open(segment_bytes=400, cleanup_policy="compact", **more)
    assert log.log_end_offset == 12
    assert [s.base_offset for s in log.segments] == bases


def test_a_segment_that_overlaps_ends_the_log(kit):
    log = kit.open()
    kit.fill(log, 4, epoch=5)
    log.flush()  # writes the gap bound: this log is Ottla's own
    log.abandon()
    other = kit.batch(base_offset=2, leader_epoch=3)
    (kit.folder / f"{2:020d}.log").write_bytes(other)
    log = kit.open()
    assert log.log_end_offset == 4
    assert log.epochs.entries == [(5, 0)]
    log = kit.reopen(log, clean=True)
    assert [s.base_offset for s in log.segments if s.size] == [0]


def test_a_leader_epoch_that_goes_back_ends_nothing(kit):
    """ZooKeeper was restored from an older state, and what was acknowledged since is kept."""
    log = kit.open()
    kit.fill(log, 4, epoch=5)
    kit.fill(log, 3, epoch=3)
    log = kit.reopen(log)
    assert (log.log_end_offset, log.cut_bytes) == (7, 0)
    assert log.epochs.entries == [(3, 4)]


def test_what_lies_before_the_recovery_point_is_not_read(kit):
    log = kit.open(segment_bytes=400)
    kit.fill(log, 12)
    log.flush()
    bases = [s.base_offset for s in log.segments]
    log.abandon()
    path = kit.folder / f"{bases[0]:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    log = kit.open(segment_bytes=400, recovery_point=12)
    assert log.log_end_offset == 12
    with pytest.raises(CorruptRecordError):  # but never served as good
        kit.everything(log)
    assert log.corrupt_reads == 1


def test_a_flipped_bit_on_disk_is_never_served_as_good(kit):
    log = kit.open()
    kit.fill(log, 4)
    size = log.size // 4
    good = kit.everything(log)
    log.close()
    path = kit.folder / "00000000000000000000.log"
    for at in range(size, 2 * size):
        if at < size + 8 or size + 12 <= at < size + 16:
            continue  # outside of the checksum: offset and leader epoch
        bad = bytearray(good)
        bad[at] ^= 0x04
        path.write_bytes(bad)
        log = kit.open(clean=True, recovery_point=4)
        for offset in range(4):
            try:
                found = b"".join(log.read(offset, 1 << 20, 4).parts)
            except CorruptRecordError:
                continue
            assert found == good[offset * size :][: len(found)], (at, offset)
        assert log.corrupt_reads > 0, at
        log.abandon()


@pytest.mark.parametrize("flipped", [0x02, 0x40], ids=["goes back", "leaps ahead"])
def test_a_wrong_base_offset_is_not_served(kit, flipped):
    log = kit.open()
    kit.fill(log, 4)
    size = log.size // 4
    log.close()
    path = kit.folder / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[2 * size + 7] ^= flipped
    path.write_bytes(data)
    log = kit.open(clean=True, recovery_point=4)
    assert 0 < log.read(0, 1 << 20, 4).size <= 2 * size, "what is good before it"
    with pytest.raises(CorruptRecordError):
        log.read(2, 1 << 20, 4)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: None,
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: bytes(len(data)),
        lambda data: b"\xff" * len(data),
        lambda data: data + bytes(480),
        lambda data: bytes(b ^ 0x08 for b in data),
    ],
    ids=["missing", "empty", "half", "zeros", "ones", "zero tail", "flipped"],
)
def test_damaged_indexes_give_the_same_results(kit, clean, suffix, damage):
    settings = {"segment_bytes": 2000, "index_interval_bytes": 100}
    log = kit.open(**settings)
    kit.fill(log, 60)
    log.flush()
    log.close()
    for path in kit.folder.glob("*" + suffix):
        data = damage(path.read_bytes())
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
    log = kit.open(clean=clean, recovery_point=60, **settings)
    assert log.log_end_offset == 60
    for offset in range(60):
        data = log.read(offset, 1, 60).parts[0]
        assert int.from_bytes(data[:8], "big") == offset
        found = offset_for_timestamp(log, 1000 + 10 * offset - 5)
        assert found is not None
        assert found.offset == offset
    last = max_timestamp_offset(log)
    assert last is not None
    assert (last.timestamp, last.offset) == (1590, 59)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [None, b"", b"garbage", b"0\n5\n1 1\n", b"0\n2\n3 5\n2 9\n"])
def test_damaged_leader_epochs_are_read_from_the_batches(kit, clean, content):
    log = kit.open(segment_bytes=400)
    for epoch in (1, 2, 4, 7):
        kit.fill(log, 3, epoch=epoch)
    want = log.epochs.entries
    log.close()
    path = kit.folder / "leader-epoch-checkpoint"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    log = kit.open(clean=clean, recovery_point=12, segment_bytes=400)
    assert log.epochs.entries == want == [(1, 0), (2, 3), (4, 6), (7, 9)]


def test_epochs_without_a_checkpoint_come_back_from_the_batches(kit):
    log = kit.open()
    kit.fill(log, 2, epoch=1)
    log.flush()
    kit.fill(log, 2, epoch=5)
    log = kit.reopen(log, recovery_point=2)
    assert log.epochs.entries == [(1, 0), (5, 2)]


def test_epochs_beyond_the_cut_are_forgotten(kit):
    log = kit.open()
    kit.fill(log, 2, epoch=1)
    size = log.size
    kit.fill(log, 2, epoch=2)
    log.flush()
    log.abandon()
    path = kit.folder / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:size])
    log = kit.open()
    assert log.epochs.entries == [(1, 0)]


def test_a_start_after_a_clean_stop_reads_only_the_beginning_and_the_end(kit):
    log = kit.open(segment_bytes=500)
    kit.fill(log, 20)
    log.close()
    for segment in log.segments[1:-1]:
        Path(segment.path(".log")).write_bytes(bytes(segment.size))
    log = kit.open(clean=True, recovery_point=20, segment_bytes=500)
    assert log.log_end_offset == 20
    assert log.recovery_point == 20


def test_clean_start_without_any_checkpoint_finds_the_end_itself(kit):
    log = kit.open(segment_bytes=500)
    kit.fill(log, 20)
    log.close()
    for path in kit.folder.iterdir():
        if path.suffix != ".log":
            path.unlink()
    log = kit.open(clean=True, segment_bytes=500)
    assert log.log_end_offset == 20
    assert len(kit.everything(log)) == log.size


def test_a_clean_marker_that_lies_does_not_hurt(kit):
    log = kit.open()
    kit.fill(log, 20)
    log.close()
    path = kit.folder / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-7])
    log = kit.open(clean=True)
    assert log.log_end_offset == 19


def test_leftovers_of_deletions_are_to_be_removed_by_a_worker(kit):
    log = kit.open(segment_bytes=400)
    kit.fill(log, 9)
    log.close()
    old = ["00000000000000000000.log.deleted", "00000000000000000003.index.deleted"]
    for name in old:
        (kit.folder / name).write_bytes(b"old")
    (kit.folder / "00000000000000000077.index").write_bytes(bytes(8))
    log = kit.open(clean=True, recovery_point=9, segment_bytes=400)
    names = [p.name for p in kit.folder.iterdir()]
    assert sorted(log.local.deleted_files) == [str(kit.folder / name) for name in old]
    assert "00000000000000000077.index" not in names
    assert len(kit.everything(log)) == log.size


def test_an_unfinished_compaction_is_undone(kit):
    log = kit.open(segment_bytes=400)
    kit.fill(log, 9)
    log.close()
    first = kit.folder / "00000000000000000000.log"
    (kit.folder / "00000000000000000000.log.cleaned").write_bytes(b"half")
    (kit.folder / "00000000000000000000.log.swap").write_bytes(first.read_bytes())
    log = kit.open(clean=True, recovery_point=9, segment_bytes=400)
    assert not list(kit.folder.glob("*.cleaned"))
    assert not list(kit.folder.glob("*.swap"))
    assert len(kit.everything(log)) == log.size


def test_an_interrupted_swap_is_finished(kit):
    log = kit.open(segment_bytes=400)
    kit.fill(log, 9)
    bases = [s.base_offset for s in log.segments]
    log.close()
    # A compaction merged the first two segments, and stopped before it renamed them.
    parts = [kit.folder / f"{base:020d}.log" for base in bases[:2]]
    merged = b"".join(p.read_bytes() for p in parts)
    (kit.folder / "00000000000000000000.log.swap").write_bytes(merged)
    log = kit.open(clean=True, recovery_point=9, segment_bytes=4000)
    assert [s.base_offset for s in log.segments] == [0, *bases[2:]]
    assert not list(kit.folder.glob("*.swap"))
    assert log.read(bases[1], 1, 9).start_offset == bases[1]
    assert len(kit.everything(log)) == log.size


def test_log_start_beyond_the_end_starts_over(kit):
    log = kit.open()
    kit.fill(log, 3)
    log.close()
    log = kit.open(log_start_offset=10)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    kit.fill(log, 1)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(2, 10, 11)


def test_log_start_checkpoint_hides_what_is_below(kit):
    log = kit.open()
    kit.fill(log, 5)
    log.close()
    log = kit.open(clean=True, recovery_point=5, log_start_offset=3)
    assert log.log_start_offset == 3
    with pytest.raises(OffsetOutOfRangeError):
        log.read(2, 10, 5)


def test_topic_id_is_kept_and_garbage_in_its_file_is_none(kit):
    log = kit.open()
    log.assign_topic_id(ONE_UUID)
    kit.fill(log, 1)
    log = kit.reopen(log)
    assert log.topic_id == ONE_UUID
    log.abandon()
    (kit.folder / checkpoints.PARTITION_METADATA).write_bytes(b"version: 9")
    assert kit.open().topic_id == ZERO_UUID


def test_an_empty_log_has_no_files_of_its_own(kit):
    log = kit.open()
    log.assign_topic_id(ONE_UUID)
    assert [p.name for p in kit.folder.iterdir()] == [checkpoints.PARTITION_METADATA]
    log = kit.reopen(log)
    kit.fill(log, 1)
    assert log.log_end_offset == 1


def test_files_after_a_roll_and_a_clean_close_are_those_kafka_has(kit):
    log = kit.open(segment_bytes=400, index_interval_bytes=100)
    kit.fill(log, 12)
    bases = [s.base_offset for s in log.segments]
    assert len(bases) > 2
    log.close()
    for base in bases:
        assert (kit.folder / f"{base:020d}.index").stat().st_size % 8 == 0
        assert (kit.folder / f"{base:020d}.timeindex").stat().st_size % 12 == 0
    names = {p.name for p in kit.folder.iterdir()}
    want = {f"{b:020d}{s}" for b in bases for s in (".log", ".index", ".timeindex")}
    want |= {f"{b:020d}.snapshot" for b in [*bases[1:], 12]} | {"leader-epoch-checkpoint"}
    want |= {gap_bound.NAME}  # which Kafka removes
    assert names == want
