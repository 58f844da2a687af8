"""Starts ZooKeeper and brokers from one process that imports them once (`fork_process`).

Invariants: the process that forks ends with the `with` block; what it started goes on; each wait
has a bound.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from ottla.local import fork_process, processes
from ottla.model.errors import StartupError
from ottla.zookeeper.embedded import Running


class Start(Protocol):
    """Starts `ottla ARGUMENTS`, its output appended to a file."""

    def __call__(self, arguments: list[str], log: Path) -> Running: ...


def alone(arguments: list[str], log: Path) -> Running:
    """Start it as a process that imports everything itself."""
    return processes.spawn([sys.executable, "-P", "-m", "ottla", *arguments], log)


class _Forked:
    """A process that was forked; its exit code is its parent's to know."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._id = processes.identify_child(pid)

    def poll(self) -> int | None:
        return None if processes.alive(self._id) else 1


@contextlib.contextmanager
def forking(count: int, meanwhile: Callable[[], None]) -> Iterator[Start]:
    """Yield what starts processes; `count` of them are to come, ZooKeeper first.

    `meanwhile` is called once, while modules are imported there.
    """
    try:
        process = fork_process.taken(count)
    except OSError as error:
        raise StartupError(f"no process could be started: {error}") from error
    if process is None:
        yield alone
        return
    waiting = [meanwhile]

    def start(arguments: list[str], log: Path) -> Running:
        request = {"arguments": arguments, "log": os.fspath(log.absolute())}
        try:
            process.send(json.dumps(request).encode() + b"\n")
            while waiting:
                waiting.pop()()
            reply = process.reply()
        except OSError as error:
            raise StartupError(
                f"the process that starts brokers does not respond: {error}"
            ) from error
        if not reply:
            raise StartupError(f"no process could be started: {process.last_words()}")
        return _Forked(int(reply))

    try:
        yield start
    finally:
        process.end()
