"""Which commands take --command-config: each that connects to brokers, and each of them obeys it.

The listener takes connections and notes how they begin. A command that were to connect in the clear
would send a length, not TLS's first byte.
"""

import contextlib
import io
import json
import re
import shlex
import socket
import sys
import threading

import pytest

from ottla.cli import grammar as cli
from ottla.client import client
from ottla.console import server
from ottla.model.errors import OttlaError
from support.certificates import Authority
from support.commands import asks_cluster, every_command

PASSWORD = "planted-password"
HANDSHAKE = b"\x16\x03"

OF_THE_FOLDER = {
    "up", "down", "demo", "broker start", "broker restart", "broker kill",
    "broker pause", "broker resume", "broker cut", "broker heal", "broker remove", "users rotate",
}  # fmt: skip
"""They are about processes that `ottla up` started: its folder has the client.properties."""
OF_ZOOKEEPER = {"znode ls", "znode get"}
"""They connect to ZooKeeper alone."""
OF_FILES = {
    "dump-log",
    "history merge",
    "why",
    "history timeline",
    "history replay",
    "sim check",
} | {
    f"{group} {name}"
    for group, names in {
        "certs": ("init", "issue", "list", "rotate"),
        "profile": ("list", "show", "set", "use", "remove"),
    }.items()
    for name in names
}
"""They connect to nothing."""
OF_THE_COMMAND_LINE = {"completion", "schema"}
ARGUMENTS = {
    "status": "",
    "broker stop": "1 --leaders-only",
    "groups watch": "audit",
    "reassign list": "",
    "doctor": "",
    "cluster diff": "@snapshot",
    "cluster apply": "@snapshot --dry-run",
    "reassign execute": "--file @plan",
    "reassign verify": "--file @plan",
    "users add": "alice --password-file @password",
    "produce": "letters",
    "whatif reassign": "@plan",
    "top": "--count 1",
}
"""Instead of the example of the help, where that needs files, or has no end."""


CONNECTING = sorted(name for name, command in every_command().items() if asks_cluster(command))


def test_each_command_takes_it_or_is_known_not_to_connect_to_brokers():
    apart = OF_THE_FOLDER | OF_ZOOKEEPER | OF_FILES | OF_THE_COMMAND_LINE
    assert set(every_command()) - set(CONNECTING) == apart
    assert len(CONNECTING) > 40


@pytest.mark.parametrize("name", CONNECTING)
def test_the_help_tells_of_it(name, capsys):
    assert cli.main([*name.split(), "--help"]) == 0
    assert "--command-config" in capsys.readouterr().out


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("config")
    path = folder / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={Authority(folder).pem}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="app" password="{PASSWORD}";\n'
    )
    return path


@pytest.fixture(scope="module")
def listener():
    server = socket.create_server(("127.0.0.1", 0))
    began = []

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


@pytest.fixture
def files(tmp_path):
    plan = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}
    (tmp_path / "plan").write_text(json.dumps(plan))
    (tmp_path / "password").write_text("of-alice\n")
    (tmp_path / "snapshot").write_text(
        json.dumps({"cluster_id": "c", "brokers": {}, "topics": {}, "quotas": [], "groups": {}})
    )
    return tmp_path


def example(name):
    """Return the arguments of a command's example, as its help has it."""
    found = re.search(rf"Example: .*?ottla {name}(?: ([^|>\n]*))?", every_command()[name].help)
    assert found, name
    return found[1] or ""


async def ask_once(client, another, *_arguments):
    """Ask as a page of `console` does: it has one client and makes others."""
    other = another()
    try:
        with contextlib.suppress(OttlaError):
            await other.broker_ids()
    finally:
        await other.close()
    await client.broker_ids()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", CONNECTING)
def test_a_command_that_is_told_tls_speaks_it(name, config, listener, files, monkeypatch, capsys):
    where, began = listener
    began.clear()
    monkeypatch.setattr(client, "RETRIES", 1)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))
    monkeypatch.delenv("OTTLA_DIR", raising=False)
    monkeypatch.setattr(server, "serve", ask_once)  # `console` listens until it is told to end
    text = ARGUMENTS.get(name)
    text = example(name) if text is None else text
    arguments = shlex.split(text.replace("@", f"{files}/"))
    typed = [*name.split(), *arguments, "-b", where, "--command-config", str(config)]
    code = cli.main(typed)
    printed = capsys.readouterr()
    assert began, printed
    assert set(began) == {HANDSHAKE}
    assert code == (0 if name == "top" else 1), printed  # it goes on until brokers are back
    assert PASSWORD not in printed.out + printed.err
