"""`ottla up --secure`: three brokers, TLS, users, ACLs and ZooKeeper's users, in one command."""

import asyncio
import runpy
import stat
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from kafka import KafkaConsumer

from ottla.local import secure
from ottla.local.cluster_dir import ClusterDir
from support import command_line, kafka_tools
from support.cluster import free_row
from support.secret_scan import content, files_below
from support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(180)]

WITH_PASSWORDS = {"clients", "passwords.json", "zookeeper.jaas"}
"""Besides each broker's server.properties."""


def ottla(*arguments, stdin="", code=0):
    done = command_line.ottla(*arguments, stdin=stdin)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("secure") / "data"
    try:
        said = ottla("up", "--secure", "--dir", path, "--port-base", free_row(4))
        yield path, said
    finally:
        ottla("down", "--dir", path)


def librdkafka(path, user="app"):
    """Return the settings of a user's file for librdkafka."""
    lines = (path / "clients" / f"{user}.librdkafka.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def produced(settings, topic, values):
    """Return what became of records: None, or an error's code."""
    codes = []
    producer = Producer({**settings, "acks": "all", "message.timeout.ms": 20_000})
    for value in values:
        producer.produce(topic, value, callback=lambda e, _: codes.append(e and e.code()))
    assert producer.flush(30) == 0
    return codes


def test_the_files_that_are_named_work_for_all_clients(folder, tmp_path):
    path, said = folder
    app = path / "clients" / "app.properties"
    for end in (".properties", ".librdkafka.properties", ".py"):
        assert f"{path}/clients/app{end}" in said
    ottla("topics", "create", "t", "--partitions", 3, "--command-config", app)
    settings = librdkafka(path)
    assert produced(settings, "t", [b"%d" % i for i in range(100)]) == [None] * 100
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    seen = set()
    until(lambda: seen.add(consumer.poll(1).value()) or len(seen) == 100, 60, "all are read",
          despite=(AttributeError,))  # fmt: skip
    consumer.close()
    python = runpy.run_path(str(path / "clients" / "app.py"))
    assert produced(python["CONFLUENT_KAFKA"], "t", [b"x"]) == [None]

    async def produce():
        async with AIOKafkaProducer(**python["AIOKAFKA"]) as producer:
            await producer.send_and_wait("t", b"aiokafka")

    asyncio.run(produce())
    reader = KafkaConsumer(
        "t", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **python["KAFKA_PYTHON"]
    )
    assert next(r.value for r in reader if r.value == b"aiokafka")
    reader.close()
    address = settings["bootstrap.servers"]
    found = kafka_tools.run(
        kafka_tools.CONSOLE_CONSUMER, "--bootstrap-server", address, "--topic", "t",
        "--consumer.config", str(app), "--from-beginning", "--max-messages", "102",
    )  # fmt: skip
    assert {*map(str, range(100)), "x", "aiokafka"} <= set(found.split())
    ottla("topics", "list", "-b", address, code=1)  # it says nothing of who it is


def test_the_application_may_what_applications_do_and_nothing_else(folder):
    path, _ = folder
    app = AdminClient(librdkafka(path))
    app.create_topics([NewTopic("own", 1, 3)])["own"].result(20)
    for denied in (
        app.delete_topics(["own"])["own"],
        app.alter_user_scram_credentials(
            [UserScramCredentialDeletion("admin", ScramMechanism.SCRAM_SHA_512)]
        )["admin"],
        app.create_topics([NewTopic("__own", 1, 3)])["__own"],
    ):
        with pytest.raises(KafkaException) as raised:
            denied.result(20)
        assert "AUTHORIZATION_FAILED" in raised.value.args[0].name()
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produced(librdkafka(path), "__consumer_offsets", [b"x"]) == [refused]
    transactional = Producer({**librdkafka(path), "transactional.id": "x"})
    transactional.init_transactions(60)
    transactional.begin_transaction()
    transactional.produce("own", b"x")
    transactional.commit_transaction(60)
    ottla("topics", "delete", "own", "--yes", "--dir", path)  # as the administrator
    assert "User:app" in ottla("acls", "list", "--dir", path)


def test_zookeeper_serves_only_who_authenticates(folder):
    path, _ = folder
    assert "/config/users" in ottla("znode", "ls", "/config", "--dir", path)
    address = ClusterDir(path).existing().zookeeper.address
    ottla("znode", "ls", "/config", "--zookeeper", address, "--dir", path.parent, code=1)
    properties = path / "broker-0" / "server.properties"
    ottla("znode", "get", "/config/users/app", "--zookeeper-config", properties)
    said = ottla("doctor", "--for", "0s", "--dir", path)
    assert "not asked" not in said, "ZooKeeper was asked, as the brokers' user"


def test_a_new_password_is_in_force_at_once(folder):
    path, _ = folder
    before = librdkafka(path)
    said = ottla("users", "rotate", "app", "--dir", path)
    after = librdkafka(path)
    assert before["sasl.password"] != after["sasl.password"]
    assert after["sasl.password"] not in said
    for address in before["bootstrap.servers"].split(","):  # each hears of it from ZooKeeper
        until(lambda a=address: refused(before | {"bootstrap.servers": a}), 20, "it has heard")
    assert AdminClient(after).list_topics(timeout=20).brokers.keys() == {0, 1, 2}
    ottla("users", "rotate", "zookeeper", "--dir", path, code=1)  # it runs


def refused(settings):
    """Return whether a broker does not let in who has these settings."""
    try:
        AdminClient(settings).list_topics(timeout=3)
    except KafkaException:
        return True
    return False


@pytest.mark.alone
def test_all_passwords_and_certificates_are_rotated_while_it_serves(folder):
    """Brokers are restarted one by one as a second user; the first one is gone at the end."""
    path, _ = folder
    ottla("topics", "create", "r", "--partitions", 6, "--dir", path)
    known = secure.load_passwords(ClusterDir(path))
    ottla("certs", "rotate", "--all", "--dir", path)
    said = ottla("users", "rotate", "--all", "--dir", path)
    assert not any(p in said for p in every_password(path))
    assert secure.load_passwords(ClusterDir(path)).users.keys() == {"admin", "app", "broker-b"}
    assert not set(known.users.values()) & set(every_password(path))
    assert produced(librdkafka(path), "r", [b"x"] * 20) == [None] * 20
    users = ottla("users", "list", "--dir", path)
    assert "broker-b" in users
    assert "broker-a" not in users
    ottla("certs", "list", "--dir", path)
    ottla("down", "--dir", path)
    ottla("users", "rotate", "zookeeper", "--dir", path)
    ottla("up", "--dir", path)
    assert "controller" in ottla("status", "--dir", path)


def every_password(path):
    known = secure.load_passwords(ClusterDir(path))
    return [*known.users.values(), known.zookeeper]


def test_nothing_private_is_open_or_told(folder):
    path, said = folder
    secrets = [p.encode() for p in every_password(path)]
    secrets.append((path / "certs" / "broker-0.pem").read_bytes().splitlines()[1])
    for file in files_below(path):
        data = content(file)
        if not any(secret in data for secret in secrets):
            continue
        top = file.relative_to(path).parts[0]
        assert top in {*WITH_PASSWORDS, "certs"} or file.name == "server.properties", file
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    ours = [b.process.pid for b in ClusterDir(path).existing().brokers]
    ours.append(ClusterDir(path).existing().zookeeper.process.pid)
    proc = [Path(f"/proc/{pid}/{what}") for pid in ours for what in ("cmdline", "environ")]
    told = [file.read_bytes() for file in proc if file.exists()]
    told += [ottla("status", "--dir", path, "--output", "json").encode(), said.encode()]
    assert not any(secret in text for text in told for secret in secrets)
