"""Control requests and the registration they were meant for (BrokerEpochIntegrationTest)."""

import pytest

from ottla.model.errors import ConnectionLostError, ErrorCode
from ottla.net.peer import PeerConnection
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from ottla.wire.messages.topics import CreateTopicsRequest

REQUESTS = [(LeaderAndIsrRequest, 7), (StopReplicaRequest, 4), (UpdateMetadataRequest, 8)]


@pytest.mark.parametrize(("kind", "version"), REQUESTS, ids=lambda v: getattr(v, "__name__", v))
def test_a_newer_broker_epoch_than_ours_is_taken(scene, kind, version):
    """The controller read our registration before we got ZooKeeper's response to it."""
    broker = scene.up(1)
    epoch = broker.services.session.broker_epoch
    for difference, expected in (
        (-1, ErrorCode.STALE_BROKER_EPOCH),
        (0, ErrorCode.NONE),
        (1, ErrorCode.NONE),
    ):
        request = kind(controller_id=1, controller_epoch=1, broker_epoch=epoch + difference)
        assert scene.ask(1, request, version).error_code == expected, difference


def led_by(scene, broker):
    """Return (leader, epoch) of t-0 as a broker tells clients."""
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    (partition,) = scene.ask(broker, asked, 12).topics[0].partitions
    return partition.leader_id, partition.leader_epoch


def test_metadata_names_no_leader_that_the_controller_has_not_sent(scene):
    """A new leader leads at once; its clients see it with UpdateMetadata only."""
    for broker in (1, 2):
        scene.up(broker)
    scene.wait(lambda: len(scene.brokers["b2"].services.metadata.snapshot.brokers) == 2)
    r = CreateTopicsRequest
    assigned = r.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
    topic = r.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assigned]
    )
    assert scene.ask(1, r(topics=[topic], timeout_ms=9000), 7).topics[0].error_code == 0
    services = scene.brokers["b2"].services
    scene.wait(lambda: ("t", 0) in services.replicas.partitions)
    scene.wait(lambda: services.metadata.contains("t"))
    before = led_by(scene, 2)
    assert before == (1, 0)

    facts = {"leader": 2, "leader_epoch": 7, "isr": [1, 2], "replicas": [1, 2]}
    epochs = {
        "controller_id": 1,
        "controller_epoch": 1,
        "broker_epoch": services.session.broker_epoch,
    }
    r = LeaderAndIsrRequest
    state = r.LeaderAndIsrPartitionState(controller_epoch=1, partition_epoch=7, **facts)
    topic_id = services.metadata.topic_id("t")
    states = r.LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
    leaders = [r.LeaderAndIsrLiveLeader(broker_id=2, host_name="b2", port=9092)]
    made = scene.ask(2, r(topic_states=[states], live_leaders=leaders, **epochs), 7)
    assert made.error_code == ErrorCode.NONE
    assert services.replicas.partitions["t", 0].state.is_leader
    assert led_by(scene, 2) == before

    r = UpdateMetadataRequest
    state = r.UpdateMetadataPartitionState(controller_epoch=1, zk_version=7, **facts)
    states = r.UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
    endpoint = r.UpdateMetadataEndpoint
    live = [
        r.UpdateMetadataBroker(
            id=b, endpoints=[endpoint(port=9092, host=f"b{b}", listener="PLAINTEXT")]
        )
        for b in (1, 2)
    ]
    stale = r(topic_states=[states], live_brokers=live, **{**epochs, "controller_epoch": 0})
    assert scene.ask(2, stale, 8).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert led_by(scene, 2) == before
    told = r(topic_states=[states], live_brokers=live, **epochs)
    assert scene.ask(2, told, 8).error_code == ErrorCode.NONE
    assert led_by(scene, 2) == (2, 7)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("kind", "version"), REQUESTS, ids=lambda v: getattr(v, "__name__", v))
def test_r10_what_a_former_connection_still_delivers_changes_nothing(scene, kind, version, large):
    """Seed 9992102: TCP sent a segment again long after the controller had connected again."""
    broker = scene.up(1)
    services = broker.services
    epochs = {
        "controller_id": 1,
        "controller_epoch": services.replicas.controller_epoch,
        "broker_epoch": services.session.broker_epoch,
    }
    update = UpdateMetadataRequest
    brokers = [update.UpdateMetadataBroker(id=n, endpoints=[]) for n in range(2, 2 + 9000 * large)]

    async def go():
        world = scene.simulation.node("client").world
        former = await PeerConnection.open(world, "b1", 9092, "t", timeout_s=5)
        later = await PeerConnection.open(world, "b1", 9092, "t", timeout_s=5)
        for peer in (former, later):
            assert (await peer.send(update(**epochs), 8, 9)).error_code == ErrorCode.NONE
        request = kind(**epochs)
        if kind is update:
            request.live_brokers = brokers
        with pytest.raises(ConnectionLostError):
            await former.send(request, version, 9)
        assert services.metadata.snapshot.brokers == {}
        assert (await later.send(kind(**epochs), version, 9)).error_code == ErrorCode.NONE
        # A controller whose connection is taken for a former one connects again, and is accepted.
        again = await PeerConnection.open(world, "b1", 9092, "t", timeout_s=5)
        assert (await again.send(kind(**epochs), version, 9)).error_code == ErrorCode.NONE
        for peer in (former, later, again):
            peer.close()

    scene.simulation.node("client").call(go())
