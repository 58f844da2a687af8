"""SASL with real clients: librdkafka, aiokafka, kafka-python and our own command line.

Three brokers of ours authenticate among each other by SCRAM, with a user that our command line
wrote into ZooKeeper before there was a broker; topics have three copies, so that is used, too.
"""

import asyncio
import json
import time
import uuid
from functools import partial
from pathlib import Path

import kafka as kafka_python
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from support.cluster import FEW, free_ports, start_test_zookeeper
from support.command_line import lines, ottla
from support.sasl_clusters import (
    BROKER,
    BROKER_PASSWORD,
    PREFIX,
    USERS,
    Issuer,
    SaslOttla,
    sasl_settings,
)
from support.secret_scan import Secrets, all_leaks
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(300)]

SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAMS, "OAUTHBEARER")
SECRETS = (*USERS.values(), BROKER_PASSWORD, "fourth-secret", "token-key-of-tests")
LATER_S = 900


class Secured:
    def __init__(self, cluster, issuer, folder):
        self.cluster, self.issuer, self.folder = cluster, issuer, folder

    def properties(self, mechanism, name="alice", password=USERS["alice"]):
        """Return a client.properties of ours and of Java's."""
        path = self.folder / f"{uuid.uuid4()}.properties"
        if mechanism == "OAUTHBEARER":
            token = self.folder / f"{uuid.uuid4()}.jwt"
            token.write_text(self.issuer.token(sub=name))
            jaas = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
            more = f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
        else:
            module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
            jaas = (
                f"org.apache.kafka.common.security.{module}LoginModule required "
                f'username="{name}" password="{password}";'
            )
            more = ""
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n{more}"
        )
        return str(path)

    def ottla(self, *arguments, mechanism="SCRAM-SHA-512", stdin="", broker=None, **who):
        cluster = self.cluster
        at = ("-b", cluster.sasl_bootstrap if broker is None else cluster.sasl_address(broker))
        config = ("--command-config", self.properties(mechanism, **who))
        return ottla(*arguments, *at, *config, stdin=stdin)


def add_user(name, password, *more):
    added = ottla("users", "add", name, "--password-file", "-", *more, stdin=password)
    assert added.returncode == 0, added.stderr


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sasl")
    issuer = Issuer(folder)
    port = free_ports(1)[0]
    zookeeper = start_test_zookeeper(folder / "zookeeper", port)
    try:
        address = f"127.0.0.1:{port}"
        for name, password in {BROKER: BROKER_PASSWORD, **USERS}.items():
            add_user(name, password, "--zookeeper", address)
        sasl = sasl_settings("SCRAM-SHA-512", ",".join(MECHANISMS)) | issuer.settings()
        sasl["delegation.token.secret.key"] = "token-key-of-tests"
        with SaslOttla(folder / "c", 3, zookeeper=address, sasl=sasl, **FEW) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            made = admin.create_topics([NewTopic(f"topic-{m}", 3, 3) for m in MECHANISMS])
            for future in made.values():
                future.result(30)
            yield Secured(cluster, issuer, folder)
            logs = [cluster.log(broker).read_text() for broker in cluster.ids]
            secrets = Secrets({f"secret {n}": text for n, text in enumerate(SECRETS)})
            belongs = folder.rglob("*.properties")
            assert all_leaks(secrets, cluster.zookeeper, folder, belongs) == []
            assert not any("Traceback" in log for log in logs), logs
    finally:
        zookeeper.stop()


def values(label):
    return [f"{label}-{number}".encode() for number in range(200)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(secured, mechanism):
    config = {
        "bootstrap.servers": secured.cluster.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        token = secured.issuer.token()
        config["oauth_cb"] = lambda _config: (token, time.time() + 500)
    else:
        config |= {"sasl.username": "alice", "sasl.password": USERS["alice"]}
    topic, wanted = f"topic-{mechanism}", values("librdkafka")
    producer = Producer(config | {"acks": "all", "enable.idempotence": True})
    for value in wanted:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    group = {"group.id": f"librdkafka-{mechanism}", "auto.offset.reset": "earliest"}
    consumer = Consumer(config | group)
    consumer.subscribe([topic])
    seen = set()
    until(lambda: _poll(consumer, seen) or seen.issuperset(wanted), 40, "all were read")
    consumer.close()


def _poll(consumer, seen):
    # All that has come: `until` pauses after each look.
    while (message := consumer.poll(0.5)) is not None:
        if not message.error():
            seen.add(message.value())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(secured, mechanism):
    class Provider(AbstractTokenProvider):
        async def token(self):
            return secured.issuer.token("ec")

    who = {
        "bootstrap_servers": secured.cluster.sasl_bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    wanted, topic = values("aiokafka"), f"topic-{mechanism}"

    async def main():
        more = (
            {"sasl_oauth_token_provider": Provider()}
            if mechanism == "OAUTHBEARER"
            else {"sasl_plain_username": "bob", "sasl_plain_password": USERS["bob"]}
        )
        async with AIOKafkaProducer(**who, **more, acks="all") as producer:
            for sent in [await producer.send(topic, value) for value in wanted]:
                await sent
        seen = set()
        async with AIOKafkaConsumer(
            topic, **who, **more, group_id=f"aio-{mechanism}", auto_offset_reset="earliest"
        ) as consumer:
            async with asyncio.timeout(40):
                while not seen.issuperset(wanted):
                    seen.add((await consumer.getone()).value)

    asyncio.run(main())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(secured, mechanism):
    class Provider(KafkaPythonTokenProvider):
        def token(self):
            return secured.issuer.token()

    who = {
        "bootstrap_servers": secured.cluster.sasl_bootstrap.split(","),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        who["sasl_oauth_token_provider"] = Provider()
    else:
        who |= {"sasl_plain_username": "alice", "sasl_plain_password": USERS["alice"]}
    topic, wanted = f"topic-{mechanism}", values("kafka-python")
    producer = kafka_python.KafkaProducer(**who, acks="all")
    for sent in [producer.send(topic, value) for value in wanted]:
        sent.get(30)
    producer.close()
    consumer = kafka_python.KafkaConsumer(
        topic, **who, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    seen = set()
    for message in consumer:
        seen.add(message.value)
        if seen.issuperset(wanted):
            break
    consumer.close()
    assert seen.issuperset(wanted)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_command_line(secured, mechanism):
    listed = secured.ottla("topics", "list", "--output", "json", mechanism=mechanism)
    assert listed.returncode == 0, listed.stderr
    assert f"topic-{mechanism}" in listed.stdout


@pytest.mark.parametrize(
    ("mechanism", "who"),
    [(m, {"password": "fourth-secret"}) for m in MECHANISMS[:3]]
    + [(m, {"name": "nobody"}) for m in MECHANISMS[:3]]
    + [("OAUTHBEARER", {"name": " "})],
)
def test_who_is_not_known_gets_one_line(secured, mechanism, who):
    refused = secured.ottla("topics", "list", mechanism=mechanism, **who)
    assert refused.returncode == 1
    assert len(lines(refused)) == 1, refused.stderr
    expected = "invalid_token" if mechanism == "OAUTHBEARER" else "Authentication failed"
    assert expected in refused.stderr
    assert "fourth-secret" not in refused.stderr


@pytest.mark.parametrize(
    "claims",
    [{"aud": "other"}, {"iss": "other"}, {"exp": 1}, {"iat": None}, {"sub": None},
     {"exp": None}, {"nbf": LATER_S}],
)  # fmt: skip
def test_tokens_that_do_not_count(secured, claims):
    if "nbf" in claims:  # from now on: tests are collected long before the last of them runs
        claims = {"nbf": time.time() + claims["nbf"]}
    token = secured.folder / f"{uuid.uuid4()}.jwt"
    token.write_text(secured.issuer.token(**claims))
    config = secured.folder / f"{uuid.uuid4()}.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer."
        "OAuthBearerLoginModule required;\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    refused = ottla("topics", "list", "-b", secured.cluster.sasl_bootstrap,
                    "--command-config", str(config))  # fmt: skip
    assert refused.returncode == 1
    assert "invalid_token" in refused.stderr


def test_a_user_is_added_changed_and_removed_while_brokers_run(secured):
    every = set(secured.cluster.ids)

    def may(password):
        """Return the brokers that carol may connect to: each hears of a change by itself."""
        asked = partial(secured.ottla, "topics", "list", name="carol", password=password)
        return {broker for broker in every if asked(broker=broker).returncode == 0}

    secured_args = ("--password-file", "-")
    assert not may("first")
    for password in ("first", "second"):
        done = secured.ottla("users", "add", "carol", *secured_args, stdin=password)
        assert done.returncode == 0, done.stderr
        until(lambda password=password: may(password) == every, 60, f"carol has {password}")
    assert not may("first")
    listed = json.loads(secured.ottla("users", "list", "carol", "--output", "json").stdout)
    assert listed == [{"user": "carol", "credentials": dict.fromkeys(SCRAMS, 8192)}]
    done = secured.ottla("users", "remove", "carol", "--yes")
    assert done.returncode == 0, done.stderr
    until(lambda: not may("second"), 60, "carol connects no more")


def test_a_password_is_not_taken_from_the_arguments(secured):
    done = secured.ottla("users", "add", "dave")
    assert done.returncode == 2
    assert "--password-file" in done.stderr


def test_secrets_are_neither_described_nor_in_the_status(secured):
    cluster = secured.cluster
    described = secured.ottla("configs", "describe", "--broker", "0", "--output", "json")
    assert described.returncode == 0, described.stderr
    assert f"{PREFIX}.plain.sasl.jaas.config" in described.stdout
    arguments = Path(f"/proc/{cluster.pid(0)}/cmdline").read_text()
    for text in (described.stdout, arguments):
        assert not [secret for secret in SECRETS if secret in text]
    journals = [p for b in cluster.ids for p in cluster.data(b).rglob("*journal*") if p.is_file()]
    assert journals
    found = [p for p in journals for s in SECRETS if s.encode() in p.read_bytes()]
    assert not found


def test_a_broker_killed_comes_back_and_is_authenticated_again(secured):
    cluster = secured.cluster
    cluster.kill(2)
    cluster.start_broker(2)
    until(lambda: secured.ottla("topics", "list").returncode == 0, 30, "it is listed")
    described = f"topic-{MECHANISMS[0]}"

    def whole():
        found = secured.ottla("topics", "describe", described, "--output", "json")
        return found.returncode == 0 and all(
            len(p["isr"]) == 3 for topic in json.loads(found.stdout) for p in topic["partitions"]
        )

    until(whole, 60, "all replicas are in sync again")


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_the_spark_source_asks_over_sasl(secured, mechanism):
    """Its questions and fetches go through this class, on the driver and in tasks."""
    from ottla.pipelines.source.cluster import Cluster
    from ottla.pipelines.source.options import parse_options

    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    options = {
        "kafka.bootstrap.servers": secured.cluster.sasl_bootstrap,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{module} required username="alice" '
        f'password="{USERS["alice"]}";',
        "subscribe": "topic-PLAIN",
    }
    asked = parse_options(options)
    assert USERS["alice"] not in repr(asked)
    with Cluster(asked) as cluster:
        found = cluster.topics(asked.subscription)
        assert found["topic-PLAIN"].partitions == (0, 1, 2)


def test_transactions_whose_markers_go_to_other_brokers(secured):
    """Coordinators verify and end them over connections of their own, authenticated as well."""
    config = {
        "bootstrap.servers": secured.cluster.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": USERS["alice"],
    }
    topic = "topic-SCRAM-SHA-256"
    for number in range(3):  # other coordinators, other leaders
        producer = Producer(config | {"transactional.id": f"tx-{number}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, f"tx-{number}-{partition}".encode(), partition=partition)
        producer.commit_transaction(30)
    wanted = {f"tx-{n}-{p}".encode() for n in range(3) for p in range(3)}
    group = {"group.id": "tx", "auto.offset.reset": "earliest",
             "isolation.level": "read_committed"}  # fmt: skip
    consumer = Consumer(config | group)
    consumer.subscribe([topic])
    seen = set()
    until(lambda: _poll(consumer, seen) or seen.issuperset(wanted), 40, "all were read")
    consumer.close()
