"""A topic is deleted amid its reassignment, or reassigned amid its deletion, at each step (F25).

Real controllers on the in-memory ZooKeeper. A step is a write to ZooKeeper since the first of the
two was asked for; at each one the other is asked for. Both finish: the topic is gone, with every
replica that a broker was ever told of; nothing is asked for any more.
"""

import asyncio
import json

import pytest
from story_harness import Cluster, StubBroker

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.zookeeper import znodes

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BROKERS = (7, 1, 2, 3, 4, 5, 6)
ORIGINAL, TARGET = (1, 2, 3), (4, 5, 6)
TOPIC = "/brokers/topics/t"
LEADER_AND_ISR, STOP_REPLICA = 4, 5
MOVING_STEPS, DELETING_STEPS = 10, 15
"""How many writes each takes alone; a step beyond them comes after its end."""


class Seen:
    """What brokers keep of the topic, and whether it ever went while it was being moved."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.kept = set()
        self.moving = False
        self.wrong = []
        self.steps = 0
        self.over = False
        for stub in cluster.brokers.values():
            self._listen(stub)

    def _listen(self, stub):
        receive = StubBroker.receive

        def heard(controller, api_key, message):
            for topic in message.topic_states if api_key in (LEADER_AND_ISR, STOP_REPLICA) else ():
                for p in topic.partition_states if topic.topic_name == "t" else ():
                    replica = stub.info.id, p.partition_index
                    if api_key == LEADER_AND_ISR:
                        self.kept.add(replica)
                    elif p.delete_partition:
                        self.kept.discard(replica)
            return receive(stub, controller, api_key, message)

        stub.receive = heard

    def at_step(self, step, then):
        """Do something at the n-th write from now on; return the list that gets its task."""
        begun = []

        def wrote(count):
            self.steps = count
            self._wrote(self.cluster.zookeeper.writes[-1])
            if count == step and not begun and not self.over:
                begun.append(asyncio.ensure_future(then()))

        self.cluster.count_writes(wrote)
        return begun

    def _wrote(self, write):
        if write.path == TOPIC and write.op != "delete":
            found = json.loads(write.data)
            self.moving = bool(found["adding_replicas"] or found["removing_replicas"])
        if write.op == "delete" and write.path.startswith(TOPIC) and self.moving:
            self.wrong.append(f"{write.path} went while replicas moved")


async def catch_up(cluster):
    """Let the leaders propose all replicas, as often as that is needed."""
    for _ in range(4):
        await cluster.settle()
        for tp in (T0, T1):
            context = cluster.active.context
            known = context.leadership.get(tp)
            if tp in context.reassigning and known and known.leader_and_isr.leader > 0:
                await cluster.ask_isr(tp, context.assignment(tp).replicas)
                await cluster.settle()


async def gone(cluster, seen):
    """Check that nothing is left of the topic, nor of what was asked; then make it anew."""
    await catch_up(cluster)
    admin = cluster.admin
    for path in (TOPIC, znodes.config_path("topics", "t"), "/admin/delete_topics/t"):
        assert not await admin.zk.path_exists(path), path
    assert not await admin.admin_requests.is_reassigning()
    assert seen.kept == set(), "replicas that no broker was told to delete"
    assert not seen.wrong, seen.wrong
    context = cluster.active.context
    assert not context.reassigning
    assert not context.deleting
    await cluster.create_topic("t", {0: (3, 4)}, {})
    await cluster.settle()
    state = (await admin.states.get_one(T0)).leader_and_isr
    assert (state.leader, state.leader_epoch, state.isr) == (3, 0, (3, 4))
    assert seen.kept == {(3, 0), (4, 0)}


def play(scene):
    async def run():
        cluster = await Cluster.create()
        try:
            for broker in BROKERS:
                await cluster.start(broker)
                await cluster.settle()
            seen = Seen(cluster)
            await cluster.create_topic("t", {0: ORIGINAL, 1: (3, 4)}, {})
            await cluster.settle()
            return await scene(cluster, seen)
        finally:
            await cluster.close()

    return asyncio.run(run())


async def move(cluster, way):
    """Ask for the reassignment; return the response's code, or None by znode."""
    if way == "znode":
        await cluster.admin.admin_requests.create_reassignment({T0: TARGET})
        return None
    return (await cluster.active.alter_reassignments({T0: TARGET}))[T0][0]


def moved_then_deleted(way, step):
    async def scene(cluster, seen):
        deleting = seen.at_step(step, lambda: cluster.admin.topics.request_deletion("t"))
        await move(cluster, way)
        await catch_up(cluster)
        steps, within, seen.over = seen.steps, bool(deleting), True
        if not within:
            assert not cluster.active.context.reassigning
            await cluster.admin.topics.request_deletion("t")
        await gone(cluster, seen)
        return within, steps

    return play(scene)


@pytest.mark.parametrize("step", range(1, MOVING_STEPS + 1))
@pytest.mark.parametrize("way", ["znode", "request"])
def test_f25_a_deletion_at_each_step_of_a_reassignment(way, step):
    moved_then_deleted(way, step)


def test_neither_has_more_steps():
    """By znode it takes two more: the request's znode comes and goes."""
    assert moved_then_deleted("znode", 99) == (False, MOVING_STEPS)
    assert moved_then_deleted("request", 99) == (False, MOVING_STEPS - 2)
    _, steps = deleted_then_moved("request", 99)
    assert steps == DELETING_STEPS


def deleted_then_moved(way, step):
    async def scene(cluster, seen):
        moving = seen.at_step(step, lambda: move(cluster, way))
        await cluster.admin.topics.request_deletion("t")
        await catch_up(cluster)
        steps, seen.over = seen.steps, True
        code = await (moving[0] if moving else move(cluster, way))
        await gone(cluster, seen)
        return code, steps

    return play(scene)


@pytest.mark.parametrize("step", range(2, DELETING_STEPS + 2))
def test_f25_a_reassignment_by_request_at_each_step_of_a_deletion(step):
    code, _ = deleted_then_moved("request", step)
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_f25_a_reassignment_by_request_beside_a_deletion():
    """The request may come before the controller has heard of the deletion, which then waits."""
    code, _ = deleted_then_moved("request", 1)
    assert code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("step", range(1, DELETING_STEPS + 2))
def test_f25_a_reassignment_by_znode_at_each_step_of_a_deletion(step, caplog):
    deleted_then_moved("znode", step)
    if step > 1:
        assert "reassignment refused partition=t-0" in caplog.text


def test_f25_a_deletion_that_waits_for_a_broker_is_not_reassigned():
    """Its replica on a dead broker keeps the topic; it is refused until that one is back."""

    async def scene(cluster, seen):
        await cluster.kill(2)
        await cluster.settle()
        await cluster.admin.topics.request_deletion("t")
        await cluster.settle()
        assert await cluster.admin.zk.path_exists(TOPIC)
        for way in ("request", "znode", "request"):
            code = await move(cluster, way)
            await cluster.settle()
            assert code in (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert not await cluster.admin.admin_requests.is_reassigning()
        await cluster._join(cluster.brokers[2])
        await gone(cluster, seen)

    play(scene)
