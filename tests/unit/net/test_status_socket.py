"""A page on a Unix socket: for its owner, at any path, and bounded."""

import asyncio
import contextlib
import os
import socket
import stat
import sys
import time

import pytest

from ottla.net import status_socket
from ottla.net.status_socket import MAX_READERS, StatusSocket, read

pytestmark = pytest.mark.timeout(30)


def shown(path, make, ask):
    """Serve a page while `ask` runs in a thread; return its result."""

    async def main():
        page = StatusSocket(str(path), make)
        await page.open()
        try:
            return await asyncio.to_thread(ask)
        finally:
            page.close()

    return asyncio.run(main())


def test_each_reader_gets_the_page_as_it_is_then(tmp_path):
    path, count = tmp_path / "p.sock", iter(range(9))

    def ask():
        mode = path.stat().st_mode
        assert stat.S_IMODE(mode) == 0o600, "nobody else may ask"
        return [read(str(path), 5) for _ in range(3)]

    told = shown(path, lambda: b"%d" % next(count) + b"x" * 300_000, ask)
    assert [t[:2] for t in told] == [b"0x", b"1x", b"2x"]
    assert {len(t) for t in told} == {300_001}
    assert not path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is closed after it has a name")
def test_there_is_no_moment_at_which_another_user_may_connect(tmp_path, monkeypatch):
    path = tmp_path / "p.sock"
    monkeypatch.setattr(os, "chmod", lambda *_: None)
    assert shown(path, lambda: b"", lambda: stat.S_IMODE(path.stat().st_mode)) == 0o600


def test_a_path_longer_than_a_socket_may_have(tmp_path):
    folder = tmp_path / ("f" * 120) / ("g" * 120)
    folder.mkdir(parents=True)
    path = folder / "p.sock"
    assert shown(path, lambda: b"here", lambda: read(str(path), 5)) == b"here"


def test_a_socket_left_by_a_killed_process_makes_way_and_a_file_does_not(tmp_path):
    path = tmp_path / "p.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert shown(path, lambda: b"new", lambda: read(str(path), 5)) == b"new"
    path.write_text("kept")
    with pytest.raises(OSError, match="in use"):
        shown(path, lambda: b"new", lambda: None)
    assert path.read_text() == "kept"


def test_readers_that_do_not_read_are_few_and_sent_away(tmp_path, monkeypatch):
    monkeypatch.setattr(status_socket, "READ_WITHIN_S", 0.2)
    path = tmp_path / "p.sock"

    def ask():
        idle = [socket.socket(socket.AF_UNIX) for _ in range(MAX_READERS)]
        try:
            for one in idle:
                one.settimeout(5)
                one.connect(str(path))
                one.send(b"what nobody reads")
                assert one.recv(1) == b"x"
            deadline = time.monotonic() + 15
            while time.monotonic() < deadline:  # until those before have had their time
                with contextlib.suppress(OSError):
                    if read(str(path), 5):
                        return True
            return False
        finally:
            for one in idle:
                one.close()

    assert shown(path, lambda: b"x" * 3_000_000, ask)


def test_nobody_there_or_too_much(tmp_path, monkeypatch):
    path = tmp_path / "p.sock"
    with pytest.raises(OSError, match="No such file"):
        read(str(path), 1)
    monkeypatch.setattr(status_socket, "MAX_BYTES", 1000)
    with pytest.raises(OSError, match="more than 1,000 bytes"):
        shown(path, lambda: b"x" * 100_000, lambda: read(str(path), 5))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with pytest.raises(TimeoutError):
            read(str(path), 0.1)
