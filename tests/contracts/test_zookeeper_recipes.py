"""kazoo's recipes, which use what brokers do not: the same on our server and on a real one."""

import threading
import time

import pytest

from support.own_zookeeper import kazoo


@pytest.fixture
def two(server):
    with kazoo(server.connect_string) as one, kazoo(server.connect_string) as other:
        root = f"/recipes-{one.client_id[0]}"
        one.ensure_path(root)
        yield one, other, root
        one.delete(root, recursive=True)


def in_time(thread: threading.Thread) -> bool:
    thread.join(60)
    return not thread.is_alive()


def test_a_lock_is_held_by_one_and_passed_on(two):
    one, other, root = two
    first, second = one.Lock(f"{root}/lock", "1"), other.Lock(f"{root}/lock", "2")
    assert first.acquire(timeout=30)
    assert not second.acquire(blocking=False)
    got = threading.Event()
    waiting = threading.Thread(target=lambda: second.acquire(timeout=60) and got.set())
    waiting.start()
    give_up_s = time.monotonic() + 30
    while first.contenders() != ["1", "2"]:
        assert time.monotonic() < give_up_s, first.contenders()
        time.sleep(0.01)
    assert not got.is_set()
    first.release()
    assert in_time(waiting)
    assert got.is_set()
    second.release()


def test_readers_share_a_lock_and_a_writer_does_not(two):
    one, other, root = two
    readers = [client.ReadLock(f"{root}/shared", "r") for client in two[:2]]
    assert all(reader.acquire(timeout=30) for reader in readers)
    assert not one.WriteLock(f"{root}/shared", "w").acquire(blocking=False)
    for reader in readers:
        reader.release()
    assert other.WriteLock(f"{root}/shared", "w").acquire(timeout=30)


def test_a_semaphore_counter_queue_and_barrier(two):
    one, other, root = two
    places = [client.Semaphore(f"{root}/places", max_leases=2) for client in (one, other, one)]
    assert [s.acquire(blocking=False) for s in places] == [True, True, False]
    places[0].release()
    assert places[2].acquire(timeout=30)
    counters = [client.Counter(f"{root}/count", default=0) for client in (one, other)]
    adding = [
        threading.Thread(target=lambda c=c: [c.__add__(1) for _ in range(20)]) for c in counters
    ]
    for thread in adding:
        thread.start()
    assert all(map(in_time, adding))
    assert counters[0].value == 40
    queue = one.LockingQueue(f"{root}/queue")
    queue.put_all([b"a", b"b"])
    queue.put(b"first", priority=1)
    taken = other.LockingQueue(f"{root}/queue")
    assert [(taken.get(30), taken.consume())[0] for _ in range(3)] == [b"first", b"a", b"b"]
    barrier = one.Barrier(f"{root}/barrier")
    barrier.create()
    assert not other.Barrier(f"{root}/barrier").wait(0.05)
    barrier.remove()
    assert other.Barrier(f"{root}/barrier").wait(30)


def test_watchers_see_every_last_state(two):
    one, other, root = two
    seen, children = [], []
    one.DataWatch(f"{root}/watched", lambda data, _: seen.append(data))
    one.ChildrenWatch(root, lambda names: children.append(sorted(names)))
    other.create(f"{root}/watched", b"1")
    for number in range(2, 30):
        other.set(f"{root}/watched", b"%d" % number)
    other.create(f"{root}/more")
    other.delete(f"{root}/watched")
    give_up_s = time.monotonic() + 30
    while not (seen[-1] is None and len(seen) > 1 and children[-1] == ["more"]):
        assert time.monotonic() < give_up_s, (seen, children)
        time.sleep(0.01)
    assert [int(s) for s in seen[1:-1]] == sorted({int(s) for s in seen[1:-1]})
