"""Fork server: the process that starts a cluster's processes, and ends them with their owner.

The program imports everything and forks a fork server for each cluster, which forks the cluster's
processes: a cluster and a broker then start in a few milliseconds. Invariants: both have one thread
and no event loop, so that a fork is a clean process; every child closes what it inherits; once the
owner's end of a cluster's control socket is closed, by whichever death, all its processes are
killed and its folder is removed if the owner said so. A broker ends by itself when its owner is
gone, and by the kernel (Linux) when its fork server is.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn

import msgspec

from ottla.broker import process as broker_process
from ottla.broker.forked import write_to
from ottla.model.ports import World
from ottla.net import runtime
from ottla.testing.coordination import start_coordination
from ottla.testing.faults import FaultLayer, Rules

COMMAND_BYTES = 65_536
REAP_S = 0.05
LOG_MODE = 0o644
DONE = b"."
"""What a broker says once its faults are in force."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


class Cluster(msgspec.Struct):
    """What the owner asks the program for: the fork server of one cluster."""

    log: str
    """Where it writes, if it ever does."""
    directory: str
    """The owner's working directory."""
    remove: str = ""
    """The folder that goes when the cluster ends, whichever way."""


class Command(msgspec.Struct):
    """What the owner asks for: a coordination service, or a broker with its control socket."""

    name: str
    """What `ps` shows of the process, 15 bytes."""
    log: str
    port: int
    """Of the coordination service, or of the broker's listener for clients."""
    arguments: list[str] | None = None
    """Of `ottla broker`; None for the coordination service."""
    rules: Rules = Rules()


class Reply(msgspec.Struct):
    """The process that was started."""

    pid: int


def main() -> None:
    """Fork a fork server for each cluster of the owner, at the socket that the argument names."""
    control = socket.socket(fileno=int(sys.argv[1]))
    gc.collect()
    gc.freeze()  # so that children share these pages for longer
    servers: set[int] = set()
    for data, fds in _requests(control, os.getppid(), servers):
        cluster = msgspec.json.decode(data, type=Cluster)
        ours = os.getpid()
        pid = os.fork()
        if pid == 0:
            control.close()
            _serve(cluster, socket.socket(fileno=fds[0]), ours)
        _started(pid, servers, fds, control)
    # The fork servers see by themselves that the owner, or this process, is gone.


def _serve(cluster: Cluster, control: socket.socket, parent: int) -> NoReturn:
    """Be the fork server of one cluster until its owner, or the program, is gone."""
    code = 1
    children: set[int] = set()
    try:
        os.setsid()
        write_to(cluster.log, LOG_MODE)
        os.chdir(cluster.directory)
        for data, fds in _requests(control, parent, children):
            command = msgspec.json.decode(data, type=Command)
            ours = os.getpid()
            pid = os.fork()
            if pid == 0:
                control.close()
                _child(command, fds, ours)
            _started(pid, children, fds, control)
        _end(children, cluster.remove)
        code = 0
    except BaseException:  # noqa: BLE001 - it never runs its parent's code
        traceback.print_exc()
    finally:
        os._exit(code)


def _requests(
    control: socket.socket, owner: int, children: set[int]
) -> Iterator[tuple[bytes, list[int]]]:
    """Yield what is asked for, with descriptors, until whoever asks or the parent is gone."""
    while True:
        ready, _, _ = select.select([control], [], [], REAP_S)
        _reap(children)
        if not ready:
            if os.getppid() != owner:
                return
            continue
        try:
            data, fds, _, _ = socket.recv_fds(control, COMMAND_BYTES, 1)
        except OSError:
            return
        if not data:
            return
        yield data, fds


def _started(pid: int, children: set[int], fds: list[int], control: socket.socket) -> None:
    children.add(pid)
    for fd in fds:
        os.close(fd)
    with contextlib.suppress(OSError):  # who asked is gone: the next request says so
        control.sendall(msgspec.json.encode(Reply(pid)))


def _reap(children: set[int]) -> None:
    for pid in list(children):
        with contextlib.suppress(ChildProcessError):
            found, _ = os.waitpid(pid, os.WNOHANG)
            if found:
                children.discard(pid)


def _end(children: set[int], folder: str) -> None:
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in children:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


# --- in the child --------------------------------------------------------------------------------


def _child(command: Command, fds: list[int], parent: int) -> NoReturn:
    """Be the process that was asked for; never return."""
    code = 1
    try:
        _become(command, parent)
        owner = socket.socket(fileno=fds[0])
        owner.setblocking(False)
        if command.arguments is None:
            runtime.run(_coordinate, command.port, owner)
        else:
            code = broker_process.main(command.arguments, _faulty_world(command, owner))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - a child never runs its parent's code
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _become(command: Command, parent: int) -> None:
    os.setsid()
    write_to(command.log, LOG_MODE)
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(_PR_SET_NAME, command.name.encode()[:15])
        if os.getppid() != parent:
            os._exit(1)


async def _coordinate(port: int, owner: socket.socket) -> None:
    world = FaultLayer(0).world
    asyncio.get_running_loop().add_reader(owner, os._exit, 1)  # it says nothing: it is gone
    await start_coordination(world, port)
    await asyncio.Event().wait()


def _faulty_world(command: Command, owner: socket.socket) -> Callable[[], World]:
    """Return what makes the broker's world, with the faults that the owner asks for."""

    def make() -> World:
        layer = FaultLayer(command.port)
        layer.apply(command.rules)
        rest = b""

        def readable() -> None:
            nonlocal rest
            try:
                data = owner.recv(COMMAND_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                os._exit(1)  # the owner is gone
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                layer.apply(msgspec.json.decode(line, type=Rules))
                with contextlib.suppress(OSError):
                    owner.send(DONE)

        asyncio.get_running_loop().add_reader(owner, readable)
        return layer.world

    return make
