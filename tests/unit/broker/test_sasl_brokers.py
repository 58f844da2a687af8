"""Brokers that authenticate at each other, by each mechanism, in a simulated cluster."""

import hashlib
from types import SimpleNamespace

import pytest

from ottla.security.sasl.scram import ScramMechanism, credential_of, credential_text
from ottla.wire.messages.topics import CreateTopicsRequest
from ottla.zookeeper.operations import Create
from ottla.zookeeper.znodes import encode_config

KAFKA = "org.apache.kafka.common.security"
MODULES = {
    "PLAIN": f'{KAFKA}.plain.PlainLoginModule required username="b" password="p" user_b="p";',
    "SCRAM-SHA-256": f'{KAFKA}.scram.ScramLoginModule required username="b" password="p";',
    "SCRAM-SHA-512": f'{KAFKA}.scram.ScramLoginModule required username="b" password="p";',
    "OAUTHBEARER": f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="b";',
}


def settings(number, mechanism, **more):
    values = {
        "listeners": f"C://b{number}:9092,B://b{number}:9093",
        "listener.security.protocol.map": "C:PLAINTEXT,B:SASL_PLAINTEXT",
        "inter.broker.listener.name": "B",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"listener.name.b.{mechanism.lower()}.sasl.jaas.config": MODULES[mechanism],
        "default.replication.factor": "2",
        **more,
    }
    if mechanism == "OAUTHBEARER":
        values["ottla.sasl.oauthbearer.unsigned.tokens.for.tests"] = "true"
    return values


def add_user(scene):
    config = {}
    for mechanism in ScramMechanism:
        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, b"p", b"salt", 4096)
        config[mechanism.sasl_name] = credential_text(
            credential_of(mechanism, salted, b"salt", 4096)
        )
    tree = scene.zookeeper.tree
    for path, data in (
        ("/config", b""),
        ("/config/users", b""),
        ("/config/users/b", encode_config(config)),
    ):
        tree.transact([Create(path, data)], 0, 0)


@pytest.mark.parametrize("mechanism", MODULES)
def test_replicas_are_fetched_over_authenticated_connections(scene, mechanism, monkeypatch):
    clock = scene.simulation.node("client").world.clock
    monkeypatch.setattr("ottla.security.sasl.settings.time", SimpleNamespace(
        time=lambda: clock.wall_ms() / 1000))  # fmt: skip
    if mechanism.startswith("SCRAM"):
        add_user(scene)
    for number in (0, 1):
        scene.up(number, **settings(number, mechanism))
    scene.wait(lambda: len(scene.brokers["b0"].services.metadata.snapshot.brokers) == 2)
    r = CreateTopicsRequest
    topic = r.CreatableTopic(name="t", num_partitions=2, replication_factor=2)
    scene.ask(0, r(topics=[topic], timeout_ms=10_000), 7)
    scene.ask(1, r(topics=[topic], timeout_ms=10_000), 7)
    scene.wait(lambda: scene.brokers["b1"].services.metadata.partition("t", 1) is not None)
    for index in (0, 1):
        scene.produce("t", 5, index=index)  # acks=all: both have it
    counted = [b.statistics()["sasl"]["B"] for b in scene.brokers.values()]
    assert all(count["authenticated"] > 0 and count["failed"] == 0 for count in counted), counted


def test_a_broker_with_another_password_takes_no_part(scene):
    scene.up(0, **settings(0, "PLAIN"))
    wrong = MODULES["PLAIN"].replace('password="p"', 'password="wrong"')
    scene.boot(1, **settings(1, "PLAIN", **{"listener.name.b.plain.sasl.jaas.config": wrong}))
    scene.wait(lambda: scene.brokers["b0"].statistics()["sasl"]["B"]["failed"] > 2)
    assert scene.brokers["b0"].statistics()["sasl"]["B"]["authenticated"] > 0  # its own
