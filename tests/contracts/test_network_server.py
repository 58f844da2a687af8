"""The server on real sockets (asyncio, uvloop) and on simulated ones: the same behaviour."""

import asyncio
import struct

from ottla.net.connection import Pending
from ottla.net.limits import FrameRules
from ottla.net.server import Server, ServerLimits

IN_TIME_S = 10.0
PRODUCE = b"\x00\x00"
FETCH = b"\x00\x01"


def framed(*bodies):
    return b"".join(struct.pack(">i", len(b)) + b for b in bodies)


class Caller(asyncio.Protocol):
    """A client that keeps whole answers."""

    def __init__(self):
        self.buffer = bytearray()
        self.answers = []
        self.lost = False
        self.changed = asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        while len(self.buffer) >= 4:
            (size,) = struct.unpack_from(">i", self.buffer)
            if len(self.buffer) < 4 + size:
                break
            self.answers.append(bytes(self.buffer[4 : 4 + size]))
            del self.buffer[: 4 + size]
        self.changed.set()

    def connection_lost(self, exc):
        self.lost = True
        self.changed.set()

    async def until(self, condition):
        async with asyncio.timeout(IN_TIME_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


async def serve(world, dispatch, **limits):
    server = Server(
        world,
        "127.0.0.1",
        0,
        dispatch,
        ServerLimits(**limits),
        rules=FrameRules(pipelined=PRODUCE),
    )
    await server.start()
    return server


async def call(world, server):
    _, caller = await world.network.connect("127.0.0.1", server.port, Caller, timeout_s=IN_TIME_S)
    return caller


def echo(connection, frame):
    return (frame,)


def test_small_and_large_frames_come_back_in_order(run):
    async def main(world):
        server = await serve(world, echo)
        caller = await call(world, server)
        sizes = [0, 1, 100, 70_000, 65_532, 3_000_000, 5, 1_048_577, 9]
        bodies = [bytes([i]) * size for i, size in enumerate(sizes)]
        for body in bodies:
            caller.transport.write(framed(body))
        await caller.until(lambda: len(caller.answers) == len(bodies))
        assert caller.answers == bodies
        assert server.budget.used_bytes == 0
        await server.close()
        await caller.until(lambda: caller.lost)

    run(main)


def test_late_answers_keep_the_order_of_the_questions(run):
    async def main(world):
        loop = asyncio.get_running_loop()

        def dispatch(connection, frame):
            pending = connection.pending(pipelined=frame[:2] == PRODUCE)
            loop.call_later(0.002 * frame[2], pending.complete, [bytes(frame)])
            return pending

        server = await serve(world, dispatch)
        caller = await call(world, server)
        questions = [PRODUCE + bytes([9 - i]) for i in range(9)] + [FETCH + b"\x01"] * 2
        caller.transport.write(framed(*questions))
        await caller.until(lambda: len(caller.answers) == len(questions))
        assert caller.answers == questions
        await server.close()

    run(main)


def test_a_reader_that_stops_holds_back_only_itself(run):
    """Fault F30."""

    async def main(world):
        served = []

        def dispatch(connection, frame):
            served.append(connection.id)
            return [bytes(100_000)]

        server = await serve(world, dispatch, outbound_high_bytes=200_000)
        slow, quick = await call(world, server), await call(world, server)
        slow.transport.pause_reading()
        slow.transport.write(framed(*[FETCH] * 1000))
        quick.transport.write(framed(*[FETCH] * 20))
        await quick.until(lambda: len(quick.answers) == 20)
        await asyncio.sleep(0.1)
        assert served.count(1) < 300
        slow.transport.resume_reading()
        await slow.until(lambda: len(slow.answers) == 1000)
        await server.close()

    run(main)


def test_strangers_are_shown_the_door(run, caplog):
    """Fault F31."""
    took_s = []

    async def main(world):
        server = await serve(world, echo)
        began = world.clock.monotonic()
        for hello in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\xff\xff\xff\xff"):
            caller = await call(world, server)
            caller.transport.write(framed(b"before") + hello)
            await caller.until(lambda caller=caller: caller.lost)
            assert caller.answers == [b"before"]
        took_s.append(world.clock.monotonic() - began)
        assert server.refused_count == 3
        await server.close()

    run(main)
    assert 1 <= caplog.text.count("connection closed") <= 1 + took_s[0], "one line a second"


def test_idle_and_trickling_connections_are_closed(run):
    """Fault F29."""

    async def main(world):
        server = await serve(world, echo, idle_ms=400, request_read_deadline_ms=200)
        idle, trickle = await call(world, server), await call(world, server)
        trickle.transport.write(struct.pack(">i", 1000) + b"x")
        began = world.clock.monotonic()
        await trickle.until(lambda: trickle.lost)
        await idle.until(lambda: idle.lost)
        assert world.clock.monotonic() - began < 20
        assert not server.connections
        await server.close()

    run(main)


def test_connections_over_the_limit_are_refused(run):
    """Fault F28."""

    async def main(world):
        server = await serve(world, echo, max_connections_per_ip=2)
        callers = [await call(world, server) for _ in range(3)]
        await callers[2].until(lambda: callers[2].lost)
        callers[0].transport.close()
        await callers[0].until(lambda: callers[0].lost)
        await asyncio.sleep(0.05)
        again = await call(world, server)
        again.transport.write(framed(b"hello"))
        await again.until(lambda: again.answers == [b"hello"])
        await server.close()

    run(main)


def test_a_storm_is_read_at_the_rate(run):
    """Fault F28: the pause begins before the first byte is read."""

    async def main(world):
        server = await serve(world, echo, max_connection_rate=20.0)
        began = world.clock.monotonic()  # a slow machine's callers come at this rate by themselves
        callers = [await call(world, server) for _ in range(25)]
        for caller in callers:
            caller.transport.write(framed(b"hello"))
        await callers[0].until(lambda: callers[0].answers)
        for caller in callers:
            await caller.until(lambda caller=caller: caller.answers)
        assert world.clock.monotonic() - began > 0.1
        await server.close()

    run(main)


def test_throttled_connections_wait(run):
    """The first request is answered at once: in one of several tries, a machine may stand still."""

    async def main(world):
        def dispatch(connection, frame):
            connection.throttle(600)
            return (frame,)

        server = await serve(world, dispatch)
        first_s = []
        while len(first_s) < 5 and min(first_s, default=0.6) >= 0.59:
            caller = await call(world, server)
            began = world.clock.monotonic()
            caller.transport.write(framed(b"a", b"b"))
            await caller.until(lambda caller=caller: len(caller.answers) >= 1)
            first_s.append(world.clock.monotonic() - began)
            await caller.until(lambda caller=caller: len(caller.answers) == 2)
            assert world.clock.monotonic() - began > 0.59
        assert min(first_s) < 0.59
        await server.close()

    run(main)


def test_clients_that_vanish_drop_what_was_parked_for_them(run):
    async def main(world):
        dropped = asyncio.Event()

        class Watched(Pending):
            def drop(self):
                dropped.set()

        def dispatch(connection, frame):
            return Watched(connection, pipelined=False)

        server = await serve(world, dispatch)
        caller = await call(world, server)
        caller.transport.write(framed(FETCH))
        await asyncio.sleep(0.05)
        caller.transport.abort()
        async with asyncio.timeout(IN_TIME_S):
            await dropped.wait()
        await server.close()

    run(main)
