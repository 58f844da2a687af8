"""F5: which gaps of a compacted log are the cleaner's, and which a power loss left."""

import asyncio

import pytest

from ottla.log import gap_bound
from ottla.log.cleaner import LogCleaner
from ottla.log.gap_bound import GapBound
from ottla.log.segment import Segment
from ottla.model.errors import StorageError
from ottla.model.ids import TopicPartition
from support.logs import load_logs

COMPACTED = {"segment_bytes": 400, "cleanup_policy": "compact"}
TP = TopicPartition("t", 0)


BATCHES = 16


def filled(kit):
    log = kit.open(**COMPACTED)
    kit.fill(log, BATCHES)
    return log, [s.base_offset for s in log.segments]


def bound_on_disk(kit):
    return gap_bound.decode((kit.folder / gap_bound.NAME).read_bytes())


def lose_the_last_batches(kit, base, count, batch_bytes):
    path = kit.folder / f"{base:020d}.log"
    path.write_bytes(path.read_bytes()[: -count * batch_bytes])


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 2])
def test_a_compacted_log_ends_where_a_segment_lost_its_end(kit, lost, count):
    log, bases = filled(kit)
    batch_bytes = log.size // BATCHES
    log.abandon()
    lose_the_last_batches(kit, bases[lost], count, batch_bytes)
    log = kit.open(**COMPACTED)
    assert log.log_end_offset == bases[lost + 1] - count
    assert [s.base_offset for s in log.segments] == bases[: lost + 1]
    assert log.may_be_incomplete
    assert log.cut_bytes, "nor is it complete where only the process died"
    kit.fill(log, 5)
    kit.everything(log)
    assert kit.reopen(log, **COMPACTED).log_end_offset == bases[lost + 1] - count + 5


def test_and_where_nothing_but_a_segments_name_is_left(kit):
    log, bases = filled(kit)
    log.abandon()
    (kit.folder / f"{bases[1]:020d}.log").write_bytes(b"")
    assert kit.open(**COMPACTED, cleaned_offset=bases[2]).log_end_offset == bases[1]


def test_and_where_a_segment_is_not_there_at_all(kit):
    log, bases = filled(kit)
    log.abandon()
    for path in kit.folder.glob(f"{bases[1]:020d}.*"):
        path.unlink()
    assert kit.open(**COMPACTED).log_end_offset == bases[1]


def test_the_bound_is_durable_before_the_second_segment_is_there(kit, monkeypatch):
    log = kit.open(**COMPACTED)
    seen = []
    create = Segment.create

    def look(files, folder, base, now_ms):
        seen.append((base, bound_on_disk(kit)))
        return create(files, folder, base, now_ms)

    monkeypatch.setattr(Segment, "create", look)
    kit.fill(log, 20)
    assert len(seen) > 2
    assert {bound for _, bound in seen} == {0}
    assert kit.files.calls.count("write_durable") == 1, "once for all"


def test_no_roll_where_it_cannot_be_written(kit):
    log = kit.open(**COMPACTED)
    kit.fill(log, 3)
    kit.files.broken["write"] = OSError(5, "Input/output error")
    kit.files.check = lambda what: None  # appends go on
    kit.files.write_durable = _raise(kit.files.broken["write"])
    with pytest.raises(StorageError):
        kit.fill(log, 12)
    assert len(log.segments) == 1


def _raise(error):
    def fail(*_):
        raise error

    return fail


def test_a_flush_writes_it_before_a_roll_has_to(kit):
    log = kit.open(**COMPACTED)
    kit.fill(log, 1)
    assert log.flush_state.has_unsynced_files()
    log.flush()
    assert bound_on_disk(kit) == 0
    assert not log.flush_state.has_unsynced_files()
    calls = len(kit.files.calls)
    kit.fill(log, 12)
    assert len(log.segments) > 2
    assert len(kit.files.calls) == calls, "appends wait for no disk"


def test_a_log_without_records_has_no_file(kit):
    log = kit.open(**COMPACTED)
    assert not log.flush_state.has_unsynced_files() or log.flush() is None
    assert not (kit.folder / gap_bound.NAME).exists()


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_log_keeps_its_bound_whatever_its_policy_is(kit, policy):
    log = kit.open(segment_bytes=400)
    kit.fill(log, 24)
    last = [s.base_offset for s in log.segments][-1]
    assert bound_on_disk(kit) < last
    log.abandon()
    lose_the_last_batches(kit, log.segments[-2].base_offset, 1, log.size // 24)
    log = kit.open(segment_bytes=400, cleanup_policy=policy)
    assert log.log_end_offset == last - 1


def foreign_log_with_holes(kit, **config):
    """Leave what a JVM broker's cleaner may: segments with holes between and in them, no bound."""
    log = kit.open(segment_bytes=400, cleanup_policy="compact")
    for offset in (0, 1, 7, 8, 30, 31, 32, 90, 91, 200, 201, 202):
        log.append_as_follower(kit.batch(1, base_offset=offset, size=60))
    log.abandon()
    kept = [s.base_offset for s in log.segments]
    names = {base: f"{base:020d}.log" for base in kept}
    for base in kept[1:]:  # named after its first batch, as followers of Kafka do
        data = (kit.folder / names[base]).read_bytes()
        first = int.from_bytes(data[:8], "big")
        (kit.folder / names[base]).unlink()
        (kit.folder / f"{first:020d}.log").write_bytes(data)
    for path in kit.folder.iterdir():
        if path.suffix != ".log":
            path.unlink()


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
@pytest.mark.parametrize("recovery_point", [0, 31, 203])
def test_holes_of_an_earlier_compaction_are_no_loss(kit, policy, recovery_point):
    """Kafka keeps all of it, whatever the policy is now: a JVM broker's log has no bound."""
    foreign_log_with_holes(kit)
    log = kit.open(cleanup_policy=policy, recovery_point=recovery_point)
    assert (log.log_end_offset, log.cut_bytes) == (203, 0)
    assert [o for o in range(203) if log.read(o, 1, 203).parts]
    kit.fill(log, 1)
    log = kit.reopen(log, cleanup_policy=policy)
    assert log.log_end_offset == 204


@pytest.mark.parametrize("recovery_point", [0, 5])
def test_nor_are_those_of_our_own_cleaner_when_the_policy_changed(kit, recovery_point):
    log, bases = filled(kit)
    log.local.gaps.raise_to(bases[-1])
    log.flush()
    batch_bytes = log.size // BATCHES
    log.abandon()
    lose_the_last_batches(kit, bases[0], 1, batch_bytes)  # the cleaner's work, as it looks
    log = kit.open(segment_bytes=400, cleanup_policy="delete", recovery_point=recovery_point)
    assert log.log_end_offset == BATCHES
    assert [s.base_offset for s in log.segments] == bases


def test_nor_is_an_empty_segment_of_a_log_without_a_bound(kit):
    foreign_log_with_holes(kit)
    first = min(kit.folder.glob("*.log"))
    first.write_bytes(b"")
    assert kit.open().log_end_offset == 203


def test_segments_of_such_a_log_that_overlap_are_not_touched(kit):
    foreign_log_with_holes(kit)
    other = kit.folder / f"{1:020d}.log"
    other.write_bytes(kit.batch(1, base_offset=1))
    before = {p.name: p.read_bytes() for p in kit.folder.iterdir()}
    log = kit.open()
    assert "begins inside of the segment before it" in str(log.failed)
    log.abandon()
    assert {p.name: p.read_bytes() for p in kit.folder.iterdir()} == before


GARBAGE = [b"", b"gaps_upto=0\n", b"gaps_upto=0\ncrc32c=00000000\n", b"\xff"]


@pytest.mark.parametrize("data", GARBAGE)
def test_a_file_that_is_garbage_proves_nothing(kit, data):
    """As without it: a log that a JVM broker wrote may have gaps anywhere."""
    log, bases = filled(kit)
    batch_bytes = log.size // BATCHES
    log.abandon()
    lose_the_last_batches(kit, bases[0], 1, batch_bytes)
    (kit.folder / gap_bound.NAME).write_bytes(data)
    log = kit.open(**COMPACTED)
    assert log.log_end_offset == BATCHES
    log.flush()
    assert bound_on_disk(kit) == bases[-1], "from here on it is known"
    kit.fill(log, 12)
    newer = [s.base_offset for s in log.segments if s.base_offset > bases[-1]]
    log.abandon()
    lose_the_last_batches(kit, newer[0], 1, batch_bytes)
    assert kit.open(**COMPACTED).log_end_offset == newer[1] - 1


def test_a_flipped_bit_is_not_believed():
    whole = gap_bound.encode(120)
    for flipped in range(8 * len(whole)):
        data = bytearray(whole)
        data[flipped // 8] ^= 1 << flipped % 8
        assert gap_bound.decode(bytes(data)) is None


def test_what_is_encoded_is_decoded():
    for upto in (0, 7, 2**62):
        assert gap_bound.decode(gap_bound.encode(upto)) == upto


def test_a_follower_with_gaps_loses_nothing_to_the_check(kit):
    """A leader's compacted log has gaps anywhere; ours begins segments at its log end."""
    log = kit.open(**COMPACTED)
    offsets = [0, 1, 7, 8, 30, 31, 32, 90, 91, 200, 201, 202, 999]
    for offset in offsets:
        log.append_as_follower(kit.batch(1, base_offset=offset, size=60))
    assert len(log.segments) > 3
    log = kit.reopen(log, **COMPACTED)
    assert log.log_end_offset == 1000
    assert not log.cut_bytes


def test_truncated_into_a_gap_and_on(kit):
    """The next segment begins at the log end, though the batches end before it."""
    log = kit.open(**COMPACTED)
    for offset in (0, 1, 2, 50, 51):
        log.append_as_follower(kit.batch(1, base_offset=offset))
    log.truncate_to(20)
    assert log.log_end_offset == 20
    log.roll()
    assert bound_on_disk(kit) == 20
    for offset in (60, 61):
        log.append_as_follower(kit.batch(1, base_offset=offset))
    log = kit.reopen(log, **COMPACTED)
    assert log.log_end_offset == 62
    assert [s.base_offset for s in log.segments] == [0, 20]


def test_a_truncation_lowers_the_bound_so_that_what_comes_then_is_checked(kit):
    log, bases = filled(kit)
    log.local.gaps.raise_to(bases[-1])
    log.flush()
    log.truncate_to(bases[1])
    assert log.local.gaps.upto == bases[1]
    kit.fill(log, 12, epoch=1)
    assert bound_on_disk(kit) == bases[1]
    later = [s.base_offset for s in log.segments]
    batch_bytes = log.size // log.log_end_offset
    log.abandon()
    lose_the_last_batches(kit, later[1], 1, batch_bytes)
    assert kit.open(**COMPACTED).log_end_offset == later[2] - 1


def test_batches_that_are_too_far_apart_for_one_segment(kit):
    log = kit.open(**COMPACTED)
    for offset in (0, 2**31 + 5, 2**31 + 6, 2**33):
        log.append_as_follower(kit.batch(1, base_offset=offset))
    log.append_as_follower(kit.batch(3, base_offset=2**33 + 1, size=100))
    log = kit.reopen(log, **COMPACTED)
    assert log.log_end_offset == 2**33 + 4
    log.roll()
    log.append_as_follower(kit.batch(1, base_offset=2**36))
    assert kit.reopen(log, **COMPACTED).log_end_offset == 2**36 + 1


def cleaned_manager(kit):
    """Return a manager and its log, of which the cleaner leaves one record of each segment."""
    manager = kit.manager(
        **{
            "log.segment.bytes": "400",
            "log.cleanup.policy": "compact",
            "log.cleaner.min.cleanable.ratio": "0",
        }
    )
    load_logs(manager, lambda _: kit.config(**COMPACTED, min_cleanable_dirty_ratio=0))
    log = manager.get_or_create(TP, is_new=True)
    kit.fill(log, 20)
    log.set_high_watermark(log.log_end_offset)
    log.flush(log.local.active.base_offset)
    return manager, log


def test_the_cleaner_raises_it_before_it_removes_anything(kit, monkeypatch):
    manager, log = cleaned_manager(kit)
    active = log.local.active.base_offset
    kit.folder = kit.root / "data" / "t-0"
    replaced = []
    replace_segments = type(log).replace_segments

    def look(self, old, size, suffixes):
        replaced.append(bound_on_disk(kit))
        replace_segments(self, old, size, suffixes)

    monkeypatch.setattr(type(log), "replace_segments", look)
    assert asyncio.run(LogCleaner(kit.world, kit.manager()._config, manager).clean_dirtiest())
    assert replaced
    assert set(replaced) == {active}
    before, size = log.log_end_offset, log.size
    manager.abandon()  # before any checkpoint was written
    (kit.root / "data" / "cleaner-offset-checkpoint").unlink()
    again = kit.manager()
    load_logs(again, lambda _: kit.config(**COMPACTED))
    assert (again.get(TP).log_end_offset, again.get(TP).size) == (before, size)


def test_nothing_is_cleaned_where_it_cannot_be_raised(kit):
    manager, log = cleaned_manager(kit)
    size = log.size

    async def nothing(*_):
        return False

    manager.write_beside = nothing
    assert not asyncio.run(LogCleaner(kit.world, kit.manager()._config, manager).clean_dirtiest())
    assert log.size == size


def test_of_two_jobs_the_later_one_counts():
    class Job:
        def __init__(self, number, upto):
            self.number, self.folders = number, []
            self.to_write = [(f"/t-0/{gap_bound.NAME}", gap_bound.encode(upto))]

    gaps = GapBound(9)
    gaps.written_by(Job(2, 9))
    gaps.written_by(Job(1, 5))
    assert gaps.on_disk == 9
