"""F46: intervals that Kafka takes although they are 0 or less make no loop spin."""

import asyncio

import pytest

from ottla.broker.broker import server_limits
from ottla.model.config import BrokerConfig
from ottla.net.limits import ServerLimits
from ottla.net.server import Server
from ottla.replication.inter_broker import FetcherSettings
from ottla.sim.world import Simulation
from ottla.wire.messages.topics import CreateTopicsRequest

SECONDS = 5.0
MOST = 1000
"""Steps in a second: a loop goes round 20 times at most. Without a pause: 5,000 or more."""


def config(**settings):
    dotted = {k.replace("_", "."): str(v) for k, v in settings.items()}
    return BrokerConfig({"zookeeper.connect": "z:1", "broker.id": "1", **dotted})


def steps_in_a_second(simulation):
    before = simulation.scheduler.steps
    simulation.run_for(SECONDS)
    return (simulation.scheduler.steps - before) / SECONDS


@pytest.mark.parametrize(
    "settings",
    [
        {"replica_high_watermark_checkpoint_interval_ms": "0"},
        {"replica_high_watermark_checkpoint_interval_ms": "-1"},
        {"replica_lag_time_max_ms": "0", "replica_fetch_wait_max_ms": "0"},
        {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "1"},
        {"transaction_remove_expired_transaction_cleanup_interval_ms": "1"},
    ],
    ids=lambda settings: "-".join(settings) + "-" + next(iter(settings.values())),
)
def test_f46_no_loop_of_a_broker_goes_on_without_a_pause(scene, settings):
    scene.up(1, **settings)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    scene.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=9000), 5)
    assert 1 < steps_in_a_second(scene.simulation) < MOST


def test_f46_followers_do_not_ask_without_a_pause():
    made = FetcherSettings.of(config(replica_fetch_wait_max_ms=0, replica_fetch_backoff_ms=0))
    assert made.max_wait_ms >= 10
    assert made.backoff_s >= 0.05


@pytest.mark.parametrize("value", [0, 1])
def test_f46_connections_are_not_swept_without_a_pause(value):
    async def serve(world):
        await Server(world, "b", 9092, None, ServerLimits(idle_ms=value)).start()
        await asyncio.Event().wait()

    with Simulation(1) as simulation:
        simulation.node("b").boot(serve)
        assert 1 < steps_in_a_second(simulation) < MOST


def test_idle_connections_stay_where_the_limit_is_less_than_nothing():
    limits = server_limits(config(connections_max_idle_ms=-1))
    assert limits.idle_ms > 10**12
    assert server_limits(config(connections_max_idle_ms=700)).idle_ms == 700
