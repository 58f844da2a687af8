"""A disk that fails: the first error ends the log, for good (R12, F17, F18)."""

import errno

import pytest

from ottla.model.errors import ErrorCode, StorageError
from ottla.model.ids import TopicPartition
from support.logs import load_logs, offset_for_timestamp, stop_logs

FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("error", [FULL, BROKEN])
def test_after_a_failed_append_nothing_is_appended(kit, error):
    log = kit.open()
    kit.fill(log, 2)
    told = []
    log.on_failure = lambda failed, why: told.append((failed, why))
    kit.files.broken["write"] = error
    with pytest.raises(StorageError) as raised:
        kit.fill(log, 1)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert told == [(log, error)]
    kit.files.broken.clear()
    for attempt in (
        lambda: kit.fill(log, 1),
        lambda: log.append_as_follower(kit.batch(base_offset=2)),
        lambda: log.read(0, 100, 2),
        lambda: log.truncate_to(1),
        log.flush,
        lambda: log.delete_old_segments(0),
        lambda: offset_for_timestamp(log, 0),
    ):
        with pytest.raises(StorageError):
            attempt()
    assert log.log_end_offset == 2
    assert len(told) == 1


def test_a_failed_fsync_is_not_tried_again_and_believed(kit):
    log = kit.open()
    kit.fill(log, 2)
    kit.files.broken["fsync"] = BROKEN
    with pytest.raises(StorageError):
        log.flush()
    kit.files.broken.clear()
    with pytest.raises(StorageError):
        log.flush()
    assert log.recovery_point == 0


def test_a_failed_cold_read_fails_the_log(kit):
    log = kit.open()
    kit.fill(log, 2)
    log = kit.reopen(log, clean=True)
    kit.files.broken["read"] = BROKEN
    with pytest.raises(StorageError):
        log.read(0, 1000, 2)


def test_flush_messages_syncs_within_the_append(kit):
    log = kit.open(flush_messages=3)
    kit.fill(log, 2)
    assert log.recovery_point == 0
    kit.fill(log, 1)
    assert log.recovery_point == 3
    kit.files.broken["fsync"] = BROKEN
    kit.fill(log, 2)
    with pytest.raises(StorageError):
        kit.fill(log, 1)


def test_one_dir_fails_and_the_other_lives_on(kit):
    manager = kit.manager("a", "b")
    load_logs(manager, lambda _: kit.config())
    logs = [manager.get_or_create(TopicPartition("t", i), is_new=True) for i in range(4)]
    told = []
    manager.on_dir_failure = told.append
    kit.files.broken["write"] = FULL
    with pytest.raises(StorageError):
        kit.fill(logs[0], 1)
    kit.files.broken.clear()
    failed = logs[0].dir.rpartition("/")[0]
    assert manager.offline_dirs == told == [failed]
    for log in logs:
        if log.dir.startswith(failed + "/"):
            with pytest.raises(StorageError):
                kit.fill(log, 1)
            with pytest.raises(StorageError):
                manager.get_or_create(log.tp)
        else:
            kit.fill(log, 1)
    with pytest.raises(StorageError, match="offline log dir"):
        manager.get_or_create(TopicPartition("t", 9))
    made = manager.get_or_create(TopicPartition("t", 9), is_new=True)
    assert not made.dir.startswith(failed + "/")
    stop_logs(manager)
    assert [p.parent.name for p in kit.root.glob("*/.kafka_cleanshutdown")] == [
        "b" if failed.endswith("/a") else "a"
    ]


def test_the_last_dir_gone(kit):
    manager = kit.manager("a")
    load_logs(manager, lambda _: kit.config())
    log = manager.get_or_create(TopicPartition("t", 0), is_new=True)
    kit.files.broken["write"] = FULL
    with pytest.raises(StorageError):
        kit.fill(log, 1)
    with pytest.raises(StorageError, match="no log dir"):
        manager.get_or_create(TopicPartition("t", 1), is_new=True)
