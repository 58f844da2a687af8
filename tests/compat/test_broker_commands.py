"""`ottla broker`: single brokers of a local cluster, and a drained broker of Kafka 3.9.

What holds is asked of librdkafka's admin client and of the operating system, not of our commands.
"""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.wire.messages.cluster import MetadataRequest
from support.cluster import free_row
from support.command_line import lines, ottla
from support.kafka39 import Kafka39Cluster
from support.seen import Znodes, ask
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(300)]


def ok(*arguments):
    done = ottla(*arguments)
    assert done.returncode == 0, done
    assert "Traceback" not in done.stderr
    return done


def refused(*arguments, words):
    done = ottla(*arguments)
    assert done.returncode == 1, done
    assert len(lines(done)) == 1, done.stderr
    for word in words:
        assert word in done.stderr


@contextlib.contextmanager
def up(folder, brokers):
    ok("up", "-n", brokers, "--dir", folder, "--port-base", free_row(brokers + 3))
    try:
        yield folder
    finally:
        ottla("down", "--dir", folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with up(tmp_path_factory.mktemp("brokers") / "data", 3) as folder:
        create(bootstrap(folder), "kept", [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        yield folder


def described(folder):
    return {b["id"]: b for b in json.loads((folder / "cluster.json").read_text())["brokers"]}


def bootstrap(folder):
    return ",".join(f"127.0.0.1:{b['port']}" for b in described(folder).values())


def pid(folder, broker):
    return described(folder)[broker]["process"]["pid"]


GONE = "XZ"
"""A process that ended is a zombie until its parent asks for it."""


def state(process):
    """Return the state letter of a process, as the system has it; X if it is gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return "X"
    return text.rpartition(")")[2].split()[0]


def create(servers, topic, assignment):
    admin = AdminClient({"bootstrap.servers": servers})
    new = NewTopic(topic, len(assignment), replica_assignment=assignment)
    admin.create_topics([new])[topic].result(30)


def topics(servers):
    return AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).topics


def replicas(servers):
    return {
        (name, number): tuple(p.replicas)
        for name, topic in topics(servers).items()
        for number, p in topic.partitions.items()
    }


def in_sync(servers):
    """Return whether there are partitions, and each has its leader and all replicas in sync."""
    found = [p for topic in topics(servers).values() for p in topic.partitions.values()]
    return bool(found) and all(set(p.isrs) == set(p.replicas) and p.leader >= 0 for p in found)


def znodes_of(folder):
    return Znodes(json.loads((folder / "cluster.json").read_text())["zookeeper"]["address"])


def known_in_sync(folder):
    """Return whether each partition has its leader and all replicas in sync, by the znodes.

    Commands wait for that; a broker that another client asks then may hear of it later.
    """
    with znodes_of(folder) as znodes:
        return all(znodes.full(topic) for topic in znodes.names("/brokers/topics"))


def says_in_sync(folder, broker):
    """Return whether one broker says so of each partition."""
    address = f"127.0.0.1:{described(folder)[broker]['port']}"
    found = ask(address, MetadataRequest(topics=None), 9).topics
    return all(set(p.isr_nodes) == set(p.replica_nodes) for t in found for p in t.partitions)


def test_stop_and_start(folder):
    before = pid(folder, 1)
    ok("broker", "stop", 1, "--dir", folder)
    assert state(before) in GONE
    assert "shut down" in (folder / "broker-1" / "server.log").read_text().splitlines()[-1]
    assert "was stopped by `ottla broker stop`" in ottla("status", "--dir", folder).stdout
    assert "not running" in ok("broker", "stop", 1, "--dir", folder).stderr
    ok("broker", "start", 1, "--dir", folder)
    assert pid(folder, 1) != before
    until(lambda: in_sync(bootstrap(folder)), 60, "it is back")
    assert "already running" in ok("broker", "start", 1, "--dir", folder).stderr


def test_pause_and_resume(folder):
    ok("broker", "pause", 2, "--dir", folder)
    try:
        assert state(pid(folder, 2)) == "T"
        shown = ottla("status", "--dir", folder)
        assert shown.returncode == 1
        assert "paused" in shown.stdout
        refused("up", "--dir", folder, words=["broker 2 is paused", "ottla broker resume 2"])
        refused("broker", "start", 2, "--dir", folder, words=["ottla broker resume 2"])
        ok("topics", "list", "--dir", folder)  # the others are asked
    finally:
        ok("broker", "resume", 2, "--dir", folder)
    assert state(pid(folder, 2)) != "T"
    until(lambda: in_sync(bootstrap(folder)), 60, "it is back in sync")


def test_kill(folder):
    killed = pid(folder, 0)
    ok("broker", "kill", 0, "--dir", folder)
    assert state(killed) in GONE
    assert "killed by `ottla broker kill`" in ottla("status", "--dir", folder).stdout
    refused("broker", "kill", 0, "--dir", folder, words=["not running", "ottla broker start 0"])
    refused("broker", "pause", 1, 0, "--dir", folder, words=["broker 0 is not running"])
    assert state(pid(folder, 1)) != "T", "nothing is done for some when it cannot be done for all"
    ok("broker", "start", 0, "--dir", folder)
    until(lambda: in_sync(bootstrap(folder)), 60, "it is back in sync")


def test_an_unknown_id_is_named(folder):
    for command in ("stop", "start", "kill", "pause", "resume", "restart"):
        refused("broker", command, 7, "--dir", folder, words=["no broker 7", "there are 0, 1, 2"])


def test_a_rolling_restart_loses_nothing_and_keeps_partitions_writable(folder):
    before = {broker: pid(folder, broker) for broker in (0, 1, 2)}
    acknowledged = []
    producer = Producer(
        {"bootstrap.servers": bootstrap(folder), "acks": "all", "enable.idempotence": True}
    )

    def note(error, message):
        assert error is None, error
        acknowledged.append((message.partition(), message.offset(), message.value()))

    command = [sys.executable, "-m", "ottla", "broker", "restart", "--all", "--dir", str(folder)]
    restarting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        number = 0
        deadline = time.monotonic() + 120
        while restarting.poll() is None and time.monotonic() < deadline:
            producer.produce("kept", str(number).encode(), on_delivery=note)
            number += 1
            producer.poll(0.005)
        assert producer.flush(60) == 0
    finally:
        _, err = restarting.communicate(timeout=60)
    assert restarting.returncode == 0, err
    assert {broker: pid(folder, broker) != before[broker] for broker in before} == dict.fromkeys(
        (0, 1, 2), True
    )
    assert known_in_sync(folder), "the command waits for it"
    assert len(acknowledged) == number > 0
    assert read(folder, "kept", number) == set(acknowledged)


def read(folder, topic, count):
    consumer = Consumer({"bootstrap.servers": bootstrap(folder), "group.id": "reader"})
    found = set()
    try:
        consumer.assign(
            [TopicPartition(topic, p, 0) for p in topics(bootstrap(folder))[topic].partitions]
        )
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.5):
                assert message.error() is None
                found.add((message.partition(), message.offset(), message.value()))
    finally:
        consumer.close()
    return found


def test_a_restart_stops_where_replicas_are_not_in_sync(folder):
    ok("broker", "kill", 1, "--dir", folder)
    for broker in (0, 2):  # either may be asked by the command
        until(lambda b=broker: not says_in_sync(folder, b), 30, f"broker {broker} knows")
    before = pid(folder, 0)
    # To go on would leave one replica of three.
    refused(
        "broker", "restart", 0, "--timeout", 1, "--dir", folder,
        words=["not in sync after 1 s", "broker 1 (", "ottla broker restart 0"],
    )  # fmt: skip
    assert pid(folder, 0) == before
    # One that is down is only started; the others are restarted after that.
    ok("broker", "restart", 0, 1, "--dir", folder)
    assert pid(folder, 0) != before
    assert known_in_sync(folder), "the command waits for it"


def test_a_broker_that_is_the_reason_for_the_lag_is_restarted(folder):
    ok("broker", "stop", "--leaders-only", 2, "--dir", folder)
    ok("broker", "restart", 2, "--timeout", 60, "--dir", folder)
    assert known_in_sync(folder)
    before = {broker: pid(folder, broker) for broker in (0, 1, 2)}
    ok("broker", "pause", 1, "--dir", folder)
    until(lambda: not says_in_sync(folder, 0), 60, "broker 1 lags")
    done = ok("broker", "restart", "--all", "--timeout", 60, "--dir", folder)
    assert "broker 1 restarted" in lines(done)[0], "the reason is the first"
    assert all(pid(folder, broker) != before[broker] for broker in before)
    assert known_in_sync(folder), "the command waits for it"
    for broker in before:
        ok("broker", "pause", broker, "--dir", folder)
    ok("broker", "restart", 0, 1, "--timeout", 10, "--dir", folder)  # nobody is there to be asked
    ok("broker", "resume", 2, "--dir", folder)
    until(lambda: in_sync(bootstrap(folder)), 60, "all are back")


def test_a_broker_that_is_cut_off_keeps_no_other_from_starting(folder):
    ok("broker", "kill", 2, "--dir", folder)
    with znodes_of(folder) as znodes:
        until(lambda: znodes.controller() in (0, 1), 60, "one of the others is the controller")
        apart = 1 - znodes.controller()  # the controller tells all others who is there
    ok("broker", "cut", apart, "--from", "brokers", "--dir", folder)
    try:
        done = ok("broker", "start", 2, "--dir", folder)
        assert "broker 2 started" in done.stderr
        assert f"broker {apart} runs, but does not know of all others" in done.stderr
    finally:
        ok("broker", "heal", "--dir", folder)
    until(lambda: in_sync(bootstrap(folder)), 60, "all are back")


def test_a_broker_is_added_drained_and_removed(folder):
    servers = bootstrap(folder)
    refused(
        "broker", "drain", 0, "--dir", folder,
        words=["-0 has 3 replicas and only 2 other brokers", "ottla up -n"],
    )  # fmt: skip
    refused("broker", "remove", 0, "--yes", "--dir", folder, words=["replicas", "drain 0"])
    ok("up", "-n", 4, "--dir", folder)
    dry = json.loads(ok("broker", "drain", 1, "--dry-run", "--dir", folder).stdout)
    planned = {(p["topic"], p["partition"]): tuple(p["replicas"]) for p in dry["partitions"]}
    assert all(1 in r for r in replicas(servers).values()), "nothing moved yet"
    ok("broker", "drain", 1, "--throttle", 10_000_000, "--dir", folder)
    assert known_in_sync(folder), "the command waits for it"
    until(lambda: replicas(servers) == planned, 30, "every broker has heard of it")
    assert "has no replicas" in ok("broker", "drain", 1, "--dir", folder).stderr
    gone = pid(folder, 1)
    assert ottla("broker", "remove", 1, "--dir", folder).returncode == 2, "nobody said yes"
    ok("broker", "remove", 1, "--yes", "--dir", folder)
    assert state(gone) in GONE
    assert sorted(described(folder)) == [0, 2, 3]
    assert not (folder / "broker-1").exists()
    ok("up", "-n", 4, "--dir", folder)
    assert sorted(described(folder)) == [0, 2, 3, 4], "no id is used twice"
    ok("status", "--dir", folder)


def test_drain_on_kafka(tmp_path, kafka_tools):
    settings = {"log_cleaner_dedupe_buffer_size": "16777216"}
    with Kafka39Cluster(tmp_path, brokers=3, heap_mb=256, **settings) as kafka:
        servers = kafka.address(kafka.ids[0])
        admin = AdminClient({"bootstrap.servers": servers})
        until(lambda: len(admin.list_topics(timeout=10).brokers) == 3, 60, "all are known")
        first, second, third = kafka.ids
        assignment = [[first, second], [second, third], [third, first]]
        create(servers, "t", assignment)
        until(lambda: in_sync(servers), 60, "it is there")
        ok("broker", "drain", third, "--bootstrap-server", servers)
        wanted = {(first, second), (second, first)}
        until(lambda: set(replicas(servers).values()) <= wanted, 30, "every broker has heard of it")


def test_ctrl_c_amid_a_drain_is_said(folder):
    """The moves go on; the command ends at once, and a second drain waits for them."""
    command = [sys.executable, "-m", "ottla", "broker", "drain", "4", "--dir", str(folder)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    frames = [line for line in err.splitlines() if line.lstrip().startswith("File ")]
    ours = [line for line in frames if "ottla/" in line and "ottla/__main__.py" not in line]
    assert not ours, err
    # Python itself may be interrupted before our first line runs, and says so in its own way.
    assert frames or running.returncode in (0, 130, -signal.SIGINT), err
