"""What the Network port promises: the same tests on the machine's sockets and on simulated ones."""

import asyncio
import errno

import pytest

IN_TIME_S = 5.0


class Recorder(asyncio.Protocol):
    """Keeps what it is told; waits are bounded."""

    def __init__(self):
        self.data = bytearray()
        self.events = []
        self.changed = asyncio.Event()
        self.transport = None
        self.error = None

    def note(self, event):
        self.events.append(event)
        self.changed.set()

    def connection_made(self, transport):
        self.transport = transport
        self.note("made")

    def data_received(self, data):
        self.data += data
        self.changed.set()

    def eof_received(self):
        self.note("eof")
        return False

    def connection_lost(self, exc):
        self.error = exc
        self.note("lost")

    def pause_writing(self):
        self.note("pause")

    def resume_writing(self):
        self.note("resume")

    async def until(self, condition):
        async with asyncio.timeout(IN_TIME_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class BufferedRecorder(asyncio.BufferedProtocol):
    """Takes small bites into one buffer."""

    def __init__(self, size):
        self.buffer = bytearray(size)
        self.data = bytearray()
        self.changed = asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, nbytes):
        self.data += self.buffer[:nbytes]
        self.changed.set()

    until = Recorder.until


async def pair(world, factory=Recorder):
    """Return (listener, client protocol, server protocol), connected."""
    made = []
    arrived = asyncio.Event()

    def accept():
        made.append(factory())
        arrived.set()
        return made[-1]

    listener = await world.network.listen("127.0.0.1", 0, accept)
    _, client = await world.network.connect(
        "127.0.0.1", listener.port, Recorder, timeout_s=IN_TIME_S
    )
    async with asyncio.timeout(IN_TIME_S):
        await arrived.wait()
        while not getattr(made[0], "transport", None):
            await asyncio.sleep(0)
    return listener, client, made[0]


async def end(*things):
    for thing in things:
        thing.close()
    await asyncio.sleep(0.01)


def test_bytes_arrive_in_order_and_whole(run):
    async def main(world):
        listener, client, server = await pair(world)
        sent = bytearray()
        for i in range(200):
            part = bytes([i]) * (i * 37 % 5000)
            client.transport.write(part)
            sent += part
        client.transport.writelines([b"x", bytearray(b"y"), memoryview(b"z")])
        sent += b"xyz"
        await server.until(lambda: len(server.data) == len(sent))
        assert server.data == sent
        server.transport.write(b"back")
        await client.until(lambda: client.data == b"back")
        await end(client.transport, listener)

    run(main)


def test_a_buffered_protocol_gets_its_own_memory_filled(run):
    async def main(world):
        listener, client, server = await pair(world, lambda: BufferedRecorder(1000))
        sent = bytes(range(256)) * 100
        client.transport.write(sent)
        await server.until(lambda: len(server.data) == len(sent))
        assert server.data == sent
        await end(client.transport, listener)

    run(main)


def test_addresses_mirror_each_other(run):
    async def main(world):
        listener, client, server = await pair(world)
        info = client.transport.get_extra_info
        assert info("peername")[1] == listener.port
        assert info("peername")[:2] == server.transport.get_extra_info("sockname")[:2]
        assert info("sockname")[:2] == server.transport.get_extra_info("peername")[:2]
        assert info("no such thing", 7) == 7
        await end(client.transport, listener)

    run(main)


def test_close_sends_what_was_written_then_ends_both_sides(run):
    async def main(world):
        listener, client, server = await pair(world)
        client.transport.write(bytes(1_000_000))
        client.transport.close()
        assert client.transport.is_closing()
        client.transport.write(b"too late")
        await server.until(lambda: "lost" in server.events)
        assert len(server.data) == 1_000_000
        assert server.events == ["made", "eof", "lost"]
        assert server.error is None
        await client.until(lambda: "lost" in client.events)
        await end(listener)

    run(main)


def test_abort_ends_at_once(run):
    async def main(world):
        listener, client, server = await pair(world)
        client.transport.abort()
        await client.until(lambda: "lost" in client.events)
        await server.until(lambda: "lost" in server.events)
        assert client.error is None
        await end(listener)

    run(main)


def test_a_reader_that_pauses_stops_the_writer(run):
    async def main(world):
        listener, client, server = await pair(world)
        server.transport.pause_reading()
        assert not server.transport.is_reading()
        client.transport.set_write_buffer_limits(high=10_000)
        total = 0
        async with asyncio.timeout(IN_TIME_S):
            while "pause" not in client.events:
                client.transport.write(bytes(100_000))
                total += 100_000
                await asyncio.sleep(0)
        assert client.transport.get_write_buffer_size() > 10_000
        assert "resume" not in client.events
        before = len(server.data)
        server.transport.resume_reading()
        await client.until(lambda: "resume" in client.events)
        await server.until(lambda: len(server.data) == total)
        assert before < total
        assert client.transport.get_write_buffer_size() == 0
        await end(client.transport, listener)

    run(main)


def test_r17_only_a_closed_port_refuses(run):
    async def main(world):
        listener, client, _ = await pair(world)
        host, port = "127.0.0.1", listener.port
        refuses = world.network.refuses
        assert not await refuses(host, port, timeout_s=IN_TIME_S)
        assert not await refuses("no-such-host.invalid", port, timeout_s=IN_TIME_S)
        for no_name in ("a..b", "a" * 64):
            assert not await refuses(no_name, port, timeout_s=IN_TIME_S)
            with pytest.raises(OSError):
                await world.network.connect(no_name, port, Recorder, timeout_s=IN_TIME_S)
        await end(client.transport, listener)
        assert await refuses(host, port, timeout_s=IN_TIME_S)

    run(main)


def test_nobody_listens(run):
    async def main(world):
        listener = await world.network.listen("127.0.0.1", 0, Recorder)
        port = listener.port
        listener.close()
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectionRefusedError):
            await world.network.connect("127.0.0.1", port, Recorder, timeout_s=IN_TIME_S)

    run(main)


def test_a_closed_listener_leaves_its_connections(run):
    async def main(world):
        listener, client, server = await pair(world)
        listener.close()
        await asyncio.sleep(0.01)
        client.transport.write(b"still here")
        await server.until(lambda: server.data == b"still here")
        await end(client.transport)

    run(main)


def test_an_address_is_taken_once(run):
    async def main(world):
        listener = await world.network.listen("127.0.0.1", 0, Recorder)
        with pytest.raises(OSError) as caught:
            await world.network.listen("127.0.0.1", listener.port, Recorder)
        assert caught.value.errno == errno.EADDRINUSE
        listener.close()
        await asyncio.sleep(0.01)
        again = await world.network.listen("127.0.0.1", listener.port, Recorder)
        assert again.port == listener.port
        again.close()

    run(main)


def test_unknown_hosts_are_an_os_error(run):
    async def main(world):
        with pytest.raises(OSError):
            await world.network.connect("no-such-host.invalid", 1, Recorder, timeout_s=IN_TIME_S)

    run(main)


def test_every_address_listens_for_an_empty_host(run):
    async def main(world):
        listener = await world.network.listen("", 0, Recorder)
        transport, _ = await world.network.connect(
            "127.0.0.1", listener.port, Recorder, timeout_s=IN_TIME_S
        )
        await end(transport, listener)

    run(main)


def test_small_messages_are_not_delayed(run):
    """TCP_NODELAY: forty ping-pongs of two writes each would take 1.6 s with Nagle's rule.

    Each time; without it a machine that stands still may make one of several tries as slow.
    """

    async def main(world):
        listener, client, server = await pair(world)
        took_s = []
        while len(took_s) < 5 and min(took_s, default=1.0) >= 1.0:
            began, before = world.clock.monotonic(), len(server.data)
            for i in range(40):
                client.transport.write(b"a")
                await asyncio.sleep(0)
                client.transport.write(b"b")
                wanted = before + 2 * (i + 1)
                await server.until(lambda wanted=wanted: len(server.data) == wanted)
            took_s.append(world.clock.monotonic() - began)
        assert min(took_s) < 1.0
        await end(client.transport, listener)

    run(main)


def test_a_protocol_that_fails_loses_its_connection_only(run):
    class Clumsy(Recorder):
        def data_received(self, data):
            raise ValueError("a bug")

    async def main(world):
        caught = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context))
        listener, client, _ = await pair(world, Clumsy)
        client.transport.write(b"x")
        await client.until(lambda: "lost" in client.events)
        assert isinstance(caught[0]["exception"], ValueError)
        await end(listener)

    run(main)
