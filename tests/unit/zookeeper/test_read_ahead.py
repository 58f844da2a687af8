"""Many reads: a slice is taken while the next is on its way; lost connections lose nothing."""

import asyncio

import pytest

from ottla.zookeeper import jute
from ottla.zookeeper.access import READS_AT_ONCE, Access
from ottla.zookeeper.errors import (
    NoNodeError,
    SessionExpiredError,
    UnimplementedError,
    ZooKeeperError,
)
from ottla.zookeeper.operations import Create

MANY = 3 * READS_AT_ONCE + 7
PATHS = [f"/n{i}" for i in range(MANY)]


async def filled(z):
    access = Access(await z.session())
    for path in PATHS[::2]:
        await access.write(Create(path, path.encode()))
    return access


def right(results):
    """Return whether each result is its own path's."""
    for path, result in zip(PATHS, results, strict=True):
        if int(path[2:]) % 2:
            assert isinstance(result, NoNodeError)
        else:
            assert result[0] == path.encode()


def test_results_come_slice_by_slice_while_the_next_one_is_read(still):
    async def scenario(z):
        access = await filled(z)
        asked, taken = [], []

        def ask(path):
            asked.append(path)
            return access.session.get(path)

        def take(start, found):
            taken.append((start, len(found), len(asked)))

        await access.read_slices(ask, PATHS, take)
        n = READS_AT_ONCE
        assert taken == [(0, n, 2 * n), (n, n, 3 * n), (2 * n, n, MANY), (3 * n, 7, MANY)]
        assert asked == PATHS

    still(scenario)


@pytest.mark.parametrize("cut_after", [1, READS_AT_ONCE + 1, 2 * READS_AT_ONCE + 3, MANY - 1])
def test_a_connection_lost_in_any_slice_loses_no_result(still, cut_after):
    async def scenario(z):
        access = await filled(z)
        count = 0

        def ask(path):
            nonlocal count
            count += 1
            if count == cut_after:
                z.server.disconnect(access.session.session_id)
            return access.session.get(path)

        results = []
        await access.read_slices(ask, PATHS, lambda _start, found: results.extend(found))
        right(results)
        assert count > MANY, "nothing was lost, so nothing was tried"

    still(scenario)


def test_an_ended_session_ends_it_and_leaves_no_result_unretrieved(still):
    async def scenario(z):
        problems = []
        z.loop.set_exception_handler(lambda _loop, context: problems.append(context))
        access = await filled(z)
        reading = asyncio.ensure_future(access.get_many(PATHS))
        await asyncio.sleep(0)
        z.server.expire(access.session.session_id)
        with pytest.raises(SessionExpiredError):
            await reading
        results = await access.read_all(access.session.get, PATHS)
        assert all(isinstance(r, ZooKeeperError) for r in results)
        assert problems == []

    still(scenario)


# --- one request for each slice -----------------------------------------------------------------


async def in_slices(access):
    """Return all results, and the size of each slice."""
    results, sizes = [], []

    def take(start, found):
        assert start == len(results)
        results.extend(found)
        sizes.append(len(found))

    await access.get_data_in_slices(PATHS, take)
    return results, sizes


def counting(session, name):
    """Count what is asked by one method of a session."""
    asked = []
    method = getattr(session, name)

    def ask(what):
        asked.append(what)
        return method(what)

    setattr(session, name, ask)
    return asked


def test_a_slice_is_one_request(still):
    async def scenario(z):
        access = await filled(z)
        requests, single = counting(access.session, "multi_read"), counting(access.session, "get")
        results, sizes = await in_slices(access)
        right(results)
        n = READS_AT_ONCE
        assert sizes == [len(paths) for paths in requests] == [n, n, n, 7]
        assert single == []

    still(scenario)


def test_a_server_that_does_not_know_it_is_asked_once(still, monkeypatch):
    """ZooKeeper 3.5 answers with this error and closes the connection."""

    async def scenario(z):
        access = await filled(z)

        def unknown(_frame):
            z.loop.call_soon(z.server.disconnect, access.session.session_id)
            raise UnimplementedError

        monkeypatch.setattr(z.server, "_multi_read", unknown)
        requests = counting(access.session, "multi_read")
        for _ in range(2):
            results, _ = await in_slices(access)
            right(results)
        assert len(requests) <= 3, "the first ones were on their way already"

    still(scenario)


@pytest.mark.parametrize("slice_", [0, 1, 3])
def test_a_slice_whose_reply_is_lost_is_read_znode_by_znode(still, slice_):
    async def scenario(z):
        access = await filled(z)
        last = PATHS[slice_ * READS_AT_ONCE : (slice_ + 1) * READS_AT_ONCE][-1]
        z.server.lose_reply(lambda op, path: op == jute.MULTI_READ and path == last)
        single = counting(access.session, "get")
        results, _ = await in_slices(access)
        right(results)
        assert last in single

    still(scenario)


def test_an_ended_session_ends_reads_of_slices(still):
    async def scenario(z):
        problems = []
        z.loop.set_exception_handler(lambda _loop, context: problems.append(context))
        access = await filled(z)
        reading = asyncio.ensure_future(in_slices(access))
        await asyncio.sleep(0)
        z.server.expire(access.session.session_id)
        with pytest.raises(SessionExpiredError):
            await reading
        assert problems == []

    still(scenario)
