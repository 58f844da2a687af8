"""The contract of a ZooKeeper server with our session, kept by the in-memory and a real one."""

import asyncio
import random

import pytest

from ottla.zookeeper import jute
from ottla.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    ConnectionLossError,
    MultiError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RequestTooLargeError,
    SessionExpiredError,
    ZooKeeperError,
)
from ottla.zookeeper.operations import Check, Create, Delete, Set
from ottla.zookeeper.session import Session, SessionState
from ottla.zookeeper.watches import WatchEvent, WatchType

CREATED, DELETED = WatchType.CREATED, WatchType.DELETED
CHANGED, CHILDREN = WatchType.DATA_CHANGED, WatchType.CHILDREN_CHANGED


def test_a_znode_lives(play):
    async def scenario(z):
        s = await z.session()
        path, made = await s.create("/a", b"one")
        assert path == "/a"
        assert (made.version, made.data_length, made.num_children) == (0, 3, 0)
        assert made.czxid == made.mzxid == made.pzxid > 0
        assert made.ephemeral_owner == 0
        assert await s.get("/a") == (b"one", made)
        changed = await s.set("/a", b"three")
        assert (changed.version, changed.data_length) == (1, 5)
        assert changed.mzxid > changed.czxid == made.czxid
        assert await s.exists("/a") == changed
        await s.create("/a/b")
        await s.create("/a/c", None)
        stat = await s.exists("/a")
        assert (stat.num_children, stat.cversion) == (2, 2)
        assert stat.pzxid > stat.mzxid
        assert await s.children("/a") == ["b", "c"]
        assert (await s.get("/a/c"))[0] == b""
        assert await s.delete("/a/b") is None
        assert (await s.exists("/a")).cversion == 3
        assert await s.exists("/a/b") is None
        await s.sync("/a")

    play(scenario)


def test_errors_name_the_path(play):
    async def scenario(z):
        s = await z.session()
        await s.create("/p")
        await s.create("/p/q")
        await s.create("/e", ephemeral=True)
        for future, kind in [
            (s.get("/none"), NoNodeError),
            (s.children("/none"), NoNodeError),
            (s.set("/none", b""), NoNodeError),
            (s.delete("/none"), NoNodeError),
            (s.create("/none/below"), NoNodeError),
            (s.create("/p"), NodeExistsError),
            (s.set("/p", b"", 7), BadVersionError),
            (s.delete("/p/q", 3), BadVersionError),
            (s.delete("/p"), NotEmptyError),
            (s.create("/e/below"), NoChildrenForEphemeralsError),
        ]:
            with pytest.raises(kind) as caught:
                await future
            assert caught.value.path in str(caught.value)
        for path in ("relative", "/a/", "/a//b", "/a/../b", "/a\0b", "/a\x85", "/a\U0001f600", ""):
            with pytest.raises(BadArgumentsError):
                s.get(path)

    play(scenario)


def test_sequence_numbers_count_creations(play):
    async def scenario(z):
        s = await z.session()
        await s.create("/q")
        assert (await s.create("/q/n_", sequence=True))[0] == "/q/n_0000000000"
        await s.create("/q/other")
        await s.delete("/q/other")
        path, stat = await s.create("/q/n_", b"x", ephemeral=True, sequence=True)
        assert path == "/q/n_0000000002"
        assert stat.ephemeral_owner == s.session_id
        assert (await s.create("/q/", sequence=True))[0] == "/q/0000000003"

    play(scenario)


def test_a_multi_is_all_or_nothing(play):
    async def scenario(z):
        s = await z.session()
        await s.create("/m", b"0")
        results = await s.multi(
            [
                Check("/m", 0),
                Create("/m/a", b"1"),
                Set("/m", b"2", 0),
                Create("/m/s", sequence=True),
                Create("/m/gone"),
                Delete("/m/gone", 0),
            ]
        )
        assert results[:2] == [None, "/m/a"]
        assert results[2].version == 1
        assert results[3:] == ["/m/s0000000001", "/m/gone", None]
        before = await s.exists("/m")
        for ops, index, kind in [
            ([Create("/m/b"), Check("/m", 0), Create("/m/c")], 1, BadVersionError),
            ([Set("/m", b"x"), Create("/m/a"), Delete("/none")], 1, NodeExistsError),
            ([Delete("/m/a"), Create("/e", ephemeral=True), Delete("/none")], 2, NoNodeError),
            ([Check("/none", 0)], 0, NoNodeError),
            ([Create("/m/b"), Delete("/m")], 1, NotEmptyError),
        ]:
            with pytest.raises(MultiError) as caught:
                await s.multi(ops)
            assert caught.value.index == index
            assert type(caught.value.error) is kind
            assert caught.value.error.path == ops[index].path
        assert await s.exists("/m") == before
        assert await s.children("/m") == ["a", "s0000000001"]
        assert await s.exists("/e") is None
        _, made = await s.create("/m/next")
        # Five multis failed, and each was a transaction all the same.
        assert made.czxid == before.mzxid + 6

    play(scenario)


def test_many_znodes_are_read_by_one_request(play):
    async def scenario(z):
        s = await z.session()
        await s.create("/a", b"one")
        await s.create("/b", None)
        await s.set("/a", b"three")
        a, gone, b = await s.multi_read(["/a", "/gone", "/b"])
        assert a == await s.get("/a")
        assert a[0] == b"three"
        assert b == await s.get("/b")
        assert isinstance(gone, NoNodeError)
        assert gone.path == "/gone"
        assert await s.multi_read([]) == []
        many = [f"/{i}" for i in range(400)]
        for path in many:
            await s.create(path, path.encode() * 50)
        assert [data for data, _ in await s.multi_read(many)] == [p.encode() * 50 for p in many]

    play(scenario)


def test_watches_fire_once_and_before_the_answer_that_shows_the_change(play):
    async def scenario(z):
        s = await z.session()
        other = await z.session()
        seen = []
        await s.create("/w", b"")
        await s.get("/w", seen.append)
        await s.children("/w", seen.append)
        assert await s.exists("/absent", seen.append) is None
        with pytest.raises(NoNodeError):
            await s.get("/absent2", seen.append)
        await other.set("/w", b"1")
        await other.set("/w", b"2")
        await other.create("/w/child")
        await other.create("/w/child2")
        await other.create("/absent")
        await other.create("/absent2")
        await s.sync("/w")
        assert (await s.get("/w"))[0] == b"2"
        assert seen == [
            WatchEvent(CHANGED, "/w"),
            WatchEvent(CHILDREN, "/w"),
            WatchEvent(CREATED, "/absent"),
        ]

    play(scenario)


def test_a_deletion_is_told_once_per_watcher(play):
    async def scenario(z):
        s = await z.session()
        seen = []

        def both(event):
            seen.append(("both", event))

        await s.create("/d")
        await s.create("/d/x")
        await s.get("/d/x", both)
        await s.children("/d/x", both)
        await s.exists("/d/x", lambda e: seen.append(("exists", e)))
        await s.children("/d", lambda e: seen.append(("parent", e)))
        await s.delete("/d/x")
        gone = WatchEvent(DELETED, "/d/x")
        assert seen == [
            ("both", gone),
            ("exists", gone),
            ("parent", WatchEvent(CHILDREN, "/d")),
        ]

    play(scenario)


def test_a_failed_multi_wakes_nobody(play):
    async def scenario(z):
        s = await z.session()
        seen = []
        await s.create("/f")
        await s.get("/f", seen.append)
        with pytest.raises(MultiError):
            await s.multi([Set("/f", b"x"), Check("/f", 9)])
        await s.sync("/f")
        assert seen == []
        await s.multi([Set("/f", b"y"), Check("/f", 1)])
        assert seen == [WatchEvent(CHANGED, "/f")]

    play(scenario)


def test_requests_pipeline_in_order(play):
    async def scenario(z):
        s = await z.session()
        await s.create("/n", b"0")
        futures = []
        for i in range(500):
            futures += [s.set("/n", str(i).encode()), s.get("/n")]
        values = [(await f)[0] for f in futures[1::2]]
        assert values == [str(i).encode() for i in range(500)]

    play(scenario)


def test_sizes_have_a_bound(play):
    async def scenario(z):
        s = await z.session()
        big = bytes(1_000_000)
        await s.create("/big", big)
        assert (await s.get("/big"))[0] == big
        with pytest.raises(RequestTooLargeError, match="/huge"):
            await s.create("/huge", bytes(1_048_576))
        assert s.state is SessionState.CONNECTED

    play(scenario)


def test_a_server_closes_on_too_large_a_frame(play):
    async def scenario(z):
        host, _, port = z.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(jute.ConnectRequest(0, 5000, 0, bytes(16)).encode())
        await reader.readexactly(4 + 4 + 4 + 8 + 4 + 16 + 1)
        writer.write(jute.INT.pack(2_000_000) + bytes(1000))
        assert await reader.read(1) == b""
        writer.close()

    play(scenario)


def test_ephemerals_go_with_their_session(play):
    async def scenario(z):
        s, other = await z.session(), await z.session()
        seen = []
        _, stat = await s.create("/mine", ephemeral=True)
        assert stat.ephemeral_owner == s.session_id
        await other.exists("/mine", seen.append)
        await s.close()
        assert s.state is SessionState.DEAD
        await other.sync("/mine")
        assert await other.exists("/mine") is None
        assert seen == [WatchEvent(DELETED, "/mine")]
        with pytest.raises(SessionExpiredError, match="closed"):
            await s.get("/")

    play(scenario)


def test_timeouts_are_negotiated(play):
    async def scenario(z):
        assert (await z.session(1)).timeout_ms == 2 * z.tick_ms
        assert (await z.session(1_000_000)).timeout_ms == 20_000
        assert (await z.session(7_777)).timeout_ms == 7_777

    play(scenario)


def test_chroot_is_the_clients(play):
    async def scenario(z):
        s = await z.session()
        top = await z.session(connect_string=z.address)
        seen = []
        assert (await s.create("/in"))[0] == "/in"
        await s.get("/", seen.append)
        chroot = "/" + z.connect_string.partition("/")[2]
        assert await top.children(chroot) == ["in"]
        await top.set(chroot, b"root")
        await s.sync()
        assert seen == [WatchEvent(CHANGED, "/")]
        with pytest.raises(MultiError) as caught:
            await s.multi([Create("/in")])
        assert caught.value.error.path == "/in"

    play(scenario)


# --- connections lost and sessions continued ----------------------------------------------------


def test_a_lost_connection_suspends_and_the_session_continues(play):
    async def scenario(z):
        events = []
        s = await z.session(on_event=events.append)
        other = await z.session(steady=True)
        await s.create("/stays", ephemeral=True)
        z.network.refuses = True
        pending = [s.get("/stays"), s.set("/stays", b"x")]
        z.network.cut()
        for future in pending:
            with pytest.raises(ConnectionLossError):
                await future
        assert s.state is SessionState.SUSPENDED
        with pytest.raises(ConnectionLossError, match="not sent"):
            await s.get("/stays")
        z.network.refuses = False
        await s.wait_connected()
        assert [e.state for e in events] == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert (await other.exists("/stays")).ephemeral_owner == s.session_id
        await s.set("/stays", b"again")

    play(scenario)


def test_watches_are_left_anew_and_miss_nothing(play):
    async def scenario(z):
        s, other = await z.session(), await z.session(steady=True)
        for path in ("/changed", "/same", "/parent", "/deleted", "/deleted-parent"):
            await s.create(path)
        seen, later = [], []
        await s.get("/changed", seen.append)
        await s.get("/same", later.append)
        await s.children("/parent", seen.append)
        await s.exists("/deleted", seen.append)
        await s.children("/deleted-parent", seen.append)
        await s.exists("/created", seen.append)
        await s.exists("/not-created", later.append)
        z.network.refuses = True
        z.network.cut()
        await z.until(lambda: s.state is SessionState.SUSPENDED)
        await other.set("/changed", b"1")
        await other.create("/parent/new")
        await other.delete("/deleted")
        await other.delete("/deleted-parent")
        await other.create("/created")
        z.network.refuses = False
        await s.wait_connected()
        await s.sync()
        assert sorted(seen) == sorted(
            [
                WatchEvent(CHANGED, "/changed"),
                WatchEvent(CHILDREN, "/parent"),
                WatchEvent(DELETED, "/deleted"),
                WatchEvent(DELETED, "/deleted-parent"),
                WatchEvent(CREATED, "/created"),
            ]
        )
        assert later == []
        await other.set("/same", b"1")
        await other.create("/not-created")
        await s.sync()
        assert later == [WatchEvent(CHANGED, "/same"), WatchEvent(CREATED, "/not-created")]

    play(scenario)


def test_a_reply_lost_with_its_connection_leaves_the_write_done(play):
    async def scenario(z):
        s, other = await z.session(), await z.session(steady=True)
        z.network.swallows = True
        with pytest.raises(ConnectionLossError):
            await s.create("/done", b"x", ephemeral=True)
        assert (await other.get("/done"))[0] == b"x"
        await s.wait_connected()
        with pytest.raises(NodeExistsError):
            await s.create("/done", b"x", ephemeral=True)

    play(scenario)


def test_silence_expires_a_session_at_the_server_not_before_our_own_deadline(play):
    async def scenario(z):
        events = []
        s = await z.session(z.session_ms, events.append)
        other = await z.session(steady=True)
        gone = asyncio.Event()
        heard_s = z.world.clock.monotonic()  # the server hears of it then or later
        await s.create("/e", ephemeral=True)
        await other.exists("/e", lambda _: gone.set())
        z.network.refuses = True
        z.network.cut()
        async with asyncio.timeout(30):
            await gone.wait()
        took_s = z.world.clock.monotonic() - heard_s
        # When others see our ephemerals go we have already stopped believing in ourselves.
        assert s.state is SessionState.DEAD
        assert events[-1].state is SessionState.DEAD
        assert took_s >= z.session_ms / 1000 - 0.01
        with pytest.raises(SessionExpiredError):
            await s.wait_connected()

    play(scenario)


def test_pings_keep_an_idle_session(play):
    """A machine that stands still for a third of the timeout costs a connection: then once more."""

    async def scenario(z):
        for number in range(5):
            events = []
            s = await z.session(z.session_ms, events.append)
            await s.create(f"/idle-{number}", ephemeral=True)
            await asyncio.sleep(z.session_ms / 1000 * 2)
            if not events:
                break
        assert events == []
        assert await s.exists(f"/idle-{number}") is not None

    play(scenario)


def test_a_session_closed_by_another_client_is_expired_for_us(play):
    """Fault F10: the same session id closed by a second client."""

    async def scenario(z):
        events = []
        s = await z.session(on_event=events.append)
        await s.create("/e", ephemeral=True)
        z.network.refuses = True  # so that we do not take the session back at once
        await _close_as_someone_else(z, s)
        z.network.refuses = False
        await z.until(lambda: s.state is SessionState.DEAD)
        assert "expired" in events[-1].reason
        other = await z.session()
        assert await other.exists("/e") is None

    play(scenario)


async def _close_as_someone_else(z, s: Session) -> None:
    host, _, port = z.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(jute.ConnectRequest(0, 10_000, s.session_id, s._password).encode())
    answer = await reader.readexactly(4 + 4 + 4 + 8 + 4 + 16 + 1)
    assert jute.ConnectResponse.decode(answer[4:]).session_id == s.session_id
    writer.write(jute.request(1, jute.CLOSE, b""))
    await reader.readexactly(20)
    writer.close()


def test_a_wrong_password_is_an_expired_session(play):
    async def scenario(z):
        s = await z.session()
        # A server ends the session's connections before it looks at the password. If our session
        # came back at once, ZooKeeper would end this connection too, perhaps before its answer.
        z.network.refuses = True
        host, _, port = z.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(jute.ConnectRequest(0, 5000, s.session_id, b"x" * 16).encode())
        size = int.from_bytes(await reader.readexactly(4), "big")  # it may come by itself
        answer = jute.ConnectResponse.decode(await reader.readexactly(size))
        assert answer.timeout_ms == 0
        assert await reader.read(1) == b""
        writer.close()

    play(scenario)


# --- the same random history on both ------------------------------------------------------------


def _random_ops(rng: random.Random, count: int):
    paths = [f"/{a}" for a in "abc"] + [f"/{a}/{b}" for a in "abc" for b in "xy"]
    for _ in range(count):
        path = rng.choice(paths)
        version = rng.choice([-1, -1, 0, 1, 2])
        data = rng.choice([b"", b"1", b"22", None])
        kind = rng.choice(
            ["create", "create", "set", "delete", "get", "children", "exists", "multi"]
        )
        if kind == "create":
            yield kind, (path, data, rng.random() < 0.2, rng.random() < 0.2)
        elif kind == "set":
            yield kind, (path, data, version)
        elif kind == "delete":
            yield kind, (path, version)
        elif kind == "multi":
            ops = [
                rng.choice(
                    [
                        Create(rng.choice(paths), data, rng.random() < 0.2, rng.random() < 0.2),
                        Set(rng.choice(paths), data, rng.choice([-1, 0, 1])),
                        Delete(rng.choice(paths)),
                        Check(rng.choice(paths), rng.choice([-1, 0])),
                    ]
                )
                for _ in range(rng.randint(1, 4))
            ]
            yield kind, (ops,)
        else:
            yield kind, (path,)


def _history(run_on, server, seed: int) -> list:
    """Return all answers and events; zxids by rank, for other sessions come and go meanwhile."""
    told = []

    async def scenario(z):
        s = await z.session()
        for kind, arguments in _random_ops(random.Random(seed), 250):
            watch = [told.append] if kind in ("get", "children", "exists") else []
            try:
                told.append((kind, await getattr(s, kind)(*arguments, *watch)))
            except MultiError as error:
                told.append((kind, error.index, type(error.error).__name__))
            except ZooKeeperError as error:
                told.append((kind, type(error).__name__))
        told.append("end")

    run_on(server, scenario)
    told = told[: told.index("end")]
    zxids: set[int] = set()
    _each_stat(told, lambda stat: zxids.update((stat.czxid, stat.mzxid, stat.pzxid)))
    rank = {zxid: i for i, zxid in enumerate(sorted(zxids))}
    return _each_stat(
        told,
        lambda stat: stat._replace(
            czxid=rank[stat.czxid],
            mzxid=rank[stat.mzxid],
            pzxid=rank[stat.pzxid],
            ctime=0,
            mtime=0,
            ephemeral_owner=bool(stat.ephemeral_owner),
        ),
    )


def _each_stat(value, change):
    if isinstance(value, jute.Stat):
        return change(value)
    if isinstance(value, tuple | list):
        return [_each_stat(v, change) for v in value]
    return value


@pytest.mark.java
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ours", ["memory", "kept"])
def test_a_random_history_reads_the_same_on_both(seed, ours, run_on, request, real_server):
    zookeeper = _history(run_on, request.getfixturevalue(f"{ours}_server"), seed)
    real = _history(run_on, real_server, seed)
    assert len(zookeeper) > 250
    if zookeeper != real:
        i = next(i for i, (a, b) in enumerate(zip(zookeeper, real, strict=False)) if a != b)
        pytest.fail(f"{zookeeper[max(0, i - 6) : i]}\ntwin {zookeeper[i]}\nreal {real[i]}")
