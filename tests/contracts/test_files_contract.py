"""What every `Files` must do: the real one and the simulator's pass the same tests."""

import importlib.util

import pytest

from ottla.log.files import OsFiles


def implementations():
    yield "os"
    if importlib.util.find_spec("ottla.sim.files") is not None:
        yield "sim"


@pytest.fixture(params=list(implementations()))
def place(request, tmp_path):
    """A `Files` and a folder in it."""
    if request.param == "os":
        return OsFiles(), str(tmp_path)
    sim = pytest.importorskip("ottla.sim.files")
    files = sim.SimFiles(sim.SimDisk())
    files.make_dirs("/disk")
    return files, "/disk"


def test_open_needs_the_file_unless_told_to_create(place):
    files, folder = place
    with pytest.raises(FileNotFoundError):
        files.open(f"{folder}/a")
    assert not files.exists(f"{folder}/a")
    file = files.open(f"{folder}/a", create=True)
    assert file.size() == 0
    file.close()
    assert files.exists(f"{folder}/a")
    assert files.size(f"{folder}/a") == 0
    with pytest.raises(FileNotFoundError):
        files.open(f"{folder}/none/a", create=True)


def test_writes_go_where_they_are_told(place):
    files, folder = place
    file = files.open(f"{folder}/a", create=True)
    assert file.pwrite((b"hello",), 0) == 5
    assert file.pwrite([bytearray(b"wor"), memoryview(b"ld!"), b""], 5) == 6
    assert file.pread(100, 0) == b"helloworld!"
    assert file.pread(3, 5) == b"wor"
    assert file.pread(5, 11) == b""
    assert file.pwrite((b"J",), 0) == 1
    assert file.pread(5, 0) == b"Jello"
    assert file.size() == files.size(f"{folder}/a") == 11
    file.close()
    assert files.read_bytes(f"{folder}/a") == b"Jelloworld!"


def test_a_gap_reads_as_zeros(place):
    files, folder = place
    file = files.open(f"{folder}/a", create=True)
    file.pwrite((b"end",), 5)
    assert file.pread(8, 0) == bytes(5) + b"end"


def test_a_written_buffer_may_change_afterwards(place):
    files, folder = place
    file = files.open(f"{folder}/a", create=True)
    buffer = bytearray(b"good")
    file.pwrite((memoryview(buffer),), 0)
    buffer[:] = b"evil"
    assert file.pread(4, 0) == b"good"


def test_many_parts(place):
    files, folder = place
    file = files.open(f"{folder}/a", create=True)
    parts = [bytes([i % 256]) * (i % 5) for i in range(3000)]
    whole = b"".join(parts)
    assert file.pwrite(parts, 10) == len(whole)
    assert file.pread(len(whole), 10) == whole


def test_truncate_shortens_and_lengthens(place):
    files, folder = place
    file = files.open(f"{folder}/a", create=True)
    file.pwrite((b"hello",), 0)
    file.truncate(2)
    assert file.pread(10, 0) == b"he"
    file.truncate(4)
    assert file.pread(10, 0) == b"he\0\0"
    file.fsync()
    file.close()
    file.close()


def test_two_openings_are_one_file(place):
    files, folder = place
    one = files.open(f"{folder}/a", create=True)
    two = files.open(f"{folder}/a")
    one.pwrite((b"hello",), 0)
    assert two.pread(5, 0) == b"hello"
    one.close()
    two.pwrite((b"J",), 0)
    assert files.read_bytes(f"{folder}/a") == b"Jello"


def test_folders(place):
    files, folder = place
    files.make_dirs(f"{folder}/x/y")
    files.make_dirs(f"{folder}/x/y")
    files.open(f"{folder}/x/b", create=True).close()
    files.open(f"{folder}/x/a", create=True).close()
    assert files.listdir(f"{folder}/x") == ["a", "b", "y"]
    assert files.is_dir(f"{folder}/x/y")
    assert files.exists(f"{folder}/x/y")
    assert not files.is_dir(f"{folder}/x/a")
    assert not files.is_dir(f"{folder}/none")
    with pytest.raises(FileNotFoundError):
        files.listdir(f"{folder}/none")
    files.fsync_dir(f"{folder}/x")
    while not files.remove_some(f"{folder}/x"):
        assert files.exists(f"{folder}/x")
    assert not files.exists(f"{folder}/x")
    assert files.remove_some(f"{folder}/x"), "it is fine if it is not there"


def test_a_file_is_removed_in_steps_like_a_folder(place):
    files, folder = place
    files.write(f"{folder}/a", b"content")
    files.write(f"{folder}/ab", b"another")
    while not files.remove_some(f"{folder}/a"):
        pass
    assert files.listdir(folder) == ["ab"]


def test_rename_replaces_files_and_moves_folders(place):
    files, folder = place
    files.write_atomic(f"{folder}/a", b"new")
    files.write_atomic(f"{folder}/b", b"old")
    files.rename(f"{folder}/a", f"{folder}/b")
    assert files.read_bytes(f"{folder}/b") == b"new"
    assert not files.exists(f"{folder}/a")
    files.make_dirs(f"{folder}/d")
    files.write_atomic(f"{folder}/d/f", b"inside")
    files.rename(f"{folder}/d", f"{folder}/e")
    assert files.read_bytes(f"{folder}/e/f") == b"inside"
    assert not files.exists(f"{folder}/d")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{folder}/none", f"{folder}/x")


def test_an_open_file_survives_its_renaming(place):
    files, folder = place
    file = files.open(f"{folder}/a", create=True)
    file.pwrite((b"one",), 0)
    files.rename(f"{folder}/a", f"{folder}/b")
    file.pwrite((b"two",), 3)
    assert file.pread(6, 0) == b"onetwo"
    assert files.read_bytes(f"{folder}/b") == b"onetwo"


def test_remove(place):
    files, folder = place
    files.write_atomic(f"{folder}/a", b"x")
    files.remove(f"{folder}/a")
    assert not files.exists(f"{folder}/a")
    for call in (files.remove, files.read_bytes, files.size):
        with pytest.raises(FileNotFoundError):
            call(f"{folder}/a")


def test_write_atomic_leaves_nothing_else(place):
    files, folder = place
    files.write_atomic(f"{folder}/a", b"one")
    files.write_atomic(f"{folder}/a", b"")
    assert files.read_bytes(f"{folder}/a") == b""
    assert files.listdir(folder) == ["a"]


def test_write_replaces_the_content(place):
    files, folder = place
    files.write(f"{folder}/a", b"longer")
    files.write(f"{folder}/a", b"short")
    assert files.read_bytes(f"{folder}/a") == b"short"
    with pytest.raises(FileNotFoundError):
        files.write(f"{folder}/none/a", b"")


@pytest.mark.parametrize("locked", [True, False])
def test_sync_tree(place, locked):
    files, folder = place
    lock = files.lock(f"{folder}/.lock") if locked else None
    files.make_dirs(f"{folder}/x")
    files.write(f"{folder}/x/a", b"content")
    files.sync_tree(folder)
    assert files.read_bytes(f"{folder}/x/a") == b"content"
    if lock is not None:
        lock.release()


def test_locks_exclude(place):
    files, folder = place
    lock = files.lock(f"{folder}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{folder}/.lock")
    lock.release()
    lock.release()
    files.lock(f"{folder}/.lock").release()
    assert files.size(f"{folder}/.lock") == 0


def test_what_was_just_written_is_in_memory(place):
    files, folder = place
    file = files.open(f"{folder}/a", create=True)
    file.pwrite((bytes(300_000),), 0)
    assert file.in_memory(300_000, 0)
    file.prefetch(300_000, 0)
    file.prefetch(10, 299_995)
    assert file.in_memory(10, 5)
    file.close()
