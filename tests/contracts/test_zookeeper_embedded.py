"""A real ZooKeeper process: starts, stops by its id, keeps its data."""

import asyncio

import pytest

from ottla.net.runtime import real_world
from ottla.zookeeper import embedded
from ottla.zookeeper.session import Session
from support.cluster import free_ports
from support.waiting import until


async def ask(port, call):
    session = await Session.connect(real_world(None), f"127.0.0.1:{port}", 6000, 20_000)
    try:
        return await call(session)
    finally:
        await session.close()


@pytest.mark.java
def test_a_server_starts_stops_and_keeps_its_data(tmp_path):
    server = embedded.start_zookeeper(tmp_path, free_ports(1)[0], heap_mb=96, tick_ms=200)
    try:
        asyncio.run(ask(server.port, lambda s: s.create("/kept", b"here")))
        embedded.stop_pid(server.pid, 0.1)
        server.process.wait(10)
        assert not embedded.responds(server.port)
        server = embedded.start_zookeeper(tmp_path, server.port, heap_mb=96, tick_ms=200)
        assert asyncio.run(ask(server.port, lambda s: s.get("/kept")))[0] == b"here"
        server.pause()
        # The signal stops each of its threads when that one runs next: one may still answer.
        until(lambda: not embedded.responds(server.port, 0.2), 10, "it is paused")
        assert not embedded.responds(server.port, 0.2)
        server.resume()
        assert embedded.responds(server.port, 20)
    finally:
        server.stop()
