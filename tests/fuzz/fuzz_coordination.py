"""Fuzz target: what a client sends to our ZooKeeper server, and the oracle.

The first byte says whether SASL is required and whether the client has authenticated; the rest is
what it sends, in three pieces. Then it must hold:

- nothing was raised, and nothing was logged with a traceback
- who did not authenticate where that is required changed nothing, opened no session, and got
  nothing but errors
- a znode that only its owner may change is as it was, and its owner's session is open
- nothing of the input is kept once the connection is gone, and it took little time
"""

import asyncio
import logging
import random

from fuzz_broker import Finding
from fuzz_codec import Target, measured

from ottla.model.ports import World
from ottla.sim.verdict import Tracebacks
from ottla.zookeeper import jute
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.server_authentication import SaslUsers
from ottla.zookeeper.server_connection import Limits
from support.zookeeper_peer import USERS, Clock, Peer

REQUIRED, AUTHENTICATED = 1, 2
ROUNDS = 400
"""Turns of the loop in which the server has to be done."""


class CoordinationTarget(Target):
    """See the module."""

    name = "coordination"

    def __init__(self):
        self._tracebacks = Tracebacks()
        logging.getLogger("ottla").addHandler(self._tracebacks)

    def close(self):
        logging.getLogger("ottla").removeHandler(self._tracebacks)

    def check(self, data):
        if data:
            measured(lambda: asyncio.run(self._check(data[0], bytes(data[1:]))), len(data))

    async def _check(self, mode, raw):
        uncaught = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: uncaught.append(context))
        server = MemoryZooKeeper(
            World(Clock(), random.Random(1), None, None, None),
            tick_ms=1000,
            limits=Limits(),
            sasl=SaslUsers(USERS, required=bool(mode & REQUIRED)),
        )
        owner = Peer(server).hello()
        await owner.authenticate()
        for path in ("/own", "/own/it"):  # its parent decides who may delete it
            await owner.ask(jute.CREATE, jute.create_body(path, b"mine", 0, jute.CREATOR_ACL))
        before = _seen(server)
        client = Peer(server, "10.0.0.2")
        if mode & AUTHENTICATED:
            client.hello()
            await client.authenticate("eve")
        third = -(-len(raw) // 3)
        for start in range(0, len(raw), third or 1):
            client.connection.data_received(raw[start : start + third])
            await _settled(server)
        stranger = mode & REQUIRED and not mode & AUTHENTICATED
        if stranger and client.connection.sasl_identity is None and _seen(server) != before:
            raise Finding(f"a stranger changed {before} to {_seen(server)}")
        client.connection.connection_lost(None)
        await _settled(server)
        if server.input_bytes:
            raise Finding(f"{server.input_bytes} bytes of input are kept")
        if (await owner.ask(jute.GET_DATA, jute.path_watch_body("/own/it", False)))[0]:
            raise Finding("the owner cannot read its znode")
        if server.tree.nodes["/own/it"].data != b"mine":
            raise Finding("a znode of another was changed")
        if uncaught or self._tracebacks.found:
            found = uncaught or list(self._tracebacks.found)
            self._tracebacks.found.clear()
            raise Finding(f"uncaught: {found[0]}")


async def _settled(server):
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
        if not any(c._todo or c._task for c in server.connections):
            return
    raise Finding("requests are not done in the end")


def _seen(server):
    """Return what a stranger must not change."""
    return len(server.tree.nodes), server.tree.zxid, sorted(server.sessions)
