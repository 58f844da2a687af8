"""Cleaning of logs: which records stay, which are removed, and the bytes of both."""

import asyncio
from dataclasses import replace

import pytest

from ottla.log.cleaner import LogCleaner, log_to_clean_of
from ottla.log.compaction import OffsetMap
from ottla.log.validate import COORDINATOR
from ottla.model.errors import InvalidRecordError
from ottla.model.ids import TopicPartition
from ottla.model.steps import drain
from ottla.wire.batch_header import pack_batch
from ottla.wire.record_check import varint
from ottla.wire.records import ABORT, COMMIT, Record, build_batch, iter_batches, iter_records
from support.logs import load_logs, offset_for_timestamp, stop_logs

TP = TopicPartition("t", 0)


class Bench:
    """A manager with one compacted log, and a cleaner."""

    def __init__(self, kit, properties=None, **overrides) -> None:
        self.kit = kit
        self.manager = kit.manager(**(properties or {}))
        settings = {
            "cleanup.policy": "compact",
            "segment.bytes": "1000",
            "min.cleanable.dirty.ratio": "0.0",
            "index.interval.bytes": "100",
            **{k.replace("_", "."): str(v) for k, v in overrides.items()},
        }
        self.settings = settings
        config = self.manager._config
        load_logs(self.manager, lambda _: config.topic_config(settings))
        self.log = self.manager.get_or_create(TP, is_new=True)
        self.cleaner = LogCleaner(kit.world, config, self.manager)

    def put(self, *pairs, codec=0, at=None, **header):
        """Append one batch of (key, value) pairs; a value of None is a tombstone."""
        at = self.kit.clock.wall if at is None else at
        records = [
            Record(
                timestamp=at + i,
                key=None if k is None else k.encode(),
                value=None if v is None else v.encode(),
            )
            for i, (k, v) in enumerate(pairs)
        ]
        batch = build_batch(records, codec=codec, **header)
        return self.log.append_as_leader(memoryview(bytearray(batch)), 0, self.kit.clock.wall)

    def end(self, kind, producer_id, **header):
        self.log.append_as_leader(
            self.kit.marker(producer_id, kind=kind, **header), 0, 0, origin=COORDINATOR
        )

    def clean(self) -> bool:
        """Roll, replicate and flush everything, then clean once."""
        self.log.roll()
        self.settle()
        return asyncio.run(self.cleaner.clean_dirtiest())

    def settle(self) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        self.log.flush()

    def headers(self):
        data = self.data()
        return [header for _, header in iter_batches(data)]

    def data(self) -> bytes:
        self.log.local.tail.clear()
        return b"".join([s.file.pread(s.size, 0) for s in self.log.segments])

    def records(self):
        """(offset, timestamp, key, value) of all data records."""
        data = self.data()
        return [
            (r.offset, r.timestamp, r.key.decode(), r.value and r.value.decode())
            for at, header in iter_batches(data)
            if not header.is_control
            for r in iter_records(data, at)
        ]

    def pairs(self):
        return [(key, value) for _, _, key, value in self.records()]


@pytest.fixture
def bench(kit):
    return Bench(kit)


def test_what_was_cleaned_away_is_not_read_from_memory(bench):
    """Nor what was aborted, for the index that says so is cleaned with it."""
    bench.put(("k", "old"))
    bench.put(
        ("k", "aborted"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    bench.end(ABORT, 7)
    bench.put(("k", "new"), ("j", "other"))
    assert bench.clean()
    end = bench.put(("k", "hot")).last_offset + 1
    bench.settle()

    def read(offset):
        data = b"".join(bench.log.read(offset, 1 << 20, end).parts)
        return [
            (r.key, r.value)
            for at, header in iter_batches(data)
            if not header.is_control
            for r in iter_records(data, at)
        ]

    assert read(0) == [(b"k", b"new"), (b"j", b"other")]
    assert read(end - 1) == [(b"k", b"hot")]


@pytest.mark.parametrize("codec", range(5))
def test_last_record_of_each_key_stays_where_it_was(bench, codec):
    """CleanSegments, DuplicateCheckAfterCleaning."""
    now = bench.kit.clock.wall
    for number in range(40):
        bench.put(*[(f"k{i}", f"{number}.{i}" * 3) for i in range(5)], codec=codec)
        bench.put((f"once{number}", "x"), codec=codec)
    end = bench.log.log_end_offset
    before = bench.records()
    assert bench.clean()
    last = {key: (offset, at, key, value) for offset, at, key, value in before}
    assert bench.records() == sorted(last.values())
    assert bench.log.log_end_offset == end
    assert bench.log.log_start_offset == 0
    assert bench.log.segments[0].base_offset == 0
    assert bench.log.cleaned_offset == end
    assert not asyncio.run(bench.cleaner.clean_dirtiest()), "nothing is dirty now"
    assert all(header.max_timestamp <= now + 4 for header in bench.headers())


def test_record_without_a_key_is_refused(bench):
    """CompactedTopicConstraints, CleaningWithUnkeyedMessages."""
    with pytest.raises(InvalidRecordError, match="without a key"):
        bench.put((None, "x"))
    with pytest.raises(InvalidRecordError):
        bench.put(("k", "x"), (None, "x"), codec=3)


def test_batches_without_losses_are_copied_unchanged(bench):
    bench.put(("a", "1"), ("b", "1"), codec=1)
    bench.put(("c", "1"), codec=4)
    before = bench.data()
    bench.put(("d", "1"))
    assert bench.clean()
    assert bench.data().startswith(before)


def test_tombstones_get_a_horizon_and_go_after_it(bench):
    """CleanTombstone, CleaningWithDeletes."""
    now = bench.kit.clock.wall
    bench.put(("a", "1"), ("b", "1"), at=now - 77)
    bench.put(("b", None), ("c", "1"), at=now - 50, codec=2)
    assert bench.clean()
    assert bench.pairs() == [("a", "1"), ("b", None), ("c", "1")]
    assert [r[1] for r in bench.records()] == [now - 77, now - 50, now - 49], "timestamps stay"
    horizons = [h.base_timestamp for h in bench.headers() if h.has_delete_horizon]
    assert horizons == [now + bench.log.config.delete_retention_ms]
    bench.put(("x", "1"))
    bench.kit.clock.advance(bench.log.config.delete_retention_ms / 1000 - 0.001)
    assert bench.clean()
    assert ("b", None) in bench.pairs()
    assert [h.base_timestamp for h in bench.headers() if h.has_delete_horizon] == horizons
    bench.put(("y", "1"))
    bench.kit.clock.advance(0.001)
    assert bench.clean()
    assert bench.pairs() == [("a", "1"), ("c", "1"), ("x", "1"), ("y", "1")]
    found = offset_for_timestamp(bench.log, now - 49)
    assert found is not None
    assert (found.timestamp, found.offset) == (now - 49, 3)


def test_transactions_aborted_data_goes_then_the_markers(kit):
    """BasicTransactionAwareCleaning, AbortedTransactionSpanningSegments, CommitMarkerRemoval."""
    bench = Bench(kit, delete_retention_ms=1000)
    one = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    two = {"producer_id": 2, "producer_epoch": 0, "is_transactional": True}
    bench.put(("a", "1"), base_sequence=0, **one)
    bench.put(("a", "2"), base_sequence=0, **two)
    bench.log.roll()
    bench.put(("b", "2"), base_sequence=1, **two)
    bench.end(ABORT, 2)
    bench.put(("c", "1"), base_sequence=1, **one)
    bench.end(COMMIT, 1)
    bench.put(("last", "1"))
    assert [a.producer_id for a in bench.log.aborted_transactions(0, 100)] == [2]
    assert bench.clean()
    assert bench.pairs() == [("a", "1"), ("c", "1"), ("last", "1")]
    kept = [(h.base_offset, h.count, h.is_control) for h in bench.headers() if h.producer_id == 2]
    assert kept == [(2, 0, False), (3, 1, True)], "its last sequence, and the marker for it"
    assert [a.first_offset for a in bench.log.aborted_transactions(0, 100)] == [1]
    bench.log.producers.clear()  # both producers expired
    for value in ("2", "3"):
        bench.put(("a", value), ("c", value))
        bench.kit.clock.advance(2)
        assert bench.clean()
    assert bench.log.aborted_transactions(0, 100) == []
    bench.put(("z", "9"))
    bench.kit.clock.advance(2)
    assert bench.clean()
    assert [h.is_control for h in bench.headers()].count(True) == 0
    assert bench.pairs() == [("last", "1"), ("a", "3"), ("c", "3"), ("z", "9")]


def test_open_transactions_and_unreplicated_records_stay(bench):
    """UndecidedTransactionalDataNotCleanable, CleaningWithUncleanableSection."""
    bench.put(("a", "1"))
    bench.log.roll()
    bench.put(("a", "2"))
    bench.put(("a", "t"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    bench.log.roll()
    bench.put(("a", "3"))
    assert bench.clean()
    assert bench.log.cleaned_offset == 1
    assert len(bench.pairs()) == 4
    bench.end(COMMIT, 1)
    bench.log.roll()
    bench.log.flush()
    bench.log.set_high_watermark(2)
    asyncio.run(bench.cleaner.clean_dirtiest())
    assert len(bench.pairs()) == 4, "above the high watermark"
    assert bench.clean()
    assert bench.pairs() == [("a", "3")]


def test_the_cleaner_goes_on_where_it_stopped_after_a_restart(bench):
    """RecoveryAfterCrash: the files on disk are complete, and the checkpoint is Kafka's."""
    for number in range(60):
        bench.put((f"k{number % 7}", str(number)), ("x" * 40, str(number)))
    bench.log.assign_epoch_start(4, bench.log.log_end_offset)
    bench.put(("end", "1"))
    assert bench.clean()
    pairs, end, epochs = bench.pairs(), bench.log.log_end_offset, bench.log.epochs.entries
    text = (bench.kit.root / "data" / "cleaner-offset-checkpoint").read_text()
    assert text == f"0\n1\nt 0 {end}\n"
    for clean in (True, False):
        if clean:
            stop_logs(bench.manager)
        else:
            bench.manager.abandon()
        properties = bench.settings
        bench = Bench(bench.kit)
        bench.settings.update(properties)
        assert (bench.pairs(), bench.log.log_end_offset) == (pairs, end)
        assert bench.log.cleaned_offset == end
        assert bench.log.epochs.entries == epochs
        assert not asyncio.run(bench.cleaner.clean_dirtiest())


def test_a_small_map_cleans_part_by_part(kit, monkeypatch):
    """BuildPartialOffsetMap."""
    monkeypatch.setattr(OffsetMap, "ENTRY_BYTES", 47_000)  # 20 keys in the smallest buffer
    bench = Bench(kit, {"log.cleaner.dedupe.buffer.size": str((1 << 20) + 1)})
    for number in range(3):
        for key in range(60):
            bench.put((f"k{key}", str(number)))
    bench.log.roll()
    bench.settle()
    ends = []
    while asyncio.run(bench.cleaner.clean_dirtiest()):
        ends.append(bench.log.cleaned_offset)
    assert ends[0] == 20
    assert ends == sorted(set(ends))
    assert ends[-1] == bench.log.log_end_offset
    assert bench.pairs() == [(f"k{key}", "2") for key in range(60)]


def test_missing_offsets_at_a_segments_end_are_cleaned_too(kit):
    """CleaningBeyondMissingOffsets."""
    bench = Bench(kit, segment_bytes=150, delete_retention_ms=0)
    bench.put(("a", "1"))
    bench.log.roll()
    bench.put(("b", "1"), ("c", "1"))
    bench.put(("d", None))
    bench.log.roll()
    bench.put(("e", "1"))
    for _ in range(2):
        assert bench.clean()
        bench.put(("f", "1"))
    middle = bench.log.segments[1]
    assert drain(middle.finding_end()) == 3, "the gap is there"
    for first_dirty in (3, -1):
        bench.log.cleaned_offset = first_dirty
        bench.log.set_high_watermark(4)
        assert asyncio.run(bench.cleaner.clean_dirtiest())
        assert bench.log.cleaned_offset == 4


def test_a_producers_sequence_survives_though_its_records_do_not(bench):
    """LogCleanerRetainsProducerLastSequence."""
    for number in range(3):
        bench.put(("a", "p"), producer_id=1, producer_epoch=3, base_sequence=number)
    bench.put(("a", "x"))
    assert bench.clean()
    assert [(h.base_offset, h.count) for h in bench.headers()] == [(2, 0), (3, 1)]
    bench.put(("b", "x"))
    bench.settle()
    bench.manager.abandon()
    for path in (bench.kit.root / "data" / "t-0").glob("*.snapshot"):
        path.unlink()
    bench = Bench(bench.kit)
    again = bench.put(("a", "p"), producer_id=1, producer_epoch=3, base_sequence=2)
    assert again.duplicate
    bench.put(("a", "p"), producer_id=1, producer_epoch=3, base_sequence=3)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_records_that_nobody_can_read_are_no_damage(bench, codec):
    """Their CRC is right, as a JVM leader or an older version stored them: all replicas have them.

    The log is not cleaned, and the batch stays as it is.
    """
    for number in range(30):
        bench.put(("a", str(number) * 20))
    late = 1 << 60
    bad = pack_batch(30, 0, codec, 0, late, late, -1, -1, -1, 1, b"neither a frame nor records")
    bench.log.append_as_follower(memoryview(bytearray(bad)))
    bench.log.roll()
    bench.put(("a", "b"))
    bench.settle()
    assert not asyncio.run(bench.cleaner.clean_dirtiest())
    assert set(bench.cleaner.uncleanable) == {TP}
    with pytest.raises(InvalidRecordError):
        offset_for_timestamp(bench.log, late)
    assert bench.log.damaged is None
    assert bytes(bench.log.read(30, 1000, 31).parts[0]) == bad


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (-(2**63), -1)])
def test_timestamps_beyond_64_bits_are_left_alone(bench, base, delta):
    """Kafka stores them; they wrap around there."""
    records = b"".join(
        b"\x10\x00" + varint(delta) + at + b"\x02a\x02b\x00" for at in (b"\0", b"\2")
    )
    bad = pack_batch(0, 0, 0, 1, base, 5, -1, -1, -1, 2, records)
    bench.log.append_as_follower(memoryview(bytearray(bad)))
    for number in range(30):
        bench.put(("b", str(number) * 20))
    bench.log.roll()
    bench.settle()
    assert not asyncio.run(bench.cleaner.clean_dirtiest())
    assert set(bench.cleaner.uncleanable) == {TP}
    assert bench.log.damaged is None


def test_a_damaged_log_is_left_alone(bench):
    """CleanCorruptMessageSet, GrabFilthiestCompactedLogIgnoresUncleanablePartitions."""
    for number in range(30):
        bench.put(("a", str(number) * 20))
    bench.log.roll()
    bench.settle()
    segment = bench.log.segments[0]
    segment.file.pwrite((b"?",), segment.size // 2)
    assert not asyncio.run(bench.cleaner.clean_dirtiest())
    assert set(bench.cleaner.uncleanable) == {TP}
    assert len(bench.log.segments) > 3
    assert not list((bench.kit.root / "data" / "t-0").glob("*.cleaned"))
    assert bench.log.failed is None


@pytest.mark.parametrize("what", ["truncate", "delete", "retain", "policy"])
def test_a_change_of_the_log_aborts_its_cleaning(bench, what):
    """CleanSegmentsWithConcurrentSegmentDeletion, ConcurrentLogCleanupAndLogTruncation, ..."""
    for number in range(400):
        bench.put((f"k{number % 50}", str(number) * 5))
    bench.log.roll()
    bench.settle()
    log = bench.log
    bench.kit.clock.tick_s = 0.0005  # every look at the clock: slices end all the time

    async def change_amid_it() -> None:
        cleaning = asyncio.create_task(bench.cleaner.clean_dirtiest())
        folder = bench.kit.root / "data" / "t-0"
        while not list(folder.glob("*.cleaned")):
            assert not cleaning.done()
            await asyncio.sleep(0)
        if what == "truncate":
            log.truncate_to(3)
        elif what == "delete":
            bench.manager.delete(TP)
        elif what == "retain":
            log.maybe_increment_log_start_offset(399)
            log.delete_old_segments(0)
        else:
            log.update_config(bench.manager._config.topic_config({}))
        assert not await cleaning

    asyncio.run(change_amid_it())
    assert bench.cleaner.aborted == 1
    assert not list((bench.kit.root / "data" / "t-0").glob("*.cleaned"))
    assert log.cleaned_offset == -1
    if what == "truncate":
        assert bench.pairs() == [(f"k{n}", str(n) * 5) for n in range(3)]
        bench.put(("k0", "new"))
        assert bench.clean()
        assert bench.pairs() == [("k1", "11111"), ("k2", "22222"), ("k0", "new")]


def test_a_truncation_while_a_worker_syncs_aborts_too(bench):
    for number in range(40):
        bench.put((f"k{number % 5}", str(number) * 5))
    bench.log.roll()
    bench.settle()

    class Truncating:
        async def run(self, function, *args):
            function(*args)
            bench.log.truncate_to(3)

    world = replace(bench.kit.world, workers=Truncating())
    cleaner = LogCleaner(world, bench.manager._config, bench.manager)
    assert not asyncio.run(cleaner.clean_dirtiest())
    assert cleaner.aborted == 1
    assert bench.pairs() == [("k0", "00000"), ("k1", "11111"), ("k2", "22222")]


def test_others_run_while_a_log_is_cleaned(kit):
    """No slice is long, and the throttle makes them rarer."""
    bench = Bench(kit, segment_bytes=200_000)
    for number in range(40):
        bench.put(*[(f"k{i}", str(number)) for i in range(500)], codec=number % 5)
    bench.log.roll()
    bench.settle()
    bench.kit.clock.tick_s = 0.001
    turns = 0

    async def count() -> None:
        nonlocal turns
        cleaning = asyncio.create_task(bench.cleaner.clean_dirtiest())
        while not cleaning.done():
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(count())
    assert turns > 20
    assert len(bench.pairs()) == 500


def test_dirt_counts_from_the_last_cleaning(kit):
    bench = Bench(kit, min_cleanable_dirty_ratio="0.5")
    for number in range(40):
        bench.put((f"k{number}", "x" * 50))
    assert bench.clean()
    bench.put(("k0", "y"))
    assert not bench.clean(), "not dirty enough"
    assert 0 < log_to_clean_of(bench.log, 0).ratio < 0.5
    for number in range(80):
        bench.put((f"k{number}", "y" * 50))
    assert bench.clean()
    assert log_to_clean_of(bench.log, 0).ratio == 0


def test_the_oldest_records_of_a_compacted_topic_expire_too(kit):
    """CleansCombinedCompactAndDeleteTopic."""
    bench = Bench(kit, cleanup_policy="compact,delete", retention_ms=1000)
    bench.put(("a", "1"), ("b", "1"))
    bench.log.roll()
    bench.kit.clock.advance(5)
    bench.put(("a", "2"))
    assert bench.clean()
    assert bench.pairs() == [("b", "1"), ("a", "2")]
    assert bench.log.delete_old_segments(bench.kit.clock.wall) == 0, "one segment, young enough"
    bench.put(("c", "1"))
    bench.kit.clock.advance(5)
    bench.settle()
    assert bench.log.delete_old_segments(bench.kit.clock.wall) >= 1
    assert "a" not in dict(bench.pairs())


@pytest.mark.parametrize("whole", [True, False])
def test_a_start_finishes_a_complete_swap_and_undoes_a_part(bench, whole):
    """RecoveryAfterCrash."""
    bench.put(("a", "1"))
    bench.put(("b", "1"))
    bench.log.roll()
    bench.put(("c", "1"))
    bench.settle()
    bench.manager.abandon()
    folder = bench.kit.root / "data" / "t-0"
    log = folder / f"{0:020d}.log"
    data = log.read_bytes()
    (folder / f"{log.name}.swap").write_bytes(data[len(data) // 2 :])
    if not whole:
        (folder / f"{0:020d}.index.cleaned").write_bytes(b"")
    bench = Bench(bench.kit)
    left = [("b", "1"), ("c", "1")]
    assert bench.pairs() == (left if whole else [("a", "1"), *left])
    assert not [p for p in folder.iterdir() if p.suffix in (".swap", ".cleaned")]


def test_what_the_cleaner_says_of_its_last_cleaning(bench):
    """Beside the bytes of the log's own files, before and after."""
    assert bench.cleaner.last.looked_s is None
    for number in range(30):
        bench.put((f"k{number % 10}", "x" * 50))
    bench.log.roll()
    bench.settle()
    before = sum(segment.size for segment in bench.log.segments)
    bench.kit.clock.now_s += 5.0
    began_s = bench.kit.clock.now_s
    assert asyncio.run(bench.cleaner.clean_dirtiest())
    after = sum(segment.size for segment in bench.log.segments)
    last = bench.cleaner.last
    assert last.dirty_percent == 100, "nothing was clean"
    assert 30 < last.recopied_percent == round(100 * after / before) < 70
    assert began_s <= last.looked_s <= bench.kit.clock.now_s
    assert last.buffer_percent == 0, "ten keys of a map for hundreds of thousands"
    assert bench.cleaner.uncleanable_bytes() == {bench.log.parent_dir: (0, 0)}
    asyncio.run(bench.cleaner.clean_dirtiest())
    assert last.dirty_percent == 0, "all is clean now"
    bench.cleaner.uncleanable[TP] = bench.log
    assert bench.cleaner.uncleanable_bytes() == {bench.log.parent_dir: (1, after)}
