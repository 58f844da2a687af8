"""The controller dies after every single ZooKeeper write of a procedure; the next one finishes it.

Fault F4 by enumeration, over topic creation (F1), deletion (F26) and reassignment (F24, F27).
"""

import asyncio
import contextlib
import json

import pytest

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.net.client import Client
from ottla.sim.clients import create_topic
from ottla.sim.cluster import Cluster, Plan
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.zookeeper.session import Session

BROKERS = 4
PARTITIONS = 3
IN_TIME_S = 120.0


class Scene:
    """A quiet cluster with one topic, and a hand on its controller."""

    def __init__(self, seed):
        self.cluster = Cluster(
            Plan(
                seed,
                brokers=BROKERS,
                partitions=PARTITIONS,
                producers=1,
                consumers=1,
                operators=False,
                faults=(),
            )
        )
        self.simulation = self.cluster.simulation
        self.cluster.boot()
        self.cluster.client_node().boot(self.cluster._client_main)
        self.simulation.run_until(self.cluster._topic_ready, within_s=60.0)
        self.simulation.run_for(3.0)
        self.operator = self.simulation.node("operator")

    @property
    def tree(self):
        return self.cluster.zookeeper.tree.nodes

    @property
    def writes(self):
        return len(self.cluster.zookeeper.writes)

    def do(self, act):
        async def main(world):
            await act(world, self.cluster.bootstrap)

        self.operator.boot(main)

    def controller(self):
        entry = self.tree.get("/controller")
        return None if entry is None else f"b{json.loads(entry.data)['brokerid']}"

    def kill_controller_after(self, writes):
        """Kill it at once after so many more writes; False if there were not so many."""
        until = self.writes + writes
        try:
            self.simulation.run_until(lambda: self.writes >= until, within_s=5.0)
        except TimeoutError:
            return False
        name = self.controller()
        if name is not None:
            node = self.simulation.node(name)
            node.crash()
            self.simulation.scheduler.after(4.0, node.boot)
        return True

    def finish(self, done):
        self.simulation.run_until(done, within_s=IN_TIME_S)
        settled = [n.up for n in self.cluster.broker_nodes()]
        if not all(settled):
            self.simulation.run_for(5.0)
        self.simulation.run_until(lambda: done() and self.cluster.all_in_sync(), within_s=IN_TIME_S)
        for client in [*self.cluster._producers]:
            client.stopping = True
        self.simulation.run_until(
            lambda: self.cluster._writes_answered() and self.cluster._replicas_equal(),
            within_s=IN_TIME_S,
        )
        assert self.cluster._judge() + self.cluster._uncaught() == []


async def create(world, bootstrap):
    client = Client(world, bootstrap, "operator", timeout_s=5.0)
    await create_topic(client, "fresh", 2, 3, {})
    await asyncio.Event().wait()


def created(scene):
    for partition in range(2):
        entry = scene.tree.get(f"/brokers/topics/fresh/partitions/{partition}/state")
        if entry is None or len(json.loads(entry.data)["isr"]) != 3:
            return False
    return True


def old_topic(scene):
    """Have something to delete."""

    async def make():
        client = Client(scene.operator.world, scene.cluster.bootstrap, "maker", timeout_s=5.0)
        await create_topic(client, "old", 2, 3, {})
        await client.close()

    scene.operator.call(make())
    scene.simulation.run_for(2.0)
    assert not deleted(scene)


async def delete(world, bootstrap):
    client = Client(world, bootstrap, "operator", timeout_s=5.0)
    request = DeleteTopicsRequest(topic_names=["old"], timeout_ms=1000)
    while True:
        with contextlib.suppress(OttlaError):
            await client.call(request, "controller", version=5)
        await asyncio.sleep(1.0)


def deleted(scene):
    if any("/old" in path for path in scene.tree):
        return False
    return not any(
        folder.rpartition("/")[2].startswith("old-")
        for node in scene.cluster.broker_nodes()
        for folder in node.disk.folders
        if not folder.endswith("-delete")
    )


TARGETS = {0: [1, 2, 3], 1: [3, 0, 1], 2: [2, 3, 0]}


async def reassign(world, bootstrap):
    session = await Session.connect(world, "zk:2181", 30_000, 5_000)
    wish = {
        "version": 1,
        "partitions": [
            {"topic": "events", "partition": p, "replicas": r} for p, r in TARGETS.items()
        ],
    }
    await session.create("/admin/reassign_partitions", json.dumps(wish).encode())
    await asyncio.Event().wait()


def reassigned(scene):
    if "/admin/reassign_partitions" in scene.tree:
        return False
    assignment = scene.cluster.assignment()
    return all(assignment[TopicPartition("events", p)] == set(r) for p, r in TARGETS.items())


@pytest.mark.parametrize(
    ("prepare", "act", "done", "least"),
    [
        (lambda scene: None, create, created, 5),
        (old_topic, delete, deleted, 5),
        (lambda scene: None, reassign, reassigned, 10),
    ],
    ids=["creation", "deletion", "reassignment"],
)
def test_the_controller_may_die_after_any_write(prepare, act, done, least):
    """Every write of the procedure is a place to die; the run without a death ends the loop."""
    for point in range(1, 200):
        scene = Scene(seed=point)
        try:
            prepare(scene)
            scene.do(act)
            died = scene.kill_controller_after(point)
            scene.finish(lambda scene=scene: done(scene))
        except (AssertionError, TimeoutError) as error:
            pytest.fail(f"killed after write {point}: {error!r} {scene.cluster._where()}")
        finally:
            scene.cluster.close()
        if not died:
            assert point > least, "the procedure wrote less than it must"
            return
    pytest.fail("the procedure writes without an end")
