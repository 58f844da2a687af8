"""SASL and the ACLs of znodes: our session at our server and at a real one, which agree."""

import asyncio

import pytest

from ottla.log.files import OsFiles
from ottla.net import runtime
from ottla.zookeeper import jute
from ottla.zookeeper.embedded import start_own_zookeeper, start_zookeeper
from ottla.zookeeper.errors import (
    AuthenticationRequiredError,
    AuthFailedError,
    NoAuthError,
)
from ottla.zookeeper.operations import Create
from ottla.zookeeper.security import OPEN, ZooKeeperSecurity
from ottla.zookeeper.session import Session, SessionState
from ottla.zookeeper.store import Store
from support.cluster import free_ports
from support.secured_zookeeper import PASSWORD, USER, jaas_file

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


class Sensitive(ZooKeeperSecurity):
    """No one else may read any znode of it."""

    def acl_of(self, path):
        return jute.CREATOR_ACL


SECURE = ZooKeeperSecurity(USER, PASSWORD, set_acl=True)
SENSITIVE = Sensitive(USER, PASSWORD)
EVE = ZooKeeperSecurity("eve", "e")
TIMEOUT_MS = 20_000


@pytest.fixture(scope="module", params=["own", pytest.param("real", marks=pytest.mark.java)])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    start = start_own_zookeeper if request.param == "own" else start_zookeeper
    running = start(folder, free_ports(1)[0], jaas_file=jaas_file(folder))
    yield running.connect_string
    running.stop()


def play(server, security, scenario):
    async def main():
        world = runtime.real_world(OsFiles())
        session = await Session.connect(world, server, TIMEOUT_MS, TIMEOUT_MS, security=security)
        try:
            return await scenario(session)
        finally:
            await session.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    "security", [ZooKeeperSecurity(USER, "other"), ZooKeeperSecurity("nobody", PASSWORD)]
)
def test_who_does_not_know_the_password_is_refused_at_once(server, security):
    async def nothing(session):
        raise AssertionError(session)

    with pytest.raises(AuthFailedError, match=f"{security.user} do not authenticate") as raised:
        play(server, security, nothing)
    assert PASSWORD not in str(raised.value)


def test_who_does_not_authenticate_is_not_served(server):
    async def ask(session):
        with pytest.raises(AuthenticationRequiredError):
            await session.children("/")

    play(server, OPEN, ask)


def test_znodes_belong_to_who_creates_them(server):
    async def create(session):
        store = Store(session)
        await store.cluster.create_top_level_paths()
        await store.zk.create_recursive("/config/users/u", b"secret")
        await store.zk.create_sequential("/config/changes/n_", b"")
        await session.multi([Create("/controller", b"", ephemeral=True), Create("/plain", b"")])
        assert session.state is SessionState.CONNECTED
        lost = asyncio.Event()
        session._on_event = lambda _: lost.set()
        session._wire.transport.abort()
        async with asyncio.timeout(20):
            await lost.wait()
            await session.wait_connected()
        return await store.zk.get_data_and_stat("/config/users/u")

    assert play(server, SECURE, create)[0] == b"secret", "a new connection authenticates as well"

    async def look(session):
        assert (await session.get("/config/topics"))[0] == b""
        for denied in (
            session.get("/config/users/u"),
            session.children("/config/users"),
            session.set("/config/topics", b"x"),
            session.create("/config/topics/t", b""),
            session.delete("/config/topics"),
        ):
            with pytest.raises(NoAuthError):
                await denied
        await session.create("/consumers/old", b"")

    play(server, EVE, look)


@pytest.mark.java
def test_whose_a_znode_is_outlives_the_server(tmp_path):
    """Each server reads what the other one logged."""
    jaas = jaas_file(tmp_path)

    async def create(session):
        await session.create("/mine", b"secret")

    async def read(session):
        return (await session.get("/mine"))[0]

    running = start_own_zookeeper(tmp_path, free_ports(1)[0], jaas_file=jaas)
    play(running.connect_string, SENSITIVE, create)
    running.kill()
    for start in (start_own_zookeeper, start_zookeeper, start_own_zookeeper):
        running = start(tmp_path, running.port, jaas_file=jaas)
        try:
            assert play(running.connect_string, SECURE, read) == b"secret"
            with pytest.raises(NoAuthError):
                play(running.connect_string, EVE, read)
        finally:
            running.kill()


def test_a_server_without_users_is_refused(tmp_path):
    running = start_own_zookeeper(tmp_path, free_ports(1)[0])
    try:
        with pytest.raises(AuthFailedError, match="has it SASL"):
            play(running.connect_string, SECURE, None)
    finally:
        running.stop()
