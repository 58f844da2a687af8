"""Our ZooKeeper server crashes at each of its file operations: what was acknowledged stays.

Power is lost half of the time. Each of its fsyncs and writes fails once, or several times in a row,
too: the server exits and is started again on the same machine, which loses power later. What a
second client has read counts as acknowledged, too: it may have acted by it.
`test_zookeeper_crashed_disks.py` has a real ZooKeeper open the disks.
"""

import asyncio
import contextlib
import errno
import random

import pytest

from ottla.model.errors import StartupError
from ottla.sim.files import DiskFault, SimFiles
from ottla.sim.world import Simulation
from ottla.zookeeper import txn_log
from ottla.zookeeper.database import Database
from ottla.zookeeper.errors import ConnectionLossError, NodeExistsError, NoNodeError
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.operations import Check, Create, Set
from ottla.zookeeper.session import Session

WRITES = 20
PORT = 2181


async def serve(world):
    database = Database(world, "/data", snapshot_transactions=12)
    database.open()
    server = MemoryZooKeeper(world, tick_ms=1000, database=database)
    ended = asyncio.Event()
    server.on_failure = lambda _: ended.set()
    await server.start("zk", PORT)
    await ended.wait()


async def serve_if_it_starts(world):
    """As a process does: what cannot be opened ends it with one line."""
    with contextlib.suppress(StartupError):
        await serve(world)


class Run:
    """One simulation with one crash, or two: the second while the server opens its files."""

    main = staticmethod(serve)

    def __init__(self, seed: int, operation: int, again: int | None) -> None:
        self.simulation = Simulation(f"zookeeper-{seed}")
        self.node = self.simulation.node("zk")
        self.rng = random.Random(seed)
        self.operation, self.again = operation, again
        self.acknowledged: dict[str, int] = {}
        self.seen = 0
        self.crashes = 0

    def boot(self) -> None:
        if not self.node.up:
            self.crashes += 1
            self.node.boot()
            if self.again is not None:
                power_loss = self.rng.random() < 0.5
                self.node.crash_at_operation(self.again, power_loss=power_loss)
                self.again = None

    async def do(self, session, call):
        """Repeat until there is a reply; an operation may have been done before."""
        while True:
            try:
                await session.wait_connected()
                return await call()
            except ConnectionLossError:
                await asyncio.sleep(0.05)
                self.boot()
            except NodeExistsError:
                return None

    async def write(self, world) -> None:
        session = await Session.connect(world, f"zk:{PORT}", 20_000, 60_000)
        await self.do(session, lambda: session.create("/n"))
        await self.do(session, lambda: session.create("/r", b"0"))
        for i in range(1, WRITES + 1):
            path = f"/n/{i}"
            if i % 4 == 0:
                ops = [Create(path, b"m" * 700), Set("/r", str(i).encode()), Check("/n", -1)]
                await self.do(session, lambda ops=ops: session.multi_or_exists(ops))
            else:
                data = bytes([i]) * self.rng.choice([0, 10, 3000])
                await self.do(session, lambda p=path, d=data, e=i % 3 == 0: session.create(p, d, e))
                await self.do(session, lambda v=i: session.set("/r", str(v).encode()))
            self.acknowledged[path] = i
            if i % 2 == 0:  # one batch of several transactions, over more pages than one
                paths = [f"/n/{i}-{j}" for j in range(4)]
                calls = [lambda p=p: session.create(p, b"p" * 2500) for p in paths]
                await asyncio.gather(*[self.do(session, call) for call in calls])
                self.acknowledged |= dict.fromkeys(paths, i)
        self.session_id = session.session_id

    async def read(self, world) -> None:
        session = await Session.connect(world, f"zk:{PORT}", 20_000, 60_000)
        while max(self.acknowledged.values(), default=0) < WRITES:
            try:
                await session.wait_connected()
                value = int((await session.get("/r"))[0])
                assert value >= self.seen, "what was read before is gone"
                self.seen = value
            except (ConnectionLossError, NoNodeError):
                pass
            await asyncio.sleep(0.003)

    def run(self) -> Database:
        with self.simulation:
            self.node.boot(self.main)
            self.begin()
            client = self.simulation.node("client")

            async def both():
                self.simulation_boot = asyncio.create_task(self.keep_booted())
                await asyncio.gather(self.write(client.world), self.read(client.world))
                self.simulation_boot.cancel()

            client.call(both(), within_s=600)
            self.node.crash(power_loss=True)
            vars(self.node.disk).pop("fault", None)
            database = self.opened()
        tree = database.tree
        assert set(self.acknowledged) <= set(tree.nodes)
        assert int(tree.nodes["/r"].data) == WRITES >= self.seen
        owned = {f"/n/{i}" for i in range(3, WRITES + 1, 3) if i % 4}
        assert tree.ephemerals[self.session_id] == owned
        assert self.session_id in database.sessions
        return database

    def begin(self) -> None:
        self.node.crash_at_operation(self.operation, power_loss=self.rng.random() < 0.7)

    async def keep_booted(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            self.boot()

    def opened(self) -> Database:
        class Only:
            files = SimFiles(self.node.disk)

        database = Database(Only, "/data")
        database.open()
        return database


class FailingRun(Run):
    """The disk fails at one operation of a kind, and at a few after it; then power is lost.

    An fsync that fails drops what it was to write: what is read stays in memory until the power
    loss, and is not on the disk. The power loss comes after so many more file operations.
    """

    main = staticmethod(serve_if_it_starts)

    def __init__(self, kind: str, operation: int) -> None:
        super().__init__(operation, operation, None)
        self.kind = kind
        self.failed = False

    def begin(self) -> None:
        disk, count, times = self.node.disk, 0, self.rng.choice([1, 1, 2, 3])
        real = disk.fault
        disk.fail("/nowhere", ())  # writes ask only where there is a fault

        def fault(operation: str, path: str) -> DiskFault | None:
            nonlocal count
            if operation == self.kind:
                count += 1
                if self.operation < count <= self.operation + times:
                    self.failed = True
                    error = errno.EIO if self.rng.random() < 0.5 else errno.ENOSPC
                    return DiskFault("", frozenset(), error, torn=True, drops=True)
            return real(operation, path)

        disk.fault = fault

    def boot(self) -> None:
        if not self.node.up:
            self.crashes += 1
            self.node.boot()
            if self.failed and self.rng.random() < 0.7:
                power_loss = self.rng.random() < 0.7
                self.node.crash_at_operation(self.rng.randrange(120), power_loss=power_loss)


@pytest.fixture(autouse=True)
def multi_or_exists(monkeypatch):
    """A multi whose reply was lost was done if its znode is there."""

    async def once(session, ops):
        if await session.exists(ops[0].path) is None:
            await session.multi(ops)

    monkeypatch.setattr(Session, "multi_or_exists", once, raising=False)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_crash_at_every_file_operation_loses_nothing():
    crashes, operation = 0, 0
    while True:
        again = operation % 7 if operation % 3 == 0 else None
        run = Run(operation, operation, again)
        run.run()
        if not run.crashes:
            break
        crashes += run.crashes
        operation += 1
    assert operation > 100
    assert crashes > operation


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["fsync", "write"])
def test_a_failure_of_every_fsync_and_write_loses_nothing(kind, monkeypatch):
    monkeypatch.setattr(txn_log, "PREALLOCATED_BYTES", 16 << 10)  # so that files grow
    crashes, operation = 0, 0
    while True:
        run = FailingRun(kind, operation)
        run.run()
        if not run.failed:
            break
        crashes += run.crashes
        operation += 1
    assert operation > 70
    assert crashes > operation
