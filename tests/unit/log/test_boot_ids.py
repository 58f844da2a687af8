"""R18: a process that dies alone loses nothing of its logs; a machine that dies may (F1, F5)."""

import errno
import random
from dataclasses import replace

import pytest

from ottla.log.boot_ids import BOOT_ID_FILE
from ottla.log.manager import LogManager
from ottla.model.errors import StorageError
from ottla.model.ids import TopicPartition
from ottla.sim.files import DiedError, SimDisk, SimFiles
from support.logs import folder_config, load_logs, stop_logs

TP = TopicPartition("t", 0)
OTHER = TopicPartition("u", 3)


def manager_on(kit, disk, dirs="/a"):
    files = SimFiles(disk)
    config = folder_config(dirs)
    return LogManager(replace(kit.world, files=files), config), files, config


def start(kit, disk, dirs="/a"):
    manager, _, config = manager_on(kit, disk, dirs)
    load_logs(manager, lambda _: config.topic_config({}))
    return manager


def filled(kit, disk, dirs="/a"):
    manager = start(kit, disk, dirs)
    for tp in (TP, OTHER):
        kit.fill(manager.get_or_create(tp, is_new=True), 3)
    return manager


def test_f1_a_process_that_was_killed_has_lost_nothing(kit):
    disk = SimDisk()
    filled(kit, disk).abandon()
    manager = start(kit, disk)
    assert manager.recovered_logs == 2, "recovered all the same: indexes may be behind"
    assert [log.log_end_offset for log in manager.logs()] == [3, 3]
    assert manager.unclean == set()


@pytest.mark.parametrize("kills", [0, 1, 3])
def test_f5_a_power_loss_is_not_forgotten_by_kills_after_it(kit, kills):
    disk = SimDisk()
    filled(kit, disk).abandon()
    disk.power_losses += 1
    for _ in range(kills):
        start(kit, disk).abandon()
    assert start(kit, disk).unclean == {TP, OTHER}


def starts_killed_at_each_operation(kit, *, power_was_lost):
    """Yield each operation at which a start was killed, with the disk then; the last one ended."""
    killed_at, done = 0, False
    while not done:
        disk = SimDisk()
        filled(kit, disk).abandon()
        disk.power_losses += power_was_lost
        manager, files, config = manager_on(kit, disk)
        files.last_operations = killed_at
        try:
            load_logs(manager, lambda _, config=config: config.topic_config({}))
            done = True
        except DiedError:
            pass
        files.last_operations = None
        manager.abandon()
        yield killed_at, disk
        killed_at += 1
    assert killed_at > 10


def test_f5_a_start_after_a_power_loss_killed_at_any_operation_does_not_forget(kit):
    for killed_at, disk in starts_killed_at_each_operation(kit, power_was_lost=True):
        assert start(kit, disk).unclean == {TP, OTHER}, killed_at


def test_f5_power_lost_at_any_operation_of_a_start_after_a_kill_is_noticed(kit):
    """The start after a kill knows that nothing was lost; the power goes while it says so."""
    for killed_at, disk in starts_killed_at_each_operation(kit, power_was_lost=False):
        disk.power_loss(random.Random(killed_at))
        manager = start(kit, disk)
        assert manager.unclean == {log.tp for log in manager.logs()}, killed_at


def test_what_is_shown_to_be_complete_after_a_power_loss_survives_the_next_kill(kit):
    disk = SimDisk()
    filled(kit, disk).abandon()
    disk.power_losses += 1
    manager = start(kit, disk)
    manager.unclean.discard(TP)
    manager._write_boot_ids()
    manager.abandon()
    manager = start(kit, disk)
    assert manager.unclean == {TP, OTHER}, "the dir still had a log that may lack its end"
    manager.unclean.clear()
    manager._write_boot_ids()
    manager.abandon()
    assert start(kit, disk).unclean == set()


def test_a_log_of_which_recovery_cut_something_may_lack_its_end(kit):
    disk = SimDisk()
    filled(kit, disk).abandon()
    path = f"/a/{TP}/{0:020d}.log"
    disk.inodes[path].truncate(len(disk.inodes[path].data) - 1)
    manager = start(kit, disk)
    assert manager.get(TP).log_end_offset == 2
    assert manager.unclean == {TP}
    manager.abandon()
    assert start(kit, disk).unclean == {TP, OTHER}, "cut already, so nothing else tells of it"


def test_f11_an_empty_log_in_the_place_of_a_lost_one_is_not_forgotten_by_a_kill(kit):
    disk = SimDisk()
    manager = filled(kit, disk)
    lost = TopicPartition("t", 1)
    manager.mark_incomplete(lost)
    manager.get_or_create(lost)
    manager.abandon()
    assert lost in start(kit, disk).unclean


def test_a_move_of_such_a_log_takes_its_doubt_to_the_other_dir(kit):
    disk = SimDisk()
    manager = filled(kit, disk, "/a,/b")
    current = manager.get(TP)
    manager.unclean.add(TP)
    manager._boot_ids.withdraw(manager._dir_of(current))
    target = next(d for d in manager.live_dirs if d != current.parent_dir)
    future = manager.create_future(TP, target)
    future.append_as_follower(memoryview(bytearray(kit.everything(current))))
    manager.promote_future(TP)
    manager.retire(current)
    manager.abandon()
    assert TP in start(kit, disk, "/a,/b").unclean


def test_f18_writes_that_failed_are_missed_by_the_next_start(kit):
    """fsync failed and dropped its pages; the disk works again and the process starts anew."""
    disk = SimDisk()
    manager = filled(kit, disk)
    disk.fail("/a", ["fsync"], errno.EIO)
    with pytest.raises(StorageError):
        manager.get(TP).flush()
    assert manager.offline_dirs == ["/a"]
    manager.abandon()
    disk.mend()
    assert start(kit, disk).unclean == {TP, OTHER}


def test_a_start_that_is_given_up_hands_on_what_it_knows(kit):
    disk = SimDisk()
    filled(kit, disk).abandon()
    for steps in range(6):
        manager, _, config = manager_on(kit, disk)
        loading = manager.loading(lambda _, config=config: config.topic_config({}))
        for _ in range(steps):
            next(loading, None)
        loading.close()
        manager.abort_startup()
    assert start(kit, disk).unclean == set()


def test_the_real_note_is_of_this_boot_and_this_mount(kit):
    manager = kit.manager()
    load_logs(manager, lambda _: kit.config())
    boot = kit.world.files.boot_id(str(kit.root / "data"))
    if not boot:
        pytest.skip("this system tells no unique mount ids (Linux 6.8)")
    assert boot == kit.world.files.boot_id(str(kit.root / "data"))
    assert boot != kit.world.files.boot_id("/proc"), "another mount"
    assert (kit.root / "data" / BOOT_ID_FILE).read_text() == boot
    manager.abandon()


@pytest.mark.parametrize("end", ["killed", "stopped", "power lost"])
def test_f11_an_emptied_disk_is_not_forgotten_before_the_cluster_knows_of_it(kit, end):
    """The simulator's seed 9900137: killed while it waited to register, it then said "whole".

    Seed 22000126: it registered where there was no controller, and stopped cleanly.
    """
    disk = SimDisk()
    manager, _, config = manager_on(kit, disk)
    manager.expect_replicas()
    load_logs(manager, lambda _: config.topic_config({}))
    assert not manager.found_whole
    if end == "stopped":
        stop_logs(manager)
    else:
        manager.abandon()
    disk.power_losses += end == "power lost"
    manager, _, config = manager_on(kit, disk)
    manager.expect_replicas()
    load_logs(manager, lambda _: config.topic_config({}))
    assert not manager.found_whole
    manager.replicas_received()
    manager.abandon()
    assert start(kit, disk).found_whole


@pytest.mark.parametrize("rebooted", [False, True])
def test_r12_what_a_failed_fsync_dropped_is_written_anew_by_the_next_start(kit, rebooted):
    """The system counts as clean what it did not write: it is read from memory until that is gone.

    Found by the simulator (seed 31000123): the next start read all of it, the next fsync succeeded,
    and records that counted as flushed were gone when memory was.
    """
    disk = SimDisk()
    manager = filled(kit, disk)
    disk.fail("/a", ("fsync",), errno.EIO, times=1, drops=True)
    with pytest.raises(StorageError):
        manager.get(TP).flush()
    manager.abandon()
    if rebooted:
        disk.evict()
        disk.power_losses += 1
    again = start(kit, disk)
    log = again.get(TP)
    if rebooted:
        assert log.log_end_offset == 0, "this is how it was lost"
        return
    assert log.log_end_offset == 3
    assert TP in again.unclean, "the end may be missing, for all it knows"
    log.flush()
    assert log.recovery_point == 3
    kept = bytes(log.segments[0].file.pread(9999, 0))
    disk.evict()
    assert bytes(log.segments[0].file.pread(9999, 0)) == kept
    again.abandon()
    third = start(kit, disk)
    assert third.get(TP).log_end_offset == 3


def test_only_a_start_after_a_disk_error_writes_anew(kit):
    for lost, wanted in (("process", False), ("power", False), ("nothing known", True)):
        disk = SimDisk()
        manager = filled(kit, disk)
        manager.get(TP).flush()
        manager.abandon()
        if lost == "power":
            disk.power_losses += 1
        elif lost == "nothing known":
            disk.remove(f"/a/{BOOT_ID_FILE}")
        start(kit, disk)
        inode = disk.inodes["/a/t-0/00000000000000000000.log"]
        assert bool(inode.dirty) == wanted, lost
