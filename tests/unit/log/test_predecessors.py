"""Log files set aside: named by time, compressed, deleted by size and age, whole after a kill."""

import asyncio
import gzip
import logging
import os

import pytest

from ottla.broker.process_log import ProcessLogHandler
from ottla.log.files import OsFiles
from ottla.log.predecessors import STEP_BYTES, Keep, Predecessors
from ottla.log.rolling_file import RollingFile

DAY = 86_400_000
NOW = 1_700_000_000_000
"""2023-11-14T22:13:20Z"""


class Time:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def path(tmp_path):
    return tmp_path / "server.log"


def names(path):
    return sorted(f.name.removeprefix("server.log") for f in path.parent.iterdir())


def aside(path, keep, time=None, sizes=(1000,)):
    """Set so many files aside, a day apart; return them when all is tidy."""
    time = time or Time()

    async def scene():
        log = Predecessors(OsFiles(), str(path), keep, time)
        for size in sizes:
            path.write_bytes(os.urandom(size))
            log.set_aside()
            log.tidy()
            time.now += DAY
            while log._timer is not None:
                await asyncio.sleep(0.001)
        log.close()

    asyncio.run(scene())
    return names(path)


def test_names_are_the_moment_and_sort_by_it(path):
    keep = Keep(compress=False)
    assert aside(path, keep, sizes=(10, 10)) == [".20231114221320000", ".20231115221320000"]


def test_a_clock_that_goes_back_changes_no_order(path):
    time = Time()
    aside(path, Keep(compress=False), time, sizes=(1,))
    time.now = NOW - 10 * DAY
    assert aside(path, Keep(compress=False), time, sizes=(2,)) == [
        ".20231114221320000", ".20231114221320001",
    ]  # fmt: skip
    assert (path.parent / "server.log.20231114221320001").stat().st_size == 2


def test_what_is_compressed_is_what_was_written(path):
    data = b"a line that comes again and again\n" * (3 * STEP_BYTES // 34)
    path.write_bytes(data)
    keep = Keep()

    async def scene():
        log = Predecessors(OsFiles(), str(path), keep, Time())
        log.set_aside()
        log.tidy()
        while log._timer is not None:
            await asyncio.sleep(0.001)

    asyncio.run(scene())
    (packed,) = path.parent.iterdir()
    assert packed.name == "server.log.20231114221320000.gz"
    assert gzip.decompress(packed.read_bytes()) == data
    assert packed.stat().st_size < len(data) / 50


def test_size_counts_the_log_itself_and_the_newest_stays(path):
    keep = Keep(file_bytes=1000, total_bytes=3500, compress=False)
    assert len(aside(path, keep, sizes=(1000,) * 6)) == 2
    small = Keep(file_bytes=1000, total_bytes=1000, compress=False)
    assert len(aside(path, small, sizes=(1000,))) == 1


def test_age_counts_from_when_it_was_set_aside(path):
    keep = Keep(age_ms=2 * DAY + 1, compress=False)
    assert len(aside(path, keep, sizes=(10,) * 6)) == 3


def test_other_files_are_left_alone(path):
    others = ["server.log.txt", "server.log.gz", "other.log.1", "server.log.123456789012345678"]
    for name in others:
        (path.parent / name).write_bytes(b"x")
    aside(path, Keep(file_bytes=1, total_bytes=1), sizes=(100, 100))
    assert {f.name for f in path.parent.iterdir() if f.name in others} == set(others)


def test_a_kill_amid_compression_loses_nothing(path):
    first = path.with_name("server.log.20231101000000000")
    first.write_bytes(b"first")
    first.with_name(first.name + ".gz.tmp").write_bytes(b"half")
    done = path.with_name("server.log.20231102000000000")
    done.write_bytes(b"second")
    done.with_name(done.name + ".gz").write_bytes(gzip.compress(b"second"))

    async def scene():
        log = Predecessors(OsFiles(), str(path), Keep(), Time())
        log.tidy()
        while log._timer is not None:
            await asyncio.sleep(0.001)

    asyncio.run(scene())
    found = {f.name: gzip.decompress(f.read_bytes()) for f in path.parent.iterdir()}
    assert found == {f"{first.name}.gz": b"first", f"{done.name}.gz": b"second"}


def test_what_is_deleted_while_it_is_compressed_ends_nothing(path):
    keep = Keep(file_bytes=1000, total_bytes=2500)

    async def scene():
        log = Predecessors(OsFiles(), str(path), keep, Time())
        for n in range(5):  # each is set aside before the one before it is compressed
            path.write_bytes(bytes([n]) * 1000)
            log.set_aside()
            log.tidy()
        while log._timer is not None:
            await asyncio.sleep(0.001)
        assert not log._broken

    asyncio.run(scene())
    (left,) = path.parent.iterdir()
    assert gzip.decompress(left.read_bytes()) == bytes([4]) * 1000


def test_a_step_is_small(path):
    """Compressing shares the loop with everything else: a step is one piece of 64 KiB."""
    path.write_bytes(os.urandom(4 * STEP_BYTES))

    async def scene():
        log = Predecessors(OsFiles(), str(path), Keep(), Time())
        log.set_aside()
        log.tidy()
        steps = 0
        while log._timer is not None:
            log._timer.cancel()
            log._step()
            steps += 1
        return steps

    assert asyncio.run(scene()) == 5


def test_a_rolling_file_keeps_what_is_asked(tmp_path):
    path = tmp_path / "state-change.log"
    keep = Keep(file_bytes=1000, total_bytes=3000)
    time = Time()

    async def scene():
        file = RollingFile(OsFiles(), str(path), time, keep)
        for n in range(300):
            file.write(b"%097d\n" % n)
            if n % 10 == 9:
                file._slice()
                time.now += 1000
                while file._predecessors._timer is not None:  # what was set aside is packed
                    await asyncio.sleep(0.001)
        file.close()

    asyncio.run(scene())
    files = sorted(f for f in tmp_path.iterdir() if f.suffix != ".tmp")
    assert sum(f.stat().st_size for f in files) <= 3000
    lines = b"".join(
        gzip.decompress(f.read_bytes()) if f.suffix == ".gz" else f.read_bytes()
        for f in [*(f for f in files if f != path), path]
    ).splitlines()
    numbers = [int(line) for line in lines]
    assert numbers == list(range(numbers[0], 300)), "the newest lines, none missing"
    assert len(numbers) > 30, "compressed, there is room for more than three files"


def test_the_log_of_a_process_is_set_aside(tmp_path):
    path = tmp_path / "server.log"

    async def scene():
        handler = ProcessLogHandler(OsFiles(), str(path))
        handler.keep(Keep(file_bytes=1000, total_bytes=100_000, compress=False))
        handler.setFormatter(logging.Formatter("%(message)s"))
        for n in range(100):
            handler.handle(logging.LogRecord("x", logging.INFO, "", 0, "%090d", (n,), None))
        handler.close()

    asyncio.run(scene())
    files = sorted(tmp_path.iterdir())
    lines = [int(line) for f in [*files[1:], files[0]] for line in f.read_text().splitlines()]
    assert lines == list(range(100))
    assert len(files) > 5
