"""F46: intervals that Kafka takes although they are 0 or less make no loop spin."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.broker.broker import server_limits
from ottla.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.model.config import BrokerConfig
from ottla.net.limits import ServerLimits
from ottla.net.server import Server
from ottla.replication.inter_broker import FetcherSettings
from ottla.replication.replica_manager import ReplicaManager
from support.logs import SystemClock

SECONDS, MOST = 0.3, 10


def config(**settings):
    dotted = {k.replace("_", "."): str(v) for k, v in settings.items()}
    return BrokerConfig({"zookeeper.connect": "z:1", "broker.id": "1", **dotted})


def rounds_of(loop):
    """Return how often a loop went round within a moment; `loop` gets what counts."""
    count = 0

    def one(*_args):
        nonlocal count
        count += 1

    async def go():
        task = asyncio.ensure_future(loop(one))
        await asyncio.sleep(SECONDS)
        task.cancel()

    asyncio.run(go())
    return count


@pytest.mark.parametrize("value", [0, -1])
def test_f46_high_watermarks_are_not_written_without_a_pause(value):
    async def checkpoint(one):
        async def write(_workers):
            one()

        await ReplicaManager._checkpoint(
            SimpleNamespace(
                config=config(replica_high_watermark_checkpoint_interval_ms=value),
                logs=SimpleNamespace(write_high_watermarks=write),
                world=SimpleNamespace(workers=None),
            )
        )

    assert 0 < rounds_of(checkpoint) <= MOST


def test_f46_the_isr_is_not_looked_at_without_a_pause():
    async def expire(one):
        async def once():
            one()

        await ReplicaManager._expire_isr(SimpleNamespace(lag_ms=0.0, expire_isr_once=once))

    assert 0 < rounds_of(expire) <= MOST


def test_f46_transactions_are_not_looked_after_without_a_pause():
    settings = config(transaction_abort_timed_out_transaction_cleanup_interval_ms=1)
    every = settings.interval_s("transaction.abort.timed.out.transaction.cleanup.interval.ms")

    async def abort(one):
        await TransactionCoordinator._every(None, every, one)

    assert 0 < rounds_of(abort) <= MOST


def test_f46_followers_do_not_ask_without_a_pause():
    made = FetcherSettings.of(config(replica_fetch_wait_max_ms=0, replica_fetch_backoff_ms=0))
    assert made.max_wait_ms >= 10
    assert made.backoff_s >= 0.05


@pytest.mark.parametrize("value", [0, 1])
def test_f46_connections_are_not_swept_without_a_pause(value):
    async def sweep(one):
        world = SimpleNamespace(clock=SystemClock())
        server = Server(world, "", 0, one, ServerLimits(idle_ms=value))
        server.responses = SimpleNamespace(sweep=one)
        server._sweep()
        try:
            await asyncio.sleep(60)
        finally:
            server._sweep_timer.cancel()

    assert 0 < rounds_of(sweep) <= 100


def test_idle_connections_stay_where_the_limit_is_less_than_nothing():
    limits = server_limits(config(connections_max_idle_ms=-1))
    assert limits.idle_ms > 10**12
    assert server_limits(config(connections_max_idle_ms=700)).idle_ms == 700
