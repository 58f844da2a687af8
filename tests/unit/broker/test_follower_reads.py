"""Reading from the nearest replica (KIP-392): who is sent where, and what a follower answers."""

import asyncio

import pytest

from ottla.model.errors import ErrorCode
from ottla.net.peer import PeerConnection
from ottla.replication.isr import IsrState
from ottla.replication.replica_manager import RACK_AWARE
from ottla.wire.messages.records import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.records import Record, build_batch

pytestmark = pytest.mark.timeout(60)

LEADER, FOLLOWER = 1, 2
TP = ("t", 0)


@pytest.fixture
def cluster(scene):
    for broker in (LEADER, FOLLOWER):
        scene.up(broker, broker_rack=f"rack{broker}", replica_selector_class=RACK_AWARE)
    scene.wait(lambda: len(scene.brokers["b2"].services.metadata.snapshot.brokers) == 2)
    r = CreateTopicsRequest
    assignment = r.CreatableReplicaAssignment(partition_index=0, broker_ids=[LEADER, FOLLOWER])
    topic = r.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    made = scene.ask(LEADER, r(topics=[topic], timeout_ms=10_000), 7).topics[0]
    assert made.error_code == ErrorCode.NONE, made
    scene.wait(lambda: replica(scene, FOLLOWER) is not None)
    write(scene, 3)
    return scene


def replica(scene, broker):
    return scene.brokers[f"b{broker}"].services.replicas.partitions.get(TP)


def produce_of(count):
    r = ProduceRequest
    records = build_batch([Record(value=b"v%d" % n) for n in range(count)])
    data = r.PartitionProduceData(index=0, records=records)
    topic = r.TopicProduceData(name="t", partition_data=[data])
    return r(acks=-1, timeout_ms=9000, topic_data=[topic])


def write(scene, count):
    answer = scene.ask(LEADER, produce_of(count), 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NONE
    end = answer.base_offset + count
    scene.wait(lambda: replica(scene, FOLLOWER).log.high_watermark == end)


def fetch_of(offset=0, *, rack="rack2", epoch=-1, wait_ms=0, session=(0, -1)):
    f = FetchRequest
    wanted = f.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=10**6, current_leader_epoch=epoch
    )
    return f(
        replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=10**6, rack_id=rack,
        session_id=session[0], session_epoch=session[1],
        topics=[f.FetchTopic(topic="t", partitions=[wanted])],
    )  # fmt: skip


def read(scene, broker, offset=0, *, version=11, **more):
    return scene.ask(broker, fetch_of(offset, **more), version)


def part(answer):
    return answer.responses[0].partitions[0]


def test_a_consumer_is_sent_to_the_replica_in_its_rack_at_once(cluster):
    began = cluster.simulation.now
    found = part(read(cluster, LEADER, wait_ms=20_000))
    assert cluster.simulation.now - began < 1
    assert found.preferred_read_replica == FOLLOWER
    assert (found.error_code, bytes(found.records or b"")) == (ErrorCode.NONE, b"")
    assert (found.high_watermark, found.log_start_offset) == (3, 0)
    there = part(read(cluster, FOLLOWER))
    assert there.preferred_read_replica == -1
    assert len(there.records) > 0
    assert there.high_watermark == 3


@pytest.mark.parametrize(
    "request_",
    [
        {"rack": "rack1"},
        {"rack": ""},
        {"rack": "elsewhere"},
        {"version": 10},
        {"offset": 1, "rack": "rack1"},
    ],
    ids=str,
)
def test_everybody_else_stays_with_the_leader(cluster, request_):
    found = part(read(cluster, LEADER, **request_))
    assert found.preferred_read_replica == -1
    assert len(found.records) > 0


def test_no_consumer_is_sent_to_a_replica_without_the_offset(cluster):
    """Not in sync, or without the offset: the leader serves, and tells of wrong offsets."""
    assert part(read(cluster, LEADER, 3)).preferred_read_replica == FOLLOWER
    beyond = part(read(cluster, LEADER, 4))
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    cluster.stop(FOLLOWER)
    cluster.wait(lambda: replica(cluster, LEADER).state.isr.committed == (LEADER,))
    assert part(read(cluster, LEADER)).preferred_read_replica == -1
    assert len(part(read(cluster, LEADER)).records) > 0


def test_no_consumer_is_sent_to_a_replica_out_of_sync(cluster):
    led = replica(cluster, LEADER)
    choose = cluster.brokers["b1"].services.replicas.preferred_replica
    assert choose(led, ("rack2", "PLAINTEXT"), 0) == FOLLOWER
    assert choose(led, ("rack2", "CONTROL"), 0) is None
    led.state.isr = IsrState.of((LEADER,))
    assert choose(led, ("rack2", "PLAINTEXT"), 0) is None


def test_a_session_repeats_the_preferred_replica(cluster):
    opened = read(cluster, LEADER, 3, session=(0, 0))
    again = FetchRequest(
        replica_id=-1, max_wait_ms=20_000, min_bytes=1, max_bytes=10**6, rack_id="rack2",
        session_id=opened.session_id, session_epoch=1, topics=[],
    )  # fmt: skip
    assert part(cluster.ask(LEADER, again, 11)).preferred_read_replica == FOLLOWER


def test_epochs_are_checked_wherever_one_reads(cluster):
    for broker in (LEADER, FOLLOWER):
        newer = part(read(cluster, broker, epoch=7))
        assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert part(read(cluster, FOLLOWER, epoch=0)).error_code == ErrorCode.NONE


def test_a_fetch_parked_at_a_follower_completes_when_its_high_watermark_moves(cluster):
    node = cluster.simulation.node("client")

    async def both():
        reader = await PeerConnection.open(node.world, "b2", 9092, "r", timeout_s=5)
        writer = await PeerConnection.open(node.world, "b1", 9092, "w", timeout_s=5)
        try:
            waiting = asyncio.ensure_future(reader.send(fetch_of(3, wait_ms=30_000), 11, 60))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await writer.send(produce_of(2), 9, 60)
            return await waiting
        finally:
            reader.close()
            writer.close()

    before = cluster.simulation.now
    answer = part(node.call(both()))
    assert cluster.simulation.now - before < 2
    assert answer.high_watermark == 5
    assert len(answer.records) > 0


def test_a_follower_serves_fetches_of_consumers_only(cluster):
    assert part(read(cluster, FOLLOWER, 4)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    old = part(read(cluster, FOLLOWER, version=10))
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    offsets = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
                ],
            )
        ],
    )
    found = cluster.ask(FOLLOWER, offsets, 7).topics[0].partitions[0]
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    r = OffsetForLeaderEpochRequest
    epochs = r(
        replica_id=-1,
        topics=[
            r.OffsetForLeaderTopic(
                topic="t", partitions=[r.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
            )
        ],
    )
    end = cluster.ask(FOLLOWER, epochs, 4).topics[0].partitions[0]
    assert end.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
