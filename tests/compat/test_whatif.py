"""`ottla whatif` says what comes of an event; then it is done for real, and compared.

The independent truth is what a cluster of Ottla's, and one of Kafka 3.9's, make of the same event,
as librdkafka's metadata shows it.
"""

import json
import subprocess
import sys
from functools import partial

import pytest
from confluent_kafka import KafkaError, Producer
from kazoo.client import KazooClient

from support.clients import named
from support.cluster import OttlaCluster
from support.command_line import call
from support.kafka39 import Kafka39Cluster
from support.predictions import all_in_sync, predicted, same, settle, states
from support.schemas import partition_name
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(400)]

TOPICS = {
    "three": "0:1:2,1:2:0,2:0:1,0:2:1",
    "two": "0:1,1:2,2:0",
    "one": "0,1,2",
    "risky": "1:2",
}
REFUSALS = (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
MIN_ISR = {"risky": 1}
"""Of others 2, so that Ottla has eligible replicas besides the ISR: the model has none."""


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def cluster(request, tmp_path_factory):
    kind = OttlaCluster
    if request.param == "kafka":
        request.getfixturevalue("kafka_tools")
        kind = Kafka39Cluster
    settings = {
        "auto_leader_rebalance_enable": "false",
        "controlled_shutdown_enable": "true",
    }  # fmt: skip
    folder = tmp_path_factory.mktemp(request.param)
    with kind(folder, brokers=3, **settings) as found:
        for name, assignment in TOPICS.items():
            min_isr = f"min.insync.replicas={MIN_ISR.get(name, 2)}"
            done = call(
                found, "topics", "create", name, "--assignment", assignment, "--config", min_isr
            )
            assert done.returncode == 0, done.stderr
        settle(found)
        yield found


def names(found, which):
    """Return what is wrong after the first step."""
    return [*map(partition_name, found["steps"][0][which])]


def test_two_brokers_die(cluster):
    settle(cluster)
    found, expected = predicted(cluster, "kill", 2, code=1)
    assert names(found, "without_leader") == ["one-2"]
    assert names(found, "under_min_isr") == ["two-1", "two-2"]
    cluster.kill(2)
    same(cluster, expected)
    found, expected = predicted(cluster, "kill", 1, code=1)
    assert set(names(found, "without_leader")) == {"one-1", "two-1", "risky-0"}
    cluster.kill(1)
    same(cluster, expected)


def test_two_brokers_die_one_after_the_other(cluster):
    settle(cluster)
    found, expected = predicted(cluster, "kill", 1, 0, "--in-turn", code=1)
    assert [step["what"] for step in found["steps"]] == ["broker 1 killed", "broker 0 killed"]
    cluster.kill(1)
    until(lambda: all(1 not in isr or isr == [1] for _, isr, _ in states(cluster).values()), 60,
          "1 is out of every ISR but of those that it is alone in")  # fmt: skip
    cluster.kill(0)
    same(cluster, expected)


def test_two_brokers_die_at_one_moment(cluster):
    """Their registrations go in one transaction, so that the controller sees one event."""
    settle(cluster)
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start(30)
    try:
        controller = json.loads(zookeeper.get("/controller")[0])["brokerid"]
        victims = [broker for broker in cluster.ids if broker != controller]
        found, expected = predicted(cluster, "kill", *victims, code=1)
        assert [len(step["without_leader"]) > 0 for step in found["steps"]] == [True]
        # Meanwhile the controller is held: it would remove who is dead one by one.
        cluster.pause(controller)
        try:
            for broker in victims:
                cluster.kill(broker)
            gone = zookeeper.transaction()
            for broker in victims:
                gone.delete(f"/brokers/ids/{broker}")
            assert [str(result) for result in gone.commit()] == ["True", "True"]
        finally:
            cluster.resume(controller)
        same(cluster, expected)
    finally:
        zookeeper.stop()
        zookeeper.close()


def test_a_setting_that_lets_an_unclean_leader_be_elected(cluster):
    settle(cluster)
    leader, _, (first, second) = states(cluster)["risky-0"]
    follower = second if leader == first else first
    cluster.kill(follower)
    until(lambda: states(cluster)["risky-0"][1] == [leader], 60, "it left the ISR")
    cluster.kill(leader)
    until(lambda: states(cluster)["risky-0"][0] < 0, 60, "no leader")
    cluster.start_broker(follower)
    until(lambda: follower_serves(cluster, follower), 60, "it follows where there is a leader")
    assert states(cluster)["risky-0"][0] < 0
    key = "unclean.leader.election.enable"
    setting = f"{key}=true"
    found, expected = predicted(cluster, "config", setting, "risky", code=1)
    assert expected["risky-0"][:2] == (follower, [follower])
    assert [partition_name(lost) for lost in found["lost"]] == ["risky-0"]
    assert call(cluster, "configs", "alter", "--topic", "risky", "--set", setting).returncode == 0
    same(cluster, expected)
    done = call(cluster, "configs", "alter", "--topic", "risky", "--delete", key)
    assert done.returncode == 0, done.stderr


def follower_serves(cluster, broker):
    return all(
        broker in isr
        for leader, isr, replicas in states(cluster).values()
        if leader >= 0 and broker in replicas
    )


def test_a_setting_that_makes_partitions_refuse_records(cluster):
    settle(cluster)
    cluster.kill(2)
    until(lambda: all(2 not in isr or isr == [2] for _, isr, _ in states(cluster).values()), 60,
          "2 is out of every ISR but of that it is alone in")  # fmt: skip
    before = until(lambda: refusing(cluster), 60, "some refuse records already")
    found, expected = predicted(cluster, "config", "min.insync.replicas=3", "three", code=1)
    assert names(found, "under_min_isr") == [f"three-{n}" for n in range(4)]
    alter = ("configs", "alter", "--topic", "three", "--set")
    assert call(cluster, *alter, "min.insync.replicas=3").returncode == 0
    try:
        wanted = before | set(names(found, "under_min_isr"))
        until(lambda: refusing(cluster) == wanted, 60, "as said")
        same(cluster, expected)
    finally:
        assert call(cluster, *alter, f"min.insync.replicas={MIN_ISR.get('three', 2)}")


def refusing(cluster):
    """Return the partitions that have a leader and refuse a record with acks=all.

    None if a record met with something else, as on a machine that is too busy for it.
    """
    settings = {"message_timeout_ms": 20_000, "retries": 0, "enable_idempotence": False}
    producer = Producer(named(cluster.bootstrap, settings))
    refused, others = set(), []

    def told(error, message):
        if error is not None and error.code() in REFUSALS:
            refused.add(f"{message.topic()}-{message.partition()}")
        elif error is not None:
            others.append(error)

    led = [tp for tp, (leader, _, _) in states(cluster).items() if leader >= 0]
    for name in led:
        topic, _, number = name.rpartition("-")
        producer.produce(topic, b"x", partition=int(number), on_delivery=told)
    assert producer.flush(40) == 0
    return None if others else refused


def test_a_broker_shuts_down(cluster):
    settle(cluster)
    found, expected = predicted(cluster, "shutdown", 0, code=1)
    cluster.terminate(0)
    same(cluster, expected)
    assert any("would not hand over before it is gone: 1" in note for note in found["notes"])


def test_leaders_are_moved_off_a_broker_by_the_controller(cluster):
    """The process runs on, leads nothing, and is back after a restart."""
    settle(cluster)
    done = call(cluster, "broker", "stop", "--leaders-only", 0, "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"broker": 0, "remaining": []}
    assert cluster.running(0)
    until(lambda: not leads(cluster, 0), 30, "it leads nothing that others have")
    cluster.terminate(0)
    # Nobody else has what one-replica topics have, or is in sync with broker 2 when it is alone.
    cluster.kill(1)
    until(lambda: states(cluster)["one-1"][0] < 0, 60, "broker 1 is gone")
    refused = call(cluster, "broker", "stop", "--leaders-only", 2)
    assert refused.returncode == 1
    assert "broker 2 is the only one that is alive" in refused.stderr
    assert (
        "broker 1 is not alive; alive are 2"
        in call(cluster, "broker", "stop", "--leaders-only", 1).stderr
    )
    cluster.start_broker(0)
    cluster.start_broker(1)
    until(lambda: states(cluster)["two-0"][0] >= 0, 60, "it is led")


def leads(cluster, broker):
    """Return what a broker leads that others have, too."""
    return {tp for tp, (leader, _, r) in states(cluster).items() if len(r) > 1 and leader == broker}


def test_leaders_that_cannot_move_are_named(cluster):
    settle(cluster)
    cluster.kill(1)
    until(lambda: states(cluster)["risky-0"][1] == [2], 60, "2 is alone in the ISR")
    done = call(
        cluster,
        "broker",
        "stop",
        "--leaders-only",
        2,
        "--num-retries",
        1,
        "--retry-interval-ms",
        100,
    )
    assert done.returncode == 1
    assert "risky-0" in done.stdout.splitlines()
    assert "left, asking again" in done.stderr
    assert states(cluster)["risky-0"][0] == 2, "it leads on"
    cluster.terminate(2)  # it takes no leadership before it registers anew


def leaderless_are(cluster, partitions):
    return {tp for tp, (leader, _, _) in states(cluster).items() if leader < 0} == set(
        map(partition_name, partitions)
    )


def test_a_rolling_restart(cluster):
    settle(cluster)
    found, expected = predicted(cluster, "rolling-restart", 0, 1, 2, code=1)
    assert [len(s["without_leader"]) for s in found["steps"]] == [1, 1, 1]
    for broker, step in zip((0, 1, 2), found["steps"], strict=True):
        cluster.terminate(broker)
        until(partial(leaderless_are, cluster, step["without_leader"]), 30, "they have no leader")
        cluster.start_broker(broker)
        until(lambda: all_in_sync(cluster), 60, "in sync")
    same(cluster, expected)


def test_a_plan_and_a_drain_end_as_said(cluster):
    settle(cluster)
    plan = {
        "version": 1,
        "partitions": [
            {"topic": "two", "partition": 0, "replicas": [2, 1]},
            {"topic": "three", "partition": 0, "replicas": [2, 1, 0]},
            {"topic": "one", "partition": 1, "replicas": [0]},
        ],
    }
    file = cluster.folder / "plan.json"
    file.write_text(json.dumps(plan))
    found, expected = predicted(cluster, "reassign", file, code=0)
    assert not found["harm"]
    done = call(cluster, "reassign", "execute", "--file", file, "--wait", 60)
    assert done.returncode == 0, done.stderr
    same(cluster, expected)
    assert "only 2 other brokers are alive" in call(cluster, "whatif", "drain", 2).stderr


def test_an_unclean_election_and_a_saved_snapshot(cluster):
    settle(cluster)
    leader, _, replicas = states(cluster)["risky-0"]
    follower = next(b for b in replicas if b != leader)
    cluster.kill(follower)
    until(lambda: states(cluster)["risky-0"][1] == [leader], 60, "it left the ISR")
    cluster.kill(leader)
    until(lambda: states(cluster)["risky-0"][0] < 0, 60, "no leader")
    cluster.start_broker(follower)

    def caught_up():
        led = [(set(isr), set(r)) for leader, isr, r in states(cluster).values() if leader >= 0]
        return all(isr == replicas - {leader} for isr, replicas in led)

    until(caught_up, 60, "who is alive is in sync")

    def would_lead():
        found, expected = predicted(cluster, "unclean", "risky-0", code=1)
        return (found, expected) if expected["risky-0"][0] == follower else None

    found, expected = until(would_lead, 60, "it would lead")
    assert found["lost"][0]["text"].startswith(f"what broker {leader} has from offset")
    file = cluster.folder / "snapshot.json"
    saved = call(cluster, "whatif", "unclean", "risky-0", "--save", file, "--output", "json")
    offline = subprocess.run(
        [sys.executable, "-m", "ottla", "whatif", "unclean", "risky-0", "--snapshot", str(file),
         "--output", "json"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert offline.stdout == saved.stdout
    assert call(cluster, "elect", "unclean", "risky-0", "--yes").returncode == 0
    until(lambda: states(cluster)["risky-0"] == expected["risky-0"], 60, "as said")


def test_what_cannot_be_meant_is_one_line(cluster):
    settle(cluster)
    for arguments, words in (
        (("kill", 9), "broker 9 is not alive; alive are 0 1 2"),
        (("drain", 9), "there is no broker 9"),
        (("config", "retention.ms=1"), "changes neither leaders nor ISRs"),
        (("unclean", "nosuch-0"), "there is no partition nosuch-0"),
        (("add-brokers", 1), "there is a broker 1 already"),
    ):
        done = call(cluster, "whatif", *arguments)
        assert done.returncode == 1
        assert words in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
