"""Preloaded: one program with everything imported, which forks a fork server for each cluster.

Invariants: there is one for each process that owns clusters, started with the first of them; it
ends with its owner, however that ends; a fork of the owner gets one of its own. Python and the
imports take some 0.35 s: only the first cluster waits for them.
"""

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec

import ottla
from ottla.local import processes
from ottla.local.processes import ProcessId
from ottla.model.errors import StartupError
from ottla.testing.fork_server import COMMAND_BYTES, Cluster, Reply

REPLY_S = 30.0
"""The first request waits until everything is imported."""
END_S = 10.0
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import ottla
del sys.path[0]
from ottla.testing.fork_server import main
main()
"""
"""This very ottla, wherever it was found; nothing else comes from its folder before its turn."""


class _Program:
    """The program and our end of its control socket."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(REPLY_S)
        source = str(Path(ottla.__file__).parents[1])
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the program
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", "-c", PROGRAM, source, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def fork(self, cluster: Cluster, control: socket.socket) -> ProcessId:
        """Fork a fork server that serves the other end of `control`; StartupError if it cannot."""
        try:
            socket.send_fds(self._control, [msgspec.json.encode(cluster)], [control.fileno()])
            data = self._control.recv(COMMAND_BYTES)
        except OSError as error:
            raise StartupError(f"the fork server does not respond: {error}") from error
        if not data:
            raise StartupError(f"the fork server has ended: {self._last_words()}")
        pid = msgspec.json.decode(data, type=Reply).pid
        return processes.identify(pid) or ProcessId(pid, "")

    def _last_words(self) -> str:
        self._printed.seek(0)
        lines = self._printed.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        """End it; bounded."""
        end(self._control)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_S)
        self._printed.close()


_programs: dict[int, _Program] = {}
"""By the process that owns it: a fork has what its parent had."""
_lock = threading.Lock()


def fork_server(cluster: Cluster, control: socket.socket) -> ProcessId:
    """Start the fork server of one cluster, which serves the other end of `control`."""
    with _lock:
        known = _programs.get(os.getpid())
        if known is not None:
            try:
                return known.fork(cluster, control)
            except StartupError:  # someone has ended it
                _close(os.getpid())
        program = _programs[os.getpid()] = _Program()
        atexit.register(_close, os.getpid())
        return program.fork(cluster, control)


def _close(owner: int) -> None:
    """End the program of a process, if it is this one."""
    program = _programs.pop(owner, None) if owner == os.getpid() else None
    if program is not None:
        program.close()


def end(control: socket.socket) -> None:
    """Have the other end see that it is over, also while a fork of this process has a copy."""
    with contextlib.suppress(OSError):
        control.shutdown(socket.SHUT_RDWR)
    control.close()
