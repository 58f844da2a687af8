"""Small files written by workers: one writer of each at a time, and never into another's folder.

What is on disk is read with `checkpoints.decode_*` or by a second start, not asked of the writer.
"""

import asyncio

import pytest

from ottla.log import checkpoints
from ottla.log.dir_checkpoints import CheckpointWriter, Snapshot
from ottla.log.files import OsFiles
from ottla.log.log_dir import REPLACED_BY
from ottla.model.ids import TopicPartition
from ottla.net.runtime import RealWorkers
from support.logs import Inline, load_logs, stop_logs

TP = TopicPartition("topic", 0)
OLD, NEW = bytes(range(16)), bytes(range(1, 17))


class Held:
    """Workers that do nothing until `release`; then one call at a time, in order."""

    def __init__(self):
        self.calls = []

    async def run(self, function, *args):
        done = asyncio.get_running_loop().create_future()
        self.calls.append((done, function, args))
        return await done

    async def release(self, count=None):
        for _ in range(len(self.calls) if count is None else count):
            done, function, args = self.calls.pop(0)
            try:
                result = function(*args)
            except OSError as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)
        await turns()


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


class BetweenFiles(OsFiles):
    """Files that do something once, between a draft and its rename."""

    between = None

    def write_durable(self, path, data):
        super().write_durable(path, data)
        between, self.between = self.between, None
        if between is not None:
            between()

    def write(self, path, data):
        super().write(path, data)
        between, self.between = self.between, None
        if between is not None:
            between()


def started(kit, **topic):
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config(**topic))
    return manager


def offsets(path):
    return checkpoints.decode_offsets(path.read_bytes())


# One writer of a checkpoint (C2) -------------------------------------------------------


def test_f17_coinciding_checkpoints_take_no_log_dir_offline(kit):
    manager = started(kit)
    for index in range(50):
        manager.get_or_create(TopicPartition("topic", index), OLD, is_new=True)
    workers = RealWorkers()

    async def main():
        for _ in range(30):
            await asyncio.gather(
                manager.write_high_watermarks(workers),
                manager.write_recovery_points(workers),
                manager.write_high_watermarks(workers),
                manager.write_recovery_points(workers),
            )

    asyncio.run(main())
    workers.close()
    assert manager.offline_dirs == []
    names = [p.name for p in (kit.root / "data").iterdir() if p.is_file()]
    assert not [n for n in names if n.endswith(".tmp")]


def test_callers_meanwhile_share_one_further_write_of_the_latest_state(tmp_path):
    path = tmp_path / "c"
    state = {"now": 0}
    writer = CheckpointWriter(OsFiles(), pytest.fail)
    held = Held()

    def take():
        return Snapshot({TP: state["now"]})

    async def main():
        asks = [asyncio.create_task(writer.write(held, str(path), take))]
        await turns()
        for number in (1, 2, 3):
            state["now"] = number
            asks.append(asyncio.create_task(writer.write(held, str(path), take)))
            await turns()
        state["now"] = 4
        assert len(held.calls) == 1, "a second writer of one file"
        await held.release()
        assert offsets(path) == {TP: 0}
        assert [a.done() for a in asks] == [True, False, False, False]
        assert len(held.calls) == 1
        await held.release()
        assert all(a.done() for a in asks)
        assert offsets(path) == {TP: 4}
        assert held.calls == []

    asyncio.run(main())


def test_a_write_whose_asker_was_cancelled_goes_on_and_keeps_others_out(tmp_path):
    path = tmp_path / "c"
    writer = CheckpointWriter(OsFiles(), pytest.fail)
    held = Held()

    async def main():
        first = asyncio.create_task(writer.write(held, str(path), lambda: Snapshot({TP: 1})))
        await turns()
        first.cancel()
        second = asyncio.create_task(writer.write(held, str(path), lambda: Snapshot({TP: 2})))
        await turns()
        assert len(held.calls) == 1
        drained = asyncio.create_task(writer.drain())
        await held.release()
        await held.release()
        await second
        await drained

    asyncio.run(main())
    assert offsets(path) == {TP: 2}


def test_r12_an_older_state_is_not_put_over_one_written_at_once(tmp_path):
    """A recovery point lowered while a worker writes the one before stays lowered."""
    path = tmp_path / "c"
    files = BetweenFiles()
    writer = CheckpointWriter(files, pytest.fail)
    told = []

    def snapshot(value):
        return lambda: Snapshot({TP: value}, lambda: told.append(value))

    async def main():
        files.between = lambda: writer.write_now(str(path), snapshot(1))
        await writer.write(Inline(), str(path), snapshot(9))

    asyncio.run(main())
    assert offsets(path) == {TP: 1}
    assert told == [1]
    asyncio.run(writer.write(Inline(), str(path), snapshot(2)))
    assert offsets(path) == {TP: 2}
    assert told == [1, 2]


def test_a_clean_stop_waits_for_what_is_being_written(kit):
    """What a cancelled task had under way neither comes after the marker nor gets lost."""
    manager = started(kit)
    log = manager.get_or_create(TP, OLD, is_new=True)
    for epoch in range(4):
        kit.fill(log, 1, epoch=epoch)
    held = Held()

    async def main():
        flush = asyncio.create_task(manager.flush_dirty(held))
        marks = asyncio.create_task(manager.write_high_watermarks(held))
        await turns()
        flush.cancel()
        marks.cancel()
        stop = asyncio.create_task(manager.shutdown(held))
        for _ in range(30):
            await turns()
            await held.release(min(1, len(held.calls)))
        assert stop.done()
        assert held.calls == []

    asyncio.run(main())
    manager = started(kit)
    assert manager.recovered_logs == 0, "it was a clean stop"
    assert manager.get(TP).epochs.entries == [(0, 0), (1, 1), (2, 2), (3, 3)]


# One folder, one log (C6) --------------------------------------------------------------


def prepared(kit, manager):
    """Return a flush job of a log with epochs, a topic id and a snapshot."""
    log = manager.get_or_create(TP, OLD, is_new=True)
    for epoch in range(5):
        kit.fill(log, 3, epoch=epoch)
        log.roll()
    job = log.prepare_flush()
    assert len(job.to_write) > 5
    return log, job


def made_anew(kit, manager):
    manager.delete(TP)
    log = manager.get_or_create(TP, NEW, is_new=True)
    kit.fill(log, 1)
    log.flush()
    return log


@pytest.mark.parametrize("how", ["run", "write"])
@pytest.mark.parametrize("when", ["before", "between draft and rename"])
def test_f26_a_flush_of_a_deleted_topic_leaves_its_successor_alone(kit, how, when):
    files = kit.files._files = BetweenFiles()
    manager = started(kit)
    old, job = prepared(kit, manager)
    logs = []

    def replace():
        logs.append(made_anew(kit, manager))

    if when == "before":
        replace()
    else:
        files.between = replace
    getattr(job, how)()
    old.complete_flush(job)
    new = logs[0]
    folder = kit.root / "data" / "topic-0"
    before = sorted(p.name for p in folder.iterdir())
    assert not [n for n in before if n.endswith((".tmp", ".snapshot"))]
    kit.fill(new, 1)
    stop_logs(manager)
    manager = started(kit)
    log = manager.get(TP)
    assert log.topic_id == NEW
    assert log.epochs.entries == [(0, 0)]
    assert log.log_end_offset == 2
    assert manager.offline_dirs == []


@pytest.mark.parametrize("how", ["run", "write"])
def test_a_flush_of_a_deleted_topic_without_successor_is_no_broken_disk(kit, how):
    manager = started(kit)
    old, job = prepared(kit, manager)
    manager.delete(TP)
    getattr(job, how)()
    old.complete_flush(job)
    assert manager.offline_dirs == []
    assert not (kit.root / "data" / "topic-0").exists()


def test_an_older_flush_never_writes_over_a_later_one(kit):
    files = kit.files._files = BetweenFiles()
    log = kit.open()
    kit.fill(log, 1, epoch=1)
    older = log.prepare_flush()

    def later():
        kit.fill(log, 1, epoch=7)
        log.flush()

    files.between = later
    older.run()
    log.complete_flush(older)
    data = (kit.folder / checkpoints.LEADER_EPOCHS).read_bytes()
    assert checkpoints.decode_epochs(data) == [(1, 0), (7, 1)]


def test_a_snapshot_of_truncated_records_does_not_outlive_them(kit):
    """The old producers' snapshot is not put over that of other records at the same offset."""
    kit.clock.wall = 2000  # or they had expired
    log = kit.open()
    kit.send(log, sequence=0, producer_id=1)
    log.roll()
    older = log.prepare_flush()
    log.truncate_to(0)
    kit.send(log, sequence=0, producer_id=2)
    log.roll()
    newer = log.prepare_flush()
    newer.run()
    log.complete_flush(newer)
    older.run()
    log.complete_flush(older)
    kit.send(log, sequence=1, producer_id=2)
    log = kit.reopen(log, clean=True)
    assert sorted(log.producers.producers) == [2]


def test_an_announced_replacement_is_not_written_into_a_successor(kit):
    manager = kit.manager("a", "b")
    load_logs(manager, lambda _: kit.config())
    manager.prefer(TP, str(kit.root / "a"))
    kit.fill(manager.get_or_create(TP, OLD, is_new=True), 1)
    manager.create_future(TP, str(kit.root / "b"))
    held = Held()

    async def main():
        asking = asyncio.create_task(manager.announce_replacement(held, TP))
        await turns()
        manager.delete(TP)
        manager.prefer(TP, str(kit.root / "a"))
        manager.get_or_create(TP, NEW, is_new=True)
        await held.release()
        await asking

    asyncio.run(main())
    assert not (kit.root / "a" / "topic-0" / REPLACED_BY).exists()
    assert manager.offline_dirs == []


def test_drafts_that_a_crash_left_are_removed(kit):
    log = kit.open()
    kit.fill(log, 3)
    log.flush()
    names = sorted(p.name for p in kit.folder.iterdir())
    log.abandon()
    for name in (checkpoints.LEADER_EPOCHS, "00000000000000000000.index"):
        (kit.folder / f"{name}.0123456789ab-1.tmp").write_bytes(b"x")
    log = kit.open()
    assert log.log_end_offset == 3
    assert sorted(p.name for p in kit.folder.iterdir()) == names
