"""The lease of a throttle, on simulated brokers: whoever set it never comes back."""

import pytest

from ottla.broker.configs import throttle_lease
from ottla.model.throttle_settings import LEASE, REPLICATION_RATES, THROTTLED_REPLICAS
from ottla.wire.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from ottla.wire.messages.topics import AlterPartitionReassignmentsRequest, CreateTopicsRequest
from ottla.zookeeper import znodes

TOPIC, BROKER = 2, 4
RATES = dict.fromkeys(REPLICATION_RATES, "1000")
LISTS = dict.fromkeys(THROTTLED_REPLICAS, "0:1")


@pytest.fixture
def cluster(scene):
    """Two brokers; topic `t` is on broker 1."""
    scene.up(1)
    scene.up(2)
    create(scene, "t", 1)
    return scene


def create(scene, name, broker):
    r = CreateTopicsRequest
    placed = r.CreatableReplicaAssignment(partition_index=0, broker_ids=[broker])
    topic = r.CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[placed]
    )
    answer = scene.ask(1, r(topics=[topic], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == 0, answer


def alter(scene, kind, name, settings):
    r = IncrementalAlterConfigsRequest
    configs = [r.AlterableConfig(name=k, config_operation=0, value=v) for k, v in settings.items()]
    resource = r.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = scene.ask(int(name) if kind == BROKER else 1, r(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


def reassign(scene, brokers):
    r = AlterPartitionReassignmentsRequest
    moved = r.ReassignablePartition(partition_index=0, replicas=brokers)
    answer = scene.ask(1, r(topics=[r.ReassignableTopic(name="t", partitions=[moved])]), 0)
    assert answer.responses[0].partitions[0].error_code == 0, answer


def settings(scene, kind, name):
    node = scene.znode(f"/config/{kind}/{name}")
    return {} if node is None else znodes.decode_config("", node.data)


def nothing_left(scene, *brokers):
    return not any(settings(scene, "brokers", b) for b in brokers) and not settings(
        scene, "topics", "t"
    )


def test_throttles_of_an_ended_reassignment_go(cluster):
    for broker in (1, 2):
        alter(cluster, BROKER, str(broker), RATES | {LEASE: "t"})
    alter(cluster, TOPIC, "t", LISTS | {"retention.ms": "9"})
    reassign(cluster, [2])
    began = cluster.simulation.now
    cluster.wait(
        lambda: not settings(cluster, "brokers", 1) and not settings(cluster, "brokers", 2)
    )
    took = cluster.simulation.now - began
    assert throttle_lease.GRACE_S <= took <= throttle_lease.GRACE_S + 15
    assert settings(cluster, "topics", "t") == {"retention.ms": "9"}
    cluster.simulation.run_for(1.0)
    for broker in cluster.brokers.values():
        assert broker.services.replicas.leader_quota.bound == float("inf")


def test_throttles_stay_while_the_move_does_and_go_after_it(cluster):
    """Broker 2 is down: the move waits for it, longer than the grace. Then it ends."""
    alter(cluster, BROKER, "1", RATES | {LEASE: "t"})
    alter(cluster, BROKER, "2", RATES | {LEASE: "t"})
    alter(cluster, TOPIC, "t", LISTS)
    cluster.produce("t", 5)
    cluster.simulation.node("b2").crash()
    reassign(cluster, [2])  # before the controller has noticed that broker 2 is dead
    cluster.simulation.run_for(4 * throttle_lease.GRACE_S)
    assert settings(cluster, "brokers", 1) == RATES | {LEASE: "t"}
    assert settings(cluster, "topics", "t") == LISTS
    cluster.up(2)
    cluster.wait(lambda: nothing_left(cluster, 1, 2), within_s=120)


def test_a_broker_that_comes_back_later_removes_its_own(cluster):
    alter(cluster, BROKER, "1", RATES | {LEASE: "t"})
    alter(cluster, BROKER, "2", RATES | {LEASE: "t"})
    cluster.simulation.node("b2").crash()
    cluster.wait(lambda: not settings(cluster, "brokers", 1))
    assert settings(cluster, "brokers", 2)
    cluster.up(2)
    cluster.wait(lambda: nothing_left(cluster, 1, 2))


def test_throttles_without_a_lease_are_somebodys_own(cluster):
    alter(cluster, BROKER, "1", RATES)
    alter(cluster, TOPIC, "t", LISTS)
    cluster.simulation.run_for(5 * throttle_lease.GRACE_S)
    assert settings(cluster, "brokers", 1) == RATES
    assert settings(cluster, "topics", "t") == LISTS


def test_a_lease_is_shown_set_or_not_so_that_tools_know_who_keeps_it(cluster):
    def shown():
        r = DescribeConfigsRequest
        resource = r.DescribeConfigsResource(
            resource_type=BROKER, resource_name="1", configuration_keys=[LEASE]
        )
        (found,) = cluster.ask(1, r(resources=[resource]), 4).results[0].configs
        assert not found.is_sensitive
        return found.value, found.config_source

    assert shown() == (None, 5)
    alter(cluster, BROKER, "1", {LEASE: "t"})
    cluster.wait(lambda: LEASE in cluster.brokers["b1"].services.dynamic_configs.own)
    assert shown() == ("t", 2)
