"""ZooKeeper's files: what our server writes a real ZooKeeper goes on with, and the other way."""

import asyncio
import logging
import os
import random
import signal
import time
from pathlib import Path

import pytest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kazoo.security import make_digest_acl

from ottla.log.files import OsFiles
from ottla.net.runtime import real_world
from ottla.zookeeper import jute
from ottla.zookeeper.database import Database
from ottla.zookeeper.embedded import start_zookeeper
from ottla.zookeeper.jars import JARS_VARIABLE, find_jars
from ottla.zookeeper.session import Session, SessionState
from support import kafka_tools
from support.cluster import free_ports
from support.own_zookeeper import OwnZooKeeper, kazoo, whole_tree

pytestmark = pytest.mark.java
ADMIN = make_digest_acl("admin", "secret", all=True)
READER = make_digest_acl("reader", "word", read=True)
CREDENTIALS = [("digest", "admin:secret")]


@pytest.fixture(params=["3.9", "3.8"], autouse=True)
def version(request, monkeypatch):
    """Each test with a real ZooKeeper of either version: the jars of pyspark, those of Kafka."""
    if request.param == "3.8":
        problem = kafka_tools.why_not()
        if problem:
            pytest.skip(problem)
        monkeypatch.setenv(JARS_VARIABLE, str(kafka_tools.libs()))
    jars = [jar.name for jar in find_jars()]
    assert any(name.startswith(f"zookeeper-{request.param}.") for name in jars), jars


def write_a_tree(client, seed: int, count: int = 150) -> None:
    """Write every kind of transaction, failed ones too, in a random order."""
    rng = random.Random(seed)
    client.ensure_path("/deep/er/est")
    client.create("/guarded", b"g", acl=[ADMIN, READER])
    client.create("/guarded/below", b"", acl=[ADMIN])
    client.create("/later", b"")
    client.set_acls("/later", [ADMIN])
    client.create("/many")
    for i in range(count):
        path = f"/many/{rng.randrange(40)}"
        try:
            kind = rng.randrange(7)
            if kind == 0:
                client.create(path, rng.randbytes(rng.randrange(3000)))
            elif kind == 1:
                client.set(path, rng.randbytes(rng.randrange(100)), rng.choice([-1, -1, 0, 3]))
            elif kind == 2:
                client.delete(path)
            elif kind == 3:
                client.create("/many/s-", b"s", sequence=True, ephemeral=rng.random() < 0.5)
            elif kind == 4:
                client.create(path, b"e", ephemeral=True)
            else:
                transaction = client.transaction()
                transaction.create(f"/many/{rng.randrange(40)}", b"m")
                transaction.set_data("/many", str(i).encode())
                transaction.check("/many", rng.choice([-1, -1, 0]))
                transaction.delete(f"/many/{rng.randrange(40)}", -1)
                transaction.commit()
        except (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError):
            pass


def create_container(address: str) -> None:
    async def create():
        session = await Session.connect(real_world(None), address, 6000, 20_000)
        for path in ("/container", "/container/used"):
            kind = jute.CREATE_CONTAINER if path == "/container" else jute.CREATE2
            flags = jute.CONTAINER if path == "/container" else 0
            body = jute.create_body(path, b"c", flags)
            await session._send(kind, body, lambda *_: None, path)
        await session.close()

    asyncio.run(create())


def start_real(folder: Path):
    """Start a real ZooKeeper on `folder`/data."""
    return start_zookeeper(folder, free_ports(1)[0], heap_mb=96, tick_ms=1000)


def opened_by_us(data: Path, caplog) -> Database:
    """Open a folder; every digest in it has to be that of our tree."""
    with caplog.at_level(logging.INFO):
        database = Database(real_world(OsFiles()), str(data))
        database.open()
    database.release()
    assert "digest differs" not in caplog.text
    assert "passed over" not in caplog.text
    return database


def kept_facts(database: Database) -> dict:
    return {
        path: (n.data or b"", tuple(n.stat()), n.acl, n.owner)
        for path, n in database.tree.nodes.items()
        if not path.startswith("/zookeeper")
    }


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("snap_count", [100_000, 60])
def test_a_real_zookeeper_goes_on_with_our_files(end, snap_count, tmp_path, caplog):
    data = tmp_path / "data"
    with OwnZooKeeper(data, 0, "--snap-count", str(snap_count)) as own:
        client_settings = {"auth_data": CREDENTIALS}
        with kazoo(own.connect_string, **client_settings) as gone:
            gone.create("/gone", ephemeral=True)
        client = None
        try:
            with kazoo(own.connect_string, **client_settings) as client:
                write_a_tree(client, seed=snap_count)
                create_container(own.connect_string)
                before = whole_tree(client)
                session = client.client_id
                assert own.stop() == 0 if end == "stop" else own.kill() is None
                raise InterruptedError  # the server is gone: the session is not closed
        except (InterruptedError, KazooException):
            pass
    assert "/gone" not in before
    owners = {stat[7] for _, stat, _ in before.values()}
    assert owners == {0, session[0]}
    snapshots = list((data / "version-2").glob("snapshot.*"))
    assert (len(snapshots) > 1) == (snap_count == 60)
    real = start_real(tmp_path)
    try:
        with kazoo(real.connect_string, client_id=session, **client_settings) as client:
            assert client.client_id[0] == session[0]
            assert whole_tree(client) == before
            write_a_tree_again(client)
            after = whole_tree(client)
        with kazoo(real.connect_string) as stranger, pytest.raises(NoAuthError):
            stranger.get("/guarded/below")
    finally:
        real.kill()
    facts = kept_facts(opened_by_us(data, caplog))
    survivors = {p: v for p, v in after.items() if v[1][7] == 0}
    assert {p: v[0:2] for p, v in facts.items()}.keys() == survivors.keys()
    for path, (content, stat, _) in survivors.items():
        if path not in ("/many", "/"):  # those lost ephemeral znodes by the end of the session
            assert facts[path][:2] == (content, stat), path
    with OwnZooKeeper(data) as own, kazoo(own.connect_string, **client_settings) as client:
        again = whole_tree(client)
        assert {p: v[2] for p, v in again.items()} == {p: v[2] for p, v in survivors.items()}
        client.create("/and-on", b"")


def write_a_tree_again(client) -> None:
    client.create("/real", b"r", acl=[ADMIN])
    client.set("/deep", b"changed")
    client.delete("/deep/er/est")
    client.create("/deep/er/n-", sequence=True)
    client.set_acls("/guarded", [ADMIN])
    transaction = client.transaction()
    transaction.create("/real/a", b"1")
    transaction.set_data("/real", b"2")
    transaction.commit()


@pytest.mark.parametrize("snap_count", [100_000, 80])
def test_we_go_on_with_a_real_ones_files(snap_count, tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dzookeeper.snapCount={snap_count}")
    real = start_real(tmp_path)
    data = tmp_path / "data"
    try:
        with kazoo(real.connect_string, auth_data=CREDENTIALS) as client:
            write_a_tree(client, seed=3, count=300)
            create_container(real.connect_string)
            before = whole_tree(client)
            session = client.client_id
            os.kill(real.pid, signal.SIGKILL)
            real.process.wait(10)
            snapshots = list((data / "version-2").glob("snapshot.*"))
            assert (len(snapshots) > 1) == (snap_count == 80)
            with OwnZooKeeper(data) as own:
                settings = {"auth_data": CREDENTIALS}
                with kazoo(own.connect_string, client_id=session, **settings) as ours:
                    assert ours.client_id == session
                    assert whole_tree(ours) == before
                    write_a_tree_again(ours)
                    after = whole_tree(ours)
                    own.kill()
                    real = start_real(tmp_path)
                    with kazoo(real.connect_string, client_id=session, **settings) as back:
                        assert whole_tree(back) == after
    finally:
        real.kill()
    opened_by_us(data, caplog)


def test_our_sessions_survive_a_restart_and_expire_after_it(tmp_path):
    data = tmp_path / "data"
    with OwnZooKeeper(data, free_ports(1)[0], "--tick-time", "100") as own:
        port = own.port

        async def run():
            events = []
            world = real_world(None)
            # Either outlives the start of a process, and be it on a busy machine.
            live = await Session.connect(world, own.connect_string, 30_000, 20_000, events.append)
            await live.create("/live", ephemeral=True)
            doomed = await Session.connect(world, own.connect_string, 6000, 20_000)
            await doomed.create("/doomed", ephemeral=True)
            doomed._become_dead("left alone by the test")
            own.kill()
            while live.state is SessionState.CONNECTED:
                await asyncio.sleep(0.005)
            with OwnZooKeeper(data, port, "--tick-time", "100"):
                await live.wait_connected()
                assert (await live.exists("/live")).ephemeral_owner == live.session_id
                assert await live.exists("/doomed") is not None
                started_s = time.monotonic()
                while await live.exists("/doomed") is not None:
                    await asyncio.sleep(0.02)
                    assert time.monotonic() < started_s + 30
                assert await live.exists("/live") is not None
                await live.close()

        asyncio.run(run())


def test_znodes_with_a_time_to_live_stay(tmp_path, monkeypatch, caplog):
    """Our server does not make them, and does not end those of a real one that may."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dzookeeper.extendedTypesEnabled=true")

    async def create(address: str):
        session = await Session.connect(real_world(None), address, 6000, 20_000)
        body = jute.create_body("/ttl", b"t", 5) + jute.LONG.pack(3_600_000)
        await session._send(jute.CREATE_TTL, body, lambda *_: None, "/ttl")
        await session.create("/ttl/below")
        await session.close()

    data = tmp_path / "data"
    real = start_real(tmp_path)
    try:
        asyncio.run(create(real.connect_string))
        with kazoo(real.connect_string) as client:
            before = whole_tree(client)
        real.kill()
        with OwnZooKeeper(data) as own, kazoo(own.connect_string) as client:
            assert whole_tree(client) == before
            client.create("/ttl/more")
            changed = whole_tree(client)
            own.kill()
        real = start_real(tmp_path)
        with kazoo(real.connect_string) as client:
            assert whole_tree(client) == changed
    finally:
        real.kill()
    opened_by_us(data, caplog)
