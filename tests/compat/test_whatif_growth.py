"""`ottla whatif` of more brokers and of a drain; then it is done for real, and compared.

In racks, with records, on Ottla and on Kafka 3.9; what came is read by librdkafka.
"""

import json

import pytest
from confluent_kafka import Producer

from support.clients import named
from support.cluster import OttlaCluster, free_ports
from support.command_line import call, ok
from support.kafka39 import Kafka39Cluster
from support.predictions import predicted, same, settle, states
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(400)]

TOPICS = {"many": (12, 2), "few": (3, 3), "single": (2, 1)}


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def cluster(request, tmp_path_factory):
    kind = OttlaCluster
    if request.param == "kafka":
        request.getfixturevalue("kafka_tools")
        kind = Kafka39Cluster
    settings = {"auto_leader_rebalance_enable": "false", "broker_rack": "r{broker}"}
    with kind(tmp_path_factory.mktemp(request.param), brokers=3, **settings) as found:
        for name, (partitions, factor) in TOPICS.items():
            ok(found, "topics", "create", name, "--partitions", partitions,
               "--replication-factor", factor)  # fmt: skip
        fill(found)
        settle(found)
        yield found


def fill(cluster):
    """Give partitions different sizes: bytes count for the plan."""
    producer = Producer(named(cluster.bootstrap, {"linger_ms": 50}))
    for name, (partitions, _) in TOPICS.items():
        for n in range(partitions):
            for _ in range(40 * (n + 1)):
                producer.produce(name, b"x" * 500, partition=n)
    assert producer.flush(60) == 0


def test_a_broker_in_a_new_rack_gets_its_share_and_gives_it_back(cluster):
    found, expected = predicted(cluster, "add-brokers", "3:r3", code=0)
    assert not found["harm"]
    (added,) = [load for load in found["after"]["brokers"] if load["broker"] == 3]
    assert (added["rack"], added["alive"]) == ("r3", True)
    assert added["replicas"] >= 8, "a quarter of 35, of topics that are spread each by itself"
    cluster.ids.append(3)
    cluster.ports[3] = free_ports(1)[0]
    cluster.start_broker(3)
    until(lambda: alive(cluster) == {0, 1, 2, 3}, 60, "all know it")
    plan = cluster.folder / "plan.json"
    plan.write_text(ok(cluster, "reassign", "plan", "--all"))
    ok(cluster, "reassign", "execute", "--file", plan, "--wait", 60)
    same(cluster, expected)
    loads = {load["broker"]: load["replicas"] for load in found["after"]["brokers"]}
    assert replicas(cluster) == loads

    found, expected = predicted(cluster, "drain", 3, code=0)
    loads = {load["broker"]: load["replicas"] for load in found["after"]["brokers"]}
    assert loads[3] == 0
    ok(cluster, "broker", "drain", 3)
    same(cluster, expected)
    assert replicas(cluster) == loads


def alive(cluster):
    return {b["broker"] for b in json.loads(
        ok(cluster, "top", "--count", 1, "--output", "json")
    )["brokers"] if b["alive"]}  # fmt: skip


def replicas(cluster):
    found = [broker for _, _, replicas in states(cluster).values() for broker in replicas]
    return {broker: found.count(broker) for broker in cluster.ids}


def test_brokers_without_racks_beside_those_with_racks_are_refused(cluster):
    done = call(cluster, "whatif", "add-brokers", "9")
    assert done.returncode == 1
    assert "broker 9 has no rack while others have one; write ID:RACK" in done.stderr
