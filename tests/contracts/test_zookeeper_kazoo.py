"""kazoo as the oracle: it reads what we write, and runs unchanged on our in-memory ZooKeeper."""

import asyncio
import threading

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from ottla.zookeeper.operations import Create, Set


@pytest.fixture
def kazoo(server):
    client = KazooClient(
        server.connect_string, timeout=5, connection_retry=KazooRetry(max_tries=20, delay=0.05)
    )
    client.start(30)
    yield client
    client.stop()
    client.close()


def test_kazoo_works_on_either_server(kazoo):
    root = f"/kazoo-{kazoo.client_id[0]}"
    kazoo.create(root, b"r")
    path, stat = kazoo.create(f"{root}/a", b"1", include_data=True)
    assert (path, stat.version, stat.dataLength) == (f"{root}/a", 0, 1)
    assert kazoo.get(root)[0] == b"r"
    assert kazoo.set(f"{root}/a", b"22").version == 1
    assert kazoo.get_children(root) == ["a"]
    assert kazoo.get_children(root, include_data=True)[1].cversion == 1
    assert kazoo.exists(f"{root}/none") is None
    assert kazoo.get_acls(root)[0] == OPEN_ACL_UNSAFE
    assert kazoo.set_acls(root, OPEN_ACL_UNSAFE).aversion == 1
    for call, error in [
        (lambda: kazoo.create(root), NodeExistsError),
        (lambda: kazoo.get(f"{root}/none"), NoNodeError),
        (lambda: kazoo.set(f"{root}/a", b"", version=9), BadVersionError),
        (lambda: kazoo.delete(root), NotEmptyError),
    ]:
        with pytest.raises(error):
            call()
    assert kazoo.create(f"{root}/s-", ephemeral=True, sequence=True) == f"{root}/s-0000000001"
    transaction = kazoo.transaction()
    transaction.check(f"{root}/a", 1)
    transaction.create(f"{root}/b", b"b")
    transaction.set_data(f"{root}/a", b"333", 1)
    transaction.delete(f"{root}/b")
    done, made, changed, gone = transaction.commit()
    assert (done, made, changed.version, gone) == (True, f"{root}/b", 2, True)
    transaction = kazoo.transaction()
    transaction.set_data(f"{root}/a", b"no")
    transaction.check(f"{root}/a", 7)
    transaction.create(f"{root}/c")
    assert [type(r).__name__ for r in transaction.commit()] == [
        "RolledBackError",
        "BadVersionError",
        "RuntimeInconsistency",
    ]
    assert kazoo.get(f"{root}/a")[0] == b"333"
    assert kazoo.sync(root) == root
    kazoo.delete(root, recursive=True)


def test_kazoo_watches_on_either_server(kazoo):
    root = f"/watched-{kazoo.client_id[0]}"
    kazoo.create(root)
    events, told = [], threading.Event()

    def watcher(event):
        events.append((event.type, event.path))
        if len(events) == 3:
            told.set()

    kazoo.get(root, watch=watcher)
    kazoo.get_children(root, watch=watcher)
    kazoo.exists(f"{root}/x", watch=watcher)
    kazoo.set(root, b"1")
    kazoo.create(f"{root}/x")
    assert told.wait(30)
    assert sorted(events) == [
        (EventType.CHANGED, root),
        (EventType.CHILD, root),
        (EventType.CREATED, f"{root}/x"),
    ]
    kazoo.delete(root, recursive=True)


def test_kazoo_takes_its_session_to_a_new_connection(kazoo):
    states, back = [], threading.Event()

    def listener(state):
        states.append(state)
        if state == KazooState.CONNECTED:
            back.set()

    path = f"/eph-{kazoo.client_id[0]}"
    kazoo.create(path, ephemeral=True)
    session = kazoo.client_id[0]
    kazoo.add_listener(listener)
    kazoo._connection._socket.shutdown(2)
    assert back.wait(30)
    assert states == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert kazoo.client_id[0] == session
    assert kazoo.exists(path).ephemeralOwner == session


def test_both_clients_see_the_same(server, run_on, kazoo):
    async def scenario(z):
        s = await z.session(connect_string=z.address)
        root = f"/shared-{s.session_id}"
        await s.create(root, b"ours")
        await s.multi([Create(f"{root}/kid", b"x", ephemeral=True), Set(root, b"twice", 0)])
        ask = asyncio.get_running_loop().run_in_executor
        for path in (root, f"{root}/kid"):
            await ask(None, kazoo.sync, path)
            data, stat = await ask(None, kazoo.get, path)
            ours, our_stat = await s.get(path)
            assert (data, tuple(stat)) == (ours, tuple(our_stat))
        seen = []
        await s.get(root, seen.append)
        await ask(None, kazoo.set, root, b"theirs")
        await s.sync(root)
        assert (await s.get(root))[0] == b"theirs"
        assert len(seen) == 1

    run_on(server, scenario)
