"""A world without a machine: time that jumps to the next timer, sockets that are lists."""

import asyncio
import collections
import random
from collections.abc import Awaitable, Callable

import pytest

from ottla.model.ports import World
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.session import Session

LATENCY_S = 0.001


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while code runs and jumps while nothing does."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        select = self._selector.select

        def jump(timeout):
            assert timeout is not None, "everybody waits and nobody will wake them"
            self.now_s += timeout
            return select(0)

        self._selector.select = jump

    def time(self) -> float:
        return self.now_s

    def stall(self, seconds: float) -> None:
        """Let time pass as if code had kept the loop busy."""
        self.now_s += seconds


class StillClock:
    slice_s = 0.008

    def __init__(self, loop: StillLoop) -> None:
        self.loop = loop

    def monotonic(self) -> float:
        return self.loop.now_s

    def wall_ms(self) -> int:
        return int(self.loop.now_s * 1000)


class StillTransport(asyncio.Transport):
    def __init__(self, network: "StillNetwork") -> None:
        super().__init__()
        self.network = network
        self.protocol: asyncio.Protocol | None = None
        self.peer: StillTransport | None = None
        self.open = True
        self.inbox = collections.deque()  # timers of the same moment have no order of their own

    def write(self, data) -> None:
        if self.open and not self.network.black_hole:
            self.peer.inbox.append(bytes(data))
            self.network.later(self.peer.deliver)

    def deliver(self) -> None:
        data = self.inbox.popleft()
        if data is None:
            self.end()
        elif self.open and not self.network.black_hole:
            self.protocol.data_received(data)

    def close(self) -> None:
        self.peer.inbox.append(None)
        self.network.later(self.peer.deliver)
        self.end(later=True)

    abort = close

    def end(self, *, later: bool = False) -> None:
        if self.open:
            self.open = False
            if later:
                asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
            else:
                self.protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return not self.open


class StillListener:
    def __init__(self, network: "StillNetwork", port: int) -> None:
        self.network = network
        self.port = port

    def close(self) -> None:
        self.network.listeners.pop(self.port, None)


class StillNetwork:
    def __init__(self) -> None:
        self.listeners: dict[int, Callable[[], asyncio.Protocol]] = {}
        self.black_hole = False
        self.latency_s = LATENCY_S
        self.attempts: list[int] = []
        self.transports: list[StillTransport] = []

    def later(self, call, *arguments) -> None:
        asyncio.get_running_loop().call_later(self.latency_s, call, *arguments)

    async def connect(self, host, port, factory, *, timeout_s):
        self.attempts.append(port)
        await asyncio.sleep(self.latency_s)
        if self.black_hole:
            await asyncio.sleep(timeout_s)
            raise TimeoutError
        if port not in self.listeners:
            raise ConnectionRefusedError(f"nobody listens on {port}")
        ours, theirs = StillTransport(self), StillTransport(self)
        ours.peer, theirs.peer = theirs, ours
        theirs.protocol = self.listeners[port]()
        ours.protocol = factory()
        self.transports.append(ours)
        theirs.protocol.connection_made(theirs)
        ours.protocol.connection_made(ours)
        return ours, ours.protocol

    async def listen(self, host, port, factory):
        port = port or 2181 + len(self.listeners)
        self.listeners[port] = factory
        return StillListener(self, port)


class Still:
    """What a scenario gets."""

    def __init__(self, loop: StillLoop) -> None:
        self.loop = loop
        self.network = StillNetwork()
        self.world = World(StillClock(loop), random.Random(5), None, self.network, None)
        self.server = MemoryZooKeeper(self.world)

    async def session(self, timeout_ms: int = 6000, on_event=None, **arguments) -> Session:
        hosts = arguments.pop("hosts", self.server.connect_string)
        connect_ms = arguments.pop("connect_ms", 5000)
        return await Session.connect(self.world, hosts, timeout_ms, connect_ms, on_event)


@pytest.fixture
def still() -> Callable[[Callable[[Still], Awaitable[None]]], None]:
    """Run a scenario in a still world with an in-memory server that is up."""

    def run(scenario: Callable[[Still], Awaitable[None]]) -> None:
        async def whole(loop: StillLoop) -> None:
            z = Still(loop)
            await z.server.start()
            await scenario(z)
            z.server.stop()

        loop = StillLoop()
        try:
            loop.run_until_complete(asyncio.wait_for(whole(loop), 100_000))
        finally:
            loop.close()

    return run
