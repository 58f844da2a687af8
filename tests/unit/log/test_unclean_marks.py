"""R18: a log that may have lost its tail stays marked through all stops and starts (F48)."""

import random
from dataclasses import replace

import pytest

from ottla.log.boot_ids import BOOT_ID_FILE
from ottla.log.manager import LogManager
from ottla.model.ids import TopicPartition
from ottla.sim.files import DiedError, SimDisk, SimFiles
from support.logs import (
    folder_config,
    load_logs,
    stop_logs,
    write_high_watermarks,
    write_recovery_points,
)

TP = TopicPartition("t", 0)
OTHER = TopicPartition("u", 3)
TOPIC_ID = bytes(range(16))
MARKER = ".kafka_cleanshutdown"


def started(kit, *dirs):
    manager = kit.manager(*dirs)
    load_logs(manager, lambda _: kit.config())
    return manager


def lose_power(kit):
    """Have the next start find another boot of the system than the last process noted."""
    for note in kit.root.glob(f"*/{BOOT_ID_FILE}"):
        note.unlink()


def crashed(kit, *dirs):
    """Write to two logs and stop as a power loss does; return a manager started after it."""
    manager = started(kit, *dirs)
    for tp in (TP, OTHER):
        kit.fill(manager.get_or_create(tp, is_new=True), 3)
    manager.abandon()
    lose_power(kit)
    return started(kit, *dirs)


@pytest.mark.parametrize("stops", [1, 3])
def test_a_clean_stop_does_not_forget(kit, stops):
    manager = crashed(kit)
    assert manager.unclean == {TP, OTHER}
    manager.unclean.discard(OTHER)  # shown to be complete
    for _ in range(stops):
        stop_logs(manager)
        manager = started(kit)
        assert manager.recovered_logs == 0, "the stop was a clean one"
        assert manager.unclean == {TP}
    manager.unclean.discard(TP)
    stop_logs(manager)
    assert started(kit).unclean == set()


def test_an_empty_log_in_the_place_of_a_lost_one_is_not_forgotten(kit):
    """F11: the disk was swapped; LeaderAndIsr named a partition that should be there."""
    manager = started(kit)
    manager.unclean.add(TP)
    manager.get_or_create(TP)
    stop_logs(manager)
    assert started(kit).unclean == {TP}


def test_a_topic_of_the_same_name_does_not_inherit_the_mark(kit):
    manager = crashed(kit)
    manager.delete(TP)
    manager.get_or_create(TP, TOPIC_ID, is_new=True)
    assert manager.unclean == {OTHER}
    stop_logs(manager)
    assert started(kit).unclean == {OTHER}


def test_the_mark_ends_with_its_folder(kit):
    """A topic deleted after a restart, and created again."""
    stop_logs(crashed(kit))
    manager = started(kit)
    manager.delete(TP)
    manager.get_or_create(TP, TOPIC_ID, is_new=True)
    stop_logs(manager)
    assert started(kit).unclean == {OTHER}


def test_the_mark_goes_where_a_person_moves_the_folder(kit):
    stop_logs(crashed(kit, "a", "b"))
    here = next(f for f in ("a", "b") if (kit.root / f / "t-0").exists())
    (kit.root / here / "t-0").rename(kit.root / ("b" if here == "a" else "a") / "t-0")
    assert started(kit, "a", "b").unclean == {TP, OTHER}


def test_a_move_to_another_dir_does_not_lose_the_mark(kit):
    manager = crashed(kit, "a", "b")
    current = manager.get(TP)
    target = next(d for d in manager.live_dirs if d != current.parent_dir)
    future = manager.create_future(TP, target)
    data = kit.everything(current)
    future.append_as_follower(memoryview(bytearray(data)))
    manager.promote_future(TP)
    manager.retire(current)
    stop_logs(manager)
    assert started(kit, "a", "b").unclean == {TP, OTHER}


def test_a_log_whose_end_the_clean_marker_lied_about_is_marked(kit):
    manager = started(kit)
    kit.fill(manager.get_or_create(TP, is_new=True), 3)
    kit.fill(manager.get_or_create(OTHER, is_new=True), 3)
    stop_logs(manager)
    path = kit.root / "data" / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    for snapshot in path.parent.glob("*.snapshot"):
        snapshot.unlink()
    manager = started(kit)
    assert manager.get(TP).log_end_offset == 2
    assert manager.unclean == {TP}


# Starts that end before all is loaded.


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_a_start_that_is_given_up_writes_nothing_about_logs_it_did_not_load(kit, clean):
    """At whatever step it ends: nothing is taken for clean, nothing clean is recovered again."""
    manager = started(kit, "a", "b")
    for index in range(4):
        log = manager.get_or_create(TopicPartition("t", index), is_new=True)
        kit.fill(log, 6)
        log.set_high_watermark(5)
        log.maybe_increment_log_start_offset(2)
    if clean:
        stop_logs(manager)
    else:
        write_recovery_points(manager)
        write_high_watermarks(manager)
        manager.abandon()
        lose_power(kit)
    manager = kit.manager("a", "b")
    steps = sum(1 for _ in manager.loading(lambda _: kit.config()))
    manager.abort_startup()
    assert steps > 8
    for given_up_after in range(steps):
        manager = kit.manager("a", "b")
        loading = manager.loading(lambda _: kit.config())
        for _ in range(given_up_after):
            next(loading, None)
        loading.close()
        manager.abort_startup()
        for folder in ("a", "b"):
            assert (kit.root / folder / MARKER).exists() == clean, given_up_after
    manager = started(kit, "a", "b")
    assert len(manager.unclean) == (0 if clean else 4)
    assert [log.log_start_offset for log in manager.logs()] == 4 * [2]
    assert [log.high_watermark for log in manager.logs()] == 4 * [5]


# A crash amid the stop.


def on_disk(kit, disk):
    files, config = SimFiles(disk), folder_config("/a,/b")
    manager = LogManager(replace(kit.world, files=files), config)
    load_logs(manager, lambda _: config.topic_config({}))
    return manager, files


@pytest.mark.parametrize("power_loss", [False, True])
def test_f48_a_crash_at_any_file_operation_of_a_stop_does_not_forget(kit, power_loss):
    """After an unclean start and a stop, killed at each step; the logs were not shown complete."""
    survived = killed_at = 0
    while not survived:
        rng = random.Random(killed_at)
        disk = SimDisk()
        manager, _ = on_disk(kit, disk)
        for tp in (TP, OTHER):
            kit.fill(manager.get_or_create(tp, is_new=True), 2)
        manager.abandon()
        disk.power_losses += 1
        manager, files = on_disk(kit, disk)
        assert manager.unclean == {TP, OTHER}
        files.last_operations = killed_at
        try:
            stop_logs(manager)
            survived = killed_at
        except DiedError:
            manager.abandon()
        if power_loss:
            disk.power_loss(rng)
        manager, _ = on_disk(kit, disk)
        there = {log.tp for log in manager.logs()}
        assert manager.unclean >= there, killed_at
        manager.abandon()
        killed_at += 1
    assert survived > 10
