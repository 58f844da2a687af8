"""Jobs take Kafka's client settings, and keep secrets out of all that Spark may show.

Which bytes a job sends first is read by a listener that knows nothing else: each job that is told
TLS begins with a handshake, and says in one line that it came to nothing.
"""

import contextlib
import pickle
import re
import socket
import threading
from pathlib import Path

import pytest

from ottla.model.errors import ConfigError
from ottla.pipelines import job, replay, session
from ottla.pipelines.config import Cluster, Spark, read_config
from ottla.pipelines.declarative import command as init
from ottla.pipelines.declarative.cluster_offsets import held_offsets
from ottla.pipelines.lake import command as lake
from ottla.pipelines.source.cluster import _security
from ottla.pipelines.source.options import parse_options
from ottla.security.client_properties import KEYS, LOCATIONS, SECRETS
from ottla.security.tls_settings import KEYSTORE, TRUSTSTORE
from support.certificates import Authority

PASSWORD = "planted-password"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="app" password="{PASSWORD}";'
)
HANDSHAKE = b"\x16\x03"


@pytest.fixture
def secured(tmp_path):
    """Write client.properties, with a truststore of a relative path; return the file."""
    authority = Authority(tmp_path / "ca")
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={JAAS}\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority.pem}\nclient.id=app\nssl.protocol=TLSv1.3\n"
    )
    return path


@pytest.fixture
def listener():
    """Take connections, note how each began, and close it."""
    server = socket.create_server(("127.0.0.1", 0))
    began: list[bytes] = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(30)
                    began.append(connection.recv(2))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.getsockname()[1]}", began
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)


def test_secrets_of_the_file_do_not_leave_it(secured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cluster = Cluster(bootstrap_servers="h:1", properties="client.properties")
    ours = cluster.source_options()
    assert PASSWORD not in repr(ours)
    assert ours["properties"] == str(secured)
    found = parse_options({**ours, "subscribe": "t"})
    assert PASSWORD.encode() not in pickle.dumps(found)
    assert PASSWORD not in repr(found)
    monkeypatch.chdir("/")  # an executor's folder is another one
    connects = _security(pickle.loads(pickle.dumps(found)))
    assert connects.sasl.mechanism == "PLAIN"
    assert connects.tls.context() is not None
    assert found.client_id == "app"


def test_files_are_those_of_where_the_job_was_started(tmp_path, monkeypatch):
    Authority(tmp_path)
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem"
    )
    monkeypatch.chdir(tmp_path)
    cluster = Cluster(bootstrap_servers="h:1", properties="client.properties")
    whole = str(tmp_path / "ca.pem")
    assert cluster.client_options()["ssl.truststore.location"] == whole
    found = parse_options({**cluster.source_options(), "subscribe": "t"})
    by_hand = parse_options(
        {"bootstrap": "h:1", "subscribe": "t", "properties": "client.properties"}
    )
    monkeypatch.chdir("/")
    for options in (found, by_hand):
        assert options.client_settings()["ssl.truststore.location"] == whole
        assert _security(options).tls.context() is not None


def test_options_are_over_the_file_and_in_the_clear_is_still_possible(secured):
    cluster = Cluster(
        bootstrap_servers="h:1",
        properties=str(secured),
        options={"sasl.jaas.config": JAAS.replace(PASSWORD, "of-the-options")},
    )
    found = parse_options({**cluster.source_options(), "subscribe": "t"})
    assert "of-the-options" in found.client_settings()["sasl.jaas.config"]
    assert "of-the-options" not in repr(found)
    clear = Cluster(
        bootstrap_servers="h:1", properties=str(secured), options={"security.protocol": "PLAINTEXT"}
    )
    assert clear.security() is None
    assert _security(parse_options({**clear.source_options(), "subscribe": "t"})) is None


def test_what_cannot_be_is_one_line_that_names_the_file(secured, tmp_path):
    def refused(text, says, name="bad.properties"):
        path = tmp_path / name
        path.write_text(text)
        cluster = Cluster(bootstrap_servers="h:1", properties=str(path))
        with pytest.raises(ConfigError, match=says) as found:
            parse_options({**cluster.source_options(), "subscribe": "t"})
        assert str(path) in str(found.value)
        with pytest.raises(ConfigError, match=says):
            cluster.security()

    refused("security.protocol=SASL_SSL\n", r"sasl\.mechanism=GSSAPI")
    refused("security.protocol=TLS\n", r"security\.protocol=TLS is not one of")
    refused("security.protocol=SSL\nssl.truststore.location=nosuch\n", "nosuch")
    cluster = Cluster(bootstrap_servers="h:1", properties=str(tmp_path / "none.properties"))
    with pytest.raises(ConfigError, match=r"none\.properties: No such file"):
        cluster.source_options()


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_on_the_command_line_is_refused(name):
    with pytest.raises(ConfigError, match="can read the arguments") as found:
        read_config(None, [f'cluster.options={{"{name}"="{PASSWORD}"}}'], Cluster)
    assert PASSWORD not in str(found.value)


def test_spark_shows_no_value_of_a_secret():
    found = session.settings_of("x", session.Wanted(), Spark(), {}, {})["spark.redaction.regex"]
    for name in SECRETS:
        assert re.search(found, f"kafka.{name}"), name
        assert re.search(found, f"KAFKA.{name.upper()}"), name
    for name in ("spark.master", "kafka.bootstrap.servers", "subscribe", "properties"):
        assert not re.search(found, name)
    own = session.settings_of("x", session.Wanted(), Spark(), {}, {"spark.redaction.regex": "mine"})
    assert own["spark.redaction.regex"] == "mine"


def test_the_keys_are_those_that_are_read():
    assert {*KEYSTORE, *TRUSTSTORE} < set(KEYS)
    assert {*SECRETS, *LOCATIONS} < set(KEYS)
    assert len(set(KEYS)) == len(KEYS)


# -- every job -------------------------------------------------------------------------------------


def of_file(main):
    """Return a run of a job whose [cluster] is in its settings file."""

    def run(where, config, folder, *more):
        sets = [f"cluster.bootstrap_servers={where}", f'cluster.properties="{config}"', *more]
        return main([part for one in sets for part in ("--set", one)])

    return run


def run_lake(where, config, folder):
    return of_file(lake.main)(
        where, config, folder, f'lake.path="{folder}/lake"', 'lake.topics=["t"]'
    )


def run_replay(where, config, folder):
    sets = [f"source.bootstrap_servers={where}", f'source.properties="{config}"', "replay.topic=t",
            "replay.to=u"]  # fmt: skip
    return replay.main([part for one in sets for part in ("--set", one)])


def run_declarative(where, config, folder):
    return job.run("declarative", lambda: held_offsets(where, "t", properties=str(config)))


RUNS = (run_declarative, run_lake, run_replay)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.timeout(60)
def test_a_job_that_is_told_tls_speaks_it(run, secured, listener, tmp_path, capsys):
    where, began = listener
    assert run(where, secured, tmp_path) == 1
    printed = capsys.readouterr()
    assert began, printed
    assert set(began) == {HANDSHAKE}
    assert PASSWORD not in printed.out + printed.err
    last = printed.err.splitlines()[-1]
    assert last.startswith("pipeline ")
    assert where.rpartition(":")[2] in last


def test_a_project_names_the_file_and_has_none_of_its_secrets(secured, tmp_path):
    folder = tmp_path / "project"
    arguments = [str(folder), "--topic", "t", "--schema", "n long"]
    assert init.main([*arguments, "--command-config", str(tmp_path / "none")]) == 1
    assert not folder.exists()
    assert init.main([*arguments, "--command-config", str(secured)]) == 0
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    assert any(f'spark.ottla.properties: "{secured}"' in text for text in texts)
    assert not any(PASSWORD in text for text in texts)
    assert init.main([str(tmp_path / "plain"), *arguments[1:]]) == 0
    assert 'spark.ottla.properties: ""' in Path(tmp_path / "plain/spark-pipeline.yml").read_text()
