"""Kafka's own command line tools against a cluster, as 51 steps that each pass or fail.

    python tests/suites/java_tools.py HOST:PORT [--only WORD] [--records 20000]
Every tool runs in a JVM of its own, as an operator would start it. Three brokers are wanted; with
fewer the reassignments are left out. Exit 0 if nothing failed.
Who may call: `scripts/suites/java-tools`.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from support import kafka_tools

TOOLS = "org.apache.kafka.tools."
GROUPS = TOOLS + "consumer.group.ConsumerGroupCommand"
TRANSACTIONS = TOOLS + "TransactionsCommand"
ACLS = "kafka.admin.AclCommand"
GROUP_LAG = 5
PARTITIONS = 8
LINES = 500

STEPS: dict[str, Callable[["Run"], None]] = {}


def step(function: Callable[["Run"], None]) -> Callable[["Run"], None]:
    STEPS[function.__name__] = function
    return function


class Run:
    """One run: the cluster, names of its own, and what every step calls."""

    def __init__(self, bootstrap: str, records: int, folder: Path) -> None:
        self.at = ("--bootstrap-server", bootstrap)
        self.bootstrap = bootstrap
        self.records = records
        self.folder = folder
        self.mark = uuid.uuid4().hex[:8]
        self.topic = self.name("main")
        self.group = self.name("group")
        found = re.findall(r"\(id: (\d+) rack", self.call(kafka_tools.BROKER_API_VERSIONS))
        self.brokers = sorted({int(broker) for broker in found})
        self.replicas = str(min(3, len(self.brokers)))
        self.first = str(self.brokers[0])

    def name(self, kind: str) -> str:
        return f"{kind}-{self.mark}"

    def call(self, tool: str, *arguments: str, **more: object) -> str:
        return kafka_tools.run(tool, *self.at, *arguments, **more)  # type: ignore[arg-type]

    def topics(self, *arguments: str) -> str:
        return self.call(kafka_tools.TOPICS, *arguments)

    def create(self, kind: str, partitions: int = 3) -> str:
        name = self.name(kind)
        self.topics("--create", "--topic", name, "--partitions", str(partitions),
                    "--replication-factor", self.replicas)  # fmt: skip
        return name

    def configs(self, *arguments: str) -> str:
        return self.call(kafka_tools.CONFIGS, *arguments)

    def groups(self, *arguments: str) -> str:
        # Its own 5 s are too few for a JVM on a busy machine, and it fails without a word.
        return self.call(GROUPS, "--timeout", "30000", *arguments)

    def elect(self, kind: str, *arguments: str) -> str:
        return self.call(kafka_tools.LEADER_ELECTION, "--election-type", kind, *arguments)

    def refused(self, words: str, tool: str, *arguments: str) -> None:
        """Want a tool to fail, and to say why in these words."""
        said = self.call(tool, *arguments, check=False)
        assert re.search(words, said, re.IGNORECASE), f"not refused with {words!r}: {said}"

    def offsets(self, topic: str, time_: int = -1, *, partition: int | None = None) -> int:
        """Return the sum of a topic's offsets at a time (-1 the latest, -2 the earliest)."""
        what = ["--topic", topic] if partition is None else [
            "--topic-partitions", f"{topic}:{partition}"]  # fmt: skip
        said = self.call(kafka_tools.GET_OFFSETS, *what, "--time", str(time_))
        return sum(int(line.rsplit(":", 1)[1] or 0) for line in said.split())

    def consume(
        self, topic: str, count: int, *arguments: str, timeout_ms: int = 20_000
    ) -> list[str]:
        said = self.call(
            kafka_tools.CONSOLE_CONSUMER, "--topic", topic, "--from-beginning", "--max-messages",
            str(count), "--timeout-ms", str(timeout_ms), *arguments,
        )  # fmt: skip
        return said.splitlines()

    def file(self, name: str, content: object) -> str:
        path = self.folder / name
        path.write_text(json.dumps(content))
        return str(path)

    def lag(self) -> int:
        """Return the group's lag over all its partitions."""
        rows = self.groups("--describe", "--group", self.group).splitlines()
        return sum(int(row.split()[GROUP_LAG]) for row in rows if f" {self.topic} " in row)


# The cluster, topics, settings ---------------------------------------------------------


@step
def api_versions(run: Run) -> None:
    said = run.call(kafka_tools.BROKER_API_VERSIONS)
    assert "Fetch(1): " in said
    assert "Produce(0): UNSUPPORTED" not in said


@step
def cluster_id(run: Run) -> None:
    said = kafka_tools.run(TOOLS + "ClusterTool", "cluster-id", *run.at)
    assert "Cluster ID: " in said


@step
def topic_create(run: Run) -> None:
    run.topics(
        "--create", "--topic", run.topic, "--partitions", "6", "--replication-factor", run.replicas,
        "--config", "min.insync.replicas=1", "--config", "retention.ms=3600000",
    )  # fmt: skip


@step
def topic_create_dup(run: Run) -> None:
    run.refused("already exists", kafka_tools.TOPICS, "--create", "--topic", run.topic)
    run.topics("--create", "--topic", run.topic, "--if-not-exists")


@step
def topic_bad(run: Run) -> None:
    create = (kafka_tools.TOPICS, "--create", "--topic")
    run.refused("invalid", *create, f"bad/{run.mark}")
    run.refused("replication factor", *create, run.name("bad"), "--replication-factor", "99")


@step
def topic_describe(run: Run) -> None:
    said = run.topics("--describe", "--topic", run.topic)
    for fact in ("PartitionCount: 6", f"ReplicationFactor: {run.replicas}", "retention.ms=3600000"):
        assert fact in said, said
    assert len(re.findall(r"Leader: \d", said)) == 6


@step
def topic_assignment(run: Run) -> None:
    name = run.name("assigned")
    run.topics("--create", "--topic", name, "--replica-assignment", f"{run.first},{run.first}")
    assert "PartitionCount: 2" in run.topics("--describe", "--topic", name)


@step
def topic_partitions(run: Run) -> None:
    alter = ("--alter", "--topic", run.topic, "--partitions")
    run.topics(*alter, str(PARTITIONS))
    assert f"PartitionCount: {PARTITIONS}" in run.topics("--describe", "--topic", run.topic)
    run.refused("not be an increase|8 partition", kafka_tools.TOPICS, *alter, "4")


@step
def topic_filters(run: Run) -> None:
    for what in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert not run.topics("--describe", what, "--topic", run.topic).strip()
    assert run.topic in run.topics("--describe", "--topics-with-overrides")


@step
def config_topic(run: Run) -> None:
    of = ("--entity-type", "topics", "--entity-name", run.topic)
    run.configs("--alter", *of, "--add-config", "max.message.bytes=2000000,segment.bytes=10485760")
    assert "max.message.bytes=2000000" in run.configs("--describe", *of)
    run.configs("--alter", *of, "--delete-config", "segment.bytes")
    assert "segment.bytes=10485760" not in run.configs("--describe", *of)


@step
def config_topic_bad(run: Run) -> None:
    run.refused(
        "Invalid (config )?value", kafka_tools.CONFIGS, "--alter", "--entity-type", "topics",
        "--entity-name", run.topic, "--add-config", "retention.ms=abc",
    )  # fmt: skip


@step
def config_broker(run: Run) -> None:
    one = ("--entity-type", "brokers", "--entity-name", run.first)
    assert "log.retention" in run.configs("--describe", "--all", *one)
    every = ("--entity-type", "brokers", "--entity-default")
    run.configs("--alter", *every, "--add-config", "log.cleaner.threads=1")
    assert "log.cleaner.threads=1" in run.configs("--describe", *every)
    run.configs("--alter", *every, "--delete-config", "log.cleaner.threads")


@step
def config_quota(run: Run) -> None:
    of = ("--entity-type", "users", "--entity-name", run.name("u"),
          "--entity-type", "clients", "--entity-name", "c")  # fmt: skip
    bounds = "producer_byte_rate=100000,consumer_byte_rate=2e5,controller_mutation_rate=10.5"
    run.configs("--alter", *of, "--add-config", bounds)
    shown = run.configs("--describe", *of)
    assert "producer_byte_rate=100000" in shown
    assert "controller_mutation_rate=10.5" in shown
    keys = ",".join(pair.partition("=")[0] for pair in bounds.split(","))
    run.configs("--alter", *of, "--delete-config", keys)


@step
def config_ip_quota(run: Run) -> None:
    of = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
    run.configs("--alter", *of, "--add-config", "connection_creation_rate=50")
    assert "connection_creation_rate=50" in run.configs("--describe", *of)
    run.configs("--alter", *of, "--delete-config", "connection_creation_rate")


@step
def config_scram(run: Run) -> None:
    of = ("--entity-type", "users", "--entity-name", run.name("s"))
    run.configs("--alter", *of, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=x]")
    assert "SCRAM-SHA-256" in run.configs("--describe", *of)
    run.configs("--alter", *of, "--delete-config", "SCRAM-SHA-256")


# Records, groups -----------------------------------------------------------------------


@step
def console_produce(run: Run) -> None:
    run.call(
        kafka_tools.CONSOLE_PRODUCER, "--topic", run.topic, "--property", "parse.key=true",
        "--property", "key.separator=:", "--property", "parse.headers=true",
        "--property", "headers.delimiter=\t",
        stdin="".join(f"h1:v1\tk{n}:v{n}\n" for n in range(LINES)),
    )  # fmt: skip


@step
def console_consume(run: Run) -> None:
    shown = [a for what in ("key", "headers", "partition")
             for a in ("--property", f"print.{what}=true")]  # fmt: skip
    lines = run.consume(run.topic, LINES, *shown, "--group", run.group)
    assert len({line for line in lines if "h1:v1" in line}) == LINES


@step
def offsets_latest(run: Run) -> None:
    assert run.offsets(run.topic) == LINES
    assert run.offsets(run.topic, -2) == 0
    run.offsets(run.topic, -3)
    run.call(kafka_tools.GET_OFFSETS, "--topic-partitions", f"{run.topic}:0-1", "--time", "0")


@step
def group_list(run: Run) -> None:
    said = run.groups("--list", "--state")
    assert run.group in said, said


@step
def group_describe(run: Run) -> None:
    assert run.groups("--describe", "--group", run.group).count(f" {run.topic} ") == PARTITIONS
    assert run.lag() == 0


@step
def group_state(run: Run) -> None:
    said = run.groups("--describe", "--group", run.group, "--state")
    assert "Empty" in said or "Dead" in said
    run.groups("--describe", "--all-groups", "--members")


@step
def group_reset(run: Run) -> None:
    reset = ("--reset-offsets", "--group", run.group)
    topic = (*reset, "--topic", run.topic)
    run.groups(*topic, "--to-earliest", "--execute")
    assert run.lag() == LINES
    run.groups(*topic, "--shift-by", "5", "--dry-run")
    run.groups(*topic, "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    assert run.lag() == LINES
    run.groups(*reset, "--all-topics", "--to-latest", "--execute")
    assert run.lag() == 0
    run.groups(*reset, "--topic", f"{run.topic}:0", "--to-offset", "1", "--execute", "--export")


@step
def group_del_offsets(run: Run) -> None:
    run.groups("--delete-offsets", "--group", run.group, "--topic", f"{run.topic}:0")
    said = run.groups("--describe", "--group", run.group)
    assert not re.search(rf" {run.topic} +0 ", said)


@step
def group_delete(run: Run) -> None:
    run.groups("--delete", "--group", run.group)
    assert run.group not in run.groups("--list").split()


@step
def delete_records(run: Run) -> None:
    wanted = [{"topic": run.topic, "partition": p, "offset": o} for p, o in ((0, 10), (1, -1))]
    path = run.file("delete.json", {"version": 1, "partitions": wanted})
    run.call(kafka_tools.DELETE_RECORDS, "--offset-json-file", path)
    assert run.offsets(run.topic, -2, partition=0) == 10


@step
def log_dirs(run: Run) -> None:
    said = run.call(kafka_tools.LOG_DIRS, "--describe", "--topic-list", run.topic)
    assert '"error":null' in said
    assert f"{run.topic}-0" in said


# Measuring and verifying tools ---------------------------------------------------------


def perf_produce(run: Run, codec: str) -> None:
    name = run.create(f"perf-{codec}")
    kafka_tools.run(
        kafka_tools.PRODUCER_PERFORMANCE, "--topic", name, "--num-records", str(run.records),
        "--record-size", "200", "--throughput", "-1", "--producer-props",
        f"bootstrap.servers={run.bootstrap}", "acks=all", f"compression.type={codec}",
    )  # fmt: skip
    assert run.offsets(name) == run.records


for one in ("none", "gzip", "snappy", "lz4", "zstd"):
    STEPS[f"perf_produce_{one}"] = lambda run, codec=one: perf_produce(run, codec)  # type: ignore[misc]


@step
def perf_consume(run: Run) -> None:
    said = run.call(TOOLS + "ConsumerPerformance", "--topic", run.name("perf-zstd"), "--messages",
                    str(run.records), "--timeout", "30000")  # fmt: skip
    assert int(said.splitlines()[-1].split(", ")[4]) >= run.records


@step
def perf_txn(run: Run) -> None:
    name = run.create("perf-txn")
    kafka_tools.run(
        kafka_tools.PRODUCER_PERFORMANCE, "--topic", name, "--num-records", str(run.records),
        "--record-size", "100", "--throughput", "-1", "--transactional-id", run.name("tx"),
        "--transaction-duration-ms", "100", "--producer-props",
        f"bootstrap.servers={run.bootstrap}",
    )  # fmt: skip
    lines = run.consume(name, run.records, "--isolation-level", "read_committed")
    assert len(lines) == run.records


@step
def e2e_latency(run: Run) -> None:
    name = run.create("latency", 1)
    said = kafka_tools.run(TOOLS + "EndToEndLatency", run.bootstrap, name, "200", "all", "100")
    assert "Percentiles" in said


def verifiable_produce(run: Run, topic: str, count: int) -> str:
    return run.call(TOOLS + "VerifiableProducer", "--topic", topic, "--max-messages", str(count),
                    "--acks", "-1")  # fmt: skip


@step
def verifiable(run: Run) -> None:
    name, count = run.create("verifiable"), 5000
    said = verifiable_produce(run, name, count)
    assert said.count("producer_send_success") == count
    said = run.call(
        TOOLS + "VerifiableConsumer", "--topic", name, "--group-id", run.name("vg"),
        "--max-messages", str(count), "--reset-policy", "earliest",
    )  # fmt: skip
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert any(event["name"] == "partitions_assigned" for event in events)
    assert sum(e["count"] for e in events if e["name"] == "records_consumed") >= count


@step
def txn_copier(run: Run) -> None:
    count = 3000
    source, target = run.create("tx-in", 1), run.create("tx-out", 1)
    verifiable_produce(run, source, count)
    kafka_tools.run(
        TOOLS + "TransactionalMessageCopier", "--broker-list", run.bootstrap,
        "--input-topic", source, "--input-partition", "0", "--output-topic", target,
        "--transaction-size", "100", "--transactional-id", run.name("copier"),
        "--consumer-group", run.name("copy"), "--max-messages", str(count),
        "--enable-random-aborts",
    )  # fmt: skip
    # One more than there are: the wait for it shows that nothing came twice.
    lines = run.consume(target, count + 1, "--isolation-level", "read_committed", timeout_ms=8000)
    assert len(lines) == count
    assert len(set(lines)) == count


@step
def transactions_list(run: Run) -> None:
    mine = run.name("copier")
    assert mine in kafka_tools.run(TRANSACTIONS, *run.at, "list")
    said = kafka_tools.run(TRANSACTIONS, *run.at, "describe", "--transactional-id", mine)
    assert re.search("CompleteCommit|CompleteAbort", said), said


@step
def describe_producers(run: Run) -> None:
    said = kafka_tools.run(TRANSACTIONS, *run.at, "describe-producers", "--topic",
                           run.name("tx-out"), "--partition", "0")  # fmt: skip
    assert re.search(r"^\d", said, re.MULTILINE), said
    kafka_tools.run(TRANSACTIONS, *run.at, "find-hanging", "--broker-id", run.first)


@step
def client_compat(run: Run) -> None:
    facts = {
        "cluster-id": "true", "create-topics": "true", "describe-acls": "true",
        "describe-configs": "true", "idempotent-producer": "true", "offsets-for-times": "true",
    }  # fmt: skip
    supported = [a for k, v in facts.items() for a in (f"--{k}-supported", v)]
    run.call(
        TOOLS + "ClientCompatibilityTest", "--num-cluster-nodes", str(len(run.brokers)), "--topic",
        run.name("compat"), "--expect-record-too-large-exception", "false", *supported,
    )  # fmt: skip


@step
def acl(run: Run) -> None:
    name, prefix, user = run.name("acl"), run.name("prefix"), f"User:alice-{run.mark}"
    prefixed = ("--topic", prefix, "--resource-pattern-type", "prefixed")
    run.call(ACLS, "--add", "--allow-principal", user, "--producer", "--topic", name)
    run.call(ACLS, "--add", "--deny-principal", f"User:bob-{run.mark}", "--operation", "Read",
             "--group", "*")  # fmt: skip
    assert user in run.call(ACLS, "--list", "--topic", name)
    run.call(ACLS, "--add", "--allow-principal", user, "--operation", "All", *prefixed)
    said = run.call(ACLS, "--list", "--resource-pattern-type", "match", "--topic", f"{prefix}-x")
    assert user in said
    for what in (("--topic", name), prefixed, ("--group", "*")):
        run.call(ACLS, "--remove", "--force", *what)
    assert user not in run.call(ACLS, "--list", "--topic", name)


# Leaders and replicas ------------------------------------------------------------------


@step
def elect_preferred(run: Run) -> None:
    run.elect("preferred", "--all-topic-partitions")
    run.elect("preferred", "--topic", run.topic, "--partition", "0")


@step
def elect_unclean(run: Run) -> None:
    run.elect("unclean", "--topic", run.topic, "--partition", "0")


@step
def features(run: Run) -> None:
    run.call(TOOLS + "FeatureCommand", "describe", check=False)


def reassign(run: Run, *arguments: str) -> str:
    return run.call(kafka_tools.REASSIGN, *arguments)


def moves(run: Run, by: int) -> str:
    """Return a file that asks for two replicas each, so many brokers on."""
    ids = run.brokers
    rows = [
        {"topic": run.name("moved"), "partition": p,
         "replicas": [ids[(p + by) % len(ids)], ids[(p + by + 1) % len(ids)]]}
        for p in range(4)
    ]  # fmt: skip
    return run.file(f"moves-{by}.json", {"version": 1, "partitions": rows})


@step
def reassign_generate(run: Run) -> None:
    name = run.name("moved")
    run.topics("--create", "--topic", name, "--partitions", "4", "--replication-factor", "2")
    verifiable_produce(run, name, 5000)
    path = run.file("topics.json", {"topics": [{"topic": name}], "version": 1})
    said = reassign(run, "--generate", "--topics-to-move-json-file", path, "--broker-list",
                    ",".join(map(str, run.brokers)))  # fmt: skip
    assert name in said.splitlines()[-1]


@step
def reassign_execute(run: Run) -> None:
    plan = ("--reassignment-json-file", moves(run, 1))
    reassign(run, "--execute", "--throttle", "50000000", *plan)
    deadline = time.monotonic() + 60
    while "still in progress" in (said := reassign(run, "--verify", *plan)):
        assert time.monotonic() < deadline, said
    assert "is completed" in said
    assert run.offsets(run.name("moved")) == 5000


@step
def reassign_throttle_cleared(run: Run) -> None:
    of = ("--entity-type", "topics", "--entity-name", run.name("moved"))
    assert "throttled" not in run.configs("--describe", *of)


@step
def reassign_cancel(run: Run) -> None:
    plan = ("--reassignment-json-file", moves(run, 0))
    reassign(run, "--execute", "--throttle", "1", *plan)
    said = reassign(run, "--list")
    assert run.name("moved") in said, said
    reassign(run, "--cancel", *plan)
    said = reassign(run, "--list")
    assert "No partition reassignments" in said, said


@step
def election_moves_back(run: Run) -> None:
    run.elect("preferred", "--all-topic-partitions")
    said = run.topics("--describe", "--at-min-isr-partitions", "--topic", run.name("moved"))
    assert not said.strip()


@step
def replica_verification(run: Run) -> None:
    """It runs until it is stopped, so: stopped when it has said what is wanted."""
    command = [
        kafka_tools.java() or "java", "-Xmx256m", "-cp", f"{kafka_tools.libs()}/*",
        TOOLS + "ReplicaVerificationTool", "--broker-list", run.bootstrap, "--topics-include",
        f"perf-.*-{run.mark}", "--report-interval-ms", "2000",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=25, check=False)
        said = done.stdout + done.stderr
    except subprocess.TimeoutExpired as stopped:
        said = (stopped.stdout or b"").decode()
    assert "max lag is 0" in said, said


@step
def topic_delete(run: Run) -> None:
    run.topics(
        "--delete", "--topic", f"(perf|latency|verifiable|tx|assigned|moved|compat)-.*{run.mark}"
    )
    deadline = time.monotonic() + 10
    while re.search(
        f"^(perf|tx|verifiable)-.*{run.mark}$", said := run.topics("--list"), re.MULTILINE
    ):
        assert time.monotonic() < deadline, said
    run.topics("--delete", "--topic", run.topic)


@step
def topic_recreate(run: Run) -> None:
    run.topics("--create", "--topic", run.topic, "--partitions", "1")
    run.call(kafka_tools.CONSOLE_PRODUCER, "--topic", run.topic, stdin="x\n")
    assert run.offsets(run.topic) == 1
    run.topics("--delete", "--topic", run.topic)


WANT_SEVERAL = (
    "reassign_generate", "reassign_execute", "reassign_throttle_cleared", "reassign_cancel",
    "election_moves_back", "replica_verification",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bootstrap")
    parser.add_argument("--only", default="", help="a regular expression of steps")
    parser.add_argument("--records", type=int, default=20_000, help="of the measuring tools")
    arguments = parser.parse_args()
    problem = kafka_tools.why_not()
    if problem:
        print(problem, file=sys.stderr)
        return 2
    passed, failed = 0, []
    with tempfile.TemporaryDirectory() as folder:
        run = Run(arguments.bootstrap, arguments.records, Path(folder))
        print(f"brokers {run.brokers}", flush=True)
        for name, function in STEPS.items():
            if not re.search(arguments.only, name):
                continue
            if name in WANT_SEVERAL and len(run.brokers) < 2:
                continue
            started, why = time.monotonic(), ""
            try:
                function(run)
                passed += 1
            except (AssertionError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
                failed.append(name)
                why = str(error) or traceback.format_exc().strip()
            print(
                f"{'FAIL' if why else 'pass'} {name:28} {time.monotonic() - started:5.1f} s",
                flush=True,
            )
            if why:
                print("    " + "\n    ".join(why.splitlines()[-12:]), flush=True)
    print(f"{passed} passed, {len(failed)} failed {' '.join(failed)}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
