"""Requests of every kind and version, well formed but senseless, or damaged: nothing falls over.

Fault F32 against whole brokers. The oracle: no handler fails with an error of ours, nothing is
left uncaught, and the cluster still serves a client afterwards. Requests that only a controller
sends are left out: without authorization they are obeyed, as in Kafka.
"""

import asyncio
import logging
import os
import random
import struct

import pytest

from ottla.broker.routes import HANDLERS
from ottla.net.client import Client
from ottla.sim.clients import create_topic
from ottla.sim.cluster import PORT, Cluster, Tracebacks
from ottla.sim.plans import Plan
from ottla.wire import codec
from ottla.wire.apis import APIS
from ottla.wire.headers import encode_request_header
from ottla.wire.records import Record, build_batch

OF_THE_CONTROLLER = {4, 5, 6, 7, 56}
KEYS = sorted(set(HANDLERS) - OF_THE_CONTROLLER)
NAMES = ("hostile", "hostile", "events", "", ".", "..", "no-such", "é" * 5, "x" * 300, "a b", "0")
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ROUNDS = 400
SEEDS = int(os.environ.get("OTTLA_SIM_SEEDS", "3"))


class Nonsense:
    """Random values for a message's fields, often ones that mean something."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def integer(self, bits):
        top = 2 ** (bits - 1)
        return self.rng.choice(
            (-2, -1, 0, 0, 1, 1, 2, 3, 4, top - 1, -top, self.rng.randrange(top))
        )

    def records(self):
        rng = self.rng
        count = rng.choice((1, 1, 3))
        batch = bytearray(
            build_batch(
                [Record(-1, rng.choice((-1, 0, 1_767_225_600_000)), None, b"v")] * count,
                producer_id=rng.choice((-1, 0, 7)),
                producer_epoch=rng.choice((-1, 0, 1)),
                base_sequence=rng.choice((-1, 0, 2**31 - 1)),
                is_transactional=rng.random() < 0.1,
                codec=rng.choice((0, 1, 2, 3, 4)),
            )
        )
        fate = rng.random()
        if fate < 0.3:
            batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
        elif fate < 0.4:
            del batch[rng.randrange(len(batch)) :]
        elif fate < 0.5:
            batch += bytes(batch)
        elif fate < 0.55:
            return rng.randbytes(rng.randrange(100))
        return bytes(batch)

    def scalar(self, kind):
        rng = self.rng
        if kind in BITS:
            return self.integer(BITS[kind])
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "uint16":
            return rng.randrange(65536)
        if kind == "float64":
            return rng.choice((0.0, -1.0, 1e300))
        if kind == "uuid":
            return rng.choice((bytes(16), bytes(15) + b"\x01", rng.randbytes(16)))
        if kind == "string":
            return rng.choice(NAMES)
        if kind == "records":
            return self.records()
        return rng.randbytes(rng.randrange(50))

    def value(self, item, version):
        rng = self.rng
        if item.null_allowed(version) and rng.random() < 0.15:
            return None

        def one():
            return self.fill(item.struct, version) if item.struct else self.scalar(item.type)

        return [one() for _ in range(rng.choice((0, 1, 1, 2, 3)))] if item.array else one()

    def fill(self, layout, version):
        return layout.made(
            **{i.name: self.value(i, version) for i in layout.fields if i.present(version)}
        )

    def frame(self):
        rng = self.rng
        key = rng.choice(KEYS)
        version = rng.randint(APIS[key].min_version, APIS[key].max_version)
        message = self.fill(codec.request_class(key).LAYOUT, version)
        body = b"".join(codec.encode_request(message, version))
        raw = bytearray(encode_request_header(key, version, rng.randrange(2**31), "mallory") + body)
        if rng.random() < 0.25:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        if rng.random() < 0.05:
            del raw[rng.randrange(len(raw)) :]
        return struct.pack(">i", len(raw)) + raw


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
    plan = Plan(seed, producers=0, hasty_producers=0, consumers=0, operators=False, faults=())
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

    monkeypatch.setitem(HANDLERS, 2, clumsy)
    assert any("IndexError" in line for line in errors_after_nonsense(1, 60))
