"""Nonsense in every znode of a running cluster (F41): it goes on, also under the next controller.

`tests/stories/test_malformed.py` tries every kind of nonsense in each znode on the in-memory
ZooKeeper; here each gets one kind, all at once, with real processes on a real ZooKeeper.
"""

import contextlib
import json
import re
import time

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from support import command_line
from support.cluster import OttlaCluster

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(300)]

TAMPERED = {
    "/brokers/topics/bad": b"{not json",
    "/brokers/topics/empty": b"",
    "/brokers/topics/" + "x" * 300: b'{"version":3,"partitions":{"0":[0,1,2]}}',
    "/brokers/topics/odd": b'{"version":3,"partitions":{"0":"0,1,2"}}',
    "/brokers/topics/hurt/partitions/0/state": b"\xff\xfe",
    "/brokers/topics/hurt/partitions/1/state": b'{"leader":"0","leader_epoch":0,"isr":[0]}',
    "/brokers/ids/nobody": b"{}",
    "/brokers/ids/77": b"[" * 50_000,
    "/config/topics/hurt": b'{"version":1,"config":[1]}',
    "/config/changes/config_change_0000000900": b"null",
    "/config/changes/of_somebody_else": b'{"version":2,"entity_path":"topics/hurt"}',
    "/isr_change_notification/isr_change_0000000900": b'{"version":1,"partitions":{}}',
    "/log_dir_event_notification/log_dir_event_0000000900": b"7",
    "/admin/delete_topics/nosuch": b"\x00",
    "/admin/preferred_replica_election": b'{"partitions":[{"topic":1}]}',
    "/admin/reassign_partitions": b'{"partitions":[{"topic":"t","partition":0,"replicas":[NaN]}]}',
    "/feature": b'{"version":"two"}',
    "/latest_producer_id_block": b'{"version":1,"broker":0,"block_start":0}',
    "/cluster/id": b"{}",
    "/controller": b'{"brokerid":"me"}',
    "/controller_epoch": b"many",
}
SAID = (
    "/brokers/topics/bad",
    "/brokers/topics/empty",
    "/brokers/topics/xxx",
    "/brokers/topics/odd",
    "/brokers/topics/hurt/partitions/0/state",
    "/brokers/topics/hurt/partitions/1/state",
    "/brokers/ids/nobody",
    "/brokers/ids/77",
    "/config/changes/config_change_0000000900",
    "/config/changes/of_somebody_else",
    "/isr_change_notification/isr_change_0000000900",
    "/log_dir_event_notification/log_dir_event_0000000900",
    "/admin/preferred_replica_election",
    "/admin/reassign_partitions",
    "/feature",
    "/controller",
    "/controller_epoch",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("malformed")
    with OttlaCluster(folder, brokers=3, session_timeout_ms=8000) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def zookeeper(cluster):
    client = KazooClient(cluster.zookeeper)
    client.start(20)
    yield client
    client.stop()


def ottla(cluster, *arguments):
    return command_line.call(cluster, *arguments)


def until(what, condition, timeout_s=40):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.2)
    return found


def create(cluster, name):
    """Create a topic as soon as there is a controller to do it."""

    def created():
        done = ottla(cluster, "topics", "create", name, "--partitions", "2",
                     "--replication-factor", "2")  # fmt: skip
        return done.returncode == 0 or "TOPIC_ALREADY_EXISTS" in done.stderr

    until(f"topic {name}", created)


def write(cluster, topic, count=50):
    """Produce with acks=all to every partition; return how many were acknowledged."""
    errors = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 2,
         "message.timeout.ms": 60_000}
    )  # fmt: skip
    for n in range(count):
        producer.produce(topic, b"%d" % n, partition=n % 2,
                         on_delivery=lambda error, _: errors.append(error))  # fmt: skip
    producer.flush(70)
    return errors.count(None)


def controller(zookeeper):
    try:
        return json.loads(zookeeper.get("/controller")[0])["brokerid"]
    except (NoNodeError, ValueError, KeyError):
        return None


def test_every_znode_tampered_with(cluster, zookeeper):
    create(cluster, "t")
    create(cluster, "hurt")
    assert write(cluster, "t") == 50
    for path, data in TAMPERED.items():
        with contextlib.suppress(NoNodeError):
            zookeeper.set(path, data)
            continue
        zookeeper.create(path, data, makepath=True)
    # The same controller or the next: topics are created, settings change, records are written.
    create(cluster, "after")
    assert write(cluster, "after") == 50
    assert write(cluster, "t") == 50
    done = ottla(cluster, "topics", "alter", "t", "--config", "retention.ms=123456789")
    assert done.returncode == 0, done.stderr
    until(
        "every broker heard of it",
        lambda: all("'retention.ms': '123456789'" in log(cluster, b) for b in cluster.ids),
    )
    # Failing over in this mess.
    until("a controller", lambda: controller(zookeeper) in cluster.ids)
    in_office = controller(zookeeper)
    cluster.kill(in_office)
    until("another controller", lambda: controller(zookeeper) not in (None, in_office))
    create(cluster, "later")
    assert write(cluster, "later") == 50
    assert write(cluster, "t") == 50
    assert [b for b in cluster.ids if not cluster.running(b)] == [in_office]
    logs = "".join(log(cluster, b) for b in cluster.ids)
    for path in SAID:
        assert re.search(rf"(ignored|deleting) path={re.escape(path)}", logs), path
    assert "Traceback" not in logs
    assert int(zookeeper.get("/controller_epoch")[0]) < 15, "elections in a loop"
    # What nobody could make sense of is still there for a person to look at.
    for path in ("/brokers/topics/bad", "/feature", "/brokers/topics/hurt/partitions/0/state"):
        assert zookeeper.get(path)[0] == TAMPERED[path]


def test_a_broker_that_cannot_know_its_cluster_does_not_start(cluster, zookeeper):
    """The one that was killed comes back to a /cluster/id that says nothing."""
    (down,) = [b for b in cluster.ids if not cluster.running(b)]
    with pytest.raises(RuntimeError, match="/cluster/id"):
        cluster.start_broker(down)
    good = json.dumps({"version": "1", "id": meta(cluster, down)}).encode()
    zookeeper.set("/cluster/id", good)
    zookeeper.set("/latest_producer_id_block", b"")
    cluster.start_broker(down)
    create(cluster, "all-three")
    assert write(cluster, "all-three") == 50


def log(cluster, broker):
    return cluster.log(broker).read_text(errors="replace")


def meta(cluster, broker):
    text = (cluster.data(broker) / "meta.properties").read_text()
    return re.search(r"cluster\.id=(\S+)", text)[1]
