"""A flood of connections takes no broker out: failover and new clients go on (R19, F28)."""

import functools
import subprocess
import sys
import time

import pytest

from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.records import ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.wire.records import Record, build_batch
from support.cluster import OttlaCluster
from support.seen import ask
from support.waiting import until, waited_s

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

TOPIC = "flooded"
FLOOD_S, CONNECTIONS = 5, 30_000
SLOWER, FLOOR_S = 1.5, 1.0
"""A failover below the floor counts as that long: it takes 0.2 s where nobody has the cores."""
FLOOD = """
import resource, socket, struct, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
how, seconds, count, *addresses = sys.argv[1:]
began, held = time.monotonic(), []
print("begun", flush=True)
for number in range(int(count)):
    if (ahead := number / int(count) * int(seconds) - (time.monotonic() - began)) > 0:
        time.sleep(ahead)
    one = socket.socket()
    try:
        one.settimeout(0.5)
        if number % 2:  # reset: gone before it is accepted; otherwise an end in order
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        host, _, port = addresses[number % len(addresses)].rpartition(":")
        one.connect((host, int(port)))
        if how == "part":
            one.send(bytes((0, 0, 0, 100, 0)))
    except OSError:
        pass
    if how == "hold" and len(held) < 6_000:
        held.append(one)
    else:
        one.close()
if how == "hold":
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with OttlaCluster(tmp_path_factory.mktemp("flood"), max_connections_per_ip="500") as found:
        wanted = CreateTopicsRequest.CreatableTopic(
            name=TOPIC, num_partitions=1, replication_factor=3
        )
        request = CreateTopicsRequest(timeout_ms=30_000, topics=[wanted])

        def created():
            codes = {ask(found.address(b), request, 5).topics[0].error_code for b in found.ids}
            return codes & {0, 36}  # TOPIC_ALREADY_EXISTS

        until(created, 60, "a topic")
        yield found


class flooded:  # noqa: N801 - used as a function
    """Flood all brokers while the block runs."""

    def __init__(self, cluster, how):
        addresses = [cluster.address(b) for b in cluster.ids]
        self._words = [how, str(FLOOD_S), str(CONNECTIONS), *addresses]

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", FLOOD, *self._words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._process.stdout.readline()
        time.sleep(1.5)

    def __exit__(self, *error):
        self._process.kill()
        self._process.communicate(timeout=20)


def partition(cluster, broker):
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    (topic,) = ask(cluster.address(broker), request, 9).topics
    return topic.partitions[0]


def acknowledged(cluster, broker):
    r = ProduceRequest
    raw = build_batch([Record(timestamp=1, value=b"x")])
    data = r.TopicProduceData(
        name=TOPIC, partition_data=[r.PartitionProduceData(index=0, records=raw)]
    )
    response = ask(
        cluster.address(broker), r(acks=-1, timeout_ms=30_000, topic_data=[data]), 8
    ).responses[0]
    return response.partition_responses[0].error_code == 0


def failover_s(cluster):
    """Kill the leader; return how long it takes until another one has a record acknowledged.

    Without what the survivors waited for a processor. The broker is back afterwards.
    """
    leader = partition(cluster, 0).leader_id
    alive = [b for b in cluster.ids if b != leader]
    pids = [cluster._zookeeper.pid, *map(cluster.pid, alive)]
    began, waited = time.monotonic(), waited_s(*pids)
    cluster.kill(leader)
    until(
        lambda: any(acknowledged(cluster, b) for b in alive), 60, "another leader",
        despite=(Exception,),
    )  # fmt: skip
    took = time.monotonic() - began - max(0.0, waited_s(*pids) - waited)
    return took, leader


def in_sync(cluster):
    until(
        lambda: len(partition(cluster, 0).isr_nodes) == 3, 90, "all in sync", despite=(Exception,)
    )


def test_a_leader_is_replaced_amid_a_flood_as_without_one(cluster):
    in_sync(cluster)
    usual, gone = failover_s(cluster)
    cluster.start_broker(gone)
    in_sync(cluster)
    with flooded(cluster, "drop"):
        took, gone = failover_s(cluster)
    cluster.start_broker(gone)
    in_sync(cluster)
    assert took <= SLOWER * max(usual, FLOOR_S)


@pytest.mark.parametrize("how", ["drop", "part", "hold"])
def test_a_new_client_is_answered_amid_a_flood(cluster, how):
    with flooded(cluster, how):
        for broker in cluster.ids:
            pid = cluster.pid(broker)
            began, waited = time.monotonic(), waited_s(pid)
            answered = functools.partial(partition, cluster, broker)
            until(answered, 20, "an answer", despite=(Exception,))
            took = time.monotonic() - began
            assert took - (waited_s(pid) - waited) < 2.0, (how, broker, took)
