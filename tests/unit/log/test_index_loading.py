"""Indexes are loaded and built again by workers; the event loop reads little at a time (F46).

What the event loop reads is counted in bytes. What a read returns is compared with the records that
were appended.
"""

import asyncio

import pytest

from ottla.log.log import MAX_SEGMENTS_AT_ONCE
from ottla.log.results import NotInMemoryError
from ottla.model.ids import TopicPartition
from ottla.wire.records import iter_batches
from support.logs import load_logs, stop_logs, write_high_watermarks
from support.metered import MeteredFiles

ID = bytes(range(16))
TP = TopicPartition("topic", 0)


@pytest.fixture
def metered(kit):
    files = MeteredFiles(kit.files._files)
    kit.world = type(kit.world)(kit.clock, kit.world.random, files, None, files)
    return files


def stopped(kit, batches=400, **topic):
    """Return the bytes of a log of large and many segments that was closed cleanly."""
    log = kit.open(segment_bytes=1 << 20, **topic)
    kit.fill(log, batches, size=10_000)
    log.close()
    files = sorted(kit.folder.glob("*.log"))
    assert len(files) > 2
    return b"".join(path.read_bytes() for path in files)


def reopened(kit, **topic):
    end = sum(len(list(iter_batches(p.read_bytes()))) for p in kit.folder.glob("*.log"))
    return kit.open(clean=True, recovery_point=end, segment_bytes=1 << 20, **topic)


def read_now(metered, log, offset, size=4096):
    """Read without waiting; whatever must be waited for, a worker reads; return data and waits."""
    waits = 0
    while True:
        try:
            found = log.read(offset, size, log.log_end_offset, now=True)
        except NotInMemoryError as place:
            waits += 1
            assert waits < 5
            metered.work(place.file.prefetch, place.size, place.position)
        else:
            return b"".join(found.parts), waits


def lose(kit, damage):
    for path in kit.folder.glob("*.*index"):
        if damage == "missing":
            path.unlink()
        elif damage == "torn":
            path.write_bytes(path.read_bytes()[:-3])
        elif damage == "astray" and path.suffix == ".index":
            data = bytearray(path.read_bytes())
            for at in range(7, len(data), 8):
                data[at] ^= 1  # each entry points between two batches
            path.write_bytes(data)


@pytest.mark.parametrize("damage", ["none", "missing", "torn", "astray"])
def test_f46_a_cold_read_reads_little_on_the_event_loop(kit, metered, damage):
    whole = stopped(kit)
    log = reopened(kit)  # a start builds again what is missing, but reads no index
    lose(kit, damage)
    metered.by_loop = 0
    offset = 70
    data, waits = read_now(metered, log, offset)
    assert waits >= 1
    start = next(at for at, header in iter_batches(whole) if header.base_offset == offset)
    assert data
    assert whole[start : start + len(data)] == data
    assert metered.by_loop < 100_000
    assert len(data) + metered.by_loop < 1 << 20
    data, waits = read_now(metered, log, offset + 1)
    assert waits == 0
    # What was built again is written when the log is closed.
    if damage in ("missing", "torn"):
        log.close()
        index = kit.folder / "00000000000000000000.index"
        assert index.stat().st_size > 8


def test_a_segment_that_was_cut_meanwhile_takes_over_nothing(kit, metered):
    stopped(kit)
    log = reopened(kit)
    with pytest.raises(NotInMemoryError) as first:
        log.read(70, 4096, 400, now=True)
    log.truncate_to(50)
    kit.fill(log, 40, size=9_000)
    place = first.value
    metered.work(place.file.prefetch, place.size, place.position)
    for offset in (49, 50, 70, 89):
        data, _ = read_now(metered, log, offset)
        [header, *_] = [header for _, header in iter_batches(data)]
        assert header.base_offset == offset


def test_a_log_that_is_deleted_meanwhile_raises_nothing(kit, metered):
    stopped(kit)
    log = reopened(kit)
    with pytest.raises(NotInMemoryError) as place:
        log.read(70, 4096, 400, now=True)
    log.abandon()
    with pytest.raises(FileNotFoundError):
        metered.work(place.value.file.prefetch, place.value.size, place.value.position)


# Retention -----------------------------------------------------------------------------


def kept(kit, count, **topic):
    """Return a started manager over a log of so many small segments, cold."""
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config(segment_bytes=300, **topic))
    log = manager.get_or_create(TP, ID, is_new=True)
    for number in range(count):
        kit.fill(log, 1, size=200)
        log.roll()
        assert number < 10_000
    log.set_high_watermark(log.log_end_offset)
    write_high_watermarks(manager)
    stop_logs(manager)
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config(segment_bytes=300, **topic))
    return manager


def test_f46_retention_takes_a_bounded_number_of_segments_at_a_time(kit, metered, monkeypatch):
    count = MAX_SEGMENTS_AT_ONCE * 3 + 5
    manager = kept(kit, count, retention_ms=1000)
    log = manager.get(TP)
    renames = []
    rename = metered.files.rename
    monkeypatch.setattr(
        metered.files, "rename", lambda a, b: (renames.append(a), rename(a, b)), raising=False
    )
    metered.by_loop = 0
    most_renames = most_bytes = turns = 0
    kit.clock.tick_s = 0.002  # so that a turn is over after one look
    kit.clock.advance(400)

    async def main():
        nonlocal most_renames, most_bytes, turns
        while log.segments[0].base_offset < count and turns < 500:
            turns += 1
            renames.clear()
            metered.by_loop = 0
            manager.periodic(kit.clock.wall)
            most_renames = max(most_renames, len(renames))
            most_bytes = max(most_bytes, metered.by_loop)
            await manager.load_indexes(metered)

    asyncio.run(main())
    assert log.segments[0].base_offset == count
    assert log.log_start_offset == count
    assert most_renames <= MAX_SEGMENTS_AT_ONCE * 4
    assert most_bytes < 10_000, "how old segments are, workers find out"


@pytest.mark.parametrize("limit", [3_000, 300 * 100])
def test_retention_by_size_counts_what_it_did_not_look_at(kit, metered, limit):
    manager = kept(kit, 150, retention_bytes=limit, retention_ms=-1)
    log = manager.get(TP)
    size = log.size
    while log.delete_old_segments(kit.clock.wall):
        pass
    oldest = log.segments[0].size
    assert log.size >= limit > log.size - oldest
    assert size - log.size > 0
