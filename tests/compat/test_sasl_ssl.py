"""All of it at once: SASL over TLS, among brokers too, ACLs, real clients, our tools, a kill -9.

Users are PLAIN and SCRAM; what each may do is said by ACLs that our command line adds. What is left
of the records is read by librdkafka.
"""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.certificates import Authority
from support.cluster import FEW
from support.sasl_clusters import USERS
from support.sasl_ssl import OPERATOR, SaslSslOttla
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]

TOPIC, HIDDEN = "orders", "orders-hidden"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    settings = {"default_replication_factor": "3", "min_insync_replicas": "2", **FEW}
    with SaslSslOttla(folder / "c", Authority(folder / "ca"), **settings) as running:
        admin = AdminClient(running.client(OPERATOR))
        for future in admin.create_topics([NewTopic(TOPIC, 3, 3), NewTopic(HIDDEN, 1, 3)]).values():
            future.result(30)
        of_topic = ("--topic", TOPIC)
        running.allow("alice", ("Read", *of_topic), ("Write", *of_topic), ("Read", "--group", "*"))
        yield running
        logs = [running.log(broker).read_text() for broker in running.ids]
        secrets = running.secrets()
        secrets.add("password of carol", "carol-secret")
        assert running.leaks(secrets, folder) == []
        assert not any("Traceback" in log for log in logs), logs


def produced(config, topic, values):
    """Return the errors of what was produced, None for a record that was acknowledged."""
    results = []
    producer = Producer(config | {"acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _m: results.append(error))
    assert producer.flush(60) == 0
    return results


def read(config, topic, count):
    consumer = Consumer(config | {"group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen = []

    def enough():
        # All that has come: `until` pauses after each look.
        while len(seen) < count and (message := consumer.poll(0.5)) is not None:
            if not message.error():
                seen.append(message.value())
        return len(seen) >= count

    try:
        until(enough, 60, lambda: f"{count} records are read; {len(seen)} are")
    finally:
        consumer.close()
    return seen


def test_who_may_writes_and_reads_through_a_kill(cluster):
    alice = cluster.client("alice", USERS["alice"])
    first, second = [b"a%d" % n for n in range(300)], [b"b%d" % n for n in range(300)]
    assert produced(alice, TOPIC, first) == [None] * 300
    cluster.kill(0)
    try:
        assert produced(alice, TOPIC, second) == [None] * 300
    finally:
        cluster.start_broker(0)
    assert sorted(read(alice, TOPIC, 600)) == sorted(first + second)


def test_who_may_not_is_told_so_and_learns_no_names(cluster):
    bob = cluster.client("bob", USERS["bob"])
    (error,) = set(produced(bob | {"message.timeout.ms": 30_000}, TOPIC, [b"x"]))
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert set(AdminClient(bob).list_topics(timeout=20).topics) == set()
    alice = cluster.client("alice", USERS["alice"])
    assert set(AdminClient(alice).list_topics(timeout=20).topics) == {TOPIC}
    said = cluster.tool("topics", "list", name="bob", password=USERS["bob"])
    assert said.returncode == 0, said.stderr
    assert TOPIC not in said.stdout


def test_a_wrong_password_and_a_foreign_ca_get_nowhere(cluster, tmp_path):
    wrong = AdminClient(cluster.client("alice", "guess"))
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=5)
    said = cluster.tool("topics", "list", name="alice", password="guess")
    assert said.returncode == 1
    assert len(said.stderr.strip().splitlines()) == 1
    assert "Authentication failed" in said.stderr
    foreign = Authority(tmp_path / "other")
    with pytest.raises(KafkaException):
        AdminClient(
            cluster.client("alice", USERS["alice"]) | {"ssl.ca.location": str(foreign.pem)}
        ).list_topics(timeout=5)


def test_a_user_is_made_gets_a_right_and_loses_it(cluster):
    made = cluster.tool("users", "add", "carol", "--password-file", "-", stdin="carol-secret")
    assert made.returncode == 0, made.stderr
    late = {"message.timeout.ms": 30_000}
    carol = cluster.client("carol", "carol-secret", "SCRAM-SHA-512") | late
    rule = ("--operation", "Write", "--topic", "ord", "--prefixed")
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert [e.code() for e in produced(carol, TOPIC, [b"c0"])] == [denied]
    for command, expected in (
        (("add", "User:carol"), None),
        (("remove", "--principal", "User:carol", "--yes"), denied),
    ):
        done = cluster.tool("acls", *command, *rule)
        assert done.returncode == 0, done.stderr
        until(
            lambda expected=expected: {
                None if e is None else e.code() for e in produced(carol, TOPIC, [b"c1"])
            } == {expected},
            60,
            f"after {command[0]} it is {expected}",
        )  # fmt: skip
