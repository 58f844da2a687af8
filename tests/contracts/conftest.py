"""Servers for the contract tests: ours, in memory and in files, and a real one, all over TCP."""

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from ottla.log.files import OsFiles
from ottla.net import runtime
from ottla.sim.world import simulate
from ottla.zookeeper.database import Database
from ottla.zookeeper.embedded import start_zookeeper
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.server_connection import Limits
from ottla.zookeeper.session import Session, SessionEvent, SessionState
from ottla.zookeeper.store import ensure_chroot
from support.cluster import free_ports

TICK_MS = 100
SESSION_MS = 20 * TICK_MS
CONNECT_MS = 20_000
_numbers = itertools.count()


def on_asyncio(main):
    async def start():
        return await main(runtime.real_world(OsFiles()))

    return asyncio.run(start())


def on_uvloop(main):
    pytest.importorskip("uvloop")

    async def start():
        return await main(runtime.real_world(OsFiles()))

    return runtime.run(start)


def on_simulation(main):
    return simulate("contract", lambda _, node: main(node.world))


@pytest.fixture(params=[on_asyncio, on_uvloop, on_simulation])
def run(request):
    """Return what runs a coroutine function with a world: the machine's, twice, and a simulated."""
    return request.param


class TwinServer:
    """The in-memory ZooKeeper on a loop and thread of its own, as far away as the real one."""

    kind = "memory"

    def __init__(self, folder=None) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.zookeeper = asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(20)
        self.connect_string = self.zookeeper.connect_string

    async def _start(self) -> MemoryZooKeeper:
        world = runtime.real_world(OsFiles(), seed=1)
        database = None
        if self.folder is not None:
            database = Database(world, str(self.folder), snapshot_transactions=500)
            database.open()
        zookeeper = MemoryZooKeeper(
            world,
            tick_ms=TICK_MS,
            max_session_timeout_ms=20_000,
            database=database,
            limits=Limits() if database else None,
        )
        return await zookeeper.start()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.zookeeper.stop)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)
        self.loop.close()


class KeptServer(TwinServer):
    """The same with ZooKeeper's files below it, and a snapshot every 500 transactions."""

    kind = "kept"

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.zookeeper.shut_down(), self.loop).result(20)
        super().stop()


class RealServer:
    kind = "real"

    def __init__(self, folder) -> None:
        self.process = start_zookeeper(
            folder,
            free_ports(1)[0],  # no outgoing connection takes it before the JVM listens
            heap_mb=96,
            tick_ms=TICK_MS,
            max_session_timeout_ms=20_000,
            fsync=False,
        )
        self.connect_string = self.process.connect_string

    def stop(self) -> None:
        self.process.stop()


class FlakyNetwork:
    """The real network with faults on the client's side."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.refuses = False
        self.swallows = False
        self.marks: tuple[bytes, ...] = ()
        self.links: list[_Link] = []

    async def connect(self, host, port, factory, *, timeout_s):
        if self.refuses:
            raise ConnectionRefusedError("refused by the test")
        link = _Link(self, factory())
        self.links.append(link)
        transport, _ = await self.inner.connect(host, port, lambda: link, timeout_s=timeout_s)
        return transport, link.protocol

    async def listen(self, host, port, factory):
        return await self.inner.listen(host, port, factory)

    def lose_reply_to(self, *marks: bytes) -> Callable[[], bool]:
        """Lose what comes back once bytes with all `marks` went out; return whether that was."""
        self.marks = marks
        return lambda: not self.marks and not self.swallows

    def on_write(self, data: bytes) -> None:
        if self.marks and all(mark in data for mark in self.marks):
            self.marks = ()
            self.swallows = True

    def cut(self) -> None:
        """Cut every connection at once."""
        for link in self.links:
            link.transport.abort()


class _Link(asyncio.Protocol):
    def __init__(self, network: FlakyNetwork, protocol: asyncio.Protocol) -> None:
        self.network = network
        self.protocol = protocol

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.protocol.connection_made(_Overheard(self.network, transport))

    def data_received(self, data: bytes) -> None:
        if self.network.swallows:
            self.network.swallows = False
            self.transport.abort()
        else:
            self.protocol.data_received(data)

    def connection_lost(self, exc) -> None:
        self.network.links.remove(self)
        self.protocol.connection_lost(exc)


class _Overheard(asyncio.Transport):
    def __init__(self, network: FlakyNetwork, transport: asyncio.Transport) -> None:
        super().__init__()
        self.network = network
        self.transport = transport

    def write(self, data) -> None:
        self.network.on_write(data)
        self.transport.write(data)

    def abort(self) -> None:
        self.transport.abort()

    def close(self) -> None:
        self.transport.close()


class Play:
    """What a scenario gets: sessions in a chroot of its own, over a network with faults."""

    tick_ms = TICK_MS
    session_ms = SESSION_MS

    def __init__(self, server) -> None:
        self.kind = server.kind
        self.address = server.connect_string
        self.connect_string = f"{self.address}/play-{next(_numbers)}"
        self.network = FlakyNetwork(runtime.real_world(None).network)
        self.world = replace(runtime.real_world(None, seed=7), network=self.network)
        self.sessions: list[Session] = []

    async def session(
        self,
        timeout_ms: int = 10_000,
        on_event: Callable[[SessionEvent], None] | None = None,
        *,
        connect_string: str | None = None,
        steady: bool = False,
    ) -> Session:
        """Open a session; a `steady` one does not feel the network's faults."""
        session = await Session.connect(
            runtime.real_world(None) if steady else self.world,
            connect_string or self.connect_string,
            timeout_ms,
            CONNECT_MS,
            on_event,
        )
        self.sessions.append(session)
        return session

    async def until(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.005)

    async def run(self, scenario: Callable[["Play"], Awaitable[None]]) -> None:
        await ensure_chroot(self.world, self.connect_string, 10_000, CONNECT_MS)
        try:
            async with asyncio.timeout(60):
                await scenario(self)
        finally:
            self.network.refuses = self.network.swallows = False
            for session in self.sessions:
                if session.state is SessionState.CONNECTED:
                    await session.close()


@pytest.fixture(scope="session")
def memory_server():
    server = TwinServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kept_server(tmp_path_factory):
    server = KeptServer(tmp_path_factory.mktemp("kept"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def real_server(tmp_path_factory):
    server = RealServer(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.stop()


@pytest.fixture(params=["memory", "kept", pytest.param("real", marks=pytest.mark.java)])
def server(request):
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
def run_on():
    """Run a scenario against one server."""
    return lambda server, scenario: asyncio.run(Play(server).run(scenario))


@pytest.fixture
def play(server) -> Callable[[Callable[[Play], Awaitable[None]]], None]:
    """Run a scenario against the in-memory ZooKeeper, then the same against a real ZooKeeper."""
    return lambda scenario: asyncio.run(Play(server).run(scenario))
