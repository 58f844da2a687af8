"""What an operator asks of a controller with our command line, on our cluster and on Kafka's.

Growing, changing and deleting topics, elections, reassignments from plan to rollback, and what is
refused (F42): each step on three brokers of ours and of Apache Kafka 3.9, with one expectation.
"""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from ottla.admin.session import world
from ottla.cli.grammar import main
from ottla.client.client import CONTROLLER, Client
from ottla.wire.messages.topics import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from support.cluster import FEW, OttlaCluster
from support.kafka39 import Kafka39Cluster
from support.schemas import partition_name

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]

SESSION_MS = 60_000
"""Nobody dies here; one is stopped for as long as commands take that ask it in vain."""


@pytest.fixture(scope="module", params=["ours", "kafka"])
def cluster(request, tmp_path_factory, kafka_tools):
    folder = tmp_path_factory.mktemp(request.param)
    settings = {"auto_leader_rebalance_enable": "false"}
    if request.param == "ours":
        settings |= FEW
        with OttlaCluster(folder, brokers=3, session_timeout_ms=SESSION_MS, **settings) as cluster:
            wait_for_brokers(cluster)
            yield cluster
    else:
        # A changed setting of Kafka's cleaner allocates a second buffer, by default of 128 MiB.
        settings["log_cleaner_dedupe_buffer_size"] = "16777216"
        with Kafka39Cluster(
            folder, brokers=3, heap_mb=256, session_timeout_ms=SESSION_MS, **settings
        ) as cluster:
            wait_for_brokers(cluster)
            yield cluster


def wait_for_brokers(cluster):
    """Wait until the controller knows all; it is asked everything, since it hears news first."""
    deadline = time.monotonic() + 60
    while True:
        cluster.asked = getattr(cluster, "asked", cluster.ids[0])
        done = call(cluster, "status", "--output", "json")
        found = json.loads(done.stdout) if done.stdout else {"controller": None}
        if found["controller"] is not None and found["controller"] != cluster.asked:
            cluster.asked = found["controller"]
        elif done.returncode == 0 and len(found["brokers"]) == 3:
            return
        assert time.monotonic() < deadline, done.stderr


def call(cluster, *arguments, stdin=""):
    """Run a command in this process: the start of an interpreter is most of what it costs."""
    words = [*map(str, arguments), "--bootstrap-server", cluster.address(cluster.asked)]
    streams = [io.TextIOWrapper(io.BytesIO(data)) for data in (stdin.encode(), b"", b"")]
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        code = main(words)
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode() for stream in streams[1:])
    return subprocess.CompletedProcess(words, code, out, err)


def ok(cluster, *arguments, **options):
    done = call(cluster, *arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


def problem(cluster, *arguments, code=1, **options):
    """Run a command that must fail with one clear line; return the line."""
    done = call(cluster, *arguments, **options)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def partitions(cluster, topic):
    done = ok(cluster, "topics", "describe", topic, "--output", "json")
    return {p["partition"]: p for p in json.loads(done.stdout)[0]["partitions"]}


def replicas(cluster, topic):
    return {n: p["replicas"] for n, p in partitions(cluster, topic).items()}


def alive(cluster):
    """Return the brokers that are registered, by the status of a cluster that lacks one."""
    found = json.loads(call(cluster, "status", "--output", "json").stdout)
    return [b["broker"] for b in found["brokers"]]


def move(topic, assignment):
    listed = [{"topic": topic, "partition": p, "replicas": r} for p, r in assignment.items()]
    return json.dumps({"version": 1, "partitions": listed})


def test_a_topic_grows_changes_and_goes(cluster):
    ok(cluster, "topics", "create", "grow", "--partitions", 1)
    ok(cluster, "topics", "alter", "grow", "--partitions", 3, "--config", "retention.ms=123456")
    (found,) = json.loads(ok(cluster, "topics", "describe", "grow", "--output", "json").stdout)
    assert len(found["partitions"]) == 3
    assert found["settings"] == {"retention.ms": "123456"}
    # Of two changes one is refused: neither is made.
    line = problem(cluster, "topics", "alter", "grow", "--partitions", 2, "--config", "a.b=1")
    assert "INVALID_PARTITIONS" in line
    line = problem(
        cluster, "topics", "alter", "grow", "--partitions", 5, "--config", "retention.ms=soon"
    )
    assert "INVALID_CONFIG" in line
    assert len(partitions(cluster, "grow")) == 3
    ok(cluster, "topics", "alter", "grow", "--config", "retention.bytes=9", "--delete-config",
       "retention.ms")  # fmt: skip
    (found,) = json.loads(ok(cluster, "topics", "describe", "grow", "--output", "json").stdout)
    assert found["settings"] == {"retention.bytes": "9"}
    assert "add --yes" in problem(cluster, "topics", "delete", "grow", code=2)
    line = problem(cluster, "topics", "delete", "grow", "nosuch", "--yes")
    assert "topic nosuch does not exist" in line
    assert "nothing was deleted" in line
    ok(cluster, "topics", "delete", "grow", "nosuch", "--yes", "--if-exists")
    assert "does not exist" in problem(cluster, "topics", "describe", "grow")


def test_from_plan_to_rollback(cluster, tmp_path):
    ok(cluster, "topics", "create", "mv", "--partitions", 4, "--replication-factor", 2)
    before = replicas(cluster, "mv")
    produced = subprocess.run(
        [sys.executable, "-m", "ottla", "produce", "mv", "--bootstrap-server", cluster.bootstrap],
        input="".join(f"{n}\n" for n in range(300)),
        text=True,
        timeout=60,
        check=False,
    )
    assert produced.returncode == 0
    plan = tmp_path / "plan.json"
    plan.write_text(ok(cluster, "reassign", "plan", "--topics", "mv", "--brokers", "0,1").stdout)
    done = ok(cluster, "reassign", "execute", "--file", plan, "--wait", 60)
    assert "4 of 4 partitions done" in done.stderr
    rollback = done.stdout
    assert {p["partition"]: p["replicas"] for p in json.loads(rollback)["partitions"]} == before
    # The controller has no move in progress any more before its own broker hears of the last one.
    until(lambda: all(sorted(r) == [0, 1] for r in replicas(cluster, "mv").values()))
    found = json.loads(ok(cluster, "reassign", "verify", "--file", plan, "--output", "json").stdout)
    assert {p["state"] for p in found} == {"done"}
    done = ok(
        cluster, "reassign", "execute", "--file", "-", "--throttle", 9_000_000, "--wait", 60,
        stdin=rollback,
    )  # fmt: skip
    assert "throttles removed: broker 0, broker 1, broker 2, topic mv" in done.stderr
    until(lambda: replicas(cluster, "mv") == before)
    done = call(cluster, "reassign", "verify", "--file", plan)
    assert done.returncode == 1
    assert "not as planned" in done.stdout
    assert "no reassignment is in progress" in ok(cluster, "reassign", "list").stderr
    out = ok(cluster, "consume", "mv", "--from-beginning", "--max-messages", 300).stdout
    assert sorted(map(int, out.split())) == list(range(300))


def test_elections(cluster):
    ok(cluster, "topics", "create", "el", "--partitions", 1, "--replication-factor", 3)
    first = replicas(cluster, "el")[0]
    turned = [*first[1:], first[0]]
    ok(cluster, "reassign", "execute", "--partition", f"el-0={','.join(map(str, turned))}",
       "--wait", 60)  # fmt: skip
    assert partitions(cluster, "el")[0]["leader"] == first[0]
    found = json.loads(ok(cluster, "elect", "preferred", "el-0", "--output", "json").stdout)
    assert [(partition_name(f), f["result"], f["problem"]) for f in found] == [
        ("el-0", "elected", None)
    ]
    assert partitions(cluster, "el")[0]["leader"] == turned[0]
    assert "not needed" in ok(cluster, "elect", "preferred", "el-0").stdout
    assert "not needed" in ok(cluster, "elect", "unclean", "el-0", "--yes").stdout
    assert "may lose acknowledged records" in problem(cluster, "elect", "unclean", "--all", code=2)
    line = problem(cluster, "elect", "preferred", "nosuch-0")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in line
    ok(cluster, "elect", "preferred", "--all")


def test_what_is_wrong_with_partitions(cluster):
    ok(cluster, "topics", "create", "ill", "--replication-factor", 3, "--config",
       "min.insync.replicas=3")  # fmt: skip
    empty = ok(cluster, "topics", "describe", "ill", "--under-min-isr", "--output", "json")
    assert json.loads(empty.stdout) == []
    leader, *others = replicas(cluster, "ill")[0]
    victim = next(b for b in others if b != cluster.asked)
    cluster.terminate(victim)
    try:
        until(lambda: victim not in partitions(cluster, "ill")[0]["isr"])
        # It leaves the ISR before it ends.
        until(lambda: victim not in alive(cluster))
        for option in ("--under-min-isr", "--under-replicated"):
            done = ok(cluster, "topics", "describe", option, "--output", "json")
            found = {t["topic"]: t["partitions"] for t in json.loads(done.stdout)}
            assert [p["partition"] for p in found["ill"]] == [0]
        assert "ill" not in ok(cluster, "topics", "describe", "--leaderless").stdout
        without = next(p for p, r in replicas(cluster, "mv").items() if victim not in r)
        line = problem(
            cluster, "reassign", "execute", "--partition", f"mv-{without}={victim},{leader}"
        )
        assert f"broker {victim} is not alive" in line
    finally:
        cluster.start_broker(victim)
        wait_for_brokers(cluster)


BAD_FILES = {
    "partition twice": '{"partitions":[{"topic":"bad","partition":0,"replicas":[1]},'
    '{"topic":"bad","partition":0,"replicas":[2]}]}',
    "replica twice": move("bad", {0: [1, 1]}),
    "negative": move("bad", {0: [-1]}),
    "dead broker": move("bad", {0: [9]}),
    "empty list": move("bad", {0: []}),
    "unknown topic": move("nosuch", {0: [1]}),
    "unknown partition": move("bad", {7: [1]}),
    "NaN": '{"partitions":[{"topic":"bad","partition":0,"replicas":[NaN]}]}',
    "wrong version": move("bad", {0: [1]}).replace('"version": 1', '"version": 2'),
    "not JSON": "move it, please",
    "10 MB": " " * 10_000_000 + move("bad", {0: [1]}),
    "one bad among good": move("bad", {0: [1], 1: [9]}),
}


def test_a_bad_plan_file_changes_nothing(cluster, tmp_path):
    """Each is refused with one line that names the file; Kafka's tool refuses the same (F42)."""
    ok(cluster, "topics", "create", "bad", "--partitions", 2, "--replication-factor", 1)
    before = replicas(cluster, "bad")
    file = tmp_path / "plan.json"
    for case, text in BAD_FILES.items():
        file.write_text(text)
        done = call(cluster, "reassign", "execute", "--file", file)
        assert done.returncode == 1, case
        assert not done.stdout, case
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith(f"ottla: {file}: "), (case, line)
    assert "plan.json" in problem(cluster, "reassign", "execute", "--file", "/nosuch/plan.json")
    assert replicas(cluster, "bad") == before
    assert "no reassignment" in ok(cluster, "reassign", "list").stderr


REQUESTS = {  # (topic, partition, replicas or None to cancel): error code, as Kafka 3.9 has it
    ("req", 0, ()): 39,
    ("req", 0, (1, 1)): 39,
    ("req", 0, (-1,)): 39,
    ("req", 0, (0, 9)): 39,
    ("req", 0, (8, 9)): 39,
    ("req", 7, (0,)): 3,
    ("req", -1, (0,)): 3,
    ("nosuch", 0, (0,)): 3,
    ("nosuch", 0, (9,)): 39,
    ("nosuch", 0, ()): 39,
    ("", 0, (0,)): 3,
    ("x" * 300, 0, (0,)): 3,
    ("req", 0, None): 85,
    ("nosuch", 0, None): 85,
    ("req", 7, None): 85,
}


def test_invalid_requests_are_refused_with_kafkas_codes(cluster):
    """One request with all of them and one good one: each has its own answer (F42)."""
    ok(cluster, "topics", "create", "req", "--partitions", 2, "--replication-factor", 1)
    before = replicas(cluster, "req")

    async def ask():
        client = Client(world(), cluster.bootstrap, "test", timeout_s=20)
        r = AlterPartitionReassignmentsRequest
        answers = {}
        try:
            for topic, partition, wanted in REQUESTS:
                entry = r.ReassignablePartition(
                    partition_index=partition, replicas=None if wanted is None else list(wanted)
                )
                good = r.ReassignablePartition(partition_index=1, replicas=list(before[1]))
                topics = [r.ReassignableTopic(name=topic, partitions=[entry])]
                topics.append(r.ReassignableTopic(name="req", partitions=[good]))
                response = await client.call(r(topics=topics), CONTROLLER)
                assert response.error_code == 0
                found = {
                    (t.name, p.partition_index): p.error_code
                    for t in response.responses
                    for p in t.partitions
                }
                assert found.pop(("req", 1)) == 0
                answers[topic, partition, wanted] = found[topic, partition]
            elect = ElectLeadersRequest(
                election_type=0,
                topic_partitions=[
                    ElectLeadersRequest.TopicPartitions(topic="req", partitions=[0, 7]),
                    ElectLeadersRequest.TopicPartitions(topic="nosuch", partitions=[0]),
                ],
            )
            response = await client.call(elect, CONTROLLER)
            elections = sorted(
                (t.topic, p.partition_id, p.error_code)
                for t in response.replica_election_results
                for p in t.partition_result
            )
        finally:
            await client.close()
        return answers, elections

    answers, elections = asyncio.run(ask())
    assert answers == REQUESTS
    assert elections == [("nosuch", 0, 3), ("req", 0, 84), ("req", 7, 3)]
    assert replicas(cluster, "req") == before


def test_a_move_that_hangs_is_shown_and_taken_back(cluster):
    """A replica on a broker that is stopped, but not dead yet, does not come into the ISR."""
    ok(cluster, "topics", "create", "hang", "--replication-factor", 1)
    (leader,) = replicas(cluster, "hang")[0]
    others = [b for b in cluster.ids if b != leader]
    target = next(b for b in others if b != cluster.asked)
    (third,) = (b for b in others if b != target)
    new = f"hang-0={target},{leader}"
    os.kill(cluster.processes[target].pid, signal.SIGSTOP)
    try:
        done = ok(cluster, "reassign", "execute", "--partition", new)
        assert json.loads(done.stdout)["partitions"][0]["replicas"] == [leader]
        listed = json.loads(ok(cluster, "reassign", "list", "--output", "json").stdout)
        assert listed == [
            {
                "topic": "hang",
                "partition": 0,
                "replicas": [target, leader],
                "adding": [target],
                "removing": [],
                "copied": 0,
                "size": 0,
                "left": 0,
                "copied_per_s": 0,
            }
        ]
        another = ("reassign", "execute", "--partition", f"hang-0={third}")
        line = problem(cluster, *another)
        assert "hang-0 is being reassigned already" in line
        assert "--additional" in line
        done = call(cluster, "reassign", "verify", "--partition", new, "--wait", 1)
        assert done.returncode == 1
        assert "in progress" in done.stdout
        assert "0 of 1 partition done" in done.stderr
        done = ok(cluster, "reassign", "cancel", "--partition", "hang-0")
        assert f"hang-0 goes back to {leader}" in done.stderr
        assert "none of them" in ok(cluster, "reassign", "cancel", "--all").stderr
    finally:
        os.kill(cluster.processes[target].pid, signal.SIGCONT)
        wait_for_brokers(cluster)
    listed = json.loads(ok(cluster, "topics", "list", "--output", "json").stdout)
    (found,) = [t for t in listed if t["topic"] == "hang"]
    assert [p["replicas"] for p in found["partitions"]] == [[leader]]


# --- settings, quotas, groups ------------------------------------------------------------------


def asked(cluster, *arguments):
    return json.loads(ok(cluster, *arguments, "--output", "json").stdout)


def refused(cluster, *arguments, code=1):
    """Run what must fail with one line and print no data; return the line."""
    done = call(cluster, *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    (line,) = done.stderr.splitlines()
    return line


def settings(cluster, *arguments):
    found = asked(cluster, "configs", "describe", *arguments)["settings"]
    return {s["key"]: (s["value"], s["source"]) for s in found}


def test_settings_of_a_topic(cluster):
    ok(cluster, "topics", "create", "t", "--config", "retention.ms=777")
    of = ("--topic", "t")
    change = ("--set", "retention.ms=888", "--append", "cleanup.policy=compact")
    dry = asked(cluster, "configs", "alter", *of, *change, "--dry-run")
    assert dry["changes"][0] == {
        "key": "retention.ms", "before": "777", "operation": "set", "value": "888",
    }  # fmt: skip
    assert settings(cluster, *of)["retention.ms"] == ("777", "topic"), "nothing was changed"
    ok(cluster, "configs", "alter", *of, *change)
    found = settings(cluster, *of)
    assert found["retention.ms"] == ("888", "topic")
    assert found["cleanup.policy"] == ("delete,compact", "topic")
    (found,) = asked(cluster, "configs", "describe", *of, "flush.ms")["settings"]
    assert (found["source"], found["type"], found["read_only"]) == ("default", "long", False)
    ok(cluster, "configs", "alter", *of, "--subtract", "cleanup.policy=delete")
    assert settings(cluster, *of)["cleanup.policy"] == ("compact", "topic")

    line = refused(cluster, "configs", "alter", *of, "--set", "retention.mss=5", "--delete",
                   "cleanup.policy")  # fmt: skip
    assert "did you mean retention.ms?" in line
    line = refused(cluster, "configs", "alter", *of, "--set", "retention.ms=soon")
    assert "soon" in line
    assert "retention.ms is of type long" in line
    assert "is not a list: use --set" in refused(
        cluster, "configs", "alter", *of, "--append", "retention.ms=5"
    )
    line = refused(cluster, "configs", "alter", *of, "--delete", "flush.ms")
    assert "flush.ms is not set on topic t" in line
    assert "what is set on it: cleanup.policy, retention.ms" in line
    assert "nosuch" in refused(cluster, "configs", "alter", "--topic", "nosuch", "--set", "a=1")
    assert settings(cluster, *of)["retention.ms"] == ("888", "topic")
    assert settings(cluster, *of)["cleanup.policy"] == ("compact", "topic")


def until(holds):
    """Wait for what a broker hears by a watch."""
    deadline = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline


def test_settings_of_brokers(cluster):
    one, every = ("--broker", cluster.ids[0]), "--broker-defaults"
    key = "message.max.bytes"
    ok(cluster, "configs", "alter", every, "--set", f"{key}=2000000")
    ok(cluster, "configs", "alter", *one, "--set", f"{key}=3000000")
    until(lambda: settings(cluster, every) == {key: ("2000000", "dynamic default")})
    until(lambda: settings(cluster, *one, key)[key] == ("3000000", "dynamic broker"))
    (found,) = asked(cluster, "configs", "describe", *one, key)["settings"]
    assert [(s["value"], s["source"]) for s in found["synonyms"]] == [
        ("3000000", "dynamic broker"), ("2000000", "dynamic default"), ("1048588", "default"),
    ]  # fmt: skip
    assert settings(cluster, *one, "broker.id")["broker.id"] == (str(cluster.ids[0]), "static")
    line = refused(cluster, "configs", "alter", *one, "--set", "broker.id=7")
    assert "broker.id is read-only: change it in server.properties" in line
    assert "node.id" in refused(cluster, "configs", "alter", *one, "--set", "node.id=7")
    line = refused(cluster, "configs", "alter", *one, "--set", "log.cleaner.threads=9")
    assert "Log cleaner threads cannot be increased to more than double" in line
    assert "broker 9 is not alive" in refused(
        cluster, "configs", "alter", "--broker", 9, "--set", f"{key}=1"
    )
    ok(cluster, "configs", "alter", *one, "--delete", key)
    ok(cluster, "configs", "alter", every, "--delete", key)
    until(lambda: settings(cluster, every) == {})


def test_quotas(cluster):
    both = ("--user", "alice", "--client-id", "app")
    ok(cluster, "configs", "alter", *both, "--set", "producer_byte_rate=1000", "--set",
       "request_percentage=12.5")  # fmt: skip
    ok(cluster, "configs", "alter", "--user-defaults", "--set", "consumer_byte_rate=5e9")
    ok(cluster, "configs", "alter", "--ip", "127.0.0.9", "--set", "connection_creation_rate=50")
    assert asked(cluster, "configs", "describe", "--quotas")["quotas"] == [
        {"entity": {"ip": "127.0.0.9"}, "values": {"connection_creation_rate": 50}},
        {"entity": {"user": None}, "values": {"consumer_byte_rate": 5e9}},
        {
            "entity": {"user": "alice", "client-id": "app"},
            "values": {"producer_byte_rate": 1000, "request_percentage": 12.5},
        },
    ]
    alter = ("configs", "alter")
    line = refused(cluster, *alter, *both, "--set", "producer_bite_rate=5")
    assert "are producer_byte_rate, consumer_byte_rate" in line
    assert "fast" in refused(cluster, *alter, *both, "--set", "producer_byte_rate=fast")
    assert "use --set" in refused(cluster, *alter, *both, "--append", "producer_byte_rate=5")
    assert "is not set on user bob" in refused(
        cluster, *alter, "--user", "bob", "--delete", "producer_byte_rate"
    )
    ok(cluster, *alter, *both, "--delete", "producer_byte_rate", "--dry-run")
    (found,) = asked(cluster, "configs", "describe", *both)["quotas"]
    assert found["values"] == {"producer_byte_rate": 1000, "request_percentage": 12.5}
    ok(cluster, *alter, *both, "--delete", "producer_byte_rate", "--delete", "request_percentage")
    assert asked(cluster, "configs", "describe", *both)["quotas"] == []


def test_kafkas_tool_and_ours_read_each_other(cluster, kafka_tools):
    if isinstance(cluster, Kafka39Cluster):
        pytest.skip("Kafka's tool on Kafka is Kafka's to test")

    def tool(*arguments):
        where = ("--bootstrap-server", cluster.bootstrap)
        return kafka_tools.run(kafka_tools.CONFIGS, *where, *arguments)

    ok(cluster, "topics", "create", "both", "--config", "retention.ms=888")
    of_topic = ("--entity-type", "topics", "--entity-name", "both")
    tool("--alter", *of_topic, "--add-config", "segment.bytes=1048576")
    found = settings(cluster, "--topic", "both")
    assert found["segment.bytes"] == ("1048576", "topic")
    ok(cluster, "configs", "alter", "--topic", "both", "--append", "cleanup.policy=compact",
       "--delete", "segment.bytes")  # fmt: skip
    told = tool("--describe", *of_topic)
    assert "retention.ms=888" in told
    assert "cleanup.policy=delete,compact" in told
    assert "segment.bytes" not in told


def test_offsets_of_groups(cluster, tmp_path):
    ok(cluster, "topics", "create", "read", "--partitions", 2)
    reset = ("groups", "reset-offsets", "g", "--topic", "read")
    assert "there is no group g" in refused(cluster, "groups", "lag", "g")
    assert "name topics with --topic" in refused(cluster, *reset[:3], "--to", "latest")
    assert "topic nosuch does not exist" in refused(
        cluster, *reset[:3], "--topic", "nosuch", "--to", "latest"
    )
    assert "no partition 7" in refused(cluster, *reset[:3], "--topic", "read:7", "--to", "latest")
    file = tmp_path / "offsets.csv"
    file.write_text("read,0,x\n")
    line = refused(cluster, *reset[:3], "--from-file", file)
    assert f"{file}, line 1" in line
    assert "No such file" in refused(cluster, *reset[:3], "--from-file", tmp_path / "nosuch")
    assert "there is no group g" in refused(cluster, "groups", "describe", "g")

    done = ok(cluster, *reset, "--to-offset", 5, "--execute", "--export")
    assert done.stdout == "read,0,0\nread,1,0\n"
    assert "read-0: 5 is outside of the log, which ends at 0" in done.stderr
    file.write_text(done.stdout)
    again = ok(cluster, *reset[:3], "--from-file", file, "--execute", "--export")
    assert again.stdout == done.stdout
    (found,) = (g for g in asked(cluster, "groups", "lag", "--all") if g["group"] == "g")
    assert found["lag"] == 0
    assert [(p["partition"], p["committed"]) for p in found["partitions"]] == [(0, 0), (1, 0)]
    for target in (("--by-duration", "1h"), ("--to", "current"), ("--shift-by", "0")):
        ok(cluster, *reset[:3], *target)
    ok(cluster, "groups", "delete-offsets", "g", "--topic", "read:1", "--yes")
    (found,) = asked(cluster, "groups", "lag", "g")
    assert [p["partition"] for p in found["partitions"]] == [0]
    ok(cluster, "groups", "delete", "g", "--yes")
    assert "there is no such group" in refused(cluster, "groups", "delete", "g", "--yes")
