"""What the processes of a cluster run, forked from a fork server that has imported this.

Invariant: each ends when its owner is gone, which its control socket shows.
"""

import asyncio
import contextlib
import gc
import os
import socket
from collections.abc import Callable, Sequence

import msgspec

from ottla.broker import process
from ottla.local.fork_server import EXIT_FAILED, EXIT_OK
from ottla.model.ports import World
from ottla.net import runtime
from ottla.testing.faults import FaultLayer, Rules
from ottla.zookeeper.memory import MemoryZooKeeper

COMMAND_BYTES = 65_536
DONE = b"."
"""What a broker says once its faults are in force."""


HOST = "127.0.0.1"
TICK_MS = 100
"""Sessions end up to a tick late; the shortest timeout is two."""
LONGEST_SESSION_MS = 300_000


async def start_coordination(world: World, port: int) -> None:
    """Serve in the running loop until it ends; OSError if the port is taken."""
    server = MemoryZooKeeper(world, tick_ms=TICK_MS, max_session_timeout_ms=LONGEST_SESSION_MS)
    await server.start(HOST, port)


def coordination(argv: Sequence[str]) -> int:
    """Be a cluster's coordination service; `argv`: its port, the control socket."""
    gc.enable()  # the fork server does without
    runtime.run(_coordinate, int(argv[0]), _control(argv[1]))
    return EXIT_OK


def broker(argv: Sequence[str]) -> int:
    """Be a broker; `argv`: its port for clients, the first faults, its arguments, the socket."""
    port, rules, *arguments, control = argv
    first = msgspec.json.decode(rules, type=Rules)
    return process.main(arguments, _faulty_world(int(port), first, _control(control)))


def _control(descriptor: str) -> socket.socket:
    control = socket.socket(fileno=int(descriptor))
    control.setblocking(False)
    return control


async def _coordinate(port: int, owner: socket.socket) -> None:
    # It says nothing: what comes is its end.
    asyncio.get_running_loop().add_reader(owner, os._exit, EXIT_FAILED)
    await start_coordination(FaultLayer(0).world, port)
    await asyncio.Event().wait()


def _faulty_world(port: int, rules: Rules, owner: socket.socket) -> Callable[[], World]:
    """Return what makes the broker's world, with the faults that the owner asks for."""

    def make() -> World:
        layer = FaultLayer(port)
        layer.apply(rules)
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
                os._exit(EXIT_FAILED)  # the owner is gone
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                layer.apply(msgspec.json.decode(line, type=Rules))
                with contextlib.suppress(OSError):
                    owner.send(DONE)

        asyncio.get_running_loop().add_reader(owner, readable)
        return layer.world

    return make
