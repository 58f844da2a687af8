"""Starting processes: each alone, or all of them from one fork server (`fork_server`).

Invariants: a fork server of `ottla up` ends with the `with` block of `forking`, what it started
goes on; each wait has a bound. `ottla up` forks on Linux alone: elsewhere libraries may not survive
a fork. It starts its fork server before it imports anything else: this module imports little, and
not `subprocess`.
"""

import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.model.errors import StartupError

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.zookeeper.embedded import Running

REPLY_S = 30.0
"""The first request waits until everything is imported."""
MAX_REPLY_BYTES = 64
LONGEST_ARGUMENTS = 1024
"""Bytes that a child's arguments may have to be shown by `ps`."""
BLOCKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Until it has a session of its own: a terminal sends them to its whole foreground. `posix_spawn`
makes one only with newer C libraries."""
PRINTED_BYTES = 16_384
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import ottla
del sys.path[0]
from ottla.__main__ import main
main()
"""
"""This very ottla, wherever it was found; nothing else comes from its folder before its turn.
(`-m ottla` imports `runpy` for it.)"""
BROKER = "ottla.broker.process"
ZOOKEEPER = "ottla.broker.zookeeper_process"
PRELOADED = f"{ZOOKEEPER},uvloop/{BROKER},ottla.broker.metrics.listener,ottla.net.fault_socket"
"""Brokers wait for ZooKeeper: its modules come first, and it is forked before those of a broker."""


def ask(
    control: socket.socket,
    request: Mapping[str, object],
    *descriptors: int,
    meanwhile: Callable[[], None] = lambda: None,
) -> int | None:
    """Return the id of a process that a fork server has forked; None if the server has ended.

    `request`: the fields of `fork_server.Request`; `meanwhile` is called while it is served.
    StartupError if nothing comes in time.
    """
    import msgspec  # not before `begin`

    try:
        with contextlib.suppress(BrokenPipeError):  # it has ended
            socket.send_fds(control, [msgspec.json.encode(request)], descriptors)
        meanwhile()
        reply = control.recv(MAX_REPLY_BYTES)
    except ConnectionResetError:
        return None
    except OSError as error:
        raise StartupError(f"the fork server does not respond: {error}") from error
    return int(reply) if reply else None


def end(control: socket.socket) -> None:
    """Have the other end see that it is over, also while a fork of this process has a copy."""
    with contextlib.suppress(OSError):
        control.shutdown(socket.SHUT_RDWR)
    control.close()


class ForkServer:
    """The process that has imported `modules`, our end of its socket, and what it prints.

    OSError where it cannot be started.
    """

    def __init__(self, modules: str) -> None:
        self.control, theirs = socket.socketpair()
        self.control.settimeout(REPLY_S)
        self._printed, printed = os.pipe()
        theirs.set_inheritable(True)
        source = __file__.rpartition("/ottla/")[0]
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                [
                    *(sys.executable, "-P", "-c", PROGRAM, source, "broker", "fork"),
                    *(str(theirs.fileno()), modules, "-" * LONGEST_ARGUMENTS),
                ],
                os.environ,
                file_actions=(
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, printed, 1),
                    (os.POSIX_SPAWN_DUP2, printed, 2),
                ),
                setsigmask=BLOCKED,
            )
        except BaseException:
            self.control.close()
            os.close(self._printed)
            raise
        finally:
            theirs.close()
            os.close(printed)

    def fork(
        self,
        request: Mapping[str, object],
        *descriptors: int,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> int:
        """Return the id of a process that was asked for; StartupError."""
        found = ask(self.control, request, *descriptors, meanwhile=meanwhile)
        if found is None:
            raise StartupError(f"no process could be started: {self._last_words()}")
        return found

    def _last_words(self) -> str:
        """Return the last line that it printed; it has ended."""
        lines = os.read(self._printed, PRINTED_BYTES).decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    def close(self) -> None:
        """Have it end, and wait for that: what it forked is no child of this process.

        A process whose id was not read ends, too: nothing could stop it.
        """
        end(self.control)
        while select.select([self._printed], [], [], REPLY_S)[0]:
            if not os.read(self._printed, PRINTED_BYTES):
                break
        else:
            os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def kill(self) -> None:
        """End it in the middle of its imports."""
        self.control.close()
        os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        os.waitpid(self.pid, 0)
        os.close(self._printed)


_early: list[ForkServer] = []
"""The one that was started early, until it is needed."""


def begin() -> None:
    """Start one early."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # it is tried again when it is needed
            _early.append(ForkServer(PRELOADED))


def discard() -> None:
    """End the one that was not needed."""
    while _early:
        _early.pop().kill()


class Start(Protocol):
    """Starts `ottla ARGUMENTS`, its output appended to a file."""

    def __call__(self, arguments: list[str], log: "Path") -> "Running": ...


def alone(arguments: list[str], log: "Path") -> "Running":
    """Start it as a process that imports everything itself."""
    from ottla.local import processes

    return processes.spawn([sys.executable, "-P", "-m", "ottla", *arguments], log)


class _Forked:
    """A process that was forked; its exit code is its parent's to know."""

    def __init__(self, pid: int) -> None:
        from ottla.local import processes

        self.pid = pid
        self._alive = processes.alive
        self._id = processes.identify_child(pid)

    def poll(self) -> int | None:
        return None if self._alive(self._id) else 1


@contextlib.contextmanager
def forking(count: int, meanwhile: Callable[[], None]) -> Iterator[Start]:
    """Yield what starts processes; `count` of them are to come, ZooKeeper first.

    `meanwhile` is called once, while modules are imported there.
    """
    process = None
    if _early and count:
        process = _early.pop()
    elif count > 1 and sys.platform == "linux":
        try:
            process = ForkServer(PRELOADED)
        except OSError as error:
            raise StartupError(f"no process could be started: {error}") from error
    if process is None:
        yield alone
        return
    server = process
    waiting = [meanwhile]

    def start(arguments: list[str], log: "Path") -> "Running":
        is_broker = arguments[0] == "broker"
        request = {
            "run": f"{BROKER if is_broker else ZOOKEEPER}:main",
            "arguments": arguments[1:] if is_broker else arguments[2:],
            "log": os.fspath(log.absolute()),
            "shown": arguments,
        }
        first = waiting.pop() if waiting else lambda: None
        return _Forked(server.fork(request, meanwhile=first))

    try:
        yield start
    finally:
        server.close()
