"""Starting a server: what goes wrong is one line with the way out."""

import socket
import subprocess
import sys

import pytest

from ottla.model.errors import StartupError
from ottla.zookeeper import embedded
from ottla.zookeeper.jars import JARS_VARIABLE
from support.bare_machine import SERVER, make_bare, put_command, put_jars


@pytest.fixture
def bare(monkeypatch, tmp_path):
    return make_bare(monkeypatch, tmp_path)


def test_the_error_of_a_server_that_ends_at_once_has_its_output(bare, monkeypatch):
    put_command(bare / "bin", "java", "echo out of luck\nexit 7")
    monkeypatch.setenv(JARS_VARIABLE, str(put_jars(bare / "jars", *SERVER)))
    with pytest.raises(StartupError, match=r"code 7.*out of luck"):
        embedded.start_zookeeper(bare / "zk")


def test_a_port_in_use_is_one_line(bare, monkeypatch):
    put_command(bare / "bin", "java")
    monkeypatch.setenv(JARS_VARIABLE, str(put_jars(bare / "jars", *SERVER)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"port {port}.*another"):
            embedded.start_zookeeper(bare / "zk", port)
        taken.close()
    assert not embedded.responds(port)


def test_the_command_line_pays_for_nothing_heavy():
    program = (
        "import sys, ottla.zookeeper.embedded;"
        "print([m for m in ('asyncio', 'msgspec', 'pyspark', 'kazoo') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
