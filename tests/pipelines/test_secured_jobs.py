"""Spark jobs on a cluster that wants SASL over TLS and has ACLs, and where their secrets are then.

Each job is a process of its own. Its user may do what the job needs and nothing else; without that
it is refused in one line. The passwords and keys stand nowhere but in the files that were given:
not in Spark's event logs, which have every plan and every setting, not in results, tables,
checkpoints or logs, nor in the arguments of any process while the jobs run.
"""

import json
import os
import subprocess
import sys
import threading

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.certificates import Authority
from support.sasl_clusters import PLAIN
from support.sasl_ssl import ONE_BROKER, OPERATOR, SaslSslOttla
from support.secret_scan import leaks, process_leaks

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.spark,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]

USERS = {"lander": "planted-lander-password", "guest": "planted-guest-password"}
TOPIC, LETTERS, COPY = "orders", "letters", "copies"
RECORDS, DAMAGED = 500, 7


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "ca")
    with SaslSslOttla(folder / "c", authority, 1, USERS, **ONE_BROKER) as running:
        admin = AdminClient(running.client(OPERATOR))
        made = [NewTopic(TOPIC, 2, 1), NewTopic(LETTERS, 1, 1), NewTopic(COPY, 2, 1)]
        for future in admin.create_topics(made).values():
            future.result(30)
        producer = Producer(running.client(OPERATOR))
        for n in range(RECORDS):
            producer.produce(TOPIC, json.dumps({"n": n}))
        for _ in range(DAMAGED):
            producer.produce(TOPIC, b"{")
        assert producer.flush(30) == 0
        yield running


@pytest.fixture
def run(cluster, tmp_path):
    """Run a job as a process; return it, and who had secrets in its arguments meanwhile."""

    def run(name, toml, *arguments):
        config, events = tmp_path / f"{name}.toml", tmp_path / f"{name}-events"
        config.write_text(toml)
        events.mkdir()
        settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.logBlockUpdates.enabled": "true",
            "spark.log.level": "INFO",
            "spark.driver.memory": "512m",
        }
        conf = [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
        found, ended, secrets = set(), threading.Event(), cluster.secrets()

        def look():
            while not ended.wait(0.2):
                found.update(process_leaks(secrets))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "ottla", "pipeline", name, "--config", str(config),
                 "--master", "local[2]", *conf, *arguments],
                capture_output=True, text=True, timeout=240, check=False, cwd=cluster.folder,
                env={**os.environ, "OTTLA_PIPELINE_DEBUG": "1"},
            )  # fmt: skip
        finally:
            ended.set()
            looking.join(20)
        (tmp_path / f"{name}.out").write_text(done.stdout)
        (tmp_path / f"{name}.err").write_text(done.stderr)
        return done, sorted(found)

    return run


def test_lake_and_replay(cluster, run, tmp_path):
    cluster.allow(
        "lander",
        ("Read", "--topic", TOPIC),
        ("IdempotentWrite", "--cluster"),
        ("Write", "--topic", COPY),
        ("Read", "--topic", COPY),
        ("Read", "--topic", "ottla-replay", "--prefixed"),
        ("Write", "--topic", "ottla-replay", "--prefixed"),
        ("Create", "--topic", "ottla-replay", "--prefixed"),
        ("DescribeConfigs", "--topic", "ottla-replay", "--prefixed"),
        ("Write", "--transactional-id", "ottla-replay", "--prefixed"),
    )
    cluster.client_properties("lander")
    toml = f"""
        bootstrap_servers = "{cluster.secure_bootstrap}"
        properties = "lander.properties"
    """  # a relative path, as of where the job is started
    lake, running = run(
        "lake",
        f"""
        [cluster]{toml}
        [lake]
        path = "{tmp_path}/lake"
        topics = ["{TOPIC}"]
        [value]
        format = "json"
        schema = "n long"
        """,
    )
    assert lake.returncode == 0, lake.stderr
    landed = json.loads(lake.stdout.splitlines()[-1])
    assert landed["exactly_once"] is True
    assert landed["topics"][TOPIC]["rows"] == RECORDS
    assert landed["topics"][TOPIC]["dead"] == DAMAGED
    assert running == []

    copied, running = run(
        "replay",
        f"""
        [source]{toml}
        [replay]
        topic = "{TOPIC}"
        to = "{COPY}"
        filter = "length(value) > 1"
        """,
    )
    assert copied.returncode == 0, copied.stderr
    assert json.loads(copied.stdout.splitlines()[-1])["exactly_once"] is True
    numbers = [json.loads(value)["n"] for value in read(cluster, COPY)]
    assert sorted(numbers) == list(range(RECORDS))
    assert running == []

    events = [path for path in tmp_path.rglob("*") if path.is_file() and "events" in str(path)]
    assert sum(path.stat().st_size for path in events) > 100_000, "Spark wrote its event logs"
    assert any(b"SparkListenerSQLExecutionStart" in path.read_bytes() for path in events)
    assert leaks(cluster.secrets(), tmp_path) == []
    assert cluster.leaks() == []


def test_a_secret_among_options_is_redacted(cluster, run, tmp_path):
    user = f'username="{OPERATOR}" password="{cluster.passwords[OPERATOR]}"'
    lake, running = run(
        "lake",
        f"""
        [cluster]
        bootstrap_servers = "{cluster.secure_bootstrap}"
        [cluster.options]
        "security.protocol" = "SASL_SSL"
        "sasl.mechanism" = "PLAIN"
        "ssl.truststore.type" = "PEM"
        "ssl.truststore.location" = "{cluster.authority.pem}"
        "sasl.jaas.config" = '''{PLAIN} required {user};'''
        [lake]
        path = "{tmp_path}/lake"
        topics = ["{TOPIC}"]
        """,
        "--verify",
    )
    assert lake.returncode == 0, lake.stderr
    assert json.loads(lake.stdout.splitlines()[-1])["exactly_once"] is True
    assert running == []
    config = tmp_path / "lake.toml"
    assert leaks(cluster.secrets(), tmp_path) == [f"{config}: password of {OPERATOR}"]


def read(cluster, topic):
    """Return the values of a topic, by librdkafka."""
    reader = Consumer(
        cluster.client(OPERATOR)
        | {
            "group.id": f"reader-{topic}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    partitions = len(reader.list_topics(topic, timeout=20).topics[topic].partitions)
    reader.subscribe([topic])
    values, ends = [], 0
    try:
        while ends < partitions:
            message = reader.poll(20)
            assert message is not None, f"no end of {topic}"
            if message.error():
                ends += 1
            else:
                values.append(message.value())
    finally:
        reader.close()
    return values
