"""Truncations of many logs: what the disk must be waited for, a worker waits for, once (F46)."""

import asyncio

import pytest

from ottla.log import checkpoints
from ottla.model.ids import TopicPartition
from support.logs import load_logs, write_recovery_points

ID = bytes(range(16))


class Counting:
    """Files that count what waits for a disk, by who does it: the event loop or a worker."""

    def __init__(self, files):
        self._files = files
        self.in_worker = False
        self.waits = {"loop": 0, "worker": 0}

    def __getattr__(self, name):
        return getattr(self._files, name)

    def count(self):
        self.waits["worker" if self.in_worker else "loop"] += 1

    def open(self, path, *, create=False):
        return CountingFile(self, self._files.open(path, create=create))

    def write_durable(self, path, data):
        self.count()
        self._files.write_durable(path, data)

    def fsync_dir(self, path):
        self.count()
        self._files.fsync_dir(path)

    def sync_tree(self, path):
        self.count()
        self._files.sync_tree(path)

    async def run(self, function, *args):
        """Be the workers, too."""
        await asyncio.sleep(0)
        self.in_worker = True
        try:
            return function(*args)
        finally:
            self.in_worker = False


class CountingFile:
    def __init__(self, files, file):
        self._files = files
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    def fsync(self):
        self._files.count()
        self._file.fsync()


def tps(count):
    return [TopicPartition("topic", i) for i in range(count)]


@pytest.fixture
def counted(kit):
    files = Counting(kit.files._files)
    kit.world = type(kit.world)(kit.clock, kit.world.random, files, None, files)
    return files


def flushed(kit, count, **topic):
    manager = kit.manager("data")
    load_logs(manager, lambda _: kit.config(**topic))
    for tp in tps(count):
        kit.fill(manager.get_or_create(tp, ID, is_new=True), 3)
    asyncio.run(manager.flush_dirty(kit.world.workers, everything=True))
    write_recovery_points(manager)
    return manager


def points_of(kit):
    path = kit.root / "data" / checkpoints.RECOVERY_POINTS
    return checkpoints.decode_offsets(path.read_bytes())


@pytest.mark.parametrize("count", [1, 200])
def test_f46_many_truncations_are_settled_by_one_write_of_a_worker(kit, counted, count):
    manager = flushed(kit, count)
    counted.waits.update(loop=0, worker=0)

    async def fetch(logs):
        """Cut, settle, append, as a fetcher does."""
        for log in logs:
            log.truncate_to(1)
        await manager.make_truncations_durable(counted)
        assert all(points_of(kit)[log.tp] == 1 for log in logs)
        for log in logs:
            kit.fill(log, 2)
            log.roll()

    logs = manager.logs()

    async def main():
        # Two fetchers at once: the second waits for what the first began, or does it anew.
        await asyncio.gather(fetch(logs[::2]), fetch(logs[1::2]))

    asyncio.run(main())
    assert counted.waits["loop"] == 0
    assert counted.waits["worker"] <= 12
    assert points_of(kit) == dict.fromkeys(tps(count), 1)
    manager.abandon()
    manager = kit.manager("data")
    load_logs(manager, lambda _: kit.config())
    assert {log.log_end_offset for log in manager.logs()} == {3}


def test_a_truncation_amid_settling_is_settled_as_well(kit, counted):
    manager = flushed(kit, 2)
    first, second = manager.logs()

    async def main():
        first.truncate_to(2)
        one = asyncio.create_task(manager.make_truncations_durable(counted))
        for _ in range(3):
            await asyncio.sleep(0)
        second.truncate_to(1)
        first.truncate_to(0)
        await manager.make_truncations_durable(counted)
        await one
        assert points_of(kit) == {first.tp: 0, second.tp: 1}
        assert not first.flush_state.recovery_point_pending
        assert not second.flush_state.recovery_point_pending
        counted.waits.update(loop=0)
        for log in (first, second):
            kit.fill(log, 1)
            log.roll()

    asyncio.run(main())
    assert counted.waits["loop"] == 0


def test_without_settling_the_append_itself_waits(kit, counted):
    """A caller that appends at once, as a leader might: no record counts as flushed."""
    manager = flushed(kit, 3)
    counted.waits.update(loop=0)
    for log in manager.logs():
        log.truncate_to(1)
    kit.fill(manager.logs()[0], 1)
    assert counted.waits["loop"] == 2, "one checkpoint for all of them"
    assert points_of(kit) == dict.fromkeys(tps(3), 1)


def test_logs_made_where_others_were_deleted_are_settled_too(kit, counted):
    manager = flushed(kit, 100)
    for tp in tps(100):
        manager.delete(tp)
    counted.waits.update(loop=0)
    for tp in tps(100):
        manager.get_or_create(tp, bytes(15) + b"2", is_new=True)
    asyncio.run(manager.make_truncations_durable(counted))
    for log in manager.logs():
        kit.fill(log, 1)
    assert counted.waits["loop"] == 0
    assert points_of(kit) == dict.fromkeys(tps(100), 0)
