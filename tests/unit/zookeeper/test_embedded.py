"""Finding Java and jars: each missing thing is one line with the way out."""

import importlib.util
import socket
import subprocess
import sys

import pytest

from ottla.model.errors import StartupError
from ottla.zookeeper import embedded


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine with nothing on it."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(embedded.JARS_VARIABLE, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    return tmp_path


def put_jars(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return folder


SERVER = [
    "zookeeper-3.8.4.jar",
    "zookeeper-jute-3.8.4.jar",
    "slf4j-api-1.7.36.jar",
    "metrics-core-2.2.0.jar",
    "metrics-core-4.1.12.1.jar",
    "snappy-java-1.1.10.5.jar",
]


def put_command(folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / name
    command.write_text("#!/bin/sh\nexit 3\n")
    command.chmod(0o755)
    return command


def test_no_java_is_one_line(bare):
    with pytest.raises(StartupError, match=r"no Java found.*JAVA_HOME.*ottla\[java\]"):
        embedded.find_java()


def test_java_home_comes_before_the_path(bare, monkeypatch):
    on_path = put_command(bare / "bin", "java")
    assert embedded.find_java() == on_path
    at_home = put_command(bare / "home" / "bin", "java")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert embedded.find_java() == at_home


def test_no_jars_is_one_line(bare):
    with pytest.raises(StartupError, match=r"ottla\[spark\].*Maven.*OTTLA_ZOOKEEPER_JARS"):
        embedded.find_jars()


def test_the_folder_given_must_have_them_all(bare, monkeypatch):
    folder = put_jars(bare / "jars", *SERVER[1:])
    monkeypatch.setenv(embedded.JARS_VARIABLE, str(folder))
    with pytest.raises(StartupError, match=r"OTTLA_ZOOKEEPER_JARS=.*zookeeper-jute"):
        embedded.find_jars()
    put_jars(folder, *SERVER)
    names = [jar.name for jar in embedded.find_jars()]
    assert sorted(names) == sorted(set(SERVER) - {"metrics-core-2.2.0.jar"})


def test_the_cache_is_found(bare):
    folder = put_jars(bare / "cache" / "ottla" / "zookeeper" / embedded.VERSION, *SERVER)
    assert {jar.parent for jar in embedded.find_jars()} == {folder}


def test_maven_that_fails_is_one_line(bare):
    put_command(bare / "bin", "mvn")
    with pytest.raises(StartupError, match="Maven could not fetch ZooKeeper"):
        embedded.find_jars()


def test_the_error_of_a_server_that_ends_at_once_has_its_output(bare, monkeypatch):
    java = put_command(bare / "bin", "java")
    java.write_text("#!/bin/sh\necho out of luck\nexit 7\n")
    monkeypatch.setenv(embedded.JARS_VARIABLE, str(put_jars(bare / "jars", *SERVER)))
    with pytest.raises(StartupError, match=r"code 7.*out of luck"):
        embedded.start_zookeeper(bare / "zk")


def test_a_port_in_use_is_one_line(bare, monkeypatch):
    put_command(bare / "bin", "java")
    monkeypatch.setenv(embedded.JARS_VARIABLE, str(put_jars(bare / "jars", *SERVER)))
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
