"""Descriptors that run out are no broken disk (F45); giving one up hides no lost write (F18)."""

import asyncio
import contextlib
import ctypes
import errno
import os
import resource
import threading

import pytest

from ottla.log import checkpoints
from ottla.log.files import OsFiles
from ottla.model.errors import ErrorCode, OutOfDescriptorsError, StartupError, StorageError
from ottla.model.ids import TopicPartition
from ottla.wire.records import ABORT
from support.logs import load_logs, stop_logs

TP = TopicPartition("topic", 0)
NONE_LEFT = OSError(errno.EMFILE, "Too many open files")
EVERYTHING = ("open", "write", "fsync", "read")


@contextlib.contextmanager
def exhausted():
    """No descriptor is left in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield taken
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_f45_files_are_opened_from_the_reserve_with_one_log_line_a_minute(tmp_path, caplog):
    files = OsFiles(max_open=64)
    files.open(str(tmp_path / "first"), create=True).close()
    with exhausted():
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        for number in range(5):
            file = files.open(str(tmp_path / str(number)), create=True)
            file.pwrite((b"x",), 0)
            file.fsync()
        files.write_atomic(str(tmp_path / "whole"), b"content")
        assert files.read_bytes(str(tmp_path / "whole")) == b"content"
    assert files.statistics()["shortages"] >= 5
    assert caplog.text.count("out of file descriptors") == 1


def test_f45_idle_files_make_room(tmp_path):
    files = OsFiles(max_open=8)
    opened = [files.open(str(tmp_path / str(i)), create=True) for i in range(6)]
    with exhausted():
        for number in range(20):
            assert files.open(str(tmp_path / f"n{number}"), create=True).pwrite((b"x",), 0) == 1
        for file in opened:
            assert file.pwrite((b"y",), 0) == 1


def test_f45_the_reserve_serves_workers_and_is_filled_again(tmp_path):
    files = OsFiles(max_open=64)
    file = files.open(str(tmp_path / "a"), create=True)
    file.pwrite((b"x",), 0)
    errors = []

    def work():
        try:
            for _ in range(50):
                file.fsync()
                files.write_durable(str(tmp_path / "b"), b"content")
                files.fsync_dir(str(tmp_path))
        except OSError as error:
            errors.append(error)

    with exhausted():
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
    assert errors == []
    files.open(str(tmp_path / "c"), create=True)
    assert len(files._reserve) == 16


# In the log ----------------------------------------------------------------------------


def started(kit, **topic):
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config(segment_bytes=300, **topic))
    log = manager.get_or_create(TP, bytes(range(16)), is_new=True)
    kit.fill(log, 10)
    log.set_high_watermark(10)
    return manager, log


def appends(kit, _manager, log):
    kit.fill(log, 4)  # more than one segment takes


def reads(_kit, _manager, log):
    for segment in log.segments:
        segment.close()
    log.local.tail.clear()
    log.read(0, 1000, 10)


def truncates(_kit, _manager, log):
    for segment in log.segments:
        segment.close()
    log.truncate_to(4)


def starts_over(_kit, _manager, log):
    log.truncate_fully_and_start_at(50)
    raise OutOfDescriptorsError  # it needs none


def flushes(_kit, _manager, log):
    log.flush()


def creates(_kit, manager, _log):
    manager.get_or_create(TopicPartition("new", 0), bytes(range(16)), is_new=True)


def aborts(kit, _manager, log):
    kit.send(log, sequence=0, txn=True)
    log.append_as_leader(kit.marker(kind=ABORT), 0, 0, origin="coordinator")


@pytest.mark.parametrize("broken", ["open", "write", "fsync"])
@pytest.mark.parametrize(
    "operation", [appends, reads, truncates, starts_over, flushes, creates, aborts]
)
def test_f45_an_operation_without_descriptor_can_be_tried_again(kit, operation, broken):
    manager, log = started(kit)
    kit.files.broken[broken] = NONE_LEFT
    try:
        operation(kit, manager, log)
    except OutOfDescriptorsError as error:
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR  # noqa: PT017
    kit.files.broken.clear()
    assert manager.offline_dirs == []
    assert log.failed is None
    end = log.log_end_offset
    kit.fill(log, 5)
    assert log.log_end_offset == end + 5
    log.set_high_watermark(end + 5)
    asyncio.run(manager.flush_dirty(kit.world.workers, everything=True))
    data = kit.everything(log)
    aborted = log.aborted_transactions(0, end)
    entries = log.epochs.entries
    stop_logs(manager)
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config())
    assert manager.recovered_logs == 0
    log = manager.get(TP)
    assert kit.everything(log) == data
    assert log.aborted_transactions(0, end) == aborted
    assert log.epochs.entries == entries
    assert log.topic_id == bytes(range(16))


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
def test_f45_the_first_append_after_a_start_opens_the_segment(kit, code):
    """It looks how old the segment is: an error there is the log's, not an unexpected one."""
    manager, log = started(kit, segment_ms=60_000)
    source = kit.batch(at=2000)
    stop_logs(manager)
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config(segment_bytes=300, segment_ms=60_000))
    log = manager.get(TP)
    for segment in log.segments:
        segment.close()
    kit.files.broken["open"] = OSError(code, "no")
    expected = OutOfDescriptorsError if code == errno.EMFILE else StorageError
    with pytest.raises(expected):
        log.append_as_leader(source, 0, kit.clock.wall)
    kit.files.broken.clear()
    assert bool(manager.offline_dirs) == (code == errno.EIO)
    if code == errno.EMFILE:
        kit.fill(log, 1)
        assert log.log_end_offset == 11


def test_f45_an_aborted_transaction_is_noted_or_its_marker_is_not_written(kit):
    manager, log = started(kit, segment_index_bytes=10_000)
    kit.send(log, sequence=0, txn=True)
    end = log.log_end_offset
    marker = kit.marker(kind=ABORT)
    kit.files.broken["open"] = NONE_LEFT
    with pytest.raises(OutOfDescriptorsError):
        log.append_as_leader(marker, 0, 0, origin="coordinator")
    kit.files.broken.clear()
    assert log.log_end_offset == end
    log.append_as_leader(kit.marker(kind=ABORT), 0, 0, origin="coordinator")
    assert [a.first_offset for a in log.aborted_transactions(0, end + 1)] == [end - 1]
    assert manager.offline_dirs == []


def test_f45_checkpoints_that_could_not_be_written_come_later(kit):
    manager, log = started(kit)
    for broken in ("open", "write", "fsync"):
        kit.files.broken[broken] = NONE_LEFT
    asyncio.run(manager.write_high_watermarks(kit.world.workers))
    asyncio.run(manager.write_recovery_points(kit.world.workers))
    assert asyncio.run(manager.flush_dirty(kit.world.workers, everything=True)) == 0
    assert manager.offline_dirs == []
    assert log.recovery_point == 0
    kit.files.broken.clear()
    assert asyncio.run(manager.flush_dirty(kit.world.workers, everything=True)) == 1
    asyncio.run(manager.write_high_watermarks(kit.world.workers))
    asyncio.run(manager.write_recovery_points(kit.world.workers))
    for name in (checkpoints.HIGH_WATERMARKS, checkpoints.RECOVERY_POINTS):
        data = (kit.root / "data" / name).read_bytes()
        assert checkpoints.decode_offsets(data) == {TP: 10}


def test_f45_a_stop_that_could_not_write_everything_is_not_clean(kit):
    manager, _ = started(kit)
    kit.files.broken["write"] = NONE_LEFT
    stop_logs(manager)
    kit.files.broken.clear()
    assert not (kit.root / "data" / checkpoints.CLEAN_SHUTDOWN).exists()
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config())
    assert manager.recovered_logs == 1
    assert manager.get(TP).log_end_offset == 10


def test_f45_a_start_without_descriptors_does_not_begin_with_half_of_the_logs(kit):
    manager, _ = started(kit)
    manager.abandon()
    manager = kit.manager()
    kit.files.broken["open"] = NONE_LEFT
    with pytest.raises(StartupError, match="out of file descriptors"):
        load_logs(manager, lambda _: kit.config())
    kit.files.broken.clear()


# Lost writes (F18) ---------------------------------------------------------------------


class Kernel:
    """What Linux tells of a failed write: descriptors open then, once each, and syncfs."""

    def __init__(self, monkeypatch):
        self.told_by_fsync = set()
        self.lost = False
        self.asked = 0
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr("ottla.log.files._find_syncfs", lambda: self.syncfs)

    def lose_a_page(self, *fds):
        self.lost = True
        self.told_by_fsync |= set(fds)

    def fsync(self, fd):
        self._fsync(fd)
        if fd in self.told_by_fsync:
            raise OSError(errno.EIO, "Input/output error")

    def syncfs(self, _fd):
        self.asked += 1
        if self.lost:
            ctypes.set_errno(errno.EIO)
            return -1
        return 0


def test_f18_a_write_that_is_lost_after_its_descriptor_was_given_up_is_reported(
    tmp_path, monkeypatch
):
    kernel = Kernel(monkeypatch)
    files = OsFiles(max_open=8)
    lock = files.lock(str(tmp_path / ".lock"))
    (tmp_path / "t-0").mkdir()
    opened = [files.open(str(tmp_path / "t-0" / str(i)), create=True) for i in range(20)]
    for file in opened:
        file.pwrite((b"x",), 0)
    first = opened[0]
    assert first.fd < 0, "all were written to, so one of them had to go"
    kernel.lose_a_page()  # nobody has the file open
    with pytest.raises(OSError, match="Input/output error"):
        first.fsync()
    with pytest.raises(OSError, match="Input/output error"):
        first.fsync()  # nor is it believed the second time
    lock.release()


def test_files_that_await_their_fsync_are_given_up_last(tmp_path, monkeypatch):
    kernel = Kernel(monkeypatch)
    files = OsFiles(max_open=8)
    lock = files.lock(str(tmp_path / ".lock"))
    written = [files.open(str(tmp_path / f"w{i}"), create=True) for i in range(6)]
    for file in written:
        file.pwrite((b"x",), 0)
    for number in range(100):
        files.open(str(tmp_path / f"r{number}"), create=True)
    assert all(file.fd >= 0 for file in written)
    for file in written:
        file.fsync()
    assert kernel.asked == 0, "an fsync of each file was enough"
    for number in range(100):
        files.open(str(tmp_path / f"r{number}"))
    assert all(file.fd < 0 for file in written)
    written[0].fsync()
    assert kernel.asked == 0, "nothing was written since"
    assert files.statistics()["doubtful"] == 0
    lock.release()


def test_a_file_written_to_amid_its_fsync_awaits_the_next_one(tmp_path, monkeypatch):
    files = OsFiles(max_open=8)
    file = files.open(str(tmp_path / "a"), create=True)
    file.pwrite((b"x",), 0)
    fsync = os.fsync

    def writing(fd):
        file.pwrite((b"y",), 1)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", writing)
    file.fsync()
    assert file.unsynced
    monkeypatch.setattr(os, "fsync", fsync)
    file.fsync()
    assert not file.unsynced


def test_a_file_keeps_its_descriptor_when_its_folder_is_renamed(kit):
    """Closing it would forget what was not synced; a move between log dirs does that."""
    log = kit.open()
    kit.fill(log, 3)
    file = log.segments[-1].file
    before = os.fstat(file.fd).st_ino
    kit.folder.rename(kit.root / "moved")
    log.relocate(str(kit.root / "moved"))
    kit.fill(log, 3)
    assert log.segments[-1].file is file
    assert os.fstat(file.fd).st_ino == before
    assert file.unsynced
    log.flush()
    assert (kit.root / "moved" / "00000000000000000000.log").stat().st_size == log.size
