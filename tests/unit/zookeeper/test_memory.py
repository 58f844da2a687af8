"""Hooks of the in-memory ZooKeeper: lost requests, expiry, restarts, log of writes, multis."""

import asyncio
import random

import pytest

from ottla.sim.world import Simulation
from ottla.zookeeper.errors import ConnectionLossError, MultiError, NodeExistsError
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.memory_tree import Tree
from ottla.zookeeper.operations import Check, Create, Delete, Set
from ottla.zookeeper.session import Session, SessionState


def picture(tree: Tree):
    nodes = {path: (n.data, n.stat(), list(n.children)) for path, n in tree.nodes.items()}
    return nodes, {owner: set(paths) for owner, paths in tree.ephemerals.items() if paths}


@pytest.mark.parametrize("seed", range(20))
def test_a_failed_transaction_leaves_no_trace(seed):
    rng = random.Random(seed)
    tree = Tree()
    tree.transact([Create("/a"), Create("/b")], 1, 0)
    paths = ["/a", "/b", "/a/x", "/a/y", "/b/x"]
    failed = 0
    for _ in range(300):
        ops = [
            rng.choice(
                [
                    Create(rng.choice(paths), b"1", rng.random() < 0.3, rng.random() < 0.2),
                    Set(rng.choice(paths), b"2", rng.choice([-1, -1, 0])),
                    Delete(rng.choice(paths)),
                    Check(rng.choice(paths), -1),
                ]
            )
            for _ in range(rng.randint(1, 3))
        ]
        before, zxid = picture(tree), tree.zxid
        try:
            tree.transact(ops, rng.randint(1, 2), 0)
        except MultiError:
            failed += 1
            assert picture(tree) == before
        assert tree.zxid == zxid + 1
        owned = {path for paths_ in tree.ephemerals.values() for path in paths_}
        assert owned == {path for path, node in tree.nodes.items() if node.owner}
    assert 50 < failed < 280


def test_writes_are_logged_in_zxid_order(still):
    async def scenario(z):
        s = await z.session()
        await s.create("/a", b"1")
        await s.multi([Check("/a", 0), Set("/a", b"2"), Create("/a/e", b"x", ephemeral=True)])
        with pytest.raises(NodeExistsError):
            await s.create("/a")
        await s.create("/n-", sequence=True)
        await s.delete("/n-0000000001")
        await s.close()
        facts = [(w.op, w.path, w.data, w.version) for w in z.server.writes]
        assert facts == [
            ("create", "/a", b"1", 0),
            ("set", "/a", b"2", 1),
            ("create", "/a/e", b"x", 0),
            ("create", "/n-0000000001", b"", 0),
            ("delete", "/n-0000000001", None, -1),
            ("delete", "/a/e", None, -1),
        ]
        zxids = [w.zxid for w in z.server.writes]
        assert zxids == sorted(zxids)
        assert zxids[1] == zxids[2]
        assert {w.session for w in z.server.writes} == {s.session_id}
        assert list(z.server.dump()) == ["/", "/a"]
        assert z.server.statistics()["sessions"] == 0

    still(scenario)


def test_a_lost_request_is_not_done_a_lost_reply_is(still):
    async def scenario(z):
        s = await z.session()
        for lose, done in ((z.server.lose_request, False), (z.server.lose_reply, True)):
            lose(lambda _op, path: path == "/x")
            await s.create("/other" + str(done))
            with pytest.raises(ConnectionLossError):
                await s.create("/x")
            await s.wait_connected()
            assert (await s.exists("/x") is not None) == done

    still(scenario)


def test_sessions_outlive_a_restart_with_their_full_timeout(still):
    async def scenario(z):
        s = await z.session(6000)
        other = await z.session(40_000)
        await s.create("/e", ephemeral=True)
        z.server.stop()
        await asyncio.sleep(5.9)
        await z.server.start()
        await other.wait_connected()
        await asyncio.sleep(0.5)
        assert await other.exists("/e") is not None
        await asyncio.sleep(30)
        assert (await other.exists("/e") is None) == (s.state is SessionState.DEAD)

    still(scenario)


def test_expire_and_disconnect(still):
    async def scenario(z):
        events = []
        s = await z.session(on_event=events.append)
        z.server.disconnect(s.session_id)
        await asyncio.sleep(0.5)
        assert [e.state.value for e in events] == ["suspended", "connected"]
        z.server.expire(s.session_id)
        await asyncio.sleep(0.5)
        assert s.death == "the server says it is expired"
        z.server.expire(s.session_id)  # unknown by now: nothing happens
        z.server.disconnect(s.session_id)

    still(scenario)


def test_the_server_forgets_closed_sessions(still):
    async def scenario(z):
        sessions = [await z.session() for _ in range(5)]
        for s in sessions:
            await s.exists("/w", lambda _e: None)
            await s.children("/", lambda _e: None)
        assert z.server.statistics()["watched_paths"] == 2
        for s in sessions:
            await s.close()
        await asyncio.sleep(1)
        figures = z.server.statistics()
        assert (figures["connections"], figures["watched_paths"]) == (0, 0)

    still(scenario)


@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"\0\0\0\x02ab", b"\0\0\0\x08" + b"\x01" * 8])
def test_garbage_ends_one_connection_only(still, garbage):
    async def scenario(z):
        s = await z.session()

        class Mad(asyncio.Protocol):
            lost = False

            def connection_made(self, transport):
                transport.write(garbage)

            def connection_lost(self, exc):
                self.lost = True

            def data_received(self, data):
                pass

        mad = Mad()
        await z.network.connect("", z.server.port, lambda: mad, timeout_s=1)
        await asyncio.sleep(0.1)
        assert mad.lost
        assert await s.exists("/") is not None

    still(scenario)


def test_time_that_the_server_stood_still_does_not_count_against_sessions():
    """What clients sent meanwhile waits in its sockets; a client that stays silent expires.

    Sessions of ours end on their own side after so long, those of kazoo and ZooKeeper do not.
    """

    async def serve(world):
        servers.append(MemoryZooKeeper(world, tick_ms=1000))
        await servers[0].start("zk", 2181)
        await asyncio.Event().wait()

    async def connect(timeout_ms, count):
        return [
            await Session.connect(client.world, "zk:2181", timeout_ms, 60_000) for _ in range(count)
        ]

    servers = []
    with Simulation("stands still") as simulation:
        zk, client = simulation.node("zk"), simulation.node("client")
        zk.boot(serve)
        live = client.call(connect(20_000, 3))
        (gone,) = client.call(connect(20_000, 1))
        simulation.run_for(5)
        gone._become_dead("left alone by the test")
        sessions = {session.session_id for session in [*live, gone]}
        for stop_s in (19, 15, 60):
            zk.pause()
            simulation.run_for(stop_s)
            zk.resume()
            simulation.run_for(0.5)
            assert set(servers[0].sessions) == sessions
        simulation.run_for(25)
        assert servers[0].sessions == {}
