"""F56: what upgraded clusters have on disk is served as it is, and nothing of it is lost (R21)."""

import asyncio
import random
import shutil
import struct
from pathlib import Path

import pytest

from ottla.log.cleaner import LogCleaner
from ottla.model.errors import CorruptRecordError, UnsupportedFormatError
from ottla.model.ids import TopicPartition
from ottla.wire.message_sets import iter_all_formats
from ottla.wire.records import iter_payload, read_payload
from support.logs import load_logs, max_timestamp_offset, offset_for_timestamp, stop_logs
from support.old_messages import FIRST_MS, message, message_set, wrapper

TP = TopicPartition("t", 0)
FORMATS = [(m, p) for m in (0, 1) for p in ("plain", "gzip", "snappy", "lz4")]
NAME = f"{0:020d}.log"


def write(kit, *parts: bytes, base: int = 0) -> bytes:
    data = b"".join(parts)
    (kit.folder / f"{base:020d}.log").write_bytes(data)
    return data


def records(log) -> dict[int, bytes | None]:
    """Return the values of all offsets, read batch by batch as a consumer does."""
    found: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(log.read(offset, 1 << 20, log.log_end_offset).parts)
        assert data, offset
        for header, batch in iter_all_formats(data):
            for record in iter_payload(header, read_payload(header, batch)):
                found[record.offset] = record.value
            offset = header.next_offset
    return found


def values(upto: int) -> dict[int, bytes]:
    return {o: b"v%d" % o for o in range(upto)}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("magic", "packed"), FORMATS)
def test_they_are_served_as_they_are(kit, magic, packed, clean):
    whole = write(kit, message_set(0, 200, magic=magic, packed=packed))
    log = kit.open(clean=clean)
    assert (log.failed, log.log_end_offset, log.cut_bytes, log.damaged) == (None, 200, 0, None)
    assert (kit.folder / NAME).read_bytes() == whole
    assert b"".join(log.read(0, 1 << 20, 200).parts) == whole
    for offset in (0, 1, 55, 199):
        assert log.read(offset, 1, 200).parts, "the entry that holds it"
    assert records(log) == values(200)
    log.close()
    log = kit.open(clean=True, recovery_point=200)
    assert records(log) == values(200)
    assert (kit.folder / NAME).read_bytes() == whole


@pytest.mark.parametrize("clean", [True, False])
def test_formats_mixed_in_one_log_and_in_one_segment(kit, clean):
    for base in (0, 60):
        write(
            kit,
            message_set(base, 10, magic=0),
            message_set(base + 10, 10, magic=1, packed="gzip"),
            kit.batch(10, base_offset=base + 20, leader_epoch=2),
            message_set(base + 30, 10, magic=1, packed="lz4"),
            message_set(base + 40, 10, magic=0, packed="snappy"),
            message_set(base + 50, 10, magic=1),
            base=base,
        )
    log = kit.open(clean=clean)
    assert (log.log_end_offset, log.cut_bytes) == (120, 0)
    assert sorted(records(log)) == list(range(120))
    kit.fill(log, 3, epoch=3)
    assert sorted(records(log)) == list(range(123))
    log = kit.reopen(log, clean=clean, recovery_point=123 if clean else 0)
    assert (log.log_end_offset, log.epochs.entries) == (123, [(2, 20), (3, 120)])


def test_a_log_of_them_rolls_flushes_and_expires(kit):
    write(kit, message_set(0, 100))
    log = kit.open(segment_bytes=2000)
    kit.fill(log, 20)
    assert len(log.segments) > 1
    log.flush()
    log.set_high_watermark(log.log_end_offset)
    log.update_config(kit.config(retention_ms=1000))
    assert log.delete_old_segments(kit.clock.wall) >= 1
    assert log.log_start_offset >= 100


@pytest.mark.parametrize("size", [1, 12, 17, 20, 30])
def test_a_torn_last_message_is_cut(kit, size):
    whole = message_set(0, 20)
    torn = message_set(20, 1)[:size]
    write(kit, whole, torn)
    log = kit.open()
    assert log.log_end_offset == 20
    assert (kit.folder / NAME).read_bytes() == whole
    assert not list(kit.folder.glob("*.aside"))


def test_a_flipped_bit_in_one_is_found_and_not_served(kit):
    write(kit, message_set(0, 3), message_set(3, 1), message_set(4, 3))
    good = (kit.folder / NAME).read_bytes()
    log = kit.open()
    log.close()
    at = len(message_set(0, 3)) + 30
    bad = bytearray(good)
    bad[at] ^= 1
    (kit.folder / NAME).write_bytes(bad)
    log = kit.open(clean=True, recovery_point=7)
    assert bytes(b"".join(log.read(0, 1 << 20, 7).parts)) == good[: len(message_set(0, 3))]
    with pytest.raises(CorruptRecordError):
        log.read(3, 1 << 20, 7)
    assert (kit.folder / NAME).read_bytes() == bad


@pytest.mark.parametrize(("magic", "packed"), [f for f in FORMATS if f[0]])
def test_search_by_time(kit, magic, packed):
    write(kit, message_set(0, 100, magic=magic, packed=packed))
    log = kit.open()
    for offset in (0, 5, 37, 99):
        found = offset_for_timestamp(log, FIRST_MS + offset)
        assert (found.offset, found.timestamp) == (offset, FIRST_MS + offset)
    assert offset_for_timestamp(log, FIRST_MS + 100) is None
    assert max_timestamp_offset(log).offset == 99


def test_format_0_has_no_timestamps(kit):
    write(kit, message_set(0, 10, magic=0, packed="gzip"))
    log = kit.open()
    assert offset_for_timestamp(log, 0) is None
    assert max_timestamp_offset(log)[:2] == (-1, 0), "as Kafka: the first record"


@pytest.mark.parametrize("packed", ["plain", "gzip"])
def test_truncated_in_the_middle_of_one(kit, packed):
    write(kit, message_set(0, 50, packed=packed))
    log = kit.open()
    log.truncate_to(25)
    assert log.log_end_offset == (25 if packed == "plain" else 20)
    kit.fill(log, 2)
    end = log.log_end_offset
    log = kit.reopen(log)
    assert log.log_end_offset == end
    assert sorted(records(log)) == list(range(end))


@pytest.mark.parametrize(("magic", "packed"), FORMATS)
def test_a_follower_takes_what_its_leader_sends(kit, magic, packed):
    sent = message_set(0, 40, magic=magic, packed=packed)
    log = kit.open(segment_bytes=600)
    at = 0
    while at < len(sent):
        log.append_as_follower(memoryview(bytearray(sent[at : at + 700])))
        at = sum(s.size for s in log.segments)
    log.append_as_follower(kit.batch(5, base_offset=40, leader_epoch=1))
    assert {o: v for o, v in records(log).items() if o < 40} == values(40)
    log = kit.reopen(log, segment_bytes=600)
    assert (log.log_end_offset, log.cut_bytes) == (45, 0)


def test_but_not_a_damaged_one_nor_an_unknown_format(kit):
    log = kit.open()
    bad = bytearray(message_set(0, 2))
    bad[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(memoryview(bad))
    unknown = kit.batch(1, base_offset=1)
    unknown[16] = 5
    with pytest.raises(UnsupportedFormatError, match="message format 5"):
        log.append_as_follower(unknown)
    both = bytearray(bytes(kit.batch(1, base_offset=0)) + bytes(unknown))
    log.append_as_follower(memoryview(both))
    assert log.log_end_offset == 1, "what comes before it is taken"


@pytest.mark.parametrize(("magic", "packed"), FORMATS)
def test_a_compacted_log_of_them_is_compacted(kit, magic, packed):
    """What is left is of format 2, with the same offsets, timestamps, keys and values."""
    manager = kit.manager(**{"log.cleaner.min.cleanable.ratio": "0"})
    config = kit.config(cleanup_policy="compact", segment_bytes=400, min_cleanable_dirty_ratio=0)
    data = kit.root / "data"
    shutil.rmtree(kit.folder)
    kit.folder = data / "t-0"
    kit.folder.mkdir(parents=True)
    for base in (0, 50):
        write(kit, message_set(base, 50, magic=magic, packed=packed, keys=7), base=base)
    write(kit, message(100, None, magic=magic, key=b"k0"), base=100)
    write(kit, kit.batch(1, base_offset=101), base=101)
    load_logs(manager, lambda _: config)
    log = manager.get(TP)
    log.set_high_watermark(log.log_end_offset)
    log.flush()
    cleaner = LogCleaner(kit.world, manager._config, manager)
    assert asyncio.run(cleaner.clean_dirtiest()), cleaner.uncleanable
    want = {o: b"v%d" % o for o in range(93, 100) if o % 7} | {100: None}
    found = records(log)
    found.pop(101)
    assert found == want
    if magic:
        assert offset_for_timestamp(log, FIRST_MS + 95).offset == 95
    end = log.log_end_offset
    stop_logs(manager)
    again = kit.manager()
    load_logs(again, lambda _: config)
    assert again.get(TP).log_end_offset == end


def test_a_wrapper_that_is_not_understood_is_kept_and_not_compacted(kit):
    manager = kit.manager(**{"log.cleaner.min.cleanable.ratio": "0"})
    config = kit.config(cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    kit.folder = kit.root / "data" / "t-0"
    kit.folder.mkdir(parents=True)
    whole = write(kit, message(0, b"what", key=b"k", attributes=6), message_set(1, 3))
    write(kit, kit.batch(1, base_offset=4), base=4)
    load_logs(manager, lambda _: config)
    log = manager.get(TP)
    log.set_high_watermark(5)
    log.flush()
    cleaner = LogCleaner(kit.world, manager._config, manager)
    assert not asyncio.run(cleaner.clean_dirtiest())
    assert TP in cleaner.uncleanable
    assert log.damaged is None, "the disk is good"
    assert (kit.folder / NAME).read_bytes() == whole
    assert b"".join(log.read(0, 1, 5).parts) == whole[: len(message(0, b"what", key=b"k"))]


# What nobody knows yet -------------------------------------------------------------------------


def unknown(offset: int, magic: int, content: bytes = b"what is to come") -> bytes:
    return struct.pack(">qiIb", offset, 5 + len(content), 7, magic) + content


@pytest.mark.parametrize("magic", [3, 4, 100, -1])
@pytest.mark.parametrize("content", [b"what is to come", bytes(range(200))])
@pytest.mark.parametrize("at", ["first", "last", "in an older segment"])
def test_a_later_format_takes_the_partition_offline_and_changes_nothing(kit, magic, content, at):
    base = 0
    if at == "first":
        write(kit, unknown(0, magic, content), unknown(9, magic, content))
    else:
        write(kit, bytes(kit.batch(3)), unknown(3, magic, content))
        if at == "in an older segment":
            write(kit, bytes(kit.batch(3, base_offset=8)), base=8)
    (kit.folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    before = {p.name: p.read_bytes() for p in kit.folder.iterdir()}
    for _ in range(2):
        log = kit.open(recovery_point=base, high_watermark=2)
        assert f"message format {magic}" in str(log.failed)
        assert log.prepare_close() is None
        log.abandon()
        assert {p.name: p.read_bytes() for p in kit.folder.iterdir()} == before


@pytest.mark.parametrize("kept", [12, 13, 15, 16])
def test_a_write_torn_before_its_magic_is_no_later_format(kit, kept):
    """Base offset and length are on disk; then what lay there before: no entry follows it."""
    before = random.Random(kept).randbytes(900)
    torn = bytes(kit.batch(2, base_offset=3))[:kept] + before[: 16 - kept] + b"q" + before
    whole = write(kit, bytes(kit.batch(3)), torn)
    log = kit.open()
    assert (log.failed, log.log_end_offset, log.cut_bytes) == (None, 3, len(torn))
    assert (kit.folder / NAME).read_bytes() == whole[: -len(torn)]


@pytest.mark.parametrize("left", [1, 16, 17, 40])
def test_a_later_format_with_a_torn_tail_is_kept(kit, left):
    whole = write(kit, bytes(kit.batch(3)), unknown(3, 3), unknown(4, 3, bytes(200))[:left])
    log = kit.open()
    assert "message format 3" in str(log.failed)
    log.abandon()
    assert (kit.folder / NAME).read_bytes() == whole


@pytest.mark.parametrize("magic", [3, 18, 0x42])
def test_a_flipped_bit_in_the_magic_cuts_nothing(kit, magic):
    """Its CRC does not cover it, so the batch is as good; Kafka serves it, we find it damaged."""
    log = kit.open()
    kit.fill(log, 5)
    size = log.size // 5
    log.abandon()
    data = bytearray((kit.folder / NAME).read_bytes())
    data[2 * size + 16] = magic
    (kit.folder / NAME).write_bytes(data)
    log = kit.open()
    assert (log.log_end_offset, log.cut_bytes) == (5, 0)
    assert (kit.folder / NAME).read_bytes() == data
    with pytest.raises(CorruptRecordError):
        log.read(2, 1, 5)


@pytest.mark.parametrize("bits", [0x80, 0x8000, 0x4000, 0x0100, 7, 6, 5])
def test_unknown_attributes_and_codecs_are_served_as_they_are(kit, bits):
    data = kit.batch(3)
    attributes = struct.pack(">h", bits - 0x10000 if bits & 0x8000 else bits)
    data[21:23] = attributes
    import google_crc32c

    data[17:21] = struct.pack(">I", google_crc32c.value(bytes(data[21:])))
    write(kit, bytes(data), bytes(kit.batch(2, base_offset=3)))
    for clean in (False, True):
        log = kit.open(clean=clean)
        assert (log.log_end_offset, log.cut_bytes, log.damaged) == (5, 0, None)
        assert b"".join(log.read(0, 1, 5).parts) == bytes(data)
        log.abandon()


def test_offsets_too_far_apart_for_one_segment_are_not_cut(kit):
    whole = write(kit, bytes(kit.batch(1)), bytes(kit.batch(1, base_offset=2**31 + 5)))
    log = kit.open()
    assert "too far from its first one" in str(log.failed)
    assert (kit.folder / NAME).read_bytes() == whole


def test_an_offline_log_stays_so_and_the_others_live_on(kit, caplog):
    manager = kit.manager()
    for name in ("t-0", "u-0"):
        (kit.root / "data" / name).mkdir(parents=True)
    kit.folder = kit.root / "data" / "t-0"
    whole = write(kit, unknown(0, 3))
    (kit.root / "data" / "replication-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    (kit.root / "data" / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    for _ in range(3):
        manager = kit.manager()
        caplog.clear()
        load_logs(manager, lambda _: kit.config())
        assert [r.message for r in caplog.records if r.levelname == "ERROR"]
        assert manager.get(TP).failed
        with pytest.raises(Exception, match="is offline"):
            manager.get_or_create(TP, is_new=True)
        other = manager.get(TopicPartition("u", 0))
        assert other.failed is None
        kit.fill(other, 1)
        stop_logs(manager)
        assert {p.name for p in kit.folder.iterdir()} == {NAME}
        assert (kit.folder / NAME).read_bytes() == whole
        assert not (kit.root / "data" / ".kafka_cleanshutdown").exists()
        points = (kit.root / "data" / "recovery-point-offset-checkpoint").read_text()
        assert "t 0 1\n" in points
        assert "t 0 1\n" in (kit.root / "data" / "replication-offset-checkpoint").read_text()


def test_a_control_record_that_is_not_understood_changes_nothing(kit):
    data = kit.batch(1, producer_id=5, producer_epoch=0, is_transactional=True, is_control=True)
    whole = write(kit, bytes(kit.batch(2)), bytes(with_offset(data, 2)))
    log = kit.open()
    assert log.failed is None or (kit.folder / NAME).read_bytes() == whole
    assert log.cut_bytes == 0
    assert (kit.folder / NAME).read_bytes() == whole


def with_offset(data, offset: int):
    data[0:8] = struct.pack(">q", offset)
    return data


# Behind the last batch -------------------------------------------------------------------------

GARBAGE = [bytes(4096), bytes(10), b"x" * 5, b"x" * 300, bytes(61) + b"x", b"\xff" * 100]


@pytest.mark.parametrize("tail", GARBAGE)
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_garbage_behind_the_last_batch(kit, tail, clean, own):
    log = kit.open()
    kit.fill(log, 5)
    log.close()
    if not own:
        for path in kit.folder.glob(".ottla*"):
            path.unlink()
    path = kit.folder / NAME
    path.write_bytes(path.read_bytes() + tail)
    log = kit.open(clean=clean, recovery_point=5 if clean else 0)
    assert log.log_end_offset == 5
    for offset in range(5):
        assert log.read(offset, 1, 5).parts, "what is good is served"
    kit.fill(log, 3)
    assert log.log_end_offset == 8
    for offset in range(8):
        assert log.read(offset, 1, 8).parts, offset
    for how in (True, False):
        log = kit.reopen(log, clean=how, recovery_point=8 if how else 0)
        assert log.log_end_offset == 8
        for offset in range(8):
            assert log.read(offset, 1, 8).parts, offset


@pytest.mark.parametrize("lost", [1, 20, 61, 100])
def test_a_file_that_is_shorter_than_it_was_at_the_clean_stop(kit, lost):
    log = kit.open()
    kit.fill(log, 5)
    log.close()
    path = kit.folder / NAME
    path.write_bytes(path.read_bytes()[:-lost])
    log = kit.open(clean=True, recovery_point=5)
    kit.fill(log, 3)
    first = log.log_end_offset - 3
    for offset in range(first, first + 3):
        assert log.read(offset, 1, first + 3).parts, "what is acknowledged now can be read"
    for offset in range(3):
        assert log.read(offset, 1, first + 3).parts


def test_bytes_below_the_recovery_point_that_are_cut_are_kept_aside(kit):
    log = kit.open(segment_bytes=400)
    kit.fill(log, 12)
    log.flush()
    bases = [s.base_offset for s in log.segments]
    log.abandon()
    path = Path(log.segments[1].path(".log"))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    later = {b: (kit.folder / f"{b:020d}.log").read_bytes() for b in bases[2:]}
    log = kit.open(segment_bytes=400, recovery_point=bases[2] - 1)
    assert log.log_end_offset == bases[1]
    assert (kit.folder / f"{path.name}.0.0.aside").read_bytes() == data
    for base, content in later.items():
        assert (kit.folder / f"{base:020d}.log.0.aside").read_bytes() == content
    assert not log.local.deleted_files


def test_zeros_in_an_older_segment_take_nothing_with_them(kit):
    log = kit.open(segment_bytes=400)
    kit.fill(log, 12)
    bases = [s.base_offset for s in log.segments]
    log.abandon()
    path = Path(log.segments[0].path(".log"))
    path.write_bytes(path.read_bytes() + bytes(100))
    log = kit.open(segment_bytes=400)
    assert (log.log_end_offset, [s.base_offset for s in log.segments]) == (12, bases)
    kit.everything(log)


def test_wrapper_is_one_entry(kit):
    whole = wrapper(4, [(b"a", b"1"), (b"b", None)], 1)
    write(kit, whole, base=4)
    log = kit.open(clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)
