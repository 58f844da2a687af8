"""The socket by which connections are cut: for its owner, bounded, and it heals by itself."""

import asyncio
import contextlib
import json
import socket
import stat

import pytest

from ottla.net import fault_socket
from ottla.net.fault_socket import MAX_REQUEST_BYTES, MOST_LINKS, FaultRequest, FaultSocket, ask
from ottla.net.faults import FaultyNetwork, Link
from ottla.net.runtime import RealNetwork

pytestmark = pytest.mark.timeout(30)
DROP = Link("drop")


class Peer(asyncio.Protocol):
    """Says `hello` to whoever connects, and keeps what it gets."""

    def __init__(self, says=b""):
        self.says, self.got = says, b""

    def connection_made(self, transport):
        transport.write(self.says)

    def data_received(self, data):
        self.got += data


def at(path, run):
    """Run `run(network, ask_it)` beside a socket at a path."""

    async def main():
        network = FaultyNetwork(RealNetwork())
        faults = FaultSocket(str(path), network)
        await faults.open()
        try:
            return await run(network, lambda request: asyncio.to_thread(ask, str(path), request, 5))
        finally:
            faults.close()

    return asyncio.run(main())


async def connected(network, port, timeout_s=0.3):
    _, peer = await network.connect("127.0.0.1", port, Peer, timeout_s=timeout_s)
    async with asyncio.timeout(10):
        while not peer.got:
            await asyncio.sleep(0.01)
    return peer.got


def test_what_is_cut_is_cut_and_heals_by_itself(tmp_path):
    path = tmp_path / "f.sock"

    async def run(network, ask_it):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, "nobody else may ask"
        real = RealNetwork()
        one = await real.listen("127.0.0.1", 0, lambda: Peer(b"hello"))
        other = await real.listen("127.0.0.1", 0, lambda: Peer(b"hello"))
        assert (await ask_it(FaultRequest())).links == {}
        links = {f"127.0.0.1:{one.port}": DROP}
        told = await ask_it(FaultRequest(links, 2.0))
        assert told.links == links
        assert 0 < told.left_s <= 2
        with pytest.raises(TimeoutError):
            await connected(network, one.port)
        assert await connected(network, other.port) == b"hello"
        assert await connected(network, one.port, 10) == b"hello", "it is over by itself"
        assert (await ask_it(FaultRequest())).links == {}
        await ask_it(FaultRequest(links))
        assert (await ask_it(FaultRequest({}))).left_s == 0
        assert await connected(network, one.port) == b"hello", "it was ended"
        one.close()
        other.close()

    at(path, run)
    assert not path.exists()


def test_a_request_that_cannot_be_meant_changes_nothing(tmp_path):
    path = tmp_path / "f.sock"

    def raw(data):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(5)
            asking.connect(str(path))
            asking.sendall(data)
            return b"".join(iter(lambda: asking.recv(1000), b""))

    async def run(network, ask_it):
        links = {"h:1": DROP}
        await ask_it(FaultRequest(links))
        for request in (
            *(FaultRequest({}, lasts_s) for lasts_s in (0, -1, 1e9, float("nan"))),
            FaultRequest({f"h:{n}": DROP for n in range(MOST_LINKS + 1)}),
        ):  # fmt: skip
            told = await ask_it(request)
            assert told.problem, request
            assert told.links == links
        for data in (b"\n", b"{\n", b"\xff\n", b'{"links": {"h:1": {"mode": "burn"}}}\n', b"[]\n"):
            told = json.loads(await asyncio.to_thread(raw, data))
            assert told["problem"], data
            assert told["links"] == {"h:1": {"mode": "drop", "delay_s": 0.0}}
        with contextlib.suppress(OSError):  # the connection is ended amid it
            assert await asyncio.to_thread(raw, b"x" * (MAX_REQUEST_BYTES * 3)) == b""
        assert (await ask_it(FaultRequest())).links == links

    at(path, run)


def test_who_asks_nothing_is_in_nobodys_way(tmp_path, monkeypatch):
    path = tmp_path / "f.sock"
    monkeypatch.setattr(fault_socket, "REQUEST_WITHIN_S", 0.3)

    async def run(network, ask_it):
        silent = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for asking in silent:
            asking.connect(str(path))
        assert (await ask_it(FaultRequest())).links == {}
        await asyncio.sleep(0.5)
        for asking in silent:
            asking.settimeout(5)
            assert asking.recv(1) == b"", "it was closed"
            asking.close()

    at(path, run)


def test_where_no_broker_listens(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        ask(str(tmp_path / "none"), FaultRequest(), 1)
