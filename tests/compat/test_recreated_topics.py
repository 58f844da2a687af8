"""A topic is deleted and made anew under its name while a broker is away (F26).

Real processes. Old records have a word in them that new ones have not: it is looked for in the
files of every broker and in what librdkafka reads while the broker returns, and leads.
"""

import json
import threading
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from support.clients import named, produce, read_to_end
from support.cluster import OttlaCluster
from support.command_line import call, found, ok
from support.seen import Znodes
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]

OLD, NEW = b"of-the-old-topic", b"of-the-new-topic"
AWAY = 2
NEW_ID = "AAAAAAAAAAAAAAAAAAAAAw"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = {"auto_leader_rebalance_enable": "false", "log_segment_delete_delay_ms": "500"}
    folder = tmp_path_factory.mktemp("recreated")
    with OttlaCluster(folder, brokers=3, session_timeout_ms=4000, **settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def znodes(cluster):
    with Znodes(cluster.zookeeper) as found:
        yield found


@pytest.fixture
def topic(cluster, request):
    name = request.node.name.removeprefix("test_f26_").replace("_", "-")[:40]
    yield name
    if not cluster.running(AWAY):
        cluster.start_broker(AWAY)


def make(cluster, topic, *replicas):
    ok(cluster, "topics", "create", topic, "--assignment", ":".join(map(str, replicas)))


def write(cluster, topic, word, count):
    produce(cluster.bootstrap, topic, [b"%s-%d" % (word, n) for n in range(count)], 1)


def leave(cluster, znodes):
    cluster.kill(AWAY)
    until(lambda: AWAY not in znodes.brokers(), 30, "its session has ended")


def exists(znodes, path):
    return znodes.client.exists(path) is not None


def gone(znodes, topic):
    return not exists(znodes, f"/brokers/topics/{topic}") and not exists(
        znodes, f"/admin/delete_topics/{topic}"
    )


def old_files(cluster, topic):
    """Return the files of any broker that have old records, strays left out."""
    files = [f for b in cluster.ids for f in cluster.data(b).glob(f"{topic}-0*/*.log")]
    return [f for f in files if not f.parent.name.endswith("-stray") and OLD in f.read_bytes()]


def ids_on_disk(cluster, topic):
    """Return by broker the topic id in its replica's folder."""
    return {
        b: file.read_text().split("topic_id:")[1].strip()
        for b in cluster.ids
        if (file := cluster.data(b) / f"{topic}-0" / "partition.metadata").exists()
    }


class Reader:
    """Reads a topic from its beginning, again and again, and keeps every value."""

    def __init__(self, cluster, topic):
        self._cluster, self._topic = cluster, topic
        self.values = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self._thread.join(40)

    def _read(self):
        settings = {"group_id": "none", "enable_auto_commit": False, "fetch_wait_max_ms": 20}
        while not self._over.is_set():
            consumer = Consumer(named(self._cluster.bootstrap, settings))
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            # A second, and longer where a busy machine takes as long to connect.
            began, read = time.monotonic(), False
            while not self._over.is_set() and time.monotonic() - began < (1 if read else 5):
                found = [m for m in consumer.consume(100, 0.05) if m.error() is None]
                self.values += [m.value() for m in found]
                read = read or bool(found)
            consumer.close()


def comes_back_and_leads(cluster, znodes, topic, count):
    """Start the broker, let it lead; nobody reads or keeps anything old."""
    with Reader(cluster, topic) as reader:
        cluster.start_broker(AWAY)
        until(lambda: AWAY in znodes.brokers(), 30, "it is back")
        if AWAY not in znodes.assignment(topic)[0]:
            move = (f"{topic}-0={AWAY},0", "--wait", 40)
            ok(cluster, "reassign", "execute", "--partition", *move)
        until(lambda: znodes.full(topic), 60, "in sync")
        ok(cluster, "elect", "preferred", f"{topic}-0")
        until(lambda: znodes.states(topic)[0].leader == AWAY, 20, "it leads")
        until(lambda: len(reader.values) >= 3 * count, 40, "it was read")
        before = len(reader.values)
        until(lambda: len(reader.values) >= before + 2 * count, 40, "it was read from it, too")
    assert not [v for v in reader.values if OLD in v]
    expected = [b"%s-%d" % (NEW, n) for n in range(count)]
    assert read_to_end(cluster.bootstrap, topic, 1, "read_uncommitted") == expected
    until(lambda: not old_files(cluster, topic), 20, lambda: str(old_files(cluster, topic)))
    id_ = znodes.read(f"/brokers/topics/{topic}")["topic_id"]
    expected = dict.fromkeys(znodes.assignment(topic)[0], id_)
    until(
        lambda: ids_on_disk(cluster, topic) == expected, 20, f"replicas are {expected}",
        despite=(OSError,),
    )  # fmt: skip


def test_f26_deletion_waits_for_the_broker_and_is_seen_to(cluster, znodes, topic):
    make(cluster, topic, AWAY, 0, 1)
    write(cluster, topic, OLD, 300)
    leave(cluster, znodes)
    call(cluster, "topics", "delete", topic, "--yes")
    assert exists(znodes, f"/admin/delete_topics/{topic}"), "it waits"
    refused = call(cluster, "topics", "create", topic, "--assignment", "0:1")
    assert refused.returncode == 1
    assert "TOPIC_ALREADY_EXISTS" in refused.stderr
    until(
        lambda: {
            f["finding"]
            for f in json.loads(call(cluster, "doctor", "--output", "json").stdout)["findings"]
            if topic in f["subjects"]
        } == {"deletion-stuck"},
        60,
        "doctor names it",
    )  # fmt: skip
    cluster.start_broker(AWAY)
    until(lambda: gone(znodes, topic), 40, "it is deleted")
    until(lambda: not ids_on_disk(cluster, topic), 20, "no replica is left")
    until(lambda: not old_files(cluster, topic), 20, "nor a file")
    make(cluster, topic, AWAY, 0)
    write(cluster, topic, NEW, 100)
    leave(cluster, znodes)
    comes_back_and_leads(cluster, znodes, topic, 100)


def test_f26_its_replica_had_been_moved_away_meanwhile(cluster, znodes, topic):
    """Nobody waits for it then, and no request about that topic comes any more."""
    make(cluster, topic, 0, AWAY)
    write(cluster, topic, OLD, 300)
    leave(cluster, znodes)
    ok(cluster, "reassign", "execute", "--partition", f"{topic}-0=0,1", "--wait", 40)
    ok(cluster, "topics", "delete", topic, "--yes")
    until(lambda: gone(znodes, topic), 30, "it is deleted")
    make(cluster, topic, 0, 1)
    write(cluster, topic, NEW, 100)
    assert old_files(cluster, topic), "the broker that is away has them"
    comes_back_and_leads(cluster, znodes, topic, 100)


def test_f26_its_znodes_were_deleted_by_hand(cluster, znodes, topic):
    """As operators do who do not wait for the broker; its place is in the new topic, too."""
    make(cluster, topic, AWAY, 0, 1)
    write(cluster, topic, OLD, 300)
    leave(cluster, znodes)
    call(cluster, "topics", "delete", topic, "--yes")
    for path in (f"/brokers/topics/{topic}", f"/config/topics/{topic}"):
        znodes.client.delete(path, recursive=True)
    znodes.client.delete(f"/admin/delete_topics/{topic}")
    znodes.delete_controller()
    until(lambda: znodes.controller() >= 0, 20, "a controller is elected")
    new = {"version": 3, "topic_id": NEW_ID, "partitions": {"0": [AWAY, 0, 1]},
           "adding_replicas": {}, "removing_replicas": {}}  # fmt: skip
    znodes.client.create(f"/config/topics/{topic}", b'{"version":1,"config":{}}')
    znodes.client.create(f"/brokers/topics/{topic}", json.dumps(new).encode())
    until(lambda: 0 in znodes.states(topic), 20, "it is led")
    write(cluster, topic, NEW, 100)
    comes_back_and_leads(cluster, znodes, topic, 100)
    assert znodes.read(f"/brokers/topics/{topic}")["topic_id"] == NEW_ID
    assert found(cluster, "topics", "describe", topic)[0]["partitions"][0]["leader"] == AWAY
