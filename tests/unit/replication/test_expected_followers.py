"""Fetches of followers with partitions still to fetch complete at once; other fetches wait."""

import asyncio
import types

from ottla.replication.fetching import LONGEST_EXPECTED_MS as LONGEST_MS
from ottla.replication.fetching import ExpectedFollowers
from ottla.replication.isr import Follower


class Led(types.SimpleNamespace):
    __hash__ = object.__hash__


def led(*followers):
    state = types.SimpleNamespace(followers={f: Follower(f) for f in followers})
    return Led(state=state)


def fetched(partition, follower):
    partition.state.followers[follower].log_end_offset = 0


def test_a_follower_is_awaited_until_it_has_fetched_all_its_partitions():
    expected, first, second = ExpectedFollowers(), led(2, 3), led(2)
    assert expected.expect([first, second], 0.0) == [2, 3]
    assert expected.awaits(2, 1.0)
    assert expected.awaits(3, 1.0)
    assert not expected.awaits(4, 1.0)
    fetched(second, 2)
    fetched(first, 3)
    assert expected.awaits(2, 2.0)
    assert not expected.awaits(3, 2.0)
    fetched(first, 2)
    assert not expected.awaits(2, 3.0)


def test_a_partition_that_is_led_no_more_is_not_awaited():
    expected, gone = ExpectedFollowers(), led(2)
    expected.expect([gone], 0.0)
    gone.state.followers.clear()
    assert not expected.awaits(2, 1.0)


def test_no_follower_is_awaited_for_ever():
    expected, first, second = ExpectedFollowers(), led(2), led(2)
    expected.expect([first], 0.0)
    expected.expect([second], LONGEST_MS - 1.0)
    assert expected.awaits(2, LONGEST_MS + 1.0)
    assert not expected.awaits(2, 2 * LONGEST_MS)
    # A partition that was not fetched in time is forgotten, also without any fetch.
    expected.expect([first], 0.0)
    expected.expect([second], LONGEST_MS)
    fetched(second, 2)
    assert not expected.awaits(2, LONGEST_MS + 1.0)


def fetches(node):
    return node.replicas.purgatory.statistics()["parked_total"]


def test_fetches_of_followers_that_have_fetched_all_wait(wired):
    """An election cost its leader 50 fetches of each follower within a second."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2, 3], new=True)
        await c.settle(0.2)
        before = fetches(c[1])
        await c.settle(0.8)
        assert fetches(c[1]) - before <= 4

    wired(scenario)


def test_what_waits_for_a_new_follower_does_not_wait_for_its_parked_fetch(wired):
    """The follower gets LeaderAndIsr later than its leader; its fetch is parked meanwhile."""

    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.settle(10.0)
        await c.controller.lead(1, replicas=[1, 2], index=1, new=True, to=[1])
        written = asyncio.ensure_future(c.produce(1, "a", index=1))
        await asyncio.sleep(0.3)
        assert not written.done()
        told_s = c.now
        await c.controller.tell(c.controller.states["t", 1], [2])
        assert (await written).error_code == 0
        assert c.now - told_s < 0.05

    wired(scenario, brokers=2, min_insync_replicas=2, replica_fetch_wait_max_ms=5000)
