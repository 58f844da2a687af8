"""What ZooKeeper forgot, or remembers differently, is never deleted by a broker (R15, R20, R21).

Real processes. ZooKeeper is restored from a backup, or lost; old tools write a topic's znode
(KAFKA-14190); `partition.metadata` names another topic.
"""

import json
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from support.clients import produce, read_to_end
from support.cluster import OttlaCluster
from support.command_line import call, ok
from support.seen import Znodes
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

OLD = [b"old-%d" % n for n in range(100)]
SETTINGS = {"log_segment_delete_delay_ms": "500", "file_delete_delay_ms": "500"}


@contextmanager
def running(folder, brokers=1):
    settings = {"default_replication_factor": str(brokers), "num_partitions": "1", **SETTINGS}
    with OttlaCluster(folder, brokers, session_timeout_ms=4000, **settings) as cluster:
        yield cluster


def read(cluster):
    return sorted(read_to_end(cluster.bootstrap, "u", 1, "read_committed"), key=number)


def number(value):
    return int(value.rpartition(b"-")[2])


def old_values(folder):
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    return sum(value in data for value in OLD)


def strays(cluster, topic="u"):
    return {b: sorted(cluster.data(b).glob(f"{topic}-0.*-stray")) for b in cluster.ids}


def all_stopped(cluster):
    for broker in cluster.ids:
        cluster.terminate(broker)


def all_started(cluster):
    for broker in cluster.ids:
        cluster.start_broker(broker, wait=False)
    for broker in cluster.ids:
        cluster.wait(broker)


def with_zookeeper_stopped(cluster, change):
    """Exchange ZooKeeper's data while everything is stopped."""
    port = int(cluster.zookeeper.rpartition(":")[2])
    cluster._zookeeper.stop()
    change(cluster.folder / "zookeeper")
    cluster._zookeeper = cluster.start_zookeeper(port)


def test_f51_zookeeper_went_back_and_the_topic_was_created_again(tmp_path):
    backup = tmp_path / "backup"
    with running(tmp_path / "cluster", brokers=3) as cluster:
        with_zookeeper_stopped(cluster, lambda data: shutil.copytree(data, backup))
        cluster.wait_known()
        ok(cluster, "topics", "create", "u", "--replication-factor", 3)
        produce(cluster.bootstrap, "u", OLD, 1)

        def restore(data):
            shutil.rmtree(data)
            shutil.copytree(backup, data)

        all_stopped(cluster)
        with_zookeeper_stopped(cluster, restore)
        all_started(cluster)
        produce(cluster.bootstrap, "u", [b"new-0"], 1)  # creates the topic
        until(lambda: all(strays(cluster).values()), 30, lambda: str(strays(cluster)))
        assert read(cluster) == [b"new-0"]
        found = strays(cluster)
        assert {b: [old_values(path) for path in paths] for b, paths in found.items()} == {
            b: [len(OLD)] for b in cluster.ids
        }
        said = call(cluster, "doctor", "--for", "0s", "--output", "json").stdout
        (finding,) = [f for f in json.loads(said)["findings"] if f["finding"] == "strays"]
        assert len(finding["subjects"]) == 3
        # And back again, as docs/OPERATIONS.md says.
        all_stopped(cluster)
        for broker, (stray,) in found.items():
            place = cluster.data(broker) / "u-0"
            script = f"mv {place} {place}.new; mv {stray} {place}; rm {place}/partition.metadata"
            subprocess.run(["sh", "-ec", script], check=True)
        all_started(cluster)
        assert read(cluster) == OLD


def test_r20_zookeeper_was_lost_and_the_application_creates_its_topic(tmp_path):
    with running(tmp_path) as cluster:
        ok(cluster, "topics", "create", "u")
        produce(cluster.bootstrap, "u", OLD, 1)
        all_stopped(cluster)
        with_zookeeper_stopped(cluster, shutil.rmtree)
        (cluster.data(0) / "meta.properties").unlink()  # it names the lost cluster
        all_started(cluster)
        produce(cluster.bootstrap, "u", [b"new-0"], 1)
        (stray,) = strays(cluster)[0]
        assert old_values(stray) == len(OLD)
        cluster.terminate(0)
        cluster.start_broker(0)
        assert strays(cluster)[0] == [stray]
        assert read(cluster) == [b"new-0"]


def test_r20_partition_metadata_names_another_topic(tmp_path):
    with running(tmp_path) as cluster:
        ok(cluster, "topics", "create", "u")
        produce(cluster.bootstrap, "u", OLD, 1)
        all_stopped(cluster)
        name = cluster.data(0) / "u-0" / "partition.metadata"
        name.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAw")
        all_started(cluster)
        until(lambda: strays(cluster)[0], 30, "put aside")
        assert old_values(strays(cluster)[0][0]) == len(OLD)


@pytest.mark.parametrize("when", ["running", "stopped"])
@pytest.mark.parametrize("written", ["no id", "no readable id", "another id"])
def test_r15_an_old_tool_writes_the_topic(tmp_path, when, written):
    with running(tmp_path) as cluster:
        ok(cluster, "topics", "create", "u")
        produce(cluster.bootstrap, "u", OLD, 1)
        if when == "stopped":
            all_stopped(cluster)
        data = {"version": 1, "partitions": {"0": [0], "1": [0]}}
        if written != "no id":
            topic_id = "AAAAAAAAAAAAAAAAAAAAAw" if written == "another id" else "garbage"
            data |= {"version": 3, "topic_id": topic_id}
        with Znodes(cluster.zookeeper) as znodes:
            znodes.client.set("/brokers/topics/u", json.dumps(data).encode())
        if when == "running":
            all_stopped(cluster)
        all_started(cluster)
        ok(cluster, "topics", "describe", "u")
        produce(cluster.bootstrap, "u", [b"old-100"], 1)
        assert read(cluster) == [*OLD, b"old-100"]
        assert strays(cluster)[0] == []
