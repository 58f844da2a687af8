"""What only the real files have: a bound on descriptors, and locks other processes see."""

import os
import subprocess
import sys
import threading

import pytest

from ottla.log.files import OsFiles


def test_descriptors_are_bound_and_come_back(tmp_path):
    files = OsFiles(max_open=8)
    opened = [files.open(str(tmp_path / str(i)), create=True) for i in range(50)]
    for number, file in enumerate(opened):
        file.pwrite((str(number).encode(),), 0)
    assert files.statistics()["open"] <= 8
    for number, file in enumerate(opened):
        assert file.pread(10, 0) == str(number).encode()
        file.fsync()
        file.truncate(1)
        assert file.size() == 1
    assert files.statistics()["open"] <= 8
    for file in opened:
        file.close()
    assert files.statistics()["open"] == 0


def test_a_file_in_use_keeps_its_descriptor(tmp_path):
    files = OsFiles(max_open=8)
    busy = files.open(str(tmp_path / "busy"), create=True)
    for number in range(200):
        files.open(str(tmp_path / str(number)), create=True)
        busy.pwrite((b"x",), number)
        if number > 20:
            assert busy.fd >= 0


def test_a_closed_file_is_closed(tmp_path):
    files = OsFiles()
    file = files.open(str(tmp_path / "a"), create=True)
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.pwrite((b"x",), 0)
    file.fsync()  # there is nothing left to make durable


def test_fsync_in_a_worker_while_the_loop_gives_descriptors_up(tmp_path):
    files = OsFiles(max_open=8)
    opened = [files.open(str(tmp_path / str(i)), create=True) for i in range(30)]
    errors = []

    def sync():
        try:
            for _ in range(20):
                for file in opened:
                    file.fsync()
        except OSError as error:
            errors.append(error)

    worker = threading.Thread(target=sync)
    worker.start()
    turn = 0
    while worker.is_alive():
        opened[turn % 30].pwrite((b"x",), turn)
        turn += 1
    worker.join()
    assert errors == []


def test_another_process_sees_the_lock(tmp_path):
    path = str(tmp_path / ".lock")
    lock = OsFiles().lock(path)
    script = (
        "import sys; from ottla.log.files import OsFiles\n"
        "try: OsFiles().lock(sys.argv[1])\n"
        "except BlockingIOError: sys.exit(3)\n"
    )
    ask = [sys.executable, "-c", script, path]
    assert subprocess.run(ask, check=False).returncode == 3
    lock.release()
    assert subprocess.run(ask, check=False).returncode == 0


def test_what_the_kernel_forgot_is_not_in_memory_until_it_is_brought(tmp_path):
    files = OsFiles()
    file = files.open(str(tmp_path / "a"), create=True)
    file.pwrite((bytes(1 << 20),), 0)
    file.fsync()
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if file.in_memory(1 << 20, 0):
        pytest.skip("this file system keeps everything in memory, or does not tell")
    file.prefetch(1 << 20, 0)
    assert file.in_memory(1 << 20, 0)
    file.close()
    file.prefetch(1, 0)  # nothing: it is closed
