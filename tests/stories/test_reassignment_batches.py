"""Reassignments of many partitions go in batches: each partition's steps are what they are alone.

Real controllers on the in-memory ZooKeeper. What one partition's replicas are told and what its
znodes get is compared with the same moves made one after another (R14); a partition that cannot go
on stops none of the others.
"""

import asyncio

import pytest
from story_harness import Cluster

from ottla.controller import reassignment
from ottla.model.cluster import ReplicaAssignment
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.control import AlterPartitionRequest
from ottla.zookeeper import znodes
from ottla.zookeeper.errors import NoNodeError
from ottla.zookeeper.topics import Topics

BROKERS = (7, 1, 2, 3, 4, 5, 6)
STATE_FIELDS = [
    "partition_index",
    "leader",
    "leader_epoch",
    "isr",
    "partition_epoch",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "is_new",
    "zk_version",
    "delete_partition",
]


def tp(number, topic="t"):
    return TopicPartition(topic, number)


MOVES = {
    tp(0): ((1, 2, 3), (4, 5, 6)),
    tp(1): ((1, 2), (2, 4)),
    tp(2): ((2, 3), (3, 2)),
    tp(3): ((3,), (1, 3)),
    tp(4): ((1, 4), (1,)),
    tp(5): ((1, 2, 3), (4, 5, 6)),
}
TARGETS = {partition: target for partition, (_, target) in MOVES.items()}


def play(scene):
    async def run():
        cluster = await Cluster.create()
        try:
            for broker in BROKERS:
                await cluster.start(broker)
                await cluster.settle()
            replicas = {partition.partition: before for partition, (before, _) in MOVES.items()}
            await cluster.create_topic("t", replicas, {})
            await cluster.settle()
            for told in cluster.told.values():
                told.clear()
            cluster.lines.clear()
            return await scene(cluster)
        finally:
            await cluster.close()

    return asyncio.run(run())


async def catch_up(cluster, partitions):
    """Let each leader ask, in one request, for ISRs of all the replicas."""
    context = cluster.active.context
    by_leader = {}
    for partition in partitions:
        known = context.leadership[partition].leader_and_isr
        by_leader.setdefault(known.leader, []).append((partition, known))
    for leader, led in by_leader.items():
        asked = [
            AlterPartitionRequest.PartitionData(
                partition_index=partition.partition,
                leader_epoch=known.leader_epoch,
                new_isr_with_epochs=[
                    AlterPartitionRequest.BrokerState(broker_id=b)
                    for b in context.assignment(partition).replicas
                ],
                partition_epoch=known.partition_epoch,
            )
            for partition, known in led
        ]
        topic = AlterPartitionRequest.TopicData(topic_id=context.topic_id("t"), partitions=asked)
        response = await cluster.active.alter_partition(
            AlterPartitionRequest(
                broker_id=leader, broker_epoch=cluster.brokers[leader].epochs[-1], topics=[topic]
            )
        )
        assert not response.error_code
        assert not any(p.error_code for p in response.topics[0].partitions)
        await cluster.settle()


async def _move(cluster, targets):
    await cluster.admin.admin_requests.create_reassignment(targets)
    await cluster.settle()
    await catch_up(cluster, [p for p in targets if p in cluster.active.context.reassigning])
    await cluster.settle()


async def together(cluster):
    await _move(cluster, TARGETS)
    return heard(cluster), written(cluster)


async def one_by_one(cluster):
    for partition, target in TARGETS.items():
        await _move(cluster, {partition: target})
    return heard(cluster), written(cluster)


def heard(cluster):
    """Return what each broker was told of each partition, in order, a request an entry."""
    found = {}
    for told in cluster.told[BROKERS[0]]:
        for topic in told.message.topic_states:
            for state in topic.partition_states:
                facts = {f: getattr(state, f) for f in STATE_FIELDS if hasattr(state, f)}
                about = (told.broker, tp(state.partition_index))
                found.setdefault(about, []).append((told.api_key, facts))
    return found


def written(cluster):
    """Return what each partition's state and its part of the topic's znode became, in order."""
    found = {p: [ReplicaAssignment(before)] for p, (before, _) in MOVES.items()}
    for kind, write in cluster.lines:
        path = "" if kind == "journal" else write.path
        if path == znodes.topic_path("t"):
            for number, assignment in znodes.decode_topic("t", write.data).assignment.items():
                _note(found, tp(number), assignment)
        elif path.endswith("/state"):
            number = int(path.split("/")[-2])
            _note(found, tp(number), znodes.decode_state(tp(number), write.data, 0).leader_and_isr)
    return found


def _note(found, partition, value):
    """Add a value; the topic's znode holds all partitions, so that most values stay."""
    entries = found.setdefault(partition, [])
    same_kind = [e for e in entries if type(e) is type(value)]
    if same_kind[-1:] != [value]:
        entries.append(value)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("chunk", [2, 500])
def test_each_partition_takes_the_steps_it_takes_alone(monkeypatch, chunk):
    heard_alone, written_alone = play(one_by_one)
    monkeypatch.setattr(reassignment, "CHUNK", chunk)
    heard_together, written_together = play(together)
    assert len(written_alone[tp(0)]) == 9, "its leader and three removals, two targets"
    assert written_together == written_alone
    assert heard_together == heard_alone


@pytest.mark.timeout(60)
def test_a_batch_takes_as_many_steps_as_one_partition():
    def steps_of(targets):
        async def scene(cluster):
            cluster.count_writes(lambda _count: None)
            zxid = cluster.zookeeper.tree.zxid
            await _move(cluster, targets)
            told = sum(map(len, cluster.told.values()))
            return cluster.zookeeper.tree.zxid - zxid, told

        return play(scene)

    alone = steps_of({tp(0): TARGETS[tp(0)]})
    assert steps_of({p: TARGETS[p] for p in (tp(0), tp(5))}) == alone


async def _assignments(cluster, topic="t"):
    return (await cluster.admin.topics.get_many([topic]))[topic].assignment


@pytest.mark.timeout(60)
def test_a_partition_without_state_or_leader_stops_no_other():
    async def scene(cluster):
        await cluster.create_topic("u", {0: (6,), 1: (1,)}, {})
        await cluster.settle()
        await cluster.kill(6)
        await cluster.admin.session.delete(znodes.state_path(tp(1)))
        await cluster.settle()
        targets = {tp(1): (2, 4), tp(3): (1, 3), tp(0, "u"): (1,), tp(2): (3, 2)}
        answers = await cluster.active.alter_reassignments(targets)
        assert {e for e, _ in answers.values()} == {ErrorCode.NONE}
        await cluster.settle()
        await catch_up(cluster, [tp(3)])
        assert [p.replicas for p in (await _assignments(cluster)).values()][2:4] == [(3, 2), (1, 3)]
        assert set(cluster.active.context.reassigning) == {tp(1), tp(0, "u")}

    play(scene)


@pytest.mark.timeout(60)
def test_a_topic_that_is_gone_stops_no_other(monkeypatch):
    update = Topics.update

    async def gone(topics, topic, change):
        if topic == "u":
            raise NoNodeError(path=znodes.topic_path(topic))
        await update(topics, topic, change)

    async def scene(cluster):
        await cluster.create_topic("u", {0: (1,)}, {})
        await cluster.settle()
        monkeypatch.setattr(Topics, "update", gone)
        answers = await cluster.active.alter_reassignments({tp(0, "u"): (2,), tp(2): (3, 2)})
        assert answers[tp(0, "u")][0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answers[tp(2)][0] is ErrorCode.NONE
        assert (await _assignments(cluster))[2].replicas == (3, 2)
        assert not cluster.active.context.reassigning
        assert cluster.active.context.assignment(tp(0, "u")).replicas == (1,)

    play(scene)
