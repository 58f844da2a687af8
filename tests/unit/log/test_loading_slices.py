"""F9, F19: a start lets others run every few milliseconds, whatever lies in the log dirs."""

import gc
import struct
import time

import pytest

from ottla.log.log import Log
from ottla.log.producers import Producer, encode_snapshot
from ottla.log.recovery import Known
from ottla.log.results import NotInMemoryError
from ottla.log.tail import TailBudget
from ottla.model.ids import TopicPartition
from ottla.wire.records import Record, build_batch
from support.logs import load_logs, stop_logs

LONGEST_S = 0.020
TINY = 60_000


def batches(count, *, size=1, first=0, **fields):
    """Return many batches of one record each, back to back."""
    one = bytes(build_batch([Record(timestamp=1, key=None, value=b"v" * size)], **fields))
    return b"".join(struct.pack(">q", first + n) + one[8:] for n in range(count))


def write(kit, data, base=0, folder=None):
    ((folder or kit.folder) / f"{base:020d}.log").write_bytes(data)


def slices_of(steps):
    """Drive work as a start does; return (result, processor seconds of each slice)."""
    took = []
    gc.collect()
    gc.disable()
    try:
        while True:
            before = time.thread_time()
            try:
                next(steps)
            except StopIteration as end:
                took.append(time.thread_time() - before)
                return end.value, took
            took.append(time.thread_time() - before)
    finally:
        gc.enable()


def opening(kit, **known):
    return Log.opening(
        kit.tp, str(kit.folder), kit.config(), kit.world, Known(**known), TailBudget()
    )


@pytest.mark.parametrize("fields", [{}, {"producer_id": 7, "producer_epoch": 0}], ids=str)
def test_a_crashed_log_of_tiny_batches(kit, fields):
    write(kit, batches(TINY, **fields))
    log, took = slices_of(opening(kit))
    assert log.log_end_offset == TINY
    assert len(took) > TINY // 2000
    assert max(took) < LONGEST_S


def test_a_crashed_log_of_one_batch_of_48_mebibytes(kit):
    write(kit, batches(1, size=48 << 20) + batches(1, first=1))
    log, took = slices_of(opening(kit))
    assert log.log_end_offset == 2
    assert len(took) > 40
    assert max(took) < LONGEST_S


def test_a_damaged_large_batch_is_cut_off_all_the_same(kit):
    data = bytearray(batches(1) + batches(1, first=1, size=5 << 20))
    data[-1000] ^= 1
    write(kit, bytes(data))
    log, _ = slices_of(opening(kit))
    assert log.log_end_offset == 1


def test_a_hundred_thousand_producers_in_a_snapshot(kit):
    producers = []
    for number in range(100_000):
        producer = Producer(number)
        producer.last_timestamp = kit.clock.wall_ms()
        producers.append(producer)
    data = encode_snapshot(producers)
    from google_crc32c import value

    data[2:6] = value(bytes(data[6:])).to_bytes(4, "big")
    write(kit, batches(10))
    (kit.folder / f"{10:020d}.snapshot").write_bytes(data)
    log, took = slices_of(opening(kit, clean=True, recovery_point=10))
    assert len(log.producers.producers) == 100_000
    assert max(took) < LONGEST_S


@pytest.mark.parametrize("clean", [True, False])
def test_indexes_that_are_not_there_are_built_at_the_start(kit, clean):
    """F21: not at the first read, which could not go in slices."""
    write(kit, batches(TINY))
    write(kit, batches(10, first=TINY), TINY)
    known = {"clean": clean, "recovery_point": TINY + 10 if clean else TINY}
    log, took = slices_of(opening(kit, **known))
    assert max(took) < LONGEST_S
    before = time.thread_time()
    assert b"".join(log.read(TINY - 5, 1 << 20, TINY).parts)
    assert time.thread_time() - before < LONGEST_S


def test_epochs_that_are_not_there_and_a_cleaners_swap(kit):
    write(kit, batches(TINY))
    (kit.folder / f"{0:020d}.log.swap").write_bytes(batches(TINY))
    log, took = slices_of(opening(kit, clean=True))
    assert log.log_end_offset == TINY
    assert max(took) < LONGEST_S


def test_thousands_of_partitions(kit):
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config())
    for index in range(1_000):
        manager.get_or_create(TopicPartition("t", index), is_new=True)
    stop_logs(manager)
    manager = kit.manager()
    _, took = slices_of(manager.loading(lambda _: kit.config()))
    assert len(manager.logs()) == 1_000
    assert max(took) < LONGEST_S


def test_what_is_not_in_memory_is_named_before_it_is_read(kit):
    """A worker waits for the disk, not the event loop."""
    write(kit, batches(2_000, size=10_000))
    named = []

    class Cold:
        def __init__(self, file):
            self._file = file

        def __getattr__(self, name):
            return getattr(self._file, name)

        def in_memory(self, size, position):
            return any(p <= position and position + size <= p + s for p, s in named)

        def pread(self, size, position):
            last = position + size - 1
            inside = all(any(p <= at < p + s for p, s in named) for at in (position, last))
            if not inside and size > 100:
                raise NotInMemoryError(self, position, size)
            return self._file.pread(size, position)

    open_file = kit.files.open
    kit.files.open = lambda path, create=False: (
        Cold(open_file(path, create=create)) if path.endswith(".log") else open_file(path)
    )
    steps = opening(kit)
    while True:
        try:
            found = next(steps)
        except StopIteration as end:
            log = end.value
            break
        if found is not None:
            named.append((found.position, found.size))
    assert log.log_end_offset == 2_000
    assert len(named) > 3
