"""Requests that brokers do not make, the same on our server and on a real one: ACLs, watches."""

import asyncio
import os
import re
import socket
import struct
import subprocess
import threading

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, InvalidACLError, NoAuthError, NoNodeError
from kazoo.security import ACL, Id, make_acl, make_digest_acl

from ottla.zookeeper import jute
from ottla.zookeeper.errors import NoNodeError as OurNoNodeError
from ottla.zookeeper.errors import NoWatcherError, UnimplementedError
from ottla.zookeeper.jars import find_jars, find_java
from support.own_zookeeper import kazoo


def root_of(client: KazooClient) -> str:
    root = f"/r{client.client_id[0]}"
    client.ensure_path(root)
    return root


def test_acls_let_in_who_they_name(server):
    admin = make_digest_acl("admin", "pw", all=True)
    reader = make_digest_acl("reader", "pw2", read=True)
    with kazoo(server.connect_string) as client:
        root = root_of(client)
        client.add_auth("digest", "admin:pw")
        client.create(f"{root}/a", b"secret", acl=[admin, reader])
        client.create(f"{root}/a/b", b"below", acl=[make_acl("auth", "", all=True)])
        assert client.get_acls(f"{root}/a/b")[0] == [admin]
        here = make_acl("ip", "127.0.0.1", read=True)
        client.create(f"{root}/ip", b"near", acl=[here, admin])
        client.create(f"{root}/net", b"near", acl=[make_acl("ip", "127.0.0.0/8", read=True)])
        client.create(f"{root}/far", b"far", acl=[make_acl("ip", "10.0.0.0/8", all=True)])
        for wrong in [
            [make_acl("digest", "no-colon", all=True)],
            [make_acl("ip", "no address", all=True)],
            [make_acl("nonsense", "x", all=True)],
        ]:
            with pytest.raises(InvalidACLError):
                client.create(f"{root}/wrong", acl=wrong)
        with kazoo(server.connect_string) as stranger:
            assert stranger.get(f"{root}/ip")[0] == b"near"
            assert stranger.get(f"{root}/net")[0] == b"near"
            for call in [
                lambda: stranger.get(f"{root}/a"),
                lambda: stranger.get_children(f"{root}/a"),
                lambda: stranger.set(f"{root}/a", b""),
                lambda: stranger.create(f"{root}/a/c"),
                lambda: stranger.delete(f"{root}/a/b"),
                lambda: stranger.set_acls(f"{root}/a", [admin]),
                lambda: stranger.get_acls(f"{root}/a"),
                lambda: stranger.get(f"{root}/far"),
                lambda: stranger.set(f"{root}/ip", b""),
            ]:
                with pytest.raises(NoAuthError):
                    call()
            with pytest.raises(InvalidACLError):
                stranger.create(f"{root}/mine", acl=[make_acl("auth", "", all=True)])
            transaction = stranger.transaction()
            transaction.create(f"{root}/ok")
            transaction.set_data(f"{root}/a", b"")
            assert [type(r).__name__ for r in transaction.commit()] == [
                "RolledBackError",
                "NoAuthError",
            ]
            stranger.add_auth("digest", "reader:pw2")
            assert stranger.get(f"{root}/a")[0] == b"secret"
            masked = stranger.get_acls(f"{root}/a")[0]
            assert masked == [
                ACL(31, Id("digest", "admin:x")),
                ACL(1, Id("digest", "reader:x")),
            ]
            with pytest.raises(NoAuthError):
                stranger.set(f"{root}/a", b"")
        client.delete(f"{root}/a/b")


def test_an_unknown_scheme_ends_the_connection(server):
    client = KazooClient(server.connect_string, timeout=5)
    client.start(30)
    try:
        with pytest.raises(AuthFailedError):
            client.add_auth("nonsense", "x:y")
    finally:
        client.stop()
        client.close()


class Raw:
    """A client of a few lines: what kazoo has no call for."""

    def __init__(self, address: str, session: tuple[int, bytes] = (0, bytes(16))) -> None:
        host, _, port = address.partition(":")
        self.socket = socket.create_connection((host, int(port)), 5)
        self.socket.settimeout(10)
        self.socket.sendall(jute.ConnectRequest(0, 10_000, *session).encode())
        hello = jute.ConnectResponse.decode(self._frame())
        self.session = hello.session_id, hello.password
        self.events: list[tuple[int, str]] = []
        self.zxid = 0

    def _bytes(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            assert part, "the server closed the connection"
            found += part
        return found

    def _frame(self) -> bytes:
        return self._bytes(jute.INT.unpack(self._bytes(4))[0])

    def ask(self, op: int, body: bytes = b"", xid: int = 1) -> tuple[int, bytes]:
        """Return code and body of a reply; events that come before it are kept."""
        self.socket.sendall(jute.request(xid, op, body))
        while True:
            frame = self._frame()
            found, zxid, code = jute.REPLY_HEADER.unpack_from(frame, 0)
            if found == xid:
                self.zxid = zxid
                return code, frame[16:]
            assert found == jute.XID_NOTIFICATION
            kind, state = jute.XID_OP.unpack_from(frame, 16)
            assert state == jute.SYNC_CONNECTED
            self.events.append((kind, jute.read_string(frame, 24)[0]))

    def heard(self) -> list[tuple[int, str]]:
        assert self.ask(jute.SYNC, jute.string("/"))[0] == 0
        found, self.events = self.events, []
        return found


NEW, GONE, DATA, CHILD = 1, 2, 3, 4


@pytest.mark.parametrize("recursive", [False, True])
def test_persistent_watches_stay(server, recursive):
    with kazoo(server.connect_string) as other:
        root = root_of(other)
        w, c, d = f"{root}/w", f"{root}/w/c", f"{root}/w/c/d"
        raw = Raw(server.connect_string)
        request = jute.string(w) + jute.INT.pack(int(recursive))
        assert raw.ask(jute.ADD_WATCH, request) == (0, jute.INT.pack(0))
        kind = jute.INT.pack(5 if recursive else 4)
        assert raw.ask(jute.CHECK_WATCHES, jute.string(w) + kind)[0] == 0
        changes(other, w)
        if recursive:
            expected = [
                (NEW, w), (DATA, w), (DATA, w), (NEW, c), (DATA, c), (NEW, d), (GONE, d),
                (GONE, c), (GONE, w),
            ]  # fmt: skip
        else:
            expected = [(NEW, w), (DATA, w), (DATA, w), (CHILD, w), (CHILD, w), (GONE, w)]
        assert raw.heard() == expected
        # The same session on another connection: its watches come with SetWatches2.
        seen = jute.LONG.pack(raw.zxid)
        again = Raw(server.connect_string, raw.session)
        assert again.session == raw.session
        lists = [[], [], [], [] if recursive else [w], [w] if recursive else []]
        body = seen + b"".join(jute.strings(paths) for paths in lists)
        assert again.ask(jute.SET_WATCHES2, body, jute.XID_SET_WATCHES)[0] == 0
        changes(other, w)
        assert again.heard() == expected
        assert again.ask(jute.REMOVE_WATCHES, jute.string(w) + kind)[0] == 0
        changes(other, w)
        assert again.heard() == []
        assert again.ask(jute.CLOSE)[0] == 0


def changes(client: KazooClient, w: str) -> None:
    client.create(w, b"")
    client.set(w, b"1")
    client.set(w, b"2")
    client.create(f"{w}/c", b"")
    client.set(f"{w}/c", b"1")
    client.create(f"{w}/c/d", b"")
    client.delete(f"{w}/c/d")
    client.delete(f"{w}/c")
    client.delete(w)


def test_events_are_for_those_who_may_read(server):
    """A watch says no more than a read would (CVE-2024-23944)."""
    with kazoo(server.connect_string, auth_data=[("digest", "admin:pw")]) as other:
        root = root_of(other)
        raw = Raw(server.connect_string)
        raw.ask(jute.ADD_WATCH, jute.string(root) + jute.INT.pack(1))
        other.create(f"{root}/open", b"")
        other.create(f"{root}/closed", b"", acl=[make_digest_acl("admin", "pw", all=True)])
        other.set(f"{root}/closed", b"1")
        assert raw.heard() == [(NEW, f"{root}/open")]
        raw.ask(jute.CLOSE)


def test_names_that_a_server_refuses(server):
    """Whatever a client lets through."""
    with kazoo(server.connect_string) as client:
        root = root_of(client)
    raw = Raw(server.connect_string)
    for name in [
        "x//y",
        "x/",
        "./x",
        "x/..",
        "\x01",
        "a\x7f",
        "\x9f",
        "\ue000",
        "\ufffe",
        "\U0001f600",
    ]:
        code = -101 if "/" in name else -8  # there is no such parent, and that comes first
        assert raw.ask(jute.CREATE, jute.create_body(f"{root}/{name}", b"", 0))[0] == code, name
    for name in ["...", "x..y", "\u00e9", "\u4e2d", "\uffef", "a b", "\xa0"]:
        assert raw.ask(jute.CREATE, jute.create_body(f"{root}/{name}", b"", 0))[0] == 0, name
    raw.ask(jute.CLOSE)


def scenario_of_rare_requests(found: list):
    async def scenario(z):
        s = await z.session()
        await s.create("/a", b"1")
        await s.create("/a/b", b"2", ephemeral=True)
        await s.create("/ab", b"3", ephemeral=True)
        chroot = len(s._chroot)

        def send(op, body):
            return s._send(op, body, lambda buf, pos, end: buf[pos:end], None)

        full = s._full
        ops = [
            (jute.GET_CHILDREN, "/a"), (jute.GET_DATA, "/a/b"), (jute.GET_DATA, "/none"),
        ]  # fmt: skip
        parts = [
            jute.MULTI_HEADER.pack(op, False, -1) + jute.path_watch_body(full(path), False)
            for op, path in ops
        ]
        reply = await send(jute.MULTI_READ, b"".join(parts) + jute.MULTI_END)
        stat_at = reply.index(b"2") + 1
        found.append(reply[:stat_at] + reply[stat_at + jute.STAT.size :])
        found.append(await send(jute.GET_ALL_CHILDREN_NUMBER, jute.string(full("/a"))))
        owned, _ = jute.read_strings(await send(jute.GET_EPHEMERALS, jute.string(full("/a"))), 0)
        found.append(sorted(path[chroot:] for path in owned))
        body = jute.string(full("/box")) + jute.buffer(b"") + jute.OPEN_ACL + jute.INT.pack(4)
        made = await send(jute.CREATE_CONTAINER, body)
        found.append(jute.read_string(made, 0)[0][chroot:])
        stat = await s.exists("/box")
        found.append((stat.ephemeral_owner, stat.version))
        ttl = (
            jute.string(full("/ttl")) + jute.buffer(b"") + jute.OPEN_ACL + struct.pack(">iq", 5, 9)
        )
        with pytest.raises(UnimplementedError):
            await send(jute.CREATE_TTL, ttl)
        for kind in (1, 2, 3, 4, 5):
            with pytest.raises(NoWatcherError):
                await send(jute.CHECK_WATCHES, jute.string(full("/a")) + jute.INT.pack(kind))
        await s.get("/a", lambda _: None)
        found.append(await send(jute.CHECK_WATCHES, jute.string(full("/a")) + jute.INT.pack(2)))
        found.append(await send(jute.REMOVE_WATCHES, jute.string(full("/a")) + jute.INT.pack(3)))
        with pytest.raises(NoWatcherError):
            await send(jute.REMOVE_WATCHES, jute.string(full("/a")) + jute.INT.pack(3))
        with pytest.raises(OurNoNodeError):
            await send(jute.GET_ALL_CHILDREN_NUMBER, jute.string(full("/none")))
        found.append(await send(jute.WHO_AM_I, b""))

    return scenario


RARE = [
    jute.MULTI_HEADER.pack(jute.GET_CHILDREN, False, 0) + jute.strings(["b"])
    + jute.MULTI_HEADER.pack(jute.GET_DATA, False, 0) + jute.buffer(b"2")
    + jute.MULTI_HEADER.pack(jute.ERROR, False, -101) + jute.INT.pack(-101) + jute.MULTI_END,
    jute.INT.pack(1), ["/a/b", "/ab"], "/box", (0, 0), b"", b"",
    jute.INT.pack(1) + jute.string("ip") + jute.string("127.0.0.1"),
]  # fmt: skip


def test_rare_requests(server, run_on):
    found: list = []
    run_on(server, scenario_of_rare_requests(found))
    assert found == RARE


def test_a_container_goes_once_it_was_used_and_is_empty(kept_server, monkeypatch):
    monkeypatch.setattr("ottla.zookeeper.memory.CONTAINERS_EVERY_S", 0.0)
    monkeypatch.setattr(kept_server.zookeeper, "_containers_due_s", 0.0)
    with kazoo(kept_server.connect_string) as client:
        root = root_of(client)
        tree = kept_server.zookeeper.tree

        raw = Raw(kept_server.connect_string)
        body = jute.create_body(f"{root}/box", b"", jute.CONTAINER)
        assert raw.ask(jute.CREATE_CONTAINER, body)[0] == 0
        assert f"{root}/box" in tree.containers
        client.create(f"{root}/box/in")
        client.delete(f"{root}/box/in")
        gone = threading.Event()
        while client.exists(f"{root}/box", watch=lambda _: gone.set()):
            assert gone.wait(30)
        with pytest.raises(NoNodeError):
            client.get(f"{root}/box")


def test_too_many_connections_are_refused(tmp_path):
    async def main():
        from ottla.log.files import OsFiles
        from ottla.net.runtime import real_world
        from ottla.zookeeper.memory import MemoryZooKeeper
        from ottla.zookeeper.server_connection import Limits
        from ottla.zookeeper.session import Session

        world = real_world(OsFiles())
        server = await MemoryZooKeeper(world, limits=Limits(connections=2)).start()
        two = [await Session.connect(world, server.connect_string, 5000, 5000) for _ in range(2)]
        reader, _ = await asyncio.open_connection("127.0.0.1", server.port)
        with pytest.raises((ConnectionResetError, EOFError)):
            await reader.readexactly(1)
        assert await two[0].exists("/none") is None
        for session in two:
            await session.close()
        server.stop()

    asyncio.run(main())


def test_a_client_that_does_not_read_is_not_read_from_and_costs_little(tmp_path):
    async def main():
        from ottla.log.files import OsFiles
        from ottla.net.runtime import real_world
        from ottla.zookeeper.memory import MemoryZooKeeper
        from ottla.zookeeper.server_connection import Limits
        from ottla.zookeeper.session import Session

        world = real_world(OsFiles())
        server = await MemoryZooKeeper(world, limits=Limits(output_bytes=4 << 20)).start()
        session = await Session.connect(world, server.connect_string, 5000, 5000)
        await session.create("/large", b"x" * 500_000)
        await session.create("/watched")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)
        writer.write(jute.ConnectRequest(0, 30_000, 0, bytes(16)).encode())
        await asyncio.sleep(0.1)
        reader._transport.pause_reading()
        get = jute.request(1, jute.GET_DATA, jute.path_watch_body("/large", False))
        for _ in range(100):
            writer.write(get)
        await asyncio.sleep(0.5)
        slow = [c for c in server.connections if c.session and c.session.id != session.session_id]
        waiting = sum(c.transport.get_write_buffer_size() for c in slow)
        assert waiting <= (4 << 20) + 600_000
        assert await session.exists("/watched") is not None
        await session.close()
        writer.close()
        server.stop()

    asyncio.run(main())


ZKCLI = """
create {root} hello
create -e {root}/e e
create -s {root}/s- x
create -c {root}/box c
stat {root}/box
ls -R {root}
get -s {root}
addWatch -m PERSISTENT_RECURSIVE {root}
set {root} again
set -v 7 {root} no
addauth digest a:b
setAcl {root}/e auth::cdrwa
getAcl {root}/e
whoami
getEphemerals {root}
getAllChildrenNumber {root}
sync {root}
removewatches {root}
delete {root}
deleteall {root}
get {root}
quit
"""


def said_by_zkcli(address: str, root: str) -> list[str]:
    """Return what ZooKeeper's own command line prints, without times and zxids."""
    command = [
        str(find_java()), "-Xmx96m", "-XX:TieredStopAtLevel=1", "-cp", _zkcli_jars(),
        "org.apache.zookeeper.ZooKeeperMain", "-server", address,
    ]  # fmt: skip
    done = subprocess.run(
        command,
        input=ZKCLI.format(root=root),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.replace(address, "ADDRESS").splitlines()
    # Events come when they come; standard error has the errors.
    lines = [line for line in lines if line and not line.startswith(("WATCHER::", "WatchedEvent"))]
    return [re.sub(r"^(\w+(Zxid|time)|ephemeralOwner) = .*", r"\1", line) for line in lines] + [
        line for line in done.stderr.splitlines() if "SLF4J" not in line
    ]


def _zkcli_jars() -> str:
    folder = find_jars()[0].parent
    more = [jar for name in ("commons-cli", "netty") for jar in folder.glob(f"{name}*.jar")]
    if not any(jar.name.startswith("commons-cli") for jar in more):
        pytest.skip("the jars found have no commons-cli, which zkCli needs")
    return os.pathsep.join(map(str, [*find_jars(), *more]))


@pytest.mark.java
def test_zkcli_says_the_same_on_both(kept_server, real_server):
    ours = said_by_zkcli(kept_server.connect_string, "/zkcli")
    theirs = said_by_zkcli(real_server.connect_string, "/zkcli")
    assert ours == theirs
    assert "Created /zkcli/s-0000000001" in ours
    assert "Node not empty: /zkcli" in "\n".join(ours)
