"""Fork server: a process that imports a broker once and forks processes on request.

A request is JSON on a socket, which may bring a descriptor; the reply is the process id.
Invariants: one thread and no event loop, so that a fork is a clean process; each child has a
session, output and arguments of its own, as if it had been started alone; it ends when its requests
do. Python and the imports of a broker take a third of a second of processor time, which each fork
saves. `fork_process` starts one and asks it.

A fork server that was forked itself (`serve`) has one owner, the holder of its socket's other end:
its children end with it, by the kernel (Linux) if it is killed.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from io import FileIO
from typing import NoReturn

import msgspec

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
MAX_REQUEST_BYTES = 65_536
LOOK_S = 0.05
PRIVATE_UMASK = 0o077
_PR_SET_PDEATHSIG = 1


class Request(msgspec.Struct):
    """A process: it calls `run` (`module:function`) with its arguments and exits by the result.

    A descriptor that came with the request is one more argument, the last.
    """

    run: str
    arguments: list[str]
    log: str
    """The file to which its output is appended."""
    shown: list[str]
    """What `ps` shows as the arguments of `ottla`."""
    directory: str | None = None
    """Where it works; None: where the fork server does."""


def main(argv: Sequence[str]) -> int:
    """Import modules and serve the process that started this one; in a fork, never return.

    `argv`: the socket, and modules with commas between them, in groups with slashes between them.
    After a group one request may be served at once, since brokers wait for ZooKeeper.
    """
    try:
        server = _ForkServer(int(argv[0]))
        groups = [group.split(",") for group in argv[1].split("/")]
    except (IndexError, ValueError, OSError):
        sys.stderr.write("ottla broker fork: it is for `ottla up`; see ottla broker --help\n")
        return EXIT_USAGE
    _unblock_signals()
    for group in groups:
        for module in group:
            with contextlib.suppress(ModuleNotFoundError):  # not on every system
                import_module(module)
        if server.is_asked(0) and not server.serve_one():
            break
    server.serve_all()
    os._exit(EXIT_OK)  # nothing is left to write, and what was forked needs the processor


def serve(argv: Sequence[str]) -> int:
    """Be the fork server of one owner, `argv[1]` its socket; at the end, kill what was forked.

    `argv[0]`: a folder that is removed then, or "".
    """
    server = _ForkServer(int(argv[1]), keeps_children=False)
    server.serve_all()
    server.kill_children()
    if argv[0]:
        import shutil  # `ottla up` does without

        shutil.rmtree(argv[0], ignore_errors=True)
    return EXIT_OK


def _unblock_signals() -> None:
    """Drop what came while this process was in a terminal's foreground, and hear again."""
    for number in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        before = signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
        signal.signal(number, before)


class _ForkServer:
    """Serves one socket; knows its children."""

    def __init__(self, control: int, *, keeps_children: bool = True) -> None:
        """`keeps_children`: whether they go on when this process ends. OSError: not a socket."""
        self._control = socket.socket(fileno=control)
        self._parent = os.getppid()
        self._keeps_children = keeps_children
        self._children: set[int] = set()

    def serve_all(self) -> None:
        """Serve until the requester or the parent is gone."""
        while True:
            if not self.is_asked(LOOK_S):
                if os.getppid() != self._parent:
                    return
            elif not self.serve_one():
                return

    def is_asked(self, timeout_s: float) -> bool:
        self._reap()
        return bool(select.select([self._control], [], [], timeout_s)[0])

    def serve_one(self) -> bool:
        """Fork what is asked for; False if nothing is asked any more."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, MAX_REQUEST_BYTES, 1)
        except OSError:
            return False
        if not data:
            return False
        request = msgspec.json.decode(data, type=Request)
        gc.freeze()  # so that forks share these pages for longer
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(request, descriptors, parent)
        self._children.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            self._control.sendall(b"%d" % pid)
        except OSError:  # the requester is gone and will never know of this process
            os.kill(pid, signal.SIGKILL)
            return False
        return True

    def _reap(self) -> None:
        for pid in list(self._children):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._children.discard(pid)

    def kill_children(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)

    # --- in the child -----------------------------------------------------------------------

    def _become(self, request: Request, descriptors: Sequence[int], parent: int) -> NoReturn:
        """Be the process that was asked for: it has what one of its own has."""
        code = EXIT_FAILED
        try:
            self._control.close()
            os.setsid()
            os.umask(PRIVATE_UMASK)
            if request.directory is not None:
                os.chdir(request.directory)
            _write_to(request.log)
            if not self._keeps_children:
                _end_with(parent)
            sys.argv[1:] = request.shown
            with contextlib.suppress(OSError, ValueError, IndexError):
                _show_arguments([sys.executable, "-P", "-m", "ottla", *request.shown])
            module, _, name = request.run.partition(":")
            function = vars(import_module(module))[name]
            code = function([*request.arguments, *map(str, descriptors)])
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else EXIT_FAILED
        except BaseException:  # noqa: BLE001 - a child never runs its parent's code
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _write_to(log: str) -> None:
    """Append what this process prints to a file, which is its user's alone if it is new."""
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)


def _end_with(parent: int) -> None:
    """Have the kernel end this process when its parent, which has one thread, is gone."""
    if sys.platform == "linux":
        import ctypes  # `ottla up` does without

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(EXIT_FAILED)


def _show_arguments(arguments: Sequence[str]) -> None:
    """Have `ps` show these, where the padding leaves room (proc(5): arg_start, arg_end)."""
    with FileIO("/proc/self/stat") as file:
        fields = file.readall().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    shown = b"\0".join(os.fsencode(argument) for argument in arguments) + b"\0"
    if start > 0 and len(shown) <= end - start:
        with FileIO("/proc/self/mem", "r+") as memory:
            memory.seek(start)
            memory.write(shown.ljust(end - start, b"\0"))
