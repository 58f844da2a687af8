"""Damage in a log (F20): intact batches are served, damage is recorded once and durably."""

from pathlib import Path

import pytest

from ottla.log import damage
from ottla.model.errors import CorruptRecordError
from ottla.model.ids import TopicPartition
from support.logs import offset_for_timestamp

SETTINGS = {"segment_bytes": 2000, "index_interval_bytes": 150}
END = 60


def batches(data: bytes) -> list[tuple[int, int, int]]:
    """Return (position, first offset, next offset) of each batch, from the bytes alone."""
    found = []
    at = 0
    while at < len(data):
        base = int.from_bytes(data[at : at + 8], "big")
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        last_delta = int.from_bytes(data[at + 23 : at + 27], "big")
        found.append((at, base, base + last_delta + 1))
        at += size
    return found


def flip(path: Path, at: int, bits: int = 0x10) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def readable(log) -> dict[int, bytes]:
    """Return the bytes of the batch served for each offset that can be read."""
    found = {}
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            found[offset] = bytes(b"".join(log.read(offset, 1, log.log_end_offset).parts))
        except CorruptRecordError:
            continue
    return found


@pytest.mark.parametrize("at", [9, 10, 11, 16, "magic 0", 17, 60, 70], ids=lambda at: f"byte {at}")
@pytest.mark.parametrize("number", [0, 3, 7])
@pytest.mark.parametrize("clean", [True, False])
def test_f20_what_lies_before_and_after_a_damaged_batch_is_served(kit, number, at, clean):
    """Also where its size is wrong, so that the next batch is not found, or its format is old."""
    log = kit.open(**SETTINGS)
    kit.fill(log, END)
    log.flush()
    log.close()
    log = kit.open(clean=True, recovery_point=END, **SETTINGS)
    good = readable(log)
    assert sorted(good) == list(range(END))
    path = Path(log.segments[1].path(".log"))
    log.abandon()
    position, first, end = batches(path.read_bytes())[number]
    if at == "magic 0":
        flip(path, position + 16, 0x02)
    else:
        flip(path, position + at)

    log = kit.open(clean=clean, recovery_point=END, **SETTINGS)
    told = []
    log.on_damage = told.append
    served = readable(log)
    lost = set(range(END)) - set(served)
    assert lost >= set(range(first, end))
    # The index has an entry for every second batch: no more than its neighbours go with it.
    assert lost <= set(range(first, end + 2)), (lost, first, end)
    assert all(good[offset] == data for offset, data in served.items())
    assert told
    noted = {o for a, b in log.damaged for o in range(a, b)}
    assert noted == lost
    assert not log.damage_remembered
    reads, count = log.corrupt_reads, len(told)
    assert readable(log) == served
    assert log.corrupt_reads > reads
    assert len(told) == count, "told once"


def test_f20_a_search_by_timestamp_finds_damage_too(kit):
    log = kit.open(**SETTINGS)
    kit.fill(log, END)
    log.close()
    log = kit.open(clean=True, recovery_point=END, **SETTINGS)
    path = Path(log.segments[1].path(".log"))
    base = log.segments[1].base_offset
    log.abandon()
    flip(path, 70)
    log = kit.open(clean=True, recovery_point=END, **SETTINGS)
    with pytest.raises(CorruptRecordError):
        offset_for_timestamp(log, 1000 + 10 * base)
    assert log.damaged == ((base, base + 1),)


def test_f20_the_log_end_behind_a_damaged_header_is_found_or_refused(kit):
    """It once was searched for without end."""
    log = kit.open(index_interval_bytes=10**9)
    kit.fill(log, 5)
    log.close()
    path = Path(log.segments[0].path(".log"))
    flip(path, batches(path.read_bytes())[3][0] + 9)
    for snapshot in kit.folder.glob("*.snapshot"):
        snapshot.unlink()
    log = kit.open(clean=True, recovery_point=5, index_interval_bytes=10**9)
    assert log.log_end_offset == 3


def test_f20_the_mark_reads_as_written_and_garbage_as_damaged():
    tp = TopicPartition("t", 0)
    data = damage.encode(tp, [(3, 5), (9, 10)], 7)
    assert damage.decode(data) == damage.DamageFile("t-0", ((3, 5), (9, 10)), 7)
    assert damage.decode(b"\xff\x00=..\ndamaged=x..y\ncommitted=") == damage.DamageFile("", (), -1)
    assert damage.with_range([(3, 5), (9, 10)], 5, 9) == ((3, 10),)
    assert damage.with_range([(3, 5)], 8, 9) == ((3, 5), (8, 9))
    assert damage.above([(3, 5), (8, 9)], 5) == ((8, 9),)
    assert damage.text_of([(3, 5), (8, 9)]) == "3..4,8..8"


def test_f20_a_marked_log_is_known_to_be_damaged_when_it_is_opened(kit):
    log = kit.open()
    kit.fill(log, 3)
    log.close()
    assert log.damaged is None
    (kit.folder / damage.DAMAGE_FILE).write_bytes(damage.encode(kit.tp, [(1, 2)], 3))
    log = kit.open(clean=True, recovery_point=3)
    assert log.damaged == ((1, 2),)
    assert log.damage_remembered
    log.abandon()
    (kit.folder / damage.DAMAGE_FILE).write_bytes(b"")
    log = kit.open(clean=True, recovery_point=3)
    assert log.damaged == ()


@pytest.mark.parametrize("lost", ["*.snapshot", "leader-epoch-checkpoint", "*.index"])
@pytest.mark.parametrize("clean", [True, False])
def test_f20_a_log_whose_helper_files_are_gone_too_is_opened_all_the_same(kit, clean, lost):
    """A broker must start, if only to have this replica rebuilt from the others."""
    log = kit.open(segment_bytes=600)
    for sequence in range(20):
        kit.send(log, sequence=sequence)
    log.close()
    path = Path(log.segments[1].path(".log"))
    good = path.read_bytes()
    others = {p: p.read_bytes() for p in kit.folder.iterdir() if p != path}
    for at in range(1, 100, 3):
        for other, data in others.items():
            other.write_bytes(data)
        for gone in kit.folder.glob(lost):
            gone.unlink()
        path.write_bytes(good)
        flip(path, at)
        log = kit.open(clean=clean, recovery_point=20, segment_bytes=600)
        assert log.log_end_offset == 20
        assert not log.damage_remembered
        log.abandon()
