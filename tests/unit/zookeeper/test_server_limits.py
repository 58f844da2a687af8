"""What clients of our server may cost, and do before they authenticated."""

import asyncio
import logging
import random
import time
from collections import deque

import pytest

from ottla.model.ports import World
from ottla.zookeeper import jute, znode_acls
from ottla.zookeeper.errors import AuthenticationRequiredError, AuthFailedError, ThrottledError
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.memory_tree import Tree
from ottla.zookeeper.operations import Create, Delete
from ottla.zookeeper.server_authentication import SaslUsers
from ottla.zookeeper.server_connection import LINES, Limits
from ottla.zookeeper.server_requests import MAX_MULTI_OPERATIONS, MAX_REPLY_BYTES
from ottla.zookeeper.server_watches import MAX_BYTES
from ottla.zookeeper.znode_acls import MAX_IDENTITIES, Identity
from support.zookeeper_peer import USERS, Clock, Peer

REQUIRED = AuthenticationRequiredError.zk_code
THROTTLED = ThrottledError.zk_code
REFUSED = AuthFailedError.zk_code
INVALID_ACL = -114


def serve(scenario, *, required=False, users=USERS, **limits):
    async def main():
        clock = Clock()
        world = World(clock, random.Random(1), None, None, None)
        server = MemoryZooKeeper(
            world, tick_ms=1000, limits=Limits(**limits), sasl=SaslUsers(users, required)
        )
        server.clock = clock
        await scenario(server)

    asyncio.run(main())


def get(path, watch=False):
    return jute.path_watch_body(path, watch)


# --- before SASL ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (jute.AUTH, jute.INT.pack(0) + jute.string("digest") + jute.buffer(b"a:b")),
        (jute.CLOSE, b""),
        (jute.PING, b""),
        (jute.GET_DATA, get("/")),
        (jute.SET_WATCHES, jute.LONG.pack(0) + 3 * jute.INT.pack(0)),
        (jute.WHO_AM_I, b""),
    ],
)
def test_nothing_is_done_before_sasl(op, body):
    async def scenario(server):
        peer = Peer(server).hello()
        assert await peer.ask(op, body) == (REQUIRED, b"")
        assert not peer.is_open
        assert not server.sessions

    serve(scenario, required=True)


def test_a_session_without_sasl_ends_with_its_connection():
    async def scenario(server):
        peers = [Peer(server).hello() for _ in range(100)]
        assert all(peer.session[0] for peer in peers)
        assert not server.sessions
        peers[0].connection.connection_lost(None)
        server.clock.now_s += 1.5
        server._drop_waiting(server.clock.monotonic())
        assert not server.connections
        await asyncio.sleep(0)  # the round that began before the clock moved is over
        await asyncio.sleep(0)
        peer = Peer(server).hello()
        assert await peer.authenticate() == 0
        assert list(server.sessions) == [peer.session[0]]
        server.clock.now_s += 3
        server._drop_waiting(server.clock.monotonic())
        assert peer.is_open

    serve(scenario, required=True)


def test_a_frame_before_sasl_has_1_kib():
    async def scenario(server):
        for before in (Peer(server), Peer(server).hello()):
            before.connection.data_received(jute.INT.pack(1025))
            assert not before.is_open
        peer = Peer(server).hello()
        assert await peer.authenticate() == 0
        body = jute.create_body("/large", b"x" * 100_000, 0)
        assert (await peer.ask(jute.CREATE, body))[0] == 0

    serve(scenario, required=True)


@pytest.mark.parametrize("required", [True, False])
def test_words_tell_no_stranger_of_sessions_and_znodes(required):
    async def scenario(server):
        peer = Peer(server).hello()
        await peer.authenticate()
        session = f"{peer.session[0]:#x}".encode()
        for word in (b"cons", b"stat", b"wchs", b"conf", b"envi"):
            asks = Peer(server)
            asks.connection.data_received(word)
            assert b"not in the whitelist" in asks.transport.sent
            assert session not in asks.transport.sent
        for word in (b"ruok", b"srvr", b"mntr"):
            asks = Peer(server)
            asks.connection.data_received(word)
            assert b"whitelist" not in asks.transport.sent

    serve(scenario, required=required)


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("restarted", [False, True])
def test_only_its_identity_continues_a_session(required, restarted):
    async def scenario(server):
        owner = Peer(server).hello()
        assert await owner.authenticate() == 0
        body = jute.create_body("/ids", b"", jute.EPHEMERAL, jute.CREATOR_ACL)
        assert (await owner.ask(jute.CREATE, body))[0] == 0
        session = server.sessions[owner.session[0]]
        if restarted:
            session.owner = None  # files do not tell
        for thief in (Peer(server).hello(*owner.session) for _ in range(3)):
            assert owner.is_open
            assert (await thief.ask(jute.CLOSE))[0] == REQUIRED
        eve = Peer(server).hello(*owner.session)
        assert await eve.authenticate("eve") == REFUSED
        assert not eve.is_open
        assert owner.is_open
        assert "/ids" in server.tree.nodes
        again = Peer(server).hello(*owner.session)
        assert owner.is_open
        assert await again.authenticate() == 0
        assert not owner.is_open
        assert session.connection is again.connection
        assert (await again.ask(jute.CLOSE))[0] == 0
        assert "/ids" not in server.tree.nodes

    serve(scenario, required=required)


def test_a_session_that_ended_meanwhile_is_not_continued():
    async def scenario(server):
        owner = Peer(server).hello()
        await owner.authenticate()
        again = Peer(server).hello(*owner.session)
        server.expire(owner.session[0])
        assert await again.authenticate() == REFUSED
        assert not server.sessions

    serve(scenario, required=True)


def test_the_oldest_of_an_address_that_waits_gives_way():
    async def scenario(server):
        works = Peer(server).hello()
        await works.authenticate()
        other = Peer(server, "10.0.0.2")
        flood = [Peer(server) for _ in range(50)]
        assert [peer.is_open for peer in flood] == [False] * 40 + [True] * 10
        assert works.is_open
        assert other.is_open
        late = Peer(server).hello()
        assert await late.authenticate() == 0

    serve(scenario, required=True, waiting=10)


def test_the_total_leaves_room_for_who_authenticates():
    async def scenario(server):
        works = Peer(server).hello()
        await works.authenticate()
        flood = [Peer(server, f"10.0.1.{i}").hello() for i in range(50)]
        late = Peer(server).hello()
        assert await late.authenticate() == 0
        assert works.is_open
        assert sum(peer.is_open for peer in flood) == 8

    serve(scenario, required=True, connections=10)


def test_refused_clients_have_few_lines_in_the_log(caplog):
    async def scenario(server):
        for _ in range(1000):
            await Peer(server).hello().ask(jute.PING)
            Peer(server).connection.data_received(b"\xff" * 8)
            await Peer(server).hello().ask(jute.SASL, jute.buffer(b""))
        server.clock.now_s += 11
        await Peer(server).hello().ask(jute.PING)

    with caplog.at_level(logging.INFO):
        serve(scenario, required=True)
    assert len(caplog.records) == LINES + 2
    assert "left out count=1990" in caplog.text


@pytest.mark.parametrize("value", [b"\xff\xfe", b"\x80" * 2000, b'"\xff', b"=,=,="])
def test_no_bytes_of_a_response_break_the_exchange(value):
    async def scenario(server):
        peer = Peer(server).hello()
        _, body = await peer.ask(jute.SASL, jute.buffer(b""))
        nonce = jute.read_buffer(body, 0)[0].split(b'nonce="')[1].split(b'"')[0]
        said = b'username="kafka",realm="zk-sasl-md5",nonce="' + nonce + b'",nc=00000001,'
        said += b'cnonce="c",digest-uri="zookeeper/zk-sasl-md5",qop=auth,response=' + value
        said = said[:900]
        assert (await peer.ask(jute.SASL, jute.buffer(said)))[0] == REFUSED

    serve(scenario, required=True)


# --- what requests cost ---------------------------------------------------------------------


def test_a_connection_has_few_identities():
    async def scenario(server):
        peer = Peer(server).hello()
        errors = []
        for number in range(MAX_IDENTITIES + 5):
            if peer.is_open:
                name = jute.buffer(b"u%d:x" % number)
                body = jute.INT.pack(0) + jute.string("digest") + name
                errors.append((await peer.ask(jute.AUTH, body))[0])
        assert errors == [0] * (MAX_IDENTITIES - 1) + [REFUSED]
        large = jute.INT.pack(0) + jute.string("digest") + jute.buffer(b"u:" + b"x" * 2000)
        assert (await Peer(server).hello().ask(jute.AUTH, large))[0] == REFUSED

    serve(scenario)


def test_acls_are_short():
    def entries(count):
        ips = [(1, Identity("ip", f"10.0.{i >> 8}.{i & 255}/32")) for i in range(count)]
        return znode_acls.encode(ips)

    async def scenario(server):
        peer = Peer(server).hello()
        create = lambda path, acl: jute.create_body(path, b"", 0, acl)  # noqa: E731
        assert (await peer.ask(jute.CREATE, create("/a", entries(300))))[0] == 0
        began = time.process_time()
        for acl in (entries(30_000), jute.INT.pack(1 << 30) + bytes(900_000)):
            assert (await peer.ask(jute.CREATE, create("/b", acl)))[0] == INVALID_ACL
            body = jute.string("/a") + acl + jute.INT.pack(-1)
            assert (await peer.ask(jute.SET_ACL, body))[0] == INVALID_ACL
        ops = [
            jute.MULTI_HEADER.pack(jute.CREATE, False, -1) + create(f"/m{i}", entries(300 + i))
            for i in range(5)
        ]
        assert (await peer.ask(jute.MULTI, b"".join(ops) + jute.MULTI_END))[0] == INVALID_ACL
        peer.send(*[(jute.GET_DATA, get("/a"))] * 5000)
        await asyncio.sleep(0.05)
        assert time.process_time() - began < 3, "an ACL is decoded once"

    serve(scenario)


def test_a_multi_has_a_bounded_number_of_operations():
    async def scenario(server):
        peer = Peer(server).hello()
        op = jute.MULTI_HEADER.pack(jute.CREATE, False, -1) + jute.create_body(
            "/n-", b"", jute.SEQUENCE
        )
        most = op * MAX_MULTI_OPERATIONS
        assert (await peer.ask(jute.MULTI, most + jute.MULTI_END))[0] == 0
        assert (await peer.ask(jute.MULTI, most + op + jute.MULTI_END))[0] == THROTTLED
        assert len(server.tree.nodes) == MAX_MULTI_OPERATIONS + 1

    serve(scenario)


def test_deletions_of_a_multi_copy_the_children_of_a_znode_once():
    tree = Tree()
    tree.transact([Create(f"/{i:06d}") for i in range(50_000)], 1, 0)
    began = time.process_time()
    tree.transact([Delete(f"/{i:06d}") for i in range(2000)], 1, 0)
    assert time.process_time() - began < 1


def test_a_session_has_a_bounded_number_of_ephemerals():
    async def scenario(server):
        peer = Peer(server).hello()
        flags = jute.SEQUENCE | jute.EPHEMERAL
        op = jute.MULTI_HEADER.pack(jute.CREATE, False, -1) + jute.create_body("/e-", b"", flags)
        multi = op * 1500 + jute.MULTI_END
        for _ in range(2):
            assert (await peer.ask(jute.MULTI, multi))[0] == 0
        error, _ = await peer.ask(jute.CREATE, jute.create_body("/e-", b"", flags))
        assert error == THROTTLED
        assert (await peer.ask(jute.CLOSE))[0] == 0
        assert len(server.tree.nodes) == 1

    serve(scenario)


def test_a_reply_is_bounded_before_it_is_built():
    async def scenario(server):
        server.tree.transact([Create("/big", b"x" * 1_000_000)], 1, 0)
        server.tree.transact([Create(f"/{'n' * 60}{i:06d}") for i in range(100_000)], 1, 0)
        peer = Peer(server).hello()
        read = jute.MULTI_HEADER.pack(jute.GET_DATA, False, -1) + get("/big")
        assert (await peer.ask(jute.MULTI_READ, read * 600 + jute.MULTI_END))[0] == THROTTLED
        error, body = await peer.ask(jute.MULTI_READ, read * 4 + jute.MULTI_END)
        assert error == 0
        assert 4_000_000 < len(body) < MAX_REPLY_BYTES
        for op in (jute.GET_CHILDREN, jute.GET_CHILDREN2):
            assert (await peer.ask(op, get("/")))[0] == THROTTLED
        error, body = await peer.ask(jute.GET_ALL_CHILDREN_NUMBER, jute.string("/"))
        assert (error, jute.INT.unpack(body)[0]) == (0, 100_001)

    serve(scenario)


def test_watches_have_a_bounded_number_of_bytes():
    async def scenario(server):
        peer, errors = Peer(server).hello(), []
        for number in range(60):
            body = get(f"/{number:06d}" + "n" * 1_000_000, watch=True)
            errors.append((await peer.ask(jute.EXISTS, body))[0])
        kept = MAX_BYTES // 1_000_400
        assert errors == [-101] * kept + [THROTTLED] * (60 - kept)
        assert server.watches.bytes <= MAX_BYTES
        assert server.watches.count == kept
        peer.connection.connection_lost(None)
        assert (server.watches.bytes, server.watches.count) == (0, 0)

    serve(scenario)


def test_requests_in_one_buffer_do_not_keep_others_waiting():
    """Many requests of several clients come at once, and one of another client among them."""

    async def scenario(server):
        server.tree.transact([Create("/a"), *(Create(f"/a/{i}") for i in range(1000))], 1, 0)
        honest = Peer(server).hello()
        flood = [Peer(server).hello() for _ in range(5)]
        server.clock.step_s = 0.0005
        for peer in flood:
            count = (jute.GET_ALL_CHILDREN_NUMBER, jute.string("/a"))
            peer.send(*[(jute.GET_CHILDREN, get("/a"))] * 100, *[count] * 20)
        asked = 0
        while any(peer.connection._is_queued for peer in flood):
            honest.send((jute.GET_DATA, get("/")))
            for _ in range(2):
                await asyncio.sleep(0)
            assert len(honest.frames()) == 1, "in the next round of the loop"
            asked += 1
        assert asked > 20, "they are worked off in turns"
        assert [len(peer.frames()) for peer in flood] == [120] * 5, "each has its replies"

    serve(scenario, users={})


def test_half_frames_of_all_clients_are_bounded():
    async def scenario(server):
        honest = Peer(server).hello()
        flood = [Peer(server).hello() for _ in range(50)]
        for peer in flood:
            peer.connection.data_received(jute.INT.pack(1_000_000) + bytes(900_000))
        assert server.input_bytes <= 8 << 20
        assert sum(peer.is_open for peer in flood) == (8 << 20) // 900_004
        assert (await honest.ask(jute.PING))[0] == 0
        for peer in flood:
            peer.connection.connection_lost(None)
        assert server.input_bytes == 0

    serve(scenario, input_bytes=8 << 20)


def test_many_sessions_end_in_several_rounds(monkeypatch):
    async def scenario(server):
        peers = [Peer(server).hello() for _ in range(200)]
        server._timer = object()
        monkeypatch.setattr("ottla.zookeeper.memory.TURN_S", 0.0)
        server.clock.now_s += 100
        server._expire_all(deque(server.sessions.values()))
        assert len(server.sessions) == 200, "later, not now"
        monkeypatch.setattr("ottla.zookeeper.memory.TURN_S", 0.01)
        async with asyncio.timeout(10):
            while server.sessions:
                await asyncio.sleep(0)
        assert not any(peer.is_open for peer in peers)

    serve(scenario, users={})


def test_setwatches_tells_nothing_of_znodes_that_may_not_be_read():
    async def scenario(server):
        owner = Peer(server).hello()
        await owner.authenticate()
        for path in ("/alice", "/open"):
            acl = jute.CREATOR_ACL if path == "/alice" else jute.OPEN_ACL
            await owner.ask(jute.CREATE, jute.create_body(path, b"", 0, acl))
        stranger = Peer(server).hello()
        paths = jute.strings(["/alice", "/open"])
        stranger.send((jute.SET_WATCHES, jute.LONG.pack(0) + paths * 3))
        told = [
            jute.read_string(frame, jute.REPLY_HEADER.size + 8)[0]
            for frame in stranger.frames()
            if jute.REPLY_HEADER.unpack_from(frame)[0] == jute.XID_NOTIFICATION
        ]
        assert told == ["/open"] * 3
        await owner.ask(jute.SET_DATA, jute.set_data_body("/alice", b"x", -1))
        assert not stranger.frames()

    serve(scenario)
