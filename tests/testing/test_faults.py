"""Faults of the network and of files, without any broker: what is held back, cut, refused."""

import asyncio
import errno
import os

import pytest
import uvloop

from ottla.net.faults import HELD_BYTES, Link
from ottla.testing.faults import FaultLayer, Rules

LOOPS = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
DROP, CUT, SLOW = Link("drop"), Link("cut"), Link("slow", 0.6)


class Peer(asyncio.Protocol):
    """Keeps what it gets."""

    def __init__(self):
        self.got = b""
        self.transport = None
        self.lost = asyncio.get_running_loop().create_future()
        self.paused = 0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.got += data

    def connection_lost(self, exc):
        if not self.lost.done():
            self.lost.set_result(exc)

    def pause_writing(self):
        self.paused += 1

    def resume_writing(self):
        self.paused -= 1


class BufferedPeer(asyncio.BufferedProtocol):
    """The same with a buffer of its own, as brokers have it."""

    def __init__(self):
        self.inner = Peer()
        self.lost = self.inner.lost
        self.buffer = bytearray(1000)

    @property
    def got(self):
        return self.inner.got

    @property
    def transport(self):
        return self.inner.transport

    def connection_made(self, transport):
        self.inner.connection_made(transport)

    def connection_lost(self, exc):
        self.inner.connection_lost(exc)

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, nbytes):
        self.inner.got += bytes(self.buffer[:nbytes])


class Pair:
    """Two ends: `here` opened the connection through a layer, `there` accepted it through one."""

    async def open(self, kind=Peer):
        self.server_layer = FaultLayer(0, 8)
        self.client_layer = FaultLayer(0, 8)
        accepted = asyncio.get_running_loop().create_future()

        def accept():
            peer = kind()
            if not accepted.done():
                accepted.set_result(peer)
            return peer

        network = self.client_layer.network
        self.listener = await self.server_layer.network.listen("127.0.0.1", 0, accept)
        self.port = self.listener.port
        self.address = f"127.0.0.1:{self.port}"
        _, self.here = await network.connect("127.0.0.1", self.port, kind, timeout_s=20)
        self.there = await asyncio.wait_for(accepted, 20)
        await self.came(lambda: self.there.transport)
        return self

    def faulted(self, link):
        self.client_layer.apply(Rules({self.address: link} if link else {}))

    async def came(self, condition, timeout_s=20.0):
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.005)


def in_loop(loop_factory, main):
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@LOOPS
@pytest.mark.parametrize("kind", [Peer, BufferedPeer])
def test_a_drop_holds_both_directions_back_and_loses_nothing(loop_factory, kind):
    async def main():
        pair = await Pair().open(kind)
        pair.here.transport.write(b"1")
        pair.there.transport.write(b"a")
        await pair.came(lambda: pair.there.got == b"1" and pair.here.got == b"a")
        pair.faulted(DROP)
        pair.here.transport.write(b"2")
        pair.here.transport.writelines([b"3", memoryview(b"4")])
        pair.there.transport.write(b"b")
        await asyncio.sleep(0.1)
        assert (pair.there.got, pair.here.got) == (b"1", b"a")
        pair.faulted(None)
        pair.here.transport.write(b"5")
        await pair.came(lambda: pair.there.got == b"12345" and pair.here.got == b"ab")

    in_loop(loop_factory, main)


@LOOPS
@pytest.mark.parametrize("way", ["close", "abort"])
def test_the_end_of_a_dropped_connection_is_not_seen_on_the_other_side(loop_factory, way):
    async def main():
        pair = await Pair().open()
        pair.faulted(DROP)
        getattr(pair.here.transport, way)()
        assert await asyncio.wait_for(pair.here.lost, 20) is None
        await asyncio.sleep(0.1)
        assert not pair.there.lost.done()
        pair.faulted(None)
        await asyncio.wait_for(pair.there.lost, 20)

    in_loop(loop_factory, main)


@LOOPS
def test_a_cut_ends_connections_and_refuses_new_ones(loop_factory):
    async def main():
        pair = await Pair().open()
        pair.faulted(CUT)
        await asyncio.wait_for(pair.here.lost, 20)
        await asyncio.wait_for(pair.there.lost, 20)
        network = pair.client_layer.network
        with pytest.raises(OSError, match=os.strerror(errno.EHOSTUNREACH)):
            await network.connect("127.0.0.1", pair.port, Peer, timeout_s=20)
        assert not await network.refuses("127.0.0.1", pair.port, timeout_s=0.2)
        pair.listener.close()
        await asyncio.sleep(0.05)
        assert not await network.refuses("127.0.0.1", pair.port, timeout_s=0.2), "no proof of death"
        pair.faulted(None)
        assert await network.refuses("127.0.0.1", pair.port, timeout_s=20)

    in_loop(loop_factory, main)


@LOOPS
def test_a_connection_is_waited_for_while_all_is_dropped(loop_factory):
    async def main():
        pair = await Pair().open()
        pair.faulted(DROP)
        network = pair.client_layer.network
        with pytest.raises(TimeoutError):
            await network.connect("127.0.0.1", pair.port, Peer, timeout_s=0.1)
        connecting = asyncio.ensure_future(
            network.connect("127.0.0.1", pair.port, Peer, timeout_s=20)
        )
        await asyncio.sleep(0.05)
        pair.faulted(None)
        transport, _ = await connecting
        transport.close()

    in_loop(loop_factory, main)


@LOOPS
def test_what_is_slow_arrives_late_and_in_order(loop_factory):
    async def main():
        loop = asyncio.get_running_loop()
        pair = await Pair().open()
        pair.faulted(SLOW)
        began = loop.time()
        for part in (b"1", b"2", b"3"):
            pair.here.transport.write(part)
        await asyncio.sleep(0.1)
        # On a busy machine that may have taken longer than the delay.
        assert pair.there.got == b"" or loop.time() - began >= 0.59
        pair.there.transport.write(b"a")
        await pair.came(lambda: pair.there.got == b"123")
        assert loop.time() - began >= 0.59
        await pair.came(lambda: pair.here.got == b"a")
        pair.here.transport.write(b"4")
        pair.here.transport.close()
        await asyncio.wait_for(pair.there.lost, 20)
        assert pair.there.got == b"1234"

    in_loop(loop_factory, main)


@LOOPS
def test_whoever_writes_much_into_a_drop_is_asked_to_wait(loop_factory):
    async def main():
        pair = await Pair().open()
        pair.faulted(DROP)
        pair.here.transport.write(bytes(HELD_BYTES + 1))
        assert pair.here.paused == 1
        assert pair.here.transport.get_write_buffer_size() > HELD_BYTES
        pair.faulted(None)
        await pair.came(lambda: pair.here.paused == 0)
        await pair.came(lambda: len(pair.there.got) == HELD_BYTES + 1)

    in_loop(loop_factory, main)


@LOOPS
def test_of_clients_only_their_listener_is_faulted(loop_factory):
    async def main():
        layer = FaultLayer(0, 8)
        layer.network._clients_port = 0
        accepted = []

        def accept():
            accepted.append(Peer())
            return accepted[-1]

        clients = await layer.network.listen("127.0.0.1", 0, accept)
        layer.network._clients_port = -1
        brokers = await layer.network.listen("127.0.0.1", 0, accept)
        layer.apply(Rules(clients=DROP))
        outside = FaultLayer(0, 8).network
        _, client = await outside.connect("127.0.0.1", clients.port, Peer, timeout_s=20)
        _, broker = await outside.connect("127.0.0.1", brokers.port, Peer, timeout_s=20)
        client.transport.write(b"c")
        broker.transport.write(b"b")
        pair = Pair()
        await pair.came(lambda: [peer.got for peer in accepted] == [b"", b"b"])
        await asyncio.sleep(0.1)
        assert [peer.got for peer in accepted] == [b"", b"b"]
        layer.apply(Rules())
        await pair.came(lambda: [peer.got for peer in accepted] == [b"c", b"b"])

    in_loop(loop_factory, main)


@LOOPS
def test_the_death_of_a_process_ends_its_sockets_and_files(loop_factory, tmp_path):
    async def main():
        pair = await Pair().open()
        files = pair.server_layer.files
        file = files.open(str(tmp_path / "log"), create=True)
        lock = files.lock(str(tmp_path / "lock"))
        pair.server_layer.die()
        pair.there.transport.write(b"from the dead")
        await asyncio.wait_for(pair.here.lost, 20)
        assert pair.here.got == b""
        assert not pair.there.lost.done(), "whoever is dead sees nothing"
        network = pair.client_layer.network
        with pytest.raises(ConnectionRefusedError):
            await network.connect("127.0.0.1", pair.port, Peer, timeout_s=20)
        for use in (lambda: file.pwrite([b"x"], 0), lambda: files.write(str(tmp_path / "a"), b"")):
            with pytest.raises((OSError, ValueError)):
                use()
        assert FaultLayer(0, 8).files.lock(str(tmp_path / "lock")), "the lock was not released"
        lock.release()

    in_loop(loop_factory, main)


def test_files_do_not_grow_while_the_disk_is_full(tmp_path):
    async def main():
        layer = FaultLayer(0, 8)
        files = layer.files
        path = str(tmp_path / "log")
        file = files.open(path, create=True)
        file.pwrite([b"12345678"], 0)
        layer.apply(Rules(disk_full=True))
        file.pwrite([b"ab"], 2)  # what is there has its blocks
        grows = [
            lambda: file.pwrite([b"9"], 8),
            lambda: files.open(str(tmp_path / "new"), create=True),
            lambda: files.write(str(tmp_path / "new"), b"x"),
            lambda: files.write_durable(str(tmp_path / "new"), b"x"),
            lambda: files.write_atomic(str(tmp_path / "new"), b"x"),
            lambda: files.make_dirs(str(tmp_path / "folder")),
        ]
        for grow in grows:
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as caught:
                grow()
            assert caught.value.errno == errno.ENOSPC
        assert files.space(str(tmp_path))[1] == 0
        assert [p.name for p in tmp_path.iterdir()] == ["log"]
        files.remove(path)
        layer.apply(Rules())
        files.write(str(tmp_path / "new"), b"x")
        file.close()

    asyncio.run(main())
