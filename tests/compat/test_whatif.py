"""`ottla whatif` says what comes of an event; then it is done for real, and compared.

The independent truth is what a cluster of Ottla's, and one of Kafka 3.9's, make of the same event,
as librdkafka's metadata shows it.
"""

import json
import subprocess
import sys
from functools import partial

import pytest

from support.clients import admin_client
from support.cluster import OttlaCluster
from support.command_line import call
from support.kafka39 import Kafka39Cluster
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(400)]

TOPICS = {
    "three": "0:1:2,1:2:0,2:0:1,0:2:1",
    "two": "0:1,1:2,2:0",
    "one": "0,1,2",
    "risky": "1:2",
}
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
    with kind(folder, brokers=3, session_timeout_ms=3000, **settings) as found:
        for name, assignment in TOPICS.items():
            min_isr = f"min.insync.replicas={MIN_ISR.get(name, 2)}"
            done = call(
                found, "topics", "create", name, "--assignment", assignment, "--config", min_isr
            )
            assert done.returncode == 0, done.stderr
        settle(found)
        yield found


def states(cluster):
    """Return (leader, ISR, replicas) of each partition, as librdkafka has it."""
    topics = admin_client(cluster.bootstrap).list_topics(timeout=20).topics
    return {
        f"{name}-{n}": (p.leader, sorted(p.isrs), list(p.replicas))
        for name, topic in topics.items()
        if name in TOPICS
        for n, p in topic.partitions.items()
    }


def settle(cluster):
    """Start whoever is down, and wait until all replicas are in sync under preferred leaders."""
    for broker in cluster.ids:
        if not cluster.running(broker):
            cluster.start_broker(broker)

    def whole():
        return all(isr == sorted(replicas) for _, isr, replicas in states(cluster).values())

    until(whole, 60, "all are in sync")
    assert call(cluster, "elect", "preferred", "--all").returncode == 0
    until(lambda: all(leader == r[0] for leader, _, r in states(cluster).values()), 30, "led")


def predicted(cluster, *arguments, code):
    """Return what whatif says of each partition, those that do not change included."""
    before = states(cluster)
    done = call(cluster, "whatif", *arguments, "--output", "json")
    assert done.returncode == code, (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    changed = {
        c["partition"]: (c["leader_after"], sorted(c["isr_after"]), c["replicas_after"])
        for c in found["changes"]
    }
    assert states(cluster) == before, "nothing changes"
    return found, {tp: changed.get(tp, state) for tp, state in before.items()}


def same(cluster, expected):
    until(lambda: states(cluster) == expected, 60, lambda: f"{states(cluster)} is {expected}")


def test_two_brokers_die(cluster):
    settle(cluster)
    found, expected = predicted(cluster, "kill", 2, code=1)
    assert found["steps"][0]["without_leader"] == ["one-2"]
    assert found["steps"][0]["under_min_isr"] == ["two-1", "two-2"]
    cluster.kill(2)
    same(cluster, expected)
    found, expected = predicted(cluster, "kill", 1, code=1)
    assert set(found["steps"][0]["without_leader"]) == {"one-1", "two-1", "risky-0"}
    cluster.kill(1)
    same(cluster, expected)


def test_a_broker_shuts_down(cluster):
    settle(cluster)
    found, expected = predicted(cluster, "shutdown", 0, code=1)
    cluster.terminate(0)
    same(cluster, expected)
    assert any("would not hand over before it is gone: 1" in note for note in found["notes"])


def test_leaders_are_moved_off_a_broker_by_the_controller(cluster):
    """The process runs on, leads nothing, and is back after a restart."""
    settle(cluster)
    done = call(cluster, "broker", "shutdown", 0, "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"broker": 0, "remaining": []}
    assert cluster.running(0)
    moved = {tp for tp, (leader, _, r) in states(cluster).items() if len(r) > 1 and leader == 0}
    assert moved == set()
    cluster.terminate(0)
    # Nobody else has what one-replica topics have, or is in sync with broker 2 when it is alone.
    cluster.kill(1)
    until(lambda: states(cluster)["one-1"][0] < 0, 60, "broker 1 is gone")
    refused = call(cluster, "broker", "shutdown", 2)
    assert refused.returncode == 1
    assert "broker 2 is the only one that is alive" in refused.stderr
    assert "broker 1 is not alive; alive are 2" in call(cluster, "broker", "shutdown", 1).stderr
    cluster.start_broker(0)
    cluster.start_broker(1)
    until(lambda: states(cluster)["two-0"][0] >= 0, 60, "it is led")


def test_leaders_that_cannot_move_are_named(cluster):
    settle(cluster)
    cluster.kill(1)
    until(lambda: states(cluster)["risky-0"][1] == [2], 60, "2 is alone in the ISR")
    done = call(cluster, "broker", "shutdown", 2, "--num-retries", 1, "--retry-interval-ms", 100)
    assert done.returncode == 1
    assert "risky-0" in done.stdout.splitlines()
    assert "left, asking again" in done.stderr
    assert states(cluster)["risky-0"][0] == 2, "it leads on"
    cluster.terminate(2)  # it takes no leadership before it registers anew


def leaderless_are(cluster, partitions):
    return {tp for tp, (leader, _, _) in states(cluster).items() if leader < 0} == set(partitions)


def test_a_rolling_restart(cluster):
    settle(cluster)
    found, expected = predicted(cluster, "rolling-restart", 0, 1, 2, code=1)
    assert [len(s["without_leader"]) for s in found["steps"]] == [1, 1, 1]
    for broker, step in zip((0, 1, 2), found["steps"], strict=True):
        cluster.terminate(broker)
        until(partial(leaderless_are, cluster, step["without_leader"]), 30, "they have no leader")
        cluster.start_broker(broker)
        until(
            lambda: all(isr == sorted(r) for _, isr, r in states(cluster).values()), 60, "in sync"
        )
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

    until(would_lead, 60, "it would lead")
    found, expected = would_lead()
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
