"""The purgatory: each operation ends once, one timer, nothing left behind."""

import asyncio
import heapq
import types

import pytest

from ottla.replication.delayed_produce import DelayedProduce
from ottla.replication.purgatory import AT_ONCE, SWEEP_FROM, Purgatory
from ottla.sim.world import Simulation


class Operation:
    def __init__(self, purgatory):
        self.purgatory = purgatory
        self.attempts = 0
        self.ended = []
        self.ready = self.done = False

    def reconsider(self):
        self.purgatory.enqueue(self)

    def attempt(self):
        self.attempts += 1
        if self.ready:
            self.done = True
            self.ended.append("satisfied")

    def expire(self):
        self.done = True
        self.ended.append("expired")

    def fail(self, reason):
        self.done = True
        self.ended.append(reason)


class Connection:
    """Where a response would leave."""

    def __init__(self):
        self.refused = []

    def refuse(self, reason):
        self.refused.append(reason)


@pytest.fixture
def node():
    with Simulation("purgatory") as simulation:
        yield simulation.node("broker")


@pytest.fixture
def purgatory(node):
    return Purgatory(node.clock)


@pytest.fixture
def run(node):
    return lambda scenario: node.call(scenario())


def test_ten_marks_of_one_turn_are_one_attempt(run, purgatory):
    async def scenario():
        operation = Operation(purgatory)
        purgatory.park(operation, 1000)
        for _ in range(10):
            operation.reconsider()
        assert operation.attempts == 0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert operation.attempts == 1
        operation.ready = True
        operation.reconsider()
        await asyncio.sleep(0.001)
        await asyncio.sleep(5)
        assert operation.ended == ["satisfied"]
        assert purgatory.statistics() == {"parked": 0, "parked_total": 1, "expired_total": 0}

    run(scenario)


def test_each_expires_at_its_time(run, purgatory, node):
    async def scenario():
        began_s = node.clock.monotonic()
        ends = []
        for wait_ms in (300, 100, 200, 100):
            operation = Operation(purgatory)
            purgatory.park(operation, wait_ms)
            ends.append((wait_ms, operation))
        for wait_ms in (99, 101, 199, 201, 299, 301):
            await asyncio.sleep(wait_ms / 1000 - (node.clock.monotonic() - began_s))
            for limit, operation in ends:
                assert bool(operation.ended) == (wait_ms > limit), (wait_ms, limit)
        assert purgatory.statistics() == {"parked": 0, "parked_total": 4, "expired_total": 4}

    run(scenario)


def test_a_failure_ends_only_itself(run, purgatory):
    async def scenario():
        bad, good = Operation(purgatory), Operation(purgatory)
        bad.__class__ = type("Bad", (Operation,), {"attempt": lambda self: 1 / 0})
        good.ready = True
        for operation in (bad, good):
            purgatory.park(operation, 1000)
            operation.reconsider()
        await asyncio.sleep(0.001)
        assert bad.ended == ["internal error"]
        assert good.ended == ["satisfied"]
        assert purgatory.live == 0

    run(scenario)


class LosesItsAnswer(DelayedProduce):
    def respond(self):
        raise ZeroDivisionError


@pytest.mark.parametrize("how", ["attempt", "expire"])
def test_a_connection_whose_response_cannot_be_made_is_closed(run, purgatory, how):
    async def scenario():
        host = types.SimpleNamespace(purgatory=purgatory, may_propose=True)
        connection = Connection()
        operation = LosesItsAnswer(connection, host, pipelined=False)
        operation.wait((), 10)
        if how == "attempt":
            purgatory.enqueue(operation)
        await asyncio.sleep(0.02)
        assert connection.refused == ["internal error"]
        assert operation.done
        assert purgatory.live == 0

    run(scenario)


def test_many_are_done_in_several_turns(run, purgatory):
    async def scenario():
        operations = [Operation(purgatory) for _ in range(2 * AT_ONCE + 1)]
        for operation in operations:
            purgatory.park(operation, 1000)
            operation.ready = True
            operation.reconsider()
        done = []
        for _ in range(4):
            await asyncio.sleep(0)
            done.append(sum(bool(o.ended) for o in operations))
        assert done == [AT_ONCE, 2 * AT_ONCE, 2 * AT_ONCE + 1, 2 * AT_ONCE + 1]
        late = [Operation(purgatory) for _ in range(AT_ONCE + 1)]
        for operation in late:
            purgatory.park(operation, 10)
        await asyncio.sleep(0.02)
        assert all(o.ended == ["expired"] for o in late)

    run(scenario)


def test_finished_ones_are_swept(run, purgatory):
    async def scenario():
        for _ in range(10 * SWEEP_FROM):
            operation = Operation(purgatory)
            purgatory.park(operation, 60_000)
            operation.done = True
        assert len(purgatory._heap) <= SWEEP_FROM + 1
        kept = Operation(purgatory)
        purgatory.park(kept, 10)
        await asyncio.sleep(0.02)
        assert kept.ended == ["expired"]
        assert purgatory._heap == sorted(purgatory._heap[:1]) + purgatory._heap[1:]
        heapq.heapify(purgatory._heap)

    run(scenario)
