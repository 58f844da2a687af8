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


@pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux alone")
def test_a_port_that_was_picked_is_given_to_nobody_else(bare, monkeypatch):
    """And the server listens there, while it is held."""
    put_command(bare / "bin", "java", "exec /bin/sleep 60")
    monkeypatch.setenv(JARS_VARIABLE, str(put_jars(bare / "jars", *SERVER)))
    server = embedded.start_zookeeper(bare / "zk", wait=False)
    try:
        assert f"clientPort={server.port}\n" in (bare / "zk" / "zoo.cfg").read_text()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port))
        with socket.create_server(("127.0.0.1", server.port)):
            pass
    finally:
        server.kill()
    with socket.socket() as other:
        other.bind(("127.0.0.1", server.port))


def test_the_command_line_pays_for_nothing_heavy():
    program = (
        "import sys, ottla.zookeeper.embedded;"
        "print([m for m in ('asyncio', 'msgspec', 'pyspark', 'kazoo') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
