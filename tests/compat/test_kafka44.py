"""Our tools on Apache Kafka 4.4: groups of every type, and KRaft without ZooKeeper."""

import asyncio
import json

import pytest
from confluent_kafka import Consumer, ShareConsumer
from confluent_kafka.admin import NewTopic

from ottla.admin.session import connected
from ottla.client.groups import describe
from ottla.wire.messages.groups import JoinGroupRequest, SyncGroupRequest
from support import kafka_tools
from support.clients import admin_client, create_topics, named, produce
from support.command_line import call, found, lines, ok
from support.console import console_on
from support.kafka41 import VERSION_OF_NEW_GROUPS, Kafka44Cluster
from support.schemas import partition_name
from support.waiting import until

WHY_NOT = kafka_tools.why_not(VERSION_OF_NEW_GROUPS)
pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.timeout(240),
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
RECORDS = 10


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    """One broker with a topic, and a group of each type that clients make here.

    `app` of Kafka Streams is in tests/unit/client/test_group_types.py: its client is Java's alone.
    """
    settings = {
        "share_coordinator_state_topic_replication_factor": "1",
        "share_coordinator_state_topic_min_isr": "1",
    }
    with Kafka44Cluster(tmp_path_factory.mktemp("kafka"), 1, **settings) as cluster:
        create_topics(admin_client(cluster.bootstrap), NewTopic("t", 2, 1))
        produce(cluster.bootstrap, "t", (b"%d" % n for n in range(RECORDS)), 2)
        done = reading(cluster, "done", Consumer, group_protocol="consumer")
        done.close()
        connected(cluster.bootstrap, a_group_of_connect)
        live = [
            reading(cluster, "live", Consumer, group_protocol="consumer"),
            reading(cluster, "classic", Consumer),
            reading(cluster, "share", ShareConsumer),
        ]
        yield cluster
        for consumer in live:
            consumer.close()


def reading(cluster, group, consumer, **settings):
    """Return a consumer of that group that has its partitions, and has committed if it can."""
    values = {"group_id": group, **settings}
    if consumer is Consumer:
        values |= {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    found = consumer(named(cluster.bootstrap, values))
    found.subscribe(["t"])
    got = until(lambda: found.poll(0.5) or assigned(cluster, group), 60, f"{group} reads")
    if consumer is Consumer:
        assert got.error() is None
        found.commit(got, asynchronous=False)
    return found


def assigned(cluster, group):
    return consumer_partitions(cluster, group) if group == "share" else None


def consumer_partitions(cluster, group):
    return connected(cluster.bootstrap, lambda c: describe(c, group)).members[0].partitions


async def a_group_of_connect(client):
    r = JoinGroupRequest
    protocol = r.JoinGroupRequestProtocol(name="sessioned", metadata=b"x")
    join = r(
        group_id="connect", session_timeout_ms=300_000, rebalance_timeout_ms=300_000,
        protocol_type="connect", protocols=[protocol],
    )  # fmt: skip
    for _ in range(50):
        answer = await client.call(join, version=3)
        if not answer.error_code:
            break
        await asyncio.sleep(0.2)  # its coordinator is made just now
    s = SyncGroupRequest
    one = s.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"\x01junk")
    sync = s(
        group_id="connect", generation_id=answer.generation_id, member_id=answer.member_id,
        assignments=[one],
    )  # fmt: skip
    assert not (await client.call(sync, version=2)).error_code


def test_groups_of_every_type_are_shown(kafka):
    assert {(g["group"], g["type"], g["protocol_type"], g["state"]) for g in found(
        kafka, "groups", "list"
    )} == {
        ("done", "consumer", "consumer", "Empty"),
        ("live", "consumer", "consumer", "Stable"),
        ("classic", "classic", "consumer", "Stable"),
        ("connect", "classic", "connect", "Stable"),
        ("share", "share", "share", "Stable"),
    }  # fmt: skip
    described = found(kafka, "groups", "describe", "live", "share", "connect", "classic")
    reads = {
        g["group"]: [[*map(partition_name, m["partitions"])] for m in g["members"]]
        for g in described
    }
    both = [["t-0", "t-1"]]
    assert reads == {"live": both, "share": both, "classic": both, "connect": [[]]}


def test_lag_of_all_groups(kafka):
    lags = {
        g["group"]: {p["partition"]: (p["committed"], p["lag"]) for p in g["partitions"]}
        for g in found(kafka, "groups", "lag", "--all")
    }
    assert lags.keys() == {"done", "live", "classic", "share"}
    for group in ("live", "classic", "done"):
        committed = [one for one in lags[group].values() if one[0] is not None]
        assert committed == [(1, RECORDS // 2 - 1)]
    assert lags["share"].keys() == {0, 1}
    done = call(kafka, "groups", "lag", "live", "nosuch")
    assert (done.returncode, "live: 4 records behind" in done.stdout) == (1, True)
    assert (
        done.stderr
        == "ottla: there is no group nosuch; `ottla groups list` shows those there are\n"
    )


def test_changes_are_refused_or_made(kafka):
    for group, why in (("live", "has members"), ("share", "kafka-share-groups.sh")):
        refused = call(kafka, "groups", "reset-offsets", group, "--to", "latest")
        assert (refused.returncode, why in refused.stderr) == (1, True), refused.stderr
    ok(kafka, "groups", "reset-offsets", "done", "--to", "latest", "--execute")
    (lag,) = found(kafka, "groups", "lag", "done")
    assert lag["lag"] == 0
    refused = call(kafka, "groups", "delete", "live", "done", "share", "--yes")
    assert refused.returncode == 1
    assert lines(refused)[0].startswith("group live not deleted: the group has mem")
    assert "group done deleted" in refused.stderr
    assert "done" not in ok(kafka, "groups", "list")


def test_a_cluster_without_zookeeper_is_judged_as_one(kafka):
    report = call(kafka, "doctor")
    assert report.returncode == 0, report.stderr
    assert "few-replicas" in report.stdout
    assert "ZooKeeper" not in report.stdout + report.stderr
    assert (
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        in call(kafka, "acls", "list").stderr
    )


def test_pages_of_the_console(kafka):
    with console_on(kafka.bootstrap) as http:
        listed = http.get("/groups")
        assert ">live</a></th><td>Stable</td><td>consumer</td><td>consumer</td>" in listed.text
        for group in ("live", "share", "connect", "classic"):
            page = http.get(f"/group?name={group}")
            assert page.status_code == 200, page.text
            assert ("Stop the members first" in page.text) == (group != "share")


def test_the_other_commands_work_without_zookeeper(kafka, tmp_path):
    ok(kafka, "topics", "create", "orders", "--partitions", "2")
    ok(kafka, "produce", "orders", stdin="a\nb\nc\n")
    consume = ("consume", "orders", "--until", "end", "--quiet")
    assert sorted(ok(kafka, *consume, "--from-beginning").split()) == ["a", "b", "c"]
    grouped = (*consume[:2], "--group", "audit", "--from-beginning", "--max-messages", "3")
    assert sorted(ok(kafka, *grouped).split()) == ["a", "b", "c"]
    ok(kafka, "configs", "alter", "--topic", "orders", "--set", "retention.ms=3600000")
    assert "retention.ms=3600000" in ok(kafka, "topics", "describe", "orders")
    plan = tmp_path / "plan.json"
    move = {"topic": "orders", "partition": 0, "replicas": [0]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    ok(kafka, "reassign", "execute", "--file", plan, "--wait", "30")
    assert "no reassignment is in progress" in call(kafka, "reassign", "list").stderr
    ok(kafka, "elect", "preferred", "--all")
    (broker,) = found(kafka, "status")["brokers"]
    assert (broker["broker"], broker["alive"]) == (0, True)
    assert found(kafka, "txn", "list") == found(kafka, "txn", "hanging") == []
    ok(kafka, "topics", "delete", "orders", "--yes")
