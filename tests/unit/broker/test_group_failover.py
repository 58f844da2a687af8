"""Members of a group on simulated brokers that die one after the other: nothing is missed."""

import asyncio
import contextlib

import pytest

from ottla.client.client import CONTROLLER, Client
from ottla.client.consumer import Consumer
from ottla.client.group_consumer import GroupConsumer
from ottla.client.groups import committed_offsets, describe
from ottla.model.errors import OttlaError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.protocol import ACKS_ALL
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.records import Record, build_batch

SETTINGS = {
    "offsets_topic_replication_factor": "3",
    "offsets_topic_num_partitions": "2",
    "group_initial_rebalance_delay_ms": "500",
    "min_insync_replicas": "2",
}
BOOTSTRAP = [(f"b{n}", 9092) for n in range(3)]
PARTITIONS = 4
GROUP, TOPIC = "g", "t"


class Reading:
    """A member on a node of its own that may be started and crashed."""

    def __init__(self, scene, name):
        self.scene, self.name = scene, name
        self.read = []
        self.failed = None

    def start(self):
        self.scene.simulation.node(self.name).boot(self.main)

    def crash(self):
        self.scene.simulation.node(self.name).crash()

    async def main(self, world):
        client = Client(world, BOOTSTRAP, self.name, timeout_s=10)
        topic_id = ZERO_UUID
        while topic_id == ZERO_UUID:
            topic_id = (await client.metadata([TOPIC])).topics[0].topic_id
            await asyncio.sleep(0.1)
        member = GroupConsumer(
            client, GROUP, [TOPIC], lambda: Consumer(client, {TOPIC: topic_id}),
            from_beginning=True,
        )  # fmt: skip

        def sink(_partition, record):
            self.read.append(int(record.value))
            return True

        try:
            await member.read(sink, None)
        except OttlaError as error:
            self.failed = error
            raise


class Producing:
    """Numbers with acks=all, each again until it is acknowledged."""

    def __init__(self, scene):
        self.scene = scene
        self.acknowledged = 0
        self.wanted = 0

    def start(self):
        self.scene.simulation.node("producer").boot(self.main)

    async def main(self, world):
        client = Client(world, BOOTSTRAP, "producer", timeout_s=10)
        while True:
            while self.acknowledged >= self.wanted:
                await asyncio.sleep(0.1)
            number = self.acknowledged
            with contextlib.suppress(OttlaError):
                if await self.send(client, number):
                    self.acknowledged += 1
                    continue
            await asyncio.sleep(0.2)

    async def send(self, client, number):
        r = ProduceRequest
        partition = number % PARTITIONS
        batch = memoryview(bytearray(build_batch([Record(value=b"%d" % number)])))
        data = r.PartitionProduceData(index=partition, records=batch)
        request = r(
            acks=ACKS_ALL, timeout_ms=5000,
            topic_data=[r.TopicProduceData(name=TOPIC, partition_data=[data])],
        )  # fmt: skip
        leader = await client.leader(TOPIC, partition, refresh=True)
        answer = await client.call(request, leader)
        return answer.responses[0].partition_responses[0].error_code == 0


def ask(scene, question):
    node = scene.simulation.node("asker")

    async def go():
        client = Client(node.world, BOOTSTRAP, "asker", timeout_s=10)
        try:
            return await question(client)
        finally:
            await client.close()

    return node.call(go())


def offsets(scene):
    return ask(scene, lambda c: committed_offsets(c, GROUP))


@pytest.mark.timeout(240)
def test_nothing_is_missed_and_no_offset_goes_back(scene):
    for number in range(3):
        scene.boot(number, **SETTINGS)
    scene.wait(lambda: all(scene.heard(f"b{n}") for n in range(3)))
    r = CreateTopicsRequest
    new = r.CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
    request = r(topics=[new], timeout_ms=10_000)
    answer = ask(scene, lambda c: c.call(request, CONTROLLER))
    assert [t.error_code for t in answer.topics] == [0]
    producing = Producing(scene)
    producing.start()
    one, two = Reading(scene, "m1"), Reading(scene, "m2")
    one.start()
    two.start()

    def more(count=40):
        producing.wanted += count

    def caught_up():
        return set(range(producing.wanted)) <= {*one.read, *two.read}

    more()
    scene.wait(caught_up)
    highest = {}
    for victim in (None, None, "m2", None):
        if victim is None:
            node = f"b{ask(scene, lambda c: describe(c, GROUP)).coordinator}"
        else:
            node = victim
        more()
        scene.simulation.run_for(0.3)
        scene.simulation.node(node).crash()
        more()
        scene.wait(caught_up, within_s=120)
        found = {tp: c.offset for tp, c in offsets(scene).items()}
        for tp, offset in highest.items():
            assert found.get(tp, -1) >= offset, f"{tp} went back from {offset}"
        highest = found
        if victim is None:
            scene.boot(int(node[1:]), node, **SETTINGS)
            scene.wait(lambda node=node: scene.heard(node))
        else:
            two.start()
    more()
    scene.wait(caught_up, within_s=120)

    def all_committed():
        found = offsets(scene)
        return sum(c.offset for c in found.values()) >= producing.wanted

    scene.wait(all_committed, within_s=60)
    assert set(offsets(scene)) == {TopicPartition(TOPIC, p) for p in range(PARTITIONS)}
    assert one.failed is None

    def shared():
        members = ask(scene, lambda c: describe(c, GROUP)).members
        return sorted([*map(str, m.partitions)] for m in members) == [
            ["t-0", "t-1"],
            ["t-2", "t-3"],
        ]

    scene.wait(shared, within_s=60)
