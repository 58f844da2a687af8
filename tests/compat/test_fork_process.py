"""The process that forks servers for `ottla up`: what reaches it, what it leaves."""

import json
import os
import signal
import socket
import sys

import pytest

from ottla.local import fork_process
from ottla.local.fork_process import PRELOADED, ZOOKEEPER, ForkServer, forking
from ottla.model.errors import StartupError
from support.secret_scan import our_processes
from support.waiting import until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux alone"),
]


def request(log, *arguments):
    shown = ["zookeeper", "run", *arguments]
    return {"run": f"{ZOOKEEPER}:main", "arguments": arguments, "log": str(log), "shown": shown}


def test_signals_of_the_terminal_do_not_end_it(tmp_path):
    """They come to the foreground's process group: until it has a session, they are blocked."""
    process = ForkServer(PRELOADED)
    try:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            os.kill(process.pid, number)
        pid = process.fork(request(tmp_path / "out", "--nosuch"))
        assert os.getsid(process.pid) == process.pid
        text = until((tmp_path / "out").read_text, 30, "it complains", despite=(FileNotFoundError,))
        assert "--nosuch" in text
        assert pid != process.pid
    finally:
        process.close()


def test_a_server_that_nobody_knows_of_ends(tmp_path):
    process = ForkServer(PRELOADED)
    data = tmp_path / "data"
    asked = request(tmp_path / "out", "--data-dir", str(data), "--client-port", "0")
    socket.send_fds(process.control, [json.dumps(asked).encode()], [])
    process.close()
    until(
        lambda: not [line for _, line in our_processes() if str(data).encode() in line],
        30, "it has ended",
    )  # fmt: skip


def test_what_it_said_last_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_process, "PROGRAM", "raise SystemExit('no module ottla')")
    with forking(2, lambda: None) as start, pytest.raises(StartupError, match="no module ottla"):
        start(["broker"], tmp_path / "out")
