"""Each command's JSON against its schema, on Ottla and on Kafka 3.9; tabs say the same."""

import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support import command_line
from support.clients import fresh, named
from support.cluster import free_row
from support.guarded import ACCESS
from support.kafka39 import Kafka39Cluster
from support.schemas import SCHEMAS, problems
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]

LOCAL = {"up", "down", "why", "history timeline", "history replay", "dump-log", "sim check"} | {
    name for name in SCHEMAS if name.startswith(("broker ", "profile ", "certs "))
}
"""They ask no cluster, or only one of `ottla up`: tested below, or without a cluster."""


def run(*arguments, code=0, stdin=""):
    done = command_line.ottla(*arguments, stdin=stdin)
    assert done.returncode == code, (arguments, done.stderr)
    return done.stdout


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def cluster(request, tmp_path_factory):
    if request.param == "ottla":
        yield request.getfixturevalue("with_acls")
        return
    request.getfixturevalue("kafka_tools")
    acls = {**ACCESS, "super_users": "User:ANONYMOUS"}
    with Kafka39Cluster(tmp_path_factory.mktemp("kafka"), brokers=1, **acls) as found:
        yield found


def checked(seen, name, *arguments, at, code=0, stdin=""):
    """Run a command as JSON and check it against its schema; return what it printed."""
    found = json.loads(
        run(*name.split(), *arguments, "-b", at, "--output", "json", code=code, stdin=stdin)
    )
    assert problems(found, SCHEMAS[name]) == [], name
    seen.add(name)
    return found


def test_what_commands_print_is_as_documented(cluster, tmp_path):
    at, seen = cluster.bootstrap, set()

    def check(name, *arguments, **more):
        return checked(seen, name, *arguments, at=at, **more)

    topic, group, transaction = fresh(), fresh("g"), fresh("x")
    check("topics create", topic, "--partitions", 2, "--config", "retention.ms=1000000000")
    check("topics create", topic, "--if-not-exists")
    check("topics create", "other", "--dry-run", "--assignment", "0,0")
    check("topics alter", topic, "--config", "retention.bytes=-1")
    check("topics alter", topic, "--partitions", 3, "--dry-run")
    assert check("produce", topic, "--partition", 0, stdin="a\nb\n")[0]["records"] == 2
    check("produce", topic, "--dry-run", stdin="a\n")
    listed = check("topics list", topic, "--sizes")
    assert [t["topic"] for t in listed] == [topic]
    assert listed[0]["size"] > 0
    (described,) = check("topics describe", topic)
    assert described["settings"]["retention.ms"] == "1000000000"
    assert check("topics describe", "--under-replicated") == []
    check("topics offsets", topic)
    assert check("topics offsets", f"{topic}:0", "--at", "end")[0]["offset"] == 2
    check("topics delete-records", topic, "--before", "1", "--dry-run")
    (deleted,) = check("topics delete-records", f"{topic}:0", "--before", "1", "--yes")
    assert deleted["first_offset"] == 1
    lines = run(
        "consume", topic, "--from-beginning", "--until", "end", "--output", "json", "-b", at
    )
    assert [problems(json.loads(line), SCHEMAS["consume"]) for line in lines.splitlines()] == [[]]
    seen.add("consume")
    check("configs describe", "--topic", topic)
    check("configs describe", "--quotas")
    check("configs alter", "--topic", topic, "--set", "retention.ms=5", "--dry-run")
    check("configs alter", "--client-id", "c", "--set", "producer_byte_rate=1000000")
    assert check("configs describe", "--client-id", "c")["quotas"]
    of_app = ("User:app", "--operation", "Read", "--topic", topic)
    check("acls add", *of_app)
    assert [a["operation"] for a in check("acls list", "--topic", topic)] == ["Read"]
    assert check("acls check", "User:app", "Describe", "--topic", topic)["allowed"]
    missing = check("acls check", "User:app", "Write", "--topic", topic)
    assert not missing["allowed"]
    assert missing["differs"] == ["operation"]
    assert not check("acls remove", "--topic", topic, "--dry-run")["executed"]
    assert check("acls remove", "--topic", topic, "--yes")["executed"]
    assert check("acls list", "--topic", topic) == []
    password = ("--password-file", "-")
    added = check("users add", "app", *password, stdin="secret")
    assert {a["user"] for a in added} == {"app"}
    assert "app" in {user["user"] for user in check("users list")}
    check("users remove", "app", "--yes")
    check("status")
    check("log-dirs", topic)
    check("doctor", "--for", "0s")
    check("verify-replicas", topic)
    check("top", "--count", "1")
    check("elect", "preferred", "--all")
    check("elect", "preferred", f"{topic}-0", "--dry-run")
    plan = run("reassign", "plan", "--topics", topic, "-b", at)
    assert problems(json.loads(plan), SCHEMAS["reassign plan"]) == []
    check("reassign plan", "--topics", topic)
    check("reassign execute", "--file", "-", "--dry-run", stdin=plan)
    check("reassign verify", "--file", "-", stdin=plan)
    check("reassign list")
    check("reassign throttles")
    check("reassign cancel", "--all", "--dry-run")
    for event, *arguments in (("kill", 0), ("shutdown", 0), ("rolling-restart",)):
        assert check(f"whatif {event}", *arguments, code=1)["harm"]
    check("whatif add-brokers", 1)
    check("whatif reassign", "-", stdin=plan)
    check("whatif unclean", f"{topic}-0")
    check("whatif config", "min.insync.replicas=1")

    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    consumer = Consumer(named(at, settings))
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.5) is not None, 60, "a record is read")
    both = [TopicPartition(topic, n, 1) for n in range(2)]
    consumer.commit(offsets=both, asynchronous=False)
    assert [g for g in check("groups list") if g["group"] == group]
    (described,) = check("groups describe", group)
    assert described["members"]
    check("groups lag", group)
    check("groups watch", group, "--count", "1")
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(check("cluster snapshot")))
    check("cluster diff", file, "--without-groups")
    check("cluster apply", file, "--dry-run")
    where = ("--zookeeper", cluster.zookeeper, "--output", "json")
    for name, path in (("znode ls", "/brokers"), ("znode get", "/controller")):
        found = json.loads(run(*name.split(), path, *where))
        assert problems(found, SCHEMAS[name]) == []
        seen.add(name)
    check("groups delete", group, "--dry-run", code=1)
    consumer.close()
    check("groups reset-offsets", group, "--to", "earliest")
    check("groups delete-offsets", group, "--topic", f"{topic}:0", "--dry-run")
    check("groups delete-offsets", group, "--topic", f"{topic}:0", "--yes")
    check("groups delete", group, "--yes")
    check("groups delete", group, "--yes", code=1)

    producer = Producer(named(at, {"transactional_id": transaction}))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    producer.flush(20)
    check("txn list")
    check("txn describe", transaction)
    (known,) = check("txn producers", topic, 1)
    start = known["transaction_start_offset"]
    check("txn hanging", "--older-than", "1s")
    check("txn abort", topic, 1, "--start-offset", start, "--dry-run")
    producer.abort_transaction(20)
    check("topics delete", topic, "nosuch", "--if-exists", "--dry-run")
    check("topics delete", topic, "nosuch", "--if-exists", "--yes")
    # A drain needs several brokers: tests/compat/test_broker_commands.py, test_whatif.py.
    assert (
        set(SCHEMAS) - LOCAL - {"broker drain", "whatif drain", "txn abort", "users rotate"} <= seen
    )


def test_tabs_say_what_json_says(cluster):
    topic = fresh()
    run("topics", "create", topic, "-b", cluster.bootstrap)
    name = ["topics", "list", topic, "-b", cluster.bootstrap, "--output"]
    (found,) = json.loads(run(*name, "json"))
    heads, row = run(*name, "tsv").splitlines()
    assert dict(zip(heads.split("\t"), row.split("\t"), strict=True))["topic"] == found["topic"]


def test_commands_of_a_cluster_on_this_machine(tmp_path):
    folder = tmp_path / "data"

    def check(name, *arguments):
        found = json.loads(run(*name.split(), *arguments, "--dir", folder, "--output", "json"))
        assert problems(found, SCHEMAS[name]) == [], name
        return found

    assert check("up", "-n", "1", "--port-base", free_row(2))["started"]
    try:
        assert not check("up")["started"]
        assert check("status")["healthy"]
        run("topics", "create", "t", "--dir", folder)
        run("produce", "t", "--dir", folder, stdin="x\n")
        check("why", "t-0")
        check("history timeline", "t-0")
        check("history replay")
        check("history replay", "--diff")
        check("broker pause", "0")
        check("broker resume", "0")
        check("broker restart", "--all", "--dry-run")
        check("broker restart", "0")
        check("broker kill", "0")
        check("broker start", "0")
        check("broker stop", "0")
        found = json.loads(run("dump-log", folder / "broker-0", "--output", "json"))
        assert problems(found, SCHEMAS["dump-log"]) == []
        assert {"batch", "leader_epoch", "offset", "property"} <= {f["kind"] for f in found}
    finally:
        check("down")


def test_commands_about_certificates(tmp_path):
    seen = set()

    def check(name, *arguments):
        at = ("--folder", tmp_path / "certs", "--output", "json")
        found = json.loads(run(*name.split(), *arguments, *at))
        assert problems(found, SCHEMAS[name]) == [], name
        seen.add(name)
        return found

    check("certs init")
    check("certs issue", "broker-0", "--host", "127.0.0.1")
    check("certs rotate", "--all")
    assert {c["name"] for c in check("certs list")} >= {"broker-0"}
    assert seen == {name for name in SCHEMAS if name.startswith("certs ")}
