"""Starts several brokers from one process that imports them once (`ottla.broker.forked`).

Who may call: `cluster.up`. Invariants: the process that forks ends with the `with` block; the
brokers go on; each wait has a bound. Only on Linux: elsewhere libraries may not survive a fork.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from ottla.admin.local import processes
from ottla.model.errors import StartupError

REPLY_S = 30.0
"""The first broker waits until everything is imported."""
MAX_REPLY_BYTES = 64
LONGEST_ARGUMENTS = 1024
"""Bytes that a broker's arguments may have to be shown by `ps`."""


class Running(Protocol):
    """A process that was started: a `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None:
        """Return None while it runs."""


class Start(Protocol):
    """Starts `ottla ARGUMENTS`, its output appended to a file."""

    def __call__(self, arguments: list[str], log: Path) -> Running: ...


def alone(arguments: list[str], log: Path) -> Running:
    """Start it as a process that imports everything itself."""
    return processes.spawn([sys.executable, "-m", "ottla", *arguments], log)


class _Forked:
    """A broker that was forked; its exit code is its parent's to know."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._id = processes.identify(pid)

    def poll(self) -> int | None:
        return None if self._id is not None and processes.alive(self._id) else 1


@contextlib.contextmanager
def forking(count: int) -> Iterator[Start]:
    """Yield what starts brokers; `count` of them are to come."""
    if count < 2 or sys.platform != "linux":
        yield alone
        return
    ours, theirs = socket.socketpair()
    ours.settimeout(REPLY_S)
    with tempfile.TemporaryFile() as printed:
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "ottla", "broker", "fork", str(theirs.fileno()),
                 "-" * LONGEST_ARGUMENTS],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )  # fmt: skip

        def start(arguments: list[str], log: Path) -> Running:
            assert arguments[0] == "broker"
            request = {"arguments": arguments[1:], "log": os.fspath(log.absolute())}
            try:
                ours.sendall(json.dumps(request).encode() + b"\n")
                reply = ours.recv(MAX_REPLY_BYTES)
            except OSError as error:
                raise StartupError(
                    f"the process that starts brokers does not respond: {error}"
                ) from error
            if not reply:
                printed.seek(0)
                lines = printed.read().decode(errors="replace").strip().splitlines()
                raise StartupError(f"no broker could be started: {lines[-1] if lines else '?'}")
            return _Forked(int(reply))

        try:
            yield start
        finally:
            ours.close()
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Wait until the process has seen that it is over: its brokers are no children of it."""
    try:
        process.wait(REPLY_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(REPLY_S)
