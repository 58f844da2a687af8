"""A transport of our own for protocol tests: records what is written, obeys pause and resume."""

import asyncio
import random

import pytest

from ottla.model.ports import World
from ottla.net.limits import FrameRules, ServerLimits
from ottla.net.server import Server


class FakeTransport(asyncio.Transport):
    """Give it a protocol with `attach`, bytes with `receive`; read `written`."""

    def __init__(self, peer=("10.0.0.9", 4711)):
        super().__init__()
        self.peer = peer
        self.protocol = None
        self.written = []
        self.writes = 0
        self.reading = True
        self.closing = False
        self.aborted = False
        self.stuck = False
        self.high = 65536
        self.stuck_bytes = 0
        self.refused_input = b""

    def attach(self, protocol):
        self.protocol = protocol
        protocol.connection_made(self)
        return protocol

    def receive(self, data, chunk=1 << 30):
        """Deliver bytes as a receive loop would; what is not read waits, as in a kernel."""
        data, at = memoryview(self.refused_input + bytes(data)), 0
        self.refused_input = b""
        while at < len(data):
            if not self.reading or self.closing:
                self.refused_input = bytes(data[at:])
                return
            view = self.protocol.get_buffer(-1)
            count = min(len(view), len(data) - at, chunk)
            view[:count] = data[at : at + count]
            at += count
            self.protocol.buffer_updated(count)

    def output(self):
        return b"".join(self.written)

    def get_extra_info(self, name, default=None):
        return {"peername": self.peer, "sockname": ("10.0.0.1", 9092)}.get(name, default)

    def write(self, data):
        assert not self.aborted
        self.writes += 1
        self.written.append(bytes(data))
        if self.stuck:
            self.stuck_bytes += len(data)
            if self.stuck_bytes > self.high:
                self.protocol.pause_writing()

    def writelines(self, parts):
        self.write(b"".join(parts))

    def set_write_buffer_limits(self, high=None, low=None):
        self.high = high

    def get_write_buffer_size(self):
        return self.stuck_bytes

    def drain(self):
        self.stuck = False
        self.stuck_bytes = 0
        self.protocol.resume_writing()

    def pause_reading(self):
        assert self.reading
        self.reading = False

    def resume_reading(self):
        assert not self.reading
        self.reading = True

    def is_closing(self):
        return self.closing

    def close(self):
        if not self.closing:
            self.closing = True
            self.protocol.connection_lost(None)

    def abort(self):
        self.aborted = True
        self.close()


class HandClock:
    """Time moves when a test says so."""

    slice_s = 0.008

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def wall_ms(self):
        return 0


class FakeListener:
    port = 4242

    def close(self):
        pass


class FakeNetwork:
    """Keeps the factory, so that a test makes the connections by hand."""

    async def listen(self, host, port, factory):
        self.factory = factory
        return FakeListener()

    async def connect(self, host, port, factory, *, timeout_s):
        transport = FakeTransport((host, port))
        self.transport = transport
        return transport, transport.attach(factory())


RULES = FrameRules(
    pipelined=b"\x00\x00",
    control_plane=frozenset({b"\x00\x04", b"\x00\x05", b"\x00\x06"}),
    large_responses=frozenset({b"\x00\x01", b"\x00\x03"}),
)


class Bench:
    """A server whose world is in the test's hands."""

    def __init__(self, dispatch, **limits):
        self.clock = HandClock()
        self.network = FakeNetwork()
        self.world = World(self.clock, random.Random(1), None, self.network, None)
        self.server = Server(self.world, "h", 0, dispatch, ServerLimits(**limits), rules=RULES)

    async def start(self):
        await self.server.start()
        return self

    def connect(self, peer=("10.0.0.9", 4711)):
        transport = FakeTransport(peer)
        transport.attach(self.network.factory())
        return transport

    def later(self, seconds):
        self.clock.now += seconds
        self.server._sweep_timer.cancel()
        self.server._sweep()


@pytest.fixture
def fake_transport():
    return FakeTransport


@pytest.fixture
def bench():
    return Bench


@pytest.fixture
def run():
    """Run a coroutine function on asyncio's loop; nothing in it may take real time."""

    def go(main):
        return asyncio.run(main())

    return go
