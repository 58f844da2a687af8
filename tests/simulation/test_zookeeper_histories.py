"""Histories of registers on our ZooKeeper server, through crashes: are they linearizable?

Each write has a value of its own, and ZooKeeper gives each a version. So the order of the versions
is the only one that a linearization could have, and it is enough to compare it with real time.
"""

import asyncio
import random
from typing import NamedTuple

import pytest

from ottla.sim.world import Simulation
from ottla.zookeeper.database import Database
from ottla.zookeeper.errors import ConnectionLossError, SessionExpiredError
from ottla.zookeeper.memory import MemoryZooKeeper
from ottla.zookeeper.session import Session

PORT = 2181
REGISTERS = ["/x", "/y"]
SECONDS = 12.0


class Event(NamedTuple):
    """One operation; `ended_s` is None where no reply came."""

    register: str
    write: bool
    value: bytes
    begun_s: float
    ended_s: float | None
    version: int | None


def problems(history: list[Event]) -> list[str]:
    """Return why a history is not linearizable."""
    found = []
    for register in REGISTERS:
        events = [e for e in history if e.register == register]
        done = sorted((e for e in events if e.ended_s is not None), key=lambda e: e.ended_s)
        begun = {e.value: e.begun_s for e in events if e.write}
        values: dict[int, bytes] = {}
        writes: set[int] = set()
        for e in done:
            if values.setdefault(e.version, e.value) != e.value:
                found.append(f"two values of version {e.version}: {values[e.version]}, {e.value}")
            if e.write and e.version in writes:
                found.append(f"two writes made version {e.version}")
            if e.write:
                writes.add(e.version)
            if e.version and begun[e.value] > e.ended_s:
                found.append(f"{e.value} was read before it was written")
        highest, ended = -1, 0  # of those that had ended before
        for e in sorted(done, key=lambda e: e.begun_s):
            while ended < len(done) and done[ended].ended_s < e.begun_s:
                highest = max(highest, done[ended].version)
                ended += 1
            if e.version < highest + e.write:
                found.append(f"{e} goes back behind version {highest}")
    return found


async def serve(world):
    database = Database(world, "/data", snapshot_transactions=50)
    database.open()
    server = MemoryZooKeeper(world, tick_ms=1000, database=database)
    await server.start("zk", PORT)
    await asyncio.Event().wait()


async def client(world, number: int, history: list[Event], until_s: float) -> None:
    rng = random.Random(number)
    session = await Session.connect(world, f"zk:{PORT}", 20_000, 60_000)
    count = 0
    while world.clock.monotonic() < until_s:
        register, write = rng.choice(REGISTERS), rng.random() < 0.5
        count += 1
        value = f"{number}-{count}".encode() + b"." * rng.choice([0, 2000])
        begun_s = world.clock.monotonic()
        try:
            await session.wait_connected()
            if write:
                version = (await session.set(register, value)).version
            else:
                value, stat = await session.get(register)
                version = stat.version
            ended_s = world.clock.monotonic()
            history.append(Event(register, write, value, begun_s, ended_s, version))
        except ConnectionLossError:
            if write:
                history.append(Event(register, write, value, begun_s, None, None))
        except SessionExpiredError:
            session = await Session.connect(world, f"zk:{PORT}", 20_000, 60_000)
        await asyncio.sleep(rng.random() * 0.02)
    await session.close()


def recorded(seed: int) -> tuple[list[Event], int]:
    """Return a history of five clients, and how often the server crashed meanwhile."""
    rng = random.Random(seed)
    history: list[Event] = []
    crashes = 0
    with Simulation(f"histories-{seed}") as simulation:
        zk, clients = simulation.node("zk"), simulation.node("clients")
        zk.boot(serve)

        async def crash() -> None:
            nonlocal crashes
            while True:
                await asyncio.sleep(rng.uniform(0.1, 0.8))
                if zk.up:
                    zk.crash_at_operation(rng.randrange(6), power_loss=rng.random() < 0.6)
                    await asyncio.sleep(rng.uniform(0.05, 0.3))
                if not zk.up:
                    crashes += 1
                    zk.boot()

        async def main() -> None:
            world = clients.world
            first = await Session.connect(world, f"zk:{PORT}", 20_000, 60_000)
            for register in REGISTERS:
                await first.create(register, b"first")
            crashing = asyncio.create_task(crash())
            until_s = world.clock.monotonic() + SECONDS
            await asyncio.gather(*[client(world, n, history, until_s) for n in range(5)])
            crashing.cancel()

        clients.call(main(), within_s=900)
    return history, crashes


@pytest.mark.parametrize("seed", range(6))
def test_histories_are_linearizable(seed):
    history, crashes = recorded(seed)
    assert sum(e.ended_s is not None for e in history) > 300
    assert crashes > 5
    assert problems(history) == []


def test_a_server_that_replies_before_the_fsync_is_found(monkeypatch):
    """The check itself."""
    monkeypatch.setattr(MemoryZooKeeper, "emit", _at_once)
    assert any(problems(recorded(seed)[0]) for seed in range(6))


def _at_once(self, connection, frame) -> None:
    if frame is not None:
        connection.write(frame)
    elif connection.transport is not None:
        connection.transport.close()
