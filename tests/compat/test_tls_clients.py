"""Three brokers that meet over TLS, real clients over TLS and with certificates, a kill -9.

confluent-kafka (librdkafka), kafka-python and aiokafka each bring a TLS of their own.
"""

import asyncio
import ssl
import subprocess
import sys
from itertools import islice

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from kafka import KafkaConsumer, KafkaProducer

from support.certificates import Authority
from support.clients import create_topics
from support.cluster import FEW
from support.secured import HOST, SecuredCluster, consume, produce
from support.seen import Znodes
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(300)]
TOPIC = "secured"
SETTINGS = {"default_replication_factor": "3", "min_insync_replicas": "2", **FEW}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def alice(authority):
    return authority.issue("alice", "alice", common_name="alice")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, authority):
    with SecuredCluster(tmp_path_factory.mktemp("cluster"), authority, 3, **SETTINGS) as running:
        admin = AdminClient(running.tls.client(log_level=2))
        create_topics(admin, NewTopic(TOPIC, 3, 3))
        yield running


def test_clients_of_all_kinds(cluster, authority, alice):
    """Each writes over one listener and reads what all wrote over the one that wants mTLS."""
    expected = [b"%d" % i for i in range(3000)]
    produce(cluster.tls.client(log_level=2), TOPIC, expected[:1000])
    files = {"ssl_cafile": str(authority.pem), "security_protocol": "SSL"}
    own = {"ssl_certfile": str(alice.chain), "ssl_keyfile": str(alice.key)}
    producer = KafkaProducer(
        bootstrap_servers=cluster.tls.addresses(mtls=True), acks="all", **files, **own
    )
    for value in expected[1000:2000]:
        producer.send(TOPIC, value)
    producer.flush(30)
    producer.close()
    asyncio.run(by_aiokafka(cluster, authority, alice, expected[2000:]))
    found = consume(cluster.tls.client(alice, log_level=2), TOPIC, 3000)
    assert sorted(found) == sorted(expected)
    reader = KafkaConsumer(
        TOPIC, bootstrap_servers=cluster.tls.addresses(mtls=True), consumer_timeout_ms=40_000,
        auto_offset_reset="earliest", **files, **own,
    )  # fmt: skip
    found = [m.value for m in islice(reader, len(expected))]
    assert sorted(found) == sorted(expected)
    reader.close()


async def by_aiokafka(cluster, authority, alice, values):
    context = ssl.create_default_context(cafile=str(authority.pem))
    context.load_cert_chain(str(alice.chain), str(alice.key))
    shared = {
        "bootstrap_servers": cluster.tls.addresses(mtls=True),
        "security_protocol": "SSL",
        "ssl_context": context,
    }
    async with AIOKafkaProducer(acks="all", **shared) as producer:
        for value in values:
            await producer.send(TOPIC, value)
        await producer.flush()
    async with AIOKafkaConsumer(TOPIC, auto_offset_reset="earliest", **shared) as reader:
        found = await asyncio.wait_for(anext(reader), 40)
        assert found.value


def test_who_has_no_certificate_or_a_wrong_one_is_not_let_in(cluster, authority, tmp_path):
    stranger = Authority(tmp_path, "stranger").issue("mallory", "mallory")
    without = cluster.tls.client() | {"bootstrap.servers": cluster.tls.addresses(mtls=True)}
    refused(without, "SSL alert")
    refused(cluster.tls.client(stranger) | {"ssl.ca.location": str(authority.pem)}, "SSL alert")


def test_a_client_that_does_not_know_the_ca_refuses_the_broker(cluster, tmp_path):
    other = Authority(tmp_path, "other")
    refused(cluster.tls.client() | {"ssl.ca.location": str(other.pem)}, "verif")


def refused(settings, words):
    """Wait until librdkafka says that there is no TLS, and why."""
    errors = []
    # It depends on the moment whether the alert or the end of the connection is heard first.
    often = {"reconnect.backoff.max.ms": 500}
    admin = AdminClient(settings | often | {"error_cb": errors.append, "log_level": 2})
    until(
        lambda: admin.poll(0.2) is not None and any(words in e.str() for e in errors),
        40,
        lambda: f"{words} in an error, not {errors}",
    )


def test_brokers_meet_over_tls_only(cluster):
    """Every connection between brokers is to the port of the SSL listener."""
    for broker in cluster.ids:
        log = cluster.log(broker).read_text()
        ports = {
            int(line.rpartition("port=")[2])
            for line in log.splitlines()
            if "fetcher connected" in line or "controller connected" in line
        }
        assert ports
        assert ports <= set(cluster.tls.ssl_ports.values())


def test_the_command_line_over_tls(cluster, authority, alice, tmp_path):
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority.pem}\nssl.keystore.type=PEM\n"
        f"ssl.keystore.location={alice.pem}\n"
    )
    address = cluster.tls.addresses(mtls=True)
    command = [sys.executable, "-m", "ottla", "topics", "list", "-b", address]
    done = subprocess.run(
        [*command, "--command-config", str(config)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert TOPIC in done.stdout
    plain = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert plain.returncode == 1
    assert "TLS" in plain.stderr
    assert "Traceback" not in plain.stderr


def test_a_certificate_is_replaced_while_the_broker_runs(cluster, authority):
    """New connections are shown the new one; the open ones go on."""
    broker = 2
    port = cluster.tls.ssl_ports[broker]
    before = shown_certificate(port)
    reader = Consumer(cluster.tls.client(**{"group.id": "open", "log_level": 2}))
    reader.list_topics(timeout=10)
    authority.issue(f"broker-{broker}", common_name=f"broker-{broker}")
    until(lambda: shown_certificate(port) != before, 40, "the new certificate is shown")
    reader.list_topics(timeout=10)
    reader.close()
    good = cluster.tls.identities[broker].pem
    kept = good.read_bytes()
    good.write_bytes(b"-----BEGIN NOTHING-----\n")
    until(
        lambda: "certificates not reloaded" in cluster.log(broker).read_text(),
        40,
        "a damaged file is said",
    )
    assert shown_certificate(port) != before
    good.write_bytes(kept)


def shown_certificate(port):
    return ssl.get_server_certificate((HOST, port), timeout=10)


def test_a_leader_is_killed_while_clients_write(cluster, alice):
    values = [b"k%d" % i for i in range(4000)]
    with Znodes(cluster.zookeeper) as znodes:
        victim = znodes.states(TOPIC)[0].leader
        produce(cluster.tls.client(alice, log_level=2), TOPIC, values[:2000])
        cluster.kill(victim)
        produce(cluster.tls.client(alice, log_level=0), TOPIC, values[2000:])
        until(
            lambda: all(s.leader not in (victim, -1) for s in znodes.states(TOPIC).values()),
            30,
            "others lead",
        )
        cluster.start_broker(victim)
        until(lambda: znodes.full(TOPIC), 60, "all replicas are in sync again")
    settings = cluster.tls.client(alice, log_level=0) | {"group.id": "after"}
    found = consume(settings, TOPIC, 7000)
    assert set(values) <= set(found)
    for broker in cluster.ids:
        assert "Traceback" not in cluster.log(broker).read_text()


def test_the_keystore_of_one_listener_is_changed_by_alter_configs(cluster, authority):
    """As with Kafka: for one listener of one broker, if it is the same broker's; no restart."""
    broker = 1
    key = "listener.name.clients.ssl.keystore.location"
    good = authority.issue("again", common_name=f"broker-{broker}")
    wrong = authority.issue("wrong", common_name="mallory")
    admin = AdminClient(cluster.tls.client(log_level=2))

    def alter(value):
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("broker", str(broker), incremental_configs=[entry])
        (future,) = admin.incremental_alter_configs([resource]).values()
        future.result(20)

    port = cluster.tls.mtls_ports[broker]
    before = shown_certificate(port)
    with pytest.raises(KafkaException, match="DistinguishedName does not match"):
        alter(str(wrong.pem))
    with pytest.raises(KafkaException, match="No such file"):
        alter("/nowhere.pem")
    assert shown_certificate(port) == before
    alter(str(good.pem))
    until(lambda: shown_certificate(port) != before, 40, "the new certificate is shown")
    assert cluster.running(broker)
