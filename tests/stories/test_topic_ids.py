"""A topic keeps its id, whatever an old tool or a copying one writes to its znode (KAFKA-14190).

Real controllers on the in-memory ZooKeeper.
"""

import json

import pytest
from story_harness import play

from ottla.model.ids import uuid_from_text, uuid_to_text
from ottla.zookeeper.operations import Delete
from ottla.zookeeper.topics import note_path

ID = b"t".ljust(16, b"\1")
ANOTHER = b"another".ljust(16, b"\2")
TEXT = uuid_to_text(ID)

WRITTEN = {
    "version 1": '{"version":1,"partitions":{"0":[1,2]}}',
    "version 2": '{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{},'
    '"removing_replicas":{}}',
    "version 3 without an id": '{"version":3,"partitions":{"0":[1,2]},"adding_replicas":{},'
    '"removing_replicas":{}}',
    "a partition more": '{"version":1,"partitions":{"0":[1,2],"1":[2,1]}}',
    "id null": '{"version":3,"partitions":{"0":[1,2]},"topic_id":null}',
    "id empty": '{"version":3,"partitions":{"0":[1,2]},"topic_id":""}',
    "id too short": '{"version":3,"partitions":{"0":[1,2]},"topic_id":"AAAA"}',
    "id no base64": '{"version":3,"partitions":{"0":[1,2]},"topic_id":"!!!!!!!!!!!!!!!!!!!!!!"}',
    "id of zeros": '{"version":3,"partitions":{"0":[1,2]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}',
    "another id": '{"version":3,"partitions":{"0":[1,2]},"topic_id":"'
    f'{uuid_to_text(ANOTHER)}"}}',
}


async def found_id(cluster, name="t"):
    data, _ = await cluster.admin.zk.get_data_and_stat(f"/brokers/topics/{name}")
    return json.loads(data).get("topic_id")


async def led(cluster):
    await cluster.create_topic("t", {0: (1, 2)}, {})
    await cluster.settle()


async def next_controller(cluster):
    (active,) = [b for b, s in cluster.brokers.items() if s.controller.is_active]
    await cluster.kill(active)
    await cluster.settle()
    return cluster.active


@pytest.mark.parametrize("data", WRITTEN.values(), ids=WRITTEN)
def test_r15_the_controller_writes_the_known_id_back(data):
    async def scene(cluster):
        await led(cluster)
        await cluster.admin.session.set("/brokers/topics/t", data.encode())
        await cluster.settle()
        assert await found_id(cluster) == TEXT
        assert cluster.active._term.context.topic_id("t") == ID
        controller = await next_controller(cluster)
        assert controller._term.context.topic_id("t") == ID

    play(scene, 1, 2, 3)


@pytest.mark.parametrize("data", WRITTEN.values(), ids=WRITTEN)
def test_r15_a_new_controller_knows_the_id_though_all_were_stopped(data):
    async def scene(cluster):
        await led(cluster)
        for broker in (1, 2, 3):
            await cluster.kill(broker)
        await cluster.admin.session.set("/brokers/topics/t", data.encode())
        await cluster.start(3)  # it has no replica of the topic
        await cluster.settle()
        assert cluster.active._term.context.topic_id("t") == ID
        assert await found_id(cluster) == TEXT

    play(scene, 1, 2, 3)


def test_r15_without_a_note_the_disks_of_the_controller_are_asked():
    async def scene(cluster):
        await led(cluster)
        for broker in (1, 2, 3):
            await cluster.kill(broker)
        await cluster.admin.zk.write(Delete(note_path("t")))
        await cluster.admin.session.set("/brokers/topics/t", WRITTEN["version 1"].encode())
        cluster.topic_ids_on_disk = {"t": {ANOTHER}}
        await cluster.start(1)
        await cluster.settle()
        assert await found_id(cluster) == uuid_to_text(ANOTHER)

    play(scene, 1, 2, 3)


def test_a_topic_that_nobody_knows_an_id_of_gets_one_and_keeps_it():
    async def scene(cluster):
        await cluster.admin.zk.create_recursive(
            "/brokers/topics/old", WRITTEN["version 1"].encode()
        )
        await cluster.settle()
        given = await found_id(cluster, "old")
        assert len(uuid_from_text(given)) == 16
        assert not await cluster.admin.topic_ids.was_created_as("old", uuid_from_text(given))
        await cluster.admin.session.set("/brokers/topics/old", WRITTEN["version 2"].encode())
        await next_controller(cluster)
        assert await found_id(cluster, "old") == given

    play(scene, 1, 2, 3)


def test_a_topic_that_was_created_again_is_another_one():
    async def scene(cluster):
        await led(cluster)
        assert await cluster.admin.topic_ids.was_created_as("t", ID)
        await cluster.grow("t", {1: (2, 1)})
        await cluster.settle()
        assert await cluster.admin.topic_ids.was_created_as("t", ID)  # its znode was written since
        await cluster.admin.zk.delete_recursive("/brokers/topics/t")
        await cluster.settle()
        data = WRITTEN["another id"].encode()
        await cluster.admin.zk.create_recursive("/brokers/topics/t", data)
        await cluster.settle()
        assert cluster.active._term.context.topic_id("t") == ANOTHER
        assert await cluster.admin.topic_ids.was_created_as("t", ANOTHER)
        assert not await cluster.admin.topic_ids.was_created_as("t", ID)

    play(scene, 1, 2, 3)


def test_r15_an_id_that_was_written_over_another_is_not_the_topics_from_its_creation_on():
    """As a JVM controller does it: then no broker may put its replicas aside."""

    async def scene(cluster):
        await led(cluster)
        for broker in (1, 2, 3):
            await cluster.kill(broker)
        await cluster.admin.session.set("/brokers/topics/t", WRITTEN["another id"].encode())
        assert not await cluster.admin.topic_ids.was_created_as("t", ANOTHER)
        cluster.topic_ids_on_disk = {"t": {ANOTHER}}  # and an operator had it taken over
        await cluster.start(1)
        await cluster.settle()
        assert cluster.active._term.context.topic_id("t") == ANOTHER
        assert not await cluster.admin.topic_ids.was_created_as("t", ANOTHER)

    play(scene, 1, 2, 3)


def test_f41_a_note_that_cannot_be_read_is_written_anew():
    async def scene(cluster):
        await led(cluster)
        for nonsense in (b"", b"{", b'{"version":1,"topic_id":"x","czxid":1,"by_creation":true}'):
            await cluster.admin.session.set(note_path("t"), nonsense)
            await next_controller(cluster)
            notes = await cluster.admin.topic_ids.get(["t"])
            assert notes["t"].topic_id == ID
            (dead,) = [b for b, s in cluster.brokers.items() if s.session is None]
            await cluster.start(dead)
            await cluster.settle()

    play(scene, 1, 2, 3)


def test_a_deleted_topic_leaves_no_note():
    async def scene(cluster):
        await led(cluster)
        assert await cluster.admin.zk.path_exists(note_path("t"))
        await cluster.admin.topics.request_deletion("t")
        await cluster.settle()
        assert not await cluster.admin.zk.path_exists(note_path("t"))

    play(scene, 1, 2, 3)
