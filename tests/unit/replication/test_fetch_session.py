"""Fetch sessions of a server, on values."""

import itertools

import pytest

from ottla.model.errors import ErrorCode
from ottla.replication.fetch_session import (
    EVICTION_MS,
    FINAL_EPOCH,
    MAX_EPOCH,
    MOST_CLIENT_BYTES,
    SessionCache,
    next_epoch,
)


@pytest.fixture
def cache():
    numbers = itertools.count(1)
    return SessionCache(slots=3, new_id=lambda: next(numbers))


def full(cache, partitions, *, now=0, follower=False, session_id=0, epoch=0):
    session = cache.open(session_id, epoch, is_follower=follower, uses_topic_ids=True, now_ms=now)
    for index in range(partitions):
        session.entry("t", b"i" * 16, index)
    return session


def kept(cache, partitions, **fields):
    session = full(cache, partitions, **fields)
    return cache.keep(session, fields.get("now", 0)), session


def go_on(cache, session_id, epoch, *, now=0, ids=True):
    return cache.open(session_id, epoch, is_follower=False, uses_topic_ids=ids, now_ms=now)


def test_epochs():
    assert [next_epoch(e) for e in (0, 1, MAX_EPOCH, FINAL_EPOCH)] == [1, 2, 1, FINAL_EPOCH]


def test_a_session_goes_on(cache):
    session_id, session = kept(cache, 2)
    assert go_on(cache, session_id, 1) is session
    assert go_on(cache, session_id, 2) is session
    assert session.epoch == 3


def test_lost_doubled_and_unknown(cache):
    session_id, _ = kept(cache, 1)
    assert go_on(cache, session_id, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert go_on(cache, 77, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert go_on(cache, session_id, 1, ids=False) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert not isinstance(go_on(cache, session_id, 1), ErrorCode)


def test_a_full_request_closes_the_session_it_names(cache):
    session_id, _ = kept(cache, 1)
    full(cache, 1, session_id=session_id, epoch=FINAL_EPOCH)
    assert go_on(cache, session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


def test_a_session_without_partitions_ends(cache):
    session_id, session = kept(cache, 1)
    go_on(cache, session_id, 1)
    session.forget("t", b"i" * 16, 0)
    cache.settle(session)
    assert len(cache) == 0
    assert session.id == 0


def test_an_empty_one_is_not_kept(cache):
    assert kept(cache, 0)[0] == 0


def test_listed_ones_are_dirty_and_known_ones_stay(cache):
    _, session = kept(cache, 2)
    first = session.entries[b"i" * 16, 0]
    session.dirty.clear()
    assert session.entry("t", b"i" * 16, 0) is first
    assert list(session.dirty) == [first]
    session.entry("t", b"i" * 16, 1)
    session.move_to_end(first)
    assert list(session.dirty)[-1] is first


def test_full_means_full(cache):
    for _ in range(3):
        assert kept(cache, 2, now=10)[0]
    assert kept(cache, 9, now=20)[0] == 0
    assert len(cache) == 3


def test_the_stalest_gives_way(cache):
    ids = [kept(cache, 2, now=i)[0] for i in range(3)]
    go_on(cache, ids[0], 1, now=EVICTION_MS)
    assert kept(cache, 1, now=EVICTION_MS + 2)[0]
    assert go_on(cache, ids[1], 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not isinstance(go_on(cache, ids[0], 2), ErrorCode)


def test_a_follower_displaces_the_smallest_client(cache):
    ids = [kept(cache, size, now=1)[0] for size in (3, 1, 2)]
    assert kept(cache, 1, now=2, follower=True)[0]
    assert go_on(cache, ids[1], 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # A client does not displace a young one, and never a follower.
    assert kept(cache, 9, now=3)[0] == 0


def test_an_old_one_gives_way_to_one_worth_as_much(cache):
    ids = [kept(cache, 5, now=0)[0] for _ in range(3)]
    for i in ids:
        go_on(cache, i, 1, now=EVICTION_MS)  # old, but in use
    assert kept(cache, 4, now=EVICTION_MS + 1)[0] == 0
    for i in ids:
        go_on(cache, i, 2, now=EVICTION_MS + 1)
    cache.settle(go_on(cache, ids[0], 3, now=EVICTION_MS + 1))
    assert kept(cache, 6, now=EVICTION_MS + 2)[0]
    assert cache.evicted_total == 1


class Source:
    def __init__(self):
        self.left = []

    def unwatch(self, entry):
        self.left.append(entry.index)


def test_closing_leaves_the_sources(cache):
    session_id, session = kept(cache, 2)
    source = Source()
    for entry in session.entries.values():
        entry.source = source
    session.forget("t", b"i" * 16, 1)
    cache.remove(session_id)
    assert source.left == [1, 0]
    assert cache.statistics() == {"sessions": 0, "partitions": 0, "evicted_total": 0}


LONG_NAME = "n" * 249


def named(cache, partitions, *, now=0, follower=False):
    session = cache.open(0, 0, is_follower=follower, uses_topic_ids=False, now_ms=now)
    for index in range(partitions):
        session.entry(LONG_NAME, bytes(16), index)
    return session


def test_sessions_of_clients_are_bounded_in_bytes():
    numbers = itertools.count(1)
    cache = SessionCache(slots=1000, new_id=lambda: next(numbers))
    ids = [cache.keep(named(cache, 10_000), 0) for _ in range(8)]
    assert 0 in ids, "no more are kept"
    assert cache._client_bytes <= MOST_CLIENT_BYTES
    assert cache.keep(named(cache, 10_000, follower=True), 0), "followers are not clients"
    known = ids[0]
    grown = go_on(cache, known, 1, ids=False)
    for index in range(20_000, 50_000):
        grown.entry(LONG_NAME, bytes(16), index)
    cache.settle(grown)
    assert go_on(cache, known, 2, ids=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert go_on(cache, ids[1], 1, ids=False) is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for session_id in ids:
        cache.remove(session_id)
    assert cache._client_bytes == 0


def test_what_a_session_forgets_is_given_back():
    numbers = itertools.count(1)
    cache = SessionCache(slots=1000, new_id=lambda: next(numbers))
    session = named(cache, 10)
    for index in range(10):
        session.forget(LONG_NAME, bytes(16), index)
    assert session.bytes == 0
