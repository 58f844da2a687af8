"""R17, F44 on real processes: kill -9 is noticed at once, a stopped process is not gone."""

import contextlib
import os
import socket
import time

import pytest

from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.groups import FindCoordinatorRequest, OffsetFetchRequest
from ottla.wire.messages.transactions import DescribeTransactionsRequest
from support import command_line
from support.waiting import until, waited_s

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(240)]

SESSION_MS = 12_000
"""What happens within a second has not waited for it."""
TOPIC, PARTITIONS = "crashes", 12
INTERNAL = {0: "__consumer_offsets", 1: "__transaction_state"}
"""By the type of a coordinator's key: a group, a transactional id."""
KEY = "crash-work"


def leaders(cluster, asked):
    """Return each partition's leader as one broker names it to clients."""
    from support.seen import ask

    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    (topic,) = ask(cluster.address(asked), request, 9).topics
    return {p.partition_index: p.leader_id for p in topic.partitions}


def coordinator(cluster, gone, key_type):
    """Return who coordinates, if every survivor names one that lives and answers; None if not."""
    from support.seen import ask

    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[KEY])
    alive = [b for b in cluster.ids if b not in gone]
    found = [ask(cluster.address(b), request, 4).coordinators[0] for b in alive]
    (named,) = {c.node_id if c.error_code == 0 else -1 for c in found}  # ValueError: they differ
    if named not in alive:
        return None
    if key_type == 0:
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=KEY, topics=None)
        answer = ask(cluster.address(named), OffsetFetchRequest(groups=[group]), 8).groups[0]
    else:
        request = DescribeTransactionsRequest(transactional_ids=[KEY])
        answer = ask(cluster.address(named), request, 0).transaction_states[0]
    return named if answer.error_code == 0 else None


class Took:
    """How long something took, but for what who had a part in it waited for a busy processor."""

    def __init__(self, *pids):
        self._pids = (os.getpid(), *pids)
        self._began_s, self._waited_s = time.monotonic(), waited_s(*self._pids)

    def seconds(self):
        took_s = time.monotonic() - self._began_s
        return took_s - max(0.0, waited_s(*self._pids) - self._waited_s)


def survivors(cluster, gone):
    """Begin to take the time that the ZooKeeper server and these brokers need."""
    return Took(cluster._zookeeper.pid, *(cluster.pid(b) for b in cluster.ids if b not in gone))


def all_led(cluster, gone):
    """Return how long it takes until every survivor names live leaders of all partitions."""
    took = survivors(cluster, gone)

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
    from support.cluster import FEW, OttlaCluster

    folder = tmp_path_factory.mktemp("crash")
    settings = {"min_insync_replicas": "1", "replica_lag_time_max_ms": "8000", **FEW}
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
        return command_line.ottla(*why).stdout

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


@contextlib.contextmanager
def committing(bootstrap, key_type):
    """Yield what commits something through a coordinator, by a client that stays connected."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    from support.clients import named

    if key_type == 0:
        consumer = Consumer(named(bootstrap, {"group_id": KEY, "enable_auto_commit": False}))
        offsets = iter(range(1, 1_000_000))

        def commit():
            return consumer.commit(
                offsets=[TopicPartition(TOPIC, 0, next(offsets))], asynchronous=False
            )

        yield commit
        consumer.close()
        return
    producer = Producer(named(bootstrap, {"transactional_id": KEY}))
    producer.init_transactions(30)

    def transaction():
        producer.begin_transaction()
        producer.produce(TOPIC, b"x")
        producer.commit_transaction(30)
        return True

    yield transaction


@pytest.mark.parametrize("key_type", INTERNAL)
def test_f44_a_coordinators_work_goes_on_within_a_second(cluster, znodes, key_type):
    """As a client sees it that asks all the time, and as librdkafka sees it that was connected."""
    from confluent_kafka import KafkaException

    with committing(cluster.bootstrap, key_type) as commit:
        until(commit, 30, "the first commit", despite=(KafkaException,))
        full(znodes)
        until(lambda: znodes.full(INTERNAL[key_type]), 60, "its coordinator has followers")
        until(lambda: coordinator(cluster, (), key_type) is not None, 30, "one coordinator")
        victim = coordinator(cluster, (), key_type)
        cluster.processes[victim].kill()
        took = survivors(cluster, {victim})
        until(
            lambda: coordinator(cluster, {victim}, key_type) is not None,
            30,
            "another coordinator",
            despite=(OSError, ValueError, Exception),
        )
        assert took.seconds() < 1.0
        until(commit, 30, "committed again", despite=(KafkaException,))
        # librdkafka asks for a coordinator every half second at most.
        assert took.seconds() < SESSION_MS / 4000
    cluster.processes[victim].wait(10)
    start_again(cluster, znodes, [victim])


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
    done = command_line.ottla("history", "replay", cluster.folder, "--diff")
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
