"""R22, F52, F53 on real processes: disks replaced by older copies, a copy beside its original."""

import json
import shutil
import time

import pytest
from confluent_kafka.admin import NewTopic
from kazoo.exceptions import NoNodeError

from support.clients import admin_client, create_topics, produce, read_ended
from support.cluster import OttlaCluster, free_ports
from support.own_zookeeper import kazoo
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

TOPIC = "t"
FIRST, SECOND = [f"a{n}" for n in range(20)], [f"b{n}" for n in range(40)]
ALL = sorted([*FIRST, *SECOND])
SETTINGS = {"min_insync_replicas": "2", "auto_leader_rebalance_enable": "false"}


@pytest.fixture
def cluster(tmp_path):
    with OttlaCluster(tmp_path, 3, **SETTINGS) as cluster:
        admin = admin_client(cluster.bootstrap)
        create_topics(admin, NewTopic(TOPIC, num_partitions=1, replica_assignment=[[0, 1, 2]]))
        with kazoo(cluster.zookeeper) as znodes:
            cluster.znodes = znodes
            wait_isr(cluster, {0, 1, 2})
            produce(cluster.bootstrap, TOPIC, FIRST, 1)
            yield cluster


def state(cluster):
    path = f"/brokers/topics/{TOPIC}/partitions/0/state"
    try:
        found = json.loads(cluster.znodes.get(path)[0])
    except NoNodeError:
        return None, set()
    return found["leader"], set(found["isr"])


def wait_isr(cluster, isr):
    until(lambda: state(cluster)[1] == isr, 60, f"ISR {isr}")


def replace_disk(cluster, broker, kept):
    shutil.rmtree(cluster.data(broker))
    shutil.copytree(kept, cluster.data(broker))


def values(cluster):
    return sorted(v.decode() for v in read_ended(cluster.bootstrap, TOPIC, 1))


@pytest.mark.parametrize("hot", [False, True])
def test_f52_an_eligible_replica_with_an_older_disk_waits_for_the_newer_one(cluster, tmp_path, hot):
    kept = tmp_path / "last-night"
    if hot:  # as a snapshot of the volume takes it, put back within the same boot
        shutil.copytree(cluster.data(1), kept)
    else:
        assert cluster.terminate(1) == 0
        shutil.copytree(cluster.data(1), kept)
        cluster.start_broker(1)
    wait_isr(cluster, {0, 1, 2})
    produce(cluster.bootstrap, TOPIC, SECOND, 1)
    cluster.kill(2)
    wait_isr(cluster, {0, 1})
    cluster.kill(1)
    wait_isr(cluster, {0})
    replace_disk(cluster, 1, kept)
    cluster.kill(0)
    for broker in (1, 2):
        cluster.start_broker(broker, wait=False)
    for broker in (1, 2):
        cluster.wait(broker)
    assert b'"logs_whole":false' in cluster.znodes.get("/ottla/brokers/1")[0]
    time.sleep(6)
    assert state(cluster)[0] == -1, "broker 1 lacks what broker 0 acknowledged"
    cluster.start_broker(0)
    wait_isr(cluster, {0, 1, 2})
    assert values(cluster) == ALL


def test_f52_a_leader_with_an_older_clean_disk_asks_before_it_leads(cluster, tmp_path):
    """All died whole and in sync; the leader's disk alone was replaced (R18, adr/0005)."""
    kept = tmp_path / "last-night"
    leader, _ = state(cluster)
    assert cluster.terminate(leader) == 0
    shutil.copytree(cluster.data(leader), kept)
    cluster.start_broker(leader)
    wait_isr(cluster, {0, 1, 2})
    others = [b for b in cluster.ids if b != leader]
    for broker in others:  # so that it leads again
        assert cluster.terminate(broker) == 0
    until(lambda: state(cluster)[0] == leader, 30, "it leads")
    for broker in others:
        cluster.start_broker(broker)
    wait_isr(cluster, {0, 1, 2})
    produce(cluster.bootstrap, TOPIC, SECOND, 1)
    assert state(cluster)[0] == leader
    for broker in cluster.ids:
        cluster.kill(broker)
    replace_disk(cluster, leader, kept)
    cluster.start_broker(leader)
    for broker in others:
        cluster.start_broker(broker)
    wait_isr(cluster, {0, 1, 2})
    assert values(cluster) == ALL


def test_f53_a_copy_of_a_living_brokers_folder_ends_and_changes_nothing(cluster, tmp_path):
    before = cluster.znodes.get("/brokers/ids/0")[1].czxid
    controller = cluster.znodes.get("/controller")[1].czxid
    copy = tmp_path / "copy"
    shutil.copytree(cluster.data(0), copy)
    (port,) = free_ports(1)
    config = cluster.write_config(0).read_text()
    config = config.replace(cluster.address(0), f"127.0.0.1:{port}")
    path = tmp_path / "clone.properties"
    path.write_text(config.replace(str(cluster.data(0)), str(copy)))
    clone = cluster.launch(0, path)
    assert clone.wait(60) == 1
    last = cluster.log(0).read_text().splitlines()[-1]
    assert last.startswith("ottla broker: broker.id=0: broker id 0 is registered by session")
    assert cluster.znodes.get("/brokers/ids/0")[1].czxid == before
    assert cluster.znodes.get("/controller")[1].czxid == controller
    produce(cluster.bootstrap, TOPIC, SECOND, 1)
    assert values(cluster) == ALL


def test_f53_a_broker_whose_registration_was_taken_ends(cluster):
    """An earlier version took it; the one that has it now is named."""
    data, _ = cluster.znodes.get("/brokers/ids/1")
    taker = cluster.znodes.transaction()
    taker.delete("/brokers/ids/1")
    taker.create("/brokers/ids/1", data.replace(b"%d" % cluster.ports[1], b"1"), ephemeral=True)
    taker.commit()
    assert cluster.processes[1].wait(20) == 1
    assert "another process has registered with it, at" in cluster.log(1).read_text()
