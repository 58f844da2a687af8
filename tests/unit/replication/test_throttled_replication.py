"""A replica that catches up is held back by either side's throttle; one in sync by neither.

Time is virtual: what is measured is how long the throttle makes it take.
"""

import pytest

RECORD = "x" * 10_000
RECORDS = 40
SIZE = RECORDS * len(RECORD)
RATE = 20_000.0
EXPECTED_S = SIZE / RATE


async def with_a_late_replica(c):
    """Broker 1 leads and has everything; 2 is in sync and 3 about to catch up."""
    await c.controller.lead(1, isr=[1, 2], replicas=[1, 2, 3], new=True, to=[1, 2])
    for _ in range(RECORDS):
        assert (await c.produce(1, RECORD)).error_code == 0


async def catch_up(c):
    start = c.now
    await c.controller.tell(c.controller.states["t", 0], [3])
    await c.until(lambda: 3 in c[1].partition().state.isr.committed, seconds=120)
    return c.now - start


LIMITS = {"replica_fetch_max_bytes": 10_000, "replica_fetch_response_max_bytes": 10_000}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_catching_up_takes_as_long_as_the_rate_allows(wired, side):
    async def scenario(c):
        quota = c[1].replicas.leader_quota if side == "leader" else c[3].replicas.follower_quota
        quota.bound = RATE
        quota.throttle("t", {0})
        await with_a_late_replica(c)
        took = await catch_up(c)
        assert 0.7 * EXPECTED_S <= took <= 1.6 * EXPECTED_S, took
        sent = SIZE if side == "follower" else 2 * SIZE
        assert quota.throttled_bytes_total >= sent
        assert c[3].records() == c[1].records()

    wired(scenario, **LIMITS)


@pytest.mark.timeout(60)
def test_nothing_is_held_back_without_a_bound_or_for_other_partitions(wired):
    async def scenario(c):
        c[1].replicas.leader_quota.throttle("t", {0})
        c[3].replicas.follower_quota.throttle("t", {1})
        c[3].replicas.follower_quota.bound = 1.0
        await with_a_late_replica(c)
        assert await catch_up(c) < 2.0

    wired(scenario, **LIMITS)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_in_sync_replicas_are_not_slowed(wired, side):
    async def scenario(c):
        await c.controller.lead(1, replicas=[1, 2], new=True)
        await c.produce(1, "first")
        await c.settle(1.0)
        quota = c[1].replicas.leader_quota if side == "leader" else c[2].replicas.follower_quota
        quota.bound = 100.0
        quota.throttle("t", {0})
        start = c.now
        for _ in range(RECORDS):
            assert (await c.produce(1, RECORD)).error_code == 0
        assert c.now - start < 1.0
        assert quota.throttled_bytes_total >= SIZE
        assert quota.exceeded(c.now * 1000)

    wired(scenario, brokers=2, **LIMITS)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttle_that_is_taken_away_lets_go(wired, side):
    async def scenario(c):
        quota = c[1].replicas.leader_quota if side == "leader" else c[3].replicas.follower_quota
        quota.bound = 1.0
        quota.throttle("t", {0})
        await with_a_late_replica(c)
        await c.controller.tell(c.controller.states["t", 0], [3])
        await c.settle(20)
        assert c[3].log().log_end_offset < RECORDS // 2
        quota.throttle("t", ())
        start = c.now
        await c.until(lambda: 3 in c[1].partition().state.isr.committed)
        assert c.now - start < 3.0

    wired(scenario, **LIMITS)


@pytest.mark.timeout(60)
def test_a_bound_below_the_empty_responses_lets_no_record_pass(wired):
    """As on Kafka, where a reassignment with `--throttle 1` waits until it is cancelled."""

    async def scenario(c):
        c[1].replicas.leader_quota.bound = 1.0
        c[1].replicas.leader_quota.throttle("t", {0})
        await c.controller.lead(1, isr=[1, 2], replicas=[1, 2, 3], new=True, to=[1, 2])
        assert (await c.produce(1, "small")).error_code == 0
        await c.settle(15)  # what was produced has left the window of the rate
        await c.controller.tell(c.controller.states["t", 0], [3])
        await c.settle(20)
        assert c[3].log().log_end_offset == 0
        assert 3 not in c[1].partition().state.isr.committed

    wired(scenario)
