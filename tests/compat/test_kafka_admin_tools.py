"""Kafka's own tools for topics, reassignments and elections, on our controller and on Kafka's.

Every call is made on three brokers of ours and three of Apache Kafka 3.9, in the same order; exit
codes and what is printed must be the same, errors above all.
"""

import json
import re
import time

import pytest

from ottla.model.errors import OttlaError
from ottla.wire.messages.cluster import MetadataRequest
from support import kafka_tools as tools
from support.cluster import OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.seen import Znodes, ask, disagreements
from support.waiting import until

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(tools.why_not() is not None, reason=str(tools.why_not())),
]

NOISE = re.compile(
    r"^(log4j:.*|SLF4J.*|\s+at .*|\s*\.\.\. \d+ more|Caused by:.*|\s*Suppressed:.*|\[20\d\d.*"
    r"|java\.util\.concurrent\.ExecutionException.*|.*AdminCommandFailedException.*)$\n?",
    re.MULTILINE,
)


class Side:
    """One cluster, one JVM full of tools."""

    def __init__(self, cluster, jvm, znodes):
        self.cluster = cluster
        self.jvm = jvm
        self.znodes = znodes

    def agree(self):
        """Wait until every broker knows all topics as the znodes have them: a tool asks any."""
        addresses = {b: self.cluster.address(b) for b in self.cluster.ids}

        def different():
            topics = self.znodes.names("/brokers/topics")
            assigned = {t: self.znodes.assignment(t) for t in topics}
            for broker, address in addresses.items():
                answer = ask(address, MetadataRequest(topics=None), 9)
                said = {
                    t.name: {p.partition_index: list(p.replica_nodes) for p in t.partitions}
                    for t in answer.topics
                }
                if said != assigned:
                    return f"broker {broker}: {said}, not {assigned}"
            return disagreements(self.znodes, addresses, *topics)

        until(lambda: not different(), 30, different, despite=(OSError, OttlaError))

    def run(self, tool, *arguments):
        code, out = self.jvm.call(
            getattr(tools, tool), "--bootstrap-server", self.cluster.bootstrap, *arguments
        )
        out = re.sub(r"TopicId: \S+", "TopicId: …", NOISE.sub("", out))
        return code, out.strip()


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """Both clusters, ours first."""
    folder = tmp_path_factory.mktemp("tools")
    settings = {"auto_leader_rebalance_enable": "false"}
    with (
        tools.OneJvm() as jvm,
        OttlaCluster(folder / "ours", brokers=3, zookeeper_server="java", **settings) as ours,
        Kafka39Cluster(folder / "kafka", brokers=3, heap_mb=256, **settings) as kafka,
        Znodes(ours.zookeeper) as our_znodes,
        Znodes(kafka.zookeeper) as kafkas_znodes,
    ):
        yield Side(ours, jvm, our_znodes), Side(kafka, jvm, kafkas_znodes)


def same(sides, tool, *arguments, code=None):
    """Run on both; both must say the same. Return it."""
    ours, theirs = (side.run(tool, *arguments) for side in sides)
    assert ours == theirs, f"{tool} {' '.join(arguments)}"
    if code is not None:
        assert ours[0] == code, ours[1]
    return ours[1]


def settled(sides, tool, *arguments, says, timeout_s=60):
    """Run on both until each says what is waited for, whichever of its brokers is asked."""
    for side in sides:
        deadline = time.monotonic() + timeout_s
        while says not in (out := side.run(tool, *arguments)[1]):
            assert time.monotonic() < deadline, out
        side.agree()


def plan(tmp_path, *moves, name="plan.json", **more):
    file = tmp_path / name
    listed = [{"topic": t, "partition": p, "replicas": r} for t, p, r in moves]
    file.write_text(json.dumps({"version": 1, "partitions": listed, **more}))
    return str(file)


def test_topics(sides):
    t = ("--topic", "tools")
    placed = ("--replica-assignment", "0:1,1:2,2:0")
    assert "Created topic tools." in same(sides, "TOPICS", "--create", *t, *placed, code=0)
    assert "already exists" in same(sides, "TOPICS", "--create", *t, *placed, code=1)
    same(sides, "TOPICS", "--create", *t, *placed, "--if-not-exists", code=0)
    same(sides, "TOPICS", "--create", "--topic", "a b", *placed, code=1)
    same(sides, "TOPICS", "--create", "--topic", "n", "--replication-factor", "9", code=1)
    same(sides, "TOPICS", "--create", "--topic", "n", "--partitions", "-5", code=1)
    same(sides, "TOPICS", "--create", "--topic", "n", "--replica-assignment", "0:0", code=1)
    same(sides, "TOPICS", "--create", "--topic", "n", "--config", "retention.ms=soon", code=1)
    settled(sides, "TOPICS", "--describe", *t, says="Partition: 2")
    assert same(sides, "TOPICS", "--list", "--exclude-internal", code=0) == "tools"
    assert "Isr: 2,0" in same(sides, "TOPICS", "--describe", *t, code=0)
    for option in (
        "--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions",
        "--at-min-isr-partitions", "--topics-with-overrides",
    ):  # fmt: skip
        same(sides, "TOPICS", "--describe", option, code=0)
    same(sides, "TOPICS", "--alter", *t, "--partitions", "2", code=1)
    same(sides, "TOPICS", "--alter", *t, "--partitions", "3", code=1)
    same(sides, "TOPICS", "--alter", *t, "--partitions", "4", "--replica-assignment", "0,1,2,9",
         code=1)  # fmt: skip
    same(sides, "TOPICS", "--alter", *t, "--partitions", "4", "--replica-assignment",
         "0:1,1:2,2:0,1:0", code=0)  # fmt: skip
    settled(sides, "TOPICS", "--describe", *t, says="Partition: 3\tLeader: 1")
    same(sides, "TOPICS", "--describe", *t, code=0)
    for action in (("--alter", "--partitions", "9"), ("--describe",), ("--delete",)):
        same(sides, "TOPICS", *action, "--topic", "nosuch", code=1)
        same(sides, "TOPICS", *action, "--topic", "nosuch", "--if-exists", code=0)


@pytest.fixture
def moved(sides, request):
    name = request.node.name.replace("_", "-")
    same(sides, "TOPICS", "--create", "--topic", name, "--replica-assignment", "0:1,1:2", code=0)
    settled(sides, "TOPICS", "--describe", "--topic", name, says="Partition: 1")
    return name


def test_reassignments(sides, moved, tmp_path):
    r = ("REASSIGN",)
    none = same(sides, *r, "--list", code=0)
    assert none == "No partition reassignments found."
    good = plan(tmp_path, (moved, 0, [2, 1]), (moved, 1, [1]))
    started = same(sides, *r, "--execute", "--reassignment-json-file", good, code=0)
    assert "Current partition replica assignment" in started
    assert f"Successfully started partition reassignments for {moved}-0,{moved}-1" in started
    of = ("--reassignment-json-file", good)
    settled(sides, *r, "--verify", *of, "--preserve-throttles", says=f"{moved}-0 is completed")
    settled(sides, *r, "--list", says="No partition")
    verified = same(sides, *r, "--verify", *of, "--preserve-throttles", code=0)
    assert verified.count("is completed") == 2
    assert "None of the specified" in same(
        sides, *r, "--cancel", *of, "--preserve-throttles", code=0
    )
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": moved}]}))
    for side in sides:
        code, out = side.run(
            *r, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "0,1"
        )
        assert code == 0
        assert "Proposed partition reassignment configuration" in out
        back = plan(tmp_path, (moved, 0, [0, 1]), (moved, 1, [1, 2]), name="back.json")
        assert side.run(*r, "--execute", "--additional", "--reassignment-json-file", back)[0] == 0
    settled(sides, *r, "--list", says="No partition")


def test_throttled_reassignments(sides, moved, tmp_path):
    of = ("--reassignment-json-file", plan(tmp_path, (moved, 0, [2, 1])))
    out = same(sides, "REASSIGN", "--execute", *of, "--throttle", "5000000", code=0)
    assert "The inter-broker throttle limit was set to 5000000 B/s" in out
    brokers = ("--entity-type", "brokers", "--entity-name", "2")
    shown = "leader.replication.throttled.rate=5000000"
    settled(sides, "CONFIGS", "--describe", *brokers, says=shown)
    settled(sides, "REASSIGN", "--list", says="No partition")
    out = same(sides, "REASSIGN", "--verify", *of, code=0)
    assert f"Clearing topic-level throttles on topic {moved}" in out
    topic = ("--entity-type", "topics", "--entity-name", moved)
    for side in sides:
        for entity in (brokers, topic):
            deadline = time.monotonic() + 30
            while "replication.throttled" in (out := side.run("CONFIGS", "--describe", *entity)[1]):
                assert time.monotonic() < deadline, out


def test_invalid_plans(sides, moved, tmp_path):
    """With the same words on both, and nothing is applied (F42)."""
    before = same(sides, "TOPICS", "--describe", "--topic", moved)
    bad = {
        "negative replica": [(moved, 0, [-1])],
        "dead broker": [(moved, 0, [9])],
        "unknown topic": [("nosuch", 0, [1])],
        "unknown partition": [(moved, 7, [1])],
        "empty list": [(moved, 0, [])],
        "partition twice": [(moved, 0, [1]), (moved, 0, [2])],
        "replica twice": [(moved, 0, [1, 1])],
        "nothing": [],
    }
    for moves in bad.values():
        file = plan(tmp_path, *moves)
        same(sides, "REASSIGN", "--execute", "--reassignment-json-file", file, code=1)
    file = plan(tmp_path, (moved, 0, [1]), version=2)
    same(sides, "REASSIGN", "--execute", "--reassignment-json-file", file, code=1)
    assert same(sides, "TOPICS", "--describe", "--topic", moved) == before
    assert "No partition reassignments found." in same(sides, "REASSIGN", "--list", code=0)


def test_elections(sides, moved, tmp_path):
    e = ("LEADER_ELECTION", "--election-type")
    one = ("--topic", moved, "--partition", "0")
    assert "Valid replica already elected" in same(sides, *e, "preferred", *one, code=0)
    assert "Valid replica already elected" in same(sides, *e, "unclean", *one, code=0)
    # Turned around, partition 0 is led by its second replica until somebody asks.
    turned = plan(tmp_path, (moved, 0, [1, 0]))
    same(sides, "REASSIGN", "--execute", "--reassignment-json-file", turned, code=0)
    settled(sides, "REASSIGN", "--list", says="No partition")
    settled(sides, "TOPICS", "--describe", "--topic", moved, says="Leader: 0\tReplicas: 1,0")
    file = tmp_path / "elect.json"
    file.write_text(json.dumps({"partitions": [{"topic": moved, "partition": 0}]}))
    out = same(sides, *e, "preferred", "--path-to-json-file", str(file), code=0)
    assert f"Successfully completed leader election (PREFERRED) for partitions {moved}-0" in out
    settled(sides, "TOPICS", "--describe", "--topic", moved, says="Leader: 1\tReplicas: 1,0")
    same(sides, *e, "preferred", "--all-topic-partitions", code=0)
    same(sides, *e, "preferred", "--topic", "nosuch", "--partition", "0", code=1)
    same(sides, *e, "unclean", "--topic", moved, "--partition", "7", code=1)
