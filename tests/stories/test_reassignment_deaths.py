"""A reassignment survives the death of a controller, a target or an original at each of its steps.

The moment of a death is the n-th write to ZooKeeper since the request, itself the first (R14, F24).
The seed document's own case: {1,2,3} moves to {4,5,6}; broker 7 is there to be the controller.
"""

import asyncio

import pytest
from story_harness import Cluster

from ottla.model.ids import TopicPartition

T0 = TopicPartition("t", 0)
ORIGINAL, TARGET = (1, 2, 3), (4, 5, 6)
STEPS = 10
"""How many writes it takes without deaths; a death beyond them changes nothing."""


async def _state(cluster):
    state = await cluster.admin.states.get_one(T0)
    return state.leader_and_isr


async def _moved(cluster):
    info = (await cluster.admin.topics.get_many(["t"]))["t"]
    return info.assignment[0].replicas == TARGET and not info.assignment[0].being_reassigned


async def _catch_up(cluster):
    """Let the leader ask for an ISR of all live replicas, as often as that is needed."""
    for _ in range(4):
        await cluster.settle()
        if await _moved(cluster):
            return
        known = cluster.active.context.leadership.get(T0)
        live = [b for b, stub in cluster.brokers.items() if stub.session is not None]
        if known is None or known.leader_and_isr.leader not in live:
            continue
        replicas = cluster.active.context.assignment(T0).replicas
        await cluster.ask_isr(T0, [r for r in replicas if r in live])


async def _scene(victim, step):
    cluster = await Cluster.create()
    try:
        for broker in (7, 1, 2, 3, 4, 5, 6):
            await cluster.start(broker)
            await cluster.settle()
        await cluster.create_topic("t", {0: ORIGINAL}, {})
        await cluster.settle()
        dying = []

        def after(count):
            if count == step and not dying:
                dying.append(asyncio.ensure_future(cluster.kill(victim)))

        cluster.count_writes(after)
        await cluster.admin.admin_requests.create_reassignment({T0: TARGET})
        await _catch_up(cluster)
        if dying:
            await dying[0]
            await _catch_up(cluster)
            await cluster._join(cluster.brokers[victim])
            await _catch_up(cluster)
        await cluster.settle()
        state = await _state(cluster)
        assert await _moved(cluster)
        assert not await cluster.admin.admin_requests.is_reassigning()
        assert set(state.isr) <= set(TARGET)
        assert state.leader in TARGET
        assert not cluster.active.context.reassigning
        assert cluster.active.context.leadership[T0].leader_and_isr == state
        return bool(dying)
    finally:
        await cluster.close()


@pytest.mark.parametrize("step", range(1, STEPS + 1))
@pytest.mark.parametrize(
    "victim", [7, 1, 2, 4, 6], ids=["controller", "leader", "original", "new-leader", "target"]
)
def test_a_death_at_each_step(victim, step):
    assert asyncio.run(_scene(victim, step))


def test_without_a_death_it_takes_no_more_steps():
    assert not asyncio.run(_scene(7, STEPS + 1))
