"""Fork server: the process that starts a cluster's processes, and ends them with their owner.

Who may call: `process_host` starts it as a program. Invariants: it has one thread and no event
loop, so that a fork is a clean process; every child closes what it inherits; once the owner's end
of the control socket is closed, by whichever death, all children are killed and the cluster's
folder is removed if the owner said so. A broker ends by itself when its owner is gone, and by the
kernel (Linux) when this process is.

Everything is imported once, here: a broker then starts in a few milliseconds.
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
from collections.abc import Callable
from typing import NoReturn

import msgspec

from ottla.broker import process as broker_process
from ottla.model.ports import World
from ottla.net import runtime
from ottla.testing.coordination import start_coordination
from ottla.testing.faults import FaultLayer, Rules

COMMAND_BYTES = 65_536
REAP_S = 0.05
DONE = b"."
"""What a broker says once its faults are in force."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


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
    """Serve the owner at the socket that the first argument names, until it is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    folder = sys.argv[2] if len(sys.argv) > 2 else ""
    gc.collect()
    gc.freeze()  # so that children share these pages for longer
    children: set[int] = set()
    owner = os.getppid()
    while True:
        ready, _, _ = select.select([control], [], [], REAP_S)
        _reap(children)
        if not ready:
            if os.getppid() != owner:
                break
            continue
        try:
            data, fds, _, _ = socket.recv_fds(control, COMMAND_BYTES, 1)
        except OSError:
            break
        if not data:
            break
        command = msgspec.json.decode(data, type=Command)
        pid = os.fork()
        if pid == 0:
            control.close()
            _child(command, fds, os.getppid())
        children.add(pid)
        for fd in fds:
            os.close(fd)
        control.sendall(msgspec.json.encode(Reply(pid)))
    _end(children, folder)


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
    out = os.open(command.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
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
