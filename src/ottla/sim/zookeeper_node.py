"""The simulated ZooKeeper server: in memory, or with files and deaths (F55).

Invariants: judges hear of a write when it is durable, never of one that a crash took back; a server
that ends is started again, as by a supervisor; what was durable when the files were copied is what
a restored copy knows.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from ottla.model.errors import OttlaError
from ottla.model.ports import World
from ottla.sim.files import DiskCopy
from ottla.sim.loop import SimLoop
from ottla.sim.transport import SimTransport
from ottla.sim.world import Node
from ottla.zookeeper.database import Database
from ottla.zookeeper.memory import LOGGED_WRITES, LoggedWrite, MemoryZooKeeper

PORT = 2181
DATA_DIR = "/data"


Wrote = Callable[[LoggedWrite, SimLoop | None], None]


class WatchedWrites(deque[LoggedWrite]):
    """The log `before`, continued. `wrote` receives each write when nothing can undo it.

    In memory alone that is at once. With files a write is pending until its transaction is durable:
    a crash of the server before that takes it back, and no client has received a reply to it.
    `process_of` returns the process whose session this is; it is asked when the write is made.
    """

    def __init__(
        self,
        before: Iterable[LoggedWrite],
        wrote: Wrote,
        process_of: Callable[[int], SimLoop | None],
        *,
        held: bool = False,
    ) -> None:
        super().__init__(before, LOGGED_WRITES)
        self.pending: deque[tuple[LoggedWrite, SimLoop | None]] = deque()
        self._wrote = wrote
        self._process_of = process_of
        self._held = held

    def append(self, write: LoggedWrite, /) -> None:
        self.pending.append((write, self._process_of(write.session)))
        if not self._held:
            self.release(write.zxid)

    def begin_again(self, writes: Iterable[LoggedWrite]) -> None:
        """Have the log hold only these, and report none of them."""
        self.clear()
        self.pending.clear()
        self.extend(writes)

    def release(self, zxid: int) -> None:
        """Report the writes up to `zxid`: they are durable."""
        while self.pending and self.pending[0][0].zxid <= zxid:
            write, process = self.pending.popleft()
            super().append(write)
            self._wrote(write, process)


class _Database(Database):
    """A database that knows the zxid up to which all is durable."""

    def __init__(self, world: World, snapshot_transactions: int) -> None:
        super().__init__(world, DATA_DIR, snapshot_transactions=snapshot_transactions)
        self._zxids: list[int] = []

    def append(self, session: int, cxid: int, time_ms: int, kind: int, body: bytes) -> None:
        self._zxids.append(self.tree.zxid)
        super().append(session, cxid, time_ms, kind, body)

    @property
    def durable_zxid(self) -> int:
        return self._zxids[self.durable - 1] if self.durable else 0


class ZooKeeperNode:
    """The node `zk`. `server` is the present one, or the last while none runs."""

    def __init__(
        self,
        node: Node,
        wrote: Wrote,
        ended: Callable[[Node, str], None],
        restored: Callable[[WatchedWrites], None],
        *,
        durable: bool,
    ) -> None:
        """Without files (`durable`) the server keeps all that it knew over a `stop`.

        `ended` hears why a server ended on its own, `restored` what an older state undoes.
        """
        self.node = node
        self.server: MemoryZooKeeper | None = None
        self._older = False
        """Whether the next server finds an older state than the last one had."""
        self.durable = durable
        self._wrote = wrote
        self._ended = ended
        self._restored = restored
        self._stopped = False
        self._writes = WatchedWrites((), wrote, self.process_of)

    @property
    def writes(self) -> WatchedWrites:
        """All that was written and is durable, with what is not yet."""
        return self._writes

    def process_of(self, session: int) -> SimLoop | None:
        """Return whose connection a session has now, None if it has none."""
        transport = None if self.server is None else self.server.transport_of(session)
        peer = transport.peer if isinstance(transport, SimTransport) else None
        return None if peer is None else peer.process

    async def main(self, world: World) -> None:
        """Run a server until it ends."""
        if not self.durable:
            self.server = MemoryZooKeeper(world, tick_ms=1000)
            self.server.writes = self._writes
            await self.server.start(self.node.name, PORT)
            await asyncio.Event().wait()
        rng = self.node.random("snapshots")
        database = _Database(world, rng.choice((20, 100, 1000, 100_000)))
        try:
            database.open()
            await self._serve(world, database)
        except OttlaError as error:
            self._ended(self.node, str(error))

    async def _serve(self, world: World, database: _Database) -> None:
        self._writes.release(database.tree.zxid)  # durable, but the last server never knew it
        server = MemoryZooKeeper(world, tick_ms=1000, database=database)
        before, wrote, of = self._writes, self._wrote, self.process_of
        writes = self._writes = WatchedWrites(before, wrote, of, held=True)
        server.writes = writes
        if self._older:
            self._begin_again(database)
        reply = database.on_durable

        def on_durable() -> None:
            writes.release(database.durable_zxid)
            reply()

        database.on_durable = on_durable
        failed = asyncio.Event()
        server.on_failure = lambda _: failed.set()
        self.server = server
        await server.start(self.node.name, PORT)
        await failed.wait()
        database.release()
        self._ended(self.node, "its files could not be written")

    def _begin_again(self, database: _Database) -> None:
        """Have the log begin with what a restored copy holds."""
        nodes = database.tree.nodes
        paths = ("/controller_epoch", *(p for p in sorted(nodes) if p != "/controller_epoch"))
        self._restored(self._writes)
        self._writes.begin_again(
            LoggedWrite(nodes[p].mzxid, 0, "create", p, nodes[p].data, nodes[p].version)
            for p in paths
            if p in nodes
        )
        self._older = False

    # Deaths.

    def stop(self, *, power_loss: bool = False, after_operations: int | None = None) -> None:
        """End the server; in memory alone it only stops listening, and keeps what it knows."""
        self._stopped = True
        if not self.durable:
            assert self.server is not None
            self.node.loop.call_soon(self.server.stop)
        elif after_operations is not None:
            self.node.crash_at_operation(after_operations, power_loss=power_loss)
        else:
            self.node.crash(power_loss=power_loss)

    def start(self) -> None:
        """Start it again with all that it acknowledged; each session has its whole timeout."""
        if not self._stopped:
            return
        self._stopped = False
        if self.durable:
            self.node.files.last_operations = None
            self.node.boot_if_down()
        else:
            assert self.server is not None
            self.node.loop.create_task(self.server.start(self.node.name, PORT))

    def restore(self, copy: DiskCopy) -> None:
        """Put an older copy of its files in place of those it has, and start it (F51)."""
        self.node.crash()
        self.node.disk.restore(copy)
        self._older = True
        self.node.boot()
