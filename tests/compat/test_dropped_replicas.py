"""A move is cancelled when the only other replica in sync has just lost its disk (R14, F11, F24).

The same steps on brokers of ours and of Kafka 3.9: who is in sync is read from ZooKeeper by kazoo,
what is left of the records by librdkafka. Kafka drops the replica that alone has the record.
"""

import shutil

import pytest

from ottla.model.errors import ErrorCode
from support.clients import read_to_end
from support.cluster import OttlaCluster
from support.command_line import ok
from support.kafka39 import Kafka39Cluster
from support.reassigning import reassigned
from support.seen import Znodes
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

TOPIC = "moving"
BEFORE, MEANWHILE = "before", "meanwhile"


def started(kind, folder):
    """Return four brokers; a broker that dies is registered until its session ends."""
    settings = {"auto_leader_rebalance_enable": "false"}
    if kind == "ours":
        return OttlaCluster(folder, brokers=4, ottla_crash_detection="off", **settings)
    settings["log_cleaner_dedupe_buffer_size"] = "16777216"
    return Kafka39Cluster(folder, brokers=4, heap_mb=256, **settings)


# Kafka's side takes minutes: `pytest -m alone`.
@pytest.mark.parametrize("kind", ["ours", pytest.param("kafka", marks=pytest.mark.alone)])
def test_r14_the_last_copy_is_not_dropped_by_a_cancel(kind, tmp_path, kafka_tools):
    with started(kind, tmp_path) as cluster, Znodes(cluster.zookeeper) as znodes:
        until(lambda: len(znodes.brokers()) == 4, 60, "all brokers are registered")
        controller = znodes.controller()
        leader, follower, added = (b for b in cluster.ids if b != controller)

        def in_sync(*brokers):
            states = znodes.states(TOPIC)
            return 0 in states and set(states[0].isr) == set(brokers)

        ok(cluster, "topics", "create", TOPIC, "--assignment", f"{leader}:{follower}",
           "--config", "min.insync.replicas=2")  # fmt: skip
        ok(cluster, "produce", TOPIC, stdin=f"{BEFORE}\n")
        cluster.kill(follower)
        until(lambda: in_sync(leader), 60, "the dead follower is out of the ISR")
        assert reassigned(cluster.bootstrap, TOPIC, [added, follower]) == 0
        until(lambda: in_sync(leader, added), 60, "the new replica is in sync")
        ok(cluster, "produce", TOPIC, stdin=f"{MEANWHILE}\n")

        cluster.kill(leader)
        shutil.rmtree(cluster.data(leader))
        assert leader in znodes.brokers(), "its session has not ended yet"
        code = reassigned(cluster.bootstrap, TOPIC, None)
        until(lambda: leader not in znodes.brokers(), 60, "its session has ended")
        cluster.start_broker(leader)
        until(lambda: znodes.states(TOPIC)[0].leader >= 0, 60, "a replica leads")
        cluster.start_broker(follower)
        until(lambda: znodes.full(TOPIC) or len(znodes.states(TOPIC)[0].isr) >= 2, 90, "in sync")
        left = [v.decode() for v in read_to_end(cluster.bootstrap, TOPIC, 1, "read_uncommitted")]

    if kind == "ours":
        assert (code, left) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, [BEFORE, MEANWHILE])
    else:
        assert code == 0
        assert MEANWHILE not in left, "Kafka keeps it now: COMPATIBILITY.md says that it does not"
