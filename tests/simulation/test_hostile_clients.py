"""Requests of every kind and version, well formed but senseless, or damaged: nothing falls over.

Fault F32 against whole brokers. The oracle: no handler fails with an error of ours, nothing is
left uncaught, and the cluster still serves a client afterwards. Requests that only a controller
sends are left out: without authorization they are obeyed, as in Kafka.
"""

import asyncio
import logging
import os
import random
import sys
from pathlib import Path

import pytest
from msgspec import structs

from ottla.broker.requests.routes import ROUTES
from ottla.client.client import Client
from ottla.sim.broker_processes import PORT
from ottla.sim.clients import create_topic
from ottla.sim.cluster import Cluster
from ottla.sim.plans import Plan
from ottla.sim.verdict import Tracebacks

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

ROUNDS = 400
SEEDS = int(os.environ.get("OTTLA_SIM_SEEDS", "3"))


class Mute(asyncio.Protocol):
    """Sends and does not care."""


async def attack(world, frames, hosts):
    rng = random.Random(1)
    transport = None
    for number, frame in enumerate(frames):
        if transport is None or transport.is_closing() or number % 5 == 0:
            if transport is not None:
                transport.close()
            transport, _ = await world.network.connect(rng.choice(hosts), PORT, Mute, timeout_s=5.0)
        transport.write(frame)
        await asyncio.sleep(0.05)
    if transport is not None:
        transport.close()


def errors_after_nonsense(seed, rounds):
    """Attack a fresh cluster; return what it logged as errors of its own or did not catch."""
    from fuzz_messages import Nonsense

    plan = Plan(seed, producers=0, no_retry_producers=0, consumers=0, operators=False, faults=())
    cluster = Cluster(plan)
    simulation = cluster.simulation
    caught = Tracebacks()
    logging.getLogger("ottla").addHandler(caught)
    try:
        cluster.boot()
        node = simulation.node("client")
        hosts = [n.name for n in cluster.broker_nodes()]
        nonsense = Nonsense(seed)

        async def main(world):
            client = Client(world, cluster.bootstrap, timeout_s=5.0)
            await create_topic(client, "hostile", 3, 3, {})
            await attack(world, [nonsense.frame() for _ in range(rounds)], hosts)
            await asyncio.sleep(5.0)
            await create_topic(client, "afterwards", 1, 3, {})
            await asyncio.sleep(2.0)
            assert await client.leader("afterwards", 0, refresh=True) >= 0
            await client.close()

        node.call(main(node.world))
    finally:
        logging.getLogger("ottla").removeHandler(caught)
        failures = simulation.failures()
        cluster.close()
    return caught.found + failures


@pytest.mark.parametrize("seed", range(SEEDS))
def test_brokers_survive_every_kind_of_nonsense(seed):
    assert errors_after_nonsense(seed, ROUNDS) == []


def test_a_handler_that_falls_over_is_noticed(monkeypatch):
    def clumsy(server, conn, header, request):
        return request.topics[7]

    monkeypatch.setitem(ROUTES, 2, structs.replace(ROUTES[2], handle=clumsy))
    assert any("IndexError" in line for line in errors_after_nonsense(1, 60))
