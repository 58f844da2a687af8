"""Reassignments that meet something else, through the tool, on brokers of ours and of Kafka 3.9.

Another reassignment of the same partition (F24), the deletion of the topic (F25), the death of the
broker that is copied to, with a throttle and without who set it (F27). What is in ZooKeeper is read
by kazoo, what is copied from the brokers' files, what is left of the records by librdkafka.
"""

import random
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from kazoo.exceptions import NodeExistsError

from support.clients import read_to_end
from support.cluster import OttlaCluster
from support.command_line import call, found, ok
from support.kafka39 import Kafka39Cluster
from support.reassigning import ShortLeases, reassigned
from support.schemas import partition_name
from support.seen import REASSIGN_ZNODE, Znodes
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(300)]

KIB, MIB = 1 << 10, 1 << 20
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


# Kafka's side takes minutes: `pytest -m alone`.
@pytest.fixture(scope="module", params=["ours", pytest.param("kafka", marks=pytest.mark.alone)])
def cluster(request, tmp_path_factory, kafka_tools):
    folder = tmp_path_factory.mktemp(request.param)
    settings = {
        "auto_leader_rebalance_enable": "false",
        # What a throttle lets pass at once: by default ten times that much.
        "replica_fetch_response_max_bytes": str(MIB),
    }
    if request.param == "ours":
        made = ShortLeases(folder, brokers=3, **settings)
    else:
        settings["log_cleaner_dedupe_buffer_size"] = "16777216"
        made = Kafka39Cluster(folder, brokers=3, heap_mb=256, **settings)
    with made as cluster:
        all_known(cluster)
        yield cluster


@pytest.fixture(scope="module")
def znodes(cluster):
    with Znodes(cluster.zookeeper) as found:
        yield found


def all_known(cluster):
    until(
        lambda: len([b for b in found(cluster, "status")["brokers"] if b["alive"]]) == 3,
        90,
        "all brokers are known",
        despite=(AssertionError,),
    )


def make(cluster, topic, *replicas, mebibytes):
    """Create a topic with one partition and records of 64 KiB; return how many."""
    ok(cluster, "topics", "create", topic, "--assignment", ":".join(map(str, replicas)))
    line = "x" * (64 * KIB - 1) + "\n"
    ok(cluster, "produce", topic, stdin=line * (16 * mebibytes))
    return 16 * mebibytes


def ids(brokers):
    return ",".join(map(str, brokers))


def replicas(znodes, topic):
    return znodes.assignment(topic)[0]


def moving(cluster):
    return {partition_name(m) for m in found(cluster, "reassign", "list")}


def throttles(cluster, *topics):
    """Throttled settings there are: (where, key, value)."""
    places = [("--broker", b) for b in cluster.ids if cluster.running(b)]
    return [
        (name, s["key"], s["value"])
        for kind, name in (*places, *(("--topic", t) for t in topics))
        for s in found(cluster, "configs", "describe", kind, name)["settings"]
        if "throttled" in s["key"]
    ]


def unthrottled(cluster, *topics):
    """Wait until brokers have heard that no throttle is left: sooner than any lease ends."""
    until(lambda: throttles(cluster, *topics) == [], 8, f"no throttle of {topics}")


def unthrottle(cluster):
    for broker, key, _ in throttles(cluster):
        ok(cluster, "configs", "alter", "--broker", broker, "--delete", key)


def copied(cluster, broker, topic):
    """Return the bytes of a replica's segments."""
    folder = cluster.data(broker) / f"{topic}-0"
    return sum(f.stat().st_size for f in folder.glob("*.log")) if folder.exists() else 0


def asked(cluster, topic, target):
    """Ask by request; return the error code."""
    return reassigned(cluster.bootstrap, topic, target)


@contextmanager
def counted(znodes, topic, least):
    """Meanwhile look at the partition all the time: so many replicas are there and in sync."""
    wrong, looks, over = [], [], threading.Event()
    state_path = f"/brokers/topics/{topic}/partitions/0/state"

    def look():
        while not over.wait(0.005):
            before, assigned = znodes.states(topic)[0], set(replicas(znodes, topic))
            if znodes.states(topic)[0] != before:
                continue  # of two moments
            looks.append(assigned)
            in_sync = assigned & set(before.isr)
            if len(assigned) < least or len(in_sync) < least:
                wrong.append(f"assigned {assigned}, in sync {set(before.isr)}")

    assert znodes.client.exists(state_path)
    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
    assert not wrong, wrong[:5]
    assert len(looks) > 5


# --- F24 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_f24_a_second_reassignment_replaces_the_target(cluster, znodes, seed):
    draw = random.Random(seed)
    original = draw.sample(cluster.ids, 2)
    (third,) = set(cluster.ids) - set(original)
    first, second = draw.choice(
        [
            ([original[0], third], [third, original[1]]),
            ([third, original[1]], [original[1], original[0]]),
            ([third], [original[0], third]),
            ([third, *original], [original[1], third]),
        ]
    )
    topic = f"pair-{seed}"
    count = make(cluster, topic, *original, mebibytes=4)
    execute = ("reassign", "execute", "--partition")
    with counted(znodes, topic, min(2, len(first), len(second))):
        ok(cluster, *execute, f"{topic}-0={ids(first)}", "--throttle", 10_000)
        assert moving(cluster) == {f"{topic}-0"}
        refused = call(cluster, *execute, f"{topic}-0={ids(second)}", "--throttle", 50_000_000)
        assert refused.returncode == 1
        assert "is being reassigned already" in refused.stderr
        more = ("--additional", "--throttle", 50_000_000, "--wait", 60)
        ok(cluster, *execute, f"{topic}-0={ids(second)}", *more)
        until(lambda: not znodes.moving(topic), 30, "it is over")
    assert replicas(znodes, topic) == second
    until(lambda: znodes.full(topic), 30, "in sync")
    unthrottled(cluster, topic)
    assert len(read_to_end(cluster.bootstrap, topic, 1, "read_uncommitted")) == count


def test_f24_a_second_znode_is_refused_and_a_request_replaces_it(cluster, znodes):
    topic = "znodes"
    count = make(cluster, topic, 0, 1, mebibytes=4)
    for broker in cluster.ids:
        ok(cluster, "configs", "alter", "--broker", broker, *(f"--set={r}=10000" for r in RATES))
    every = (f"--set={side}.replication.throttled.replicas=*" for side in ("leader", "follower"))
    ok(cluster, "configs", "alter", "--topic", topic, *every)
    with counted(znodes, topic, 2):
        znodes.ask_to_reassign(topic, {0: [2, 1]})
        until(lambda: znodes.moving(topic), 20, "it moves")
        with pytest.raises(NodeExistsError):
            znodes.ask_to_reassign(topic, {0: [0, 2]})
        assert set(replicas(znodes, topic)) == {0, 1, 2}
        assert znodes.read(REASSIGN_ZNODE)["partitions"][0]["replicas"] == [2, 1]
        assert asked(cluster, topic, [0, 2]) == 0
        until(lambda: znodes.read(REASSIGN_ZNODE) is None, 20, "the znode asks no more")
        unthrottle(cluster)
        until(lambda: not znodes.moving(topic), 60, "it is over")
    assert replicas(znodes, topic) == [0, 2]
    ok(cluster, "reassign", "throttles", "--remove")
    assert len(read_to_end(cluster.bootstrap, topic, 1, "read_uncommitted")) == count


# --- F25 --------------------------------------------------------------------------------------


def folders(cluster, topic):
    """Return the replicas of a topic that are on the brokers' disks."""
    return [
        folder
        for broker in cluster.ids
        for folder in cluster.data(broker).glob(f"{topic}-*")
        if not folder.name.endswith("-delete")
    ]


def exists(znodes, path):
    return znodes.client.exists(path) is not None


def told(cluster, words):
    """Return whether a broker has this in its log; Kafka's tell nothing there."""
    logs = [cluster.log(broker).read_text(errors="replace") for broker in cluster.ids]
    return isinstance(cluster, Kafka39Cluster) or any(words in log for log in logs)


def test_f25_a_topic_that_is_moved_is_deleted_when_it_has_arrived(cluster, znodes):
    """Kafka 3.9 means to wait, but marks the topic before it is one to be deleted: it goes at once.

    (`KafkaController.processTopicDeletion`, `markTopicIneligibleForDeletion`)
    """
    topic = "going"
    make(cluster, topic, 0, mebibytes=24)  # Kafka's lets a MiB pass every ten seconds
    ok(cluster, "reassign", "execute", "--partition", f"{topic}-0=1", "--throttle", 10_000)
    deleting = subprocess.Popen(
        [sys.executable, "-m", "ottla", "topics", "delete", topic, "--yes", "-b",
         cluster.bootstrap],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        if isinstance(cluster, Kafka39Cluster):
            until(lambda: not exists(znodes, f"/brokers/topics/{topic}"), 60, "it is gone")
        else:
            until(lambda: told(cluster, f"deletion halted topic={topic} "), 30, "it was asked for")
            assert exists(znodes, f"/admin/delete_topics/{topic}")
        assert asked(cluster, topic, [2]) == 3
        refused = call(cluster, "reassign", "execute", "--additional", "--partition",
                       f"{topic}-0=2")  # fmt: skip
        assert refused.returncode == 1
        if isinstance(cluster, OttlaCluster):
            time.sleep(1)
            assert znodes.moving(topic), "it waits for the reassignment"
            assert folders(cluster, topic)
        unthrottle(cluster)
        until(lambda: not exists(znodes, f"/brokers/topics/{topic}"), 60, "it is gone")
    finally:
        deleting.kill()
        deleting.wait(10)
    until(lambda: not exists(znodes, f"/admin/delete_topics/{topic}"), 20, "nothing is asked")
    until(lambda: not folders(cluster, topic), 20, "no replica is left")
    assert moving(cluster) == set()
    assert not exists(znodes, REASSIGN_ZNODE)


def test_f25_a_topic_that_is_being_deleted_is_not_moved(cluster, znodes):
    """A broker that is stopped for the moment keeps the deletion from its end."""
    topic = "gone"
    controller = znodes.controller()
    victim, other = (b for b in cluster.ids if b != controller)
    make(cluster, topic, victim, other, mebibytes=1)
    cluster.pause(victim)
    try:
        znodes.client.create(f"/admin/delete_topics/{topic}", b"")
        # Whoever is asked sooner than the controller has heard of it begins a reassignment.
        until(lambda: told(cluster, f"deletion queued topic={topic}\n"), 20, "it is heard of")
        assert reassigned(cluster.address(controller), topic, [controller]) == 3
        assert exists(znodes, f"/brokers/topics/{topic}")
        assert not znodes.moving(topic)
        znodes.ask_to_reassign(topic, {0: [controller]})
        until(lambda: not exists(znodes, REASSIGN_ZNODE), 20, "the znode is taken off")
        assert not znodes.moving(topic)
    finally:
        cluster.resume(victim)
    until(lambda: not exists(znodes, f"/brokers/topics/{topic}"), 60, "it is gone")
    until(lambda: not folders(cluster, topic), 20, "no replica is left")


# --- F27 --------------------------------------------------------------------------------------


def half_way(cluster, znodes, topics, rate):
    """Move two topics from one broker to the two others, and kill -9 the first target half way.

    Return (source, victim, other, records of each, the plan's options).
    """
    source = znodes.controller()
    victim, other = (b for b in cluster.ids if b != source)
    (count,) = {make(cluster, topic, source, mebibytes=12) for topic in topics}
    plan = [
        part
        for topic, target in zip(topics, (victim, other), strict=True)
        for part in ("--partition", f"{topic}-0={target}")
    ]
    said = call(cluster, "reassign", "execute", *plan, "--throttle", rate)
    assert said.returncode == 0, said.stderr
    whole = copied(cluster, source, topics[0])
    until(lambda: copied(cluster, victim, topics[0]) > 0.45 * whole, 120, "half is copied")
    cluster.kill(victim)
    part = copied(cluster, victim, topics[0]) / whole
    assert 0.4 < part < 0.9, part
    assert f"{topics[0]}-0" in moving(cluster)
    until(lambda: victim not in znodes.brokers(), 60, "its session has ended")
    return source, victim, other, count, plan


def test_f27_the_target_dies_half_way_and_its_move_is_cancelled(cluster, znodes):
    topics = "half", "whole"
    source, victim, other, count, plan = half_way(cluster, znodes, topics, 600_000)
    try:
        # Another throttle, while it is down: it is said, and the others take it.
        said = call(cluster, "reassign", "execute", *plan, "--throttle", 3_000_000)
        assert said.returncode == 0, said.stderr
        assert f"broker {victim} is down: no throttle is set on it" in said.stderr
        until(lambda: replicas(znodes, "whole") == [other], 90, "the other move has ended")
        until(lambda: moving(cluster) == {"half-0"}, 20, "the controller knows that it has ended")
        assert znodes.states("half")[0].leader == source
        cancelled = call(cluster, "reassign", "cancel", "--partition", "half-0")
        assert cancelled.returncode == 0, cancelled.stderr
        assert f"half-0 goes back to {source}" in cancelled.stderr
        assert f"broker {victim} does not respond: if it has a throttle" in cancelled.stderr
        until(lambda: replicas(znodes, "half") == [source], 30, "back")
        assert not znodes.moving("half")
        if isinstance(cluster, Kafka39Cluster):
            # Its brokers have no lease, which would name the topic that is done.
            assert "throttles are left over on topic whole" in cancelled.stderr
            ok(cluster, "reassign", "throttles", "--remove")
        unthrottled(cluster, *topics)
    finally:
        cluster.start_broker(victim)
        all_known(cluster)
    left = {(name, key): value for name, key, value in throttles(cluster, *topics)}
    if isinstance(cluster, OttlaCluster):
        until(lambda: throttles(cluster, *topics) == [], 90, "the lease has ended")
    else:
        assert left == {(victim, rate): "600000" for rate in RATES}, "it found its own"
        assert call(cluster, "reassign", "throttles").returncode == 1
        ok(cluster, "reassign", "throttles", "--remove")
        unthrottled(cluster, *topics)
    for topic in topics:
        assert len(read_to_end(cluster.bootstrap, topic, 1, "read_uncommitted")) == count


@pytest.mark.alone  # a minute; the first of F27 is in CI
def test_f27_the_target_returns_and_the_end_takes_the_throttle_off(cluster, znodes):
    topics = "comes", "goes"
    _, victim, other, count, plan = half_way(cluster, znodes, topics, 600_000)
    cluster.start_broker(victim)
    all_known(cluster)
    rates = {(k, v) for b, k, v in throttles(cluster) if b == victim}
    assert rates == {(rate, "600000") for rate in RATES}, "it found the throttle"
    ok(cluster, "reassign", "verify", *plan, "--wait", 120)
    unthrottled(cluster, *topics)
    assert [replicas(znodes, topic) for topic in topics] == [[victim], [other]]
    for topic in topics:
        assert len(read_to_end(cluster.bootstrap, topic, 1, "read_uncommitted")) == count


@pytest.mark.alone  # a minute
def test_f27_a_throttle_of_a_broker_that_was_down_and_a_tool_that_died(cluster, znodes):
    """It returns when all has ended: nothing of the throttle stays on it."""
    topics = "left", "behind"
    _, victim, other, count, _ = half_way(cluster, znodes, topics, 600_000)
    unthrottled = [b for b in cluster.ids if b != victim]
    for broker in unthrottled:
        ok(cluster, "configs", "alter", "--broker", broker, *(f"--set={r}=50000000" for r in RATES))
    until(lambda: replicas(znodes, "behind") == [other], 60, "the other move has ended")
    assert asked(cluster, "left", [other]) == 0
    until(lambda: replicas(znodes, "left") == [other], 60, "it went elsewhere")
    assert moving(cluster) == set()
    cluster.start_broker(victim)
    all_known(cluster)
    if isinstance(cluster, OttlaCluster):
        until(lambda: throttles(cluster, *topics) == [], 90, "its own lease has ended, too")
    else:
        ok(cluster, "reassign", "throttles", "--remove")
        unthrottled(cluster, *topics)
    for topic in topics:
        assert len(read_to_end(cluster.bootstrap, topic, 1, "read_uncommitted")) == count
