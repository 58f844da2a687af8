"""Deleting much: the event loop removes nothing itself, and a worker little at a time (F46)."""

import asyncio
import os

import pytest

from ottla.log.files import OsFiles
from ottla.model.ids import TopicPartition
from support.logs import load_logs

STEP_FILES = 64
STEP_BYTES = 256 << 20


class Watched:
    """Workers that note what each of their calls removed: (files, bytes)."""

    def __init__(self, monkeypatch, most=1 << 30):
        self.steps = []
        self.busy = False
        self.most = most
        self._unlink, self._truncate = os.unlink, os.truncate
        monkeypatch.setattr(os, "unlink", self.unlink)
        monkeypatch.setattr(os, "truncate", self.truncate)

    def note(self, files, size):
        assert self.busy, "removed by the event loop"
        count, total = self.steps[-1]
        self.steps[-1] = count + files, total + size

    def unlink(self, path, **keywords):
        found = os.lstat(path)
        self._unlink(path, **keywords)
        self.note(1, min(found.st_size, found.st_blocks * 512))

    def truncate(self, path, size):
        before = os.lstat(path).st_size
        self._truncate(path, size)
        self.note(0, before - size)

    async def run(self, function, *args):
        if len(self.steps) >= self.most:
            await asyncio.sleep(3600)
        self.steps.append((0, 0))
        self.busy = True
        try:
            return function(*args)
        finally:
            self.busy = False


def large(folder, *gibibytes):
    for number, size in enumerate(gibibytes):
        fd = os.open(f"{folder}/{number:020d}.log.x", os.O_RDWR | os.O_CREAT)
        try:
            os.posix_fallocate(fd, 0, int(size * (1 << 30)))
        finally:
            os.close(fd)


def test_f46_a_step_removes_a_bounded_number_of_bytes_and_files(kit, monkeypatch):
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config())
    tp = TopicPartition("topic", 0)
    kit.fill(manager.get_or_create(tp, is_new=True), 1)
    folder = kit.root / "data" / "topic-0"
    large(folder, 1.1, 0.2, 0.2, 0.7)
    for number in range(300):
        (folder / f"{number}.small").touch()
    watched = Watched(monkeypatch)
    manager.delete(tp)
    kit.clock.advance(61)
    assert asyncio.run(manager.remove_due(watched)) == 1
    assert not list((kit.root / "data").glob("topic*"))
    assert max(files for files, _ in watched.steps) <= STEP_FILES
    assert max(size for _, size in watched.steps) <= STEP_BYTES
    assert sum(size for _, size in watched.steps) >= int(2.2 * (1 << 30)) - 4096
    assert len(watched.steps) < 30


@pytest.mark.parametrize("how", ["retention", "stray folder", "future log"])
def test_f46_nothing_is_removed_by_the_event_loop(kit, monkeypatch, how):
    watched = Watched(monkeypatch)
    manager = kit.manager("a", "b")
    load_logs(manager, lambda _: kit.config(segment_bytes=300, retention_bytes=300))
    tp = TopicPartition("topic", 0)
    if how == "stray folder":
        (kit.root / "a" / "topic-0").mkdir()
        large(kit.root / "a" / "topic-0", 0.3)
        manager.delete_stray_folder(tp)
    else:
        manager.prefer(tp, str(kit.root / "a"))
        log = manager.get_or_create(tp, is_new=True)
        kit.fill(log, 10)
        log.set_high_watermark(10)
        if how == "retention":
            kit.clock.advance(400)
            manager.periodic(kit.clock.wall)
        else:
            manager.create_future(tp, str(kit.root / "b"))
            manager.delete_future(tp)
    left = [*kit.root.glob("*/*-delete"), *kit.root.glob("*/*/0*.deleted")]
    assert left
    assert watched.steps == []
    kit.clock.advance(61)
    asyncio.run(manager.remove_due(watched))
    assert not [path for path in left if path.exists()]


def test_a_removal_that_a_stop_interrupts_goes_on_after_the_next_start(kit, monkeypatch):
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config())
    tp = TopicPartition("topic", 0)
    kit.fill(manager.get_or_create(tp, is_new=True), 1)
    large(kit.root / "data" / "topic-0", 1, 1)
    manager.delete(tp)
    kit.clock.advance(61)
    watched = Watched(monkeypatch, most=2)

    async def stopped():
        removing = asyncio.create_task(manager.remove_due(watched))
        while len(watched.steps) < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        removing.cancel()
        await asyncio.gather(removing, return_exceptions=True)
        await manager.shutdown(kit.world.workers)

    monkeypatch.setattr(watched, "note", lambda *_: None)
    asyncio.run(stopped())
    [folder] = (kit.root / "data").glob("topic-0.*-delete")
    assert list(folder.iterdir())
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config())
    asyncio.run(manager.remove_due(kit.world.workers))
    assert not list((kit.root / "data").glob("topic*"))


def test_what_is_due_first_goes_first_whatever_came_before(kit):
    manager = kit.manager()
    delays = {"slow": 60_000, "quick": 0}
    load_logs(manager, lambda topic: kit.config(file_delete_delay_ms=delays[topic]))
    for topic in delays:
        tp = TopicPartition(topic, 0)
        manager.get_or_create(tp, is_new=True)
        manager.delete(tp)
    assert asyncio.run(manager.remove_due(kit.world.workers)) == 1
    [left] = (kit.root / "data").glob("*-delete")
    assert left.name.startswith("slow-0.")


def test_files_of_a_folder_that_is_renamed_amid_a_step_are_found(kit):
    """A future log takes the current one's place while a segment of it is being removed."""
    manager = kit.manager("a", "b")
    load_logs(manager, lambda _: kit.config(segment_bytes=300, file_delete_delay_ms=0))
    tp = TopicPartition("topic", 0)
    manager.prefer(tp, str(kit.root / "a"))
    log = manager.get_or_create(tp, is_new=True)
    future = manager.create_future(tp, str(kit.root / "b"))
    for one in (log, future):
        kit.fill(one, 10)
        one.truncate_to(3)
    manager.remove_deleted(future)
    assert list((kit.root / "b").glob("*-future/0*.deleted"))

    class Moves:
        async def run(self, function, *args):
            if manager.future(tp) is not None:
                manager.retire(log) if manager.promote_future(tp) else None
            return function(*args)

    asyncio.run(manager.remove_due(Moves()))
    assert (kit.root / "b" / "topic-0").is_dir()
    assert not list((kit.root / "b").glob("*/0*.deleted"))


def test_links_are_removed_and_not_followed(tmp_path):
    files = OsFiles()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_bytes(b"x")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "link").symlink_to(tmp_path / "kept")
    while not files.remove_some(str(tmp_path / "gone")):
        pass
    assert not (tmp_path / "gone").exists()
    assert (tmp_path / "kept" / "file").read_bytes() == b"x"
