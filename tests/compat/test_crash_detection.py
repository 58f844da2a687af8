"""R17, F44 on real processes: kill -9 is noticed at once, a stopped process is not gone."""

import contextlib
import os
import socket
import subprocess
import sys
import time

import pytest

from ottla.wire.messages.metadata import MetadataRequest
from support.waiting import until, waited_s

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(240)]

SESSION_MS = 12_000
"""What happens within a second has not waited for it."""
TOPIC, PARTITIONS = "crashes", 12


def leaders(cluster, asked):
    """Return each partition's leader as one broker names it to clients."""
    from support.seen import ask

    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    (topic,) = ask(cluster.address(asked), request, 9).topics
    return {p.partition_index: p.leader_id for p in topic.partitions}


class Took:
    """How long something took, but for what who had a part in it waited for a busy processor."""

    def __init__(self, *pids):
        self._pids = (os.getpid(), *pids)
        self._began_s, self._waited_s = time.monotonic(), waited_s(*self._pids)

    def seconds(self):
        took_s = time.monotonic() - self._began_s
        return took_s - max(0.0, waited_s(*self._pids) - self._waited_s)


def all_led(cluster, gone):
    """Return how long it takes until every survivor names live leaders of all partitions."""
    took = Took(cluster._zookeeper.pid, *(cluster.pid(b) for b in cluster.ids if b not in gone))

    def led():
        return all(
            len(named := leaders(cluster, b)) == PARTITIONS and not {-1, *gone} & {*named.values()}
            for b in cluster.ids
            if b not in gone
        )

    until(led, 30, "all partitions are led", despite=(OSError, Exception))
    return took.seconds()


def full(znodes):
    until(lambda: znodes.full(TOPIC), 60, "all replicas are in sync")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from support.cluster import OttlaCluster

    folder = tmp_path_factory.mktemp("crash")
    settings = {"min_insync_replicas": "1", "replica_lag_time_max_ms": "8000"}
    with OttlaCluster(folder, brokers=3, session_timeout_ms=SESSION_MS, **settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def znodes(cluster):
    from confluent_kafka.admin import NewTopic

    from support.clients import admin_client, create_topics
    from support.seen import Znodes

    create_topics(admin_client(cluster.bootstrap), NewTopic(TOPIC, PARTITIONS, 3))
    with Znodes(cluster.zookeeper) as znodes:
        yield znodes


def registration(znodes, broker):
    stat = znodes.client.exists(f"/brokers/ids/{broker}")
    return None if stat is None else stat.czxid


def start_again(cluster, znodes, brokers):
    for broker in brokers:
        cluster.start_broker(broker)
    full(znodes)


def test_f44_a_killed_broker_is_led_around_within_a_second(cluster, znodes):
    full(znodes)
    victim = next(b for b in cluster.ids if b != znodes.controller())
    cluster.kill(victim)
    assert all_led(cluster, {victim}) < 1.0
    removal = znodes.read(f"/ottla/brokers/{victim}")["removal"]
    address = f"PLAINTEXT://{cluster.address(victim)}"
    assert removal["evidence"] == f"connection refused at {address}"
    assert removal["by"] == znodes.controller()
    start_again(cluster, znodes, [victim])


def test_f44_a_killed_controller_is_followed_within_a_second(cluster, znodes):
    full(znodes)
    victim = znodes.controller()
    cluster.kill(victim)
    assert all_led(cluster, {victim}) < 1.5
    assert znodes.controller() != victim
    why = ["why", f"{TOPIC}-0", str(cluster.folder), "--output", "json"]
    address = f"PLAINTEXT://{cluster.address(victim)}"
    reason = f"(process of broker {victim}: connection refused at {address})"

    def told():
        return subprocess.run(
            [sys.executable, "-m", "ottla", *why],
            capture_output=True, text=True, timeout=60, check=False,
        ).stdout  # fmt: skip

    # A journal has a decision a moment after it is carried out.
    until(lambda: reason in told(), 30, told)
    start_again(cluster, znodes, [victim])


def test_f44_two_at_once_the_controller_among_them(cluster, znodes):
    full(znodes)
    first = znodes.controller()
    second = next(b for b in cluster.ids if b != first)
    cluster.processes[first].kill()
    cluster.processes[second].kill()
    assert all_led(cluster, {first, second}) < 2.0
    for broker in (first, second):
        cluster.processes[broker].wait(10)
    start_again(cluster, znodes, [first, second])


def test_f44_nobody_else_is_removed_while_a_process_is_stopped(cluster, znodes):
    full(znodes)
    before = {b: registration(znodes, b) for b in cluster.ids}
    epoch = znodes.client.get("/controller_epoch")[0]
    for broker in cluster.ids:
        cluster.pause(broker)
        time.sleep(2.0)
        cluster.resume(broker)
        time.sleep(0.5)
    assert {b: registration(znodes, b) for b in cluster.ids} == before
    assert znodes.client.get("/controller_epoch")[0] == epoch


@contextlib.contextmanager
def listening_after(process, address):
    """Kill a process, and listen at its address in its place, within a millisecond of its end."""
    process.kill()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        give_up_s = time.monotonic() + 20
        while True:
            try:
                other.bind(address)
                break
            except OSError:
                assert time.monotonic() < give_up_s, "the process holds its port"
        other.listen(16)
        process.wait(10)
        yield


def test_f44_another_program_on_the_port_hides_the_death(cluster, znodes):
    """Whoever accepts says nothing: the broker's session decides."""
    for _ in range(3):
        full(znodes)
        victim = next(b for b in cluster.ids if b != znodes.controller())
        before = registration(znodes, victim)
        address = (cluster.host(victim), cluster.ports[victim])
        with listening_after(cluster.processes[victim], address):
            time.sleep(3.0)
            after = registration(znodes, victim)
        if after == before:
            break
        # On a busy machine the port was free for long enough to refuse twice: tried anew.
        removal = znodes.read(f"/ottla/brokers/{victim}")["removal"]
        assert removal["evidence"].startswith("connection refused")
        start_again(cluster, znodes, [victim])
    assert after == before
    until(lambda: registration(znodes, victim) is None, 20, "now it refuses")
    start_again(cluster, znodes, [victim])


def test_f44_the_journals_agree_with_the_rules(cluster, znodes):
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "replay", str(cluster.folder), "--diff"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stdout
    assert "no difference" in done.stderr


@pytest.mark.parametrize("mode", ["own", "all"])
def test_f44_a_jvm_broker_is_left_to_its_session_unless_all_are_meant(tmp_path, kafka_tools, mode):
    from support.cluster import OttlaCluster
    from support.kafka39 import Kafka39Cluster
    from support.mixed import SESSION_MS as MIXED_MS
    from support.mixed import MixedCluster

    class AsItIs(Kafka39Cluster):
        def wait_known(self):
            """The test says itself whether it is known."""

    kinds = (OttlaCluster, AsItIs)
    with MixedCluster(tmp_path, 2, 1, kinds=kinds, ottla_crash_detection=mode) as cluster:
        until(lambda: cluster.znodes.controller() in cluster.ours.ids, 30, "ours is the controller")
        time.sleep(2.0)
        # It registers a quarter of a second before it listens, and would not register anew.
        assert registration(cluster.znodes, 10) is not None, "it lives"
        took = Took(cluster.ours._zookeeper.pid, *map(cluster.ours.pid, cluster.ours.ids))
        began_s = time.monotonic()
        cluster.theirs.kill(10)
        until(lambda: registration(cluster.znodes, 10) is None, 30, "it is gone")
        if mode == "all":
            assert took.seconds() < 1.0
        else:
            assert time.monotonic() - began_s > MIXED_MS / 2000


def test_f44_a_jvm_controller_is_removed_at_once_where_all_are_meant(tmp_path, kafka_tools):
    from support.mixed import MixedCluster

    with MixedCluster(tmp_path, 2, 1, ottla_crash_detection="all") as cluster:
        cluster.give_office_to(10)
        time.sleep(1.0)  # brokers of ours connect to it
        took = Took(cluster.ours._zookeeper.pid, *map(cluster.ours.pid, cluster.ours.ids))
        cluster.theirs.kill(10)
        ours = cluster.ours.ids
        until(lambda: cluster.znodes.controller() in ours, 30, "another controller")
        assert registration(cluster.znodes, 10) is None
        assert took.seconds() < 2.0
