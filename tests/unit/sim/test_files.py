"""What a simulated disk keeps, loses and refuses."""

import errno
import random

import pytest

from ottla.sim.files import SimDisk, SimFiles


@pytest.fixture
def disk():
    return SimDisk()


@pytest.fixture
def files(disk):
    files = SimFiles(disk)
    files.make_dirs("/log/t-0")
    files.fsync_dir("/log")
    return files


def write(files, path, data, offset=0):
    file = files.open(path, create=True)
    file.pwrite([data], offset)
    return file


def test_what_was_synced_survives_every_power_loss():
    for seed in range(50):
        disk = SimDisk()
        files = SimFiles(disk)
        files.make_dirs("/d")
        file = write(files, "/d/a", b"durable")
        file.fsync()
        file.pwrite([b"later"], 7)
        files.rename("/d/a", "/d/b")
        disk.power_loss(random.Random(seed))
        names = SimFiles(disk).listdir("/d")
        assert names in (["a"], ["b"])
        assert SimFiles(disk).read_bytes("/d/" + names[0]).startswith(b"durable")


def test_what_was_not_synced_is_lost_kept_or_torn():
    seen = set()
    for seed in range(200):
        disk = SimDisk()
        files = SimFiles(disk)
        files.make_dirs("/d")
        file = write(files, "/d/a", b"")
        file.fsync()
        file.pwrite([b"a" * 5000], 0)
        file.pwrite([b"b" * 5000], 5000)
        disk.power_loss(random.Random(seed))
        seen.add(len(SimFiles(disk).read_bytes("/d/a")))
    assert {0, 5000, 10_000} < seen
    assert any(size % 5000 for size in seen)
    assert 4096 in seen


def test_a_file_never_synced_may_not_exist_but_a_folder_before_it_does(disk, files):
    outcomes = set()
    for seed in range(30):
        disk = SimDisk()
        files = SimFiles(disk)
        files.make_dirs("/d")
        files.fsync_dir("/")
        write(files, "/d/x", b"1")
        disk.power_loss(random.Random(seed))
        assert SimFiles(disk).is_dir("/d")
        outcomes.add(SimFiles(disk).exists("/d/x"))
    assert outcomes == {True, False}


def test_write_atomic_is_whole_old_or_whole_new():
    for seed in range(30):
        disk = SimDisk()
        files = SimFiles(disk)
        files.make_dirs("/d")
        files.write_atomic("/d/c", b"old")
        files.write_atomic("/d/c", b"new!")
        disk.power_loss(random.Random(seed))
        assert SimFiles(disk).read_bytes("/d/c") == b"new!"
        assert SimFiles(disk).listdir("/d") == ["c"]


def test_a_full_disk_refuses_more_and_takes_the_same_place_again(disk, files):
    """Fault F17."""
    file = write(files, "/log/t-0/a", b"x" * 100)
    disk.capacity_bytes = 150
    with pytest.raises(OSError) as caught:
        file.pwrite([b"y" * 100], 100)
    assert caught.value.errno == errno.ENOSPC
    file.pwrite([b"z" * 100], 0)
    assert file.pread(100, 0) == b"z" * 100
    disk.mend()
    file.pwrite([b"y" * 100], 100)


def test_faults_hit_their_path_and_operation_as_often_as_said(disk, files):
    """Fault F18."""
    file = write(files, "/log/t-0/a", b"x")
    disk.fail("/log/t-0", ["fsync"], times=1)
    with pytest.raises(OSError) as caught:
        file.fsync()
    assert caught.value.errno == errno.EIO
    file.fsync()
    disk.fail("/log/t-0", ["read"])
    with pytest.raises(OSError, match="error"):
        file.pread(1, 0)
    write(files, "/log/b", b"y").pread(1, 0)


def test_a_flipped_bit_stays(disk, files):
    """Fault F20."""
    file = write(files, "/log/a", b"abc")
    file.fsync()
    disk.flip_bit("/log/a", 1, 1)
    disk.power_loss(random.Random(1))
    assert SimFiles(disk).read_bytes("/log/a") == b"a`c"


def test_locks_end_with_their_holder(disk, files):
    lock = files.lock("/log/.lock")
    with pytest.raises(BlockingIOError):
        SimFiles(disk).lock("/log/.lock")
    files.kill()
    again = SimFiles(disk)
    held = again.lock("/log/.lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        again.lock("/log/.lock")
    held.release()
    again.lock("/log/.lock")


def test_a_removed_file_lives_for_who_has_it_open(files):
    file = write(files, "/log/a", b"abc")
    files.remove("/log/a")
    assert file.pread(3, 0) == b"abc"
    assert not files.exists("/log/a")


def test_folders_move_with_all_in_them(files):
    write(files, "/log/t-0/1.log", b"x")
    files.rename("/log/t-0", "/log/t-0.delete")
    assert files.listdir("/log") == ["t-0.delete"]
    assert files.read_bytes("/log/t-0.delete/1.log") == b"x"
    while not files.remove_some("/log/t-0.delete"):
        pass
    assert files.listdir("/log") == []
    while not files.remove_some("/log/t-0.delete"):
        pass


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda f: f.open("/none"), FileNotFoundError),
        (lambda f: f.open("/none/x", create=True), FileNotFoundError),
        (lambda f: f.listdir("/none"), FileNotFoundError),
        (lambda f: f.size("/none"), FileNotFoundError),
        (lambda f: f.remove("/none"), FileNotFoundError),
        (lambda f: f.remove("/log"), IsADirectoryError),
        (lambda f: f.rename("/none", "/log/x"), FileNotFoundError),
        (lambda f: f.rename("/log/t-0", "/elsewhere/x"), FileNotFoundError),
        (lambda f: f.read_bytes("/log"), IsADirectoryError),
        (lambda f: f.open("/log"), IsADirectoryError),
    ],
)
def test_errors_are_those_of_posix(files, act, error):
    with pytest.raises(error):
        act(files)


def test_a_restored_disk_has_what_was_copied_in_files_of_its_own(disk, files):
    file = write(files, "/log/t-0/a", b"not synced")
    copy = disk.copy()
    file.pwrite([b"NOT"], 0)
    write(files, "/log/t-0/b", b"later")
    disk.restore(copy)
    disk.power_loss(random.Random(1))
    restored = SimFiles(disk)
    assert restored.listdir("/log/t-0") == ["a"]
    assert restored.read_bytes("/log/t-0/a") == b"not synced"
    file.pwrite([b"lost"], 0)  # what a process that was there before still holds is not the file
    assert restored.read_bytes("/log/t-0/a") == b"not synced"


def test_exchanged_disks_have_each_others_files(disk, files):
    write(files, "/log/t-0/a", b"one").fsync()
    other = SimDisk()
    before = disk.changes, other.changes
    disk.exchange(other)
    assert SimFiles(other).read_bytes("/log/t-0/a") == b"one"
    assert not SimFiles(disk).exists("/log")
    assert disk.changes > max(before)
    assert other.changes > max(before)


def test_each_machine_has_boots_of_its_own():
    one, other = SimDisk("b0"), SimDisk("b1")
    assert SimFiles(one).boot_id("/") != SimFiles(other).boot_id("/")
